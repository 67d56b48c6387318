//! Links and nodes that fail under load, one after the other on the same cluster. Service comes
//! back each time, and in the end every node holds everything that was acknowledged.

use std::time::Duration;

use tokio::time::sleep;

use crate::load::Load;
use crate::nodes::{Nodes, SECRET, auth};
use crate::support::{Random, seed, wait_until};

/// Well above what an election takes with the timers of a test, on a busy machine, and above the
/// 12 s that the client waits for a node that does not answer.
const BACK_LIMIT: Duration = Duration::from_secs(30);

/// The two other nodes.
fn others(node: usize) -> [usize; 2] {
    [(node + 1) % 3, (node + 2) % 3]
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_come_back_from_everything_and_nothing_acknowledged_is_lost() {
    let seed = seed("links_come_back_from_everything");
    let mut random = Random::new(seed);
    let mut nodes = Nodes::cluster(auth(SECRET), true, "info");
    let load = Load::start(&nodes.client_addresses(), seed, Duration::from_millis(5)).await;

    // Reset in the middle of a frame, on every link.
    for (low, high) in [(0, 1), (0, 2), (1, 2)] {
        let link = nodes.link(low, high);
        link.cut_in_a_frame();
        // The link between two backups may be idle; then there is no frame to cut.
        for _ in 0..40 {
            if link.has_cut() {
                break;
            }
            sleep(Duration::from_millis(25)).await;
        }
        let back = load.wait_served("a reset in a frame").await;
        println!("link {low}-{high} reset: service within {back:?}");
        assert!(back < BACK_LIMIT);
    }

    // The dialer's end is gone, the acceptor does not know.
    for (low, high) in [(0, 1), (0, 2), (1, 2)] {
        nodes.link(low, high).half_open();
        let back = load.wait_served("a half-open connection").await;
        println!("link {low}-{high} half open: service within {back:?}");
        assert!(back < BACK_LIMIT);
    }

    // A link that is cut, in both directions and in one, longer than the heartbeat timeout.
    let primary = nodes.primary_named_by(0);
    for (up, down) in [(true, true), (true, false), (false, true)] {
        let other = others(primary)[random.between(0, 1) as usize];
        let (low, high) = pair(primary, other);
        nodes.link(low, high).hold(up, down);
        sleep(Duration::from_millis(2_500)).await;
        let during = load.wait_served("a cut link").await;
        nodes.link(low, high).hold(false, false);
        let back = load.wait_served("a healed link").await;
        println!("link {low}-{high} cut ({up}, {down}): {during:?} during, {back:?} after");
        assert!(during < BACK_LIMIT && back < BACK_LIMIT);
    }

    // A node that stands still, first a backup, then the primary.
    for role in ["backup", "primary"] {
        let primary = nodes.primary_named_by(0);
        let frozen = match role {
            "primary" => primary,
            _ => others(primary)[random.between(0, 1) as usize],
        };
        nodes.freeze(frozen);
        sleep(Duration::from_millis(3_000)).await;
        let during = load.wait_served("a frozen node").await;
        nodes.thaw(frozen);
        let back = load.wait_served("a node that goes on").await;
        println!("{role} {frozen} frozen: {during:?} during, {back:?} after");
        assert!(during < BACK_LIMIT && back < BACK_LIMIT);
    }

    // Killed, and killed together with another: what is left is no quorum until both are back.
    let primary = nodes.primary_named_by(0);
    nodes.kill9(primary);
    let during = load.wait_served("a killed primary").await;
    nodes.start(primary);
    nodes.wait_serving();
    let back = load.wait_served("a restarted node").await;
    println!("primary {primary} killed: {during:?} during, {back:?} after");
    assert!(during < BACK_LIMIT && back < BACK_LIMIT);

    nodes.check_alive();
    let addresses = nodes.client_addresses();
    load.finish(&addresses, || nodes.check_alive()).await;
}

#[test]
fn nodes_that_all_stop_and_start_at_once_are_linked_in_their_first_second() {
    let mut nodes = Nodes::cluster(auth(SECRET), false, "info");
    let linked = |nodes: &Nodes, node: usize| nodes.log(node).matches("replica connected").count();
    for round in 1..=2 {
        let before: Vec<usize> = (0..3).map(|node| linked(&nodes, node)).collect();
        for node in 0..3 {
            if round == 1 {
                nodes.stop(node);
            } else {
                nodes.kill9(node);
            }
        }
        for node in 0..3 {
            nodes.start(node);
        }
        let start = std::time::Instant::now();
        wait_until("two links at each node", Duration::from_secs(10), || {
            let more = |node: usize| linked(&nodes, node) - before[node];
            if (0..3).all(|node| more(node) >= 2) {
                return Ok(());
            }
            Err(format!("{:?}", [more(0), more(1), more(2)]))
        });
        println!("round {round}: all links after {:?}", start.elapsed());
        nodes.wait_serving();
    }
}
