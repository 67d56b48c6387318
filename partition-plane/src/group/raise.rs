//! Raising the applied point over operations that cannot be had any more (chapter 04 section
//! 2.8), once it is known which purges they stand after.
//!
//! A window of the log that connects to the messages here stands in for what is below it. But
//! messages do not say whether they are from before or after a purge: a replica whose metadata
//! lags would take a batch written after a purge for one before it, and as primary purge it
//! again when its metadata catches up. A purge is committed in the metadata group before any
//! log can follow it, so the raise waits until metadata was confirmed since the window came.
//! When a purge turns up meanwhile, that comes first.

use biplane_wire::{Op, View};

use super::Group;
use crate::context::Context;
use crate::strangers::CONFIRMATIONS;

/// Ticks after which a backup that gets no confirmation has the whole state sent instead, which
/// names its purge generation.
const PATIENCE: u64 = 400;

/// A raise that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raise {
    to: Op,
    view: View,
    since: u64,
    /// Confirmations of metadata by which it may happen.
    due: u64,
}

impl Group {
    /// A window reaches down to where this replica may stand.
    pub(super) fn want_raise(&mut self, to: Op, context: &Context<'_>) {
        let view = self.replica.view();
        if self.raise.is_none_or(|waiting| waiting.view != view) {
            self.raise = Some(Raise {
                to,
                view,
                since: context.now,
                due: context.confirmed + CONFIRMATIONS,
            });
        }
    }

    pub(super) fn tick_raise(&mut self, context: &mut Context<'_>) {
        let Some(waiting) = self.raise else { return };
        let is_confirmed = context.confirmed >= waiting.due;
        let is_late = context.now - waiting.since >= PATIENCE;
        if waiting.view != self.replica.view()
            || waiting.to <= self.replica.commit_min()
            || self.transfer.is_busy(&self.puller)
        {
            self.raise = None;
        } else if is_confirmed || is_late {
            self.raise = None;
            if self.is_stuck_before_purge() {
                return;
            }
            // A window without messages says nothing about those below.
            let has_evidence = !self.lacks_evidence(waiting.to);
            // A primary has nobody to ask for the state, and leads on what it has.
            if has_evidence && (is_confirmed || self.replica.is_primary()) {
                self.raise_floor(waiting.to, context);
                self.translate(context);
                self.walk_commits(context);
            } else {
                self.arm_transfer(self.replica.primary(), context);
            }
        }
    }
}
