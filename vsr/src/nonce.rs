//! Nonces: 128 bits from a seeded generator, never zero.
//!
//! A nonce tells the frames of one repair session, or of one attempt at a state transfer, from
//! those of another, nothing more: the connections are authenticated. What matters is that it
//! does not repeat, hence a seed that the owner draws anew at each boot.

use crate::prng::Prng;

/// A source of nonces for the receiving sides of repair and state transfer (chapter 04).
#[derive(Clone, Debug)]
pub struct Nonces {
    prng: Prng,
}

impl Nonces {
    /// Nonces that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed),
        }
    }

    /// The next nonce.
    pub fn draw(&mut self) -> u128 {
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
