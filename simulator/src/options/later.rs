//! Classes of faults, and forced paths, that only later seeds draw.
//!
//! Seeds that tests and pages name are below [`FIRST`], and keep the run they always had; all
//! others, every commit hash among them, may have these besides. A class that one profile is
//! about is drawn for all of its seeds.

use super::{Options, Profile};
use crate::knobs::Knobs;
use crate::prng::Streams;
use crate::time::{MILLISECOND, Nanos, SECOND};

/// The first seed that draws from here.
pub(super) const FIRST: u64 = 1_000_001;

/// How often a class exists in runs that may have it, in parts of a million.
const OFTEN: u32 = 300_000;

/// Adds to what was drawn.
pub(super) fn draw(options: &mut Options, streams: &Streams) {
    use Profile as P;
    let profile = options.profile;
    if profile == P::Phantom {
        let mut prng = streams.stream("options/phantom");
        options.faults.lost_write = Some(prng.between(100, 1_000) * MILLISECOND);
        // With short logs most of what goes is not read again.
        options.tiny_limits = false;
        options.replicas = options.replicas.max(3);
        options.clients = options.clients.max(3);
        options.requests = options.requests.max(250);
        options.safety_min = options.safety_min.max(25 * SECOND);
    }
    if options.seed < FIRST {
        return;
    }
    let mut prng = streams.stream("options/later");
    let net = matches!(profile, P::Net | P::Lite | P::Crash | P::All);
    let slow = net || profile == P::Disk;
    let disk = matches!(profile, P::Disk | P::All);
    let mut mean = |may: bool, low: u64, high: u64| -> Option<Nanos> {
        let (exists, time) = (prng.chance(OFTEN), prng.between(low, high));
        (may && exists).then_some(time * MILLISECOND)
    };
    let faults = &mut options.faults;
    faults.half_open = mean(net, 300, 4_000);
    faults.swizzle = mean(net, 500, 6_000);
    faults.flap = mean(net, 1_000, 8_000);
    faults.cutoff = mean(net, 300, 4_000);
    faults.slow_node = mean(slow, 500, 6_000);
    faults.full = mean(disk, 1_000, 8_000);
    faults.misdirect = mean(disk, 200, 4_000);
    if profile == P::Decay {
        let mut prng = streams.stream("options/later/decay");
        // A record is exposed for as long as its group is busy: with less, one run in four never
        // has one at a moment at which its node may go down.
        options.faults.decay = Some(prng.between(200, 500) * MILLISECOND);
        options.clients = prng.between(10, 16) as u32;
        options.think_mean = prng.between(1, 5) * MILLISECOND;
        options.requests = options.requests.max(prng.between(300, 600));
    }
    if profile != P::Calm {
        options.knobs = Knobs::drawn(&mut streams.stream("options/knobs"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::FaultOptions;

    fn named(options: &Options) -> FaultOptions {
        let faults = options.faults;
        FaultOptions {
            half_open: None,
            swizzle: None,
            flap: None,
            cutoff: None,
            slow_node: None,
            full: None,
            misdirect: None,
            lost_write: None,
            ..faults
        }
    }

    #[test]
    fn seeds_that_are_named_somewhere_draw_nothing_of_this() {
        for (profile, name) in Profile::NAMED {
            for seed in (1..400).chain(999_900..FIRST) {
                let options = Options::drawn(seed, profile);
                assert_eq!(options.knobs, Knobs::default(), "{name} {seed}");
                let is_phantom = profile == Profile::Phantom;
                assert_eq!(options.faults == named(&options), !is_phantom);
            }
        }
    }

    #[test]
    fn later_runs_of_decay_are_busier() {
        for seed in 1..200 {
            let drawn = [seed, FIRST + seed].map(|seed| Options::drawn(seed, Profile::Decay));
            let [named, later] = drawn;
            assert!(named.clients <= 10 && later.clients >= 10);
            assert!(named.faults.decay >= later.faults.decay);
        }
    }

    #[test]
    fn each_class_is_drawn_and_left_out_in_later_runs_of_all() {
        let runs: Vec<_> = (FIRST..FIRST + 200)
            .map(|seed| Options::drawn(seed, Profile::All))
            .collect();
        let has = |test: &dyn Fn(&Options) -> bool| {
            let count = runs.iter().filter(|run| test(run)).count();
            assert!((20..120).contains(&count), "{count} of 200");
        };
        has(&|run| run.faults.half_open.is_some());
        has(&|run| run.faults.swizzle.is_some());
        has(&|run| run.faults.flap.is_some());
        has(&|run| run.faults.cutoff.is_some());
        has(&|run| run.faults.slow_node.is_some());
        has(&|run| run.faults.full.is_some());
        has(&|run| run.faults.misdirect.is_some());
        for (knob, _) in Knobs::NAMED {
            has(&|run| run.knobs.has(knob));
        }
        assert!(runs.iter().all(|run| run.faults.lost_write.is_none()));
    }
}
