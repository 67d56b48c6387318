//! Names and types: every value of the file and the environment belongs to a key and reads as its
//! type says, or there is a problem. What is left fits the structs of [`super::sections`].

use toml::{Table, Value};

use super::layers::{is_secret, join, pattern};
use super::problem::{Place, Problems};
use super::schema::{self, Key, Kind};
use super::values::{ConfigDuration, ConfigSize, parse_cpu_allocation, parse_expiry};

/// What was said of keys this server does not know, where that is allowed.
pub(super) type Warnings = Vec<String>;

/// Checks `table` and takes out what cannot be read.
pub(super) fn check(table: &mut Table, problems: &mut Problems, warnings: &mut Warnings) {
    let mut checker = Checker { problems, warnings };
    checker.table("", table);
}

struct Checker<'a> {
    problems: &'a mut Problems,
    warnings: &'a mut Warnings,
}

impl Checker<'_> {
    fn table(&mut self, path: &str, table: &mut Table) {
        let names: Vec<String> = table.keys().cloned().collect();
        for name in names {
            let below = join(path, &name);
            let Some(value) = table.get_mut(&name) else {
                continue;
            };
            if !self.keep(path, &below, value) {
                table.remove(&name);
            }
        }
    }

    /// False when the value is to be taken out.
    fn keep(&mut self, parent: &str, path: &str, value: &mut Value) -> bool {
        let shape = pattern(path);
        if let Some((_, instead)) = schema::REMOVED.iter().find(|(name, _)| *name == shape) {
            self.problems.add(path, *instead);
            return false;
        }
        if schema::OLD_TABLES.contains(&shape.as_str()) {
            let gone = value.as_table_mut();
            // Some keys of these tables went elsewhere, and that must be said.
            if let Some(table) = gone {
                self.table(path, table);
            }
            self.warnings
                .push(format!("[{path}] has no effect in this server"));
            return false;
        }
        if let Some(key) = schema::find(&shape) {
            return self.leaf(path, key, value);
        }
        if schema::ARRAYS.contains(&shape.as_str()) {
            return self.entries(path, value);
        }
        let prefix = format!("{shape}.");
        if schema::keys().any(|key| key.path.starts_with(&prefix)) {
            let Value::Table(table) = value else {
                self.problems
                    .add(path, format!("[{path}] is a table of keys"));
                return false;
            };
            self.table(path, table);
            return true;
        }
        if schema::CLOSED.contains(&pattern(parent).as_str()) {
            self.problems.add(path, "there is no such key");
        } else {
            self.warnings
                .push(format!("{path} is no key of this server and has no effect"));
        }
        false
    }

    fn leaf(&mut self, path: &str, key: &Key, value: &mut Value) -> bool {
        if !is_secret(path) {
            let text = value.to_string();
            self.problems.values.entry(path.to_owned()).or_insert(text);
        }
        let from_variable = matches!(self.problems.places.get(path), Some(Place::Variable(_)));
        if let Err(rule) = read(key, value, from_variable) {
            self.problems.add(path, rule);
            return false;
        }
        true
    }

    fn entries(&mut self, path: &str, value: &mut Value) -> bool {
        let Value::Array(entries) = value else {
            self.problems
                .add(path, format!("is an array of tables: write [[{path}]]"));
            return false;
        };
        let shape = format!("{}[]", pattern(path));
        for (index, entry) in entries.iter_mut().enumerate() {
            let path = format!("{path}[{index}]");
            let Value::Table(table) = entry else {
                self.problems.add(&path, "is a table of keys");
                continue;
            };
            self.table(&path, table);
            for key in schema::keys().filter(|key| key.mandatory) {
                let Some(name) = key.path.strip_prefix(&format!("{shape}.")) else {
                    continue;
                };
                let missing = !name.contains("[]") && !has(table, name);
                let wrong = self.problems.has_below(&format!("{path}.{name}"));
                if missing && !wrong {
                    self.problems
                        .add(&format!("{path}.{name}"), "is mandatory in every entry");
                }
            }
        }
        true
    }
}

fn has(table: &Table, path: &str) -> bool {
    match path.split_once('.') {
        Some((name, rest)) => table
            .get(name)
            .and_then(Value::as_table)
            .is_some_and(|table| has(table, rest)),
        None => table.contains_key(path),
    }
}

/// Reads a value as its key wants it and brings it into the form the structs take.
fn read(key: &Key, value: &mut Value, from_variable: bool) -> Result<(), String> {
    let string = |what: &str| format!("must be a string{what}");
    match key.kind {
        Kind::Text => text(value).map(drop).ok_or_else(|| string("")),
        Kind::Secret if from_variable && value.as_str().is_none() => {
            Err("reads as a list, a number or a boolean, which no secret may be".to_owned())
        }
        Kind::Secret => text(value).map(drop).ok_or_else(|| string("")),
        Kind::Flag => match value {
            Value::Boolean(_) => Ok(()),
            _ => Err("must be true or false".to_owned()),
        },
        Kind::Whole(max) => {
            let number = value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok());
            match number {
                Some(0) if key.path.contains(".ports.") || key.path.ends_with("[].user_id") => {
                    Err("must not be 0".to_owned())
                }
                Some(number) if number <= max => Ok(()),
                _ => Err(format!("must be a whole number of 0..={max}")),
            }
        }
        Kind::Duration => {
            let text = text(value).ok_or_else(|| string(" with a unit, such as \"5s\""))?;
            ConfigDuration::parse(text).map(drop)
        }
        Kind::Size => {
            if let (Value::Integer(number), true) = (&*value, from_variable) {
                *value = Value::String(number.to_string());
            }
            let text = text(value).ok_or_else(|| string(", such as \"64 MiB\""))?;
            ConfigSize::parse(text).map(drop)
        }
        Kind::Texts => {
            let texts = value
                .as_array()
                .map(|array| array.iter().all(Value::is_str));
            match texts {
                Some(true) => Ok(()),
                _ => Err("must be an array of strings".to_owned()),
            }
        }
        Kind::CpuAllocation => {
            if let Value::Integer(number) = value {
                *value = Value::String(number.to_string());
            }
            let text = text(value).ok_or_else(|| string(" or a number"))?;
            parse_cpu_allocation(text)
        }
        Kind::Expiry => {
            let text = text(value).ok_or_else(|| string(", such as \"1 h\""))?;
            parse_expiry(text).map(drop)
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}
