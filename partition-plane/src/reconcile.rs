//! Committed topology against the groups that run here: open, bring up to date, close, open
//! again under another incarnation (chapter 06 sections 2.2 and 2.4).
//!
//! A group that ends leaves requests at the disk behind. Its folder is moved or removed only
//! after the last of them is answered: a late write must not land in the folder of the next
//! incarnation.

use biplane_journal::{DiskCompletion, DiskOp, LoadedSuperblock};
use biplane_wire::GroupId;

use crate::context::{Context, Queues};
use crate::group::Group;
use crate::io::{GroupSpec, Output, Outputs, PollReply};
use crate::opening::Opening;
use crate::parking::{Parked, refuse_without_group};
use crate::paths::Paths;
use crate::plane::PartitionPlane;
use crate::recovery::{Recovered, Verdict};
use crate::script::{Progress, Script};
use crate::status;

/// A group in one of its phases. Small: there are tens of thousands, and they are looked up all
/// the time.
pub(crate) enum Slot {
    /// Its files are being brought in order.
    Opening(Box<Opening>),
    /// It takes part.
    Running(Box<Group>),
    /// Its files cannot be used: requests are refused, files stay as they are.
    Refused { spec: Box<GroupSpec> },
    /// It ended; its folder is about to go.
    Closing(Box<Closing>),
}

/// A group that ended.
pub(crate) struct Closing {
    queues: Queues,
    paths: Paths,
    /// The group had no files of its own.
    was_dormant: bool,
    /// What comes of the folder once the disk is quiet.
    then: Then,
    script: Option<Script>,
}

enum Then {
    /// Remove the folder, then open what metadata names now, if anything.
    Remove { next: Option<GroupSpec> },
    /// Set the folder aside and open the same partition without data.
    SetAside {
        spec: GroupSpec,
        number: u64,
        reason: String,
        promises: LoadedSuperblock,
    },
}

impl Slot {
    /// Ten milliseconds passed for a group that does not run.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Opening(opening) => opening.tick(context),
            Self::Closing(closing) => {
                if let Some(script) = &mut closing.script {
                    script.tick(context);
                }
            }
            Self::Running(_) | Self::Refused { .. } => {}
        }
    }
}

impl PartitionPlane {
    /// Every group that was opened and not closed: those that run, those whose files are still
    /// being brought in order, and those that were refused. What metadata no longer names of them
    /// is to be closed.
    pub fn opened_groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let is_wanted = |slot: &Slot| match slot {
            Slot::Opening(_) | Slot::Running(_) | Slot::Refused { .. } => true,
            Slot::Closing(closing) => !matches!(closing.then, Then::Remove { next: None }),
        };
        let slots = self.slots.iter();
        slots.filter_map(move |(group, slot)| is_wanted(slot).then_some(*group))
    }

    /// Metadata names a partition.
    pub(crate) fn open(&mut self, spec: GroupSpec, recovered: Recovered, out: &mut Outputs) {
        let group = spec.group;
        if group.unpack().is_none() {
            return;
        }
        let known = match self.slots.get_mut(&group) {
            None => return self.begin_opening(spec, recovered, out),
            Some(Slot::Closing(closing)) => {
                // The folder that was read is the one that goes: the group starts without it.
                closing.then = Then::Remove { next: Some(spec) };
                return;
            }
            Some(Slot::Running(running)) => running.spec.created_revision,
            Some(Slot::Opening(opening)) => opening.spec.created_revision,
            Some(Slot::Refused { spec }) => spec.created_revision,
        };
        if known == spec.created_revision {
            self.update(spec, out);
        } else {
            self.close(group, Some(spec), out);
        }
    }

    fn begin_opening(&mut self, spec: GroupSpec, recovered: Recovered, out: &mut Outputs) {
        let group = spec.group;
        self.next_slot += 1;
        let queues = Queues::of_slot(self.next_slot);
        self.owners.insert(queues, group);
        let recovered = self.heed_damage(&spec, recovered);
        if let Some(reason) = recovered.refusal() {
            let reason = reason.to_owned();
            out.push(Output::Fenced { group, reason });
        }
        let line = self.shared.line(group, spec.created_revision);
        if self.may_be_dormant(&spec, &recovered, line) {
            return self.open_dormant(spec, line, queues, out);
        }
        let (slots, mut context) = self.parts(out);
        let slot = match Opening::start(spec.clone(), recovered, line, queues, &mut context) {
            Some(opening) => Slot::Opening(Box::new(opening)),
            None => Slot::Refused {
                spec: Box::new(spec),
            },
        };
        let refused = matches!(slot, Slot::Refused { .. });
        slots.insert(group, slot);
        self.unsettled.insert(group);
        if refused {
            self.unsettled.remove(&group);
            self.owners.remove(&queues);
            self.refuse_parked(group, out);
        }
    }

    /// New options, purge generation or deletion watermark.
    pub(crate) fn update(&mut self, spec: GroupSpec, out: &mut Outputs) {
        let group = spec.group;
        match self.slots.get_mut(&group) {
            Some(Slot::Running(_)) => {
                self.visit(group, out, |group, context| group.update(spec, context));
            }
            Some(Slot::Opening(opening)) => opening.spec = spec,
            Some(Slot::Refused { spec: known }) => **known = spec,
            Some(Slot::Closing(closing)) => {
                if let Then::SetAside { spec: known, .. } = &mut closing.then {
                    *known = spec;
                }
            }
            None => {}
        }
    }

    /// The partition is gone, or is another incarnation now.
    pub(crate) fn close(&mut self, group: GroupId, next: Option<GroupSpec>, out: &mut Outputs) {
        // What is parked may be of either incarnation: requests are asked for again, prepares
        // are repaired.
        self.refuse_parked(group, out);
        self.strangers.forget(group);
        if self.slots.contains_key(&group) {
            self.retired.insert(group);
        }
        let Some(slot) = self.slots.remove(&group) else {
            return;
        };
        let then = Then::Remove { next };
        let mut was_dormant = false;
        let (queues, paths) = match slot {
            Slot::Running(mut running) => {
                let revision = running.spec.created_revision;
                let (_, mut context) = self.parts(out);
                context.provider.forget(group);
                running.refuse_all(&mut context);
                was_dormant = running.home().is_line();
                self.forget_line(group, revision);
                (running.queues(), running.paths().clone())
            }
            Slot::Opening(opening) => {
                for (token, _) in opening.polls {
                    let reply = PollReply::refused(status::NOT_ACCEPTED);
                    out.push(Output::PollReply { token, reply });
                }
                was_dormant = opening.line.is_some();
                self.forget_line(group, opening.spec.created_revision);
                (opening.queues, opening.paths)
            }
            Slot::Closing(mut closing) => {
                closing.then = then;
                self.slots.insert(group, Slot::Closing(closing));
                return;
            }
            Slot::Refused { spec } => {
                let Some(key) = spec.group.unpack() else {
                    return;
                };
                self.next_slot += 1;
                let queues = Queues::of_slot(self.next_slot);
                self.owners.insert(queues, group);
                (queues, Paths::new(key))
            }
        };
        let closing = Closing {
            queues,
            paths,
            was_dormant,
            then,
            script: None,
        };
        self.unfile(group);
        self.unsettled.insert(group);
        self.closing.insert(group);
        self.slots.insert(group, Slot::Closing(Box::new(closing)));
    }

    fn refuse_parked(&mut self, group: GroupId, out: &mut Outputs) {
        for parked in self.parking.take(group) {
            if let Parked::Request { token, request, .. } = parked {
                refuse_without_group(token, &request, out);
            }
        }
    }

    /// A completion for the group that owns its queue.
    pub(crate) fn slot_disk(
        &mut self,
        group: GroupId,
        queues: Queues,
        done: DiskCompletion,
        out: &mut Outputs,
    ) {
        let is_running = |slot: &Slot| match slot {
            Slot::Running(running) => running.queues() == queues,
            _ => false,
        };
        if self.slots.get(&group).is_some_and(is_running) {
            self.visit(group, out, |group, context| group.on_disk(done, context));
            return;
        }
        let (slots, mut context) = self.parts(out);
        match slots.get_mut(&group) {
            Some(Slot::Opening(opening)) if opening.queues == queues => {
                let is_ready = opening.on_disk(done, &mut context);
                if is_ready {
                    self.run(group, out);
                }
            }
            Some(Slot::Closing(closing)) if closing.queues == queues => {
                let Some(script) = &mut closing.script else {
                    return;
                };
                if script.complete(done.token, &done.result, &mut context) == Progress::Done {
                    self.finish_closing(group, out);
                }
            }
            _ => {}
        }
    }

    /// The files are in order: the group takes part from here on.
    pub(crate) fn run(&mut self, group: GroupId, out: &mut Outputs) {
        let Some(Slot::Opening(opening)) = self.slots.remove(&group) else {
            return;
        };
        self.unsettled.remove(&group);
        self.retired.remove(&group);
        let seed = self.seed;
        let mut opening = opening;
        let polls = std::mem::take(&mut opening.polls);
        let spec = opening.spec.clone();
        if opening.line.is_none() {
            self.forget_line(group, spec.created_revision);
        }
        let (slots, mut context) = self.parts(out);
        match Group::open(*opening, seed, &mut context) {
            Ok(mut running) => {
                let prospect = running.prospect(&mut context);
                slots.insert(group, Slot::Running(Box::new(running)));
                self.file(group, &prospect);
            }
            Err(reason) => {
                let spec = Box::new(spec);
                slots.insert(group, Slot::Refused { spec });
                out.push(Output::Fenced { group, reason });
                for (token, query) in polls {
                    self.poll(token, group, query, out);
                }
                return self.refuse_parked(group, out);
            }
        }
        self.introduce_peers(group, out);
        for (token, query) in polls {
            self.poll(token, group, query, out);
        }
        self.release_parked(group, out);
    }

    /// What waited for the group, in the order of arrival. Some of it may have to wait again.
    pub(crate) fn release_parked(&mut self, group: GroupId, out: &mut Outputs) {
        for parked in self.parking.take(group) {
            match parked {
                Parked::Request { token, request, .. } => self.submit(token, group, request, out),
                Parked::Frame { from, frame } => self.frame(from, frame, out),
            }
        }
    }

    /// Takes groups down that asked to start over. On a tick, not in the step that found the
    /// reason: what that step sent was true when it was sent.
    pub(crate) fn take_resets(&mut self, out: &mut Outputs) {
        for (group, reason) in std::mem::take(&mut self.resets) {
            self.reset(group, reason, out);
        }
    }

    /// Moves closing groups on whose disk requests are all answered.
    pub(crate) fn settle_slots(&mut self, out: &mut Outputs) {
        if self.closing.is_empty() {
            return;
        }
        let quiet = |group: &GroupId| match self.slots.get(group) {
            Some(Slot::Closing(closing)) => {
                closing.script.is_none() && !self.outstanding.contains_key(&closing.queues)
            }
            _ => false,
        };
        let quiet: Vec<GroupId> = self.closing.iter().copied().filter(quiet).collect();
        for group in quiet {
            self.start_removal(group, out);
        }
    }

    fn reset(&mut self, group: GroupId, reason: String, out: &mut Outputs) {
        // Two steps of one input may have asked for it.
        if !matches!(self.slots.get(&group), Some(Slot::Running(_))) {
            return;
        }
        let Some(Slot::Running(mut running)) = self.slots.remove(&group) else {
            return;
        };
        let (_, mut context) = self.parts(out);
        context.provider.forget(group);
        running.refuse_all(&mut context);
        let number = context.wall_micros.max(context.now);
        let promises = running.promises();
        let (queues, paths) = (running.queues(), running.paths().clone());
        let spec = GroupSpec {
            is_new: false,
            ..running.spec.clone()
        };
        let then = Then::SetAside {
            spec,
            number,
            reason,
            promises,
        };
        let closing = Closing {
            queues,
            paths,
            was_dormant: false,
            then,
            script: None,
        };
        self.unfile(group);
        self.unsettled.insert(group);
        self.closing.insert(group);
        self.slots.insert(group, Slot::Closing(Box::new(closing)));
    }

    fn start_removal(&mut self, group: GroupId, out: &mut Outputs) {
        let (slots, mut context) = self.parts(out);
        let Some(Slot::Closing(closing)) = slots.get_mut(&group) else {
            return;
        };
        match &closing.then {
            Then::Remove { .. } => {
                let path = closing.paths.dir().clone();
                let parent = closing.paths.parent();
                let mut steps = vec![DiskOp::RemoveTree { path }];
                // Of a dormant group at most an attempt to make its files is left, without a
                // promise in it, and perhaps not even the folder above.
                if !closing.was_dormant {
                    steps.push(DiskOp::SyncDir { path: parent });
                }
                let queue = closing.queues.files();
                closing.script = Some(Script::start(queue, steps, &mut context));
            }
            Then::SetAside { .. } => self.finish_closing(group, out),
        }
    }

    fn finish_closing(&mut self, group: GroupId, out: &mut Outputs) {
        let Some(Slot::Closing(closing)) = self.slots.remove(&group) else {
            return;
        };
        self.owners.remove(&closing.queues);
        self.closing.remove(&group);
        self.unsettled.remove(&group);
        match closing.then {
            Then::Remove { next: None } => {}
            Then::Remove { next: Some(spec) } => {
                self.begin_opening(spec, Recovered::bare(Verdict::Absent), out);
            }
            Then::SetAside {
                spec,
                number,
                reason,
                promises,
            } => {
                let verdict = Verdict::SetAside { number, reason };
                let recovered = Recovered {
                    superblock: promises,
                    ..Recovered::bare(verdict)
                };
                self.begin_opening(spec, recovered, out);
            }
        }
    }
}
