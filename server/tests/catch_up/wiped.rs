//! A node whose data is gone comes back, for histories of several shapes.

use std::time::Duration;

use iggy::prelude::{Client, Durability, TopicClient};

use crate::scene::{STREAM, Scene};
use crate::support::sdk::{create_topic, named};
use crate::support::seed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_history() {
    let mut scene = Scene::start(seed("small_history")).await;
    scene.topic("memory", 2, Durability::Replicated).await;
    scene.topic("disk", 2, Durability::Persisted).await;
    let client = scene.client().await;
    for topic in ["memory", "disk"] {
        scene.fill(&client, (topic, 0), 20, (5, 300)).await;
        scene.fill(&client, (topic, 1), 3, (1, 10)).await;
    }
    client.shutdown().await.expect("the client closes");
    for node in [2, 0] {
        scene.wipe(node);
        scene.cluster.restart(node);
        println!("node {node} is back after {:?}", scene.wait_joined(node));
        scene.survive_with(node).await;
    }
    scene.compare_stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_beyond_the_journal() {
    // The journal has 1,024 slots.
    const CHANGES: u32 = 1_300;
    let mut scene = Scene::start(seed("metadata_beyond_the_journal")).await;
    scene.topic("kept", 1, Durability::Replicated).await;
    let client = scene.client().await;
    scene.fill(&client, ("kept", 0), 5, (2, 100)).await;
    scene.cluster.kill9(2);
    for change in 0..CHANGES / 2 {
        let name = format!("passing-{change}");
        let created = create_topic(&client, STREAM, &name, 1).await;
        created.expect("the topic is created");
        let deleted = client.delete_topic(&named(STREAM), &named(&name)).await;
        deleted.expect("the topic is deleted");
    }
    scene.topic("late", 1, Durability::Persisted).await;
    scene.fill(&client, ("late", 0), 5, (2, 100)).await;
    client.shutdown().await.expect("the client closes");
    scene.cluster.wipe(2);
    scene.cluster.restart(2);
    println!("node 2 is back after {:?}", scene.wait_joined(2));
    let log = scene.cluster.log_text(2);
    assert!(
        log.contains("metadata state installed"),
        "the journals of the others do not reach back: a snapshot was transferred"
    );
    scene.survive_with(2).await;
    scene.compare_stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_ten_times_beyond_the_retained_window() {
    // A partition keeps 4,096 batches or 16 MiB in memory for repair.
    const BATCHES: u64 = 164;
    let mut scene = Scene::start(seed("a_partition_ten_times_beyond_the_retained_window")).await;
    scene.topic("memory", 1, Durability::Replicated).await;
    let client = scene.client().await;
    scene
        .fill(&client, ("memory", 0), BATCHES, (1_000, 1_024))
        .await;
    scene.wipe(1);
    scene.cluster.restart(1);
    println!("node 1 is back after {:?}", scene.wait_joined(1));
    let log = scene.cluster.log_text(1);
    assert!(
        log.contains("state transfer installed"),
        "it was transferred"
    );
    // Its state stands on the transfer now; the log goes on above it.
    scene.fill(&client, ("memory", 0), 3, (10, 100)).await;
    client.shutdown().await.expect("the client closes");
    scene.survive_with(1).await;
    scene.compare_stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_partitions() {
    const PARTITIONS: u32 = 100;
    let mut scene = Scene::start(seed("two_hundred_partitions")).await;
    scene
        .topic("memory", PARTITIONS, Durability::Replicated)
        .await;
    scene.topic("disk", PARTITIONS, Durability::Persisted).await;
    let client = scene.client().await;
    for partition in 0..PARTITIONS {
        for topic in ["memory", "disk"] {
            scene
                .fill(&client, (topic, partition), 2, (125, 1_000))
                .await;
        }
    }
    client.shutdown().await.expect("the client closes");
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.wipe(2);
    scene.cluster.restart(2);
    println!("node 2 is back after {:?}", scene.wait_joined(2));
    scene.survive_with(2).await;
    let content = scene.compare_stopped();
    let bytes: u64 = content.values().map(|(length, _)| length).sum();
    assert!(bytes > 50_000_000, "{bytes} bytes were compared");
}
