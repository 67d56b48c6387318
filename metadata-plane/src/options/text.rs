//! Text forms of durations and sizes that option values may use.
//!
//! Clients normally send numbers; these forms serve requests made by hand: `7 days`, `1h 30m`,
//! `128MiB`, `1.5 GB`. All arithmetic is exact and every overflow is a refusal (protocol
//! specification, chapter 05, section 9).

/// Longest duration a text may name, in seconds.
const DURATION_SECONDS_MAX: u128 = u32::MAX as u128;

/// Nanoseconds of each unit a duration may use.
const DURATION_UNITS: &[(&[&str], u128)] = &[
    (&["nsec", "ns", "nanos"], 1),
    (&["usec", "us", "micros"], 1_000),
    (&["msec", "ms", "millis"], 1_000_000),
    (&["seconds", "second", "secs", "sec", "s"], 1_000_000_000),
    (
        &["minutes", "minute", "mins", "min", "m"],
        60 * 1_000_000_000,
    ),
    (&["hours", "hour", "hrs", "hr", "h"], 3_600 * 1_000_000_000),
    (&["days", "day", "d"], 86_400 * 1_000_000_000),
    (
        &["weeks", "week", "wks", "wk", "w"],
        604_800 * 1_000_000_000,
    ),
    (&["months", "month", "M"], 2_630_016 * 1_000_000_000),
    (
        &["years", "year", "yrs", "yr", "y"],
        31_557_600 * 1_000_000_000,
    ),
];

/// Reads a duration such as `7 days` or `1h 30m` as microseconds, rounded down.
///
/// None where the text is no duration or names more than `u32::MAX` seconds.
pub(crate) fn duration_micros(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_digits(rest)?;
        let (unit, after) = split_word(after.trim_start());
        let scale = DURATION_UNITS
            .iter()
            .find(|(names, _)| names.contains(&unit))?
            .1;
        nanos = nanos.checked_add(u128::from(number).checked_mul(scale)?)?;
        rest = after.trim_start();
    }
    if nanos > DURATION_SECONDS_MAX * 1_000_000_000 {
        return None;
    }
    u64::try_from(nanos / 1_000).ok()
}

/// Reads a size such as `1048576`, `128MiB` or `1.5 GB` as bytes, rounded down.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = size_unit(unit.trim())?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let bytes = whole
        .checked_mul(scale)?
        .checked_add(fraction_bytes(fraction, scale)?)?;
    u64::try_from(bytes).ok()
}

/// Bytes that the digits behind the decimal point stand for.
fn fraction_bytes(fraction: &str, scale: u128) -> Option<u128> {
    if fraction.is_empty() {
        return Some(0);
    }
    if fraction.len() > 18 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: u128 = fraction.parse::<u64>().ok()?.into();
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits.checked_mul(scale)? / divisor)
}

/// Bytes of a decimal or binary unit; no unit means bytes.
fn size_unit(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    let stem = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = match stem.strip_suffix('i') {
        Some(letter) => (letter, 1_024_u128),
        None => (stem, 1_000_u128),
    };
    let power = match letter {
        "" if base == 1_000 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return None,
    };
    base.checked_pow(power)
}

/// The number at the front of `text` and what follows it.
fn split_digits(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// The word at the front of `text` and what follows it.
fn split_word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::{duration_micros, size_bytes};

    #[test]
    fn durations_add_up_their_parts() {
        assert_eq!(duration_micros("7 days"), Some(7 * 86_400 * 1_000_000));
        assert_eq!(duration_micros("1h 30m"), Some(5_400 * 1_000_000));
        assert_eq!(duration_micros("1h30m5s"), Some(5_405 * 1_000_000));
        assert_eq!(duration_micros("1500ns"), Some(1));
        assert_eq!(
            duration_micros("2 weeks 1 day"),
            Some(15 * 86_400 * 1_000_000)
        );
        assert_eq!(duration_micros("0"), Some(0));
        assert_eq!(
            duration_micros("4294967295s"),
            Some(4_294_967_295 * 1_000_000)
        );
    }

    #[test]
    fn text_that_is_no_duration_is_refused() {
        for text in [
            "",
            "7",
            "days",
            "7 dayz",
            "-1s",
            "1.5h",
            "4294967296s",
            "1h 30",
            "ns 1",
        ] {
            assert_eq!(duration_micros(text), None, "{text:?}");
        }
        assert_eq!(duration_micros("99999999999999999999 s"), None);
    }

    #[test]
    fn sizes_know_decimal_and_binary_units() {
        assert_eq!(size_bytes("1048576"), Some(1_048_576));
        assert_eq!(size_bytes("128MiB"), Some(128 << 20));
        assert_eq!(size_bytes("1 GB"), Some(1_000_000_000));
        assert_eq!(size_bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(size_bytes("16 kb"), Some(16_000));
        assert_eq!(size_bytes("7 B"), Some(7));
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for text in [
            "",
            "GB",
            "1 QB",
            "-1",
            "1..5",
            "1.",
            "1 iB",
            "99999999999 EiB",
        ] {
            assert_eq!(size_bytes(text), None, "{text:?}");
        }
    }
}
