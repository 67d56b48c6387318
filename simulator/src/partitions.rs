//! Who is cut off from whom, and the shapes in which cuts come.

use crate::prng::Prng;

/// The directed pairs that nothing passes between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuts {
    count: u8,
    cut: Vec<bool>,
}

/// The shape of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Two sides of drawn sizes.
    UniformSize,
    /// Each node chooses its side by coin.
    Coin,
    /// One node is alone.
    IsolateOne,
    /// The primary is alone.
    IsolatePrimary,
    /// Two halves that share one node.
    Bridge,
    /// Each node hears its neighbours only.
    Ring,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::UniformSize,
        Self::Coin,
        Self::IsolateOne,
        Self::IsolatePrimary,
        Self::Bridge,
        Self::Ring,
    ];
}

impl Cuts {
    /// Everyone hears everyone.
    #[must_use]
    pub fn none(count: u8) -> Self {
        Self {
            count,
            cut: vec![false; usize::from(count) * usize::from(count)],
        }
    }

    /// Whether nothing passes in this direction.
    #[must_use]
    pub fn is_cut(&self, from: u8, to: u8) -> bool {
        self.cut[usize::from(from) * usize::from(self.count) + usize::from(to)]
    }

    /// Whether anything is cut at all.
    #[must_use]
    pub fn any(&self) -> bool {
        self.cut.contains(&true)
    }

    /// Cuts one direction.
    pub fn cut(&mut self, from: u8, to: u8) {
        self.cut[usize::from(from) * usize::from(self.count) + usize::from(to)] = from != to;
    }

    /// Cuts between nodes of different sides; `None` stands with both.
    fn split(count: u8, side: &[Option<bool>], one_way: Option<bool>) -> Self {
        let mut cuts = Self::none(count);
        for from in 0..count {
            for to in 0..count {
                let (Some(from_side), Some(to_side)) =
                    (side[usize::from(from)], side[usize::from(to)])
                else {
                    continue;
                };
                let crosses = from_side != to_side;
                if crosses && one_way.is_none_or(|direction| from_side == direction) {
                    cuts.cut(from, to);
                }
            }
        }
        cuts
    }

    /// A partition of a drawn shape. `primary` is the node that shapes aim at.
    #[must_use]
    pub fn drawn(count: u8, shape: Shape, one_way: bool, primary: u8, prng: &mut Prng) -> Self {
        let direction = prng.chance(500_000);
        let one_way = one_way.then_some(direction);
        let everyone = usize::from(count);
        let mut side = vec![Some(false); everyone];
        match shape {
            Shape::UniformSize => {
                let mut order: Vec<usize> = (0..everyone).collect();
                prng.shuffle(&mut order);
                let size = prng.between(1, (everyone as u64 - 1).max(1)) as usize;
                order[..size]
                    .iter()
                    .for_each(|&node| side[node] = Some(true));
            }
            Shape::Coin => {
                side.iter_mut()
                    .for_each(|side| *side = Some(prng.chance(500_000)));
            }
            Shape::IsolateOne => side[prng.index(everyone)] = Some(true),
            Shape::IsolatePrimary => side[usize::from(primary) % everyone] = Some(true),
            Shape::Bridge => {
                let mut order: Vec<usize> = (0..everyone).collect();
                prng.shuffle(&mut order);
                let half = everyone.div_ceil(2);
                order[half..]
                    .iter()
                    .for_each(|&node| side[node] = Some(true));
                side[order[0]] = None;
            }
            Shape::Ring => return Self::ring(count),
        }
        Self::split(count, &side, one_way)
    }

    fn ring(count: u8) -> Self {
        let mut cuts = Self::none(count);
        for from in 0..count {
            for to in 0..count {
                let apart = from.abs_diff(to);
                if apart > 1 && apart < count - 1 {
                    cuts.cut(from, to);
                }
            }
        }
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_primaries_hear_nobody_and_the_rest_stay_together() {
        let cuts = Cuts::drawn(3, Shape::IsolatePrimary, false, 1, &mut Prng::new(1));
        assert!(cuts.is_cut(0, 1) && cuts.is_cut(1, 2) && cuts.is_cut(2, 1));
        assert!(!cuts.is_cut(0, 2) && !cuts.is_cut(2, 0));
    }

    #[test]
    fn one_way_cuts_leave_the_other_direction() {
        for seed in 0..20 {
            let cuts = Cuts::drawn(3, Shape::IsolateOne, true, 0, &mut Prng::new(seed));
            let pairs = [(0, 1), (0, 2), (1, 2)];
            let both = pairs
                .iter()
                .filter(|&&(a, b)| cuts.is_cut(a, b) && cuts.is_cut(b, a));
            assert_eq!(both.count(), 0);
            assert!(cuts.any());
        }
    }

    #[test]
    fn a_bridge_node_hears_both_sides() {
        let cuts = Cuts::drawn(5, Shape::Bridge, false, 0, &mut Prng::new(3));
        let free = (0..5).filter(|&node| (0..5).all(|peer| !cuts.is_cut(node, peer)));
        assert_eq!(free.count(), 1);
    }

    #[test]
    fn a_ring_of_five_cuts_five_pairs() {
        let cuts = Cuts::drawn(5, Shape::Ring, false, 0, &mut Prng::new(3));
        let pairs = (0..5u8).flat_map(|a| (0..5u8).map(move |b| (a, b)));
        assert_eq!(pairs.filter(|&(a, b)| cuts.is_cut(a, b)).count(), 10);
        assert!(!cuts.is_cut(0, 4) && !cuts.is_cut(3, 4));
    }
}
