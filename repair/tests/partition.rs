//! Plays of a partition whose peer no longer has the start of the range: the floor, the connect
//! test, and the fall into a state transfer. In the model op n is one message of offset n - 1.

mod support;

use biplane_repair::{Ingested, RepairOutput, SessionOutcome, TransferState};
use biplane_wire::{Command, Message, Op, RequestPreparesHeader};
use support::{Backup, SERVER, Server, content_of, partition_group, summary};

const RETRY: u32 = 10;

/// A restarted partition: nothing is known to be applied, messages up to `durable` are on disk.
fn restarted(durable: u64, commit_max: u64) -> (Backup, RequestPreparesHeader) {
    let mut backup = Backup::new(partition_group(), 0, commit_max, 5);
    backup.stand_in = durable;
    backup.tick();
    let (peer, request) = backup.sent_one();
    assert_eq!(peer, SERVER);
    (backup, request)
}

fn server(retained_from: u64, head: u64) -> Server {
    Server::new(partition_group(), retained_from, head, head)
}

/// Serves until nothing is asked any more; returns how many requests that took.
fn serve_all(backup: &mut Backup, server: &Server, first: &RequestPreparesHeader) -> usize {
    let mut requests = vec![*first];
    let mut served = 0;
    while let Some(request) = requests.pop() {
        served += 1;
        assert!(served < 1_000, "repair does not come to an end");
        backup.receive_all(&server.answer(&request));
        requests.extend(backup.sent().into_iter().map(|(_, request)| request));
    }
    served
}

#[test]
fn segments_that_reach_the_served_range_stand_in_for_the_evicted_ops() {
    let (mut backup, request) = restarted(150, 198);
    let served = serve_all(&mut backup, &server(151, 198), &request);
    assert_eq!((backup.view.commit_min, served), (Op(198), 1));
    assert!(backup.transfers.is_empty());
}

#[test]
fn overlap_is_connected_as_well() {
    let (mut backup, request) = restarted(170, 198);
    serve_all(&mut backup, &server(151, 198), &request);
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn hole_between_segments_and_served_range_leads_to_a_transfer_at_once() {
    let (mut backup, request) = restarted(149, 6_000);
    let served = serve_all(&mut backup, &server(1_000, 6_000), &request);
    assert_eq!(served, 1, "the first chunk shows that no other can help");
    assert_eq!(backup.transfers, [SERVER]);
    assert_eq!(backup.view.commit_min, Op(0), "the floor was not raised");
}

#[test]
fn wiped_partition_far_behind_heals_by_repair_while_the_ring_reaches_back() {
    let (mut backup, request) = restarted(0, 6_008);
    let served = serve_all(&mut backup, &server(1, 6_008), &request);
    assert_eq!(backup.view.commit_min, Op(6_008));
    assert_eq!(
        served,
        6_008_usize.div_ceil(128),
        "chunk by chunk, none twice"
    );
}

#[test]
fn floor_beyond_the_reach_of_the_log_is_raised_on_evidence() {
    let (mut backup, request) = restarted(99_900, 100_000);
    backup.reach = 1_000;
    let served = serve_all(&mut backup, &server(99_901, 100_000), &request);
    assert_eq!(backup.view.commit_min, Op(100_000));
    assert_eq!(served, 2, "what could not be kept is asked for again");
    let (mut backup, request) = restarted(99_000, 100_000);
    backup.reach = 1_000;
    serve_all(&mut backup, &server(99_901, 100_000), &request);
    assert_eq!((backup.view.commit_min, backup.transfers.len()), (Op(0), 1));
}

#[test]
fn notice_without_the_closing_frame_decides_nothing() {
    let (mut backup, request) = restarted(150, 198);
    let frames = server(151, 198).answer(&request);
    backup.receive_all(&frames[..frames.len() - 1]);
    assert_eq!(backup.view.commit_min, Op(0));
    backup.ticks(RETRY);
    let (_, again) = backup.sent_one();
    assert_eq!(again.nonce(), request.nonce());
    backup.receive_all(&server(151, 198).answer(&again));
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn closing_frame_without_the_notice_asks_again() {
    let (mut backup, request) = restarted(150, 198);
    let frames = server(151, 198).answer(&request);
    backup.receive_all(&frames[1..]);
    assert_eq!(backup.view.commit_min, Op(0), "no floor, no raise");
    let (_, again) = backup.sent_one();
    assert_eq!(again.from_op(), Op(1));
    backup.receive_all(&server(151, 198).answer(&again));
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn lost_first_batch_is_asked_for_before_anything_is_decided() {
    let (mut backup, request) = restarted(150, 198);
    let mut frames = server(151, 198).answer(&request);
    frames.remove(1);
    backup.receive_all(&frames);
    assert_eq!(
        backup.view.commit_min,
        Op(0),
        "offset 151 alone does not connect to 150"
    );
    assert!(backup.transfers.is_empty());
    let (_, again) = backup.sent_one();
    assert_eq!(
        again.from_op(),
        Op(151),
        "the hole above the floor, not the evicted start"
    );
    backup.receive_all(&server(151, 198).answer(&again));
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn floor_above_everything_known_is_refused() {
    let (mut backup, request) = restarted(1_000, 198);
    let empty = {
        let mut server = server(401, 198);
        server.log.clear();
        server
    };
    backup.receive_all(&empty.answer(&request));
    assert_eq!(backup.transfers, [SERVER]);
    assert!(matches!(
        backup.out.last(),
        Some(RepairOutput::Closed {
            outcome: SessionOutcome::FloorRefused,
            ..
        })
    ));
}

#[test]
fn scheduled_transfer_is_not_armed_twice() {
    let (mut backup, request) = restarted(149, 198);
    backup.view.transfer = TransferState::Scheduled;
    backup.receive_all(&server(151, 198).answer(&request));
    assert!(backup.transfers.is_empty());
    assert!(!backup.requester.has_session());
    backup.ticks(RETRY - 1);
    assert!(
        backup.sent().is_empty(),
        "and repair does not spin meanwhile"
    );
}

#[test]
fn deferred_purge_defers_the_verdict() {
    let (mut backup, request) = restarted(150, 198);
    backup.view.purge_deferred = true;
    let frames = server(151, 198).answer(&request);
    backup.receive_all(&frames);
    assert_eq!(backup.view.commit_min, Op(0));
    backup.view.purge_deferred = false;
    backup.ticks(RETRY);
    let (_, again) = backup.sent_one();
    backup.receive_all(&server(151, 198).answer(&again));
    assert_eq!(backup.view.commit_min, Op(198));
}

#[test]
fn floor_that_moves_up_is_judged_by_what_lies_above_it() {
    let (mut backup, request) = restarted(150, 198);
    let frames = server(151, 198).answer(&request);
    // Of the first chunk only two batches and no closing frame arrive; then the peer evicts more.
    backup.receive_all(&frames[..3]);
    backup.ticks(RETRY);
    let (_, again) = backup.sent_one();
    backup.receive_all(&server(170, 198).answer(&again));
    assert_eq!(
        backup.transfers.len(),
        1,
        "152..169 are gone: batch 151 connects to nothing"
    );
    assert_eq!(backup.view.commit_min, Op(0));
}

#[test]
fn ops_out_of_reach_count_once_and_do_not_store() {
    let (mut backup, request) = restarted(0, 198);
    backup.receive_all(&server(151, 198).answer(&request)[..1]);
    let before = backup.requester.progress().expect("a session").stored;
    let content = biplane_repair::HeldOp::Batch { base_offset: 150 };
    backup
        .requester
        .on_ingested(Op(151), Ingested::OutOfReach, content);
    let after = backup.requester.progress().expect("a session").stored;
    assert_eq!((before, after), (0, 0));
}

/// What a peer sends is here and not proven, what lies between is, and the first messages stand far
/// above: with one prepare in a chunk the window is seen up to them all the same.
#[test]
fn window_is_seen_where_the_log_shows_a_part_of_it() {
    let (mut backup, mut request) = restarted(154, 156);
    backup.silent = 154;
    let server = server(151, 156);
    let is_of = |frame: &Message, text: &str| summary(std::slice::from_ref(frame)) == text;
    for frame in server.answer(&request) {
        for (op, text) in [(151, "P151"), (152, "P152")] {
            if is_of(&frame, text) {
                backup.log.insert(op, frame.clone().repair_to_prepare());
            }
        }
    }
    let mut asked = Vec::new();
    while backup.view.commit_min == Op(0) {
        let op = request.from_op().max(Op(151));
        asked.push(op.0);
        assert!(asked.len() < 20, "asked for {asked:?}");
        for frame in server.answer(&request) {
            match frame.command() {
                Command::RepairPrepare if is_of(&frame, &format!("P{op}")) => {
                    let content = content_of(op, backup.silent);
                    let requester = &mut backup.requester;
                    requester.on_ingested(op, Ingested::Duplicate, content);
                }
                Command::RepairPrepare => {}
                _ => backup.receive(&frame),
            }
        }
        let sent = (0..100).find_map(|_| {
            let sent = backup.sent().pop();
            backup.tick();
            sent
        });
        request = sent.map_or(request, |(_, request)| request);
    }
    assert_eq!(backup.view.commit_min, Op(152), "the floor is raised");
    assert!(backup.transfers.is_empty());
}
