//! The decision tables as such: with every combination of defects in one frame, the first defect in
//! the order of the table decides, both what is logged and whether the peer is told. The tables are
//! written here a second time, as data, next to the machine that implements them.

mod support;

use biplane_handshake::{Channel, Frame, HelloOutcome};
use support::*;

/// One row of a table: a way to break a frame, and the label it is to be refused with.
type Row = (&'static str, fn(&mut Frame));

fn break_command(frame: &mut Frame) {
    frame[60] = 9;
}
fn break_cluster(frame: &mut Frame) {
    frame[32] ^= 0xff;
}
fn break_mac(frame: &mut Frame) {
    frame[191] ^= 1;
}

/// Applies each subset of `rows` to `good` and hands the frame with the subset's first row to
/// `check`.
fn for_each_subset(good: &Frame, rows: &[Row], mut check: impl FnMut(&Frame, Option<usize>)) {
    for subset in 0..1_u32 << rows.len() {
        let mut frame = *good;
        let mut first = None;
        for (row, (_, break_it)) in rows.iter().enumerate() {
            if subset & 1 << row != 0 {
                break_it(&mut frame);
                first = first.or(Some(row));
            }
        }
        check(&frame, first);
    }
}

#[test]
fn acceptor_decides_the_hello_in_the_order_of_its_table() {
    let rows: [Row; 6] = [
        ("frame_size_illegal", |frame| {
            frame[48..52].copy_from_slice(&[255, 0, 0, 0])
        }),
        ("unknown_command", break_command),
        ("cluster_mismatch", break_cluster),
        ("directional_rule", |frame| frame[61] = 2),
        ("auth_required", |frame| frame[128..160].fill(0)),
        // Bytes that no row names, in all places the table of fields calls zero.
        ("", |frame| {
            frame[..32].fill(0xee);
            frame[52..60].fill(0xee);
            frame[62..128].fill(0xee);
            frame[160..256].fill(0xee);
        }),
    ];
    let (good, _) = hello(dialer(keys(S1), Channel::Plaintext));
    for auth in [true, false] {
        let rows: Vec<Row> = rows
            .into_iter()
            .filter(|row| auth || row.0 != "auth_required")
            .collect();
        for_each_subset(&good, &rows, |frame, first| {
            let keys = if auth { keys(S1) } else { None };
            let label = first.map_or("", |first| rows[first].0);
            match acceptor(keys, Channel::Plaintext).on_hello(frame) {
                HelloOutcome::Accepted(_) => assert!(!auth && label.is_empty(), "{label}"),
                HelloOutcome::SendChallenge { .. } => assert!(auth && label.is_empty(), "{label}"),
                HelloOutcome::Reject(refused) => {
                    assert_eq!(refused.reason.label(), label);
                    let nonce = frame[128..160] != [0; 32];
                    let status = match label {
                        "unknown_command" => Some(1),
                        "cluster_mismatch" => Some(2),
                        "directional_rule" => Some(3),
                        _ => None,
                    };
                    let told = status.filter(|_| auth && nonce);
                    assert_eq!(refused.frame.map(|frame| frame[192]), told, "{label}");
                }
            }
        });
    }
}

#[test]
fn acceptor_decides_the_finish_in_the_order_of_its_table() {
    let rows: [Row; 6] = [
        ("command_illegal", |frame| frame[60] = 200),
        ("unknown_command", |frame| frame[60] = frame[60].max(17)),
        ("cluster_mismatch", break_cluster),
        ("peer_mismatch", |frame| frame[61] = 1),
        ("mac_mismatch", break_mac),
        ("", |frame| {
            frame[..32].fill(0xee);
            frame[52..60].fill(0xee);
            frame[62..160].fill(0xee);
            frame[192..256].fill(0xee);
        }),
    ];
    let fresh = || acceptor(keys(S1), Channel::Plaintext);
    let exchange = connect(dialer(keys(S1), Channel::Plaintext), fresh());
    for_each_subset(&exchange.frames[2], &rows, |frame, first| {
        let (_, waiting) = challenge(fresh(), &exchange.frames[0]);
        let label = match waiting.on_finish(frame) {
            Ok(_) => "",
            Err(reason) => reason.label(),
        };
        assert_eq!(label, first.map_or("", |first| rows[first].0));
    });
}

#[test]
fn dialer_decides_the_challenge_in_the_order_of_its_table() {
    let rows: [Row; 7] = [
        ("frame_size_illegal", |frame| frame[49] = 0),
        ("unknown_command", break_command),
        ("directional_rule", |frame| frame[192] = 3),
        ("cluster_mismatch", break_cluster),
        ("peer_mismatch", |frame| frame[61] = 1),
        ("mac_mismatch", break_mac),
        ("", |frame| {
            frame[..32].fill(0xee);
            frame[52..60].fill(0xee);
            frame[62..128].fill(0xee);
            frame[193..256].fill(0xee);
        }),
    ];
    let fresh = || hello(dialer(keys(S1), Channel::Plaintext));
    let (good, _) = challenge(acceptor(keys(S1), Channel::Plaintext), &fresh().0);
    for_each_subset(&good, &rows, |frame, first| {
        let label = match fresh().1.on_challenge(frame) {
            Ok(finish) => {
                assert_eq!(finish.established.peer().0, 2);
                ""
            }
            Err(reason) => reason.label(),
        };
        assert_eq!(label, first.map_or("", |first| rows[first].0));
    });
}

#[test]
fn every_non_zero_status_is_a_refusal_whatever_else_the_frame_holds() {
    let fresh = || hello(dialer(keys(S1), Channel::Plaintext));
    let (good, _) = challenge(acceptor(keys(S1), Channel::Plaintext), &fresh().0);
    for byte in 1..=255_u8 {
        let reason = fresh().1.on_challenge(&with(&good, 192, byte)).unwrap_err();
        let label = match byte {
            2 => "cluster_mismatch",
            3 => "directional_rule",
            4 => "auth_required",
            5 => "mac_mismatch",
            _ => "unknown_command",
        };
        assert_eq!(reason.label(), label);
        assert!(reason.is_remote());
        let text = format!("the acceptor refused with status {byte}, {label}");
        assert_eq!(reason.to_string(), text);
    }
}
