//! Consumers in groups: join, sync, poll what is assigned, store, leave.
//!
//! A member polls only what it believes to be its own, and learns by refusals that it is not any
//! more. It stores positions late, so that partitions are in flight when others join.

use biplane_wire::request::{
    ConsumerGroupRequest, CreateConsumerGroup, DeleteConsumerOffset, StoreConsumerOffset,
};
use biplane_wire::response::PolledMessages;
use biplane_wire::{
    AckLevel, Codec as _, Consumer, ConsumerKind, Identifier, Name, Operation, OptionalPartition,
    PartitionKey, Verify,
};

use super::{PlanesWorkload, group_of};
use crate::machine::{Call, GroupAddress, PollCall, PollFrom};
use crate::prng::Prng;

/// Membership in a group, as the client believes.
#[derive(Debug)]
pub(super) struct Membership {
    group: GroupAddress,
    /// Partitions it may poll; `None` until it has asked.
    assigned: Option<Vec<u32>>,
    /// The partition polled last and the offset behind what it brought.
    polled: Option<(u32, u64)>,
}

fn request((stream, topic, group): GroupAddress) -> Vec<u8> {
    ConsumerGroupRequest {
        stream: Identifier::Numeric(stream),
        topic: Identifier::Numeric(topic),
        group: Identifier::Numeric(group),
    }
    .encode()
}

impl PlanesWorkload {
    /// The next thing a group's member, or a client without a group, does.
    pub(super) fn consume_in_group(&mut self, some: PartitionKey, prng: &mut Prng) -> Call {
        let groups = self.directory.groups.clone();
        let Some(membership) = &self.membership else {
            let create = groups.len() < 2 || prng.chance(50_000);
            return match prng.pick(&groups) {
                Some(&group) if !create => {
                    self.metadata(Operation::JoinConsumerGroup, request(group))
                }
                _ => self.create_group(some, prng),
            };
        };
        let group = membership.group;
        let Some(assigned) = membership.assigned.clone() else {
            let client = self.client;
            return Call::Sync { group, client };
        };
        let polled = membership.polled;
        let pick = prng.pick(&assigned).copied();
        match (prng.weighted(&[55, 25, 8, 4, 6, 2]), pick, polled) {
            (0, Some(partition), _) => self.poll_in_group(group, partition, prng),
            (1, _, Some((partition, next))) => self.store_in_group(group, partition, next),
            (2, ..) => {
                let client = self.client;
                Call::Sync { group, client }
            }
            (3, Some(partition), _) => self.forget_in_group(group, partition),
            (4, ..) => self.metadata(Operation::LeaveConsumerGroup, request(group)),
            (5, ..) => self.metadata(Operation::DeleteConsumerGroup, request(group)),
            _ => {
                // Nothing is assigned here: look whether that has changed.
                let client = self.client;
                Call::Sync { group, client }
            }
        }
    }

    fn create_group(&mut self, key: PartitionKey, prng: &mut Prng) -> Call {
        self.directory_at = None;
        let name = format!("g{}", prng.below(4));
        let body = CreateConsumerGroup {
            stream: Identifier::Numeric(key.stream),
            topic: Identifier::Numeric(key.topic),
            name: Name::new(&name).expect("a short name"),
        }
        .encode();
        self.metadata(Operation::CreateConsumerGroup, body)
    }

    fn poll_in_group(&self, group: GroupAddress, partition: u32, prng: &mut Prng) -> Call {
        let (stream, topic, consumer) = group;
        let query = PollCall {
            consumer,
            as_group: true,
            from: PollFrom::Next,
            count: 1 + prng.exponential(6) as u32,
            auto_commit: prng.chance(250_000),
            primary_only: prng.chance(500_000),
        };
        let key = PartitionKey {
            stream,
            topic,
            partition,
        };
        Call::Poll {
            group: group_of(key),
            reader: self.reader(),
            query,
        }
    }

    fn store_in_group(&mut self, group: GroupAddress, partition: u32, next: u64) -> Call {
        let (stream, topic, id) = group;
        let body = StoreConsumerOffset {
            consumer: Consumer {
                kind: ConsumerKind::Group,
                id: Identifier::Numeric(id),
            },
            stream: Identifier::Numeric(stream),
            topic: Identifier::Numeric(topic),
            partition: OptionalPartition(Some(partition)),
            offset: next.saturating_sub(1),
            ack: AckLevel::Quorum,
        };
        let body = body.encode();
        let key = PartitionKey {
            stream,
            topic,
            partition,
        };
        self.request(group_of(key), Operation::StoreConsumerOffset, body)
    }

    fn forget_in_group(&mut self, group: GroupAddress, partition: u32) -> Call {
        let (stream, topic, id) = group;
        let body = DeleteConsumerOffset {
            consumer: Consumer {
                kind: ConsumerKind::Group,
                id: Identifier::Numeric(id),
            },
            stream: Identifier::Numeric(stream),
            topic: Identifier::Numeric(topic),
            partition: OptionalPartition(Some(partition)),
            ack: AckLevel::Quorum,
        };
        let body = body.encode();
        let key = PartitionKey {
            stream,
            topic,
            partition,
        };
        self.request(group_of(key), Operation::DeleteConsumerOffset, body)
    }

    /// A node says what is assigned.
    pub(super) fn synced(&mut self, partitions: Option<&[u32]>) {
        match (partitions, &mut self.membership) {
            (Some(partitions), Some(membership)) => {
                membership.assigned = Some(partitions.to_vec());
            }
            // The node may lag; a client of the server joins again as well.
            (None, _) => self.membership = None,
            _ => {}
        }
    }

    /// A poll of a group came back.
    pub(super) fn polled(&mut self, call: &Call, body: &[u8]) {
        let Call::Poll { group, query, .. } = call else {
            return;
        };
        let (Some(membership), true) = (&mut self.membership, query.as_group) else {
            return;
        };
        let Ok(answer) = PolledMessages::decode(body) else {
            return;
        };
        if answer.partition == PolledMessages::RESYNC {
            membership.assigned = None;
            return;
        }
        let last = answer
            .batches(Verify::Layout)
            .filter_map(Result::ok)
            .filter_map(|batch| batch.offset_last())
            .last();
        let partition = group.unpack().map(|key| key.partition);
        if let (Some(last), Some(partition)) = (last, partition) {
            membership.polled = Some((partition, last + 1));
        }
    }

    /// A metadata request of a group was answered.
    pub(super) fn replied(&mut self, call: &Call, code: u32) {
        let Call::Request {
            operation, body, ..
        } = call
        else {
            return;
        };
        match operation {
            Operation::JoinConsumerGroup if code == 0 => {
                let joined = ConsumerGroupRequest::decode(body).ok().and_then(|target| {
                    let number = |id| match id {
                        Identifier::Numeric(id) => Some(id),
                        Identifier::Named(_) => None,
                    };
                    Some((
                        number(target.stream)?,
                        number(target.topic)?,
                        number(target.group)?,
                    ))
                });
                self.membership = joined.map(|group| Membership {
                    group,
                    assigned: None,
                    polled: None,
                });
            }
            Operation::JoinConsumerGroup => self.directory_at = None,
            Operation::LeaveConsumerGroup | Operation::DeleteConsumerGroup => {
                self.membership = None;
                self.directory_at = None;
            }
            _ => {}
        }
    }

    /// A request was refused for good: what the client believes of its group may be old.
    pub(super) fn refused(&mut self, call: &Call) {
        let of_group = match call {
            Call::Request { operation, .. } => *operation == Operation::StoreConsumerOffset,
            Call::Poll { query, .. } => query.as_group,
            _ => false,
        };
        if let (true, Some(membership)) = (of_group, &mut self.membership) {
            membership.assigned = None;
            membership.polled = None;
        }
    }
}
