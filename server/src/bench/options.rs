//! What to load a cluster with, as said on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::topology::TopologyArgs;

/// Largest batch the options may ask for, in bytes of payload: what fits the default frame limit
/// with its headers.
const BATCH_SIZE_MAX: u64 = 60 << 20;

/// What `biplane bench` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Producers only
    Produce(LoadArgs),
    /// Fill first, then consumers read everything from the start
    Consume(LoadArgs),
    /// Producers and consumers at once
    ProduceConsume(LoadArgs),
    /// Time from a send to the arrival at a consumer that waits for it
    Latency(LoadArgs),
    /// Start a cluster of three nodes and measure it against this project's targets
    Table(TableArgs),
    /// Create streams and topics, and see what they cost
    Topology(TopologyArgs),
    /// Start clusters of three nodes and see what grows with partitions, and how long starts and
    /// the loss of the primary take
    Scaling(ScalingArgs),
}

/// Where a cluster of three nodes runs that lasts as long as a measurement.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Folder in which the cluster's data folder is made, and removed again
    #[arg(long, default_value = ".")]
    pub folder: PathBuf,
    /// Client port of the first node
    #[arg(long, default_value_t = 28090)]
    #[arg(value_parser = clap::value_parser!(u16).range(1024..=64_000))]
    pub base_port: u16,
}

/// Arguments of `biplane bench scaling`.
#[derive(Debug, Clone, Args)]
pub struct ScalingArgs {
    /// How often each load runs and the primary dies; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Measured time of each load in seconds
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Partitions over which 8 producers are spread, one load for each number
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub partitions: Vec<u32>,
    /// Partitions that nobody writes to, beside which latency is measured again
    #[arg(long, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub idle_partitions: u32,
    /// Heartbeat timeouts with which the primary is killed
    #[arg(long, value_delimiter = ',', default_value = "5s,2s")]
    pub heartbeat_timeouts: Vec<String>,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Arguments of `biplane bench table`.
#[derive(Debug, Clone, Args)]
pub struct TableArgs {
    /// How often each load runs; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repetitions: u32,
    /// Measured time of each load in seconds
    #[arg(long, default_value_t = 3.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Gigabytes of memory to touch and free before each load. A virtual machine that was idle gets
    /// its memory page by page as it is first used, and then a load of seconds measures that
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1024))]
    pub touch: u64,
    /// Write every figure of every repetition as JSON to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Kinds of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Producers only.
    Produce,
    /// Consumers only, after a fill.
    Consume,
    /// Both at once.
    ProduceConsume,
    /// Both at once, timed from send to arrival.
    Latency,
}

/// When a topic's writes are acknowledged (chapter 05, topic options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityOption {
    /// A quorum holds the batch in memory
    Replicated,
    /// A quorum holds the batch on stable storage
    Persisted,
}

/// Arguments of a load.
#[derive(Debug, Clone, Args, Serialize)]
pub struct LoadArgs {
    /// Client address of any node; the load goes to the primary it names
    #[arg(long, default_value = "127.0.0.1:8090")]
    pub address: SocketAddr,
    /// User
    #[arg(long, default_value = "iggy")]
    #[serde(skip)]
    pub user: String,
    /// Password
    #[arg(
        long,
        env = "BIPLANE_PASSWORD",
        hide_env_values = true,
        default_value = "iggy"
    )]
    #[serde(skip)]
    pub password: String,
    /// Producers, each on a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub producers: u32,
    /// Consumers, each on a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub consumers: u32,
    /// Streams, with one topic each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: u32,
    /// Partitions of each topic; by default one for each producer or consumer
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub partitions: Option<u32>,
    /// Messages in a request
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Bytes of payload in a message
    #[arg(long, default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=10_000_000))]
    pub size: u32,
    /// Most megabytes of payload a second, all producers together; 0 is no limit
    #[arg(long, default_value_t = 0.0, value_parser = parse_rate)]
    pub rate: f64,
    /// Measured time in seconds
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Time before it that is not counted, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    pub warmup: f64,
    /// Megabytes of payload to fill each partition with before consumers start (`consume` only)
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub fill: u32,
    /// Most megabytes of a topic that are kept, for loads that would fill the disk: what is
    /// older goes when the nodes next look (`data_maintenance.messages.interval`)
    #[arg(long, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub topic_max: Option<u32>,
    /// Acknowledgement policy of the topics
    #[arg(long, value_enum, default_value_t = DurabilityOption::Replicated)]
    pub durability: DurabilityOption,
    /// Send the same batch again and again instead of building one for each request; takes the
    /// client's own hashing and copying out of the figures
    #[arg(long)]
    pub reuse_batch: bool,
    /// Pause of a consumer that found nothing, in microseconds
    #[arg(long, default_value_t = 200)]
    pub poll_pause: u64,
    /// Skip the raw probes of this machine, and the ratios with them
    #[arg(long)]
    pub no_probes: bool,
    /// Folder in which the disk probe writes; should be on the disk of the nodes
    #[arg(long)]
    pub probe_dir: Option<PathBuf>,
    /// Process ids of the nodes, to measure their processor time and memory
    #[arg(long, value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// Leave the streams in place
    #[arg(long)]
    pub keep: bool,
    /// Write all figures as JSON to this file; `-` is standard output
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long)]
    pub html: Option<PathBuf>,
}

impl LoadArgs {
    /// Payload bytes of a request.
    #[must_use]
    pub fn request_size(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.size)
    }

    /// Measured time.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Time before it.
    #[must_use]
    pub fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup)
    }

    /// What the command line parser cannot see.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.request_size() > BATCH_SIZE_MAX {
            return Err(format!(
                "--batch {} of --size {} is {} bytes a request; a frame holds {BATCH_SIZE_MAX}",
                self.batch,
                self.size,
                self.request_size()
            ));
        }
        if self.seconds < 0.1 {
            return Err("--seconds must be at least 0.1".to_owned());
        }
        Ok(())
    }
}

/// A load that can be run: its kind and its arguments.
#[derive(Debug, Clone, Serialize)]
pub struct Load {
    /// Kind.
    pub workload: Workload,
    /// The rest.
    #[serde(flatten)]
    pub args: LoadArgs,
}

impl Load {
    /// Producers that run in the measured time.
    #[must_use]
    pub fn producers(&self) -> u32 {
        match self.workload {
            Workload::Consume => 0,
            _ => self.args.producers,
        }
    }

    /// Consumers that run: one for each partition when latency is measured, so that every
    /// message has one that waits for it.
    #[must_use]
    pub fn consumers(&self) -> u32 {
        match self.workload {
            Workload::Produce => 0,
            Workload::Consume | Workload::ProduceConsume => self.args.consumers,
            Workload::Latency => self.args.streams * self.partitions(),
        }
    }

    /// Partitions of each topic.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        let workers = match self.workload {
            Workload::Produce | Workload::Latency => self.args.producers,
            Workload::Consume => self.args.consumers,
            Workload::ProduceConsume => self.args.producers.max(self.args.consumers),
        };
        let each = workers.div_ceil(self.args.streams).min(1000);
        self.args.partitions.unwrap_or(each)
    }

    /// Stream and partition of worker `index`.
    #[must_use]
    pub fn place(&self, index: u32) -> (u32, u32) {
        let stream = index % self.args.streams;
        (stream, index / self.args.streams % self.partitions())
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text} is not a number of seconds from 0 to 86400")),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e6).contains(&rate) => Ok(rate),
        _ => Err(format!(
            "{text} is not a number of megabytes a second from 0 to 1000000"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn parse(words: &[&str]) -> Result<LoadArgs, clap::Error> {
        Line::try_parse_from([&["bench"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn every_worker_has_a_place_and_the_places_are_spread() {
        let args = parse(&["--producers", "6", "--streams", "2"]).unwrap();
        let workload = Workload::Produce;
        let load = Load { workload, args };
        assert_eq!(load.partitions(), 3);
        let mut places: Vec<_> = (0..6).map(|index| load.place(index)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 6);
    }

    #[test]
    fn every_partition_has_a_consumer_when_latency_is_measured() {
        let args = parse(&["--producers", "4", "--partitions", "3"]).unwrap();
        let workload = Workload::Latency;
        assert_eq!(Load { workload, args }.consumers(), 3);
    }

    #[test]
    fn what_does_not_fit_a_frame_is_refused_with_the_numbers() {
        let args = parse(&["--batch", "100000", "--size", "10000"]).unwrap();
        let error = args.check().unwrap_err();
        assert!(error.contains("1000000000"), "{error}");
    }

    #[test]
    fn nonsense_numbers_are_refused() {
        for words in [["--seconds", "-1"], ["--rate", "NaN"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
