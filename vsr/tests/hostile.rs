//! Peers that may write anything into a frame: every field of every frame at its extremes, to a
//! replica in every state.
//!
//! Each frame is one that would have been taken, with one field overwritten and its seals made
//! right again. It must not panic or break an invariant; it must be refused by the decoder, or
//! be ignored with a counted reason, or do what a frame may do; and what it does is bounded.

mod support;

use biplane_vsr::{Ignored, Input, Output, StatusView, TransferStage};
use biplane_wire::{
    Checksum, Command, HEADER_SIZE, Message, PrepareHeader, ReplicaFrame, View, decode_replica,
    frame_seal, prepare_identity,
};
use support::frames::{self, PrepareParts};
use support::solo::Solo;

/// Most outputs one frame may bring about: a vote and an announcement to two peers each, and
/// an acknowledgement and a write for each op of a log of a few.
const OUTPUTS_MAX: usize = 64;

/// States a replica can be met in.
#[derive(Clone, Copy, Debug)]
enum State {
    Primary,
    Backup,
    ViewChange,
    Elect,
    Recovering,
    Transferring,
    Completing,
}

const STATES: [State; 7] = [
    State::Primary,
    State::Backup,
    State::ViewChange,
    State::Elect,
    State::Recovering,
    State::Transferring,
    State::Completing,
];

fn log() -> Vec<Message> {
    frames::chain(0, 1, 5, Checksum::ZERO, 1)
}

fn make(state: State) -> Solo {
    let log = log();
    let mut solo = match state {
        State::Primary => {
            let mut primary = Solo::normal(0, 0);
            primary.admit(1);
            primary.admit(2);
            primary
        }
        State::Backup | State::Transferring => {
            let mut backup = Solo::normal(1, 0);
            backup.feed(log[0].clone());
            backup.feed(log[1].clone());
            backup
        }
        State::ViewChange => {
            let mut replica = Solo::normal(2, 0);
            replica.feed(log[0].clone());
            replica.feed(frames::start_view_change(0, 1));
            replica
        }
        State::Elect => {
            let mut elect = Solo::restarted(1, 0, 0, &log[..2]);
            elect.tick(30);
            let entries = [(Some(&log[3]), false, true), (Some(&log[2]), false, true)];
            elect.feed(frames::do_view_change(2, 1, 0, (4, 3), &entries));
            elect
        }
        State::Recovering => Solo::restarted(2, 1, 1, &log[..3]),
        State::Completing => {
            let mut backup = Solo::restarted(2, 0, 0, &log[..2]);
            let names = [Some(&log[3]), Some(&log[2]), Some(&log[1])];
            backup.feed(frames::start_view(1, (4, 2), 0, &names));
            backup
        }
    };
    if matches!(state, State::Transferring) {
        solo.replica
            .set_transfer_stage(TransferStage::AwaitingTarget);
    }
    solo.out.clear();
    solo
}

/// Frames that fit a replica that has seen [`log`], one or more per kind.
fn templates() -> Vec<Message> {
    let log = log();
    let entries = [(Some(&log[3]), false, true), (Some(&log[2]), false, true)];
    let names = [Some(&log[3]), Some(&log[2])];
    vec![
        log[2].clone(),
        frames::prepare_ok(1, 0, &log[0]),
        frames::commit(0, 0, 1, 7),
        frames::start_view_change(0, 1),
        frames::do_view_change(2, 1, 0, (4, 3), &entries),
        frames::start_view(1, (4, 3), 0, &names),
        frames::request_start_view(0, 0, 5),
    ]
}

/// The frame with bytes overwritten and its seals made right again.
fn forged(template: &Message, offset: usize, value: &[u8]) -> Option<Message> {
    let mut bytes = template.to_vec();
    bytes[offset..offset + value.len()].copy_from_slice(value);
    let header: &[u8; HEADER_SIZE] = bytes.first_chunk().expect("a header");
    let seal = if template.command() == Command::Prepare {
        prepare_identity(header)
    } else {
        frame_seal(header)
    };
    bytes[..16].copy_from_slice(&seal.0.to_le_bytes());
    Message::from_bytes(&bytes).ok()
}

/// Every aligned field of 4 and 8 bytes behind the seal, and every single byte, at extremes.
fn forgeries(template: &Message) -> Vec<Message> {
    let mut all = Vec::new();
    for offset in (16..HEADER_SIZE).step_by(8) {
        for value in [0, 1, 3, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX] {
            all.extend(forged(template, offset, &value.to_le_bytes()));
        }
    }
    for offset in (16..HEADER_SIZE).step_by(4) {
        for value in [0, 1, 2, 1 << 31, u32::MAX - 1, u32::MAX] {
            all.extend(forged(template, offset, &value.to_le_bytes()));
        }
    }
    for offset in 16..HEADER_SIZE {
        for value in [0, 1, 2, 3, 31, 32, 127, 200, 255] {
            all.extend(forged(template, offset, &[value]));
        }
    }
    all
}

struct Seen {
    status: StatusView,
    ignored: u64,
}

fn seen(solo: &Solo) -> Seen {
    Seen {
        status: solo.replica.status(),
        ignored: solo.replica.ignored().total(),
    }
}

/// Feeds the frame; whether the replica took it.
fn offer(state: State, message: &Message, frame: ReplicaFrame) -> bool {
    let mut solo = make(state);
    let before = seen(&solo);
    let span = solo.replica.log().span();
    solo.step(Input::Frame(frame));
    let after = seen(&solo);
    let said = |what: &str| format!("{what}: {state:?} and {message:?}");
    assert!(solo.out.len() <= OUTPUTS_MAX, "{}", said("bounded outputs"));
    assert!(
        solo.replica.log().span() <= span + 8,
        "{}",
        said("bounded memory")
    );
    for output in &solo.out {
        if let Output::Send { message: sent, .. } = output {
            assert!(
                decode_replica(sent.clone()).is_ok(),
                "{}",
                said("answers decode")
            );
        }
    }
    // Time goes on after it, and the replica with it.
    solo.tick(120);
    solo.replica.check_invariants();
    if after.ignored > before.ignored {
        return false;
    }
    let changed = after.status != before.status || !solo.out.is_empty();
    let is_quiet = matches!(
        message.command(),
        // A vote may be recorded, a question or a heartbeat heard, an acknowledgement counted.
        Command::StartViewChange
            | Command::DoViewChange
            | Command::RequestStartView
            | Command::Commit
            | Command::PrepareOk
    );
    assert!(changed || is_quiet, "{}", said("neither counted nor taken"));
    true
}

#[test]
fn no_field_of_no_frame_can_harm_a_replica() {
    let (mut refused, mut ignored, mut taken) = (0, 0, 0);
    for template in templates() {
        for message in forgeries(&template) {
            let Ok(frame) = decode_replica(message.clone()) else {
                refused += 1;
                continue;
            };
            for state in STATES {
                if offer(state, &message, frame.clone()) {
                    taken += 1;
                } else {
                    ignored += 1;
                }
            }
        }
    }
    println!("{refused} refused by the decoder, {ignored} ignored, {taken} taken");
    assert!(refused > 1000 && ignored > 1000 && taken > 100);
}

#[test]
fn every_reason_is_counted_by_its_name() {
    let log = log();
    let mut backup = make(State::Backup);
    let expect = |solo: &mut Solo, message: Message, reason: Ignored| {
        let before = solo.replica.ignored().get(reason);
        solo.feed(message);
        assert_eq!(solo.replica.ignored().get(reason), before + 1, "{reason:?}");
    };
    let foreign = frames::in_group(&frames::commit(0, 0, 1, 1), biplane_wire::GroupId(7));
    expect(&mut backup, foreign, Ignored::Foreign);
    expect(&mut backup, frames::commit(3, 0, 1, 1), Ignored::Foreign);
    expect(
        &mut backup,
        frames::start_view_change(255, 1),
        Ignored::Foreign,
    );
    expect(
        &mut backup,
        frames::start_view_change(1, 1),
        Ignored::FromSelf,
    );
    expect(
        &mut backup,
        frames::commit(2, 0, 1, 1),
        Ignored::NotFromPrimary,
    );
    expect(&mut backup, frames::commit(0, 3, 1, 1), Ignored::ViewNewer);
    let last = View(u32::MAX);
    expect(
        &mut backup,
        frames::commit(0, last.0, 1, 1),
        Ignored::ViewReserved,
    );
    expect(
        &mut backup,
        frames::start_view_change(0, last.0),
        Ignored::ViewReserved,
    );
    expect(
        &mut backup,
        log[2].prepare_in_view(last),
        Ignored::ViewReserved,
    );
    expect(
        &mut backup,
        frames::prepare_ok(2, 0, &log[0]),
        Ignored::NotPrimary,
    );
    expect(&mut backup, log[4].clone(), Ignored::Gap);
    let far = PrepareParts {
        view: 0,
        replica: 0,
        op: u64::MAX,
        commit: 0,
        parent: Checksum::ZERO,
        variant: 1,
    };
    expect(&mut backup, frames::prepare(far), Ignored::Gap);
    assert_eq!(backup.replica.status().view, View(0), "nothing came of it");
    assert_eq!(backup.replica.log().span(), 2);
}

/// The highest view there is cannot be passed, and is no reason to fall over.
#[test]
fn a_group_driven_to_its_last_view_stands_still() {
    let mut backup = make(State::Backup);
    backup.feed(frames::start_view_change(2, u32::MAX - 1));
    assert_eq!(backup.replica.view(), View(u32::MAX - 1));
    backup.tick(500);
    assert_eq!(backup.replica.view(), View(u32::MAX - 1));
    backup.replica.check_invariants();
}

/// A commit point near the end of all numbers is believed of a primary, and costs nothing.
#[test]
fn an_absurd_commit_point_is_not_walked() {
    let mut backup = make(State::Backup);
    backup.feed(frames::commit(0, 0, u64::MAX, 9));
    for _ in 0..1000 {
        let need = backup.replica.repair_need().expect("everything is missing");
        assert_eq!(need.to.0, u64::MAX);
        backup.tick(1);
        backup.feed(frames::commit(0, 0, u64::MAX, backup.wall_micros));
    }
    assert_eq!(backup.replica.log().span(), 2);
    let header = log()[2].header::<PrepareHeader>().op();
    assert_eq!(header.0, 3);
    backup.feed(log()[2].clone());
    assert_eq!(backup.replica.commit_min().0, 3, "work goes on meanwhile");
}
