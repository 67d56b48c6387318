//! Between the planes and the disk threads: the partition plane's small synced writes are gathered,
//! everything else goes straight through.

use biplane_journal::{DiskCompletion, DiskErrorKind, DiskRequest, GroupCommit};
use biplane_metadata_plane::MetadataPlane;
use biplane_metadata_plane::io as metadata;
use biplane_partition_plane as partition;
use tracing::warn;

use super::Node;

/// Ticks between two lines about a full disk.
const FULL_SAID_TICKS: u64 = 6_000;

impl Node {
    /// A request of the metadata plane.
    pub(super) fn submit_disk(&mut self, request: DiskRequest) {
        if let Some(disk) = &self.disk {
            disk.submit(request);
        }
    }

    /// A request of the partition plane. What is gathered leaves with
    /// [`Node::commit_gathered`].
    pub(super) fn submit_partition_disk(&mut self, request: DiskRequest) {
        self.commit.submit(request, &mut self.disk_out);
        self.pass_disk();
    }

    fn pass_disk(&mut self) {
        if let Some(disk) = &self.disk {
            self.disk_out
                .drain(..)
                .for_each(|request| disk.submit(request));
        }
    }

    /// A completion of the disk threads.
    pub(super) fn on_disk(&mut self, completion: DiskCompletion) {
        self.say_full(&completion);
        let queue = completion.queue;
        if MetadataPlane::owns(queue) {
            self.step_metadata(metadata::Input::Disk(completion));
            self.flush();
        } else if self.partitions.owns(queue) || GroupCommit::owns(queue) {
            self.commit.complete(completion, &mut self.disk_out);
            self.pass_disk();
            self.hand_on_answers();
        }
    }

    /// What is refused for want of room is tried again by whoever asked; the operator must know.
    fn say_full(&mut self, completion: &DiskCompletion) {
        if let Err(error) = &completion.result
            && error.kind == DiskErrorKind::NoSpace
            && self
                .full_said
                .is_none_or(|said| self.tick >= said + FULL_SAID_TICKS)
        {
            self.full_said = Some(self.tick);
            warn!(%error, "the disk is full; writes wait until there is room");
        }
    }

    fn hand_on_answers(&mut self) {
        while let Some(answer) = self.commit.next_answer() {
            self.step_partitions(partition::Input::Disk(answer));
            self.flush();
        }
    }

    /// Ten milliseconds passed.
    pub(super) fn tick_disk(&mut self) {
        self.commit.tick(&mut self.disk_out);
        self.pass_disk();
    }

    /// Everything that has arrived is served: what it asked to make durable leaves in one write.
    pub(super) fn commit_gathered(&mut self) {
        self.hand_on_answers();
        self.commit.flush(&mut self.disk_out);
        self.pass_disk();
    }
}
