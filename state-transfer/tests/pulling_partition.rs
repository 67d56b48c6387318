//! Plays of the receiving side of a partition. The limits are the tiny ones: retry 10 ticks, two
//! stalls, chunks of 16 bytes.

mod support;

use biplane_state_transfer::{
    Ended, Gate, PartitionGate, ProvideLimits, Provider, ProviderConfig, PullBudget, PullIgnored,
    Stage, artifact_kind,
};
use biplane_wire::{ManifestEntry, Message, Op, ReplicaId, StateTransferTargetHeader, View};
use support::{
    Node, PULLER, SERVER, Source, VIEW, converse, describe, golden_message, nonce_of,
    partition_group, pattern, started,
};

const RETRY: u32 = 10;

fn partition() -> (Node, Source) {
    let segments = [(0, pattern(40, 1)), (20, pattern(20, 2))];
    (
        Node::new(partition_group(), 7),
        Source::partition(&segments, &pattern(10, 3)),
    )
}

#[test]
fn chunks_are_pulled_in_lockstep_and_may_be_short() {
    let (mut node, mut source) = partition();
    node.start(SERVER);
    let talk = converse(&mut node, &mut source);
    let expected = [
        "ask",
        "offer 100",
        "want 0@0+16",
        "chunk 0@0+16",
        "want 0@16+16",
        "chunk 0@16+16",
        "want 0@32+8",
        "chunk 0@32+8",
        "want 1@0+16",
        "chunk 1@0+16",
        "want 1@16+4",
        "chunk 1@16+4",
        "want 2@0+10",
        "chunk 2@0+10",
    ];
    assert_eq!(talk, expected);
    assert_eq!(
        node.artifacts(),
        [pattern(40, 1), pattern(20, 2), pattern(10, 3)]
    );
    let progress = node.puller.progress().expect("an attempt");
    assert_eq!((progress.bytes_done, progress.bytes_total), (70, 70));
    assert_eq!((progress.artifact, progress.artifacts), (3, 3));
}

#[test]
fn only_the_replica_that_was_asked_is_listened_to() {
    let (mut node, mut source) = partition();
    let offer = started(&mut node, &mut source);
    node.receive(ReplicaId(1), &offer);
    assert_eq!(node.ignored, [PullIgnored::WrongSender]);
    assert_eq!(node.puller.stage(), Stage::AwaitingTarget);
}

#[test]
fn offer_out_of_bounds_is_ignored_until_it_is_given_up() {
    let mut source = Source::partition(&[(0, pattern(4_097, 1))], b"offsets");
    source.provider = big_provider();
    let mut node = Node::new(partition_group(), 7);
    let offer = started(&mut node, &mut source);
    node.receive(SERVER, &offer);
    assert!(matches!(node.ignored[..], [PullIgnored::Offer(_)]));
    node.ticks(3 * RETRY);
    assert_eq!(node.ended, [(Ended::Abandoned, None)]);
}

fn big_provider() -> Provider {
    Provider::new(ProviderConfig {
        cluster: support::CLUSTER,
        replica: SERVER,
        replica_count: 3,
        limits: ProvideLimits {
            hash_bytes_max: 1 << 20,
            ..ProvideLimits::tiny()
        },
    })
}

#[test]
fn partition_pauses_after_a_transient_refusal_and_asks_the_primary_again() {
    let (mut node, mut source) = partition();
    source.gate = Gate::Partition(PartitionGate {
        repairing: true,
        ..support::partition_gate()
    });
    let refusal = started(&mut node, &mut source);
    assert_eq!(describe(&refusal), "later");
    node.receive(SERVER, &refusal);
    assert_eq!(node.ended, [(Ended::Refused, None)]);
    assert!(node.puller.is_scheduled());
    node.ticks(RETRY - 1);
    assert!(node.take_sent().is_empty());
    node.tick();
    assert_eq!(node.take_sent()[0].0, SERVER);
}

/// Gives up on a peer that is silent, and returns the retry intervals until the next is asked.
fn pause_after_silence(node: &mut Node) -> u32 {
    node.ticks(3 * RETRY);
    node.sent.clear();
    assert!(node.puller.is_scheduled());
    let mut pause = 0;
    while node.puller.is_scheduled() {
        node.tick();
        pause += 1;
    }
    pause / RETRY
}

#[test]
fn pauses_grow_to_about_a_minute_and_each_attempt_moves_on() {
    let (mut node, _) = partition();
    node.start(SERVER);
    let mut waits = Vec::new();
    let mut peers = vec![node.take_sent()[0].0.0];
    for _ in 0..8 {
        waits.push(pause_after_silence(&mut node));
        peers.push(node.take_sent()[0].0.0);
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(peers, [0, 1, 0, 1, 0, 1, 0, 1, 0]);
}

/// One peer is silent and the other gets ready while it is asked.
#[test]
fn pause_starts_over_when_a_peer_says_later() {
    let (mut node, mut source) = partition();
    source.gate = Gate::Partition(PartitionGate {
        repairing: true,
        ..support::partition_gate()
    });
    node.start(SERVER);
    assert_eq!(pause_after_silence(&mut node), 2);
    assert_eq!(pause_after_silence(&mut node), 4);
    let (peer, request) = node.take_sent().remove(0);
    assert_eq!(peer, SERVER);
    let (_, refusal) = source.serve(PULLER, &request).remove(0);
    assert_eq!(describe(&refusal), "later");
    node.receive(SERVER, &refusal);
    node.ticks(RETRY);
    assert_eq!(pause_after_silence(&mut node), 2);
}

#[test]
fn offers_that_contradict_or_know_less_are_turned_down() {
    let turned_down = |commit_op, commit_max, view, local_max| {
        let (mut node, mut source) = partition();
        node.view.commit_max = Op(local_max);
        source.commit_op = Op(commit_op);
        source.artifacts[2].1 = commit_op;
        let offer = started(&mut node, &mut source);
        let mut header = *offer.header::<StateTransferTargetHeader>();
        header.set_commit_max(Op(commit_max));
        header.frame.set_view(View(view));
        node.receive(SERVER, &Message::sealed(header, offer.body()));
        node.puller.stage() == Stage::Idle
    };
    assert!(!turned_down(100, 100, VIEW.0, 90));
    assert!(!turned_down(100, 100, VIEW.0, 100));
    assert!(
        turned_down(100, 99, VIEW.0, 90),
        "more applied than committed"
    );
    assert!(turned_down(100, 100, VIEW.0 - 1, 90), "an older view");
    assert!(turned_down(90, 100, VIEW.0, 101), "a lower commit point");
    assert!(
        turned_down(95, 100, VIEW.0, 99),
        "it would erase what is known committed"
    );
}

#[test]
fn repair_that_heals_cancels_the_scheduled_attempt() {
    let (mut node, _) = partition();
    node.start(SERVER);
    node.ticks(3 * RETRY);
    assert!(node.puller.is_scheduled());
    node.view.commit_min = node.view.commit_max;
    node.sent.clear();
    node.ticks(100 * RETRY);
    assert!(!node.puller.is_scheduled() && node.sent.is_empty());
}

#[test]
fn staged_segments_survive_an_offer_that_changes_midway() {
    let (mut node, mut source) = partition();
    let offer = started(&mut node, &mut source);
    node.receive(SERVER, &offer);
    for _ in 0..3 {
        let want = node.sent_one();
        let (_, chunk) = source.serve(PULLER, &want).remove(0);
        node.receive(SERVER, &chunk);
    }
    assert_eq!(node.completed, [(0, false)]);
    source.provider.forget(partition_group());
    source.artifacts[1].2 = pattern(30, 2);
    let want = node.sent_one();
    let (_, refusal) = source.serve(PULLER, &want).remove(0);
    assert_eq!(describe(&refusal), "later", "the offer is gone");
    node.receive(SERVER, &refusal);
    node.ticks(RETRY);
    let talk = converse(&mut node, &mut source);
    assert_eq!(
        talk[..3],
        ["ask", "offer 100", "want 1@0+16"],
        "segment 0 is kept"
    );
    assert_eq!(
        node.artifacts(),
        [pattern(40, 1), pattern(30, 2), pattern(10, 3)]
    );
    assert_eq!(node.completed[1], (0, true));
}

#[test]
fn segment_that_left_the_manifest_is_discarded() {
    let (mut node, mut source) = partition();
    node.start(SERVER);
    converse(&mut node, &mut source);
    node.with(|puller, out| puller.reject(None, out));
    assert!(node.discarded.is_empty(), "nothing is blamed");
    source.provider.forget(partition_group());
    source.artifacts.remove(0);
    // The failure moved on from the primary; its successor refuses, and the primary is next.
    node.ticks(2 * RETRY);
    let ask = node.sent_one();
    let mut header = *golden_message(include_str!("golden/target_refusal.txt"))
        .header::<StateTransferTargetHeader>();
    header.set_nonce(nonce_of(&ask));
    header.set_group(partition_group());
    node.receive(ReplicaId(1), &Message::sealed(header, &[]));
    node.ticks(RETRY);
    converse(&mut node, &mut source);
    assert_eq!(node.artifacts(), [pattern(20, 2), pattern(10, 3)]);
    assert_eq!(node.discarded.len(), 1);
    assert_eq!(node.discarded[0].frontier, 0);
}

#[test]
fn failed_install_starts_over_with_nothing_kept() {
    let (mut node, mut source) = partition();
    node.start(SERVER);
    converse(&mut node, &mut source);
    node.with(|puller, out| {
        puller.begin_install(out);
        puller.install_failed(out);
    });
    assert_eq!(node.ended, [(Ended::Failed, None)]);
    assert_eq!(node.discarded.len(), 3);
    // Repair may close the gap of ops; the removed segments come back by transfer alone.
    (node.view.commit_min, node.view.commit_max) = (Op(90), Op(90));
    node.ticks(2 * RETRY);
    let talk = converse(&mut node, &mut source);
    assert_eq!(talk[2], "want 0@0+16");
    node.install();
    assert_eq!(node.ended.last(), Some(&(Ended::Installed, Some(SERVER))));
}

#[test]
fn nothing_a_peer_says_disturbs_an_install() {
    let (mut node, mut source) = partition();
    node.start(SERVER);
    converse(&mut node, &mut source);
    node.with(|puller, out| puller.begin_install(out));
    let mut header = *golden_message(include_str!("golden/target_refusal.txt"))
        .header::<StateTransferTargetHeader>();
    header.set_group(partition_group());
    let ask = {
        let mut twin = Node::new(partition_group(), 7);
        twin.start(SERVER);
        twin.sent_one()
    };
    header.set_nonce(nonce_of(&ask));
    node.receive(SERVER, &Message::sealed(header, &[]));
    node.ticks(100 * RETRY);
    assert_eq!(node.puller.stage(), Stage::Installing);
    assert_eq!(node.ignored, [PullIgnored::NotExpected]);
}

#[test]
fn an_install_that_runs_is_not_given_up() {
    let (mut node, mut source) = partition();
    node.start(SERVER);
    converse(&mut node, &mut source);
    node.with(|puller, out| puller.begin_install(out));
    node.with(|puller, out| puller.cancel(out));
    assert_eq!(node.puller.stage(), Stage::Installing);
    assert!(node.ended.is_empty() && node.discarded.is_empty());
    node.with(|puller, out| puller.installed(out));
    assert_eq!(node.ended, [(Ended::Installed, Some(SERVER))]);
}

#[test]
fn only_the_answer_to_the_open_request_is_awaited() {
    let (mut node, mut source) = partition();
    let offer = started(&mut node, &mut source);
    let header = *offer.header::<StateTransferTargetHeader>();
    assert!(node.puller.awaits_target(SERVER, &header));
    assert!(!node.puller.awaits_target(ReplicaId(1), &header));
    let mut stray = header;
    stray.set_nonce(header.nonce() + 1);
    assert!(!node.puller.awaits_target(SERVER, &stray));
    node.receive(SERVER, &offer);
    assert!(!node.puller.awaits_target(SERVER, &header), "it is taken");
}

#[test]
fn paused_pull_neither_asks_nor_stalls() {
    let (mut node, mut source) = partition();
    let offer = started(&mut node, &mut source);
    node.with(|puller, out| puller.set_paused(true, out));
    node.receive(SERVER, &offer);
    node.ticks(20 * RETRY);
    assert!(node.take_sent().is_empty() && node.ended.is_empty());
    node.with(|puller, out| puller.set_paused(false, out));
    converse(&mut node, &mut source);
    assert!(node.puller.is_fetched());
}

#[test]
fn groups_beyond_the_ceiling_wait_without_being_charged() {
    let mut budget = PullBudget::new(1);
    let mut nodes: Vec<Node> = (0..2)
        .map(|seed| Node::new(partition_group(), seed))
        .collect();
    let mut out = Vec::new();
    budget.begin_tick();
    for node in &mut nodes {
        node.puller.start(SERVER, &mut budget, &mut out);
    }
    assert_eq!(nodes[0].puller.stage(), Stage::AwaitingTarget);
    assert!(nodes[1].puller.is_scheduled());
    for _ in 0..RETRY {
        budget.begin_tick();
        for node in &mut nodes {
            node.puller.tick(&node.view, &mut budget, &mut out);
        }
    }
    assert!(nodes[1].puller.is_scheduled(), "still no place");
    nodes[0].puller.cancel(&mut out);
    for _ in 0..RETRY {
        budget.begin_tick();
        for node in &mut nodes {
            node.puller.tick(&node.view, &mut budget, &mut out);
        }
    }
    assert_eq!(nodes[1].puller.stage(), Stage::AwaitingTarget);
}

#[test]
fn segments_the_owner_has_already_are_not_pulled() {
    let (mut node, mut source) = partition();
    let own = |frontier, bytes: &[u8]| ManifestEntry {
        kind: artifact_kind::SEGMENT_LOG,
        frontier,
        length: bytes.len() as u64,
        checksum: biplane_wire::xxh3(bytes),
    };
    let (same, other) = (own(0, &pattern(40, 1)), own(20, &pattern(20, 9)));
    node.puller.hold([same, other]);
    node.start(SERVER);
    let talk = converse(&mut node, &mut source);
    assert_eq!(talk[..3], ["ask", "offer 100", "want 1@0+16"]);
    assert_eq!(node.completed, [(0, true), (1, false), (2, false)]);
    assert_eq!(node.discarded, [other], "what differs is no longer wanted");
}

#[test]
fn look_takes_no_place_until_it_goes_on() {
    let mut budget = PullBudget::new(1);
    let (mut looks, mut pulls) = (partition().0, partition().0);
    let mut out = Vec::new();
    budget.begin_tick();
    looks.puller.look(SERVER, &mut out);
    looks.puller.tick(&looks.view, &mut budget, &mut out);
    assert_eq!(looks.puller.stage(), Stage::AwaitingTarget);
    budget.begin_tick();
    assert_eq!(budget.live(), 0);
    pulls.puller.start(SERVER, &mut budget, &mut out);
    assert_eq!(pulls.puller.stage(), Stage::AwaitingTarget);
    assert!(!looks.puller.take_place(&mut budget), "somebody pulls");
    pulls.puller.cancel(&mut out);
    budget.begin_tick();
    budget.begin_tick();
    assert!(looks.puller.take_place(&mut budget));
    assert!(looks.puller.take_place(&mut budget), "and keeps it");
    looks.puller.tick(&looks.view, &mut budget, &mut out);
    budget.begin_tick();
    assert_eq!(budget.live(), 1);
}
