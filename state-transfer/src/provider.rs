//! The serving side: offers for the replicas that ask, and their bytes chunk by chunk.
//!
//! One provider serves all groups of a plane. An offer belongs to a replica and the nonce of its
//! attempt: the same nonce always gets the same descriptor, because bytes of two states under
//! one nonce would only be noticed by the digest, gigabytes later. A new nonce of the same
//! replica replaces its offer.
//!
//! The owner keeps the bytes. It hands in what is in memory and reads what is in storage when
//! asked; the provider never learns what an artifact means.

mod answer;
mod gate;
mod hashing;
mod jobs;
mod offer;
mod pacing;
mod serving;

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::{
    ClusterId, GroupId, MANIFEST_ENTRIES_MAX, Manifest, ManifestEntry, Message, Op, ReplicaId,
    RequestStateTransferHeader, View,
};

pub use self::gate::{Flush, Gate, MetadataGate, PartitionGate};
use self::hashing::{ArtifactKey, Hashes};
use self::jobs::Job;
pub use self::offer::{ArtifactSource, ArtifactSpec, OfferSpec, Ticket};
use self::offer::{Offer, Pending, Place};
use crate::limits::ProvideLimits;

/// Ticks between two sweeps of digests nobody uses.
const SWEEP_TICKS: u32 = 6_000;

/// Offers kept at once that nobody pulls from. One more, and the oldest of them goes.
const OFFERS_AT_REST_MAX: usize = 256;

/// Sweeps after which an unused digest is forgotten.
const SWEEPS_KEPT: u64 = 10;

/// What a provider is made from.
#[derive(Clone, Copy, Debug)]
pub struct ProviderConfig {
    /// Stamped into every answer.
    pub cluster: ClusterId,
    /// This replica.
    pub replica: ReplicaId,
    /// Members of the cluster.
    pub replica_count: u8,
    /// Pacing and sizes.
    pub limits: ProvideLimits,
}

/// An effect for the owner of a provider, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvideOutput {
    /// Send a descriptor, a refusal or a chunk.
    Send {
        /// To this replica.
        to: ReplicaId,
        /// A sealed StateTransferTarget or StateChunk.
        message: Message,
    },
    /// Read part of a stored artifact and answer with [`Provider::on_read`].
    Read {
        /// Echoed in the answer.
        token: u64,
        /// The group.
        group: GroupId,
        /// Kind of the artifact.
        kind: u8,
        /// Its frontier.
        frontier: u64,
        /// First byte.
        offset: u64,
        /// How many; exactly so many must be there.
        len: u32,
        /// Answers to reads of one lane are best given in the order in which they were asked.
        lane: Lane,
    },
}

/// What a read of the provider is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Digests of a group: a read that overtakes another is done again.
    Digests,
    /// Chunks: what comes first can be sent first.
    Chunks,
}

/// Why stored bytes can not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The artifact is gone or shorter than it was. A new offer will not have it.
    #[error("the artifact changed since it was offered")]
    Changed,
    /// Storage failed.
    #[error("the artifact can not be read")]
    Failed,
}

/// View and commit point, for answers that need nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderView {
    /// View of the replica.
    pub view: View,
    /// Its known commit point.
    pub commit_max: Op,
}

/// What a read was for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Hash {
        key: ArtifactKey,
        memo: u64,
        offset: u64,
        /// The job that asked.
        job: u64,
    },
    /// Chunks in a row, the first of which is at a place, for requests of `want` bytes.
    Chunks {
        first: Place,
        want: u32,
        ticket: Ticket,
    },
}

/// The serving side of a plane.
#[derive(Clone)]
pub struct Provider {
    config: ProviderConfig,
    offers: BTreeMap<(GroupId, ReplicaId), Offer>,
    pending: BTreeMap<(GroupId, ReplicaId), Pending>,
    /// Reads under way: how many bytes, and what for.
    reads: BTreeMap<u64, (u32, Purpose)>,
    hashes: Hashes,
    jobs: BTreeMap<GroupId, Job>,
    job_numbers: u64,
    token: u64,
    ticks: u32,
    /// What may still be read in this tick; `None` for as much as is asked for.
    allowance: Option<u64>,
}

impl Provider {
    /// A provider without offers.
    #[must_use]
    pub fn new(config: ProviderConfig) -> Self {
        Self {
            config,
            offers: BTreeMap::new(),
            pending: BTreeMap::new(),
            reads: BTreeMap::new(),
            hashes: Hashes::default(),
            jobs: BTreeMap::new(),
            job_numbers: 0,
            token: 0,
            ticks: 0,
            allowance: None,
        }
    }

    /// RequestStateTransfer. A ticket asks the owner to build an offer now or soon, and to call
    /// [`Provider::offer`] or [`Provider::refuse`]; without one the request was answered, is
    /// being worked on already, or is not to be answered.
    pub fn on_request(
        &mut self,
        from: ReplicaId,
        request: &RequestStateTransferHeader,
        gate: &Gate,
        out: &mut Vec<ProvideOutput>,
    ) -> Option<Ticket> {
        let (group, nonce) = (request.group(), request.nonce());
        if from == self.config.replica || from.0 >= self.config.replica_count {
            return None;
        }
        let ticket = Ticket {
            group,
            replica: from,
            nonce,
        };
        let (view, commit_max) = (gate.view(), gate.commit_max());
        if let Some(transient) = gate.refusal() {
            self.send_refusal(&ticket, transient, ProviderView { view, commit_max }, out);
            return None;
        }
        let key = (group, from);
        if let Some(offer) = self
            .offers
            .get_mut(&key)
            .filter(|offer| offer.nonce == nonce)
        {
            offer.idle = 0;
            out.push(ProvideOutput::Send {
                to: from,
                message: offer.descriptor.clone(),
            });
            return None;
        }
        if self
            .pending
            .get(&key)
            .is_some_and(|pending| pending.nonce == nonce)
        {
            return None;
        }
        self.offers.remove(&key);
        self.pending.remove(&key);
        if let Some(transient) = gate.build_refusal() {
            self.send_refusal(&ticket, transient, ProviderView { view, commit_max }, out);
            return None;
        }
        let entries = Vec::new();
        let pending = Pending {
            nonce,
            view,
            commit_max,
            spec: None,
            entries,
            hashed: 0,
            reads: false,
            ticks: 0,
        };
        self.pending.insert(key, pending);
        Some(ticket)
    }

    /// The owner built the offer. Digests that are not known are computed first, which may take
    /// reads; then the descriptor leaves.
    pub fn offer(&mut self, ticket: Ticket, spec: OfferSpec, out: &mut Vec<ProvideOutput>) {
        assert!(
            spec.commit_op <= spec.commit_max,
            "what is applied is known committed"
        );
        if let Some(pending) = self.pending_of(&ticket) {
            (pending.view, pending.commit_max) = (spec.view, spec.commit_max);
            pending.spec = Some(spec);
            self.build(ticket, out);
        }
    }

    /// The owner can not build the offer.
    pub fn refuse(&mut self, ticket: &Ticket, transient: bool, out: &mut Vec<ProvideOutput>) {
        if let Some(pending) = self.pending_of(ticket) {
            let view = ProviderView {
                view: pending.view,
                commit_max: pending.commit_max,
            };
            self.pending.remove(&(ticket.group, ticket.replica));
            self.send_refusal(ticket, transient, view, out);
        }
    }

    /// The answer to a [`ProvideOutput::Read`].
    pub fn on_read(
        &mut self,
        token: u64,
        result: Result<&[u8], ReadError>,
        out: &mut Vec<ProvideOutput>,
    ) {
        let Some((wanted, purpose)) = self.reads.remove(&token) else {
            return;
        };
        let result = match result {
            Ok(bytes) if bytes.len() != wanted as usize => Err(ReadError::Changed),
            other => other,
        };
        match purpose {
            Purpose::Hash {
                key,
                memo,
                offset,
                job,
            } => match result {
                Ok(bytes) => {
                    self.hashes.take(key, memo, offset, bytes);
                    self.on_hashed(key.0, job, bytes.len() as u64, out);
                }
                Err(error) => {
                    self.hashes.forget(key);
                    self.hash_failed(key.0, job, error == ReadError::Changed, out);
                }
            },
            Purpose::Chunks {
                first,
                want,
                ticket,
            } => self.on_block(&ticket, (first, want, wanted), result, out),
        }
    }

    /// One tick: offers nobody pulls from lapse, and requests that waited too long for theirs
    /// are told to come back. While the node has other work to do, `load` is
    /// how many bytes of new messages come in a tick: until the next tick no more are read for
    /// peers than [`ProvideLimits::busy_tick_bytes`], or a quarter more than comes, so that a
    /// peer gains on what it has to catch up with.
    pub fn tick(&mut self, load: Option<u64>, out: &mut Vec<ProvideOutput>) {
        let ProvideLimits {
            idle_ticks,
            served_ticks,
            build_ticks,
            ..
        } = self.config.limits;
        self.offers.retain(|_, offer| {
            offer.idle = offer.idle.saturating_add(1);
            offer.idle
                < if offer.finished {
                    served_ticks
                } else {
                    idle_ticks
                }
        });
        let mut late = Vec::new();
        for ((group, replica), pending) in &mut self.pending {
            pending.ticks = pending.ticks.saturating_add(1);
            if pending.ticks >= build_ticks {
                late.push(Ticket {
                    group: *group,
                    replica: *replica,
                    nonce: pending.nonce,
                });
            }
        }
        for ticket in late {
            self.refuse(&ticket, true, out);
        }
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(SWEEP_TICKS) {
            self.hashes.sweep(SWEEPS_KEPT);
        }
        self.grant(load, out);
    }

    /// The bytes of a group changed or went: purge, truncation, retention, deletion. Offers are
    /// dropped without a word; the next chunk request is told.
    pub fn forget(&mut self, group: GroupId) {
        self.withdraw(group);
        self.hashes.forget_group(group);
    }

    /// The replica stopped being primary of a group: no more offers, but its bytes are what they
    /// were.
    pub fn withdraw(&mut self, group: GroupId) {
        self.offers.retain(|(of, _), _| *of != group);
        self.pending.retain(|(of, _), _| *of != group);
        self.jobs.remove(&group);
    }

    /// Groups that are being served: storage is read for their offers, or for who pulls them, now
    /// or when who asked comes back.
    #[must_use]
    pub fn groups_served(&self) -> BTreeSet<GroupId> {
        let offers = self.offers.iter().filter(|(_, offer)| offer.is_served());
        let pending = self.pending.iter().filter(|(_, pending)| pending.reads);
        let jobs = self.jobs.iter().filter(|(_, job)| !job.ahead);
        let offers = offers.map(|(key, _)| key.0);
        let pending = pending.map(|(key, _)| key.0);
        offers
            .chain(pending)
            .chain(jobs.map(|(group, _)| *group))
            .collect()
    }

    /// Groups with an offer, pulled or not.
    #[must_use]
    pub fn groups_offered(&self) -> BTreeSet<GroupId> {
        self.offers.keys().map(|(group, _)| *group).collect()
    }

    /// Asserts what holds between any two calls.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_invariants(&self) {
        let served = self.groups_served();
        let served_max = self.config.limits.groups_served_max.max(1) as usize;
        assert!(
            served.len() <= served_max,
            "no more groups are served than admitted"
        );
        for (key, offer) in &self.offers {
            assert!(
                !self.pending.contains_key(key),
                "a replica has one offer or none"
            );
            assert!(
                key.1 != self.config.replica,
                "a replica does not serve itself"
            );
            assert!(!offer.artifacts.is_empty(), "an offer offers something");
        }
    }

    pub(super) fn admits(&self, group: GroupId) -> bool {
        let served = self.groups_served();
        let room = served.len() < self.config.limits.groups_served_max.max(1) as usize;
        served.contains(&group) || room
    }

    fn pending_of(&mut self, ticket: &Ticket) -> Option<&mut Pending> {
        let pending = self.pending.get_mut(&(ticket.group, ticket.replica))?;
        (pending.nonce == ticket.nonce).then_some(pending)
    }

    fn offer_of(&mut self, ticket: &Ticket) -> Option<&mut Offer> {
        let offer = self.offers.get_mut(&(ticket.group, ticket.replica))?;
        (offer.nonce == ticket.nonce).then_some(offer)
    }

    /// Goes through the artifacts until the digest of one is not known, then waits for it; at the
    /// end the offer is made.
    fn build(&mut self, ticket: Ticket, out: &mut Vec<ProvideOutput>) {
        let hash_bytes_max = self.config.limits.hash_bytes_max;
        let has_room = self.admits(ticket.group);
        let Some(pending) = self.pending.get_mut(&(ticket.group, ticket.replica)) else {
            return;
        };
        let Some(spec) = &pending.spec else { return };
        while let Some(artifact) = spec.artifacts.get(pending.entries.len()) {
            let (kind, frontier, length) =
                (artifact.kind, artifact.frontier, artifact.source.len());
            let hashes = &mut self.hashes;
            let checksum = artifact.source.checksum();
            let Some(checksum) =
                checksum.or_else(|| hashes.digest((ticket.group, kind, frontier), length))
            else {
                break;
            };
            pending.entries.push(ManifestEntry {
                kind,
                frontier,
                length,
                checksum,
            });
        }
        if pending.entries.len() == spec.artifacts.len() {
            self.make_offer(ticket, out);
        } else if pending.hashed >= hash_bytes_max || !has_room {
            self.refuse(&ticket, true, out);
            self.rest_job(ticket.group);
        } else if !pending.reads {
            self.want_digests(&ticket, out);
        }
    }

    fn make_offer(&mut self, ticket: Ticket, out: &mut Vec<ProvideOutput>) {
        let key = (ticket.group, ticket.replica);
        let Some(pending) = self.pending.get(&key) else {
            return;
        };
        if !(1..=MANIFEST_ENTRIES_MAX).contains(&pending.entries.len()) {
            return self.refuse(&ticket, false, out);
        }
        let manifest = Manifest::encode(&pending.entries);
        let Some(Pending {
            nonce,
            spec: Some(spec),
            ..
        }) = self.pending.remove(&key)
        else {
            return;
        };
        let OfferSpec {
            view,
            commit_op,
            commit_max,
            artifacts,
        } = spec;
        let mut header = self.target_header(&ticket, ProviderView { view, commit_max });
        header.set_offer();
        header.set_commit_op(commit_op);
        let descriptor = Message::sealed(header, &manifest);
        out.push(ProvideOutput::Send {
            to: ticket.replica,
            message: descriptor.clone(),
        });
        let offer = Offer {
            nonce,
            view,
            commit_max,
            descriptor,
            artifacts,
            idle: 0,
            pulled: false,
            finished: false,
            pieces: Vec::new(),
            delayed: None,
        };
        self.make_room();
        self.offers.insert(key, offer);
    }

    /// Drops the oldest of too many offers that nobody pulls from.
    fn make_room(&mut self) {
        let resting = self.offers.iter().filter(|(_, offer)| !offer.is_served());
        let mut count = 0;
        let oldest = resting
            .inspect(|_| count += 1)
            .max_by_key(|(_, offer)| offer.idle)
            .map(|(key, _)| *key);
        if count >= OFFERS_AT_REST_MAX
            && let Some(key) = oldest
        {
            self.offers.remove(&key);
        }
    }

    fn read(
        &mut self,
        (group, kind, frontier): ArtifactKey,
        offset: u64,
        len: u32,
        purpose: Purpose,
        out: &mut Vec<ProvideOutput>,
    ) {
        self.token += 1;
        self.reads.insert(self.token, (len, purpose));
        let token = self.token;
        let lane = match purpose {
            Purpose::Hash { .. } => Lane::Digests,
            Purpose::Chunks { .. } => Lane::Chunks,
        };
        out.push(ProvideOutput::Read {
            token,
            group,
            kind,
            frontier,
            offset,
            len,
            lane,
        });
    }
}
