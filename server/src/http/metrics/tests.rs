//! The page against the grammar of the text format, and its size.

use std::collections::BTreeSet;

use super::*;
use crate::node::report::{GROUPS_NAMED_MAX, GroupTotals, LinkReport, TotalsReport};

fn group(name: String) -> GroupReport {
    GroupReport {
        group: name,
        status: "view_change",
        view: 7,
        primary: 1,
        leads: false,
        head: 9,
        commit: 5,
        lag: 4,
        transfer: "fetching",
        work: None,
        trouble: None,
    }
}

fn report(groups: usize) -> NodeReport {
    let link = |node: u8| LinkReport {
        node,
        name: format!("odd \"name\" \\ of\nnode {node}"),
        up: node == 1,
    };
    NodeReport {
        node: 0,
        name: "node-0".to_owned(),
        cluster: "test".to_owned(),
        ready: true,
        run_time: 1_500_000,
        time: 0,
        metadata: group("metadata".to_owned()),
        partitions: GroupTotals::default(),
        groups: (0..groups)
            .map(|partition| group(format!("4294967295/4294967295/{partition}")))
            .collect(),
        links: vec![link(1), link(2)],
        counters: vec![("dropped_no_link", 3), ("dropped_queue_full", 4)],
        totals: TotalsReport::default(),
    }
}

/// Splits `{a="x",b="y"}` with its escapes; panics where it is not well formed.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let mut name = String::new();
        for letter in letters.by_ref() {
            if letter == '=' {
                break;
            }
            name.push(letter);
        }
        assert!(is_name(&name), "{name}");
        assert_eq!(letters.next(), Some('"'), "{text}");
        let mut value = String::new();
        loop {
            match letters.next().expect("a label ends") {
                '"' => break,
                '\\' => match letters.next() {
                    Some('n') => value.push('\n'),
                    Some(letter @ ('\\' | '"')) => value.push(letter),
                    other => panic!("escape {other:?} in {text}"),
                },
                letter => value.push(letter),
            }
        }
        found.push((name, value));
        match letters.next() {
            Some(',') | None => {}
            other => panic!("{other:?} behind a label of {text}"),
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    let first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    letters.next().is_some_and(first)
        && letters.all(|letter| first(letter) || letter.is_ascii_digit())
}

/// The rules of the format: each family announced once, before its samples, and not mixed with
/// others; counters end in `_total`; no series twice; the last line is `# EOF`.
fn check(page: &str) -> usize {
    assert!(page.ends_with("\n# EOF\n"), "the end is marked");
    let mut families = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut current = (String::new(), String::new());
    let lines: Vec<&str> = page.lines().collect();
    for line in &lines[..lines.len() - 1] {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("name and kind");
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert!(is_name(name), "{line}");
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            current = (name.to_owned(), kind.to_owned());
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a sample has a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, rest) = sample.split_once('{').unwrap_or((sample, "}"));
        let inner = rest.strip_suffix('}').expect("labels end");
        labels(inner);
        let expected = match current.1.as_str() {
            "counter" => format!("{}_total", current.0),
            _ => current.0.clone(),
        };
        assert_eq!(name, expected, "{line}");
        assert!(series.insert(sample.to_owned()), "{sample} comes twice");
    }
    series.len()
}

#[test]
fn the_page_keeps_the_grammar_and_has_the_specified_names() {
    let page = text(&report(3), 12);
    check(&page);
    for line in [
        "http_requests_total 12",
        "streams 0",
        "topics 0",
        "partitions 0",
        "segments 0",
        "messages 0",
        "users 0",
        "clients 0",
        "frame_drops_total{shard=\"0\"} 7",
        "biplane_group_lag_operations{group=\"metadata\"} 4",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}");
    }
    let escaped = "biplane_link_up{peer=\"2\",name=\"odd \\\"name\\\" \\\\ of\\nnode 2\"} 0";
    assert!(page.contains(escaped), "{page}");
}

#[test]
fn the_largest_page_is_small() {
    let page = text(&report(GROUPS_NAMED_MAX), u64::MAX);
    check(&page);
    assert!(page.len() < 256 * 1024, "{} bytes", page.len());
}
