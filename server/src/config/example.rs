//! `biplane config example`: every key with its default and what it is for.

use std::fmt::Write as _;

use super::schema::{self, Effect, Key};

/// The example file. It checks clean and changes nothing: every key has its default.
pub fn example() -> String {
    let mut text = String::from(
        "# Configuration of a Biplane node: every key with its default.\n\
         #\n\
         # Durations are strings with a unit (\"5s\", \"1h 30m\"), sizes too (\"64 MiB\").\n\
         # Every key has an environment variable that wins over the file: IGGY_ and the path in\n\
         # capitals, IGGY_CLUSTER_HEARTBEAT_TIMEOUT for one.\n\
         # `biplane config check FILE` finds mistakes.\n",
    );
    let mut table = String::new();
    for key in schema::keys().filter(|key| key.entry().is_none()) {
        let (below, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if below != table {
            below.clone_into(&mut table);
            let _ = write!(text, "\n[{table}]\n");
        } else if below.is_empty() {
            text.push('\n');
        }
        comment(&mut text, key);
        let unset = if key.default.is_empty() { "# " } else { "" };
        let value = match (key.default, key.kind) {
            ("", schema::Kind::Size) => "\"64 MiB\"",
            ("", _) => "\"\"",
            (default, _) => default,
        };
        let _ = writeln!(text, "{unset}{name} = {value}");
    }
    for array in schema::ARRAYS.iter().filter(|array| !array.contains('[')) {
        entries(&mut text, array);
    }
    text
}

fn comment(text: &mut String, key: &Key) {
    let suffix = match key.effect {
        Effect::Honoured => "",
        Effect::Internal => " (without effect here)",
        Effect::NotServed => " (checked; not served yet)",
    };
    let words = format!("{}{suffix}", key.about);
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + word.len() > 98 {
            let _ = writeln!(text, "{line}");
            line = String::from("#  ");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

/// An array of tables has no default entry, so its keys are comments.
fn entries(text: &mut String, array: &str) {
    let _ = write!(text, "\n# [[{array}]]\n");
    let prefix = format!("{array}[].");
    for key in schema::keys() {
        if let Some(name) = key.path.strip_prefix(&prefix) {
            let must = if key.mandatory { " (mandatory)" } else { "" };
            let _ = writeln!(text, "# {name}{must}\n#   {}", key.about);
        }
    }
}
