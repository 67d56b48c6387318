//! The rules of the tree, as tests: who may import whom, what protocol crates never contain, how
//! long a file may be, and that every crate and file introduces itself.
//!
//! The table of imports is the one in ARCHITECTURE.md. A new edge is a change of both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crate, what it may import of ours, and whether it is a protocol crate (no IO, no time).
const CRATES: &[(&str, &[&str], bool)] = &[
    ("wire", &[], true),
    ("vsr", &["wire"], true),
    ("handshake", &["wire"], true),
    ("journal", &["wire"], true),
    ("repair", &["wire", "vsr"], true),
    ("state-transfer", &["wire", "vsr"], true),
    (
        "metadata-plane",
        &["wire", "vsr", "journal", "repair", "state-transfer"],
        true,
    ),
    (
        "partition-plane",
        &["wire", "vsr", "journal", "repair", "state-transfer"],
        true,
    ),
    (
        "simulator",
        &[
            "wire",
            "vsr",
            "journal",
            "repair",
            "state-transfer",
            "metadata-plane",
            "partition-plane",
        ],
        false,
    ),
    (
        "server",
        &[
            "wire",
            "vsr",
            "handshake",
            "journal",
            "repair",
            "state-transfer",
            "metadata-plane",
            "partition-plane",
        ],
        false,
    ),
];

/// Words that have no place in the sources of a protocol crate, and why.
const BANNED_IN_PROTOCOL: &[(&str, &str)] = &[
    ("async fn", "a core runs to completion"),
    (".await", "a core runs to completion"),
    ("async_std", "the runtime is the server's"),
    ("std::fs", "storage is requests and completions"),
    ("std::net", "sockets are the server's"),
    ("std::thread", "a core has no threads"),
    ("std::process", "a core cannot end the process"),
    ("mpsc", "machines talk through their owner"),
    ("Mutex", "a core has one owner"),
    ("RwLock", "a core has one owner"),
    ("Condvar", "a core has one owner"),
    ("Instant::now", "time is ticks"),
    ("SystemTime", "time is an input"),
    ("HashMap", "iteration order must not reach an output"),
    ("HashSet", "iteration order must not reach an output"),
    ("thread_rng", "chance is seeded"),
    ("println!", "a core prints nothing"),
    ("eprintln!", "a core prints nothing"),
];

const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace")
        .to_owned()
}

/// Every file below `folder` with one of these endings, build output left out.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "biplane-data") {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn report(problems: &[String]) {
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// The crates of ours in the `[dependencies]` table of a manifest.
fn imports(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]";
        } else if let (true, Some(rest)) = (inside, line.strip_prefix("biplane-")) {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.insert(rest[..end].to_owned());
        }
    }
    found
}

#[test]
fn crates_import_only_what_their_layer_allows() {
    let mut problems = Vec::new();
    for (name, allowed, protocol) in CRATES {
        let manifest = read(&root().join(name).join("Cargo.toml"));
        for import in imports(&manifest) {
            if !allowed.contains(&import.as_str()) {
                problems.push(format!("{name} imports {import}"));
            }
        }
        for banned in [
            "async-std",
            "async-global-executor",
            "futures",
            "crossbeam",
            "parking_lot",
        ] {
            if *protocol && manifest.lines().any(|line| line.starts_with(banned)) {
                problems.push(format!("{name} depends on {banned}"));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_member_of_the_workspace_is_in_the_table() {
    let manifest = read(&root().join("Cargo.toml"));
    for (name, ..) in CRATES {
        assert!(
            manifest.contains(&format!("\"{name}\"")),
            "{name} is no member"
        );
    }
    let folders = fs::read_dir(root()).expect("the tree").flatten();
    for folder in folders.filter(|folder| folder.path().join("Cargo.toml").is_file()) {
        let name = folder.file_name().to_string_lossy().into_owned();
        assert!(
            CRATES.iter().any(|(known, ..)| *known == name),
            "{name} is not in the table"
        );
    }
}

/// True where `word` stands in `code` and is not the beginning of a longer name.
fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(start, _)| {
        let next = code[start + word.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
    })
}

/// Tests inside a crate's sources may read golden files.
fn is_test(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "tests.rs")
        || file.components().any(|part| part.as_os_str() == "tests")
}

/// Code without its comments: words are banned where they do something.
fn code_of(line: &str) -> &str {
    line.find("//").map_or(line, |comment| &line[..comment])
}

#[test]
fn protocol_crates_contain_no_io_no_time_and_no_threads() {
    let mut problems = Vec::new();
    for (name, _, protocol) in CRATES {
        if !protocol {
            continue;
        }
        for file in files(&root().join(name).join("src"), &[".rs"]) {
            if is_test(&file) {
                continue;
            }
            for (index, line) in read(&file).lines().enumerate() {
                for (word, reason) in BANNED_IN_PROTOCOL {
                    if contains_word(code_of(line), word) {
                        let place = format!("{}:{}", file.display(), index + 1);
                        problems.push(format!("{place}: {word}: {reason}"));
                    }
                }
            }
        }
        let front = read(&root().join(name).join("src/lib.rs"));
        if !front.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{name} does not forbid unsafe code"));
        }
    }
    report(&problems);
}

#[test]
fn unsafe_code_carries_its_proof() {
    let mut problems = Vec::new();
    for (name, ..) in CRATES {
        for file in files(&root().join(name), &[".rs"]) {
            if file.ends_with("server/tests/tidy.rs") {
                continue;
            }
            let text = read(&file);
            let lines: Vec<&str> = text.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let code = code_of(line);
                let uses = code.contains("unsafe {") || code.contains("unsafe impl");
                let proven = index > 0
                    && lines[..index]
                        .iter()
                        .rev()
                        .take_while(|line| line.trim_start().starts_with("//"))
                        .any(|line| line.contains("SAFETY:"));
                if uses && !proven {
                    problems.push(format!("{}:{}", file.display(), index + 1));
                }
            }
        }
    }
    report(&problems);
}

#[test]
fn files_are_short_and_introduce_themselves() {
    let mut problems = Vec::new();
    for (name, ..) in CRATES {
        for file in files(&root().join(name), &[".rs"]) {
            let text = read(&file);
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX {
                problems.push(format!("{}: {lines} lines", file.display()));
            }
            for (index, line) in text.lines().enumerate() {
                if line.chars().count() > LINE_COLUMNS_MAX {
                    problems.push(format!("{}:{}: too wide", file.display(), index + 1));
                }
            }
            if !text.starts_with("//!") {
                problems.push(format!("{}: no introduction", file.display()));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_crate_has_a_front_page() {
    let mut problems = Vec::new();
    for (name, ..) in CRATES {
        let readme = root().join(name).join("README.md");
        if !fs::read_to_string(&readme).is_ok_and(|text| text.lines().count() >= 15) {
            problems.push(format!("{} is missing or thin", readme.display()));
        }
        let front = read(&root().join(name).join("src/lib.rs"));
        let words = front
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .count();
        if words < 15 {
            problems.push(format!("{name}/src/lib.rs: {words} lines of front page"));
        }
        let manifest = read(&root().join(name).join("Cargo.toml"));
        if manifest.contains("\"TODO\"") {
            problems.push(format!("{name} has no description"));
        }
    }
    report(&problems);
}

#[test]
fn the_runtime_is_named_in_one_file() {
    for file in files(&root().join("server/src"), &[".rs"]) {
        if !file.ends_with("server/src/runtime.rs") {
            let text = read(&file);
            let named = text.contains("async_std") || text.contains("async_global_executor");
            assert!(!named, "{} names the runtime", file.display());
        }
    }
}

/// A link must neither die nor stay because somebody set the clock.
#[test]
fn the_mesh_reads_no_wall_clock() {
    let mut sources = files(&root().join("server/src/peer"), &[".rs"]);
    sources.push(root().join("server/src/peer.rs"));
    assert!(sources.len() > 7);
    for file in sources {
        for word in ["SystemTime", "wall_micros", "UNIX_EPOCH"] {
            assert!(
                !contains_word(&read(&file), word),
                "{}: {word}",
                file.display()
            );
        }
    }
}

#[test]
fn the_tree_names_no_machine_and_no_registry() {
    // Assembled, so that this file does not contain them.
    let banned = [
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
        ["crates", ".io"].concat(),
        ["pypi", ".org"].concat(),
        ["npmjs", ".com"].concat(),
        ["../sha", "red"].concat(),
    ];
    let mut problems = Vec::new();
    for file in files(
        &root(),
        &[".rs", ".md", ".toml", ".py", ".sh", "run", ".txt"],
    ) {
        let text = read(&file);
        for word in &banned {
            if text.contains(word.as_str()) {
                problems.push(format!("{}: {word}", file.display()));
            }
        }
    }
    report(&problems);
}
