//! A small seeded generator: Xoshiro256+ filled by SplitMix64.
//!
//! Its only use is the jitter of retransmissions, so quality hardly matters; what matters is
//! that the same seed gives the same run.

/// Xoshiro256+.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// A generator that is a function of `seed` alone. Every seed is a good one.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut mixer = seed;
        let mut state = [0; 4];
        let mut index = 0;
        while index < state.len() {
            mixer = mixer.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = mixer;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state[index] = mixed ^ (mixed >> 31);
            index += 1;
        }
        Self { state }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s0.wrapping_add(s3);
        let s2 = s2 ^ s0;
        let s3 = s3 ^ s1;
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number in `0..=max`. The slight bias of the multiplication is of no consequence here.
    pub const fn up_to(&mut self, max: u64) -> u64 {
        let wide = self.next_u64() as u128 * (max as u128 + 1);
        (wide >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let (mut one, mut other) = (Prng::new(7), Prng::new(7));
        for _ in 0..100 {
            assert_eq!(one.next_u64(), other.next_u64());
        }
        assert_ne!(Prng::new(7).next_u64(), Prng::new(8).next_u64());
    }

    #[test]
    fn step_is_that_of_the_published_algorithm() {
        // One step by hand from the state 1, 2, 3, 4.
        let mut prng = Prng {
            state: [1, 2, 3, 4],
        };
        assert_eq!(prng.next_u64(), 5);
        assert_eq!(
            prng.state,
            [
                1 ^ 4 ^ 2,
                2 ^ 3 ^ 1,
                3 ^ 1 ^ (2 << 17),
                (4_u64 ^ 2).rotate_left(45)
            ]
        );
    }

    #[test]
    fn numbers_stay_within_the_bound_and_reach_it() {
        let mut prng = Prng::new(1);
        let mut seen = [false; 6];
        for _ in 0..1000 {
            seen[usize::try_from(prng.up_to(5)).expect("small")] = true;
        }
        assert!(seen.iter().all(|hit| *hit));
        assert_eq!(prng.up_to(0), 0);
    }
}
