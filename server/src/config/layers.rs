//! Tables laid over each other: the file, with the place of every value, then the environment,
//! then the defaults where neither said anything.

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::problem::{Place, Problem, Problems};
use super::schema::{self, Kind};

/// Reads a file's text and notes where each value stands.
pub(super) fn read(text: &str, problems: &mut Problems) -> Table {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.found.push(describe(text, error));
    }
    let mut reader = Reader { text, problems };
    reader.table("", document.get_ref())
}

/// Place, key and reason. Not the whole line, as the library would have it: it may hold a secret,
/// and this text goes to the log.
fn describe(text: &str, error: &toml::de::Error) -> Problem {
    let start = error.span().map_or(0, |span| span.start);
    let line = line_of(text, start);
    let key = text
        .lines()
        .nth(line - 1)
        .and_then(|text| text.split_once('='));
    let key = key.map(|(key, _)| key.trim()).filter(|key| {
        key.bytes()
            .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'))
    });
    Problem {
        place: Place::Line(line),
        key: key.unwrap_or_default().to_owned(),
        value: None,
        rule: format!("this is no TOML: {}", error.message()),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

struct Reader<'a> {
    text: &'a str,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) -> Table {
        let mut read = Table::new();
        for (name, value) in table {
            let below = join(path, name.get_ref());
            let line = line_of(self.text, name.span().start);
            self.problems
                .places
                .insert(below.clone(), Place::Line(line));
            let value = self.value(&below, value);
            read.insert(name.get_ref().to_string(), value);
        }
        read
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>) -> Value {
        let read = match value.get_ref() {
            DeValue::Table(table) => return Value::Table(self.table(path, table)),
            DeValue::Array(array) => {
                let entries = array.iter().enumerate().map(|(index, entry)| {
                    let below = format!("{path}[{index}]");
                    let line = line_of(self.text, entry.span().start);
                    self.problems
                        .places
                        .insert(below.clone(), Place::Line(line));
                    self.value(&below, entry)
                });
                Value::Array(entries.collect())
            }
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Datetime(moment) => Value::Datetime(*moment),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Float(f64::MAX), Value::Integer),
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        };
        if !is_secret(path) {
            self.problems
                .values
                .insert(path.to_owned(), read.to_string());
        }
        read
    }
}

/// True for a secret and for whatever a wrong file has below one.
pub(super) fn is_secret(path: &str) -> bool {
    let path = pattern(path);
    schema::keys().any(|key| key.kind == Kind::Secret && path.starts_with(key.path))
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A path with every index taken out: `cluster.nodes[2].ip` is `cluster.nodes[].ip`.
pub(super) fn pattern(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        inside = inside && c != ']';
        if !inside {
            pattern.push(c);
        }
        inside = inside || c == '[';
    }
    pattern
}

/// One step of a path: a name, or an index into an array.
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let mut pieces = part.split('[');
        steps.extend(pieces.next().map(Step::Name));
        for piece in pieces {
            let index = piece.trim_end_matches(']').parse().unwrap_or(0);
            steps.push(Step::Index(index));
        }
    }
    steps
}

/// Puts a value at a path; tables and array entries on the way are made where they are missing,
/// and skipped entries are empty.
pub(super) fn put(table: &mut Table, path: &str, value: Value) {
    let mut whole = Value::Table(std::mem::take(table));
    let mut place = &mut whole;
    for step in steps(path) {
        place = match step {
            Step::Name(name) => {
                if !place.is_table() {
                    *place = Value::Table(Table::new());
                }
                let Value::Table(table) = place else { return };
                table.entry(name).or_insert(Value::Table(Table::new()))
            }
            Step::Index(index) => {
                if !place.is_array() {
                    *place = Value::Array(Vec::new());
                }
                let Value::Array(array) = place else { return };
                while array.len() <= index {
                    array.push(Value::Table(Table::new()));
                }
                &mut array[index]
            }
        };
    }
    *place = value;
    if let Value::Table(whole) = whole {
        *table = whole;
    }
}

/// The value at a path.
pub(super) fn get_mut<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    let mut steps = steps(path).into_iter();
    let Step::Name(first) = steps.next()? else {
        return None;
    };
    let mut place = table.get_mut(first)?;
    for step in steps {
        place = match step {
            Step::Name(name) => place.as_table_mut()?.get_mut(name)?,
            Step::Index(index) => place.as_array_mut()?.get_mut(index)?,
        };
    }
    Some(place)
}

/// Takes the value at a path that has no index out.
pub(super) fn remove(table: &mut Table, path: &str) -> Option<Value> {
    match path.rsplit_once('.') {
        Some((above, name)) => get_mut(table, above)?.as_table_mut()?.remove(name),
        None => table.remove(path),
    }
}

/// The default of every key that has one.
pub(super) fn defaults() -> Table {
    let mut table = Table::new();
    for key in schema::keys().filter(|key| !key.default.is_empty()) {
        // A default that does not read is caught by the test that reads all of them.
        let value = toml::from_str::<Table>(&format!("value = {}", key.default));
        if let Some(value) = value.ok().and_then(|mut table| table.remove("value")) {
            put(&mut table, key.path, value);
        }
    }
    // Tables of which no key has a default.
    put(&mut table, "node", Value::Table(Table::new()));
    put(&mut table, "cluster.nodes", Value::Array(Vec::new()));
    put(
        &mut table,
        "http.jwt.trusted_issuers",
        Value::Array(Vec::new()),
    );
    table
}

/// Fills `table` with what `below` has and it has not.
pub(super) fn fill(table: &mut Table, below: Table) {
    for (name, value) in below {
        match (table.get_mut(&name), value) {
            (None, value) => {
                table.insert(name, value);
            }
            (Some(Value::Table(table)), Value::Table(below)) => fill(table, below),
            (Some(_), _) => {}
        }
    }
}
