//! Frames of another incarnation of a partition, as far as a view can give them away.
//!
//! Frames of a group do not name its incarnation. A node that was away while a topic was deleted
//! and created again comes back with the old group, and hears from the new one before its
//! metadata says that the two are not the same. It would follow a log that is not its own,
//! acknowledge it, and forget it all when metadata catches up.
//!
//! A new group starts far above the views of the old one when something was deleted before it
//! (see `CreatedViews` of the metadata plane). So a frame from far above waits until metadata
//! has been confirmed to be up to date since: by then a group that is gone is gone here too.
//! What waits is dropped; peers send it again. Frames from near do not interrupt the wait: two
//! replicas that share a view far below the others would keep each other there for ever.
//!
//! The other way round the view decides at once: nothing was ever prepared in a group in a view
//! below its first one.

use std::collections::BTreeMap;

use biplane_wire::{GroupId, ReplicaFrame, View};

/// Views between a group and a frame from which on the frame may be of another incarnation: half
/// of what new groups leave free, since an old one that is cut off climbs meanwhile.
const FAR: u32 = 32;
/// Confirmations that must follow: the first ones may have been on their way for long.
pub(crate) const CONFIRMATIONS: u64 = 3;

/// The groups that heard from far above.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// Times that metadata was confirmed.
    confirmed: u64,
    waits: BTreeMap<GroupId, Wait>,
}

/// A group that heard from far above.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// The view of the frame with which it began. One that is far above this again may be of yet
    /// another incarnation.
    view: View,
    /// The count from which on the group follows what it hears.
    due: u64,
}

impl Strangers {
    /// Metadata here includes what was committed when its primary last spoke.
    pub(crate) fn confirm(&mut self) {
        self.confirmed += 1;
    }

    /// How often that was so.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Whether a group in view `own`, which was created in view `first`, may look at this frame.
    pub(crate) fn admits(
        &mut self,
        group: GroupId,
        (first, own): (View, View),
        frame: &ReplicaFrame,
    ) -> bool {
        let Some(view) = claimed_view(frame) else {
            return true;
        };
        if matches!(frame, ReplicaFrame::RepairPrepare(_)) && view < first {
            return false;
        }
        let is_near = |view: View| view.0 < own.0.saturating_add(FAR);
        let known = self.waits.get(&group).copied();
        if is_near(view) {
            if known.is_some_and(|wait| is_near(wait.view)) {
                self.waits.remove(&group);
            }
            return true;
        }
        let is_same = |wait: &Wait| view.0.saturating_sub(wait.view.0) < FAR;
        let begun = Wait {
            view,
            due: self.confirmed + CONFIRMATIONS,
        };
        let wait = known.filter(is_same).unwrap_or(begun);
        self.waits.insert(group, wait);
        self.confirmed >= wait.due
    }

    /// A group ended.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.waits.remove(&group);
    }
}

/// The view that a frame claims its group has reached.
fn claimed_view(frame: &ReplicaFrame) -> Option<View> {
    let is_claim = matches!(
        frame,
        ReplicaFrame::Prepare(_)
            | ReplicaFrame::Commit(_)
            | ReplicaFrame::StartViewChange(_)
            | ReplicaFrame::DoViewChange(_)
            | ReplicaFrame::StartView(_)
            | ReplicaFrame::RepairPrepare(_)
            // Who restarted goes to the view above all those in which it is asked.
            | ReplicaFrame::RequestStartView(_)
    );
    is_claim.then(|| frame.message().generic().frame.view())
}

#[cfg(test)]
mod tests {
    use biplane_wire::{
        Command, Message, Operation, PrepareHeader, RequestStartViewHeader, StartViewHeader,
        decode_replica, prepare,
    };

    use super::*;

    const GROUP: GroupId = GroupId(7);

    fn start_view(view: u32) -> ReplicaFrame {
        let mut header = StartViewHeader::new(Command::StartView);
        header.frame.set_view(View(view));
        header.set_group(GROUP);
        decode_replica(Message::sealed(header, &[])).expect("a sound frame")
    }

    fn probe(view: u32) -> ReplicaFrame {
        let mut header = RequestStartViewHeader::new(Command::RequestStartView);
        header.frame.set_view(View(view));
        header.set_group(GROUP);
        decode_replica(Message::sealed(header, &[])).expect("a sound frame")
    }

    #[test]
    fn frames_from_near_pass_at_once_and_questions_from_far_wait() {
        let mut strangers = Strangers::default();
        assert!(strangers.admits(GROUP, (View(0), View(5)), &start_view(5 + FAR - 1)));
        assert!(strangers.admits(GROUP, (View(0), View(5)), &start_view(0)));
        assert!(strangers.admits(GROUP, (View(0), View(5)), &probe(5 + FAR - 1)));
        assert!(!strangers.admits(GROUP, (View(0), View(5)), &probe(5 + 10 * FAR)));
        for _ in 0..CONFIRMATIONS {
            strangers.confirm();
        }
        assert!(strangers.admits(GROUP, (View(0), View(5)), &probe(5 + 10 * FAR)));
    }

    #[test]
    fn frames_from_far_wait_until_metadata_was_confirmed_since() {
        let mut strangers = Strangers::default();
        (0..10).for_each(|_| strangers.confirm());
        let far = start_view(5 + FAR);
        for _ in 0..CONFIRMATIONS {
            assert!(
                !strangers.admits(GROUP, (View(0), View(5)), &far),
                "not confirmed since"
            );
            strangers.confirm();
        }
        assert!(strangers.admits(GROUP, (View(0), View(5)), &far));
        assert!(
            strangers.admits(GROUP, (View(0), View(5)), &far),
            "and stays so"
        );
    }

    #[test]
    fn a_group_that_followed_or_ended_starts_over() {
        let mut strangers = Strangers::default();
        assert!(!strangers.admits(GROUP, (View(0), View(0)), &start_view(FAR)));
        (0..CONFIRMATIONS).for_each(|_| strangers.confirm());
        assert!(strangers.admits(GROUP, (View(0), View(0)), &start_view(FAR)));
        assert!(strangers.admits(GROUP, (View(0), View(FAR)), &start_view(FAR)));
        assert!(!strangers.admits(GROUP, (View(0), View(FAR)), &start_view(2 * FAR)));
        (0..CONFIRMATIONS).for_each(|_| strangers.confirm());
        strangers.forget(GROUP);
        assert!(!strangers.admits(GROUP, (View(0), View(FAR)), &start_view(2 * FAR)));
    }

    #[test]
    fn frames_from_near_do_not_interrupt_the_wait_and_another_stranger_begins_one() {
        let mut strangers = Strangers::default();
        let group = (View(0), View(5));
        for _ in 0..CONFIRMATIONS {
            assert!(!strangers.admits(GROUP, group, &start_view(100)));
            assert!(strangers.admits(GROUP, group, &start_view(6)));
            strangers.confirm();
        }
        assert!(strangers.admits(GROUP, group, &start_view(100)));
        assert!(strangers.admits(GROUP, group, &start_view(100 + FAR - 1)));
        assert!(!strangers.admits(GROUP, group, &start_view(100 + FAR)));
    }

    fn repaired(view: u32) -> ReplicaFrame {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.frame.set_view(View(view));
        header.set_group(GROUP);
        header.set_operation(Operation::SendMessages);
        let prepare = prepare::build_with_body(header, &[]);
        decode_replica(prepare.prepare_to_repair()).expect("a sound frame")
    }

    #[test]
    fn what_was_prepared_before_the_group_existed_is_refused_for_good() {
        let mut strangers = Strangers::default();
        let group = (View(64), View(66));
        assert!(strangers.admits(GROUP, group, &repaired(64)));
        assert!(!strangers.admits(GROUP, group, &repaired(63)));
        (0..2 * CONFIRMATIONS).for_each(|_| strangers.confirm());
        assert!(!strangers.admits(GROUP, group, &repaired(63)));
        assert!(!strangers.admits(GROUP, group, &repaired(66 + FAR)));
    }
}
