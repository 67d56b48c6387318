//! Ids that are used again: the view in which new groups start, and deletions over a restart.

mod support;

use biplane_metadata_plane::io::Input;
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_wire::{Command, Operation, View};
use support::bodies::{cat, create_topic, id, name};
use support::cluster::{Client, Cluster};

fn commit(cluster: &mut Cluster, client: &mut Client, operation: Operation, body: Vec<u8>) -> u32 {
    let primary = cluster.await_primary();
    let request = client.request(operation, body);
    cluster.commit(primary, &request)
}

/// A cluster of three with a stream and a topic.
fn with_topic() -> (Cluster, Client) {
    let mut cluster = Cluster::new(3);
    cluster.await_primary();
    let mut client = Client::login(&mut cluster, 0, 7);
    let body = name("s");
    assert_eq!(
        commit(&mut cluster, &mut client, Operation::CreateStream, body),
        0
    );
    let body = create_topic(0, 1, "t", &[]);
    assert_eq!(
        commit(&mut cluster, &mut client, Operation::CreateTopic, body),
        0
    );
    (cluster, client)
}

fn recreate(cluster: &mut Cluster, client: &mut Client) {
    let body = cat(&[&id(0), &id(0)]);
    assert_eq!(commit(cluster, client, Operation::DeleteTopic, body), 0);
    let body = create_topic(0, 1, "t", &[]);
    assert_eq!(commit(cluster, client, Operation::CreateTopic, body), 0);
}

fn created_view(cluster: &Cluster, node: usize) -> View {
    let state = cluster.plane(node).state();
    state.topology().next().expect("a partition").created_view
}

#[test]
fn a_group_of_a_reused_id_starts_above_the_one_that_is_gone() {
    let (mut cluster, mut client) = with_topic();
    assert_eq!(
        created_view(&cluster, 0),
        View(0),
        "nothing was deleted yet"
    );
    // The group on the primary's node has seen some views.
    cluster.input(0, Input::PartitionView(View(17)));
    recreate(&mut cluster, &mut client);
    let first = created_view(&cluster, 0);
    assert!(first > View(17 + 32), "{first}");
    assert_eq!(first.primary(3), cluster.plane(0).primary());
    recreate(&mut cluster, &mut client);
    let second = created_view(&cluster, 0);
    assert!(second > View(first.0 + 32), "{second} after {first}");
    cluster.await_convergence();
    assert!((0..3).all(|node| created_view(&cluster, node) == second));
}

#[test]
fn a_new_primary_knows_the_views_that_were_given_out() {
    let (mut cluster, mut client) = with_topic();
    recreate(&mut cluster, &mut client);
    let before = created_view(&cluster, 0);
    cluster.await_convergence();
    cluster.crash(0);
    recreate(&mut cluster, &mut client);
    let primary = cluster.await_primary();
    let after = created_view(&cluster, primary);
    assert!(after > before, "{after} after {before}");
    assert_eq!(after.primary(3), cluster.plane(primary).primary());
    // And so does one that has only its files: everybody is restarted.
    cluster.start(0);
    cluster.await_convergence();
    (0..3).for_each(|node| cluster.restart(node));
    recreate(&mut cluster, &mut client);
    let primary = cluster.await_primary();
    assert!(created_view(&cluster, primary) > after);
}

#[test]
fn partitions_wait_for_a_deletion_that_may_have_been_carried_out() {
    let (mut cluster, mut client) = with_topic();
    cluster.await_convergence();
    // Prepared everywhere, and nobody knows that it is committed.
    cluster.lossy.push(Command::PrepareOk);
    let request = client.request(Operation::DeleteTopic, cat(&[&id(0), &id(0)]));
    let token = cluster.submit(0, &request);
    cluster.run(20);
    cluster.restart(1);
    assert!(!cluster.plane(1).is_topology_settled());
    assert_eq!(cluster.plane(1).state().topology().count(), 1);
    cluster.nodes[1].topology.clear();
    cluster.lossy.clear();
    cluster.await_answer(token);
    cluster.await_convergence();
    assert!(cluster.plane(1).is_topology_settled());
    assert_eq!(cluster.plane(1).state().topology().count(), 0);
    let said = &cluster.nodes[1].topology;
    assert_eq!(said.last(), Some(&TopologyChange::Replaced), "{said:?}");
}

#[test]
fn state_is_confirmed_by_what_was_heard_and_not_by_belief() {
    let (mut cluster, mut client) = with_topic();
    cluster.await_convergence();
    let confirmed = |cluster: &Cluster| -> Vec<u64> {
        cluster.nodes.iter().map(|node| node.confirmed).collect()
    };
    let before = confirmed(&cluster);
    cluster.run(100);
    let idle = confirmed(&cluster);
    assert!(
        (1..3).all(|node| idle[node] > before[node]),
        "heartbeats say so"
    );
    assert_eq!(idle[0], before[0], "nobody follows the primary yet");
    assert_eq!(
        commit(
            &mut cluster,
            &mut client,
            Operation::CreateStream,
            name("u")
        ),
        0
    );
    assert!(confirmed(&cluster)[0] > idle[0]);
    // A backup that hears nothing confirms nothing.
    cluster.nodes[2].is_cut_off = true;
    let cut = confirmed(&cluster)[2];
    cluster.run(500);
    assert_eq!(confirmed(&cluster)[2], cut);
}

/// What a node said of the partitions of the topology, in order: whether each was new.
fn said_new(cluster: &Cluster, node: usize) -> Vec<bool> {
    let changes = cluster.nodes[node].topology.iter();
    let said = changes.filter_map(|change| match change {
        TopologyChange::PartitionCreated(_) => Some(true),
        TopologyChange::PartitionLearnt(_) => Some(false),
        _ => None,
    });
    said.collect()
}

#[test]
fn a_partition_is_new_where_its_creation_was_witnessed() {
    let (mut cluster, mut client) = with_topic();
    cluster.await_convergence();
    for node in 0..3 {
        assert_eq!(
            said_new(&cluster, node),
            [true],
            "a new cluster, node {node}"
        );
    }
    // A node that comes back does not know what it had; what follows it sees with its own eyes.
    cluster.nodes[2].topology.clear();
    cluster.wipe(2);
    cluster.start(2);
    cluster.await_convergence();
    let body = create_topic(0, 1, "u", &[]);
    assert_eq!(
        commit(&mut cluster, &mut client, Operation::CreateTopic, body),
        0
    );
    cluster.await_convergence();
    assert_eq!(said_new(&cluster, 2), [false, true]);
    assert_eq!(said_new(&cluster, 1), [true, true]);
}

#[test]
fn a_node_without_a_disk_that_led_the_first_view_does_not_take_the_past_for_new() {
    let (mut cluster, mut client) = with_topic();
    cluster.await_convergence();
    // The node that led, and created the partition, is voted out and comes back without a disk.
    cluster.wipe(0);
    cluster.nodes[0].topology.clear();
    let body = create_topic(0, 1, "u", &[]);
    let primary = cluster.await_primary();
    assert_ne!(primary, 0);
    let request = client.request(Operation::CreateTopic, body);
    assert_eq!(cluster.commit(primary, &request), 0);
    cluster.start(0);
    assert!(
        cluster.plane(0).status().is_caught_up_primary,
        "so it thinks"
    );
    cluster.await_convergence();
    assert_eq!(said_new(&cluster, 0), [false, false]);
    let body = create_topic(0, 1, "v", &[]);
    assert_eq!(
        commit(&mut cluster, &mut client, Operation::CreateTopic, body),
        0
    );
    cluster.await_convergence();
    assert_eq!(said_new(&cluster, 0), [false, false, true]);
}
