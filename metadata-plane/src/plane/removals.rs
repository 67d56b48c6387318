//! Prepares that remove data, found in the log at boot and not known committed.
//!
//! A restarted node may know a lower commit point than it had: the record of it is not written
//! with every op. What it applied beyond is not undone on the disk. So such a prepare is applied
//! only once it is in the own log for good, and after a restart partitions wait for it.

use biplane_vsr::Status;
use biplane_wire::{Message, Op, Operation, PrepareHeader};

use super::MetadataPlane;
use crate::io::Output;
use crate::state::topology::TopologyChange;

/// Whether carrying an operation out removes data of partitions.
fn removes_data(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::DeleteStream
            | Operation::DeleteTopic
            | Operation::DeletePartitions
            | Operation::PurgeStream
            | Operation::PurgeTopic
    )
}

impl MetadataPlane {
    /// Whether a committed prepare has to wait for the own disk. The cluster has settled on it,
    /// but this node would not remember after a loss of power why the data is gone.
    pub(super) fn waits_for_disk(&self, prepare: &Message) -> bool {
        let header = prepare.header::<PrepareHeader>();
        removes_data(header.operation()) && !self.replica.log().is_durable(header.op())
    }

    /// Looks at boot for prepares that are not known committed and remove data.
    pub(super) fn find_removals<'a>(&mut self, log: impl Iterator<Item = &'a Message>) {
        let applied = self.replica.commit_min();
        let headers = log.map(|prepare| prepare.header::<PrepareHeader>());
        let above = headers
            .filter(|header| removes_data(header.operation()))
            .map(PrepareHeader::op);
        self.unsettled = above.filter(|op| *op > applied).max();
    }

    /// Whether partitions may be opened as the state names them.
    ///
    /// Not while the log that was found at boot has prepares that remove data and are not known
    /// committed. This node may have carried them out before it stopped: a partition opened now
    /// would start empty under the name of one that had messages. Once they are applied or
    /// gone, a [`TopologyChange::Replaced`] says so.
    pub fn is_topology_settled(&self) -> bool {
        self.unsettled.is_none()
    }

    /// Says when what was found at boot is applied, or is not part of the log any more.
    pub(super) fn settle_topology(&mut self, out: &mut Vec<Output>) {
        let status = self.replica.status();
        let reached = |op: Op| status.commit_min >= op.min(status.op_head);
        if self.unsettled.is_some_and(reached) && status.status == Status::Normal {
            self.unsettled = None;
            out.push(Output::Topology(TopologyChange::Replaced));
        }
    }
}
