//! Plays of the serving side. The limits are the tiny ones: chunks of 16 bytes, reads of 64, at
//! most 256 bytes hashed per request, two groups at once, offers lapse after 100 idle ticks.

mod support;

use biplane_state_transfer::{Flush, Gate, MetadataGate, PartitionGate, ProviderView, ReadError};
use biplane_wire::{GroupId, Message, Op, ReplicaId, StateTransferTargetHeader, View};
use support::{
    PULLER, SERVER, Source, VIEW, ask, describe, golden, golden_message, partition_gate,
    partition_group, pattern, want,
};

const NONCE: u128 = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000;

fn talk(frames: &[(ReplicaId, Message)]) -> Vec<String> {
    frames.iter().map(|(_, frame)| describe(frame)).collect()
}

fn metadata() -> Source {
    Source::metadata(b"snapshot-bytes", b"table-bytes")
}

fn partition() -> Source {
    Source::partition(
        &[(0, pattern(100, 1)), (20, pattern(20, 2))],
        &pattern(10, 3),
    )
}

#[test]
fn frames_are_those_of_the_specification() {
    let mut source = metadata();
    let asked = golden_message(include_str!("golden/request_state_transfer.txt"));
    let offer = source.serve(PULLER, &asked);
    assert_eq!(
        offer[0].1.to_vec(),
        golden(include_str!("golden/target_offer.txt"))
    );
    let wanted = golden_message(include_str!("golden/request_state_chunk.txt"));
    let chunk = source.serve(PULLER, &wanted);
    assert_eq!(
        chunk[0].1.to_vec(),
        golden(include_str!("golden/state_chunk.txt"))
    );
    source.provider.withdraw(GroupId::METADATA);
    let refusal = source.serve(PULLER, &wanted);
    assert_eq!(
        refusal[0].1.to_vec(),
        golden(include_str!("golden/target_refusal.txt"))
    );
}

#[test]
fn every_metadata_request_is_answered() {
    for (caught_up_primary, has_checkpoint) in [(false, true), (true, false), (false, false)] {
        let mut source = metadata();
        source.gate = Gate::Metadata(MetadataGate {
            view: View(9),
            commit_max: Op(7),
            caught_up_primary,
            has_checkpoint,
        });
        let answers = source.serve(PULLER, &ask(GroupId::METADATA, 1));
        assert_eq!(talk(&answers), ["no"]);
        let header = answers[0].1.header::<StateTransferTargetHeader>();
        assert_eq!((header.frame.view(), header.commit_max()), (View(9), Op(7)));
        assert_eq!((header.nonce(), header.commit_op()), (1, Op(0)));
    }
}

#[test]
fn same_nonce_gets_the_same_offer_and_a_new_one_replaces_it() {
    let mut source = metadata();
    let first = source.serve(PULLER, &ask(GroupId::METADATA, 1));
    source.artifacts[1].2 = b"another table".to_vec();
    let again = source.serve(PULLER, &ask(GroupId::METADATA, 1));
    assert_eq!(first, again, "first wins");
    let fresh = source.serve(PULLER, &ask(GroupId::METADATA, 2));
    assert_ne!(first[0].1.body(), fresh[0].1.body());
    let old = source.serve(PULLER, &want(GroupId::METADATA, 1, 0, 0, 16));
    assert_eq!(talk(&old), ["later"], "the old offer is gone");
    let other = source.serve(ReplicaId(1), &want(GroupId::METADATA, 2, 0, 0, 16));
    assert_eq!(
        talk(&other),
        ["later"],
        "an offer belongs to the replica that asked"
    );
}

#[test]
fn chunks_are_cut_and_requests_outside_are_ignored() {
    let mut source = metadata();
    source.serve(PULLER, &ask(GroupId::METADATA, 1));
    let mut chunk = |artifact, offset, length| {
        talk(&source.serve(
            PULLER,
            &want(GroupId::METADATA, 1, artifact, offset, length),
        ))
    };
    assert_eq!(chunk(0, 0, u32::MAX), ["chunk 0@0+14"]);
    assert_eq!(chunk(0, 3, 5), ["chunk 0@3+5"]);
    assert_eq!(chunk(0, 10, 16), ["chunk 0@10+4"]);
    assert!(chunk(0, 14, 1).is_empty());
    assert!(chunk(0, u64::MAX, 1).is_empty());
    assert!(chunk(2, 0, 1).is_empty());
    assert!(chunk(u32::MAX, 0, 1).is_empty());
}

#[test]
fn strangers_and_the_replica_itself_are_not_served() {
    let mut source = metadata();
    for from in [SERVER, ReplicaId(3), ReplicaId(255)] {
        assert!(source.serve(from, &ask(GroupId::METADATA, 1)).is_empty());
        let chunk = want(GroupId::METADATA, 1, 0, 0, 1);
        assert!(source.serve(from, &chunk).is_empty());
    }
}

#[test]
fn partition_is_refused_by_its_gate_in_order() {
    let refusal = |change: fn(&mut PartitionGate)| {
        let mut source = partition();
        let mut gate = partition_gate();
        change(&mut gate);
        source.gate = Gate::Partition(gate);
        talk(&source.serve(PULLER, &ask(partition_group(), 1)))
    };
    assert_eq!(refusal(|_| {}), ["offer 100"]);
    assert_eq!(refusal(|gate| gate.caught_up_primary = false), ["later"]);
    assert_eq!(refusal(|gate| gate.has_directory = false), ["no"]);
    assert_eq!(refusal(|gate| gate.repairing = true), ["later"]);
    assert_eq!(refusal(|gate| gate.purge_deferred = true), ["later"]);
    assert_eq!(refusal(|gate| gate.flush = Flush::Pending), ["later"]);
    assert_eq!(refusal(|gate| gate.flush = Flush::Failed), ["no"]);
}

#[test]
fn pending_flush_does_not_hide_an_offer_that_exists() {
    let mut source = partition();
    let first = source.serve(PULLER, &ask(partition_group(), 1));
    source.gate = Gate::Partition(PartitionGate {
        flush: Flush::Pending,
        ..partition_gate()
    });
    assert_eq!(source.serve(PULLER, &ask(partition_group(), 1)), first);
    assert_eq!(
        talk(&source.serve(PULLER, &ask(partition_group(), 2))),
        ["later"]
    );
}

#[test]
fn digests_are_computed_once_and_go_on_when_a_segment_grows() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    assert_eq!(source.bytes_read, 120);
    source.serve(ReplicaId(1), &ask(partition_group(), 2));
    assert_eq!(source.bytes_read, 120, "remembered");
    source.artifacts[1].2.extend_from_slice(&pattern(7, 9));
    let offer = source.serve(PULLER, &ask(partition_group(), 3));
    assert_eq!(source.bytes_read, 127, "only what is new");
    let manifest = biplane_wire::Manifest::decode(offer[0].1.body()).expect("a manifest");
    let segment = manifest.get(1).expect("the second segment");
    assert_eq!(segment.length, 27);
    assert_eq!(segment.checksum, biplane_wire::xxh3(&source.artifacts[1].2));
}

#[test]
fn large_partition_is_hashed_over_several_requests() {
    let mut source = Source::partition(&[(0, pattern(1_000, 1))], b"offsets");
    let answers: Vec<Vec<String>> = (1..=5)
        .map(|nonce| talk(&source.serve(PULLER, &ask(partition_group(), nonce))))
        .collect();
    assert_eq!(answers[0], ["later"]);
    assert_eq!(
        answers.concat(),
        ["later", "later", "later", "offer 100", "offer 100"]
    );
    assert_eq!(source.bytes_read, 1_000, "each byte once");
}

#[test]
fn request_repeated_while_its_offer_is_built_waits_for_it() {
    let mut source = partition();
    assert!(
        source
            .receive(PULLER, &ask(partition_group(), 1))
            .is_empty()
    );
    assert!(
        source
            .receive(PULLER, &ask(partition_group(), 1))
            .is_empty()
    );
    assert_eq!(source.reads.len(), 1, "one pass over the segments");
    assert_eq!(talk(&source.read_all()), ["offer 100"]);
}

#[test]
fn request_that_waits_too_long_is_told_to_come_back() {
    let mut source = partition();
    source.receive(PULLER, &ask(partition_group(), 1));
    for _ in 0..29 {
        assert!(source.tick().is_empty());
    }
    assert_eq!(talk(&source.tick()), ["later"]);
    assert!(
        source.read_all().is_empty(),
        "the read is in vain, its digest is not"
    );
    source.serve(PULLER, &ask(partition_group(), 2));
    assert_eq!(source.bytes_read, 120);
}

#[test]
fn chunk_being_read_is_not_read_twice() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    let wanted = want(partition_group(), 1, 0, 16, 16);
    assert!(source.receive(PULLER, &wanted).is_empty());
    assert!(source.receive(PULLER, &wanted).is_empty());
    assert_eq!(source.reads.len(), 2, "this one and the next one");
    assert_eq!(talk(&source.read_all()), ["chunk 0@16+16"]);
    assert_eq!(
        talk(&source.serve(PULLER, &wanted)),
        ["chunk 0@16+16"],
        "but again later"
    );
}

#[test]
fn next_chunk_is_ready_when_it_is_asked_for() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.bytes_read = 0;
    let places = [
        (0, 64, 16),
        (0, 80, 16),
        (0, 96, 4),
        (1, 0, 16),
        (1, 16, 4),
        (2, 0, 10),
    ];
    let (artifact, offset, length) = places[0];
    let first = want(partition_group(), 1, artifact, offset, length);
    assert_eq!(talk(&source.serve(PULLER, &first)), ["chunk 0@64+16"]);
    for (artifact, offset, length) in &places[1..] {
        let wanted = want(partition_group(), 1, *artifact, *offset, 16);
        let chunk = format!("chunk {artifact}@{offset}+{length}");
        assert_eq!(talk(&source.receive(PULLER, &wanted)), [chunk]);
        source.read_all();
    }
    assert_eq!(source.bytes_read, 36 + 20, "each stored byte once");
}

#[test]
fn chunk_asked_for_while_it_is_read_ahead_goes_out_when_it_comes() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.receive(PULLER, &want(partition_group(), 1, 0, 0, 16));
    assert_eq!(talk(&source.read_one()), ["chunk 0@0+16"]);
    let wanted = want(partition_group(), 1, 0, 16, 16);
    assert!(source.receive(PULLER, &wanted).is_empty());
    assert_eq!(talk(&source.read_all()), ["chunk 0@16+16"]);
}

#[test]
fn what_was_read_ahead_is_of_no_use_to_another_request() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.serve(PULLER, &want(partition_group(), 1, 0, 0, 16));
    let shorter = want(partition_group(), 1, 0, 16, 5);
    assert_eq!(talk(&source.serve(PULLER, &shorter)), ["chunk 0@16+5"]);
    let elsewhere = want(partition_group(), 1, 0, 50, 16);
    assert_eq!(talk(&source.serve(PULLER, &elsewhere)), ["chunk 0@50+16"]);
}

#[test]
fn failure_to_read_ahead_is_none_until_the_chunk_is_asked_for() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.receive(PULLER, &want(partition_group(), 1, 0, 0, 16));
    assert_eq!(talk(&source.read_one()), ["chunk 0@0+16"]);
    source.broken = Some(ReadError::Failed);
    assert!(source.read_all().is_empty());
    source.broken = None;
    let wanted = want(partition_group(), 1, 0, 16, 16);
    assert_eq!(talk(&source.serve(PULLER, &wanted)), ["chunk 0@16+16"]);
}

#[test]
fn busy_node_serves_so_much_in_a_tick_and_goes_on_in_the_next() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.load = Some(0);
    assert!(source.tick().is_empty());
    for offset in [0, 16] {
        let wanted = want(partition_group(), 1, 0, offset, 16);
        let chunk = format!("chunk 0@{offset}+16");
        assert_eq!(talk(&source.serve(PULLER, &wanted)), [chunk]);
    }
    let wanted = want(partition_group(), 1, 0, 32, 16);
    assert!(source.serve(PULLER, &wanted).is_empty());
    assert!(source.serve(PULLER, &wanted).is_empty(), "asked again");
    assert_eq!(talk(&source.tick()), ["chunk 0@32+16"], "and read already");
    source.load = Some(32);
    source.tick();
    for offset in [48, 64, 80] {
        let wanted = want(partition_group(), 1, 0, offset, 16);
        assert_eq!(
            source.serve(PULLER, &wanted).len(),
            1,
            "more comes, more goes"
        );
    }
    let wanted = want(partition_group(), 1, 0, 96, 16);
    assert!(source.serve(PULLER, &wanted).is_empty());
    source.load = None;
    source.tick();
    for offset in [48, 64, 80] {
        let wanted = want(partition_group(), 1, 0, offset, 16);
        assert_eq!(source.serve(PULLER, &wanted).len(), 1);
    }
}

#[test]
fn busy_node_hashes_so_much_in_a_tick() {
    let mut source = Source::partition(&[(0, pattern(256, 1))], b"offsets");
    source.load = Some(0);
    source.tick();
    let mut answers = source.serve(PULLER, &ask(partition_group(), 1));
    let mut ticks = 0;
    while answers.is_empty() {
        answers = source.tick();
        answers.extend(source.read_all());
        ticks += 1;
    }
    assert_eq!((talk(&answers), ticks), (vec!["offer 100".to_owned()], 1));
    assert_eq!(source.bytes_read, 256);
}

#[test]
fn failing_storage_ends_an_offer() {
    for (error, answer) in [(ReadError::Changed, "later"), (ReadError::Failed, "no")] {
        let mut source = partition();
        source.serve(PULLER, &ask(partition_group(), 1));
        source.broken = Some(error);
        let wanted = want(partition_group(), 1, 0, 0, 16);
        assert_eq!(talk(&source.serve(PULLER, &wanted)), [answer]);
        source.broken = None;
        assert_eq!(
            talk(&source.serve(PULLER, &wanted)),
            ["later"],
            "the offer is gone"
        );
        let mut hashing = partition();
        hashing.broken = Some(error);
        assert_eq!(
            talk(&hashing.serve(PULLER, &ask(partition_group(), 1))),
            [answer]
        );
    }
}

#[test]
fn segment_that_shrank_is_noticed() {
    let mut source = partition();
    source.serve(PULLER, &ask(partition_group(), 1));
    source.artifacts[0].2.truncate(90);
    let wanted = want(partition_group(), 1, 0, 80, 16);
    assert_eq!(talk(&source.serve(PULLER, &wanted)), ["later"]);
}

#[test]
fn purge_takes_offers_and_digests_away_even_under_a_read() {
    let mut source = partition();
    source.receive(PULLER, &ask(partition_group(), 1));
    source.provider.forget(partition_group());
    assert!(source.read_all().is_empty());
    source.artifacts[0].2 = pattern(100, 77);
    let offer = source.serve(PULLER, &ask(partition_group(), 2));
    let manifest = biplane_wire::Manifest::decode(offer[0].1.body()).expect("a manifest");
    let digest = manifest.get(0).expect("a segment").checksum;
    assert_eq!(
        digest,
        biplane_wire::xxh3(&pattern(100, 77)),
        "nothing of the old bytes"
    );
}

#[test]
fn offers_lapse_when_nobody_pulls_and_sooner_when_all_is_served() {
    let lives = |served: bool| {
        let mut source = metadata();
        source.serve(PULLER, &ask(GroupId::METADATA, 1));
        if served {
            source.serve(PULLER, &want(GroupId::METADATA, 1, 1, 0, 16));
        }
        let mut ticks = 0;
        while source
            .provider
            .groups_offered()
            .contains(&GroupId::METADATA)
        {
            source.tick();
            ticks += 1;
        }
        ticks
    };
    assert_eq!((lives(false), lives(true)), (100, 30));
}

#[test]
fn pulling_keeps_an_offer_alive() {
    let mut source = metadata();
    source.serve(PULLER, &ask(GroupId::METADATA, 1));
    for _ in 0..10 {
        for _ in 0..99 {
            source.tick();
        }
        let chunk = source.serve(PULLER, &want(GroupId::METADATA, 1, 0, 0, 1));
        assert_eq!(talk(&chunk), ["chunk 0@0+1"]);
    }
}

#[test]
fn chunk_request_under_an_unknown_nonce_echoes_it() {
    let mut source = partition();
    let answers = source.serve(PULLER, &want(partition_group(), NONCE, 0, 0, 1));
    let header = answers[0].1.header::<StateTransferTargetHeader>();
    assert_eq!(
        (header.nonce(), header.unavailable_transient()),
        (NONCE, true)
    );
    let view = ProviderView {
        view: VIEW,
        commit_max: Op(100),
    };
    assert_eq!(
        (header.frame.view(), header.commit_max()),
        (view.view, view.commit_max)
    );
}
