//! What must hold before a repaired prepare may enter a log (chapter 04 sections 2.6 to 2.8).
//!
//! A repair frame carries neither nonce nor sender, so it is judged by what it contains: its own
//! checksums, the header a view change named for its op, and the entries around it. Committing
//! through a broken chain can not be undone, which is why the neighbours are asked too, although
//! a frame may arrive before them.

use biplane_wire::prepare::{IngestError, verify_ingest};
use biplane_wire::{Checksum, Command, GroupId, Message, Op, PrepareHeader};

/// What a replica already knows about the place of a repaired prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The group the frame was routed to.
    pub group: GroupId,
    /// Checksum of the header that an adopted or merged suffix names at this op.
    pub identity: Option<Checksum>,
    /// Checksum of the journaled entry at the op before.
    pub below: Option<Checksum>,
    /// Parent field of the journaled entry at the op after.
    pub above_parent: Option<Checksum>,
    /// Whether the op after is known committed.
    pub above_committed: bool,
}

impl Expectation {
    /// Nothing known but the group.
    #[must_use]
    pub fn of_group(group: GroupId) -> Self {
        Self {
            group,
            identity: None,
            below: None,
            above_parent: None,
            above_committed: false,
        }
    }
}

/// The judgement on a repaired prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be journaled.
    Accept,
    /// It is the prepare the view change named, and the local entry after it does not chain to
    /// it: the log is truncated from that op first.
    Displaces {
        /// First op to drop.
        from: Op,
    },
    /// It must not be journaled.
    Reject(Defect),
}

/// What is wrong with a repaired prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The body does not match its seal.
    #[error("the body does not match its seal")]
    BodySeal,
    /// The command byte was not restored, or this is no prepare at all.
    #[error("the frame is not a prepare")]
    Command,
    /// It belongs to another group.
    #[error("the prepare belongs to another group")]
    Group,
    /// The header does not match its identity.
    #[error("the header does not match its identity")]
    Identity,
    /// Op zero is no position in a log.
    #[error("op zero is no position in a log")]
    OpZero,
    /// The operation does not belong to the plane of the group.
    #[error("the operation does not belong to this plane")]
    Operation,
    /// The journaled op after names another parent.
    #[error("the op after names another parent")]
    ParentAbove,
    /// The journaled op before is not its parent.
    #[error("the op before is not its parent")]
    ParentBelow,
    /// A view change named another prepare for this op.
    #[error("the view change named another prepare for this op")]
    Superseded,
}

/// Judges a prepare whose command byte was restored ([`Message::repair_to_prepare`]).
#[must_use]
pub fn verify(prepare: &Message, expected: &Expectation) -> Verdict {
    if prepare.command() != Command::Prepare {
        return Verdict::Reject(Defect::Command);
    }
    let header = prepare.header::<PrepareHeader>();
    if let Err(defect) = check_alone(header, prepare.body(), expected.group) {
        return Verdict::Reject(defect);
    }
    let own = header.frame.checksum();
    if expected.identity.is_some_and(|named| differ(named, own)) {
        return Verdict::Reject(Defect::Superseded);
    }
    if expected
        .below
        .is_some_and(|below| differ(below, header.parent()))
    {
        return Verdict::Reject(Defect::ParentBelow);
    }
    if expected
        .above_parent
        .is_some_and(|parent| differ(parent, own))
    {
        let named = expected.identity.is_some_and(|named| !named.is_zero());
        return match named && !expected.above_committed {
            true => Verdict::Displaces {
                from: header.op().next(),
            },
            false => Verdict::Reject(Defect::ParentAbove),
        };
    }
    Verdict::Accept
}

/// The checks that need nothing but the frame.
fn check_alone(header: &PrepareHeader, body: &[u8], group: GroupId) -> Result<(), Defect> {
    if header.op() == Op::ZERO {
        return Err(Defect::OpZero);
    }
    let operation = header.operation();
    let (in_plane, in_group) = if group.is_metadata() {
        // Logs older than the group field carry zero there.
        let unstamped = header.group() == GroupId(0);
        (
            operation.is_metadata_plane(),
            header.group() == group || unstamped,
        )
    } else {
        (operation.is_partition(), header.group() == group)
    };
    if !in_plane {
        return Err(Defect::Operation);
    }
    if !in_group {
        return Err(Defect::Group);
    }
    verify_ingest(header, body).map_err(|error| match error {
        IngestError::Identity => Defect::Identity,
        IngestError::BodySeal => Defect::BodySeal,
    })
}

/// A zero on either side means "not stamped" and says nothing.
fn differ(left: Checksum, right: Checksum) -> bool {
    !left.is_zero() && !right.is_zero() && left != right
}
