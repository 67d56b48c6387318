//! Environment variables as values of keys (chapter 09 section 2).
//!
//! A text is typed before its key is known: what reads as a number is a number, also where a
//! string is wanted, and is refused there. That is how the original server reads them, so one
//! launcher serves both.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::layers;
use super::problem::{Place, Problems};
use super::schema::{self, Kind};
use super::variables::Variables;

/// Names that are accepted and are not keys.
const EXEMPT: [&str; 14] = [
    "IGGY_CONFIG_PATH",
    "IGGY_ENV_PATH",
    "IGGY_DISPLAY_CONFIG",
    "IGGY_ROOT_USERNAME",
    "IGGY_ROOT_PASSWORD",
    "IGGY_SHARD_RUNTIME_CAPACITY",
    "IGGY_SHARD_EVENT_INTERVAL",
    "IGGY_HOME",
    "IGGY_USERNAME",
    "IGGY_PASSWORD",
    "IGGY_CI_BUILD",
    "IGGY_TEST_VERBOSE",
    "IGGY_TEST_CLUSTER_NODES",
    "IGGY_TEST_CLEANUP_DISABLED",
];
const EXEMPT_PREFIXES: [&str; 3] = ["IGGY_CONNECTORS_", "IGGY_KAFKA_", "IGGY_MCP_"];
/// Highest index of an entry, and of an entry within an entry.
const INDEX_MAX: [usize; 2] = [255, 15];

pub(super) fn is_exempt(name: &str) -> bool {
    EXEMPT.contains(&name)
        || EXEMPT_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Lays the variables over `table`. A variable of an entry replaces the whole array.
pub(super) fn overlay(table: &mut Table, variables: &Variables, problems: &mut Problems) {
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    for (name, text) in variables.of_iggy() {
        if is_exempt(name) {
            continue;
        }
        let Some((path, kind)) = key_of(name) else {
            problems
                .places
                .insert(name.to_owned(), Place::Variable(name.to_owned()));
            let rule = if name.starts_with("IGGY_SYSTEM_") {
                "the keys of [system] are at the root now; leave SYSTEM_ out of the name"
            } else {
                "no key of the configuration has this name"
            };
            problems.add(name, rule);
            continue;
        };
        // Said here, so that no later text has to know whether it may quote.
        let value = typed(text);
        problems
            .places
            .insert(path.clone(), Place::Variable(name.to_owned()));
        if kind != Kind::Secret {
            problems.values.insert(path.clone(), value.to_string());
        } else {
            problems.values.remove(&path);
        }
        if path.contains('[') {
            entries.insert(path, value);
        } else {
            layers::put(table, &path, value);
        }
    }
    replace_arrays(table, entries, problems);
}

fn replace_arrays(table: &mut Table, entries: BTreeMap<String, Value>, problems: &mut Problems) {
    let arrays: Vec<String> = entries
        .keys()
        .filter_map(|path| path.split_once('[').map(|(array, _)| array.to_owned()))
        .collect();
    for array in arrays {
        let below = format!("{array}[");
        if layers::remove(table, &array).is_some() {
            let from_file = |place: &Place| matches!(place, Place::Line(_));
            problems
                .places
                .retain(|path, place| !(path.starts_with(&below) && from_file(place)));
            let places = &problems.places;
            problems
                .values
                .retain(|path, _| !path.starts_with(&below) || places.contains_key(path));
        }
    }
    for (path, value) in entries {
        layers::put(table, &path, value);
    }
}

/// The path a variable stands for, with indices, and its key's type.
fn key_of(name: &str) -> Option<(String, Kind)> {
    let rest = name.strip_prefix("IGGY_")?;
    schema::keys().find_map(|key| {
        let template = key
            .path
            .to_uppercase()
            .replace("[].", "_#_")
            .replace('.', "_");
        let indices = matches(&template, rest)?;
        let mut path = String::new();
        let mut indices = indices.into_iter();
        for part in key.path.split_inclusive("[]") {
            match part.strip_suffix("[]") {
                Some(array) => path.push_str(&format!("{array}[{}]", indices.next()?)),
                None => path.push_str(part),
            }
        }
        Some((path, key.kind))
    })
}

/// The numbers that stand where `template` has a `#`.
fn matches(template: &str, name: &str) -> Option<Vec<usize>> {
    let mut indices = Vec::new();
    let mut parts = template.split('#');
    let mut rest = name.strip_prefix(parts.next()?)?;
    for part in parts {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let index: usize = rest[..digits].parse().ok()?;
        if index > *INDEX_MAX.get(indices.len())? {
            return None;
        }
        indices.push(index);
        rest = rest[digits..].strip_prefix(part)?;
    }
    rest.is_empty().then_some(indices)
}

/// A text as the original server types it.
pub(super) fn typed(text: &str) -> Value {
    if let Some(inner) = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return Value::Array(
            elements(inner)
                .iter()
                .map(|element| typed(element))
                .collect(),
        );
    }
    if text.eq_ignore_ascii_case("true") {
        return Value::Boolean(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Value::Boolean(false);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::Integer(number);
    }
    // A number above what TOML holds reads as a float, which no key takes.
    match text.parse::<f64>() {
        Ok(number) => Value::Float(number),
        Err(_) => Value::String(text.to_owned()),
    }
}

/// Splits at the commas outside double quotes.
fn elements(inner: &str) -> Vec<String> {
    let mut elements = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for c in inner.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                current.push(c);
            }
            ',' if !quoted => elements.push(std::mem::take(&mut current)),
            _ => current.push(c),
        }
    }
    if !elements.is_empty() || !current.trim().is_empty() {
        elements.push(current);
    }
    let unquote = |text: &str| {
        let text = text.trim();
        let inner = text
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        inner.unwrap_or(text).to_owned()
    };
    elements.iter().map(|text| unquote(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_typed_before_their_key_is_known() {
        let strings = ["0x10", "0123456789abcdef0123456789abcdef", "5s", "a,b", "-"];
        for text in strings {
            assert_eq!(typed(text), Value::String(text.to_owned()));
        }
        assert_eq!(typed("TRUE"), Value::Boolean(true));
        assert_eq!(typed("false"), Value::Boolean(false));
        for (text, number) in [
            ("8090", 8090),
            ("+5", 5),
            ("0123456789", 123_456_789),
            ("-7", -7),
        ] {
            assert_eq!(typed(text), Value::Integer(number), "{text}");
        }
        for text in [
            "12345678901234567890123456789012",
            "nan",
            "inf",
            "infinity",
            "1e5",
        ] {
            assert!(matches!(typed(text), Value::Float(_)), "{text}");
        }
        let list = Value::Array(vec!["a".into(), "b".into()]);
        assert_eq!(typed(r#"["a", "b"]"#), list);
        assert_eq!(typed("[a,b]"), list);
        assert_eq!(typed("[]"), Value::Array(Vec::new()));
        assert_eq!(
            typed(r#"["a,b", 1]"#),
            Value::Array(vec!["a,b".into(), 1.into()])
        );
    }

    #[test]
    fn names_stand_for_paths() {
        let path = |name: &str| key_of(name).map(|(path, _)| path);
        assert_eq!(path("IGGY_PATH").as_deref(), Some("path"));
        assert_eq!(
            path("IGGY_TCP_TLS_SELF_SIGNED").as_deref(),
            Some("tcp.tls.self_signed")
        );
        assert_eq!(
            path("IGGY_CLUSTER_NODES_2_PORTS_TCP_REPLICA").as_deref(),
            Some("cluster.nodes[2].ports.tcp_replica")
        );
        assert_eq!(
            path("IGGY_CLUSTER_NODES_255_ADVERTISED_ADDRESSES_15_CLIENT_CIDR").as_deref(),
            Some("cluster.nodes[255].advertised_addresses[15].client_cidr")
        );
        for name in [
            "IGGY_CLUSTER_NODES_256_NAME",
            "IGGY_CLUSTER_NODES_0_ADVERTISED_ADDRESSES_16_ADDRESS",
            "IGGY_CLUSTER_NODES__NAME",
            "IGGY_CLUSTER_NODES_0_NAMES",
            "IGGY_SYSTEM_PATH",
            "PATH",
        ] {
            assert_eq!(path(name), None, "{name}");
        }
    }
}
