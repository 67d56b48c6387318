//! Plays every script in `tests/transcripts` and compares the table of what happened.
//!
//! A file is comments (`#`), lines of a script, and after each `----` the table those lines
//! gave. `TRANSCRIPTS_BLESS=1 cargo test -p biplane-vsr --test transcripts` writes the tables
//! anew; read the difference before it is committed. What must hold whatever the table says is
//! in `expect` lines.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use support::play::{Play, Row};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

fn scripts() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the folder of transcripts");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    found.sort();
    found
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    let wide = |least: usize, of: &dyn Fn(&Row) -> &str| {
        let widest = rows.iter().map(|row| of(row).chars().count()).max();
        widest.unwrap_or(0).max(least)
    };
    let path = wide(10, &|row| &row.path);
    let frame = wide(5, &|row| &row.frame);
    let _ = writeln!(
        text,
        "step | {:path$} | {:frame$} | effect",
        "from -> to", "frame"
    );
    for row in rows {
        let line = format!(
            "{:4} | {:path$} | {:frame$} | {}",
            row.step, row.path, row.frame, row.effect
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The file as it should be: its own scripts, the tables they give today.
fn played(text: &str) -> String {
    let mut play = Play::new();
    let mut result = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "----" {
            result += "----\n";
            while lines.peek().is_some_and(|line| !line.is_empty()) {
                lines.next();
            }
            result += &table(&play.take_rows());
            continue;
        }
        result += line;
        result.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            play.play(line);
        }
    }
    assert!(play.take_rows().is_empty(), "a script ends with its table");
    result
}

#[test]
fn transcripts_are_what_happens() {
    let bless = std::env::var_os("TRANSCRIPTS_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in scripts() {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path).expect("a readable script");
        let outcome = std::panic::catch_unwind(|| played(&text));
        let Ok(expected) = outcome else {
            wrong.push(format!("{name}: see the panic above"));
            continue;
        };
        if expected == text {
            continue;
        }
        if bless {
            fs::write(&path, expected).expect("a writable script");
            continue;
        }
        let differs = text
            .lines()
            .zip(expected.lines())
            .find(|(is, was)| is != was);
        wrong.push(format!("{name}: {differs:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_hazard_and_every_story_has_its_transcript() {
    let names: Vec<String> = scripts()
        .iter()
        .map(|path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let hazards = (1..=34).map(|number| format!("h{number:02}-"));
    let stories = [
        "happy-path",
        "primary-crash",
        "old-primary-returns",
        "gap",
        "one-restart",
        "all-restart",
        "two-nodes",
        "five-nodes",
    ];
    for start in hazards.chain(stories.map(|name| format!("story-{name}"))) {
        let found = names.iter().any(|name| name.starts_with(&start));
        assert!(found, "no transcript {start}");
    }
}
