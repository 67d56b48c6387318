//! Retention, deletion of segments, purge, deletion and re-creation of a partition.

mod support;

use biplane_journal::DiskPath;
use biplane_partition_plane::{
    ConsumerKey, DurabilityPolicy, GroupSpec, Input, Limits, SealedEnd, Strategy, TopicOptions,
};
use support::world::World;
use support::*;

fn text(n: u64) -> Vec<u8> {
    format!("message {n}").into_bytes()
}

fn small_segments() -> TopicOptions {
    TopicOptions {
        segment_size: 1000,
        ..TopicOptions::default()
    }
}

fn filled(options: TopicOptions) -> Single {
    let mut single = Single::new(Limits::tiny());
    single.open(spec(options));
    for request in 1..=40 {
        single.send(0x77, request, &[text(request - 1)]);
    }
    single
}

fn first_offset(single: &mut Single) -> Option<u64> {
    messages(&single.poll(poll_query(Strategy::First, 1)))
        .first()
        .map(|first| first.0)
}

fn names(single: &Single) -> Vec<String> {
    use biplane_journal::DiskView;
    let dir = DiskPath::new("streams/1/topics/2/partitions/3").unwrap();
    single
        .disk
        .list(&dir)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

#[test]
fn deleted_segments_go_on_every_pass_until_done_and_respect_positions() {
    let mut single = filled(small_segments());
    let SealedEnd::UpTo(end) = single.plane.sealed_end(group(), 5) else {
        panic!("sealed")
    };
    let key = ConsumerKey::Consumer(1);
    single.submit(store_request(0x77, 100, key, end - 1));
    let spec = GroupSpec {
        deleted_up_to: end,
        ..spec(small_segments())
    };
    single.step(Input::UpdateGroup(spec));
    single.tick(120);
    let held = first_offset(&mut single).unwrap();
    assert!(
        held > 0 && held < end,
        "the position holds the last of them: {held} of {end}"
    );
    single.submit(store_request(0x77, 101, key, end));
    single.tick(120);
    assert_eq!(first_offset(&mut single), Some(end + 1));
    let left = names(&single)
        .iter()
        .filter(|name| name.ends_with(".log"))
        .count();
    let stats = single.plane.stats(group()).unwrap();
    assert_eq!(left as u32, stats.segments_count);
    assert_eq!(stats.messages_count, 39 - end);
    single.crash(Limits::tiny());
    single.open(GroupSpec {
        deleted_up_to: end,
        ..support::spec(small_segments())
    });
    assert_eq!(first_offset(&mut single), Some(end + 1));
    assert_eq!(single.send(0x78, 1, &[text(40)]).base_offset(), Some(40));
}

#[test]
fn old_messages_expire_by_age_and_by_size() {
    let age = TopicOptions {
        message_expiry: 1_000_000,
        ..small_segments()
    };
    let mut single = filled(age);
    single.tick(30);
    assert_eq!(first_offset(&mut single), Some(0));
    single.tick(500);
    let first = first_offset(&mut single);
    assert!(
        first.is_none_or(|first| first >= 36),
        "only the active segment is left: {first:?}"
    );
    let limits = Limits {
        message_bytes_max: 500,
        ..Limits::tiny()
    };
    let size = TopicOptions {
        max_topic_size: 3000,
        ..small_segments()
    };
    let mut single = Single::new(limits);
    single.open(spec(size));
    for request in 1..=40 {
        single.send(0x77, request, &[text(request - 1)]);
    }
    single.tick(1000);
    let stats = single.plane.stats(group()).unwrap();
    assert!(stats.size_bytes <= 3000 + 1300, "{stats:?}");
    assert!(first_offset(&mut single).unwrap() > 20);
}

#[test]
fn purge_empties_the_partition_and_starts_over() {
    for options in [small_segments(), TopicOptions::default()] {
        let mut single = filled(options.clone());
        let key = ConsumerKey::Group(2);
        single.submit(store_request(0x77, 100, key, 3));
        let purged = GroupSpec {
            purge_generation: 1,
            ..spec(options.clone())
        };
        single.step(Input::UpdateGroup(purged.clone()));
        single.tick(10);
        assert_eq!(single.plane.status(group()).unwrap().purge_generation, 1);
        assert_eq!(first_offset(&mut single), None);
        assert_eq!(single.stored(key), None);
        assert_eq!(single.plane.stats(group()).unwrap().messages_count, 0);
        let mut record = 1u64.to_le_bytes().to_vec();
        record.extend(7u64.to_le_bytes());
        assert_eq!(single.file("purge.gen").unwrap(), record);
        assert_eq!(single.file("offsets/groups/2"), None);
        for request in 101..=105 {
            let answer = single.send(0x77, request, &[text(request)]);
            assert_eq!(answer.base_offset(), Some(request - 101));
        }
        single.crash(Limits::tiny());
        single.open(purged);
        assert_eq!(
            messages(&single.poll(poll_query(Strategy::First, 9))).len(),
            5
        );
    }
}

#[test]
fn purge_committed_while_the_node_was_down_is_applied_before_it_serves() {
    let mut single = filled(small_segments());
    single.crash(Limits::tiny());
    single.open(GroupSpec {
        purge_generation: 3,
        ..spec(small_segments())
    });
    single.tick(20);
    assert_eq!(first_offset(&mut single), None);
    assert_eq!(single.send(0x78, 1, &[text(0)]).base_offset(), Some(0));
}

#[test]
fn interrupted_purge_is_repeated() {
    let purged = GroupSpec {
        purge_generation: 1,
        ..spec(small_segments())
    };
    for steps in 0.. {
        let mut single = filled(small_segments());
        single.disk.halt_after(single.disk.steps_done() + steps);
        single.step(Input::UpdateGroup(purged.clone()));
        single.tick(10);
        let done = single.plane.status(group()).unwrap().purge_generation == 1;
        single.crash(Limits::tiny());
        single.open(purged.clone());
        assert!(
            single.fenced.is_empty(),
            "after {steps} steps: {:?}",
            single.fenced
        );
        single.tick(20);
        assert_eq!(first_offset(&mut single), None, "after {steps} steps");
        assert_eq!(single.send(0x78, 1, &[text(0)]).base_offset(), Some(0));
        if done {
            assert!(steps > 20);
            return;
        }
    }
}

#[test]
fn closed_partition_is_removed_and_a_new_incarnation_starts_empty() {
    let mut single = filled(small_segments());
    single.step(Input::CloseGroup { group: group() });
    let token = 900;
    single.step(Input::Submit {
        token,
        group: group(),
        request: send_request(1, 1, &[text(0)]),
    });
    single.settle();
    assert!(names(&single).is_empty());
    single.tick(50);
    let at = single
        .answers
        .iter()
        .position(|(answered, _)| *answered == token)
        .unwrap();
    assert_eq!(single.answers.remove(at).1.status(), 58);
    let next = GroupSpec {
        created_revision: 8,
        ..spec(small_segments())
    };
    single.open(next);
    assert_eq!(first_offset(&mut single), None);
    assert_eq!(single.send(0x77, 1, &[text(0)]).base_offset(), Some(0));
}

#[test]
fn files_of_an_earlier_incarnation_are_not_inherited() {
    let mut single = filled(small_segments());
    single.open(GroupSpec {
        created_revision: 8,
        ..spec(small_segments())
    });
    assert_eq!(first_offset(&mut single), None);
    single.send(0x77, 1, &[text(0)]);
    single.crash(Limits::tiny());
    single.open(GroupSpec {
        created_revision: 9,
        ..spec(small_segments())
    });
    assert_eq!(first_offset(&mut single), None);
}

#[test]
fn request_before_its_partition_waits_for_it() {
    let mut single = Single::new(Limits::tiny());
    let token = 900;
    single.step(Input::Submit {
        token,
        group: group(),
        request: send_request(1, 1, &[text(0)]),
    });
    single.open(spec(TopicOptions::default()));
    single.tick(1);
    let at = single
        .answers
        .iter()
        .position(|(answered, _)| *answered == token)
        .unwrap();
    assert_eq!(single.answers.remove(at).1.base_offset(), Some(0));
}

fn purge_cluster(options: TopicOptions, stagger: [u64; 3]) {
    let mut world = World::new(3, Limits::tiny(), spec(options.clone()), 1);
    for n in 0..20 {
        world.send(&[text(n)]);
    }
    let purged = GroupSpec {
        purge_generation: 1,
        ..world.spec.clone()
    };
    world.spec = purged.clone();
    let mut order: Vec<usize> = (0..3).collect();
    order.sort_by_key(|at| stagger[*at]);
    let mut now = 0;
    let mut request = 1000;
    for at in order {
        while now < stagger[at] {
            // Clients do not stop for a purge.
            request += 1;
            if let Some(primary) = world.primary() {
                world.submit(primary, send_request(0x55, request, &[text(request)]));
            }
            world.tick(1);
            now += 1;
        }
        world.step(at, Input::UpdateGroup(purged.clone()));
    }
    assert!(
        world.run_until(3000, |world| (0..3).all(|at| world
            .status(at)
            .is_some_and(|status| status.purge_generation == 1))),
        "{}",
        world.picture()
    );
    for n in 0..5 {
        world.send(&[text(n)]);
    }
    world.converge(3000);
    let all = world.all_messages(0);
    assert!(!all.is_empty() && all[0].0 == 0);
    for at in 1..3 {
        assert_eq!(world.all_messages(at), all);
    }
    let kept = all
        .iter()
        .filter(|(_, payload)| *payload == text(4))
        .count();
    assert_eq!(kept, 1, "what was confirmed after the purge is kept");
}

#[test]
fn purge_of_a_busy_partition_converges_in_whatever_order_replicas_learn_of_it() {
    let persisted = TopicOptions {
        durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    for options in [TopicOptions::default(), persisted] {
        for stagger in [
            [0, 0, 0],
            [0, 3, 9],
            [9, 3, 0],
            [3, 0, 9],
            [0, 30, 60],
            [60, 30, 0],
        ] {
            println!("{:?} {stagger:?}", options.durability);
            purge_cluster(options.clone(), stagger);
        }
    }
}

#[test]
fn promises_survive_a_crash_while_a_damaged_folder_is_set_aside() {
    let options = TopicOptions {
        durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    let log = DiskPath::new("streams/1/topics/2/partitions/3/00000000000000000000.log").unwrap();
    for steps in 0..60 {
        let mut world = World::new(3, Limits::tiny(), spec(options.clone()), 1);
        world.send(&[text(0)]);
        world.converge(50);
        let first = world.primary().unwrap();
        world.crash(first, false);
        world.send(&[text(1)]);
        let backup = (0..3).find(|at| *at != first && Some(*at) != world.primary());
        let backup = backup.unwrap();
        world.boot(first);
        world.converge(600);
        let view = world.status(backup).unwrap().view;
        assert!(view.0 > 0);
        world.crash(backup, false);
        let index = DiskPath::new(&log.as_str().replace(".log", ".index")).unwrap();
        world.nodes[backup].disk.put(&index, &[]);
        assert!(world.nodes[backup].disk.flip(&log, 300, 1));
        let done = world.nodes[backup].disk.steps_done();
        world.nodes[backup].disk.halt_after(done + steps);
        world.boot(backup);
        world.tick(3);
        world.crash(backup, steps % 2 == 0);
        world.boot(backup);
        world.settle();
        if let Some(status) = world.status(backup) {
            assert!(
                status.view >= view,
                "after {steps} steps: {:?} forgotten",
                view
            );
        }
        world.converge(3000);
        assert_eq!(world.all_messages(backup).len(), 2, "after {steps} steps");
    }
}
