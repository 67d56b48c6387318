//! Catching up that is disturbed: by load, by the end of the node that serves, by the end of the
//! node that joins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use iggy::prelude::{Client, Durability};
use tokio::time::sleep;

use crate::scene::{STREAM, Scene, batch};
use crate::support::sdk::Application;
use crate::support::{Random, seed};

/// Batches of 1 MB that take several chunks and some time to transfer.
const LARGE: u64 = 60;

/// A producer of its own topic that goes on until told to stop, through any error.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(scene: &Scene, topic: &'static str) -> Self {
        let (stop, sent) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let mut application = Application::new(scene.cluster.addresses(), 0);
        let seed = scene.seed;
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let mut messages = batch(seed, counted.load(Ordering::Relaxed), 20, 500);
                match application.send(STREAM, topic, 0, &mut messages).await {
                    Ok(_) => _ = counted.fetch_add(20, Ordering::Relaxed),
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
                sleep(Duration::from_millis(2)).await;
            }
            application.close().await;
        });
        Self { stop, sent, task }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the producer does not panic");
    }
}

async fn filled(name: &str) -> Scene {
    let mut scene = Scene::start(seed(name)).await;
    scene.topic("large", 1, Durability::Replicated).await;
    scene.topic("load", 1, Durability::Replicated).await;
    scene.topic("synced", 1, Durability::Persisted).await;
    let client = scene.client().await;
    scene
        .fill(&client, ("large", 0), LARGE, (1_000, 1_024))
        .await;
    scene.fill(&client, ("synced", 0), 10, (100, 100)).await;
    client.shutdown().await.expect("the client closes");
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_constant_load() {
    let mut scene = filled("under_constant_load").await;
    let load = Load::start(&scene, "load");
    sleep(Duration::from_secs(1)).await;
    scene.wipe(2);
    let before = load.sent();
    scene.cluster.restart(2);
    println!("node 2 is back after {:?}", scene.wait_joined(2));
    sleep(Duration::from_secs(1)).await;
    assert!(load.sent() > before, "messages were taken meanwhile");
    load.finish().await;
    scene.survive_with(2).await;
    scene.compare_stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_serving_primary_is_killed_half_way() {
    let mut scene = filled("the_serving_primary_is_killed_half_way").await;
    let mut random = Random::new(scene.seed);
    for round in 0..3 {
        let primary = scene.cluster.primary();
        let joiner = (primary + 1 + round % 2) % 3;
        scene.wipe(joiner);
        scene.cluster.restart(joiner);
        sleep(Duration::from_millis(random.between(300, 900))).await;
        // A quorum is left only if the joiner counts: what is acknowledged stays all the same,
        // because the third node has it.
        scene.cluster.kill9(primary);
        sleep(Duration::from_millis(random.between(500, 2_500))).await;
        scene.cluster.restart(primary);
        println!(
            "round {round}: node {joiner} is back after {:?}",
            scene.wait_joined(joiner)
        );
        scene.wait_joined(primary);
    }
    scene.survive_with(0).await;
    scene.compare_stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_joining_node_is_killed_at_twenty_moments() {
    const KILLS: usize = 20;
    let mut scene = filled("the_joining_node_is_killed_at_twenty_moments").await;
    let mut random = Random::new(scene.seed);
    let joiner = (scene.cluster.primary() + 1) % 3;
    scene.wipe(joiner);
    for _ in 0..KILLS {
        scene.cluster.restart(joiner);
        sleep(Duration::from_millis(random.between(20, 900))).await;
        scene.cluster.kill9_if_running(joiner);
        // Now and then what it has got so far is lost as well.
        if random.one_in(5) {
            scene.cluster.wipe(joiner);
        }
    }
    scene.cluster.restart(joiner);
    println!(
        "node {joiner} is back after {:?}",
        scene.wait_joined(joiner)
    );
    scene.survive_with(joiner).await;
    scene.compare_stopped();
}
