//! Polls and reads of stored positions of a group (chapter 06 sections 10.7, 11 and 12).

use std::collections::BTreeMap;

use biplane_journal::{DiskError, DiskReply};

use super::Group;
use crate::consumer_offsets::ConsumerKey;
use crate::context::Context;
use crate::io::{OffsetReply, Output, PollQuery, PollReply};
use crate::poll::{self, Start};
use crate::poll_job::{JobStep, PollJob};
use crate::status;

/// Polls that wait for the disk, and how far groups were served.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    jobs: Vec<PollJob>,
    /// Highest offset served to each consumer group, on this node.
    last_served: BTreeMap<u32, u64>,
}

impl Polls {
    /// Whether no poll waits for the disk.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn last_served(&self, group: u32) -> Option<u64> {
        self.last_served.get(&group).copied()
    }

    pub(crate) fn forget_served(&mut self) {
        self.last_served.clear();
    }
}

impl Group {
    /// A poll. Answered at once when memory or nothing is enough.
    pub(crate) fn poll(&mut self, token: u64, query: PollQuery, context: &mut Context<'_>) {
        let elsewhere = query.primary_only && !self.replica.is_primary();
        let unsure = query.primary_only && self.looks_first();
        if unsure {
            self.look_now(context);
        }
        if elsewhere || unsure || self.transfer.is_installing() {
            let reply = PollReply::refused(status::NOT_ACCEPTED);
            context.out.push(Output::PollReply { token, reply });
            return;
        }
        let stored = self.state.offsets.visible(query.key);
        let committed = self.state.committed();
        let start = poll::resolve(query.strategy, query.count, committed, stored);
        let committed = match self.state.next_offset.checked_sub(1) {
            Some(minted) if biplane_vsr::mutated!(OffsetPublishedEarly) => minted,
            _ => committed.unwrap_or(0),
        };
        if start == Start::Nothing {
            let reply = PollReply::empty(self.key.partition, committed);
            context.out.push(Output::PollReply { token, reply });
            return;
        }
        let mut job = PollJob::new(token, query, start, committed, context);
        let files = (&self.paths, self.queues);
        match job.advance(&self.state, &self.segments, files, context) {
            JobStep::Waiting => self.polls.jobs.push(job),
            JobStep::Finished => {
                self.finish_poll(job, context);
                self.settle(context);
            }
        }
    }

    /// A read of a poll completed; `false` when no poll waits for it.
    pub(super) fn on_poll_read(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(at) = self.polls.jobs.iter().position(|job| job.awaits(token)) else {
            return false;
        };
        let mut job = self.polls.jobs.swap_remove(at);
        let files = (&self.paths, self.queues);
        match job.on_read(result, &self.state, &self.segments, files, context) {
            JobStep::Waiting => self.polls.jobs.push(job),
            JobStep::Finished => self.finish_poll(job, context),
        }
        true
    }

    fn finish_poll(&mut self, job: PollJob, context: &mut Context<'_>) {
        let PollJob {
            token,
            query,
            selection,
            committed,
            ..
        } = job;
        let mut reply = selection.finish(self.key.partition, committed);
        if let Some(last) = reply.last_offset {
            if query.auto_commit
                && let Err(status) = self.auto_commit(query.key, last, context)
            {
                reply = PollReply::refused(status);
            } else if let ConsumerKey::Group(group) = query.key {
                let served = self.polls.last_served.entry(group).or_default();
                *served = last.max(*served);
            }
        }
        context.out.push(Output::PollReply { token, reply });
    }

    /// Polls the disk does not answer in time are answered with what they have.
    pub(super) fn tick_polls(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while at < self.polls.jobs.len() {
            if self.polls.jobs[at].deadline <= context.now {
                let job = self.polls.jobs.swap_remove(at);
                self.finish_poll(job, context);
            } else {
                at += 1;
            }
        }
    }

    /// The history changed under the polls that wait for the disk.
    pub(super) fn abandon_polls(&mut self, context: &mut Context<'_>) {
        for job in std::mem::take(&mut self.polls.jobs) {
            let reply = PollReply::refused(status::NOT_ACCEPTED);
            context.out.push(Output::PollReply {
                token: job.token,
                reply,
            });
        }
    }

    /// A read of a stored position, by any replica from its own memory.
    pub(crate) fn get_offset(&self, key: ConsumerKey) -> OffsetReply {
        let body = self.state.offsets.visible(key).map(|stored| {
            let mut body = [0; 20];
            body[..4].copy_from_slice(&self.key.partition.to_le_bytes());
            body[4..12].copy_from_slice(&self.state.committed().unwrap_or(0).to_le_bytes());
            body[12..].copy_from_slice(&stored.to_le_bytes());
            body
        });
        OffsetReply { status: 0, body }
    }

    /// Nobody works on what a consumer group was served here any more.
    pub(crate) fn forget_served(&mut self, group: u32) {
        self.polls.last_served.remove(&group);
    }

    /// Whether everything served to a consumer group here has been committed by it.
    pub(crate) fn is_drained(&self, group: u32) -> bool {
        let committed = self.state.offsets.committed(ConsumerKey::Group(group));
        self.polls
            .last_served(group)
            .is_none_or(|served| committed >= Some(served))
    }
}
