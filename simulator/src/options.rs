//! What a run is made of: everything drawn from the seed before the first event.
//!
//! Options come in two draws: which classes of fault exist at all in this run, then how strong
//! each of them is. Many runs have one or two classes, some have all. A profile narrows what
//! may be drawn and says what a run of it must have met (see [`crate::coverage`]).

mod later;

use std::collections::BTreeSet;

use biplane_vsr::Timers;

use crate::disk::DiskOptions;
use crate::faults::FaultClass;
use crate::knobs::Knobs;
use crate::mutations::Mutation;
use crate::network::NetworkOptions;
use crate::prng::{Prng, Streams};
use crate::time::{MICROSECOND, MILLISECOND, Nanos, SECOND};

/// Named sets of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// No faults at all.
    Calm,
    /// The network only.
    Net,
    /// Clocks only.
    Clock,
    /// Crashes, pauses and a bad network.
    Crash,
    /// Disk errors and damage, with crashes.
    Disk,
    /// Long absences and wiped nodes: state has to be transferred.
    Transfer,
    /// Topology comes and goes.
    Churn,
    /// Topics are purged, under a bad network and crashes.
    Purge,
    /// Old messages go, topics are purged, positions come and go, under a bad network and
    /// crashes.
    Upkeep,
    /// Crashes that the promise of memory-only groups does not cover.
    Correlated,
    /// Three replicas of bare groups, loss, reordering, crashes: quick.
    Lite,
    /// As `lite`, and records that were acknowledged go bad just when they are needed.
    Decay,
    /// Everything.
    All,
    /// Writes to logs that were confirmed and never happened, with crashes.
    Phantom,
}

impl Profile {
    /// Every profile with its name.
    pub const NAMED: [(Self, &'static str); 14] = [
        (Self::Calm, "calm"),
        (Self::Net, "net"),
        (Self::Clock, "clock"),
        (Self::Crash, "crash"),
        (Self::Disk, "disk"),
        (Self::Transfer, "transfer"),
        (Self::Churn, "churn"),
        (Self::Purge, "purge"),
        (Self::Upkeep, "upkeep"),
        (Self::Correlated, "correlated"),
        (Self::Lite, "lite"),
        (Self::Decay, "decay"),
        (Self::All, "all"),
        (Self::Phantom, "phantom"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMED
            .iter()
            .find(|(profile, _)| *profile == self)
            .map_or("", |(_, name)| name)
    }

    /// The profile of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(profile, _)| *profile)
    }
}

/// What runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineKind {
    /// Bare consensus groups.
    Bare,
    /// The planes.
    Planes,
}

/// Mean time between faults of one class; `None` where the class does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultOptions {
    /// A node loses its memory and unsynced writes and comes back.
    pub crash: Option<Nanos>,
    /// A node stands still.
    pub pause: Option<Nanos>,
    /// The network falls apart.
    pub partition: Option<Nanos>,
    /// A link stands still.
    pub clog: Option<Nanos>,
    /// A connection breaks.
    pub reset: Option<Nanos>,
    /// A sector of a file goes bad.
    pub rot: Option<Nanos>,
    /// A node comes back with an empty disk.
    pub wipe: Option<Nanos>,
    /// A node stops in good order and comes back.
    pub stop: Option<Nanos>,
    /// A record that was acknowledged and is not known to be committed goes bad, and power fails.
    pub decay: Option<Nanos>,
    /// A connection is gone on one side only.
    pub half_open: Option<Nanos>,
    /// Links stand still one by one and go on in another order.
    pub swizzle: Option<Nanos>,
    /// Partitions come and go quickly.
    pub flap: Option<Nanos>,
    /// Clients are cut from nodes.
    pub cutoff: Option<Nanos>,
    /// A node is slow at everything.
    pub slow_node: Option<Nanos>,
    /// A disk is full for a while.
    pub full: Option<Nanos>,
    /// Writes and reads of a log go to another place.
    pub misdirect: Option<Nanos>,
    /// A write to a log was confirmed and never happened.
    pub lost_write: Option<Nanos>,
}

/// Everything drawn for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The profile.
    pub profile: Profile,
    /// What runs on a node.
    pub machine: MachineKind,
    /// Members of the cluster.
    pub replicas: u8,
    /// Partition groups (bare), or the most partitions of a topic (planes).
    pub partitions: u32,
    /// Clients.
    pub clients: u32,
    /// Requests until the safety phase ends.
    pub requests: u64,
    /// Mean pause of a client between requests.
    pub think_mean: Nanos,
    /// Shortest safety phase.
    pub safety_min: Nanos,
    /// Longest safety phase.
    pub safety_max: Nanos,
    /// Longest liveness phase.
    pub liveness_max: Nanos,
    /// Intervals of the cores.
    pub timers: Timers,
    /// Whether every limit is tiny.
    pub tiny_limits: bool,
    /// The network.
    pub network: NetworkOptions,
    /// The disks.
    pub disk: DiskOptions,
    /// Chunks of state that the disk of their sender gave back damaged, in parts of a million.
    pub chunk_parts: u32,
    /// Whether writes and reads of a log may go to the log of another group.
    pub across_logs: bool,
    /// Whether writes that stray or are lost are dealt out op by op, and not group by group: two
    /// nodes may then each lack another record of one log.
    pub scattered: bool,
    /// Bytes at the end of a log that do not go bad, at least the last record: a torn tail and
    /// damage look alike there.
    pub rot_spares: u64,
    /// How wrong clocks are; zero for honest ones.
    pub clock_severity: u32,
    /// Faults.
    pub faults: FaultOptions,
    /// Mean time a crashed node is away.
    pub absence_mean: Nanos,
    /// Whether crashes may exceed what memory-only groups promise.
    pub correlated: bool,
    /// Whether topics are purged.
    pub purge: bool,
    /// Whether old messages go by age, by size and by request, and what that needs of topics.
    pub upkeep: bool,
    /// Whether streams and topics come and go.
    pub churn: bool,
    /// Whether there are consumer groups.
    pub groups: bool,
    /// Whether there are users beside the root user, with permissions and tokens.
    pub users: bool,
    /// Whether two clients share a client id and take the session from each other.
    pub twins: bool,
    /// Rare paths of the cores that are forced.
    pub knobs: Knobs,
    /// Faults that are left out, by class and number.
    pub skip: BTreeSet<(FaultClass, u64)>,
    /// A deliberate bug.
    pub mutation: Option<Mutation>,
    /// The number of an oracle whose objections are not heard: who else would object?
    pub silent: Option<String>,
    /// What was set by hand, in order.
    pub overrides: Vec<String>,
}

/// Which classes a profile allows: always, perhaps, or never.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Always,
    Perhaps,
    Never,
}

impl May {
    fn draw(self, prng: &mut Prng) -> bool {
        let coin = prng.chance(500_000);
        match self {
            Self::Always => true,
            Self::Perhaps => coin,
            Self::Never => false,
        }
    }
}

struct Classes {
    loss: bool,
    slow: bool,
    reset: bool,
    corrupt: bool,
    datagram: bool,
    partition: bool,
    clog: bool,
    clock: bool,
    crash: bool,
    pause: bool,
    disk_errors: bool,
    rot: bool,
    wipe: bool,
    absence: bool,
}

impl Classes {
    fn drawn(profile: Profile, prng: &mut Prng) -> Self {
        use May::{Always, Never, Perhaps};
        use Profile as P;
        let net = match profile {
            P::Calm | P::Clock => Never,
            _ => Perhaps,
        };
        let net_sure = if matches!(profile, P::Net | P::Lite | P::Decay) {
            Always
        } else {
            net
        };
        let crash = match profile {
            P::Crash | P::Correlated | P::Lite | P::Decay | P::Disk | P::Transfer | P::Phantom => {
                Always
            }
            P::All | P::Churn | P::Purge | P::Upkeep => Perhaps,
            _ => Never,
        };
        let disk = match profile {
            P::Disk => Always,
            P::All => Perhaps,
            _ => Never,
        };
        let long = match profile {
            P::Transfer => Always,
            P::All => Perhaps,
            _ => Never,
        };
        let clock = match profile {
            P::Clock => Always,
            P::All | P::Crash => Perhaps,
            _ => Never,
        };
        let pause = if crash == Never { Never } else { Perhaps };
        Self {
            loss: net_sure.draw(prng),
            slow: net.draw(prng),
            reset: net_sure.draw(prng),
            corrupt: net.draw(prng),
            datagram: net.draw(prng) && prng.chance(500_000),
            partition: net_sure.draw(prng),
            clog: net.draw(prng),
            clock: clock.draw(prng),
            crash: crash.draw(prng),
            pause: pause.draw(prng),
            disk_errors: disk.draw(prng),
            rot: disk.draw(prng),
            wipe: long.draw(prng),
            absence: long.draw(prng),
        }
    }
}

impl Options {
    /// Draws a run.
    #[must_use]
    pub fn drawn(seed: u64, profile: Profile) -> Self {
        Self::drawn_from(&Streams::new(seed), seed, profile)
    }

    /// Draws a run from streams that may be those of an earlier one.
    #[must_use]
    pub fn drawn_from(streams: &Streams, seed: u64, profile: Profile) -> Self {
        let mut prng = streams.stream("options/classes");
        let classes = Classes::drawn(profile, &mut prng);
        let mut prng = streams.stream("options/strengths");
        let network = draw_network(&classes, &mut prng);
        let disk = draw_disk(&classes, &mut prng);
        let faults = draw_faults(&classes, &mut prng);
        let mut prng = streams.stream("options/shape");
        let mut options = Self {
            seed,
            profile,
            machine: MachineKind::Planes,
            replicas: [3, 3, 3, 3, 5, 2, 1, 4, 6][prng.weighted(&[8, 8, 8, 8, 4, 3, 2, 2, 1])],
            partitions: prng.between(1, 4) as u32,
            clients: prng.between(1, 5) as u32,
            requests: prng.between(100, 400),
            think_mean: prng.between(5, 120) * MILLISECOND,
            safety_min: prng.between(5, 20) * SECOND,
            safety_max: 60 * SECOND,
            liveness_max: 120 * SECOND,
            timers: draw_timers(&mut prng),
            tiny_limits: prng.chance(500_000),
            network,
            disk,
            chunk_parts: 0,
            across_logs: false,
            scattered: false,
            rot_spares: 16 * crate::disk::SECTOR,
            clock_severity: if classes.clock {
                prng.between(1, 4) as u32
            } else {
                0
            },
            faults,
            absence_mean: if classes.absence { 10 * SECOND } else { SECOND },
            correlated: profile == Profile::Correlated,
            purge: profile == Profile::Purge,
            upkeep: profile == Profile::Upkeep,
            churn: profile == Profile::Churn,
            groups: false,
            users: false,
            twins: false,
            knobs: Knobs::default(),
            skip: BTreeSet::new(),
            mutation: None,
            silent: None,
            overrides: Vec::new(),
        };
        let mut prng = streams.stream("options/sessions");
        options.groups = prng.chance(600_000);
        options.users = prng.chance(400_000);
        options.twins = prng.chance(200_000);
        match profile {
            Profile::Calm => options.safety_min = 0,
            Profile::Upkeep => {
                options.purge = seed.is_multiple_of(2);
                options.requests *= 2;
            }
            Profile::Transfer => {
                // Small logs are left behind soon, and one may be wiped only if others are many.
                options.tiny_limits = true;
                options.replicas = options.replicas.max(3);
                options.safety_min = 30 * SECOND;
                options.requests *= 3;
            }
            _ => {}
        }
        if matches!(profile, Profile::Lite | Profile::Decay) {
            options.machine = MachineKind::Bare;
            options.replicas = 3;
        }
        if profile == Profile::Decay {
            let mut prng = streams.stream("options/decay");
            options.faults.decay = Some(prng.between(500, 4_000) * MILLISECOND);
            // Several prepares of a group must be in flight, or none is above the commit point.
            options.clients = prng.between(4, 10) as u32;
            options.think_mean = prng.between(1, 10) * MILLISECOND;
            options.partitions = 2;
        }
        later::draw(&mut options, streams);
        options
    }
}

fn draw_timers(prng: &mut Prng) -> Timers {
    if prng.chance(750_000) {
        return Timers::tiny();
    }
    Timers {
        prepare: 10,
        commit: 20,
        commit_idle: 20,
        heartbeat: 120,
        view_change_retransmit: 20,
        view_change_status: 150,
        request_start_view: 30,
    }
}

fn draw_network(classes: &Classes, prng: &mut Prng) -> NetworkOptions {
    let mut network = NetworkOptions::calm();
    network.delay_mean = prng.between(50, 3000) * MICROSECOND;
    network.redial_mean = prng.between(20, 300) * MILLISECOND;
    let strength = |prng: &mut Prng, most: u64| prng.between(1, most) as u32;
    network.datagram = classes.datagram;
    if classes.loss {
        network.loss_parts = strength(prng, 100_000);
    }
    if classes.slow {
        network.slow_parts = strength(prng, 20_000);
    }
    if classes.reset {
        network.reset_parts = strength(prng, 5_000);
    }
    if classes.corrupt {
        network.corrupt_parts = strength(prng, 20_000);
    }
    if classes.datagram {
        network.replay_parts = strength(prng, 50_000);
    }
    if prng.chance(250_000) {
        network.queue_max = prng.between(32, 256) as usize;
    }
    network
}

fn draw_disk(classes: &Classes, prng: &mut Prng) -> DiskOptions {
    let mut disk = DiskOptions::calm();
    disk.latency_mean = prng.between(20, 500) * MICROSECOND;
    disk.sync_mean = prng.between(50, 8_000) * MICROSECOND;
    if prng.chance(250_000) {
        disk.slow_parts = prng.between(1, 10_000) as u32;
    }
    if classes.disk_errors {
        disk.read_error_parts = prng.between(1, 5_000) as u32;
        disk.write_error_parts = prng.between(1, 1_000) as u32;
        disk.sync_error_parts = prng.between(1, 500) as u32;
    }
    disk
}

fn draw_faults(classes: &Classes, prng: &mut Prng) -> FaultOptions {
    let mut mean = |exists: bool, low: u64, high: u64| {
        let drawn = prng.between(low, high) * MILLISECOND;
        exists.then_some(drawn)
    };
    // Who is away for long must not be joined by all others at once.
    let (soonest, latest) = if classes.absence {
        (6_000, 20_000)
    } else {
        (500, 8_000)
    };
    FaultOptions {
        crash: mean(classes.crash, soonest, latest),
        pause: mean(classes.pause, 500, 8_000),
        partition: mean(classes.partition, 500, 8_000),
        clog: mean(classes.clog, 200, 4_000),
        reset: mean(classes.reset, 200, 4_000),
        rot: mean(classes.rot, 200, 4_000),
        wipe: mean(classes.wipe, 3_000, 10_000),
        stop: mean(classes.crash, 2_000, 20_000),
        decay: None,
        ..FaultOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_run_again_and_seeds_differ() {
        let drawn = |seed| Options::drawn(seed, Profile::All);
        assert_eq!(drawn(1), drawn(1));
        assert!((2..20).all(|seed| drawn(seed) != drawn(1)));
    }

    #[test]
    fn calm_has_no_faults_and_names_are_read_back() {
        for seed in 0..50 {
            let options = Options::drawn(seed, Profile::Calm);
            assert_eq!(options.faults, FaultOptions::default());
            assert_eq!(options.network.loss_parts + options.network.reset_parts, 0);
        }
        for (profile, name) in Profile::NAMED {
            assert_eq!(Profile::from_name(name), Some(profile));
            assert_eq!(profile.name(), name);
        }
    }

    #[test]
    fn every_class_is_drawn_and_left_out_in_some_runs_of_all() {
        let runs: Vec<_> = (0..200)
            .map(|seed| Options::drawn(seed, Profile::All))
            .collect();
        let has = |test: &dyn Fn(&Options) -> bool| {
            let count = runs.iter().filter(|run| test(run)).count();
            assert!((20..180).contains(&count), "{count} of 200");
        };
        has(&|run| run.network.loss_parts > 0);
        has(&|run| run.network.datagram);
        has(&|run| run.faults.crash.is_some());
        has(&|run| run.faults.partition.is_some());
        has(&|run| run.faults.rot.is_some());
        has(&|run| run.clock_severity > 0);
    }
}
