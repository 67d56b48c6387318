//! Which partitions came into being while this node was up.
//!
//! A node that lost its disk repairs the log from its beginning and applies the creation of
//! partitions that others have long had, and that it may have had itself. Such a partition must
//! not be opened as one that nobody has written to: where its first view is led by this very
//! node, the node would lead it with an empty log.
//!
//! So an operation counts as new only above everything that could have been committed when this
//! node entered its view:
//!
//! - It adopted the view, or won it: whatever the log of the view had then may be older than
//!   this node, and whatever the primary called committed.
//! - It follows the primary of the view it was opened in. That primary has been up since the
//!   view began, because none leads its view again after a restart, and nobody has applied more
//!   than it calls committed.
//! - It leads the view it was opened in: nobody has been asked to commit anything there.
//!
//! What was in flight during a change of views counts as old. That costs its partitions a
//! question to their peers, and nothing else. To go by what was said once, at the boot, would
//! not do: a node without a disk is led astray by whoever it hears first, be it itself.

use biplane_vsr::Replica;
use biplane_wire::{Op, View};

/// How far the past reaches.
#[derive(Debug)]
pub(super) struct Births {
    /// The view in which the replica is at work.
    view: Option<View>,
    /// Ops up to here may have been committed before; `None` while nobody has said so.
    past: Option<Op>,
}

impl Births {
    /// Of a replica that was just opened.
    pub(super) fn of(replica: &Replica) -> Self {
        Self {
            view: replica.is_normal().then(|| replica.view()),
            past: replica.is_primary().then(|| replica.op_head()),
        }
    }

    /// Whether an op was certainly not committed when this node entered its view.
    pub(super) fn is_new(&self, op: Op) -> bool {
        self.past.is_some_and(|past| op > past)
    }

    /// The replica took a step.
    pub(super) fn look(&mut self, replica: &Replica) {
        let view = replica.is_normal().then(|| replica.view());
        if self.view != view {
            self.view = view;
            self.past = view.map(|_| replica.op_head());
        }
    }

    /// The primary of the replica's view was heard, and knew this to be committed.
    pub(super) fn heard(&mut self, commit: Op) {
        if self.view.is_some() {
            self.past.get_or_insert(commit);
        }
    }
}
