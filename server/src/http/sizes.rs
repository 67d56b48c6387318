//! Byte counts as text: the largest unit in which the number is exact with at most three decimals
//! (chapter 08 section 1.1).

/// Units, descending, with their bytes.
const UNITS: [(&str, u128); 13] = [
    ("EiB", 1 << 60),
    ("EB", 1_000_000_000_000_000_000),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// `bytes` in words.
pub(crate) fn text(bytes: u64) -> String {
    let bytes = u128::from(bytes);
    for (unit, size) in UNITS {
        let thousandths = bytes * 1000;
        if size > bytes || !thousandths.is_multiple_of(size) {
            continue;
        }
        let thousandths = thousandths / size;
        let (whole, part) = (thousandths / 1000, thousandths % 1000);
        if part == 0 {
            return format!("{whole} {unit}");
        }
        let decimals = format!("{part:03}");
        return format!("{whole}.{} {unit}", decimals.trim_end_matches('0'));
    }
    "0 B".to_owned()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn the_table_of_the_specification() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (999, "999 B"),
            (1000, "1 KB"),
            (1001, "1.001 KB"),
            (1024, "1 KiB"),
            (1500, "1.5 KB"),
            (1536, "1.5 KiB"),
            (262_144, "256 KiB"),
            (300_000, "300 KB"),
            (1_024_000, "1.024 MB"),
            (1_048_576, "1 MiB"),
            (1_048_577, "1048.577 KB"),
            (3_211_776, "3136.5 KiB"),
            (123_456_789, "123456.789 KB"),
            (1_073_741_824, "1 GiB"),
            (u64::MAX, "18446744073709551.615 KB"),
            (1_649_267_441_664, "1.5 TiB"),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }
}
