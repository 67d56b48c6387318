//! Value syntaxes of the configuration file: durations, sizes and secrets (chapter 09 section 4).
//!
//! Both durations and sizes are TOML strings. A bare number is refused on purpose, as the original
//! server does: `heartbeat_timeout = 5` would be read as five of what?

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use zeroize::Zeroize as _;

/// A duration as the file writes it: `5s`, `1h 30m`, `500ms`; `0`, `none`, `disabled` and
/// `unlimited` are zero (chapter 09 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDuration(pub Duration);

impl ConfigDuration {
    /// Whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Consensus ticks of 10 ms, rounded down, at least one (chapter 03 section 5).
    pub fn ticks(self) -> u32 {
        u32::try_from(self.0.as_millis() / 10)
            .unwrap_or(u32::MAX)
            .max(1)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// A sentence that says what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_lowercase();
        if matches!(lower.as_str(), "0" | "unlimited" | "disabled" | "none") {
            return Ok(Self(Duration::ZERO));
        }
        let mut total_nanos = 0f64;
        let mut rest = lower.as_str();
        if rest.is_empty() {
            return Err("an empty duration; write for example \"5s\"".to_owned());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let number: f64 = rest[..digits]
                .parse()
                .map_err(|_| format!("\"{text}\" is not a duration; write for example \"5s\""))?;
            let tail = rest[digits..].trim_start();
            let letters = tail
                .find(|c: char| !c.is_alphabetic())
                .unwrap_or(tail.len());
            let nanos = unit_nanos(&tail[..letters]).ok_or_else(|| {
                format!("\"{text}\" has no known unit; use ns, us, ms, s, m, h, d, w, month or y")
            })?;
            total_nanos += number * nanos;
            rest = tail[letters..].trim_start();
        }
        if total_nanos > u64::MAX as f64 {
            return Err(format!("\"{text}\" is too long a duration"));
        }
        Ok(Self(Duration::from_nanos(total_nanos as u64)))
    }
}

fn unit_nanos(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" | "nsec" | "nanos" => 1.0,
        "us" | "usec" | "µs" => 1e3,
        "ms" | "msec" | "millis" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e9,
        "m" | "min" | "mins" | "minute" | "minutes" => 60e9,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600e9,
        "d" | "day" | "days" => 86_400e9,
        "w" | "wk" | "wks" | "week" | "weeks" => 604_800e9,
        "month" | "months" => 2_630_016e9,
        "y" | "yr" | "yrs" | "year" | "years" => 31_557_600e9,
        _ => return None,
    })
}

impl fmt::Display for ConfigDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// A number of bytes as the file writes it: `64 MiB`, `2 MB`, `1048576` (chapter 09 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigSize(pub u64);

impl ConfigSize {
    /// Reads the text form. The unit's `b` is case sensitive: a small one means bits.
    ///
    /// # Errors
    /// A sentence that says what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.');
        let Some(digits) = digits else {
            return trimmed
                .parse()
                .map(Self)
                .map_err(|_| format!("\"{text}\" is not a size; write for example \"64 MiB\""));
        };
        let number: f64 = trimmed[..digits]
            .parse()
            .map_err(|_| format!("\"{text}\" is not a size; write for example \"64 MiB\""))?;
        let unit = trimmed[digits..].trim();
        let (prefix, bits) = match unit.strip_suffix('B') {
            Some(prefix) => (prefix, false),
            None => match unit.strip_suffix('b') {
                Some(prefix) => (prefix, true),
                None => (unit, false),
            },
        };
        let factor = match prefix.to_ascii_lowercase().as_str() {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            "ki" => 1024.0,
            "mi" => 1024.0 * 1024.0,
            "gi" => 1024.0 * 1024.0 * 1024.0,
            "ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => {
                return Err(format!(
                    "\"{text}\" has no known unit; use B, kB, KiB, MB, MiB, GB, GiB"
                ));
            }
        };
        let bytes = number * factor / if bits { 8.0 } else { 1.0 };
        if bytes > u64::MAX as f64 {
            return Err(format!("\"{text}\" is too large a size"));
        }
        Ok(Self(bytes as u64))
    }

    /// The size as a `usize`, saturating on small machines.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ConfigSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl<'de> Deserialize<'de> for ConfigSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// When an access token of the REST API ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Never.
    Never,
    /// As the server would have it.
    ServerDefault,
    /// After so long.
    After(Duration),
}

/// Reads an expiry (chapter 09 section 4.3).
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub(crate) fn parse_expiry(text: &str) -> Result<Expiry, String> {
    match text.trim().to_lowercase().as_str() {
        "never_expire" | "none" | "unlimited" => return Ok(Expiry::Never),
        "default" | "server_default" => return Ok(Expiry::ServerDefault),
        _ => {}
    }
    let duration = ConfigDuration::parse(text)?.0;
    if duration.as_secs() > u64::from(u32::MAX) {
        return Err(format!("must be at most {} seconds", u32::MAX));
    }
    Ok(Expiry::After(duration))
}

/// Checks the syntax of `sharding.cpu_allocation` (chapter 09 section 4.4). The processors it asks
/// for are not looked at: they place threads that this server does not have.
///
/// # Errors
/// A sentence that says what would be right.
pub(super) fn parse_cpu_allocation(text: &str) -> Result<(), String> {
    let wrong = || {
        Err(
            "must be \"all\", a number above 0, a range such as \"0..4\", \"numa:auto\" or \
             \"numa:nodes=0,1;cores=4;no_ht=true\""
                .to_owned(),
        )
    };
    let valid = if let Some(numa) = text.strip_prefix("numa:") {
        numa == "auto" || numa.split(';').all(is_numa_parameter)
    } else if let Some((start, end)) = text.split_once("..") {
        match (start.parse::<usize>(), end.parse::<usize>()) {
            (Ok(start), Ok(end)) => start < end,
            _ => false,
        }
    } else {
        text == "all" || text.parse::<usize>().is_ok_and(|count| count > 0)
    };
    if valid { Ok(()) } else { wrong() }
}

fn is_numa_parameter(parameter: &str) -> bool {
    let number = |text: &str| text.parse::<usize>().is_ok();
    match parameter.split_once('=') {
        Some(("nodes", list)) => list.split(',').all(number),
        Some(("cores", count)) => number(count),
        Some(("no_ht", flag)) => flag.parse::<bool>().is_ok(),
        _ => false,
    }
}

/// A secret string: its `Debug` form never shows the text, and it is wiped when dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An error of the usual kind would quote what it found.
        match toml::Value::deserialize(deserializer) {
            Ok(toml::Value::String(text)) => Ok(Self(text)),
            _ => Err(de::Error::custom("a secret must be a string")),
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "\"***\"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_the_specification_says() {
        let cases = [
            ("5s", 5_000_000_000u64),
            ("500ms", 500_000_000),
            ("1h 30m", 5_400_000_000_000),
            ("1s500ms", 1_500_000_000),
            ("1.5s", 1_500_000_000),
            ("2M", 120_000_000_000),
            ("10 S", 10_000_000_000),
            ("none", 0),
            ("0", 0),
            ("1 month", 2_630_016_000_000_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(
                ConfigDuration::parse(text).unwrap().0.as_nanos(),
                u128::from(nanos),
                "{text}"
            );
        }
        for text in ["", "5", "-5s", "5 parsecs", "s", "1..5s"] {
            assert!(
                ConfigDuration::parse(text).is_err(),
                "{text} must be refused"
            );
        }
    }

    #[test]
    fn ticks_round_down_and_never_reach_zero() {
        assert_eq!(ConfigDuration::parse("255ms").unwrap().ticks(), 25);
        assert_eq!(ConfigDuration::parse("3ms").unwrap().ticks(), 1);
        assert_eq!(ConfigDuration::parse("5s").unwrap().ticks(), 500);
    }

    #[test]
    fn sizes_know_binary_decimal_and_bits() {
        let cases = [
            ("64 MiB", 67_108_864u64),
            ("64MiB", 67_108_864),
            ("2 MB", 2_000_000),
            ("10 Mb", 1_250_000),
            ("64 mib", 8_388_608),
            ("1048576", 1_048_576),
            ("1.5 KiB", 1536),
            ("4k", 4000),
        ];
        for (text, bytes) in cases {
            assert_eq!(ConfigSize::parse(text).unwrap().0, bytes, "{text}");
        }
        for text in ["", "unlimited", "none", "12 parsecs", "-1"] {
            assert!(ConfigSize::parse(text).is_err(), "{text} must be refused");
        }
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret("correct horse".to_owned());
        assert!(!format!("{secret:?}").contains("horse"));
    }
}
