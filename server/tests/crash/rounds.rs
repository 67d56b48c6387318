//! The rounds: who dies when, and what is checked before the next.

use std::time::{Duration, Instant};

use iggy::prelude::{Client, Durability, StreamClient, TopicClient, TopicCreateOptions};
use tokio::time::sleep;

use crate::load::{Load, STREAM};
use crate::support::cluster::{Cluster, NODES};
use crate::support::ledger::Ledger;
use crate::support::messages::Plan;
use crate::support::sdk::{connect, named};
use crate::support::{Random, seed};

/// Rounds unless `BIPLANE_CRASH_ROUNDS` names another number.
const ROUNDS: u64 = 4;
const PARTITIONS: u32 = 2;
/// Rounds between two readings of everything from the first message on.
const READ_AGAIN_ROUNDS: u64 = 20;

/// Creates a topic through the primary.
pub(crate) async fn topic(
    cluster: &mut Cluster,
    name: &str,
    durability: Durability,
    partitions: u32,
) {
    let primary = cluster.primary();
    let client = connect(cluster.address(primary))
        .await
        .expect("the client connects");
    let options = TopicCreateOptions {
        partitions_count: Some(partitions),
        durability,
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&named(STREAM), name, &options)
        .await
        .expect("the topic is created");
    client.shutdown().await.expect("the client closes");
}

async fn replicated_load(cluster: &mut Cluster, name: &str, plan: Plan) -> Load {
    topic(cluster, name, Durability::Replicated, PARTITIONS).await;
    let load = Load::start(name, Ledger::new(plan, PARTITIONS), &cluster.addresses());
    load.wait_served("service of a new topic").await;
    load
}

/// What a test of many rounds has to say.
#[derive(Debug, Default)]
struct Figures {
    one_died: u64,
    all_died: u64,
    longest: Duration,
    replicated_batches: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_processes_die() {
    let seed = seed("nothing_acknowledged_is_lost_when_processes_die");
    let rounds = std::env::var("BIPLANE_CRASH_ROUNDS").map_or(ROUNDS, |text| {
        text.parse().expect("BIPLANE_CRASH_ROUNDS is a number")
    });
    let payload_max = 2_000;
    let plan = Plan { seed, payload_max };
    let mut random = Random::new(seed);
    let mut cluster = Cluster::start();
    let setup = connect(cluster.address(0))
        .await
        .expect("the client connects");
    setup
        .create_stream(STREAM)
        .await
        .expect("the stream is created");
    setup.shutdown().await.expect("the client closes");
    topic(&mut cluster, "persisted", Durability::Persisted, PARTITIONS).await;
    let ledger = Ledger::new(plan, PARTITIONS);
    let mut persisted = Load::start("persisted", ledger, &cluster.addresses());
    persisted
        .wait_served("service before the first crash")
        .await;
    let mut replicated = replicated_load(&mut cluster, "replicated-0", plan).await;
    let mut figures = Figures::default();
    for round in 1..=rounds {
        sleep(Duration::from_millis(random.between(0, 1_500))).await;
        let again = round % READ_AGAIN_ROUNDS == 0 || round == rounds;
        // The second round takes all, so that the shortest run has both kinds.
        let all = round == 2 || random.one_in(3);
        let start = Instant::now();
        let who = if all {
            cluster.kill9_all();
            figures.all_died += 1;
            // What only a majority's memory held is gone, and its producers are let go.
            figures.replicated_batches += replicated.batches();
            replicated.abandon();
            sleep(Duration::from_millis(random.between(0, 300))).await;
            for node in 0..NODES {
                cluster.restart(node);
            }
            "all nodes".to_owned()
        } else {
            let primary = cluster.primary();
            let other = random.between(0, NODES as u64 - 1) as usize;
            let node = if random.one_in(3) { other } else { primary };
            cluster.kill9(node);
            figures.one_died += 1;
            persisted.wait_served("service after one node died").await;
            replicated.wait_served("service after one node died").await;
            sleep(Duration::from_millis(random.between(0, 1_500))).await;
            cluster.restart(node);
            format!("node {node} of primary {primary}")
        };
        for node in 0..NODES {
            persisted.check_at(&mut cluster, node, again);
            if !all {
                replicated.check_at(&mut cluster, node, again);
            }
        }
        persisted.wait_served("service after the round").await;
        if all {
            let name = format!("replicated-{round}");
            replicated = replicated_load(&mut cluster, &name, plan).await;
        }
        figures.longest = figures.longest.max(start.elapsed());
        println!(
            "round {round}: {who} died, checked after {:?}; {} persisted and {} replicated \
             batches acknowledged",
            start.elapsed(),
            persisted.batches(),
            replicated.batches()
        );
    }
    for load in [&mut persisted, &mut replicated] {
        load.finish().await;
        for node in 0..NODES {
            load.check_at(&mut cluster, node, true);
        }
        load.check_whole();
    }
    figures.replicated_batches += replicated.batches();
    println!(
        "{rounds} rounds: one node died in {}, all in {}; {} persisted and {} replicated batches \
         acknowledged, none lost; longest round {:?}; failed attempts: {}",
        figures.one_died,
        figures.all_died,
        persisted.batches(),
        figures.replicated_batches,
        figures.longest,
        persisted.ledger.failures()
    );
}
