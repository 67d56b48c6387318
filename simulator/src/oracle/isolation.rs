//! O13: groups do not touch each other.
//!
//! A frame for one group changes nothing in another, nor across planes, except through a
//! committed change of topology. Looked at after each frame by the numbers of the cores, and
//! now and then by digests of the applied state.

use biplane_wire::GroupId;

use super::Violation;

/// Frames between two looks at digests.
const DIGEST_EVERY: u64 = 64;

/// Counts what was checked.
#[derive(Debug, Default)]
pub struct Isolation {
    frames: u64,
    /// Groups that were looked at beside the one a frame was for.
    pub checked: u64,
}

impl Isolation {
    /// Whether digests are taken around the next frame.
    pub fn wants_digests(&mut self) -> bool {
        self.frames += 1;
        self.frames.is_multiple_of(DIGEST_EVERY)
    }

    /// A frame for `of` was taken in by a node with `groups` groups; `changed` are those whose
    /// numbers are not what they were.
    ///
    /// # Errors
    ///
    /// Another group changed.
    pub fn frame(
        &mut self,
        node: u8,
        of: GroupId,
        groups: usize,
        mut changed: impl Iterator<Item = GroupId>,
    ) -> Result<(), Violation> {
        self.checked += groups.saturating_sub(1) as u64;
        match changed.find(|group| *group != of) {
            None => Ok(()),
            Some(other) => {
                let of = super::show_group(of);
                let text = format!("n{node} changes by a frame for group {of}");
                Err(Violation::new("O13 isolation", other, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_group_itself_pass_and_those_of_another_are_found() {
        let one = GroupId::partition(0, 0, 0).expect("small ids");
        let two = GroupId::partition(0, 0, 1).expect("small ids");
        let mut isolation = Isolation::default();
        isolation.frame(0, one, 3, [].into_iter()).expect("nothing");
        isolation
            .frame(0, one, 3, [one].into_iter())
            .expect("itself");
        let other = isolation.frame(0, one, 3, [one, two].into_iter());
        let error = other.expect_err("another");
        assert_eq!((error.oracle, error.group), ("O13 isolation", Some(two)));
        assert_eq!(isolation.checked, 6);
    }
}
