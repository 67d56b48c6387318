//! The `inspect` command as a process: a file, standard input, and what is not there.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden/replica-frames.jsonl")
}

fn inspect(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_biplane"))
        .arg("inspect")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built with its tests");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that reads a file does not take it.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_file_and_standard_input_give_the_same_lines() {
    let path = golden();
    let from_file = inspect(&[path.to_str().expect("text")], &[]);
    let from_input = inspect(&["-"], &std::fs::read(&path).expect("in the tree"));
    for output in [&from_file, &from_input] {
        assert!(output.status.success());
        assert_eq!(
            text(&output.stderr),
            "120 frames, 0 not acceptable, 0 notes\n"
        );
        assert_eq!(text(&output.stdout).lines().count(), 120);
    }
    assert_eq!(from_file.stdout, from_input.stdout);
}

#[test]
fn full_prints_more() {
    let path = golden();
    let output = inspect(&["--full", path.to_str().expect("text")], &[]);
    assert!(text(&output.stdout).contains("prepare_checksum"));
}

#[test]
fn a_missing_file_is_an_error_with_its_name() {
    let output = inspect(&["no/such/capture"], &[]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("no/such/capture"),
        "{}",
        text(&output.stderr)
    );
}
