//! Plays of what a provider reads before it is asked: blocks of chunks, digests with several reads
//! under way, digests that nobody waits for yet.

mod support;

use biplane_state_transfer::{Manifest, ProvideLimits, ReadError};
use biplane_wire::{Message, StateChunkHeader, xxh3};
use support::{PULLER, Source, ask, describe, partition_group, pattern, want};

/// Four chunks of 16 bytes at once, and three reads of 64 bytes for digests.
fn limits() -> ProvideLimits {
    ProvideLimits {
        block_bytes: 64,
        hash_reads: 3,
        hash_bytes_max: u64::MAX,
        ..ProvideLimits::tiny()
    }
}

fn source(lens: &[usize]) -> Source {
    let segments: Vec<(u64, Vec<u8>)> = lens
        .iter()
        .enumerate()
        .map(|(index, len)| (index as u64 * 10, pattern(*len, index as u8)))
        .collect();
    Source::partition(&segments, b"offsets").limited(limits())
}

/// Gets an offer, and forgets what its digests took.
fn offered(source: &mut Source) {
    let answers = source.serve(PULLER, &ask(partition_group(), 1));
    assert_eq!(describe(&answers[0].1), "offer 100");
    source.bytes_read = 0;
}

/// Asks for a chunk of the offer and returns what comes at once.
fn request(source: &mut Source, artifact: u32, offset: u64, len: u32) -> Option<Message> {
    let wanted = want(partition_group(), 1, artifact, offset, len);
    let answers = source.receive(PULLER, &wanted);
    assert!(answers.len() <= 1, "one chunk for one request");
    answers.into_iter().next().map(|(_, chunk)| chunk)
}

/// Pulls a segment as a receiver does, `len` bytes at a time.
fn pull(source: &mut Source, artifact: u32, len: u32) -> Vec<u8> {
    let whole = source.artifacts[artifact as usize].2.len();
    let mut bytes = Vec::new();
    while bytes.len() < whole {
        let at = bytes.len() as u64;
        let chunk = request(source, artifact, at, len).unwrap_or_else(|| {
            let answers = source.read_all();
            assert_eq!(answers.len(), 1, "the read brings the chunk");
            answers[0].1.clone()
        });
        assert_eq!(chunk.header::<StateChunkHeader>().offset(), at);
        bytes.extend_from_slice(chunk.body());
    }
    bytes
}

#[test]
fn chunks_are_read_in_blocks_and_each_byte_once() {
    for len in [16, 7, 100] {
        let mut source = source(&[1_000, 130, 5]);
        offered(&mut source);
        let mut reads = 0;
        for artifact in 0..3 {
            let expected = source.artifacts[artifact as usize].2.clone();
            assert_eq!(pull(&mut source, artifact, len), expected, "{len}");
            reads += source.reads.len();
        }
        source.read_all();
        assert_eq!(source.bytes_read, 1_135, "{len}");
        assert!(reads <= 6, "no more than the next block is under way");
    }
}

#[test]
fn next_block_is_under_way_before_the_last_one_is_used_up() {
    let mut source = source(&[1_000]);
    offered(&mut source);
    assert!(request(&mut source, 0, 0, 16).is_none());
    let blocks: Vec<(u64, u32)> = source.reads.iter().map(|read| (read.3, read.4)).collect();
    assert_eq!(blocks, [(0, 64), (64, 64)]);
    assert_eq!(source.read_all().len(), 1);
    for offset in [16, 32, 48] {
        assert!(request(&mut source, 0, offset, 16).is_some());
        assert!(source.reads.is_empty(), "a block is ready");
    }
    assert!(request(&mut source, 0, 64, 16).is_some());
    assert_eq!(source.reads.len(), 1, "the one after it");
}

#[test]
fn chunk_that_was_lost_is_read_alone_and_what_is_ready_stays() {
    let mut source = source(&[256]);
    offered(&mut source);
    request(&mut source, 0, 0, 16);
    source.read_all();
    assert!(request(&mut source, 0, 16, 16).is_some());
    assert!(request(&mut source, 0, 16, 16).is_none(), "it was sent");
    assert_eq!((source.reads[0].3, source.reads[0].4), (16, 16));
    assert_eq!(source.read_all().len(), 1);
    assert!(request(&mut source, 0, 32, 16).is_some());
}

#[test]
fn failed_block_fails_only_who_waits_for_it() {
    let mut source = source(&[256]);
    offered(&mut source);
    request(&mut source, 0, 0, 16);
    source.read_one();
    source.broken = Some(ReadError::Failed);
    assert!(source.read_all().is_empty(), "nobody waits for the second");
    source.broken = None;
    for offset in (16..256).step_by(16) {
        let chunk = request(&mut source, 0, offset, 16);
        assert_eq!(usize::from(chunk.is_some()) + source.read_all().len(), 1);
    }
    source.broken = Some(ReadError::Changed);
    request(&mut source, 0, 0, 16);
    let answers = source.read_all();
    assert_eq!(describe(&answers[0].1), "later");
}

#[test]
fn several_reads_for_digests_are_under_way() {
    let mut source = source(&[150, 100]);
    source.receive(PULLER, &ask(partition_group(), 1));
    let reads: Vec<(u64, u64, u32)> = source.reads.iter().map(|r| (r.2, r.3, r.4)).collect();
    assert_eq!(reads, [(0, 0, 64), (0, 64, 64), (0, 128, 22)]);
    // Whatever order they come in.
    source.reads.reverse();
    let offer = loop {
        if let Some((_, offer)) = source.read_one().pop() {
            break offer;
        }
        source.reads.rotate_left(1);
    };
    let manifest = Manifest::decode(offer.body()).expect("a manifest");
    for (index, salt) in [(0, 150), (1, 100)] {
        let digest = xxh3(&pattern(salt, index as u8));
        assert_eq!(manifest.get(index).expect("a segment").checksum, digest);
    }
}

#[test]
fn hashing_goes_on_after_a_request_was_told_to_come_back() {
    let mut source = source(&[1_000]);
    source.receive(PULLER, &ask(partition_group(), 1));
    let mut answers = Vec::new();
    while answers.is_empty() {
        answers = source.tick();
    }
    assert_eq!(describe(&answers[0].1), "later");
    assert!(source.read_all().is_empty());
    assert_eq!(source.bytes_read, 1_000, "nobody waits, but somebody will");
    let answers = source.receive(PULLER, &ask(partition_group(), 2));
    assert_eq!(describe(&answers[0].1), "offer 100");
}

#[test]
fn job_that_nobody_comes_back_for_ends() {
    let mut source = source(&[1_000]);
    source.receive(PULLER, &ask(partition_group(), 1));
    for _ in 0..200 {
        source.tick();
    }
    assert!(source.provider.groups_served().is_empty());
    source.read_all();
    assert_eq!(source.bytes_read, 192, "what was under way, and no more");
}

fn hash_ahead(source: &mut Source) {
    let artifacts = source.spec().artifacts;
    let mut out = Vec::new();
    source
        .provider
        .hash_ahead(partition_group(), &artifacts, &mut out);
    assert!(source.absorb(out).is_empty());
}

#[test]
fn digests_are_there_before_anybody_asks() {
    let mut source = source(&[300, 100]);
    hash_ahead(&mut source);
    assert_eq!(source.reads.len(), 3);
    assert!(source.provider.groups_served().is_empty(), "no place taken");
    source.read_all();
    assert!(!source.provider.is_hashing_ahead());
    assert_eq!(source.bytes_read, 400);
    hash_ahead(&mut source);
    assert!(source.reads.is_empty(), "all is known");
    let answers = source.receive(PULLER, &ask(partition_group(), 1));
    assert_eq!(describe(&answers[0].1), "offer 100");
}

#[test]
fn hashing_ahead_waits_while_the_node_is_busy_and_stops_when_told() {
    let mut source = source(&[300, 100]);
    hash_ahead(&mut source);
    source.load = Some(1 << 20);
    source.tick();
    source.read_all();
    assert_eq!(source.bytes_read, 192, "the reads that were under way");
    source.load = None;
    source.tick();
    assert_eq!(source.reads.len(), 3, "there is time again");
    source.provider.stop_hashing_ahead();
    source.read_all();
    source.tick();
    assert!(source.reads.is_empty() && !source.provider.is_hashing_ahead());
    assert_eq!(source.bytes_read, 364);
    // Whoever asks has what was done.
    source.serve(PULLER, &ask(partition_group(), 1));
    assert_eq!(source.bytes_read, 400);
}

#[test]
fn peer_that_asks_takes_over_what_is_hashed_ahead() {
    let mut source = source(&[300]);
    hash_ahead(&mut source);
    source.receive(PULLER, &ask(partition_group(), 1));
    assert!(!source.provider.is_hashing_ahead());
    assert_eq!(source.reads.len(), 3);
    let answers = source.read_all();
    assert_eq!(describe(&answers[0].1), "offer 100");
    assert_eq!(source.bytes_read, 300);
}
