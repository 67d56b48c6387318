//! What can be wrong with a configuration, and where it was said.

use std::collections::BTreeMap;
use std::fmt;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of the file, from 1.
    Line(usize),
    /// An environment variable.
    Variable(String),
    /// Nobody said it: the default.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value was said.
    pub place: Place,
    /// Dotted path of the key; empty for a text that is no TOML.
    pub key: String,
    /// The value as the file would write it; none for a secret, or where there is none.
    pub value: Option<String>,
    /// What is wrong and what would be right.
    pub rule: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            f.write_str(&self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.rule)
    }
}

/// The problems of one configuration in the order they were found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// So far.
    pub(super) found: Vec<Problem>,
    /// Where each value of the file and the environment was said, by its path with indices.
    pub(super) places: BTreeMap<String, Place>,
    /// The same values as text, without the secrets.
    pub(super) values: BTreeMap<String, String>,
}

impl Problems {
    /// Notes that `key` breaks `rule`.
    pub(super) fn add(&mut self, key: &str, rule: impl Into<String>) {
        self.found.push(Problem {
            place: self.place(key),
            key: key.to_owned(),
            value: self.values.get(key).cloned(),
            rule: rule.into(),
        });
    }

    /// Notes it unless `holds`.
    pub(super) fn check(&mut self, holds: bool, key: &str, rule: impl Into<String>) {
        if !holds {
            self.add(key, rule);
        }
    }

    /// The place of a key or, where it was not said, of the nearest table around it.
    fn place(&self, key: &str) -> Place {
        let mut path = key;
        loop {
            if let Some(place) = self.places.get(path) {
                return place.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return Place::Default,
            }
        }
    }

    /// True when a key below `prefix` has a problem.
    pub(super) fn has_below(&self, prefix: &str) -> bool {
        self.found
            .iter()
            .any(|problem| problem.key.starts_with(prefix))
    }
}
