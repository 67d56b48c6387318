//! Plays of the receiving side. The limits are the tiny ones: retry 10 ticks, two stalls, three
//! metadata failures, chunks of 16 bytes.

mod support;

use biplane_state_transfer::{Ended, PullIgnored, Stage};
use biplane_wire::{GroupId, Message, ReplicaId, StateChunkHeader, StateTransferTargetHeader};
use support::{
    Node, PULLER, SERVER, Source, converse, describe, golden_message, nonce_of, partition_group,
    pattern, started,
};

const RETRY: u32 = 10;

fn metadata() -> (Node, Source) {
    let source = Source::metadata(b"snapshot-bytes", b"table-bytes");
    (Node::new(GroupId::METADATA, 7), source)
}

fn partition() -> (Node, Source) {
    let segments = [(0, pattern(40, 1)), (20, pattern(20, 2))];
    (
        Node::new(partition_group(), 7),
        Source::partition(&segments, &pattern(10, 3)),
    )
}

#[test]
fn metadata_transfer_goes_through_its_stages() {
    let (mut node, mut source) = metadata();
    node.with(|puller, out| puller.await_start(out));
    assert!(
        node.take_sent().is_empty(),
        "nobody is known to be asked yet"
    );
    node.start(SERVER);
    let talk = converse(&mut node, &mut source);
    let expected = [
        "ask",
        "offer 195",
        "want 0@0+14",
        "chunk 0@0+14",
        "want 1@0+11",
        "chunk 1@0+11",
    ];
    assert_eq!(talk, expected);
    assert_eq!(
        node.artifacts(),
        [b"snapshot-bytes".to_vec(), b"table-bytes".to_vec()]
    );
    assert_eq!(node.completed, [(0, false), (1, false)]);
    node.install();
    let stages = [
        Stage::AwaitingTarget,
        Stage::Fetching,
        Stage::Installing,
        Stage::Idle,
    ];
    assert_eq!(node.stages, stages);
    assert_eq!(node.ended, [(Ended::Installed, Some(SERVER))]);
}

#[test]
fn frames_of_the_specification_are_taken() {
    let mut node = Node::new(GroupId::METADATA, 7);
    node.start(SERVER);
    let ask = node.sent_one();
    let nonce = nonce_of(&ask);
    let target = golden_message(include_str!("golden/target_offer.txt"));
    let mut header = *target.header::<StateTransferTargetHeader>();
    node.receive(SERVER, &target);
    assert_eq!(node.ignored, [PullIgnored::WrongAttempt], "another nonce");
    header.set_nonce(nonce);
    node.receive(SERVER, &Message::sealed(header, target.body()));
    assert_eq!(describe(&node.sent_one()), "want 0@0+14");
    let chunk = golden_message(include_str!("golden/state_chunk.txt"));
    let mut header = *chunk.header::<StateChunkHeader>();
    header.set_nonce(nonce);
    node.receive(SERVER, &Message::sealed(header, chunk.body()));
    assert_eq!(node.completed, [(0, false)], "the digest of the manifest");
}

#[test]
fn empty_artifact_is_complete_without_a_request() {
    let mut source = Source::metadata(b"", b"t");
    let mut node = Node::new(GroupId::METADATA, 7);
    node.start(SERVER);
    let talk = converse(&mut node, &mut source);
    assert_eq!(talk, ["ask", "offer 195", "want 1@0+1", "chunk 1@0+1"]);
    assert_eq!(node.artifacts(), [Vec::new(), b"t".to_vec()]);
}

#[test]
fn stalled_request_is_repeated_as_it_was() {
    let (mut node, mut source) = metadata();
    node.start(SERVER);
    let ask = node.sent_one();
    node.ticks(RETRY - 1);
    assert!(node.take_sent().is_empty());
    node.tick();
    assert_eq!(node.sent_one(), ask, "same nonce");
    let (_, offer) = source.serve(PULLER, &ask).remove(0);
    node.receive(SERVER, &offer);
    let want = node.sent_one();
    node.ticks(RETRY);
    assert_eq!(node.sent_one(), want, "same artifact and offset");
}

#[test]
fn duplicate_offers_and_chunks_are_dropped() {
    let (mut node, mut source) = metadata();
    let offer = started(&mut node, &mut source);
    node.receive(SERVER, &offer);
    let want = node.sent_one();
    node.receive(SERVER, &offer);
    assert_eq!(node.ignored.pop(), Some(PullIgnored::NotExpected));
    let (_, chunk) = source.serve(PULLER, &want).remove(0);
    node.receive(SERVER, &chunk);
    assert_eq!(describe(&node.sent_one()), "want 1@0+11");
    node.receive(SERVER, &chunk);
    assert_eq!(node.ignored.pop(), Some(PullIgnored::WrongPlace));
    assert!(node.take_sent().is_empty());
    converse_from(&mut node, &mut source);
    assert_eq!(node.artifacts()[0], b"snapshot-bytes");
}

/// Repeats the outstanding request by stalling, then lets the transfer go on.
fn converse_from(node: &mut Node, source: &mut Source) {
    node.ticks(RETRY);
    converse(node, source);
}

#[test]
fn chunks_that_do_not_fit_are_dropped() {
    let (mut node, mut source) = metadata();
    let offer = started(&mut node, &mut source);
    node.receive(SERVER, &offer);
    let want = node.sent_one();
    let (_, chunk) = source.serve(PULLER, &want).remove(0);
    let header = *chunk.header::<StateChunkHeader>();
    let with = |change: fn(&mut StateChunkHeader), body: &[u8]| {
        let mut header = header;
        change(&mut header);
        Message::sealed(header, body)
    };
    node.receive(SERVER, &with(|_| {}, b""));
    node.receive(SERVER, &with(|_| {}, b"fifteen bytes!!"));
    node.receive(SERVER, &with(|header| header.set_offset(1), b"x"));
    node.receive(SERVER, &with(|header| header.set_offset(u64::MAX), b"x"));
    node.receive(SERVER, &with(|header| header.set_artifact(1), b"x"));
    node.receive(SERVER, &with(|header| header.set_artifact(u32::MAX), b"x"));
    node.receive(SERVER, &with(|header| header.set_nonce(1), b"x"));
    let expected = [
        PullIgnored::EmptyChunk,
        PullIgnored::Overrun,
        PullIgnored::WrongPlace,
        PullIgnored::WrongPlace,
        PullIgnored::WrongPlace,
        PullIgnored::WrongPlace,
        PullIgnored::WrongAttempt,
    ];
    assert_eq!(node.ignored, expected);
    node.receive(SERVER, &chunk);
    assert_eq!(node.completed, [(0, false)]);
}

#[test]
fn bad_manifest_is_ignored_and_asked_for_again() {
    let (mut node, mut source) = metadata();
    let offer = started(&mut node, &mut source);
    let header = *offer.header::<StateTransferTargetHeader>();
    let mut body = offer.body().to_vec();
    body[10] ^= 1;
    node.receive(SERVER, &Message::sealed(header, &body));
    assert!(matches!(node.ignored[..], [PullIgnored::Manifest(_)]));
    node.ticks(RETRY);
    assert_eq!(describe(&node.sent_one()), "ask");
    node.receive(SERVER, &offer);
    assert_eq!(node.puller.stage(), Stage::Fetching);
}

#[test]
fn silent_peer_ends_a_metadata_transfer_in_repair() {
    let (mut node, _) = metadata();
    node.start(SERVER);
    node.ticks(3 * RETRY);
    assert_eq!(node.take_sent().len(), 3, "the request and two repetitions");
    assert_eq!(node.ended, [(Ended::Abandoned, None)]);
    assert_eq!(node.puller.stage(), Stage::Idle);
    node.ticks(20 * RETRY);
    assert!(
        node.take_sent().is_empty(),
        "repair decides what comes next"
    );
}

#[test]
fn progress_forgives_stalls() {
    let (mut node, mut source) = partition();
    let offer = started(&mut node, &mut source);
    node.receive(SERVER, &offer);
    for _ in 0..5 {
        node.ticks(2 * RETRY);
        let want = node.take_sent().pop().expect("a repetition").1;
        let (_, chunk) = source.serve(PULLER, &want).remove(0);
        node.receive(SERVER, &chunk);
    }
    assert!(node.ended.is_empty());
}

#[test]
fn refusal_ends_a_metadata_transfer_and_names_who_to_repair_from() {
    let (mut node, _) = metadata();
    node.start(SERVER);
    let nonce = nonce_of(&node.sent_one());
    let refusal = golden_message(include_str!("golden/target_refusal.txt"));
    let mut header = *refusal.header::<StateTransferTargetHeader>();
    header.set_nonce(nonce);
    node.receive(SERVER, &Message::sealed(header, &[]));
    assert_eq!(node.ended, [(Ended::Refused, Some(SERVER))]);
    assert_eq!(node.stages, [Stage::AwaitingTarget, Stage::Idle]);
}

#[test]
fn open_attempt_is_not_replaced_by_another_start() {
    let (mut node, mut source) = metadata();
    let offer = started(&mut node, &mut source);
    node.start(ReplicaId(1));
    assert!(node.take_sent().is_empty());
    node.receive(SERVER, &offer);
    assert_eq!(node.puller.stage(), Stage::Fetching);
}

#[test]
fn exhausted_probe_gives_up_what_was_never_asked() {
    let (mut node, _) = metadata();
    node.with(|puller, out| puller.await_start(out));
    node.ticks(100 * RETRY);
    assert_eq!(
        node.puller.stage(),
        Stage::AwaitingTarget,
        "no stall without a request"
    );
    node.with(|puller, out| puller.cancel(out));
    assert_eq!(node.ended, [(Ended::Cancelled, None)]);
}

#[test]
fn wrong_digest_costs_a_metadata_attempt_and_keeps_what_was_right() {
    let (mut node, mut source) = metadata();
    let offer = started(&mut node, &mut source);
    let nonce = offer.header::<StateTransferTargetHeader>().nonce();
    node.receive(SERVER, &offer);
    let want = node.sent_one();
    let (_, chunk) = source.serve(PULLER, &want).remove(0);
    node.receive(SERVER, &chunk);
    let want = node.sent_one();
    let (_, chunk) = source.serve(PULLER, &want).remove(0);
    let header = *chunk.header::<StateChunkHeader>();
    node.receive(SERVER, &Message::sealed(header, b"table-bytez"));
    let again = node.sent_one();
    let fresh = nonce_of(&again);
    assert_ne!(fresh, nonce, "a nonce is never used for two manifests");
    assert_eq!(node.discarded.len(), 1);
    let (_, offer) = source.serve(PULLER, &again).remove(0);
    node.receive(SERVER, &offer);
    let talk = converse(&mut node, &mut source);
    assert_eq!(
        talk,
        ["want 1@0+11", "chunk 1@0+11"],
        "the snapshot is not pulled again"
    );
    assert_eq!(node.completed, [(0, false), (0, true), (1, false)]);
    assert_eq!(
        node.artifacts(),
        [b"snapshot-bytes".to_vec(), b"table-bytes".to_vec()]
    );
}

#[test]
fn metadata_that_never_holds_is_abandoned() {
    let (mut node, mut source) = metadata();
    node.start(SERVER);
    for attempt in 1..=3 {
        converse(&mut node, &mut source);
        assert!(node.puller.is_fetched(), "attempt {attempt}");
        node.with(|puller, out| puller.reject(Some(0), out));
    }
    assert_eq!(node.ended, [(Ended::Abandoned, None)]);
    assert_eq!(node.spool.bytes(), 0, "nothing is kept");
}

#[test]
fn rejected_artifact_is_pulled_again_and_the_other_is_not() {
    let (mut node, mut source) = metadata();
    node.start(SERVER);
    converse(&mut node, &mut source);
    node.with(|puller, out| puller.reject(Some(0), out));
    let talk = converse(&mut node, &mut source);
    assert_eq!(talk, ["ask", "offer 195", "want 0@0+14", "chunk 0@0+14"]);
}
