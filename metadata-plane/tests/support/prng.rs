//! A small seeded generator for tests (xorshift with a multiplier).

/// The generator.
pub struct Prng(u64);

impl Prng {
    /// From a seed; zero is replaced.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A small number as u32.
    pub fn small(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }
}

/// The seed of a random test: from `BIPLANE_TEST_SEED`, else `fallback`; printed either way.
pub fn seed(fallback: u64) -> u64 {
    let seed = std::env::var("BIPLANE_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(fallback);
    println!("seed {seed}; rerun with BIPLANE_TEST_SEED={seed}");
    seed
}
