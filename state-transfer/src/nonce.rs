//! Attempt nonces: 128 bits from a seeded generator, never zero.
//!
//! A nonce ties descriptor and chunks to one attempt, nothing more: the connections are
//! authenticated. What matters is that it does not repeat, hence a seed that the owner draws anew
//! at each boot.

use biplane_vsr::Prng;

/// A source of nonces.
#[derive(Clone, Debug)]
pub(crate) struct Nonces {
    prng: Prng,
}

impl Nonces {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
        }
    }

    /// The next nonce.
    pub(crate) fn draw(&mut self) -> u128 {
        loop {
            let high = u128::from(self.prng.next_u64());
            let nonce = high << 64 | u128::from(self.prng.next_u64());
            if nonce != 0 {
                return nonce;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_distinct_and_reproducible() {
        let draw = |seed| {
            let mut nonces = Nonces::new(seed);
            (0..1_000).map(|_| nonces.draw()).collect::<Vec<_>>()
        };
        let first = draw(7);
        assert_eq!(first, draw(7));
        assert_ne!(first, draw(8));
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), first.len());
        assert!(!distinct.contains(&0));
    }
}
