//! Partitions that nobody has written to: what they leave on the disk, that their promises
//! outlive crashes, and that they get files when they need them.

mod support;

use biplane_journal::{Disk, DiskPath, DiskView, MemoryDisk};
use biplane_partition_plane::{
    DurabilityPolicy, GroupSpec, Input, Limits, Output, PartitionPlane, Strategy, TopicOptions,
};
use biplane_wire::{GroupId, ReplicaId, View};
use support::world::World;
use support::*;

const LINES: &str = "streams/dormant.superblocks";
const FOLDER: &str = "streams/1/topics/2/partitions/3";

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).unwrap()
}

fn has_folder(disk: &MemoryDisk) -> bool {
    !disk.list(&path(FOLDER)).unwrap().is_empty()
}

fn world(seed: u64) -> World {
    World::new(3, Limits::tiny(), spec(TopicOptions::default()), seed)
}

fn view(world: &World, at: usize) -> View {
    world.status(at).unwrap().view
}

fn leads(world: &World) -> bool {
    world.primary().is_some()
        && (0..3).all(|at| {
            world
                .status(at)
                .is_none_or(|status| status.caught_up || !status.is_primary)
        })
}

#[test]
fn a_partition_that_nobody_writes_to_leaves_a_line() {
    let mut world = world(1);
    world.tick(300);
    assert_eq!(world.primary(), Some(0));
    for at in 0..3 {
        assert_eq!(view(&world, at), View(0), "nobody missed a heartbeat");
        assert!(!has_folder(&world.nodes[at].disk));
        assert!(world.nodes[at].disk.get(&path(LINES)).is_some());
        assert!(world.all_messages(at).is_empty());
    }
    for boots in 0..3 {
        (0..3).for_each(|at| world.crash(at, true));
        (0..3).for_each(|at| world.boot(at));
        assert!(world.run_until(400, leads), "{}", world.picture());
        world.tick(200);
        for at in 0..3 {
            assert!(view(&world, at) > View(boots), "{}", world.picture());
            assert!(!has_folder(&world.nodes[at].disk), "boot {boots}");
        }
    }
    assert_eq!(world.send(&[b"late".to_vec()]), 0);
    world.converge(100);
    for at in 0..3 {
        assert!(has_folder(&world.nodes[at].disk));
        assert_eq!(world.all_messages(at), [(0, b"late".to_vec())]);
    }
}

#[test]
fn what_was_promised_without_files_is_known_after_any_crash() {
    for seed in 1..=40 {
        let mut world = world(seed);
        world.loss = seed % 4 * 10;
        let mut spoken = [View(0); 3];
        for round in 0..6 {
            let at = world.random.below(3) as usize;
            let lose = world.random.chance(50);
            world.crash(at, lose);
            let count = world.random.below(200);
            world.tick(count);
            for (other, spoken) in spoken.iter_mut().enumerate() {
                if let Some(status) = world.status(other) {
                    *spoken = status.view.max(*spoken);
                }
            }
            world.boot(at);
            let count = world.random.below(200);
            world.tick(count);
            let now = view(&world, at);
            assert!(
                now >= spoken[at],
                "seed {seed} round {round}: {now:?} {spoken:?}"
            );
        }
        world.loss = 0;
        assert_eq!(world.send(&[b"first".to_vec()]), 0, "seed {seed}");
        world.converge(2000);
    }
}

/// Messages written before one of the nodes knew of the partition, and a restart of all of them:
/// the one that slept through it has nothing to say against the others' messages.
#[test]
fn a_sleeper_takes_nothing_from_those_who_were_awake() {
    for seed in 1..=20 {
        let mut world = world(seed);
        let sleeper = (seed % 3) as usize;
        world.crash(sleeper, true);
        for n in 0..5_u64 {
            assert_eq!(world.send(&[n.to_le_bytes().to_vec()]), n, "seed {seed}");
        }
        world.tick(50);
        assert!(!has_folder(&world.nodes[sleeper].disk));
        (0..3)
            .filter(|at| *at != sleeper)
            .for_each(|at| world.crash(at, false));
        (0..3).for_each(|at| world.boot(at));
        assert_eq!(
            world.send(&[5_u64.to_le_bytes().to_vec()]),
            5,
            "seed {seed}"
        );
        world.converge(3000);
        for at in 0..3 {
            let offsets: Vec<u64> = world.all_messages(at).iter().map(|found| found.0).collect();
            assert_eq!(offsets, [0, 1, 2, 3, 4, 5], "seed {seed} node {at}");
        }
    }
}

/// After a restart of all nodes nobody looks at the peers of a partition without files, until
/// somebody writes to it. The first message waits for that look, and not for long.
#[test]
fn the_first_message_after_a_restart_of_all_is_taken_at_once() {
    for seed in 1..=20 {
        let mut world = world(seed);
        world.tick(20);
        (0..3).for_each(|at| world.crash(at, true));
        (0..3).for_each(|at| world.boot(at));
        assert!(world.run_until(400, leads), "{}", world.picture());
        world.tick(seed * 10);
        let at = world.primary().unwrap();
        let token = world.submit(at, send_request(0x99, 1, &[b"first".to_vec()]));
        let answered = world.run_until(15, |world| world.answers.contains_key(&token));
        assert!(answered, "seed {seed}: {}", world.picture());
        assert_eq!(world.answers[&token].status(), 0, "seed {seed}");
        world.converge(100);
    }
}

/// One node alone has messages, the others not even files: all of them get them, whether somebody
/// writes right after the restart or nobody does, and nothing is minted over them.
#[test]
fn what_one_node_has_is_found_by_those_who_look_later() {
    for (holder, writes) in [0, 1, 2]
        .into_iter()
        .flat_map(|at| [(at, false), (at, true)])
    {
        let mut world = world(7);
        world.tick(20);
        let empty: Vec<MemoryDisk> = world.nodes.iter().map(|node| node.disk.clone()).collect();
        for n in 0..3_u64 {
            assert_eq!(world.send(&[n.to_le_bytes().to_vec()]), n);
        }
        world.converge(200);
        (0..3).for_each(|at| world.crash(at, false));
        for (at, disk) in empty.into_iter().enumerate() {
            if at != holder {
                world.nodes[at].disk = disk;
            }
        }
        (0..3).for_each(|at| world.boot(at));
        let mut expected = vec![0, 1, 2];
        if writes {
            let next = world.send(&[3_u64.to_le_bytes().to_vec()]);
            assert_eq!(next, 3, "node {holder} had three");
            expected.push(3);
        }
        world.tick(1_500);
        for at in 0..3 {
            let offsets: Vec<u64> = world.all_messages(at).iter().map(|found| found.0).collect();
            assert_eq!(offsets, expected, "node {holder} had them, node {at}");
        }
    }
}

/// The first message, with the process killed and everything unsynced lost after each answer of
/// the disk in turn.
#[test]
fn files_come_to_be_whole_wherever_the_first_write_is_cut_short() {
    let mut cuts = 0;
    for cut in 0.. {
        let mut single = Single::new(Limits::tiny());
        single.open(spec(TopicOptions::default()));
        single.step(Input::Submit {
            token: 1,
            group: group(),
            request: send_request(0x77, 1, &[b"first".to_vec()]),
        });
        let mut was_cut = false;
        for answered in 0.. {
            if answered == cut {
                was_cut = true;
                break;
            }
            let Some(done) = single.disk.poll() else {
                break;
            };
            single.step(Input::Disk(done));
        }
        if !was_cut {
            break;
        }
        cuts += 1;
        let answered = single
            .answers
            .iter()
            .any(|(_, answer)| answer.status() == 0);
        let mut disk = std::mem::replace(&mut single.disk, MemoryDisk::new());
        disk.crash_losing_all();
        let mut again = Single::with_disk(Limits::tiny(), disk);
        again.open(GroupSpec {
            is_new: false,
            ..spec(TopicOptions::default())
        });
        assert!(again.fenced.is_empty(), "cut {cut}: {:?}", again.fenced);
        let found = messages(&again.poll(poll_query(Strategy::First, 10))).len() as u64;
        // A policy that keeps messages in memory promises nothing about a loss of power.
        assert!(
            found <= 1 && (found == 1 || !answered || cut > 0),
            "cut {cut}"
        );
        let next = again.send(0x78, 1, &[b"second".to_vec()]);
        assert_eq!(next.base_offset(), Some(found), "cut {cut}");
        assert!(has_folder(&again.disk));
    }
    assert!(cuts > 8, "the files are several steps: {cuts}");
}

#[test]
fn a_file_that_cannot_be_believed_keeps_its_partitions_shut() {
    let mut single = Single::new(Limits::tiny());
    single.open(spec(TopicOptions::default()));
    single.disk.flip(&path(LINES), 50, 1);
    let before = single.disk.get(&path(LINES)).unwrap();
    single.crash(Limits::tiny());
    single.open(GroupSpec {
        is_new: false,
        ..spec(TopicOptions::default())
    });
    assert!(single.fenced[0].contains("damaged"), "{:?}", single.fenced);
    assert_eq!(single.send(0x77, 1, &[b"no".to_vec()]).status(), 58);
    assert!(single.plane.status(group()).is_none());
    // What is created from now on has files from the start.
    let other = GroupSpec {
        group: GroupId::partition(1, 2, 4).unwrap(),
        created_revision: 8,
        ..spec(TopicOptions::default())
    };
    let created = other.group;
    single.open(other);
    assert!(single.plane.status(created).is_some());
    let folder = single.disk.list(&path("streams/1/topics/2/partitions/4"));
    assert!(!folder.unwrap().is_empty());
    assert_eq!(
        single.disk.get(&path(LINES)).unwrap(),
        before,
        "it stays as it was found"
    );
}

#[test]
fn a_line_of_an_earlier_partition_says_nothing_about_the_next() {
    let mut single = Single::new(Limits::tiny());
    single.open(spec(TopicOptions::default()));
    single.step(Input::CloseGroup { group: group() });
    single.settle();
    single.tick(5);
    assert!(single.plane.status(group()).is_none());
    assert!(!has_folder(&single.disk));
    single.open(GroupSpec {
        created_revision: 9,
        created_view: View(4),
        ..spec(TopicOptions::default())
    });
    assert_eq!(single.plane.status(group()).unwrap().view, View(4));
    single.crash(Limits::tiny());
    single.open(GroupSpec {
        created_revision: 9,
        created_view: View(4),
        is_new: false,
        ..spec(TopicOptions::default())
    });
    assert_eq!(single.plane.status(group()).unwrap().view, View(4));
    assert_eq!(
        single.send(0x77, 1, &[b"new".to_vec()]).base_offset(),
        Some(0)
    );
}

#[test]
fn a_policy_that_needs_files_takes_over_what_was_promised() {
    let mut world = world(5);
    (0..3).for_each(|at| world.crash(at, true));
    (0..3).for_each(|at| world.boot(at));
    assert!(world.run_until(400, leads));
    world.tick(50);
    let promised: Vec<View> = (0..3).map(|at| view(&world, at)).collect();
    (0..3).for_each(|at| world.crash(at, true));
    world.spec.options.durability = DurabilityPolicy::Persisted;
    (0..3).for_each(|at| world.boot(at));
    assert!(world.run_until(400, leads), "{}", world.picture());
    for (at, promised) in promised.iter().enumerate() {
        assert!(view(&world, at) > *promised);
        assert!(has_folder(&world.nodes[at].disk));
    }
    assert_eq!(world.send(&[b"kept".to_vec()]), 0);
}

/// A node's plane with many groups: how many requests the disk gets.
#[test]
fn a_thousand_partitions_share_their_writes() {
    const GROUPS: u32 = 1000;
    let specs = |is_new| {
        (0..GROUPS).map(move |partition| GroupSpec {
            group: GroupId::partition(1, 2, partition).unwrap(),
            is_new,
            ..spec(TopicOptions::default())
        })
    };
    let mut disk = MemoryDisk::new();
    let mut requests = 0;
    let mut out = Vec::new();
    let mut plane = PartitionPlane::new(config(0, 3, Limits::tiny(), 1));
    let mut carry = |plane: &mut PartitionPlane, disk: &mut MemoryDisk, out: &mut Vec<Output>| {
        loop {
            for output in std::mem::take(out) {
                if let Output::Disk(request) = output {
                    requests += 1;
                    disk.submit(request);
                }
            }
            let Some(done) = disk.poll() else {
                return std::mem::take(&mut requests);
            };
            plane.step(Input::Disk(done), out);
        }
    };
    for spec in specs(true) {
        plane.open_group(spec, &disk, &mut out);
    }
    let created = carry(&mut plane, &mut disk, &mut out);
    assert!(created <= 6, "{created} requests");
    assert_eq!(plane.groups().count(), GROUPS as usize);

    disk.crash_losing_all();
    let mut plane = PartitionPlane::new(config(0, 3, Limits::tiny(), 2));
    for spec in specs(false) {
        plane.open_group(spec, &disk, &mut out);
    }
    assert_eq!(plane.groups().count(), GROUPS as usize, "at once");
    let opened = carry(&mut plane, &mut disk, &mut out);
    assert_eq!(opened, 0, "a start only reads");
    for replica in [1, 2].map(ReplicaId) {
        let connected = true;
        plane.step(Input::Peer { replica, connected }, &mut out);
    }
    // Nobody answers: all of them elect.
    for tick in 1..=200 {
        let wall_micros = WALL + tick * 10_000;
        plane.step(Input::Tick { wall_micros }, &mut out);
    }
    let elected = carry(&mut plane, &mut disk, &mut out);
    assert!((1..=200).contains(&elected), "{elected} requests");
    let first = plane.groups().next().unwrap();
    assert!(plane.status(first).unwrap().view > View(0));
}

/// What a driver compares with metadata must have the groups that are still being opened: one that
/// is missed there is never closed.
#[test]
fn a_group_that_is_being_opened_can_be_found_and_closed() {
    let persisted = TopicOptions {
        durability: DurabilityPolicy::Persisted,
        ..TopicOptions::default()
    };
    for options in [TopicOptions::default(), persisted] {
        let (mut disk, mut out) = (MemoryDisk::new(), Vec::new());
        let mut plane = PartitionPlane::new(config(0, 3, Limits::tiny(), 1));
        plane.open_group(spec(options), &disk, &mut out);
        assert_eq!(plane.groups().count(), 0, "the disk has not answered");
        assert_eq!(plane.opened_groups().collect::<Vec<_>>(), [group()]);
        let group = group();
        plane.step(Input::CloseGroup { group }, &mut out);
        assert_eq!(plane.opened_groups().count(), 0);
        loop {
            for output in std::mem::take(&mut out) {
                if let Output::Disk(request) = output {
                    disk.submit(request);
                }
            }
            let Some(done) = disk.poll() else { break };
            plane.step(Input::Disk(done), &mut out);
        }
        assert_eq!(
            (plane.groups().count(), plane.opened_groups().count()),
            (0, 0)
        );
        assert!(!has_folder(&disk));
    }
}
