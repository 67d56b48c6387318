//! Heartbeats of groups that have nothing to say: rarer, and never so rare that a backup would
//! miss one, and back at their usual interval when there is something to say.

mod support;

use biplane_vsr::{Input, OpenError, Timers};
use biplane_wire::{Command, Op, ReplicaId, View};
use support::node::Node;
use support::{Cluster, Kind, config};

/// Usual interval, interval when idle, and timeout.
const USUAL: u64 = 5;
const IDLE: u64 = 10;
const TIMEOUT: u32 = 40;

fn sparing(kind: Kind) -> Cluster {
    let mut cluster = Cluster::new(kind, 3);
    for replica in 0..3 {
        let mut config = config(kind, replica, 3);
        config.timers = Timers::tiny().sparing();
        assert_eq!(u64::from(config.timers.commit_idle), IDLE);
        cluster.nodes[usize::from(replica)] = Node::fresh(kind, config);
    }
    cluster
}

/// The ticks at which heartbeats leave in the next `ticks`.
fn heartbeats(cluster: &mut Cluster, ticks: u64) -> Vec<u64> {
    let mut at = Vec::new();
    for _ in 0..ticks {
        let before = cluster.sent.get(&Command::Commit).copied().unwrap_or(0);
        cluster.tick();
        if cluster.sent.get(&Command::Commit).copied().unwrap_or(0) > before {
            at.push(cluster.ticks);
        }
    }
    at
}

fn gaps(at: &[u64]) -> Vec<u64> {
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn idle_primary_is_heard_less_often_and_never_too_late() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = sparing(kind);
        let at = heartbeats(&mut cluster, 10_000);
        let gaps = gaps(&at);
        assert_eq!(gaps[..3], [USUAL; 3], "{kind:?}");
        assert!(gaps[4..].iter().all(|gap| *gap == IDLE), "{kind:?}");
        assert!((0..3).all(|node| cluster.status(node).view == View(0)));
    }
}

#[test]
fn two_lost_heartbeats_of_an_idle_primary_are_nothing() {
    let mut cluster = sparing(Kind::Partition);
    cluster.run(200);
    for _ in 0..20 {
        cluster.lose_first(Command::Commit, 1, 2);
        cluster.lose_first(Command::Commit, 2, 2);
        cluster.run(100);
    }
    assert!((0..3).all(|node| cluster.status(node).view == View(0)));
}

#[test]
fn backups_learn_of_a_commit_as_soon_as_ever() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        for pause in 0..IDLE {
            let mut cluster = sparing(kind);
            cluster.run(100 + u32::try_from(pause).unwrap());
            assert_eq!(cluster.submit(0), Some(Op(1)));
            cluster.settle();
            let at = heartbeats(&mut cluster, 4 * USUAL);
            assert_eq!(gaps(&at)[..2], [USUAL; 2], "{kind:?} after {pause}");
            cluster = sparing(kind);
            cluster.run(100 + u32::try_from(pause).unwrap());
            cluster.submit(0);
            cluster.settle();
            cluster.run(u32::try_from(USUAL).unwrap());
            for node in 0..3 {
                assert_eq!(cluster.status(node).commit_min, Op(1), "{kind:?} {pause}");
            }
        }
    }
}

/// The heartbeat that told of the last commit is lost on its way to one backup; so are those
/// after it that come at the usual interval.
#[test]
fn a_backup_that_missed_the_news_learns_it_from_a_rare_heartbeat() {
    let mut cluster = sparing(Kind::Partition);
    cluster.run(100);
    cluster.submit(0);
    cluster.settle();
    cluster.lose_first(Command::Commit, 2, 3);
    cluster.run(3 * u32::try_from(USUAL).unwrap());
    assert_eq!(cluster.status(2).commit_min, Op(0));
    cluster.run(2 * u32::try_from(IDLE).unwrap());
    assert_eq!(cluster.status(2).commit_min, Op(1));
    assert_eq!(cluster.status(2).view, View(0));
}

#[test]
fn a_peer_that_comes_back_is_greeted_at_the_usual_interval() {
    let mut cluster = sparing(Kind::Partition);
    cluster.run(200);
    let at = heartbeats(&mut cluster, 4 * IDLE);
    assert!(gaps(&at).iter().all(|gap| *gap == IDLE));
    for connected in [false, true] {
        let replica = ReplicaId(2);
        cluster.step(0, Input::Peer { replica, connected });
    }
    let now = cluster.ticks;
    let at = heartbeats(&mut cluster, 4 * USUAL);
    assert!(at[0] - now <= USUAL);
    assert_eq!(gaps(&at)[..2], [USUAL; 2]);
}

#[test]
fn an_idle_primary_is_replaced_as_soon_as_a_busy_one() {
    for idle in [20, 500] {
        let mut cluster = sparing(Kind::Partition);
        cluster.run(idle);
        cluster.isolate(0);
        let replaced = cluster.run_until(TIMEOUT + 10, |cluster| {
            (1..3).any(|node| cluster.status(node).is_primary)
        });
        assert!(replaced, "after {idle} ticks");
    }
}

#[test]
fn intervals_that_would_miss_the_timeout_are_refused() {
    for (commit_idle, is_fine) in [(4, false), (5, true), (10, true), (11, false)] {
        let timers = Timers {
            commit_idle,
            ..Timers::tiny()
        };
        let found = timers.validate();
        assert_eq!(found.is_ok(), is_fine, "{commit_idle}: {found:?}");
        let is_timer = found.is_err_and(|error| matches!(error, OpenError::Timer { .. }));
        assert_eq!(is_timer, !is_fine);
    }
    let defaults = Timers::default().sparing();
    assert_eq!((defaults.commit, defaults.commit_idle), (50, 125));
    defaults.validate().expect("the defaults fit");
}

fn set_mute(cluster: &mut Cluster, is_mute: bool) {
    let replica = cluster.nodes[0].replica.as_mut();
    replica.expect("it runs").set_mute(is_mute);
}

/// A primary whose owner keeps it silent is replaced, and goes on where nobody can replace it.
#[test]
fn a_mute_primary_is_replaced_by_those_who_can() {
    for kind in [Kind::Metadata, Kind::Partition, Kind::Persisted] {
        let mut cluster = sparing(kind);
        cluster.run(100);
        set_mute(&mut cluster, true);
        cluster.run(2 * TIMEOUT);
        for node in 0..3 {
            assert_eq!(cluster.status(node).view, View(1), "{kind:?}");
        }
        assert!(cluster.status(1).is_primary, "{kind:?}");

        let mut cluster = sparing(kind);
        cluster.run(100);
        set_mute(&mut cluster, true);
        assert_eq!(heartbeats(&mut cluster, u64::from(TIMEOUT) / 2), []);
        set_mute(&mut cluster, false);
        assert_ne!(heartbeats(&mut cluster, u64::from(TIMEOUT)), []);
        assert_eq!(cluster.status(2).view, View(0), "{kind:?}");
    }
}
