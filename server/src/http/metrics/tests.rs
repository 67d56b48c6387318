//! The page against the grammar of the text format, and its size.

use std::collections::BTreeSet;

use super::*;
use crate::file_disk::sync_meter::SyncTimes;
use crate::node::report::{GROUPS_NAMED_MAX, GroupTotals, LinkReport, TotalsReport};

fn group(name: String) -> GroupReport {
    GroupReport {
        group: name.clone(),
        name,
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

fn flows(bytes: u64) -> Vec<FlowReport> {
    let of = |traffic| FlowReport {
        traffic,
        frames: 3,
        bytes,
    };
    vec![of("repair"), of("transfer")]
}

fn times(of: &'static str) -> SyncTimes {
    let mut counts = [0; BOUNDS_MICROS.len() + 1];
    (counts[1], counts[4], counts[BOUNDS_MICROS.len()]) = (5, 2, 1);
    SyncTimes {
        of,
        counts,
        micros: 12_000_345,
    }
}

fn report(groups: usize) -> NodeReport {
    let link = |node: u8| LinkReport {
        node,
        name: format!("odd \"name\" \\ of\nnode {node}"),
        up: node == 1,
        queued: 4,
        dropped: vec![("no_link", 1), ("queue_full", u64::MAX)],
        refused: vec![("seal", 2), ("foreign", 0)],
        sent: flows(7),
        received: flows(9_000),
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
        seal_failures: vec![("frame", 6), ("batch", 1)],
        refused: vec![("wrong_command", 8)],
        fenced: 2,
        syncs: vec![times("redo"), times("metadata")],
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
/// others; counters end in `_total`; no series twice; the last line is `# EOF`; histograms as
/// [`check_histogram`] says.
fn check(page: &str) -> usize {
    assert!(page.ends_with("\n# EOF\n"), "the end is marked");
    let mut families = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut current = (String::new(), String::new());
    let mut histogram = Vec::new();
    let lines: Vec<&str> = page.lines().collect();
    for line in &lines[..lines.len() - 1] {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("name and kind");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
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
        let labels = labels(inner);
        match current.1.as_str() {
            "counter" => assert_eq!(name, format!("{}_total", current.0), "{line}"),
            "histogram" => {
                let part = name.strip_prefix(&current.0).expect(line);
                histogram.push((part.to_owned(), labels, value.to_owned()));
            }
            _ => assert_eq!(name, current.0, "{line}"),
        }
        assert!(series.insert(sample.to_owned()), "{sample} comes twice");
    }
    check_histogram(&histogram);
    series.len()
}

/// What stands behind the family's name, the labels, and the value.
type Sample = (String, Vec<(String, String)>, String);

/// Of each set of labels: buckets with rising bounds and counts that never fall, the last bound
/// being infinite; then the sum; then the count, which is that of the last bucket.
fn check_histogram(samples: &[Sample]) {
    let mut rest = samples;
    while !rest.is_empty() {
        let of = rest[0].1[0].clone();
        let own = rest.iter().take_while(|(_, labels, _)| labels[0] == of);
        let (own, others) = rest.split_at(own.count());
        rest = others;
        let [buckets @ .., sum, count] = own else {
            panic!("{own:?}");
        };
        let number = |text: &String| text.parse::<f64>().expect("a number");
        let bounds: Vec<f64> = buckets
            .iter()
            .map(|(part, labels, _)| {
                assert_eq!(part, "_bucket");
                let [_, (le, bound)] = &labels[..] else {
                    panic!("{labels:?}");
                };
                assert_eq!(le, "le");
                number(&bound.replace("+Inf", "inf"))
            })
            .collect();
        assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY));
        let counts: Vec<f64> = buckets.iter().map(|(.., count)| number(count)).collect();
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!((sum.0.as_str(), sum.1.len()), ("_sum", 1));
        assert_eq!((count.0.as_str(), count.1.len()), ("_count", 1));
        assert_eq!(counts.last(), Some(&number(&count.2)));
    }
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
        "biplane_seal_failures_total{kind=\"frame\"} 6",
        "biplane_client_frames_refused_total{reason=\"wrong_command\"} 8",
        "biplane_partitions_fenced_total 2",
        "biplane_disk_sync_seconds_bucket{of=\"redo\",le=\"0.000050\"} 0",
        "biplane_disk_sync_seconds_bucket{of=\"redo\",le=\"0.000100\"} 5",
        "biplane_disk_sync_seconds_bucket{of=\"redo\",le=\"0.001000\"} 7",
        "biplane_disk_sync_seconds_bucket{of=\"redo\",le=\"10.000000\"} 7",
        "biplane_disk_sync_seconds_bucket{of=\"redo\",le=\"+Inf\"} 8",
        "biplane_disk_sync_seconds_sum{of=\"redo\"} 12.000345",
        "biplane_disk_sync_seconds_count{of=\"metadata\"} 8",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}");
    }
    let escaped = "biplane_link_up{peer=\"2\",name=\"odd \\\"name\\\" \\\\ of\\nnode 2\"} 0";
    assert!(page.contains(escaped), "{page}");
    for (series, value) in [
        ("biplane_link_queued_frames", "4"),
        ("biplane_link_frames_dropped_total,reason=no_link", "1"),
        ("biplane_link_frames_refused_total,reason=seal", "2"),
        (
            "biplane_link_bytes_total,direction=received,traffic=transfer",
            "9000",
        ),
        (
            "biplane_link_frames_total,direction=sent,traffic=repair",
            "3",
        ),
    ] {
        let mut parts = series.split(',');
        let name = parts.next().expect("a name");
        let labels: String = parts
            .map(|part| format!(",{}\"", part.replace('=', "=\"")))
            .collect();
        let found = page.lines().filter(|line| {
            line.starts_with(&format!("{name}{{peer="))
                && line.ends_with(&format!("{labels}}} {value}"))
        });
        assert_eq!(found.count(), 2, "{series} of both peers in {page}");
    }
}

#[test]
fn times_have_microseconds_and_no_error_of_rounding() {
    for (micros, text) in [
        (0, "0.000000"),
        (50, "0.000050"),
        (1_000_000, "1.000000"),
        (u64::MAX, "18446744073709.551615"),
    ] {
        assert_eq!(seconds(micros), text);
    }
}

#[test]
fn the_largest_page_is_small() {
    let page = text(&report(GROUPS_NAMED_MAX), u64::MAX);
    check(&page);
    assert!(page.len() < 256 * 1024, "{} bytes", page.len());
}
