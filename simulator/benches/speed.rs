//! How fast runs are: virtual seconds, committed ops and steps for each second of one core, with
//! all oracles on, and how long a seed takes.
//!
//! `cargo bench -p biplane-simulator` measures; with the tests each scene is run for one seed, so
//! that none rots. Each line ends with a digest of the traces: the same seeds did the same work.

use std::time::Instant;

use biplane_simulator::{Profile, Verdict, report};

/// Runs of one kind.
struct Scene {
    name: &'static str,
    profile: Profile,
    settings: &'static [&'static str],
    seeds: u64,
}

const SCENES: [Scene; 5] = [
    Scene {
        name: "lite, as drawn",
        profile: Profile::Lite,
        settings: &[],
        seeds: 60,
    },
    // Nothing is asked for but a little: what time alone costs.
    Scene {
        name: "lite, idle",
        profile: Profile::Lite,
        settings: &[
            "clients=1",
            "think=20000",
            "requests=1000000",
            "partition=0",
            "crash=0",
            "reset=0",
            "stop=0",
            "pause=0",
        ],
        seeds: 20,
    },
    Scene {
        name: "lite, under load",
        profile: Profile::Lite,
        settings: &["clients=8", "think=2", "requests=4000"],
        seeds: 20,
    },
    Scene {
        name: "calm planes, under load",
        profile: Profile::Calm,
        settings: &["replicas=3", "clients=8", "think=2", "requests=4000"],
        seeds: 10,
    },
    Scene {
        name: "all, as drawn",
        profile: Profile::All,
        settings: &[],
        seeds: 60,
    },
];

impl Scene {
    fn run(&self, measures: bool) {
        let mut settings: Vec<String> = self.settings.iter().map(|it| (*it).to_owned()).collect();
        let seeds = if measures { self.seeds } else { 1 };
        if !measures {
            settings.push("requests=100".to_owned());
        }
        let (mut times, mut digest, mut failed) = (Vec::new(), 0_u64, 0);
        let (mut ended, mut ops, mut steps) = (0, 0, 0);
        for seed in 1..=seeds {
            let start = Instant::now();
            let outcome = biplane_simulator::run(seed, self.profile, &settings, false);
            let outcome = outcome.expect("settings that fit");
            times.push(start.elapsed().as_secs_f64());
            digest = digest.rotate_left(1) ^ outcome.trace;
            ended += outcome.ended;
            ops += outcome.counters.get("ops committed");
            steps += outcome.steps;
            let good = matches!(outcome.verdict, Verdict::Passed | Verdict::Vacuous(_));
            failed += u64::from(!good);
        }
        let seconds: f64 = times.iter().sum();
        let rate = |count: u64| count as f64 / seconds;
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        let virtual_seconds = ended as f64 / 1e9;
        println!(
            "{:<24} {seeds:>5} {failed:>6} {:>14.0} {:>9.0} {:>11.0} {median:>8.3} {most:>8.3}  \
             {digest:016x}",
            self.name,
            virtual_seconds / seconds,
            rate(ops),
            rate(steps),
        );
    }
}

fn main() {
    report::quiet_panics();
    // Cargo says so when it is asked to measure.
    let measures = std::env::args().any(|argument| argument == "--bench");
    println!(
        "{:<24} {:>5} {:>6} {:>14} {:>9} {:>11} {:>8} {:>8}  digest",
        "scene",
        "seeds",
        "failed",
        "virtual s per s",
        "ops per s",
        "steps per s",
        "median s",
        "most s"
    );
    for scene in SCENES {
        scene.run(measures);
    }
}
