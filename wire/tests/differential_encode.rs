//! Encoding against the reference implementation of the protocol crate: the same values give the
//! same bytes on both sides, headers with their seals and identities, batches with both levels
//! of checksums.

#[path = "support/generator.rs"]
mod generator;

use biplane_wire as ours;
use biplane_wire::codec::Codec;
use biplane_wire::{
    Batch, BatchBuilder, Command, FrameBuffer, HEADER_SIZE, Header, Message, SendMessages, Verify,
};
use bytemuck::CheckedBitPattern;
use bytemuck::checked::try_from_bytes;
use generator::{Generator, rounds};
use iggy_binary_protocol::batch::{self as their_batch, BatchIntegrity, decode_batch_slice_with};
use iggy_binary_protocol::codec::WireDecode;
use iggy_binary_protocol::consensus as theirs;
use iggy_binary_protocol::primitives::identifier::WireIdentifier;
use iggy_binary_protocol::primitives::partitioning::WirePartitioning;
use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use theirs::ConsensusHeader;

/// A field from a random number, cut to its width the same way on both sides.
trait Cut {
    fn cut(number: u128) -> Self;
}

macro_rules! cut {
    ($($integer:ty),*; $($id:ident $inner:ty),*) => {
        $(impl Cut for $integer { fn cut(number: u128) -> Self { number as Self } })*
        $(impl Cut for ours::$id {
            fn cut(number: u128) -> Self { Self(number as $inner) }
        })*
    };
}
cut!(u8, u32, u64, u128;
    Op u64, View u32, ReplicaId u8, ClientId u128, RequestNumber u64, Checksum u128,
    ClusterId u128, GroupId u64);

/// Zero, small, the largest or any number.
fn number(random: &mut Generator) -> u128 {
    let wide = u128::from(random.next()) << 64 | u128::from(random.next());
    [
        wide,
        wide >> 100,
        u128::from(random.next() as u32),
        u128::MAX,
        0,
    ][random.below(5)]
}

/// A header of the reference with its command and enumerated bytes set, the rest zero.
fn their_zero<T: CheckedBitPattern>(bytes: &[(usize, u8)]) -> T {
    let mut buffer = FrameBuffer::zeroed(HEADER_SIZE);
    for (at, byte) in bytes {
        buffer.bytes_mut()[*at] = *byte;
    }
    *try_from_bytes(buffer.bytes()).expect("defined bytes")
}

/// Both sides decode the bytes alike.
fn judge<H: Header, T: ConsensusHeader + CheckedBitPattern>(message: Message) -> bool {
    let expected: &T = try_from_bytes(message.header_bytes()).expect("defined bytes");
    let accepted = expected.validate().is_ok();
    assert_eq!(message_is_accepted::<H>(&message), accepted, "{message:?}");
    accepted
}

fn message_is_accepted<H: Header>(message: &Message) -> bool {
    ours::decode_header::<H>(message.header_bytes()).is_ok()
}

/// Seals both where the kind is sealed; the two sides may not seal another.
macro_rules! finish {
    (sealed $mine:ident, $reference:ident, $body:expr) => {{
        $reference.seal();
        Message::sealed($mine, $body)
    }};
    (unsealed $mine:ident, $reference:ident, $body:expr) => {
        Message::from_parts($mine, $body)
    };
}

macro_rules! same_bytes {
    ($(
        $test:ident: $how:ident $name:ident = $theirs:ident $command:ident
        [$($operation_at:literal)?]
        $($set:ident $field:ident)*;
    )*) => {$(
        #[test]
        fn $test() {
            let mut random = Generator::new();
            let mut accepted = 0;
            for _ in 0..rounds() {
                let mut mine = ours::$name::new(Command::$command);
                #[allow(unused_mut)]
                let mut enumerated = vec![(60, Command::$command.as_u8())];
                $(
                    let operation = ours::Operation::ALL[random.below(34)];
                    mine.set_operation(operation);
                    enumerated.push(($operation_at, operation.as_u8()));
                )?
                let mut reference: theirs::$theirs = their_zero(&enumerated);
                let prefix = [(); 5].map(|()| number(&mut random));
                let frame = mine.frame_mut();
                frame.set_cluster(Cut::cut(prefix[0]));
                frame.set_view(Cut::cut(prefix[1]));
                frame.set_replica(Cut::cut(prefix[2]));
                frame.set_checksum_body(Cut::cut(prefix[3]));
                reference.cluster = Cut::cut(prefix[0]);
                reference.view = Cut::cut(prefix[1]);
                reference.replica = Cut::cut(prefix[2]);
                reference.checksum_body = Cut::cut(prefix[3]);
                $(
                    let value = number(&mut random);
                    mine.$set(Cut::cut(value));
                    reference.$field = Cut::cut(value);
                )*
                let body = vec![0; [0, 0, 256, 512, 300][random.below(5)]];
                reference.size = (HEADER_SIZE + body.len()) as u32;
                let message = finish!($how mine, reference, &body);
                let shown = hex::encode(message.header_bytes());
                assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference), "{shown}");
                accepted += usize::from(judge::<ours::$name, theirs::$theirs>(message));
            }
            assert!(accepted > 0, "no header was valid");
        }
    )*};
}

same_bytes! {
    requests: unsealed RequestHeader = RequestHeader Request [176]
        set_client client set_request_checksum request_checksum set_timestamp timestamp
        set_request request set_session session set_user_id user_id;
    routed_requests: unsealed RoutedRequestHeader = RoutedRequestHeader Request [176]
        set_client client set_request_checksum request_checksum set_timestamp timestamp
        set_request request set_session session set_user_id user_id set_group group;
    replies: unsealed ReplyHeader = ReplyHeader Reply [208]
        set_request_checksum request_checksum set_context context set_client client set_op op
        set_commit commit set_timestamp timestamp set_request request set_status status;
    prepare_oks: sealed PrepareOkHeader = PrepareOkHeader PrepareOk [192]
        set_parent parent set_prepare_checksum prepare_checksum set_op op set_commit commit
        set_timestamp timestamp set_request request set_group group;
    commits: sealed CommitHeader = CommitHeader Commit []
        set_commit_checksum commit_checksum set_timestamp_monotonic timestamp_monotonic
        set_commit commit set_checkpoint_op checkpoint_op set_group group;
    start_view_changes: sealed StartViewChangeHeader = StartViewChangeHeader StartViewChange []
        set_group group;
    do_view_changes: sealed DoViewChangeHeader = DoViewChangeHeader DoViewChange []
        set_op op set_commit commit set_group group set_log_view log_view
        set_nack_bitset nack_bitset set_present_bitset present_bitset;
    start_views: sealed StartViewHeader = StartViewHeader StartView []
        set_op op set_commit commit set_group group set_incarnation incarnation;
    request_start_views: sealed RequestStartViewHeader = RequestStartViewHeader RequestStartView []
        set_group group set_incarnation incarnation;
    request_prepares: sealed RequestPreparesHeader = RequestPreparesHeader RequestPrepares []
        set_nonce nonce set_from_op from_op set_to_op to_op set_group group;
    repair_done: sealed RepairRangeReplyHeader = RepairRangeReplyHeader RepairDone []
        set_nonce nonce set_op op set_group group;
    range_evicted: sealed RepairRangeReplyHeader = RepairRangeReplyHeader RangeEvicted []
        set_nonce nonce set_op op set_group group;
    request_state_transfers: sealed RequestStateTransferHeader = RequestStateTransferHeader
        RequestStateTransfer [] set_nonce nonce set_group group;
    request_state_chunks: sealed RequestStateChunkHeader = RequestStateChunkHeader
        RequestStateChunk []
        set_nonce nonce set_offset offset set_group group set_length len set_artifact artifact;
    state_chunks: sealed StateChunkHeader = StateChunkHeader StateChunk []
        set_nonce nonce set_offset offset set_group group set_artifact artifact;
    forward_registers: sealed ForwardRegisterHeader = ForwardRegisterHeader ForwardRegister []
        set_client client set_nonce nonce set_user_id user_id;
    forward_logouts: sealed ForwardLogoutHeader = ForwardLogoutHeader ForwardLogout []
        set_client client set_nonce nonce set_session session set_request request;
}

#[test]
fn state_transfer_targets() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let mut mine = ours::StateTransferTargetHeader::new(Command::StateTransferTarget);
        let mut reference: theirs::StateTransferTargetHeader = their_zero(&[(60, 23)]);
        let [nonce, op, group, max] = [(); 4].map(|()| number(&mut random));
        mine.set_nonce(nonce);
        mine.set_commit_op(Cut::cut(op));
        mine.set_group(Cut::cut(group));
        mine.set_commit_max(Cut::cut(max));
        reference.nonce = nonce;
        reference.commit_op = Cut::cut(op);
        reference.group = Cut::cut(group);
        reference.commit_max = Cut::cut(max);
        let body = match random.below(3) {
            0 => {
                mine.set_offer();
                reference.available = 1;
                ours::Manifest::encode(&[])
            }
            transient => {
                mine.set_refusal(transient == 1);
                reference.unavailable_transient = u8::from(transient == 1);
                Vec::new()
            }
        };
        reference.size = (HEADER_SIZE + body.len()) as u32;
        reference.seal();
        let message = Message::sealed(mine, &body);
        assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference));
        type Ours = ours::StateTransferTargetHeader;
        assert!(judge::<Ours, theirs::StateTransferTargetHeader>(message));
    }
}

#[test]
fn forward_results() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let [nonce, client, first, second] = [(); 4].map(|()| number(&mut random));
        let outcome = ours::ForwardRegisterOutcome::ALL[random.below(7)];
        let mut mine = ours::ForwardRegisterResultHeader::new(Command::ForwardRegisterResult);
        let enumerated = [(60, 27), (255, outcome as u8)];
        let mut reference: theirs::ForwardRegisterResultHeader = their_zero(&enumerated);
        mine.set_outcome(outcome);
        mine.set_nonce(nonce);
        mine.set_client(Cut::cut(client));
        mine.set_epoch(Cut::cut(first));
        mine.set_watermark(Cut::cut(second));
        (reference.nonce, reference.client) = (nonce, client);
        (reference.epoch, reference.watermark) = (Cut::cut(first), Cut::cut(second));
        reference.size = 256;
        reference.seal();
        let message = Message::sealed(mine, &[]);
        assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference));
        type Registered = ours::ForwardRegisterResultHeader;
        judge::<Registered, theirs::ForwardRegisterResultHeader>(message);

        let outcome = ours::ForwardLogoutOutcome::ALL[random.below(5)];
        let mut mine = ours::ForwardLogoutResultHeader::new(Command::ForwardLogoutResult);
        let enumerated = [(60, 29), (255, outcome as u8)];
        let mut reference: theirs::ForwardLogoutResultHeader = their_zero(&enumerated);
        mine.set_outcome(outcome);
        mine.set_nonce(nonce);
        mine.set_client(Cut::cut(client));
        mine.set_commit(Cut::cut(first));
        (reference.nonce, reference.client) = (nonce, client);
        reference.commit = Cut::cut(first);
        reference.size = 256;
        reference.seal();
        let message = Message::sealed(mine, &[]);
        assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference));
        type LoggedOut = ours::ForwardLogoutResultHeader;
        judge::<LoggedOut, theirs::ForwardLogoutResultHeader>(message);
    }
}

#[test]
fn evictions() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let [cluster, view, replica, client] = [(); 4].map(|()| number(&mut random));
        // A roster has at most 32 members; the reference asserts it.
        let (view, replica) = (Cut::cut(view), (replica % 32) as u8);
        let client = client.max(1);
        let mut mine = ours::EvictionHeader::new(Command::Eviction);
        mine.frame.set_cluster(Cut::cut(cluster));
        mine.frame.set_view(ours::View(view));
        mine.frame.set_replica(ours::ReplicaId(replica));
        mine.set_client(ours::ClientId(client));
        // The reference builds neither the reserved reason nor those it never sends.
        let bytes = [1, 4, 5, 7, 9, 10, 11, 12, 13, 14, 15];
        let reason = ours::EvictionReason::from_u8(bytes[random.below(bytes.len())]);
        mine.set_reason(reason.expect("a reason"));
        let reference = if mine.reason() == ours::EvictionReason::IncompatibleProtocol {
            let min = 1 + random.next() as u32 % 20_000;
            let max = min + random.next() as u32 % 100;
            mine.set_version_max(max);
            mine.set_version_min(min);
            theirs::EvictionHeader::incompatible_protocol(cluster, view, replica, client, max, min)
        } else {
            let byte = mine.reason().as_u8();
            let found: &theirs::EvictionReason =
                try_from_bytes(std::slice::from_ref(&byte)).expect("a defined reason");
            theirs::EvictionHeader::new(cluster, view, replica, client, *found)
        };
        let message = Message::from_parts(mine, &[]);
        assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference));
        assert!(judge::<ours::EvictionHeader, theirs::EvictionHeader>(
            message
        ));
    }
}

#[test]
fn prepares_and_their_repair_form() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let numbers = [(); 11].map(|()| number(&mut random));
        let operation = ours::Operation::ALL[random.below(34)];
        let metadata = random.below(2) == 0;
        let group = if metadata {
            1 << 63
        } else {
            numbers[0] as u64 >> 1
        };
        let mut mine = ours::PrepareHeader::new(Command::Prepare);
        mine.set_operation(operation);
        mine.set_group(ours::GroupId(group));
        mine.frame.set_cluster(Cut::cut(numbers[1]));
        mine.frame.set_view(Cut::cut(numbers[2]));
        mine.frame.set_release(Cut::cut(numbers[3]));
        mine.set_client(Cut::cut(numbers[4]));
        mine.set_parent(Cut::cut(numbers[5]));
        mine.set_request_checksum(Cut::cut(numbers[6]));
        mine.set_op(Cut::cut(numbers[7]));
        mine.set_commit(Cut::cut(numbers[8]));
        mine.set_timestamp(Cut::cut(numbers[9]));
        mine.set_request(Cut::cut(numbers[10]));
        mine.set_user_id(7);
        let body = vec![3; random.below(70)];
        let message = ours::prepare::build_with_body(mine, &body);

        let enumerated = [(60, 6), (208, operation.as_u8())];
        let mut reference: theirs::PrepareHeader = their_zero(&enumerated);
        reference.group = group;
        reference.cluster = Cut::cut(numbers[1]);
        reference.view = Cut::cut(numbers[2]);
        reference.release = Cut::cut(numbers[3]);
        reference.client = Cut::cut(numbers[4]);
        reference.parent = Cut::cut(numbers[5]);
        reference.request_checksum = Cut::cut(numbers[6]);
        reference.op = Cut::cut(numbers[7]);
        reference.commit = Cut::cut(numbers[8]);
        reference.timestamp = Cut::cut(numbers[9]);
        reference.request = Cut::cut(numbers[10]);
        reference.user_id = 7;
        reference.size = (HEADER_SIZE + body.len()) as u32;
        if metadata {
            reference.checksum_body = u128::from(ours::xxh3(&body));
        }
        reference.checksum = reference.identity_checksum();
        assert_eq!(message.header_bytes(), bytemuck::bytes_of(&reference));
        assert!(judge::<ours::PrepareHeader, theirs::PrepareHeader>(
            message.clone()
        ));

        let repair = message.prepare_to_repair();
        let mut buffer = FrameBuffer::zeroed(HEADER_SIZE);
        buffer.bytes_mut().copy_from_slice(repair.header_bytes());
        let theirs::RepairPrepareHeader(inner) =
            try_from_bytes(buffer.bytes()).expect("defined bytes");
        assert_eq!(inner.checksum, reference.checksum);
        assert_eq!(inner.command as u8, 19);
        let repair = repair.into_unique().freeze();
        assert!(judge::<ours::PrepareHeader, theirs::RepairPrepareHeader>(
            repair.clone()
        ));
        assert_eq!(repair.repair_to_prepare(), message);
    }
}

/// A destination and messages, encoded by both sides.
#[test]
fn sent_batches() {
    let mut random = Generator::new();
    for _ in 0..rounds() {
        let [stream, topic, partitioning] = ["I", "I", "R"].map(|token| random.body(token));
        let messages: Vec<_> = (0..1 + random.below(4))
            .map(|_| {
                let payload = random.body("16 8 4")[..1 + random.below(28)].to_vec();
                let headers = random.body("O");
                (number(&mut random), random.next() >> 40, payload, headers)
            })
            .collect();
        let metadata = ours::SendMetadata {
            stream: Codec::decode(&stream).expect("valid"),
            topic: Codec::decode(&topic).expect("valid"),
            partitioning: Codec::decode(&partitioning).expect("valid"),
            messages_count: messages.len() as u32,
        };
        let mut builder = BatchBuilder::new();
        for (id, origin, payload, headers) in &messages {
            builder.push(*id, *origin, payload, headers).expect("fits");
        }
        let mine = SendMessages::encode(&metadata, &builder.finish().expect("fits"));

        let raw: Vec<_> = messages
            .iter()
            .map(|(id, origin, payload, headers)| RawMessage {
                id: *id,
                origin_timestamp: *origin,
                headers: (!headers.is_empty()).then_some(headers.as_slice()),
                payload,
            })
            .collect();
        let stream = WireIdentifier::decode_from(&stream).expect("valid");
        let topic = WireIdentifier::decode_from(&topic).expect("valid");
        let partitioning = WirePartitioning::decode_from(&partitioning).expect("valid");
        let mut reference = Default::default();
        SendMessagesEncoder::encode(&mut reference, &stream, &topic, &partitioning, &raw)
            .expect("fits");
        assert_eq!(mine, reference[..], "{}", hex::encode(&mine));
        assert!(SendMessages::decode(&reference).is_ok());
    }
}

/// Stamped headers, and the verdict on intact and damaged batches.
#[test]
fn stamped_and_damaged_batches() {
    let mut random = Generator::new();
    let mut refused = 0;
    for _ in 0..rounds() {
        let mut builder = BatchBuilder::new();
        for id in 0..random.below(4) as u64 {
            let payload = vec![7; random.below(40)];
            let headers = vec![9; random.below(3) * 12];
            builder
                .push(id.into(), 5 + random.next() % 100, &payload, &headers)
                .expect("fits");
        }
        let mut bytes = builder.finish().expect("within the span");
        if random.below(3) == 0 {
            let (partition, offset, timestamp) = (random.next() as u32, random.next(), 9);
            let mut reference = their_batch::BatchHeader::decode(&bytes).expect("a batch");
            reference.partition_id = u64::from(partition);
            reference.base_offset = offset;
            reference.base_timestamp = timestamp;
            reference.batch_checksum = reference.checksum_for_blob(&bytes[256..]);
            ours::stamp_batch(&mut bytes, partition, offset, timestamp).expect("a batch");
            let mut encoded = [0; 256];
            reference.encode_into(&mut encoded);
            assert_eq!(bytes[..256], encoded);
        }
        if random.below(2) == 0 {
            random.damage(&mut bytes);
        }
        for (mine, reference) in [
            (Verify::Checksums, BatchIntegrity::Verify),
            (Verify::Layout, BatchIntegrity::LayoutOnly),
        ] {
            let mine = Batch::decode_prefix(&bytes, mine).map(|(batch, _)| batch);
            let reference = decode_batch_slice_with(&bytes, reference);
            match (&mine, &reference) {
                (Ok(mine), Ok(reference)) => {
                    assert_eq!(mine.message_count(), reference.message_count());
                    assert_eq!(mine.blob(), reference.blob());
                    for (mine, reference) in mine.frames().zip(reference.iter()) {
                        assert_eq!(mine.header.id(), reference.header.id);
                        assert_eq!(mine.payload, reference.payload);
                        assert_eq!(mine.user_headers, reference.user_headers);
                    }
                }
                (Err(_), Err(_)) => refused += 1,
                _ => panic!(
                    "{mine:?} but {:?}: {}",
                    reference.err(),
                    hex::encode(&bytes)
                ),
            }
        }
    }
    assert!(refused > rounds() / 4, "{refused}");
}
