//! Which digests are being computed: those an offer waits for, and those one is likely to need.
//!
//! A job belongs to a group and goes on while offers of it wait, and for a while after the last
//! of them was told to come back: it comes back. A job ahead of any offer reads only while nobody
//! else has anything to do for this node.

use std::collections::VecDeque;

use biplane_wire::GroupId;

use super::hashing::{ArtifactKey, Hashing};
use super::offer::{ArtifactSpec, Ticket};
use super::{ProvideOutput, Provider, Purpose};

/// A byte that is hashed costs the node about so many times less than one that is sent.
const HASH_DISCOUNT: u64 = 4;

/// Digests that are being computed for one group.
#[derive(Clone)]
pub(super) struct Job {
    /// Tells its reads from those of an earlier one.
    number: u64,
    /// What is not known yet, in the order of the manifest, with the length that counts.
    wants: VecDeque<(ArtifactKey, u64)>,
    /// Reads under way.
    reads: u32,
    /// Ticks since an offer waited for it.
    idle: u32,
    /// Nobody has asked yet.
    pub(super) ahead: bool,
}

/// What of these artifacts has to be hashed, with the length that counts.
fn unhashed(group: GroupId, artifacts: &[ArtifactSpec]) -> Vec<(ArtifactKey, u64)> {
    let key = |spec: &ArtifactSpec| (group, spec.kind, spec.frontier);
    let wants = artifacts
        .iter()
        .filter_map(|spec| Some((key(spec), spec.source.unhashed()?)));
    wants.collect()
}

impl Provider {
    /// Computes the digests of artifacts of a group before anybody asks for them: a peer is away
    /// and will. Does nothing for a group whose digests are being computed.
    pub fn hash_ahead(
        &mut self,
        group: GroupId,
        artifacts: &[ArtifactSpec],
        out: &mut Vec<ProvideOutput>,
    ) {
        if self.jobs.contains_key(&group) {
            return;
        }
        self.enqueue(group, unhashed(group, artifacts), true);
        self.advance(group, out);
    }

    /// Whether digests are being computed that nobody asked for.
    #[must_use]
    pub fn is_hashing_ahead(&self) -> bool {
        self.jobs.values().any(|job| job.ahead)
    }

    /// Computes no more digests that nobody asked for. What is done stays done.
    pub fn stop_hashing_ahead(&mut self) {
        self.jobs.retain(|_, job| !job.ahead);
    }

    /// Digests that an offer waits for.
    pub(super) fn want_digests(&mut self, ticket: &Ticket, out: &mut Vec<ProvideOutput>) {
        let Some(pending) = self.pending_of(ticket) else {
            return;
        };
        pending.reads = true;
        let known = pending.entries.len();
        let artifacts = pending.spec.as_ref().map(|spec| &spec.artifacts[known..]);
        let wants = unhashed(ticket.group, artifacts.unwrap_or_default());
        self.enqueue(ticket.group, wants, false);
        self.advance(ticket.group, out);
    }

    fn enqueue(&mut self, group: GroupId, wants: Vec<(ArtifactKey, u64)>, ahead: bool) {
        let numbers = &mut self.job_numbers;
        let job = self.jobs.entry(group).or_insert_with(|| {
            *numbers += 1;
            Job {
                number: *numbers,
                wants: VecDeque::new(),
                reads: 0,
                idle: 0,
                ahead,
            }
        });
        (job.idle, job.ahead) = (0, job.ahead && ahead);
        for want in wants {
            if !job.wants.contains(&want) {
                job.wants.push_back(want);
            }
        }
    }

    /// Asks for the next bytes of a job, as many as may be under way. A job that has all digests
    /// is over.
    pub(super) fn advance(&mut self, group: GroupId, out: &mut Vec<ProvideOutput>) {
        let limits = self.config.limits;
        loop {
            let waits = match self.jobs.get(&group) {
                Some(job) if job.ahead => {
                    self.allowance.is_some() || !self.groups_served().is_empty()
                }
                _ => self.allowance == Some(0),
            };
            let Some(job) = self.jobs.get_mut(&group) else {
                return;
            };
            if waits || job.reads >= limits.hash_reads.max(1) {
                return;
            }
            let mut next = None;
            let mut at = 0;
            while let Some(&(key, len)) = job.wants.get(at) {
                match self.hashes.step(key, len, limits.read_bytes) {
                    Hashing::Done => {
                        job.wants.remove(at);
                    }
                    Hashing::Asked => at += 1,
                    Hashing::Wants { memo, offset, len } => {
                        next = Some((key, memo, offset, len));
                        break;
                    }
                }
            }
            if job.wants.is_empty() {
                self.jobs.remove(&group);
                return;
            }
            let Some((key, memo, offset, len)) = next else {
                return;
            };
            job.reads += 1;
            let purpose = Purpose::Hash {
                key,
                memo,
                offset,
                job: job.number,
            };
            self.spend(u64::from(len) / HASH_DISCOUNT);
            self.read(key, offset, len, purpose, out);
        }
    }

    /// A read of a job came back; `hashed` is what it brought. What waits for digests looks
    /// whether they are there.
    pub(super) fn on_hashed(
        &mut self,
        group: GroupId,
        number: u64,
        hashed: u64,
        out: &mut Vec<ProvideOutput>,
    ) {
        self.read_ended(group, number);
        for ticket in self.waiting_for_digests(group) {
            if let Some(pending) = self.pending_of(&ticket) {
                pending.hashed = pending.hashed.saturating_add(hashed);
                self.build(ticket, out);
            }
        }
        self.advance(group, out);
    }

    /// What a job needs cannot be read: no offer comes of it.
    pub(super) fn hash_failed(
        &mut self,
        group: GroupId,
        number: u64,
        transient: bool,
        out: &mut Vec<ProvideOutput>,
    ) {
        self.read_ended(group, number);
        let is_over = self
            .jobs
            .get(&group)
            .is_some_and(|job| job.number == number);
        if !is_over {
            // It was for an earlier job; the present one asks for the same bytes anew.
            return self.advance(group, out);
        }
        self.jobs.remove(&group);
        for ticket in self.waiting_for_digests(group) {
            self.refuse(&ticket, transient, out);
        }
    }

    /// A request was told to come back because enough was hashed for it: unless others wait for
    /// the same digests, the rest is computed when it does.
    pub(super) fn rest_job(&mut self, group: GroupId) {
        if self.waiting_for_digests(group).is_empty() {
            self.jobs.remove(&group);
        }
    }

    /// A tick: jobs go on that had to wait, and end when nobody came back for them.
    pub(super) fn tick_jobs(&mut self, out: &mut Vec<ProvideOutput>) {
        let idle_max = self.config.limits.idle_ticks;
        let pending = &self.pending;
        self.jobs.retain(|group, job| {
            let is_wanted = pending
                .iter()
                .any(|((of, _), pending)| of == group && pending.reads);
            job.idle = match is_wanted {
                true => 0,
                false => job.idle.saturating_add(1),
            };
            job.ahead || job.idle < idle_max
        });
        for group in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.advance(group, out);
        }
    }

    fn read_ended(&mut self, group: GroupId, number: u64) {
        let job = self.jobs.get_mut(&group);
        if let Some(job) = job.filter(|job| job.number == number) {
            job.reads = job.reads.saturating_sub(1);
        }
    }

    fn waiting_for_digests(&self, group: GroupId) -> Vec<Ticket> {
        let pending = self.pending.iter();
        let waiting = pending.filter(|((of, _), pending)| *of == group && pending.reads);
        let tickets = waiting.map(|(&(group, replica), pending)| Ticket {
            group,
            replica,
            nonce: pending.nonce,
        });
        tickets.collect()
    }
}
