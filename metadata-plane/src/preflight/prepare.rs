//! What the primary turns a submitted body into: assignments of new partitions, derived options,
//! and a last look at everything else.

use std::borrow::Cow;

use biplane_wire::request::{
    Assignment, Assignments, CreatePartitionsWithAssignments, CreateTopic,
    CreateTopicWithAssignments, MetadataBody, PartitionsRequest,
};
use biplane_wire::{Codec, EvictionReason, Operation, Options, View};

use super::check_partition_count;
use super::created_view::CreatedViews;
use crate::options::{canonical_blocks, check_create, check_update};
use crate::state::decode_prepared;
use crate::state::streams::Streams;

/// Hands out the numbers that new partitions carry, and the view in which they start.
///
/// Every replica raises it to what stands in the prepares it appends, so that a new primary
/// never hands a number out twice (chapter 05, section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupNumbers {
    highest: u64,
    /// Chooses the view in which new groups start.
    pub views: CreatedViews,
}

impl GroupNumbers {
    /// Starts above `highest`.
    pub fn above(highest: u64) -> Self {
        Self {
            highest,
            views: CreatedViews::default(),
        }
    }

    /// Takes note of a number that is in use.
    pub fn raise(&mut self, used: u64) {
        self.highest = self.highest.max(used);
    }

    /// Takes note of a whole state: what is in it, and that anything may have been deleted on
    /// the way there.
    pub fn note_state(&mut self, streams: &Streams) {
        self.raise(streams.consensus_group_id_max());
        self.views.note_reached(streams.created_view_max());
        if streams.revision() > 0 {
            self.views.note_deletion();
        }
    }

    /// Takes note of what a prepare creates or deletes.
    pub fn raise_from(&mut self, operation: Operation, body: &[u8]) {
        if matches!(
            operation,
            Operation::DeleteStream | Operation::DeleteTopic | Operation::DeletePartitions
        ) {
            return self.views.note_deletion();
        }
        let body = MetadataBody::decode(operation, body);
        let assignments = match &body {
            Ok(MetadataBody::CreateTopicWithAssignments(body)) => &body.assignments,
            Ok(MetadataBody::CreatePartitionsWithAssignments(body)) => &body.assignments,
            _ => return,
        };
        for assignment in assignments.entries {
            self.raise(assignment.consensus_group_id());
        }
        self.views.note_reached(assignments.created_view);
    }

    fn assign(&mut self, count: u32) -> Vec<Assignment> {
        (0..count)
            .map(|partition| {
                self.highest = self.highest.wrapping_add(1);
                Assignment::new(partition, self.highest)
            })
            .collect()
    }
}

/// Turns a submitted request into operation and body of the prepare, on the primary.
///
/// # Errors
///
/// The eviction that answers a request that cannot be prepared: reason 4 for an operation that
/// has no place here, reason 5 for a body that fails a check.
pub fn prepare_body<'a>(
    operation: Operation,
    body: &'a [u8],
    view: View,
    numbers: &mut GroupNumbers,
) -> Result<(Operation, Cow<'a, [u8]>), EvictionReason> {
    let invalid = EvictionReason::InvalidRequestBody;
    match operation {
        Operation::CreateTopic => {
            let request = CreateTopic::decode(body).map_err(|_| invalid)?;
            let settings =
                check_create(&request.options, request.partitions).map_err(|_| invalid)?;
            let (explicit, derived) = canonical_blocks(&settings);
            let entries = numbers.assign(request.partitions);
            let body = CreateTopicWithAssignments {
                request: CreateTopic {
                    options: block(&explicit),
                    ..request
                },
                derived: block(&derived),
                assignments: Assignments {
                    entries: &entries,
                    created_view: numbers.views.choose(view),
                },
            }
            .encode();
            Ok((Operation::CreateTopicWithAssignments, Cow::Owned(body)))
        }
        Operation::CreatePartitions => {
            let request = PartitionsRequest::decode(body).map_err(|_| invalid)?;
            check_partition_count(&request).map_err(|_| invalid)?;
            let entries = numbers.assign(request.count);
            let assignments = Assignments {
                entries: &entries,
                created_view: numbers.views.choose(view),
            };
            let body = CreatePartitionsWithAssignments {
                request,
                assignments,
            }
            .encode();
            Ok((Operation::CreatePartitionsWithAssignments, Cow::Owned(body)))
        }
        Operation::TruncatePartition => decodable(operation, body),
        _ if operation.is_metadata() && !operation.is_internal() => decodable(operation, body),
        _ => Err(EvictionReason::InvalidRequestOperation),
    }
}

/// A block that this server wrote itself.
fn block(bytes: &[u8]) -> Options<'_> {
    Options::parse(bytes).expect("canonical options form a block")
}

fn decodable(
    operation: Operation,
    body: &[u8],
) -> Result<(Operation, Cow<'_, [u8]>), EvictionReason> {
    let decoded =
        decode_prepared(operation, body).map_err(|_| EvictionReason::InvalidRequestBody)?;
    let allowed = match &decoded {
        MetadataBody::CreateStream(body) => body.options.is_empty(),
        MetadataBody::UpdateStream(body) => body.options.is_empty(),
        MetadataBody::CreateUser(body) => body.options.is_empty(),
        MetadataBody::UpdateUser(body) => body.options.is_empty(),
        // The limit of an update was checked against local state, which may lag here.
        MetadataBody::UpdateTopic(body) => check_update(&body.options, 0).is_ok(),
        MetadataBody::DeletePartitions(body) => check_partition_count(body).is_ok(),
        _ => true,
    };
    if allowed {
        Ok((operation, Cow::Borrowed(body)))
    } else {
        Err(EvictionReason::InvalidRequestBody)
    }
}
