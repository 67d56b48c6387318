//! A list of disk operations executed one after the other, each retried until it succeeds.
//!
//! Opening, purging, installing and removing a partition are such lists. Steps are idempotent:
//! a step whose outcome is unknown is simply done again.

use std::collections::VecDeque;

use biplane_journal::{DiskError, DiskOp, DiskReply, QueueId};

use crate::context::{Context, backoff};

/// What became of a completion handed to a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The token was not the script's.
    NotMine,
    /// More steps are to come.
    Running,
    /// A step failed and will be retried.
    Retrying(DiskError),
    /// The last step succeeded.
    Done,
}

/// The list and where it stands.
#[derive(Debug)]
pub(crate) struct Script {
    queue: QueueId,
    steps: VecDeque<DiskOp>,
    waiting: Option<u64>,
    failures: u32,
    retry_at: u64,
}

impl Script {
    /// Starts with the first step.
    pub(crate) fn start(
        queue: QueueId,
        steps: impl IntoIterator<Item = DiskOp>,
        context: &mut Context<'_>,
    ) -> Self {
        let steps = steps.into_iter().collect();
        let mut script = Self {
            queue,
            steps,
            waiting: None,
            failures: 0,
            retry_at: 0,
        };
        script.tick(context);
        script
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_done(&self) -> bool {
        self.steps.is_empty() && self.waiting.is_none()
    }

    /// Whether a step failed and waits to be tried again.
    pub(crate) fn is_failing(&self) -> bool {
        self.waiting.is_none() && !self.steps.is_empty()
    }

    /// Submits the next step when none is under way and no pause is kept.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
        if self.waiting.is_some() || context.now < self.retry_at {
            return;
        }
        if let Some(step) = self.steps.front() {
            self.waiting = Some(context.submit(self.queue, step.clone()));
        }
    }

    /// The answer to a step.
    pub(crate) fn complete(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> Progress {
        if self.waiting != Some(token) {
            return Progress::NotMine;
        }
        self.waiting = None;
        if let Err(error) = result {
            self.failures += 1;
            self.retry_at =
                context.now + backoff(self.failures, context.node.limits.disk_retry_ticks_max);
            return Progress::Retrying(error.clone());
        }
        self.failures = 0;
        self.steps.pop_front();
        self.tick(context);
        if self.is_done() {
            Progress::Done
        } else {
            Progress::Running
        }
    }
}
