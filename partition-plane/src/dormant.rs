//! Groups that nobody has written to, as the plane sees them: which may stay without files, and
//! what becomes of changes of their lines.

use biplane_journal::DiskCompletion;
use biplane_wire::GroupId;

use crate::context::Queues;
use crate::io::{GroupSpec, Outputs};
use crate::opening::Opening;
use crate::plane::PartitionPlane;
use crate::reconcile::Slot;
use crate::recovery::{Recovered, Verdict};
use crate::shared_superblock::{Change, Line};

impl PartitionPlane {
    /// Whether the group needs no files yet: nothing of it is on the disk, or only what an
    /// attempt to make its files left, with no promise in it.
    pub(crate) fn may_be_dormant(
        &self,
        spec: &GroupSpec,
        recovered: &Recovered,
        line: Option<Line>,
    ) -> bool {
        let is_untouched = match recovered.verdict {
            Verdict::Absent => true,
            Verdict::Usable => line.is_some() && recovered.superblock.record.is_none(),
            _ => false,
        };
        is_untouched && !spec.options.needs_prepare_log() && self.shared.damage().is_none()
    }

    /// A partition without files may have promised something in a shared superblock that cannot
    /// be read. One that is created right now has not.
    pub(crate) fn heed_damage(&self, spec: &GroupSpec, recovered: Recovered) -> Recovered {
        match self.shared.damage() {
            Some(reason)
                if !spec.is_new
                    && recovered.superblock.record.is_none()
                    && !matches!(recovered.verdict, Verdict::Refused { .. }) =>
            {
                let reason = reason.to_owned();
                Recovered::bare(Verdict::Refused { reason })
            }
            _ => recovered,
        }
    }

    /// Opens a group without files: at once when its promises are recorded, or else when they
    /// are.
    pub(crate) fn open_dormant(
        &mut self,
        spec: GroupSpec,
        line: Option<Line>,
        queues: Queues,
        out: &mut Outputs,
    ) {
        let (group, revision) = (spec.group, spec.created_revision);
        let (slots, mut context) = self.parts(out);
        let Some(opening) = Opening::start_dormant(spec, line, queues, &mut context) else {
            return;
        };
        if let (None, Some((view, log_view))) = (line, opening.line) {
            let line = Line {
                revision,
                view,
                log_view,
            };
            context.lines.push(Change {
                group,
                revision,
                line: Some(line),
            });
        }
        slots.insert(group, Slot::Opening(Box::new(opening)));
        if line.is_some() {
            self.run(group, out);
        }
    }

    /// The line of a group that has files, or is gone.
    pub(crate) fn forget_line(&mut self, group: GroupId, revision: u64) {
        if self.shared.line(group, revision).is_some() {
            self.lines.push(Change {
                group,
                revision,
                line: None,
            });
        }
    }

    /// Hands on what groups want to change.
    pub(crate) fn pass_lines(&mut self, out: &mut Outputs) {
        if self.lines.is_empty() {
            return;
        }
        for change in std::mem::take(&mut self.lines) {
            if self.shared.damage().is_none() {
                self.shared.set(change);
            }
        }
        self.shared.pump(self.now(), out);
    }

    /// The answer to a write of the shared superblock: whoever waited for it goes on.
    pub(crate) fn shared_disk(&mut self, done: &DiskCompletion, out: &mut Outputs) {
        let (now, most) = (self.now(), self.node.limits.disk_retry_ticks_max);
        let durable = self.shared.complete(done.token, &done.result, now, most);
        for Change {
            group,
            revision,
            line,
        } in durable
        {
            match self.slots.get(&group) {
                Some(Slot::Opening(opening))
                    if opening.spec.created_revision == revision
                        && opening.line.is_some()
                        && line.is_some() =>
                {
                    self.run(group, out);
                }
                Some(Slot::Running(running)) if running.spec.created_revision == revision => {
                    let mut has_files = false;
                    self.visit(group, out, |group, context| {
                        has_files = group.on_line(line, context);
                    });
                    if has_files {
                        self.release_parked(group, out);
                    }
                }
                _ => {}
            }
        }
        self.shared.pump(now, out);
    }
}
