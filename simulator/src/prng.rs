//! Chance: one small generator, and independent streams of it split off a seed by label.
//!
//! Every concern (a link, a disk, a client, the scheduler) draws from a stream of its own, so a
//! new draw in one place leaves all others as they were. Only integers are used: a run is the
//! same on every machine and at every optimisation level.

use biplane_wire::xxh3;

use crate::tape::{Recording, Tape, Track};

/// Parts of a million, the unit of every probability here.
pub const MILLION: u32 = 1_000_000;

/// A source of draws: a small generator (xoshiro256**), seeded and never reseeded, or what was
/// drawn in an earlier run.
#[derive(Clone, Debug)]
pub struct Prng {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Generated(Generator),
    Kept(Generator, Track),
    Replayed(Track),
}

#[derive(Clone, Debug)]
struct Generator {
    state: [u64; 4],
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut mixer = seed;
        let state = std::array::from_fn(|_| {
            mixer = mixer.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mixer;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Self { state }
    }

    fn bits(&mut self) -> u64 {
        #[cfg(test)]
        assert!(!tests::FORBIDDEN.get(), "a generator is asked");
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        // -log2 of a uniform number: leading zeros, and the mantissa read as a straight line.
        let bits = self.bits() | 1;
        let zeros = bits.leading_zeros().min(22);
        let mantissa = (bits << zeros) >> 32 & 0x7fff_ffff;
        let log2 = (u64::from(zeros) << 31) + (0x8000_0000 - mantissa);
        let scaled = u128::from(log2) * u128::from(mean) * 693 / 1000;
        ((scaled >> 31) as u64).min(mean.saturating_mul(16))
    }
}

impl Prng {
    /// A generator whose state is expanded from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            source: Source::Generated(Generator::new(seed)),
        }
    }

    /// Every draw goes through here; what comes of it is at most `most`.
    fn draw(&mut self, most: u64, generate: impl FnOnce(&mut Generator) -> u64) -> u64 {
        match &mut self.source {
            Source::Generated(generator) => generate(generator),
            Source::Kept(generator, track) => {
                let value = generate(generator);
                track.keep(value);
                value
            }
            Source::Replayed(track) => track.next(most),
        }
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.draw(u64::MAX, Generator::bits)
    }

    /// Uniform in `0..bound`; zero for an empty range.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw(bound.saturating_sub(1), |generator| generator.below(bound))
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.bits(),
        }
    }

    /// Uniform index into a list of `len` entries.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with a probability of `parts` in a million.
    pub fn chance(&mut self, parts: u32) -> bool {
        let taken =
            |generator: &mut Generator| generator.below(u64::from(MILLION)) < u64::from(parts);
        parts > 0 && self.draw(1, |generator| u64::from(taken(generator))) == 1
    }

    /// One of the entries; `None` of an empty list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        if list.is_empty() {
            None
        } else {
            list.get(self.index(list.len()))
        }
    }

    /// An index drawn with the given weights; zero when all are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = self.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// Roughly exponential with the given mean, capped at sixteen means.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        self.draw(mean.saturating_mul(16), |generator| {
            generator.exponential(mean)
        })
    }

    /// Puts the list in a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.index(last + 1);
            list.swap(last, other);
        }
    }
}

/// The streams of one seed.
#[derive(Clone, Debug)]
pub struct Streams {
    seed: u64,
    tape: Option<Tape>,
}

impl Streams {
    /// The streams of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, tape: None }
    }

    /// The streams of `seed`, and everything drawn from them is written down.
    #[must_use]
    pub fn recorded(seed: u64) -> Self {
        let tape = Some(Tape::blank());
        Self { seed, tape }
    }

    /// What was drawn in an earlier run. No seed and no generator are behind these.
    #[must_use]
    pub fn replayed(recording: &Recording) -> Self {
        let tape = Some(Tape::of(recording));
        Self { seed: 0, tape }
    }

    /// What was drawn in an earlier run or one like it: where this one asks for other draws it gets
    /// the nearest that fit, and what it got is recorded.
    #[must_use]
    pub fn bent(recording: &Recording) -> Self {
        let tape = Some(Tape::bent(recording));
        Self { seed: 0, tape }
    }

    /// The tape that is written or read.
    #[must_use]
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }

    /// Whether a replay asked for what had not been drawn.
    #[must_use]
    pub fn is_misfit(&self) -> bool {
        self.tape.as_ref().is_some_and(Tape::is_misfit)
    }

    /// A number that depends on the seed and the label alone.
    #[must_use]
    pub fn number(&self, label: &str) -> u64 {
        let Some(tape) = &self.tape else {
            return self.hash(label);
        };
        let track = tape.track(&format!("number/{label}"));
        if tape.is_read() {
            return track.next(u64::MAX);
        }
        let number = self.hash(label);
        track.keep(number);
        number
    }

    fn hash(&self, label: &str) -> u64 {
        let mut bytes = self.seed.to_le_bytes().to_vec();
        bytes.extend_from_slice(label.as_bytes());
        xxh3(&bytes)
    }

    /// The stream of a label.
    #[must_use]
    pub fn stream(&self, label: &str) -> Prng {
        let generator = || Generator::new(self.hash(label));
        let source = match &self.tape {
            None => Source::Generated(generator()),
            Some(tape) if tape.is_read() => Source::Replayed(tape.track(label)),
            Some(tape) => Source::Kept(generator(), tape.track(label)),
        };
        Prng { source }
    }

    /// The stream of a label and a number.
    #[must_use]
    pub fn numbered(&self, label: &str, number: u64) -> Prng {
        self.stream(&format!("{label}/{number}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Set while a replay must do without any generator.
        pub(crate) static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn what_is_replayed_was_drawn() {
        let draw = |streams: &Streams| {
            let mut prng = streams.numbered("a", 1);
            let mut list = [1, 2, 3, 4, 5];
            prng.shuffle(&mut list);
            let chances: Vec<bool> = (0..20).map(|_| prng.chance(300_000)).collect();
            let weighted = prng.weighted(&[3, 1, 4]);
            let tail = (prng.exponential(1000), prng.bits(), prng.between(4, 9));
            (list, chances, weighted, tail, streams.number("a"))
        };
        let recorded = Streams::recorded(7);
        let drawn = draw(&recorded);
        assert_eq!(drawn, draw(&Streams::new(7)), "keeping draws changes none");
        let recording = recorded.tape().map(Tape::recording).unwrap_or_default();
        let replayed = Streams::replayed(&recording);
        FORBIDDEN.set(true);
        let again = draw(&replayed);
        FORBIDDEN.set(false);
        assert_eq!(drawn, again);
        assert!(!replayed.is_misfit());
        replayed.numbered("a", 2).bits();
        assert!(replayed.is_misfit());
    }

    #[test]
    fn streams_of_different_labels_differ_and_repeat() {
        let streams = Streams::new(7);
        assert_eq!(streams.stream("a").bits(), streams.stream("a").bits());
        assert_ne!(streams.stream("a").bits(), streams.stream("b").bits());
        assert_ne!(Streams::new(8).number("a"), streams.number("a"));
    }

    #[test]
    fn exponential_has_roughly_its_mean_and_a_tail() {
        let mut prng = Prng::new(1);
        let draws: Vec<u64> = (0..20_000).map(|_| prng.exponential(1000)).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((900..1100).contains(&mean), "mean {mean}");
        assert!(draws.iter().any(|&draw| draw > 5000));
        assert!(draws.iter().all(|&draw| draw <= 16_000));
    }

    #[test]
    fn weighted_draws_follow_their_weights() {
        let mut prng = Prng::new(2);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[prng.weighted(&[1, 0, 3])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!(counts[2] > 2 * counts[0]);
    }

    #[test]
    fn bounds_hold() {
        let mut prng = Prng::new(3);
        assert_eq!(prng.below(0), 0);
        assert!((0..1000).all(|_| (3..=5).contains(&prng.between(3, 5))));
        assert!((0..1000).all(|_| !prng.chance(0)));
        assert!((0..1000).all(|_| prng.chance(MILLION)));
    }
}
