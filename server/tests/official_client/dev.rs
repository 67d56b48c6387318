//! `biplane dev`: the screen, a stop that leaves nothing running, data that is there again, and
//! refusals that say what is wrong.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use iggy::prelude::{Client, MessageClient, Partitioning, StreamClient};

use crate::support::dev_cluster::{DevCluster, STOP_LIMIT, processes_with, refusal, text};
use crate::support::messages::Plan;
use crate::support::ports::HeldPorts;
use crate::support::sdk::{connect, create_topic, named, poll_all};
use crate::support::{TestFolder, seed, turn, wait_until};

const NODES: u8 = 3;
const STREAM: &str = "orders";
const TOPIC: &str = "events";
/// Client ports from the base on, replica ports a thousand above.
const SHAPE: [u16; 9] = [0, 1, 2, 100, 101, 102, 1_000, 1_001, 1_002];

fn free_ports() -> Vec<u16> {
    HeldPorts::shaped(&SHAPE).ports.clone()
}

fn nothing_is_left(folder: &Path, ports: &[u16]) {
    wait_until("the end of every node", STOP_LIMIT, || {
        let left = processes_with(folder);
        if !left.is_empty() {
            return Err(format!("processes {left:?} run"));
        }
        // A process that ends loses its name in the process table before its sockets.
        if !HeldPorts::are_free(ports) {
            return Err(format!("one of the ports {ports:?} is taken"));
        }
        Ok(())
    });
}

/// A row with both addresses for each node, and one primary.
fn check_screen(screen: &[String], base_port: u16) {
    for node in 0..u16::from(NODES) {
        let clients = format!("127.0.0.1:{} ", base_port + node);
        let replicas = format!("127.0.0.1:{} ", base_port + 1_000 + node);
        let row = |line: &String| line.contains(&clients) && line.contains(&replicas);
        assert!(screen.iter().any(row), "no row of node {node}: {screen:#?}");
    }
    let with = |word: &str| screen.iter().filter(|line| line.contains(word)).count();
    assert_eq!(with("primary"), 1, "one primary: {screen:#?}");
    assert_eq!(with("backup"), 2, "two backups: {screen:#?}");
}

async fn send_messages(plan: Plan, port: u16, count: u64) {
    let client = connect((Ipv4Addr::LOCALHOST, port).into())
        .await
        .expect("the client connects");
    client
        .create_stream(STREAM)
        .await
        .expect("the stream is created");
    create_topic(&client, STREAM, TOPIC, 1)
        .await
        .expect("the topic is created");
    let mut messages = plan.batch(1, count);
    client
        .send_messages(
            &named(STREAM),
            &named(TOPIC),
            &Partitioning::partition_id(0),
            &mut messages,
        )
        .await
        .expect("the messages are taken");
    client.shutdown().await.expect("the client closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dev_cluster_stops_cleanly_and_finds_its_messages_again() {
    let seed = seed("a_dev_cluster_stops_cleanly_and_finds_its_messages_again");
    let plan = Plan {
        seed,
        payload_max: 5_000,
    };
    let _turn = turn();
    let folder = TestFolder::new();
    // Made by the command itself, with its parent.
    let data = folder.path().join("made").join("by-dev");
    let ports = free_ports();
    let base = ports[0];

    let mut dev = DevCluster::start(NODES, base, &data);
    let screen = dev.ready();
    check_screen(&screen, base);
    let count = processes_with(&data).len();
    assert!(
        count == 0 || count > usize::from(NODES),
        "a supervisor and its nodes, not {count}"
    );

    send_messages(plan, base, 100).await;

    let status = dev.stop("-INT");
    assert!(
        status.success(),
        "Ctrl-C is a clean end, not {status}: {:#?}",
        dev.screen()
    );
    nothing_is_left(&data, &ports);

    // The second time the supervisor itself is killed, and its nodes must not outlive it.
    let mut dev = DevCluster::start(NODES, base, &data);
    dev.ready();
    assert_messages(plan, base, 100).await;
    dev.stop("-KILL");
    nothing_is_left(&data, &ports);

    let mut dev = DevCluster::start(NODES, base, &data);
    dev.ready();
    assert_messages(plan, base, 100).await;
    let status = dev.stop("-TERM");
    assert!(
        status.success(),
        "a termination is a clean end, not {status}"
    );
    nothing_is_left(&data, &ports);
}

async fn assert_messages(plan: Plan, port: u16, count: u64) {
    let client = connect((Ipv4Addr::LOCALHOST, port).into())
        .await
        .expect("the client connects");
    // "Ready" includes the partitions: an empty answer here would read as an empty topic.
    let messages = poll_all(&client, STREAM, TOPIC, 0).await;
    assert_eq!(messages.len() as u64, count, "messages after the restart");
    for (number, message) in (1..).zip(&messages) {
        plan.message(number)
            .check(message)
            .unwrap_or_else(|reason| panic!("{reason}"));
    }
    client.shutdown().await.expect("the client closes");
}

#[test]
fn a_dev_cluster_says_which_port_is_taken() {
    let _turn = turn();
    let folder = TestFolder::new();
    let base = free_ports()[0];
    for (taken, purpose) in [
        (base + 1, "client port of node 1"),
        (base + 1_002, "replica port"),
    ] {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).expect("a free port");
        let output = refusal(NODES, base, folder.path());
        let said = text(&output);
        assert!(!output.status.success(), "a taken port is an error: {said}");
        assert!(
            said.contains(&taken.to_string()) && said.contains(purpose),
            "{said}"
        );
        assert!(said.contains("--base-port"), "it says what to do: {said}");
        drop(held);
    }
    assert_eq!(
        processes_with(folder.path()),
        [0u32; 0],
        "nothing was started"
    );
}

#[test]
fn a_dev_cluster_says_why_a_folder_is_unusable() {
    let _turn = turn();
    let folder = TestFolder::new();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").expect("a file");
    let ports = free_ports();
    for data in [file.clone(), file.join("below")] {
        let output = refusal(NODES, ports[0], &data);
        let said = text(&output);
        assert!(
            !output.status.success(),
            "an unusable folder is an error: {said}"
        );
        assert!(said.contains("cannot be used"), "{said}");
        assert!(
            said.contains(&data.display().to_string()),
            "it names the folder: {said}"
        );
    }

    let data = folder.path().join("data");
    let mut dev = DevCluster::start(NODES, ports[0], &data);
    dev.ready();
    let said = text(&refusal(NODES, free_ports()[0], &data));
    assert!(said.contains("in use"), "{said}");
    assert!(dev.stop("-INT").success());
    let said = text(&refusal(1, ports[0], &data));
    assert!(
        said.contains("--nodes 3"),
        "it says what the folder holds: {said}"
    );
    nothing_is_left(folder.path(), &ports);
}
