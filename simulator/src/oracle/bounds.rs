//! O15: no queue and no table exceeds its named limit, and nothing grows while idle.

use std::collections::BTreeMap;

use super::Violation;
use crate::machine::Bound;

/// Counts what was checked, and remembers what there was when the cluster came to rest.
#[derive(Debug, Default)]
pub struct Bounds {
    at_rest: BTreeMap<(u8, u64, &'static str), u64>,
    /// Limits compared.
    pub checked: u64,
}

impl Bounds {
    /// A node's queues and tables.
    ///
    /// # Errors
    ///
    /// The first that is above its limit.
    pub fn check(&mut self, node: u8, bounds: &[Bound]) -> Result<(), Violation> {
        self.checked += bounds.len() as u64;
        let Some(bound) = bounds.iter().find(|bound| bound.is > bound.most) else {
            return Ok(());
        };
        let text = format!(
            "n{node} has {} {}, {} are allowed",
            bound.is, bound.what, bound.most
        );
        Err(Violation::new("O15 bounds", bound.group, text))
    }

    /// The cluster has come to rest.
    pub fn rest(&mut self, node: u8, bounds: &[Bound]) {
        for bound in bounds {
            let place = (node, bound.group.0, bound.what);
            self.at_rest.insert(place, bound.is);
        }
    }

    /// It rested for a while.
    ///
    /// # Errors
    ///
    /// Something grew meanwhile.
    pub fn rested(&mut self, node: u8, bounds: &[Bound]) -> Result<(), Violation> {
        self.checked += bounds.len() as u64;
        let grew = bounds.iter().find_map(|bound| {
            let before = *self.at_rest.get(&(node, bound.group.0, bound.what))?;
            (bound.is > before).then_some((bound, before))
        });
        let Some((bound, before)) = grew else {
            return Ok(());
        };
        let text = format!(
            "n{node} goes from {before} {} to {} at rest",
            bound.what, bound.is
        );
        Err(Violation::new("O15 bounds", bound.group, text))
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::GroupId;

    use super::*;

    fn bound(is: u64) -> Bound {
        Bound {
            group: GroupId::METADATA,
            what: "requests queued",
            is,
            most: 4,
        }
    }

    #[test]
    fn what_is_within_its_limit_passes_and_what_exceeds_it_is_found() {
        let mut bounds = Bounds::default();
        bounds.check(0, &[bound(0), bound(4)]).expect("within");
        let error = bounds.check(0, &[bound(4), bound(5)]).expect_err("above");
        assert_eq!(error.oracle, "O15 bounds");
        assert_eq!(bounds.checked, 4);
    }

    #[test]
    fn growth_at_rest_is_found() {
        let mut bounds = Bounds::default();
        bounds.rest(1, &[bound(2)]);
        bounds.rested(1, &[bound(1)]).expect("less");
        bounds.rested(2, &[bound(4)]).expect("was not looked at");
        assert!(bounds.rested(1, &[bound(3)]).is_err());
    }
}
