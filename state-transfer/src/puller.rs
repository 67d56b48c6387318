//! The receiving side: ask, get a descriptor, pull chunk after chunk, hand over for install.
//!
//! One puller serves one group and has at most one attempt. Everything an attempt receives is
//! tied to its nonce; a new attempt has a new one, so bytes of two states can not mix. Each
//! artifact is hashed as it arrives and compared as a whole. What was verified survives a failed
//! attempt and is not pulled again when the next manifest lists it unchanged.
//!
//! The two planes differ in what follows a failure. Metadata tries the same peer again and then
//! gives up for journal repair. A partition pauses, longer after each failure, and moves on to
//! another peer; meanwhile its stage is Idle and its log may be repaired.

mod attempt;
mod outcome;
mod peers;
mod report;

use biplane_vsr::{Nonces, StatusView};
use biplane_wire::{
    ClusterId, GroupId, Manifest, ManifestEntry, Op, ReplicaId, StateChunkHeader,
    StateTransferTargetHeader, Typed, View,
};

use self::attempt::{Attempt, Fetch, Sender};
pub use self::report::{Ended, Offer, Progress, PullIgnored, PullOutput, trouble};
use crate::budget::PullBudget;
use crate::chunk_cursor::ChunkMisfit;
use crate::entry_set::EntrySet;
use crate::limits::PullLimits;
use crate::manifest::check_offer;
use crate::stage::{PlaneKind, Stage};

/// What a puller is made from.
#[derive(Clone, Copy, Debug)]
pub struct PullerConfig {
    /// Stamped into every request.
    pub cluster: ClusterId,
    /// The group.
    pub group: GroupId,
    /// This replica.
    pub replica: ReplicaId,
    /// Members of the cluster, at least one.
    pub replica_count: u8,
    /// The plane of the group.
    pub plane: PlaneKind,
    /// Pacing and sizes.
    pub limits: PullLimits,
    /// For the nonces; another one at every boot.
    pub seed: u64,
}

/// What a puller is told about its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullView {
    /// View of the replica.
    pub view: View,
    /// Highest op applied here.
    pub commit_min: Op,
    /// Highest op known committed anywhere.
    pub commit_max: Op,
}

impl PullView {
    /// From a replica's own picture of itself.
    #[must_use]
    pub fn of(status: &StatusView) -> Self {
        let StatusView {
            view,
            commit_min,
            commit_max,
            ..
        } = *status;
        Self {
            view,
            commit_min,
            commit_max,
        }
    }
}

/// The receiving side of one group.
#[derive(Clone)]
pub struct Puller {
    config: PullerConfig,
    nonces: Nonces,
    stage: Stage,
    attempt: Option<Attempt>,
    /// Ticks until the next attempt of a partition.
    rearm: Option<u32>,
    /// Failures in a row that cost a longer pause, or the transfer.
    failures: u32,
    /// The peer to move on from.
    failed: Option<ReplicaId>,
    /// Artifacts the owner keeps and whose digest was right.
    verified: EntrySet,
    paused: bool,
    /// An install went wrong after it had begun: what it removed is owed, whatever repair does.
    owed: bool,
}

impl Puller {
    /// A puller without an attempt.
    ///
    /// # Panics
    ///
    /// When the replica is not a member of the cluster.
    #[must_use]
    pub fn new(config: PullerConfig) -> Self {
        assert!(
            config.replica.0 < config.replica_count,
            "the replica is in the roster"
        );
        Self {
            config,
            nonces: Nonces::new(config.seed),
            stage: Stage::Idle,
            attempt: None,
            rearm: None,
            failures: 0,
            failed: None,
            verified: EntrySet::default(),
            paused: false,
            owed: false,
        }
    }

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether an attempt will start by itself after a pause. The stage is Idle meanwhile.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        self.rearm.is_some()
    }

    /// A used metadata replica boots wanting a transfer before it knows whom to ask.
    pub fn await_start(&mut self, out: &mut Vec<PullOutput>) {
        if self.stage == Stage::Idle {
            self.set_stage(Stage::AwaitingTarget, out);
        }
    }

    /// Starts an attempt: the StartView that ends a boot came from `peer`, or repair found that
    /// the log can not be completed. An attempt that is open goes on instead.
    pub fn start(&mut self, peer: ReplicaId, budget: &mut PullBudget, out: &mut Vec<PullOutput>) {
        let in_roster = peer != self.config.replica && peer.0 < self.config.replica_count;
        if self.attempt.is_some() || !in_roster {
            return;
        }
        if self.config.plane == PlaneKind::Partition && !budget.try_start() {
            self.rearm = Some(self.config.limits.retry_ticks);
            return;
        }
        self.rearm = None;
        self.open(peer, out);
    }

    /// Asks `peer` for a descriptor without a place among those that pull: the owner means to
    /// compare it with what it has. Before the offer is taken [`Puller::take_place`] has to be
    /// asked.
    pub fn look(&mut self, peer: ReplicaId, out: &mut Vec<PullOutput>) {
        let in_roster = peer != self.config.replica && peer.0 < self.config.replica_count;
        if self.attempt.is_some() || !in_roster {
            return;
        }
        self.rearm = None;
        self.open(peer, out);
        if let Some(attempt) = &mut self.attempt {
            attempt.looks = true;
        }
    }

    /// Whether the open attempt may go on to pull: it has a place, or gets one now.
    pub fn take_place(&mut self, budget: &mut PullBudget) -> bool {
        let Some(attempt) = &mut self.attempt else {
            return false;
        };
        attempt.looks = attempt.looks && !budget.try_start();
        !attempt.looks
    }

    /// One tick: repeats what stalled, gives up what stalled too often, starts what is due.
    pub fn tick(&mut self, view: &PullView, budget: &mut PullBudget, out: &mut Vec<PullOutput>) {
        // Either of the two, so that a pause and an attempt both last their full count of ticks.
        if self.rearm.is_some() {
            self.count_down(view, budget, out);
        } else {
            self.age(out);
        }
        let pulls = self.attempt.as_ref().is_some_and(|attempt| !attempt.looks);
        if pulls && self.config.plane == PlaneKind::Partition {
            budget.note_live();
        }
    }

    /// Whether all that is under way is a [`Puller::look`] that waits for its answer: no tick
    /// before [`Puller::ticks_to_wake`] has an effect.
    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.stage == Stage::AwaitingTarget
            && self.attempt.as_ref().is_some_and(|attempt| attempt.looks)
    }

    /// Ticks until one may have an effect; at least one.
    #[must_use]
    pub fn ticks_to_wake(&self) -> u64 {
        match &self.attempt {
            Some(attempt) if self.is_looking() => {
                let left = self.config.limits.retry_ticks.saturating_sub(attempt.idle);
                u64::from(left.max(1))
            }
            Some(_) => 1,
            None if self.rearm.is_some() => 1,
            None => u64::MAX,
        }
    }

    /// Lets ticks pass of which none has an effect.
    ///
    /// # Panics
    ///
    /// When one of them has.
    pub fn skip_ticks(&mut self, count: u64) {
        if count == 0 || !self.is_looking() {
            return;
        }
        assert!(count < self.ticks_to_wake(), "a skipped tick has no effect");
        if let Some(attempt) = &mut self.attempt {
            attempt.ticks = attempt.ticks.saturating_add(count);
            attempt.idle = attempt
                .idle
                .saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Whether [`Puller::on_target`] would take a descriptor of `from` as the answer to the
    /// request that is out. For owners that judge offers by rules of their own first.
    #[must_use]
    pub fn awaits_target(&self, from: ReplicaId, target: &StateTransferTargetHeader) -> bool {
        self.stage == Stage::AwaitingTarget
            && self
                .expect_sender(from, target.nonce(), target.group())
                .is_ok()
    }

    /// StateTransferTarget: an offer or a refusal.
    ///
    /// # Errors
    ///
    /// Why the frame has no effect. The attempt stays open; the stall timer asks again.
    pub fn on_target(
        &mut self,
        from: ReplicaId,
        target: &Typed<StateTransferTargetHeader>,
        view: &PullView,
        out: &mut Vec<PullOutput>,
    ) -> Result<(), PullIgnored> {
        let header = target.header();
        self.expect_sender(from, header.nonce(), header.group())?;
        if !header.available() {
            self.refused(header.unavailable_transient(), view, out);
            return Ok(());
        }
        if self.stage != Stage::AwaitingTarget {
            return Err(PullIgnored::NotExpected);
        }
        let PullerConfig { plane, limits, .. } = self.config;
        let manifest = Manifest::decode(target.body()).map_err(PullIgnored::Manifest)?;
        let entries: Vec<ManifestEntry> = manifest.iter().collect();
        let bytes_max = limits.segment_bytes_max;
        if let Err(defect) = check_offer(plane, &entries, header.commit_op(), bytes_max) {
            if defect.fails_attempt(plane) {
                self.fail(out);
                return Ok(());
            }
            return Err(PullIgnored::Offer(defect));
        }
        if plane == PlaneKind::Partition && self.turns_down(header, view, out) {
            return Ok(());
        }
        let offer = Offer {
            peer: from,
            view: header.frame.view(),
            commit_op: header.commit_op(),
            commit_max: header.commit_max(),
            commit_max_local: view.commit_max,
            entries,
        };
        self.begin_fetch(offer, out);
        Ok(())
    }

    /// StateChunk: the next bytes.
    ///
    /// # Errors
    ///
    /// Why the frame has no effect.
    pub fn on_chunk(
        &mut self,
        from: ReplicaId,
        chunk: &Typed<StateChunkHeader>,
        out: &mut Vec<PullOutput>,
    ) -> Result<(), PullIgnored> {
        let header = chunk.header();
        self.expect_sender(from, header.nonce(), header.group())?;
        let Some(attempt) = &mut self.attempt else {
            return Err(PullIgnored::NotExpected);
        };
        let Some(fetch) = &mut attempt.fetch else {
            return Err(PullIgnored::NotExpected);
        };
        let Some(entry) = fetch.current() else {
            return Err(PullIgnored::NotExpected);
        };
        let (index, offset) = (fetch.artifact(), header.offset());
        if header.artifact() != index {
            return Err(PullIgnored::WrongPlace);
        }
        fetch
            .accept(offset, chunk.body())
            .map_err(|misfit| match misfit {
                ChunkMisfit::Empty => PullIgnored::EmptyChunk,
                ChunkMisfit::Offset => PullIgnored::WrongPlace,
                ChunkMisfit::Overrun => PullIgnored::Overrun,
            })?;
        attempt.mark_progress();
        out.push(PullOutput::Spool {
            index,
            entry,
            offset,
            chunk: chunk.clone(),
        });
        self.pull(out);
        Ok(())
    }

    /// Artifacts the owner has already, digest and all: they are complete from the start when an
    /// offer lists them, and are reported as reused. To be said again for every attempt; one
    /// that is not listed, or no longer wanted, comes back as a [`PullOutput::Discard`].
    pub fn hold(&mut self, entries: impl IntoIterator<Item = ManifestEntry>) {
        entries
            .into_iter()
            .for_each(|entry| self.verified.insert(entry));
    }

    /// Holds back the next chunk request while storage is behind, and sends it afterwards.
    pub fn set_paused(&mut self, paused: bool, out: &mut Vec<PullOutput>) {
        self.paused = paused;
        if !paused {
            self.pull(out);
        }
    }

    /// The checks passed: the pulled state is being made current.
    ///
    /// # Panics
    ///
    /// When not all artifacts are complete.
    pub fn begin_install(&mut self, out: &mut Vec<PullOutput>) {
        assert!(self.is_fetched(), "an install has all its artifacts");
        self.set_stage(Stage::Installing, out);
    }

    /// Whether every artifact is complete and the owner's verdict is awaited.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        let fetch = self
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.fetch.as_ref());
        self.stage == Stage::Fetching && fetch.is_some_and(|fetch| fetch.current().is_none())
    }

    /// How far the open attempt is.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let attempt = self.attempt.as_ref()?;
        let fetch = attempt.fetch.as_ref();
        let count = fetch.map_or(0, |fetch| fetch.offer.entries.len());
        Some(Progress {
            stage: self.stage,
            peer: attempt.peer,
            artifact: fetch.map_or(0, Fetch::artifact),
            artifacts: u32::try_from(count).unwrap_or(u32::MAX),
            bytes_done: fetch.map_or(0, Fetch::bytes_done),
            bytes_total: fetch.map_or(0, Fetch::bytes_total),
            bytes_received: fetch.map_or(0, |fetch| fetch.bytes_received),
            ticks: attempt.ticks,
        })
    }

    /// Asserts what holds between any two calls.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn check_invariants(&self) {
        let limits = self.config.limits;
        let fetching = self.attempt.as_ref().map(|attempt| attempt.fetch.is_some());
        match self.stage {
            Stage::Idle => assert!(fetching.is_none(), "an idle group has no attempt"),
            Stage::AwaitingTarget => assert!(fetching != Some(true), "no descriptor yet"),
            Stage::Fetching | Stage::Installing => {
                assert!(fetching == Some(true), "there is a descriptor");
            }
        }
        assert!(
            self.rearm.is_none() || self.stage == Stage::Idle,
            "only an idle group waits for its next attempt"
        );
        let Some(attempt) = &self.attempt else { return };
        assert!(attempt.nonce != 0, "an attempt has a nonce");
        assert!(
            attempt.peer != self.config.replica,
            "an attempt has another replica"
        );
        assert!(
            attempt.idle < limits.retry_ticks,
            "a stall is acted on at once"
        );
        assert!(
            attempt.stalls <= limits.stalls_max,
            "and so is the last one"
        );
        let bounded = attempt
            .fetch
            .as_ref()
            .is_none_or(|fetch| fetch.bytes_done() <= fetch.bytes_total());
        assert!(bounded, "no artifact is longer than announced");
    }

    fn age(&mut self, out: &mut Vec<PullOutput>) {
        let waiting = !self.paused || self.stage == Stage::AwaitingTarget;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.ticks = attempt.ticks.saturating_add(1);
        if waiting && attempt.is_waiting() {
            attempt.idle = attempt.idle.saturating_add(1);
        }
        if attempt.idle >= self.config.limits.retry_ticks {
            self.stall(out);
        }
    }

    fn expect_sender(
        &self,
        from: ReplicaId,
        nonce: u128,
        group: GroupId,
    ) -> Result<(), PullIgnored> {
        let Some(attempt) = &self.attempt else {
            return Err(PullIgnored::NotExpected);
        };
        if attempt.nonce != nonce || group != self.config.group {
            return Err(PullIgnored::WrongAttempt);
        }
        if attempt.peer != from {
            return Err(PullIgnored::WrongSender);
        }
        // While it installs, the bytes are all here and the peer has no say any more.
        if self.stage == Stage::Installing || self.is_fetched() {
            return Err(PullIgnored::NotExpected);
        }
        Ok(())
    }

    fn open(&mut self, peer: ReplicaId, out: &mut Vec<PullOutput>) {
        self.attempt = Some(Attempt::new(self.nonces.draw(), peer));
        self.set_stage(Stage::AwaitingTarget, out);
        self.send_request(out);
    }

    fn begin_fetch(&mut self, offer: Offer, out: &mut Vec<PullOutput>) {
        let unlisted = self.verified.drain_unlisted(&offer.entries);
        let discards = unlisted.into_iter();
        out.extend(discards.map(|entry| PullOutput::Discard { entry }));
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.fetch = Some(Fetch::new(offer));
        attempt.mark_progress();
        self.set_stage(Stage::Fetching, out);
        self.pull(out);
    }

    /// Completes what is complete, then asks for the next bytes or reports that all are there.
    fn pull(&mut self, out: &mut Vec<PullOutput>) {
        if self.stage != Stage::Fetching {
            return;
        }
        loop {
            let Some(attempt) = &mut self.attempt else {
                return;
            };
            let Some(fetch) = &mut attempt.fetch else {
                return;
            };
            let Some(entry) = fetch.current() else { return };
            let index = fetch.artifact();
            let reused = fetch.received() == 0 && self.verified.contains(&entry);
            if !reused && !fetch.has_all_bytes() {
                break;
            }
            let is_checked = !biplane_vsr::mutated!(DigestUnchecked);
            if !reused && fetch.digest() != entry.checksum && is_checked {
                return self.fail(out);
            }
            if !reused {
                self.verified.insert(entry);
            }
            fetch.complete_current();
            out.push(PullOutput::Complete {
                index,
                entry,
                reused,
            });
            if fetch.current().is_none() {
                return out.push(PullOutput::Fetched(fetch.offer.clone()));
            }
        }
        if !self.paused {
            self.send_request(out);
        }
    }

    /// Sends what is outstanding: the request for the descriptor, or for the next chunk.
    fn send_request(&mut self, out: &mut Vec<PullOutput>) {
        let PullerConfig {
            cluster,
            group,
            replica,
            limits,
            ..
        } = self.config;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let sender = Sender {
            cluster,
            group,
            replica,
        };
        let Some(message) = attempt.request(sender, limits.chunk_bytes) else {
            return;
        };
        attempt.idle = 0;
        if let Some(fetch) = &mut attempt.fetch {
            fetch.requested = true;
        }
        out.push(PullOutput::Send {
            to: attempt.peer,
            message,
        });
    }

    fn set_stage(&mut self, stage: Stage, out: &mut Vec<PullOutput>) {
        if self.stage == stage {
            return;
        }
        assert!(
            self.stage.may_become(stage),
            "a transfer goes through its stages in order"
        );
        self.stage = stage;
        out.push(PullOutput::Stage(stage));
    }
}
