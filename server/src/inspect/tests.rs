//! Every kind of input, intact and broken.

mod captures;
mod streams;

use std::fs;
use std::path::Path;

use super::*;

/// A file of captured frames that the wire crate is tested with.
fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    fs::read(folder.join(name)).expect("golden files are in the tree")
}

/// The captured frames of the replica plane.
fn frames() -> Vec<Vec<u8>> {
    let text = golden("replica-frames.jsonl");
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let object: serde_json::Value = serde_json::from_slice(line).expect("JSON lines");
            unhex(object["hex"].as_str().expect("a string"))
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hex");
            u8::from_str_radix(pair, 16).expect("hex")
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn arguments(full: bool) -> InspectArgs {
    InspectArgs {
        file: "test".into(),
        full,
        format: Format::Auto,
        port: Vec::new(),
        size_max: 1 << 20,
    }
}

/// Lines and count of an input.
fn lines_of(input: &[u8]) -> (Vec<String>, Tally) {
    lines_with(&arguments(false), input)
}

fn lines_with(args: &InspectArgs, input: &[u8]) -> (Vec<String>, Tally) {
    let mut output = Vec::new();
    let tally = inspect(args, input, &mut output).expect("memory reads and writes");
    let text = String::from_utf8(output).expect("lines are text");
    (text.lines().map(str::to_owned).collect(), tally)
}

fn counted(frames: u64, refused: u64, notes: u64) -> Tally {
    Tally {
        frames,
        refused,
        notes,
    }
}

#[test]
fn the_captured_trace_is_a_line_a_frame_and_all_of_it_holds() {
    let (lines, tally) = lines_of(&golden("replica-frames.jsonl"));
    assert_eq!(tally, counted(120, 0, 0));
    assert_eq!(lines.len(), 120);
    let commit = lines
        .iter()
        .find(|line| line.contains(" Commit "))
        .expect("heartbeats");
    for part in [
        "line 4",
        "replica 0",
        "view 0",
        "metadata",
        "op -",
        "commit 0",
        "256 B",
        "seal ok",
    ] {
        assert!(commit.contains(part), "{part}: {commit}");
    }
    let send = lines
        .iter()
        .find(|line| line.contains("SendMessages id"))
        .expect("a prepare");
    assert!(send.contains(" 0/0/0 "), "{send}");
    assert!(send.contains("identity ok, batch ok"), "{send}");
}

#[test]
fn exchanges_show_request_and_reply_in_order() {
    let (lines, tally) = lines_of(&golden("client-exchanges.jsonl"));
    assert_eq!(tally, counted(102, 0, 0));
    assert!(lines[0].starts_with("line 1 request_hex"), "{}", lines[0]);
    assert!(lines[0].contains("Ping"), "{}", lines[0]);
    assert!(lines[1].starts_with("line 1 reply_hex"), "{}", lines[1]);
    assert!(lines[2].contains("stamp ok"), "{}", lines[2]);
}

#[test]
fn a_raw_stream_shows_the_same_frames() {
    let (lines, tally) = lines_of(&frames().concat());
    assert_eq!(tally, counted(120, 0, 0));
    assert!(lines[0].starts_with("@0 "), "{}", lines[0]);
    assert!(lines[1].starts_with("@256 "), "{}", lines[1]);
}

#[test]
fn hex_lines_may_have_blanks_colons_and_several_frames() {
    let all = frames();
    let (first, second) = (hex(&all[3]), hex(&all[4]));
    let spaced = first
        .as_bytes()
        .chunks(4)
        .map(|c| std::str::from_utf8(c).expect("hex"));
    let spaced: Vec<_> = spaced.collect();
    let text = format!(
        "# a comment\n\n0x{first}\n{}\n{}\n{first}{second}\r\n",
        spaced.join(" "),
        spaced.join(":"),
    );
    let (lines, tally) = lines_of(text.as_bytes());
    assert_eq!(tally, counted(5, 0, 0));
    assert!(lines[0].starts_with("line 3 "), "{}", lines[0]);
    assert!(lines[4].starts_with("line 6 @256"), "{}", lines[4]);
}

#[test]
fn what_is_neither_hex_nor_json_is_told_once_and_passed() {
    let all = frames();
    let text = format!(
        "timeline\nof a run\n{}\nthe end\n{{\"broken\n",
        hex(&all[3])
    );
    let (lines, tally) = lines_of(text.as_bytes());
    assert_eq!(tally.frames, 1);
    assert_eq!(lines[0], "line 1       ! to line 2: neither hex nor JSON");
    assert!(lines[1].starts_with("line 3 "), "{}", lines[1]);
    assert_eq!(lines[2], "line 4       ! neither hex nor JSON");
    assert!(lines[3].contains("broken JSON"), "{}", lines[3]);
}

#[test]
fn broken_json_lines_do_not_stop_the_walk() {
    let good = format!("{{\"hex\": \"{}\"}}", hex(&frames()[3]));
    let text = format!("{good}\n{{\"hex\": nonsense}}\n{{\"n\": 4}}\n{good}\n");
    let (lines, tally) = lines_of(text.as_bytes());
    assert_eq!(tally, counted(2, 0, 2));
    assert!(lines[1].starts_with("line 2 ") && lines[1].contains("broken JSON"));
    assert!(lines[2].starts_with("line 3 ") && lines[2].contains("without a frame"));
}

#[test]
fn a_json_document_over_many_lines_is_read_whole() {
    let all = frames();
    let document = serde_json::json!({
        "tls": false,
        "count": [1, 2.5, null, -3],
        "handshakes": [{"hello": hex(&all[0])}, {"hello": hex(&all[1])}],
    });
    let text = serde_json::to_string_pretty(&document).expect("encodes");
    let (lines, tally) = lines_of(text.as_bytes());
    assert_eq!(tally, counted(2, 0, 0));
    assert!(lines[0].starts_with("line 1 hello"), "{}", lines[0]);
    assert!(lines[0].contains("ReplicaHello"), "{}", lines[0]);
}

#[test]
fn full_shows_every_field_and_the_body() {
    let (lines, _) = lines_with(&arguments(true), &golden("replica-frames.jsonl"));
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    for text in [
        "timestamp_monotonic",
        "checksum_body",
        "request_checksum",
        "operation              CreateStream",
        "body: CreateTopicWithAssignments",
        "message at 0: id",
        "checksum ok",
        "entry op ",
        "artifact 0: kind ",
    ] {
        assert!(has(text), "{text}");
    }
    let (lines, _) = lines_with(&arguments(true), &golden("client-exchanges.jsonl"));
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    for text in [
        "result ok, payload",
        "rejected with",
        "body: Login(",
        "reason",
    ] {
        assert!(has(text), "{text}");
    }
    assert!(!has("password: \"iggy\""));
}

#[test]
fn an_empty_input_has_no_lines() {
    assert_eq!(lines_of(&[]), (Vec::new(), counted(0, 0, 0)));
}

/// An output that takes some bytes and then fails.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(self.0);
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_output_ends_the_walk_with_its_reason() {
    let input = golden("replica-frames.jsonl");
    let error = inspect(&arguments(false), input.as_slice(), Failing(500)).expect_err("closed");
    assert!(matches!(error, InspectError::Output(error)
        if error.kind() == io::ErrorKind::BrokenPipe));
}
