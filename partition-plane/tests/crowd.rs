//! Thousands of groups that must elect at the same time, on nodes that can carry out only so much
//! in a tick: all elections end, in the first view after the one that was lost, and votes are
//! hardly ever said twice.

mod support;

use std::collections::{BTreeMap, VecDeque};

use biplane_journal::{Disk, MemoryDisk};
use biplane_partition_plane::{
    Config, GroupSpec, Input, Limits, Output, PartitionPlane, TopicOptions,
};
use biplane_wire::{Command, GroupId, Message, ReplicaId, View, decode_replica};
use support::{WALL, send_request_to, spec};

const GROUPS: u32 = 3_000;
/// Frames that a node serves in a tick: a third of the groups' first questions take so long that
/// everything would be said again if all began at once.
const FRAMES_PER_TICK: usize = 90;

struct Node {
    plane: PartitionPlane,
    disk: MemoryDisk,
    inbox: VecDeque<(ReplicaId, Message)>,
}

/// Three nodes, some of which may be away.
struct Crowd {
    nodes: [Option<Node>; 3],
    ticks: u64,
    /// Frames that were sent, and those of view changes among them.
    frames: u64,
    votes: u64,
    /// Questions what a peer has.
    looks: u64,
    /// Answers to clients by token.
    replies: BTreeMap<u64, u32>,
}

fn specs(is_new: bool) -> impl Iterator<Item = GroupSpec> {
    (0..GROUPS).map(move |partition| GroupSpec {
        group: GroupId::partition(1, 2, partition).unwrap(),
        is_new,
        ..spec(TopicOptions::default())
    })
}

/// Whoever has messages shows them to all who look; only the transfers to a node stand in line.
fn config(replica: u8) -> Config {
    let limits = Limits {
        transfers_served_max: GROUPS as usize,
        ..Limits::default()
    };
    Config {
        timers: biplane_vsr::Timers::default().sparing(),
        view_probe_attempts_max: 5,
        ..support::config(replica, 3, limits, u64::from(replica))
    }
}

impl Crowd {
    fn new() -> Self {
        let mut crowd = Self {
            nodes: [None, None, None],
            ticks: 0,
            frames: 0,
            votes: 0,
            looks: 0,
            replies: BTreeMap::new(),
        };
        for at in 0..3 {
            crowd.boot(at, MemoryDisk::new(), true);
        }
        crowd
    }

    fn boot(&mut self, at: u8, disk: MemoryDisk, is_new: bool) {
        let mut node = Node {
            plane: PartitionPlane::new(config(at)),
            disk,
            inbox: VecDeque::new(),
        };
        let mut out = Vec::new();
        for spec in specs(is_new) {
            node.plane.open_group(spec, &node.disk, &mut out);
        }
        self.nodes[usize::from(at)] = Some(node);
        self.carry(at, out);
    }

    fn kill(&mut self, at: u8) -> MemoryDisk {
        let node = self.nodes[usize::from(at)].take().expect("it runs");
        for other in (0..3).filter(|other| *other != at) {
            let (replica, connected) = (ReplicaId(at), false);
            self.step(other, Input::Peer { replica, connected });
        }
        node.disk
    }

    fn step(&mut self, at: u8, input: Input) {
        let Some(node) = &mut self.nodes[usize::from(at)] else {
            return;
        };
        let mut out = Vec::new();
        node.plane.step(input, &mut out);
        self.carry(at, out);
    }

    fn carry(&mut self, at: u8, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Disk(request) => {
                    let node = self.nodes[usize::from(at)].as_mut().expect("it runs");
                    node.disk.submit(request);
                }
                Output::Send { to, message } => {
                    self.frames += 1;
                    self.votes += u64::from(matches!(
                        message.command(),
                        Command::RequestStartView
                            | Command::StartViewChange
                            | Command::DoViewChange
                            | Command::StartView
                    ));
                    self.looks += u64::from(message.command() == Command::RequestStateTransfer);
                    if let Some(node) = &mut self.nodes[usize::from(to.0)] {
                        node.inbox.push_back((ReplicaId(at), message));
                    }
                }
                Output::Reply { token, status, .. } => {
                    self.replies.insert(token, status);
                }
                _ => {}
            }
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let wall_micros = WALL + self.ticks * 10_000;
        for at in 0..3 {
            self.step(at, Input::Tick { wall_micros });
            for _ in 0..FRAMES_PER_TICK {
                let node = self.nodes[usize::from(at)].as_mut();
                let Some((from, message)) = node.and_then(|node| node.inbox.pop_front()) else {
                    break;
                };
                let frame = decode_replica(message).expect("our own frame");
                self.step(at, Input::Frame { from, frame });
            }
            // The disk answers at the end of the tick, whatever was asked.
            while let Some(done) = self.nodes[usize::from(at)]
                .as_mut()
                .and_then(|node| node.disk.poll())
            {
                self.step(at, Input::Disk(done));
            }
        }
    }

    /// Ticks until every group has a primary that all who run follow; the highest view.
    fn settle(&mut self, most: u64) -> (u64, View) {
        let start = self.ticks;
        loop {
            assert!(self.ticks - start < most, "{}", self.picture());
            self.tick();
            if let Some(view) = self.settled() {
                return (self.ticks - start, view);
            }
        }
    }

    /// The highest view, when every group has a primary that all who run follow.
    fn settled(&self) -> Option<View> {
        let mut highest = View(0);
        for spec in specs(false) {
            let mut views = Vec::new();
            let mut leads = false;
            for node in self.nodes.iter().flatten() {
                let replica = node.plane.replica(spec.group)?;
                if !replica.is_normal() {
                    return None;
                }
                leads |= replica.is_primary();
                views.push(replica.view());
            }
            if !leads || views.iter().any(|view| *view != views[0]) {
                return None;
            }
            highest = highest.max(views[0]);
        }
        Some(highest)
    }

    fn picture(&self) -> String {
        let normal = |node: &Node| {
            let replicas = specs(false).filter_map(|spec| node.plane.replica(spec.group));
            replicas.filter(|replica| replica.is_normal()).count()
        };
        let counts: Vec<usize> = self.nodes.iter().flatten().map(normal).collect();
        format!(
            "{counts:?} of {GROUPS} groups normal after {} ticks, {} votes",
            self.ticks, self.votes
        )
    }
}

/// Frames of an election of three: each asks two, says to two that it changes the view, and votes
/// before two; one announces the view to two.
const FRAMES_OF_RESTART: u64 = 3 * 2 + 3 * 2 + 3 * 2 + 2;

#[test]
fn a_restart_of_all_nodes_elects_each_group_once() {
    let mut crowd = Crowd::new();
    crowd.settle(10);
    let disks: Vec<MemoryDisk> = (0..3).map(|at| crowd.kill(at)).collect();
    for (at, disk) in (0..).zip(disks) {
        crowd.boot(at, disk, false);
    }
    (crowd.frames, crowd.votes) = (0, 0);
    let (ticks, view) = crowd.settle(3_000);
    let (votes, needed) = (crowd.votes, FRAMES_OF_RESTART * u64::from(GROUPS));
    println!("{ticks} ticks, {votes} frames of view changes, {needed} needed");
    assert_eq!(view, View(1), "nobody gave an election up");
    assert!(
        votes <= needed + needed / 5,
        "{votes} frames where {needed} do"
    );
    assert_eq!(crowd.looks, 0, "nobody has a reason to look yet");
    // A second until the first question; the rest is what the nodes carry.
    let carried = crowd.frames / 3 / FRAMES_PER_TICK as u64;
    assert!(
        ticks <= 100 + 2 * carried,
        "{ticks} ticks, {carried} for {} frames",
        crowd.frames
    );
    // Each looks later all the same. Who leads asks two, who follows asks the leader, and some
    // find it looking around itself.
    (0..10_000).for_each(|_| crowd.tick());
    let (looks, groups) = (crowd.looks, u64::from(GROUPS));
    println!("{looks} looks");
    assert!((4 * groups..=8 * groups).contains(&looks), "{looks} looks");
}

/// With one node away nobody hears from all others, and the questions have to run out first.
#[test]
fn a_restart_without_one_node_comes_to_an_end() {
    let mut crowd = Crowd::new();
    crowd.settle(10);
    let mut disks: Vec<MemoryDisk> = (0..3).map(|at| crowd.kill(at)).collect();
    let (last, others) = (disks.pop().expect("three"), disks);
    for (at, disk) in (0..).zip(others) {
        crowd.boot(at, disk, false);
    }
    for at in 0..2 {
        let (replica, connected) = (ReplicaId(2), false);
        crowd.step(at, Input::Peer { replica, connected });
    }
    let (ticks, view) = crowd.settle(4_000);
    println!("{ticks} ticks without one node, highest view {view:?}");
    // A group whose next primary is the one that is away needs another view.
    assert!(view <= View(3), "{view:?}");
    crowd.boot(2, last, false);
    for at in 0..2 {
        let (replica, connected) = (ReplicaId(2), true);
        crowd.step(at, Input::Peer { replica, connected });
    }
    let (ticks, _) = crowd.settle(3_000);
    println!("{ticks} ticks until it was back");
}

#[test]
fn the_groups_of_a_node_that_dies_elect_each_once() {
    let mut crowd = Crowd::new();
    crowd.settle(10);
    (0..300).for_each(|_| crowd.tick());
    crowd.votes = 0;
    crowd.kill(0);
    let (ticks, view) = crowd.settle(4_000);
    let (votes, groups) = (crowd.votes, u64::from(GROUPS));
    println!("{ticks} ticks, {votes} frames of view changes");
    assert_eq!(view, View(1));
    // Two say that they change the view and vote, to two each, and one announces the view.
    let needed = (2 * 2 + 2 * 2 + 2) * groups;
    assert!(
        votes <= needed + needed / 5,
        "{votes} frames where {needed} do"
    );
}

/// Messages that a quorum acknowledged and only one node brought to its files, in so many groups
/// that not all of them can be transferred at once: whoever leads after a restart of all nodes
/// has none of them, looks at its peers first, and finds them.
#[test]
fn what_one_node_kept_is_found_however_many_groups_look_for_it() {
    const WRITTEN: u32 = 60;
    let mut crowd = Crowd::new();
    crowd.settle(10);
    let groups = || specs(false).take(WRITTEN as usize).map(|spec| spec.group);
    let ends = |crowd: &Crowd, at: usize| -> u64 {
        let node = crowd.nodes[at].as_ref().expect("it runs");
        let status = groups().filter_map(|group| node.plane.status(group));
        status.map(|status| status.committed_next).sum()
    };
    for (token, group) in (0..).zip(groups()) {
        let request = send_request_to(group, 0x77, &[b"kept".to_vec()]);
        crowd.step(
            0,
            Input::Submit {
                token,
                group,
                request,
            },
        );
    }
    while crowd.replies.len() < WRITTEN as usize {
        crowd.tick();
    }
    assert!(crowd.replies.values().all(|status| *status == 0));
    // What the first two had on disk at this moment is all they ever have.
    let stopped = [0, 1].map(|at| crowd.nodes[at].as_ref().expect("it runs").disk.clone());
    (0..70).for_each(|_| crowd.tick());
    assert_eq!(ends(&crowd, 2), u64::from(WRITTEN));
    crowd.step(2, Input::FlushAll);
    (0..5).for_each(|_| crowd.tick());
    let last = (0..3).map(|at| crowd.kill(at)).last().expect("three");
    for (at, disk) in (0..).zip(stopped.into_iter().chain([last])) {
        crowd.boot(at, disk, false);
    }
    crowd.tick();
    let kept: Vec<u64> = (0..3).map(|at| ends(&crowd, at)).collect();
    assert_eq!(kept, [0, 0, u64::from(WRITTEN)], "one node has them");
    crowd.settle(3_000);
    for _ in 0..6_000 {
        crowd.tick();
        if (0..3).all(|at| ends(&crowd, at) == u64::from(WRITTEN)) {
            return;
        }
    }
    let found: Vec<u64> = (0..3).map(|at| ends(&crowd, at)).collect();
    panic!("{WRITTEN} were acknowledged, {found:?} are there");
}
