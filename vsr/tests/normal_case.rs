//! Normal operation of one replica at a time: the table of a received prepare, admission,
//! acknowledgements, retransmission, promises that wait for the disk (chapter 03 section 6).

mod support;

use biplane_vsr::{
    Admission, DenyReason, Durability, HaltReason, Ignored, Input, Output, Promotion, Refusal,
    Status, TransferStage,
};
use biplane_wire::{Checksum, Command, Message, Op, PrepareHeader, ReplicaId, View};
use support::frames::{self, PrepareParts};
use support::solo::Solo;
use support::{Kind, config};

fn last_ignored(solo: &Solo) -> Option<Ignored> {
    solo.replica.ignored().last()
}

fn backup() -> (Solo, Vec<Message>) {
    (
        Solo::normal(1, 3),
        frames::chain(3, 1, 6, Checksum::ZERO, 1),
    )
}

#[test]
fn row_1_corrupt_prepare_is_dropped() {
    let (mut backup, log) = backup();
    let mut bytes = log[0].to_vec();
    bytes[260] ^= 1;
    backup.feed(Message::from_bytes(&bytes).expect("a frame"));
    assert_eq!(last_ignored(&backup), Some(Ignored::Corrupt));
    let mut bytes = log[0].to_vec();
    bytes[192] ^= 1;
    backup.feed(Message::from_bytes(&bytes).expect("a frame"));
    assert_eq!(last_ignored(&backup), Some(Ignored::Corrupt));
}

#[test]
fn row_2_transferring_replica_takes_nothing() {
    let (mut backup, log) = backup();
    backup
        .replica
        .set_transfer_stage(TransferStage::AwaitingTarget);
    backup.feed(log[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Transferring));
    backup.replica.set_transfer_stage(TransferStage::Idle);
    backup.feed(log[0].clone());
    assert_eq!(backup.acknowledged(), [1]);
}

#[test]
fn rows_3_to_5_status_and_view_must_fit() {
    let (mut backup, log) = backup();
    let newer = frames::chain(6, 1, 1, Checksum::ZERO, 1);
    let older = frames::chain(0, 1, 1, Checksum::ZERO, 1);
    backup.feed(newer[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::ViewNewer));
    backup.feed(older[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::ViewOlder));
    // The newer view was noticed: it asks instead of electing.
    backup.tick(40);
    assert_eq!(backup.replica.status().status, Status::Recovering);
    backup.feed(log[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Status));
}

#[test]
fn row_6_commit_of_a_dropped_prepare_counts() {
    let (mut backup, log) = backup();
    backup.feed(log[0].clone());
    let parts = PrepareParts {
        view: 3,
        replica: 0,
        op: 5,
        commit: 1,
        parent: Checksum(1),
        variant: 1,
    };
    backup.feed(frames::prepare(parts));
    assert_eq!(last_ignored(&backup), Some(Ignored::Gap));
    assert_eq!(backup.replica.commit_min(), Op(1));
}

#[test]
fn row_7_applied_op_is_acknowledged_again_while_it_is_here() {
    let (mut backup, log) = backup();
    backup.feed(log[0].clone());
    backup.feed(frames::commit(0, 3, 1, 1));
    assert_eq!(backup.acknowledged(), [1]);
    backup.feed(log[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Applied));
    assert_eq!(
        backup.acknowledged(),
        [1],
        "a primary with a lower commit point may need it"
    );
    let other = frames::chain(3, 1, 1, Checksum::ZERO, 2);
    backup.feed(other[0].clone());
    assert!(backup.acknowledged().is_empty());
    // Also when the entry is gone: it was applied, and nothing else can be at its op.
    backup.feed(log[1].clone());
    backup.feed(frames::commit(0, 3, 2, 2));
    backup.replica.log_mut().evict_through(Op(1));
    backup.out.clear();
    backup.feed(log[0].clone());
    assert_eq!(backup.acknowledged(), [1]);
}

#[test]
fn row_8_held_prepare_is_acknowledged_and_passed_on_again() {
    let (mut backup, log) = backup();
    backup.feed(log[0].clone());
    backup.out.clear();
    backup.feed(log[0].clone());
    let forwarded = backup.out.iter().any(
        |output| matches!(output, Output::Send { to: ReplicaId(2), message } if *message == log[0]),
    );
    assert!(forwarded);
    assert_eq!(backup.acknowledged(), [1]);
    let other = frames::chain(3, 1, 1, Checksum::ZERO, 2);
    backup.feed(other[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Differs));
    assert!(backup.acknowledged().is_empty());
}

#[test]
fn row_8_without_body_seal_the_bodies_are_compared() {
    let mut settings = config(Kind::Partition, 1, 3);
    settings.group = biplane_wire::GroupId(5);
    let boot = biplane_vsr::Boot::fresh();
    let mut backup = Solo::open(settings, boot);
    backup.plane.durability = Durability::Memory;
    let build = |body: &[u8]| {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.frame.set_cluster(frames::CLUSTER);
        header.set_op(Op(1));
        header.set_timestamp(5);
        header.set_operation(biplane_wire::Operation::SendMessages);
        header.set_group(biplane_wire::GroupId(5));
        biplane_wire::prepare::build_with_body(header, body)
    };
    let (one, other) = (build(b"one"), build(b"two"));
    assert_eq!(frames::identity(&one), frames::identity(&other));
    backup.feed(one.clone());
    assert_eq!(backup.acknowledged(), [1]);
    backup.feed(other);
    assert_eq!(last_ignored(&backup), Some(Ignored::Differs));
    backup.feed(one);
    assert_eq!(backup.acknowledged(), [1]);
}

#[test]
fn row_9_fork_in_the_same_view_stops_the_metadata_replica() {
    let (mut backup, log) = backup();
    backup.feed(log[0].clone());
    let forked = frames::chain(3, 2, 2, Checksum(99), 1);
    backup.feed(forked[0].clone());
    assert_eq!(
        backup.replica.halted(),
        Some(HaltReason::ForkedLog { op: Op(2) })
    );
    backup.feed(log[1].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Halted));
}

#[test]
fn row_9_fork_is_only_dropped_where_it_does_not_halt() {
    let mut settings = config(Kind::Metadata, 1, 3);
    settings.halt_on_fork = false;
    let mut backup = Solo::open(settings, biplane_vsr::Boot::fresh());
    let log = frames::chain(0, 1, 2, Checksum::ZERO, 1);
    backup.feed(log[0].clone());
    backup.feed(frames::chain(0, 2, 2, Checksum(99), 1).remove(0));
    assert_eq!(last_ignored(&backup), Some(Ignored::Unchained));
    backup.feed(log[1].clone());
    assert_eq!(backup.acknowledged(), [1, 2]);
}

#[test]
fn row_9b_parent_of_another_view_must_match_too() {
    let log = frames::chain(0, 1, 2, Checksum::ZERO, 1);
    let mut backup = Solo::restarted(2, 0, 0, &log);
    backup.feed(frames::start_view(
        1,
        (2, 0),
        0,
        &[Some(&log[1]), Some(&log[0])],
    ));
    let stray = frames::chain(1, 3, 3, Checksum(99), 1);
    backup.feed(stray[0].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Unchained));
    assert_eq!(backup.replica.halted(), None);
}

#[test]
fn rows_10b_to_12_order_timestamp_and_plane() {
    let (mut backup, log) = backup();
    backup.feed(log[1].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Gap));
    backup.feed(log[0].clone());
    // A child that is not younger than its parent.
    let parent = frames::identity(&log[0]);
    let mut header = *log[1].header::<PrepareHeader>();
    header.set_timestamp(log[0].header::<PrepareHeader>().timestamp());
    header.set_parent(parent);
    backup.feed(biplane_wire::prepare::build_with_body(
        header,
        log[1].body(),
    ));
    assert_eq!(last_ignored(&backup), Some(Ignored::Timestamp));
    backup.plane.refuses = true;
    backup.feed(log[1].clone());
    assert_eq!(last_ignored(&backup), Some(Ignored::Plane));
    assert_eq!(backup.replica.op_head(), Op(1));
    backup.plane.refuses = false;
    backup.feed(log[1].clone());
    assert_eq!(backup.acknowledged(), [1, 2]);
}

#[test]
fn primary_drops_its_own_prepare() {
    let mut primary = Solo::normal(0, 0);
    primary.admit(5);
    let prepare = primary.replica.log().get(Op(1)).cloned().expect("held");
    primary.feed(prepare);
    assert_eq!(last_ignored(&primary), Some(Ignored::OwnPrepare));
}

/// The metadata plane passes on and acknowledges what is on disk, in that order.
#[test]
fn metadata_prepare_leaves_after_its_append() {
    let mut primary = Solo::normal(0, 0);
    primary.disk_works = false;
    assert!(matches!(
        primary.admit(5),
        Admission::Prepared { op: Op(1) }
    ));
    let sends = |solo: &Solo| {
        solo.out
            .iter()
            .filter(|output| matches!(output, Output::Send { .. }))
            .count()
    };
    assert_eq!(sends(&primary), 0);
    primary.tick(30);
    assert_eq!(sends(&primary) % 2, 0, "heartbeats only");
    let prepares = primary.out.iter().any(|output| {
        matches!(output, Output::Send { message, .. } if message.command() == Command::Prepare)
    });
    assert!(!prepares, "not even by retransmission");
    primary.confirm_writes();
    let sent = primary.sent(Command::Prepare);
    assert_eq!(sent.first().map(|(to, _)| *to), Some(1));
}

#[test]
fn append_failure_at_the_primary_is_undone() {
    let mut primary = Solo::normal(0, 0);
    primary.admit(5);
    primary.disk_works = false;
    primary.admit(6);
    let checksum = frames::identity(primary.replica.log().get(Op(2)).expect("held"));
    primary.out.clear();
    primary.step(Input::AppendFailed {
        op: Op(2),
        checksum,
    });
    assert_eq!(primary.replica.op_head(), Op(1));
    assert!(matches!(
        primary.out[..],
        [Output::Canceled { op: Op(2), .. }]
    ));
    primary.disk_works = true;
    assert!(matches!(
        primary.admit(7),
        Admission::Prepared { op: Op(2) }
    ));
    // The completion of what was taken back has no effect.
    primary.step(Input::Appended {
        op: Op(2),
        checksum,
    });
    assert_eq!(last_ignored(&primary), Some(Ignored::StaleCompletion));
}

#[test]
fn append_failure_below_the_head_stops_the_replica() {
    let mut primary = Solo::normal(0, 0);
    primary.disk_works = false;
    primary.admit(5);
    primary.admit(6);
    let checksum = frames::identity(primary.replica.log().get(Op(1)).expect("held"));
    primary.step(Input::AppendFailed {
        op: Op(1),
        checksum,
    });
    assert_eq!(
        primary.replica.halted(),
        Some(HaltReason::AppendFailed { op: Op(1) })
    );
}

/// A completion that arrives after the entry was cut is not taken for the one that came back.
#[test]
fn completion_of_a_cut_entry_does_not_make_its_twin_durable() {
    let log = frames::chain(0, 1, 3, Checksum::ZERO, 1);
    let mut backup = Solo::normal(2, 0);
    backup.feed(log[0].clone());
    backup.feed(log[1].clone());
    backup.disk_works = false;
    backup.feed(log[2].clone());
    // The view drops op 3, the next one brings the very same prepare back.
    backup.feed(frames::start_view(1, (2, 2), 0, &[Some(&log[1])]));
    backup.feed(frames::start_view(
        3,
        (3, 2),
        0,
        &[Some(&log[2]), Some(&log[1])],
    ));
    backup.feed(log[2].prepare_in_view(View(3)));
    assert!(backup.has(3));
    backup.step(Input::Appended {
        op: Op(3),
        checksum: frames::identity(&log[2]),
    });
    assert_eq!(last_ignored(&backup), Some(Ignored::StaleCompletion));
    assert!(!backup.replica.log().is_durable(Op(3)));
    backup.step(Input::Truncated { from: Op(3) });
    backup.step(Input::Appended {
        op: Op(3),
        checksum: frames::identity(&log[2]),
    });
    assert!(backup.replica.log().is_durable(Op(3)));
}

/// An acknowledgement waits for every earlier op above the commit point.
#[test]
fn acknowledgements_are_in_order_whatever_the_disk_does() {
    let mut backup = Solo::normal(1, 3);
    let log = frames::chain(3, 1, 3, Checksum::ZERO, 1);
    backup.disk_works = false;
    for message in &log {
        backup.feed(message.clone());
    }
    for (op, expected) in [(3, vec![]), (1, vec![1]), (2, vec![2, 3])] {
        let checksum = frames::identity(&log[op - 1]);
        backup.step(Input::Appended {
            op: Op(op as u64),
            checksum,
        });
        assert_eq!(backup.acknowledged(), expected, "after op {op}");
    }
}

#[test]
fn plane_may_hold_acknowledgements_back() {
    let (mut backup, log) = backup();
    backup.plane.may_acknowledge = false;
    backup.feed(log[0].clone());
    backup.feed(log[0].clone());
    assert!(backup.acknowledged().is_empty());
    backup.plane.may_acknowledge = true;
    backup.tick(1);
    assert_eq!(backup.acknowledged(), [1]);
}

#[test]
fn retransmission_goes_to_everybody_who_has_not_answered() {
    let mut settings = config(Kind::Metadata, 0, 5);
    settings.replica_count = 5;
    let mut primary = Solo::open(settings, biplane_vsr::Boot::fresh());
    primary.admit(5);
    let prepare = primary.replica.log().get(Op(1)).cloned().expect("held");
    primary.feed(frames::prepare_ok(3, 0, &prepare));
    primary.out.clear();
    primary.tick(2);
    assert!(primary.sent(Command::Prepare).is_empty());
    primary.tick(1);
    let to: Vec<u8> = primary
        .sent(Command::Prepare)
        .iter()
        .map(|(to, _)| *to)
        .collect();
    assert_eq!(to, [1, 2, 4]);
    primary.feed(frames::prepare_ok(1, 0, &prepare));
    assert_eq!(primary.replica.commit_min(), Op(1), "three of five");
    primary.tick(100);
    assert!(primary.sent(Command::Prepare).is_empty());
}

#[test]
fn acknowledgements_that_do_not_fit_are_ignored() {
    let mut primary = Solo::normal(0, 3);
    primary.admit(5);
    let prepare = primary.replica.log().get(Op(1)).cloned().expect("held");
    let other = frames::chain(3, 1, 1, Checksum::ZERO, 7);
    for (message, reason) in [
        (frames::prepare_ok(1, 0, &prepare), Ignored::ViewOlder),
        (frames::prepare_ok(1, 6, &prepare), Ignored::ViewNewer),
        (frames::prepare_ok(1, 3, &other[0]), Ignored::UnknownPrepare),
        (frames::prepare_ok(0, 3, &prepare), Ignored::FromSelf),
        (frames::prepare_ok(7, 3, &prepare), Ignored::Foreign),
    ] {
        primary.feed(message);
        assert_eq!(last_ignored(&primary), Some(reason));
    }
    assert_eq!(primary.replica.commit_max(), Op(0));
    primary.feed(frames::prepare_ok(1, 3, &prepare));
    primary.feed(frames::prepare_ok(1, 3, &prepare));
    assert_eq!(
        last_ignored(&primary),
        Some(Ignored::UnknownPrepare),
        "it has left the queue"
    );
    assert_eq!(primary.replica.commit_min(), Op(1));
}

#[test]
fn admission_follows_role_limits_and_clients() {
    let mut backup = Solo::normal(1, 0);
    let Admission::Refused { reason, request } = backup.admit(5) else {
        unreachable!()
    };
    assert_eq!((reason, reason.code()), (Refusal::NotPrimary, 58));
    assert_eq!(request.size(), 272, "it comes back as it was");
    let mut primary = Solo::normal(0, 0);
    assert!(matches!(
        primary.admit(5),
        Admission::Prepared { op: Op(1) }
    ));
    let Admission::Refused { reason, .. } = primary.admit(5) else {
        unreachable!()
    };
    assert_eq!((reason, reason.code()), (Refusal::InFlight, 57));
    for client in 6..=8 {
        assert!(matches!(primary.admit(client), Admission::Prepared { .. }));
    }
    for client in 9..=12 {
        assert!(matches!(primary.admit(client), Admission::Queued));
    }
    let Admission::Refused { reason, .. } = primary.admit(12) else {
        unreachable!()
    };
    assert_eq!(reason, Refusal::InFlight, "queued counts");
    let Admission::Refused { reason, .. } = primary.admit(13) else {
        unreachable!()
    };
    assert_eq!((reason, reason.code()), (Refusal::Full, 58));
    primary
        .replica
        .set_transfer_stage(TransferStage::AwaitingTarget);
    let Admission::Refused { reason, .. } = primary.admit(14) else {
        unreachable!()
    };
    assert_eq!(reason, Refusal::Transferring);
}

#[test]
fn queued_requests_are_promoted_in_order_or_denied() {
    let mut primary = Solo::normal(0, 0);
    for client in 1..=7 {
        primary.admit(client);
    }
    primary.out.clear();
    primary.plane.promotion = Promotion::Wait;
    for op in 1..=4 {
        let prepare = primary.replica.log().get(Op(op)).cloned().expect("held");
        primary.feed(frames::prepare_ok(1, 0, &prepare));
    }
    let mut out = Vec::new();
    assert!(!primary.replica.promote(&mut primary.plane, &mut out));
    assert_eq!(primary.replica.status().requests_queued, 3);
    primary.plane.promotion = Promotion::Deny(59);
    primary.replica.promote(&mut primary.plane, &mut out);
    let denied = |output: &Output| {
        matches!(
            output,
            Output::Denied {
                code: 59,
                reason: DenyReason::Plane,
                ..
            }
        )
    };
    assert_eq!(out.iter().filter(|output| denied(output)).count(), 3);
    primary.plane.promotion = Promotion::Prepare;
    assert!(matches!(
        primary.admit(9),
        Admission::Prepared { op: Op(5) }
    ));
}

#[test]
fn timestamps_increase_even_if_the_clock_does_not() {
    let mut primary = Solo::normal(0, 0);
    primary.admit(1);
    primary.wall_micros -= 1_000_000;
    primary.admit(2);
    let at = |op| {
        primary
            .replica
            .log()
            .header(Op(op))
            .expect("held")
            .timestamp()
    };
    assert_eq!(at(2), at(1) + 1);
}

#[test]
fn parked_request_waits_for_the_plane() {
    let mut primary = Solo::normal(0, 0);
    primary.plane.promotion = Promotion::Wait;
    let parked = primary.replica.park(frames::request(5, 1, &[0; 16]), 77);
    assert!(matches!(parked, Admission::Queued));
    primary.tick(3);
    assert_eq!(primary.replica.op_head(), Op(0));
    primary.plane.promotion = Promotion::Prepare;
    primary.tick(1);
    let promoted = |output: &Output| {
        matches!(
            output,
            Output::Promoted {
                token: 77,
                op: Op(1)
            }
        )
    };
    assert!(primary.out.iter().any(promoted));
}

#[test]
fn chain_ends_before_the_primary() {
    let (mut last, log) = (
        Solo::normal(2, 3),
        frames::chain(3, 1, 1, Checksum::ZERO, 1),
    );
    last.feed(log[0].clone());
    assert!(last.sent(Command::Prepare).is_empty());
    let mut middle = Solo::normal(1, 3);
    middle.step(Input::Peer {
        replica: ReplicaId(2),
        connected: false,
    });
    middle.feed(log[0].clone());
    assert!(middle.sent(Command::Prepare).is_empty(), "nobody is left");
}
