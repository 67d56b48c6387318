//! Reply frames (chapter 06 section 8): each kind built in one place.

use std::collections::VecDeque;

use biplane_wire::{
    ClusterId, Command, HEADER_SIZE, Message, Op, Operation, PartitionKey, PrepareHeader,
    ReplicaId, ReplyHeader, RoutedRequestHeader, View,
};

/// Body of a committed store or delete of a position: an empty result section.
const OFFSET_OK: [u8; 4] = [0; 4];

/// Confirmations kept to be written over.
const CONFIRMATIONS_MAX: usize = 64;
const CONFIRMED_BYTES: usize = 24;

/// Confirmations of messages that were sent, oldest first, to be written over once their
/// connections are done with them: the one frame a primary makes for every batch costs no
/// allocation then.
#[derive(Debug, Default)]
pub(crate) struct Confirmations {
    sent: VecDeque<Message>,
}

impl Confirmations {
    fn message(&mut self, mut header: ReplyHeader, body: &[u8; CONFIRMED_BYTES]) -> Message {
        header.frame.set_size((HEADER_SIZE + body.len()) as u32);
        if let Some(mut oldest) = self.sent.pop_front() {
            if oldest.reuse_with(&header, body) {
                self.sent.push_back(oldest.clone());
                return oldest;
            }
            self.sent.push_front(oldest);
        }
        let message = Message::from_parts(header, body);
        if self.sent.len() < CONFIRMATIONS_MAX {
            self.sent.push_back(message.clone());
        }
        message
    }
}

/// What a group says about itself in replies it does not build from a prepare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) cluster: ClusterId,
    pub(crate) view: View,
    pub(crate) replica: ReplicaId,
    pub(crate) commit_max: Op,
}

/// The reply to a committed operation: a function of its prepare and of the offset its messages
/// got, `None` when a purge took them back.
pub(crate) fn committed(
    prepare: &PrepareHeader,
    partition: PartitionKey,
    base_offset: Option<u64>,
    confirmations: &mut Confirmations,
) -> Message {
    let mut reply = ReplyHeader::new(Command::Reply);
    reply.frame.set_cluster(prepare.frame.cluster());
    reply.frame.set_view(prepare.frame.view());
    reply.frame.set_release(prepare.frame.release());
    reply.frame.set_replica(prepare.frame.replica());
    reply.set_request_checksum(prepare.request_checksum());
    reply.set_client(prepare.client());
    reply.set_op(prepare.op());
    reply.set_commit(prepare.op());
    reply.set_timestamp(prepare.timestamp());
    reply.set_request(prepare.request());
    reply.set_operation(prepare.operation());
    if prepare.operation() != Operation::SendMessages {
        return Message::from_parts(reply, &OFFSET_OK);
    }
    match base_offset {
        Some(base_offset) => confirmations.message(reply, &confirmed(partition, base_offset)),
        None => Message::from_parts(reply, &0u32.to_le_bytes()),
    }
}

fn confirmed(partition: PartitionKey, base_offset: u64) -> [u8; CONFIRMED_BYTES] {
    let mut body = [0; CONFIRMED_BYTES];
    let words = [1, partition.stream, partition.topic, partition.partition];
    for (field, word) in body.chunks_exact_mut(4).zip(words) {
        field.copy_from_slice(&word.to_le_bytes());
    }
    body[16..].copy_from_slice(&base_offset.to_le_bytes());
    body
}

fn echo(request: &RoutedRequestHeader) -> ReplyHeader {
    let mut reply = ReplyHeader::new(Command::Reply);
    reply.set_request_checksum(request.request_checksum());
    reply.set_client(request.client());
    reply.set_timestamp(request.timestamp());
    reply.set_request(request.request());
    reply.set_operation(request.operation());
    reply
}

/// A refusal by the group.
pub(crate) fn refused(request: &RoutedRequestHeader, origin: &Origin, status: u32) -> Message {
    let mut reply = echo(request);
    reply.frame.set_cluster(origin.cluster);
    reply.frame.set_view(origin.view);
    reply.frame.set_replica(origin.replica);
    reply.set_op(Op::ZERO);
    reply.set_commit(origin.commit_max);
    reply.set_status(status);
    Message::from_parts(reply, &[])
}

/// A refusal by a node that has no such group.
pub(crate) fn refused_without_group(request: &RoutedRequestHeader, status: u32) -> Message {
    let mut reply = echo(request);
    reply.frame.set_cluster(request.frame.cluster());
    reply.frame.set_view(request.frame.view());
    reply.frame.set_replica(request.frame.replica());
    reply.set_status(status);
    Message::from_parts(reply, &[])
}

/// The answer to a request that committed before.
pub(crate) fn duplicate(request: &RoutedRequestHeader, origin: &Origin) -> Message {
    let mut reply = echo(request);
    reply.frame.set_cluster(origin.cluster);
    reply.frame.set_view(origin.view);
    reply.frame.set_replica(origin.replica);
    reply.set_op(origin.commit_max);
    reply.set_commit(origin.commit_max);
    match request.operation() {
        Operation::SendMessages => Message::from_parts(reply, &[]),
        _ => Message::from_parts(reply, &OFFSET_OK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use biplane_wire::{ClientId, GroupId, RequestNumber};

    const CLUSTER: ClusterId = ClusterId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    const PARTITION: PartitionKey = PartitionKey {
        stream: 1,
        topic: 2,
        partition: 3,
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn reply_to_a_send_is_the_vector() {
        let mut prepare = PrepareHeader::new(Command::Prepare);
        prepare.frame.set_cluster(CLUSTER);
        prepare.set_client(ClientId(0x77));
        prepare.set_op(Op(1));
        prepare.set_timestamp(1_700_000_000_123_456);
        prepare.set_request(RequestNumber(9));
        prepare.set_operation(Operation::SendMessages);
        prepare.set_group(GroupId::partition(1, 2, 3).unwrap());
        let reply = committed(
            &prepare,
            PARTITION,
            Some(100),
            &mut Confirmations::default(),
        );
        assert_eq!(reply.size(), 280);
        assert_eq!(
            hex(reply.body()),
            "010000000100000002000000030000006400000000000000"
        );
        let bytes = reply.to_vec();
        assert_eq!(
            hex(&bytes[32..64]),
            "100f0e0d0c0b0a09080706050403020118010000000000000000000008000000"
        );
        assert_eq!(
            hex(&bytes[160..224]),
            concat!(
                "7700000000000000000000000000000001000000000000000100000000000000",
                "40222018240a06000900000000000000a0000000000000000000000000000000"
            )
        );
        assert!(
            bytes[..32]
                .iter()
                .chain(&bytes[64..160])
                .all(|byte| *byte == 0)
        );
        let purged = committed(&prepare, PARTITION, None, &mut Confirmations::default());
        assert_eq!(purged.body(), [0; 4]);
    }

    #[test]
    fn refusal_of_a_store_is_the_vector() {
        let mut request = RoutedRequestHeader::new(Command::Request);
        request.set_client(ClientId(0x77));
        request.set_request(RequestNumber(10));
        request.set_operation(Operation::StoreConsumerOffset);
        let origin = Origin {
            cluster: CLUSTER,
            view: View(0),
            replica: ReplicaId(0),
            commit_max: Op(1),
        };
        let bytes = refused(&request, &origin, 4100).to_vec();
        assert_eq!(
            hex(&bytes[32..64]),
            "100f0e0d0c0b0a09080706050403020100010000000000000000000008000000"
        );
        assert_eq!(
            hex(&bytes[160..224]),
            concat!(
                "7700000000000000000000000000000000000000000000000100000000000000",
                "00000000000000000a00000000000000a1000000000000000410000000000000"
            )
        );
        assert_eq!(bytes.len(), 256);
    }

    #[test]
    fn duplicates_have_the_body_of_their_operation() {
        let mut request = RoutedRequestHeader::new(Command::Request);
        let origin = Origin {
            cluster: CLUSTER,
            view: View(2),
            replica: ReplicaId(1),
            commit_max: Op(7),
        };
        for (operation, body) in [
            (Operation::SendMessages, vec![]),
            (Operation::DeleteConsumerOffset, vec![0; 4]),
        ] {
            request.set_operation(operation);
            let reply = duplicate(&request, &origin);
            assert_eq!(reply.body(), body);
            assert_eq!(reply.header::<ReplyHeader>().op(), Op(7));
            assert_eq!(reply.header::<ReplyHeader>().status(), 0);
        }
    }

    #[test]
    fn a_confirmation_is_written_over_only_when_nobody_holds_it() {
        let mut prepare = PrepareHeader::new(Command::Prepare);
        prepare.set_operation(Operation::SendMessages);
        let mut confirmations = Confirmations::default();
        let mut make = |op: u64| {
            prepare.set_op(Op(op));
            committed(&prepare, PARTITION, Some(op), &mut confirmations)
        };
        let first = make(1);
        let place = first.body().as_ptr();
        let second = make(2);
        assert_ne!(second.body().as_ptr(), place);
        assert_eq!(first.body(), confirmed(PARTITION, 1));
        drop(first);
        let third = make(3);
        assert_eq!(third.body().as_ptr(), place);
        assert_eq!(third.body(), confirmed(PARTITION, 3));
        assert_eq!(third.header::<ReplyHeader>().op(), Op(3));
        assert_eq!(second.body(), confirmed(PARTITION, 2));
    }
}
