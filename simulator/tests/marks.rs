//! Rare things happen: over a small sweep of the profiles each mark is reached as often as its
//! floor says. A mark that is never reached is a rule that nobody tests, or a fault that is wired
//! to nothing.
//!
//! `SIMULATOR_MARKS=n` runs n times as many seeds, with floors n times as high.

use biplane_simulator::coverage::Counters;
use biplane_simulator::{Profile, Verdict, report};

/// Seeds of a profile, with settings that make more happen in less time.
struct Part {
    profile: Profile,
    settings: &'static [&'static str],
    first: u64,
    seeds: u64,
}

const PARTS: &[Part] = &[
    Part {
        profile: Profile::Lite,
        settings: &[],
        first: 1,
        seeds: 12,
    },
    // Rot that is drawn (`disk`) rarely hits: the atlas spares the ends of logs. Here it does.
    Part {
        profile: Profile::Decay,
        settings: &[],
        first: 1,
        seeds: 4,
    },
    Part {
        profile: Profile::Crash,
        settings: &["replicas=3", "groups=true", "twins=true"],
        first: 1,
        seeds: 4,
    },
    Part {
        profile: Profile::Disk,
        settings: &["replicas=3"],
        first: 1,
        seeds: 3,
    },
    Part {
        profile: Profile::Transfer,
        settings: &[
            "replicas=3",
            "groups=true",
            "users=true",
            "clients=8",
            "think=5",
            "requests=1500",
            "wipe=4000",
        ],
        first: 1,
        seeds: 2,
    },
    Part {
        profile: Profile::Purge,
        settings: &["replicas=3", "groups=true"],
        first: 1,
        seeds: 2,
    },
    Part {
        profile: Profile::Crash,
        settings: &[
            "replicas=3",
            "datagram=false",
            "halfopen=400",
            "swizzle=800",
            "flap=2000",
            "cutoff=500",
            "slownode=800",
        ],
        first: 1,
        seeds: 4,
    },
    Part {
        profile: Profile::Disk,
        settings: &["replicas=3", "full=1000", "misdirect=200"],
        first: 1,
        seeds: 4,
    },
    Part {
        profile: Profile::Phantom,
        settings: &["replicas=3"],
        first: 1,
        seeds: 3,
    },
    Part {
        profile: Profile::Crash,
        settings: &[
            "replicas=3",
            "knobs=buffers+timeouts+chunks+ranges+reads+ahead",
        ],
        first: 1,
        seeds: 2,
    },
];

/// What must have happened at least so often.
const FLOORS: &[(&str, u64)] = &[
    ("view changes begun", 20),
    ("views started with uncommitted ops", 2),
    ("primaries deposed with work in flight", 1),
    ("suffixes truncated", 1),
    ("suffixes cut by a nack quorum", 1),
    ("replicas readmitted", 10),
    ("all nodes down at once", 1),
    ("sent: RepairPrepare", 20),
    ("sent: RangeEvicted", 1),
    ("transfers installed: metadata", 1),
    ("transfers installed: partition", 1),
    ("disk changes torn", 5),
    ("disk sectors damaged", 1),
    ("disk reads of damaged sectors", 1),
    ("disk errors", 1),
    ("sessions fenced", 1),
    ("sessions evicted", 1),
    ("consumers joined", 5),
    ("revocations completed", 1),
    ("committed: purges", 1),
    ("connections broken", 5),
    ("frames lost", 5),
    ("frames corrupted", 1),
    ("frames replayed", 1),
    ("cores smaller than the cluster", 1),
    ("fault: halfopen", 20),
    ("frames into half-open connections", 50),
    ("fault: swizzle", 10),
    ("frames delayed by a swizzle", 50),
    ("fault: flap", 4),
    ("frames cut by flapping", 20),
    ("fault: cutoff", 20),
    ("requests cut", 5),
    ("answers cut", 5),
    ("fault: slownode", 10),
    ("inputs that waited for a slow node", 100),
    ("ticks that a slow node missed", 5),
    ("fault: full", 10),
    ("disk requests refused for want of room", 20),
    ("fault: misdirect", 5),
    ("disk reads of misdirected writes", 1),
    ("disk reads that were misdirected", 1),
    ("fault: lostwrite", 5),
    ("disk reads of lost writes", 2),
];

#[test]
fn every_mark_is_reached_as_often_as_its_floor_says() {
    let times = std::env::var("SIMULATOR_MARKS")
        .map_or(1, |text| text.parse().expect("SIMULATOR_MARKS is a number"));
    let mut counters = Counters::default();
    let mut failed = Vec::new();
    for part in PARTS {
        let settings: Vec<String> = part.settings.iter().map(|it| (*it).to_owned()).collect();
        for seed in part.first..part.first + part.seeds * times {
            let outcome = biplane_simulator::run(seed, part.profile, &settings, false);
            let outcome = outcome.expect("settings that fit");
            counters.merge(&outcome.counters);
            if !matches!(outcome.verdict, Verdict::Passed | Verdict::Vacuous(_)) {
                let (line, again) = (report::verdict_line(&outcome), report::reproduce(&outcome));
                failed.push(format!("{line}\n  {again}"));
            }
        }
    }
    for &(name, floor) in FLOORS {
        let count = counters.get(name);
        println!("{count:>8} of {:>5} {name}", floor * times);
        if count < floor * times {
            failed.push(format!("{name}: {count} times, {} are due", floor * times));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
