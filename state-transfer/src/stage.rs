//! The plane a transfer belongs to. Its stages are the replica's own, because the replica holds
//! back what must not be promised while they last.

pub use biplane_vsr::TransferStage as Stage;

/// Which of the two planes a group belongs to; refusals, caps and retries differ between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// The one metadata group.
    Metadata,
    /// A partition group.
    Partition,
}
