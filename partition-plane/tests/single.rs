//! One replica: send, poll, offsets, files, restart.

mod support;

use biplane_journal::{Disk, DiskPath, Fate, MemoryDisk, Unsynced, UnsyncedKind};
use biplane_partition_plane::{
    ConsumerKey, GroupSpec, Input, Limits, Strategy, TopicOptions, batch, poll,
};
use support::*;

fn texts(from: u64, count: u64) -> Vec<Vec<u8>> {
    (from..from + count)
        .map(|i| format!("message {i}").into_bytes())
        .collect()
}

fn open() -> Single {
    let mut single = Single::new(Limits::tiny());
    single.open(spec(TopicOptions::default()));
    single
}

#[test]
fn sends_are_confirmed_with_their_offsets_and_polled_by_every_strategy() {
    let mut single = open();
    for (request, from) in [(1, 0), (2, 3), (3, 6)] {
        let answer = single.send(0x77, request, &texts(from, 3));
        assert_eq!(answer.base_offset(), Some(from), "{answer:?}");
    }
    let mut offsets = |strategy, count| -> Vec<u64> {
        let reply = single.poll(poll_query(strategy, count));
        messages(&reply).iter().map(|(offset, _)| *offset).collect()
    };
    assert_eq!(offsets(Strategy::First, 100), (0..9).collect::<Vec<_>>());
    assert_eq!(offsets(Strategy::Offset(4), 3), [4, 5, 6]);
    assert_eq!(offsets(Strategy::Last, 2), [7, 8]);
    assert_eq!(offsets(Strategy::Next, 1), [0]);
    assert_eq!(offsets(Strategy::Offset(9), 3), Vec::<u64>::new());
    assert_eq!(offsets(Strategy::Timestamp(0), 2), [0, 1]);
    assert_eq!(offsets(Strategy::Timestamp(u64::MAX), 2), Vec::<u64>::new());
}

#[test]
fn files_hold_the_stamped_batches_back_to_back() {
    let mut single = open();
    single.send(0x77, 1, &texts(0, 2));
    single.send(0x77, 2, &texts(2, 1));
    let log = single.file("00000000000000000000.log").unwrap();
    let first = batch::verify_first(&log).unwrap();
    let second = batch::verify(&log[first.length as usize..]).unwrap();
    assert_eq!(
        (first.partition_id, first.base_offset, first.count),
        (3, 0, 2)
    );
    assert_eq!((second.base_offset, second.count), (2, 1));
    assert!(second.base_timestamp > first.base_timestamp);
    let index = single.file("00000000000000000000.index").unwrap();
    assert_eq!(index.len(), 48);
    assert_eq!(index[40..48], first.length.to_le_bytes());
}

#[test]
fn acknowledged_messages_and_positions_survive_a_kill() {
    let mut single = open();
    for request in 1..=20 {
        assert_eq!(single.send(0x77, request, &texts(request, 1)).status(), 0);
    }
    let key = ConsumerKey::Consumer(9);
    assert_eq!(single.submit(store_request(0x77, 21, key, 12)).status(), 0);
    assert_eq!(
        single
            .submit(store_request(0x77, 22, ConsumerKey::Group(4), 3))
            .status(),
        0
    );
    assert_eq!(
        single
            .submit(delete_request(0x77, 23, ConsumerKey::Group(4)))
            .status(),
        0
    );
    single.crash(Limits::tiny());
    single.open(spec(TopicOptions::default()));
    let reply = single.poll(poll_query(Strategy::First, 100));
    assert_eq!(messages(&reply).len(), 20);
    assert_eq!(single.stored(key).unwrap()[12..], 12u64.to_le_bytes());
    assert_eq!(single.stored(ConsumerKey::Group(4)), None);
    assert_eq!(single.send(0x78, 1, &texts(20, 2)).base_offset(), Some(20));
    let stats = single.plane.stats(group()).unwrap();
    assert_eq!(
        (
            stats.messages_count,
            stats.current_offset,
            stats.segments_count
        ),
        (22, 21, 1)
    );
}

#[test]
fn segments_roll_and_old_messages_are_read_from_disk() {
    let options = TopicOptions {
        segment_size: 2000,
        ..TopicOptions::default()
    };
    let limits = Limits {
        poll_bytes_max: 1 << 20,
        ..Limits::tiny()
    };
    let mut single = Single::new(limits.clone());
    single.open(spec(options.clone()));
    for request in 1..=60 {
        let payload = vec![vec![request as u8; 200]];
        assert_eq!(
            single.send(0x77, request, &payload).base_offset(),
            Some(request - 1)
        );
    }
    let stats = single.plane.stats(group()).unwrap();
    assert!(stats.segments_count > 10, "{stats:?}");
    for round in 0..2 {
        for from in 0..60 {
            for count in [1, 7, 100] {
                let reply = single.poll(poll_query(Strategy::Offset(from), count));
                let got = messages(&reply);
                let want = u64::from(count).min(60 - from) as usize;
                assert_eq!(got.len(), want, "round {round} from {from} count {count}");
                for (i, (offset, payload)) in got.iter().enumerate() {
                    assert_eq!(*offset, from + i as u64);
                    assert_eq!(payload[0] as u64, offset + 1);
                }
            }
        }
        single.crash(limits.clone());
        single.open(spec(options.clone()));
    }
}

#[test]
fn a_poll_by_time_finds_its_batch_in_memory_and_on_disk() {
    let options = TopicOptions {
        segment_size: 1000,
        ..TopicOptions::default()
    };
    let mut single = Single::new(Limits::tiny());
    single.open(spec(options.clone()));
    let mut times = Vec::new();
    for request in 1..=40 {
        single.tick(1);
        single.send(0x77, request, &texts(request, 1));
        times.push(WALL + single.ticks * 10_000);
    }
    for round in 0..2 {
        for (offset, time) in times.iter().enumerate() {
            let reply = single.poll(poll_query(Strategy::Timestamp(*time), 3));
            assert_eq!(messages(&reply)[0].0, offset as u64, "round {round}");
            let reply = single.poll(poll_query(Strategy::Timestamp(time + 1), 3));
            let next = messages(&reply).first().map(|first| first.0);
            assert_eq!(next, (offset < 39).then_some(offset as u64 + 1));
        }
        single.crash(Limits::tiny());
        single.open(spec(options.clone()));
    }
}

#[test]
fn auto_commit_moves_the_next_poll_and_is_stored() {
    let mut single = open();
    single.send(0x77, 1, &texts(0, 10));
    let mut query = poll_query(Strategy::Next, 4);
    query.auto_commit = true;
    query.key = ConsumerKey::Group(5);
    for want in [0..4, 4..8, 8..10, 10..10] {
        let got: Vec<u64> = messages(&single.poll(query)).iter().map(|m| m.0).collect();
        assert_eq!(got, want.collect::<Vec<_>>());
    }
    assert!(single.plane.drained(group(), 5));
    single.tick(2);
    assert_eq!(
        single.file("offsets/groups/5").unwrap()[..8],
        9u64.to_le_bytes()
    );
    single.crash(Limits::tiny());
    single.open(spec(TopicOptions::default()));
    assert!(messages(&single.poll(query)).is_empty());
}

#[test]
fn an_empty_partition_answers_polls_and_refuses_positions() {
    let mut single = open();
    let reply = single.poll(poll_query(Strategy::First, 10));
    assert_eq!(
        biplane_partition_plane::concat_parts(&reply.body),
        poll::prefix(3, 0, 0)
    );
    let key = ConsumerKey::Consumer(1);
    assert_eq!(single.submit(store_request(0x77, 1, key, 0)).status(), 4100);
    assert_eq!(single.submit(delete_request(0x77, 2, key)).status(), 3021);
    single.send(0x77, 3, &texts(0, 1));
    assert_eq!(single.submit(store_request(0x77, 4, key, 1)).status(), 4100);
    assert_eq!(single.submit(store_request(0x77, 5, key, 0)).status(), 0);
}

#[test]
fn a_request_sent_twice_is_executed_once() {
    let mut single = open();
    assert_eq!(single.send(0x77, 5, &texts(0, 2)).base_offset(), Some(0));
    let again = single.send(0x77, 5, &texts(0, 2));
    assert_eq!((again.status(), again.base_offset()), (0, None));
    assert_eq!(single.send(0x77, 4, &texts(2, 1)).base_offset(), Some(2));
    assert_eq!(single.send(0x78, 5, &texts(3, 1)).base_offset(), Some(3));
}

#[test]
fn keys_beyond_the_limit_are_refused_and_known_ones_stay_writable() {
    let mut single = open();
    single.send(0x77, 1, &texts(0, 5));
    for id in 0..4 {
        let request = store_request(0x77, 10 + u64::from(id), ConsumerKey::Consumer(id), 1);
        assert_eq!(single.submit(request).status(), 0);
    }
    let fifth = ConsumerKey::Consumer(4);
    assert_eq!(
        single.submit(store_request(0x77, 20, fifth, 1)).status(),
        3024
    );
    assert_eq!(
        single
            .submit(store_request(0x77, 21, ConsumerKey::Consumer(3), 2))
            .status(),
        0
    );
    assert_eq!(
        single
            .submit(store_request(0x77, 22, ConsumerKey::Group(4), 2))
            .status(),
        0
    );
    let mut query = poll_query(Strategy::First, 1);
    (query.auto_commit, query.key) = (true, fifth);
    assert_eq!(single.poll(query).status, 3024);
}

/// Power fails at any step of a flush, and of what was not synced only the newest segment got to
/// the disk: a lone replica has nobody to fill a hole between two of them from, so there must be
/// none.
#[test]
fn no_power_loss_leaves_a_hole_between_two_segments() {
    let options = TopicOptions {
        segment_size: 300,
        ..TopicOptions::default()
    };
    let mut cuts = 0;
    'cuts: for cut in 0.. {
        let mut single = Single::new(Limits::tiny());
        single.open(spec(options.clone()));
        for n in 0..8 {
            single.step(Input::Submit {
                token: n,
                group: group(),
                request: send_request(0x77, n + 1, &texts(n, 1)),
            });
        }
        for _ in 0..cut {
            let Some(done) = single.disk.poll() else {
                break 'cuts;
            };
            single.step(Input::Disk(done));
        }
        cuts += 1;
        let mut disk = std::mem::replace(&mut single.disk, MemoryDisk::new());
        // The request under way is carried out, too.
        disk.step();
        let folder = "streams/1/topics/2/partitions/3";
        let name = |base| DiskPath::new(&format!("{folder}/{base:020}.log")).expect("a path");
        let mut names = (0..8).rev().map(name);
        let newest = names.find(|name| disk.get(name).is_some_and(|bytes| !bytes.is_empty()));
        disk.crash(&mut |change: &Unsynced| {
            let is_lost =
                change.kind == UnsyncedKind::Data && Some(&change.path) != newest.as_ref();
            match is_lost {
                true => Fate::Lose,
                false => Fate::Keep,
            }
        });
        let mut again = Single::with_disk(Limits::tiny(), disk);
        again.open(GroupSpec {
            is_new: false,
            ..spec(options.clone())
        });
        assert!(again.fenced.is_empty(), "cut {cut}: {:?}", again.fenced);
        let next = again.send(0x78, 1, &texts(99, 1));
        assert!(next.base_offset().is_some(), "cut {cut}: {next:?}");
    }
    assert!(cuts > 12, "several steps: {cuts}");
}
