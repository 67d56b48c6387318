//! The admission table of chapter 06 sections 4.2 and 4.3.

use std::collections::VecDeque;

use biplane_wire::{ClientId, Command, Op, RequestNumber};

use super::*;
use crate::consumer_offsets::{ConsumerKey, ConsumerOffsets};
use crate::dedup::Dedup;
use crate::offset_request;
use crate::testing::{T, producer_batch};

const PARTITION: PartitionKey = PartitionKey {
    stream: 1,
    topic: 2,
    partition: 3,
};
const METADATA: [u8; 26] = [
    22, 0, 0, 0, 1, 4, 1, 0, 0, 0, 1, 4, 2, 0, 0, 0, 2, 4, 3, 0, 0, 0, 2, 0, 0, 0,
];

fn request(operation: Operation, number: u64, body: &[u8]) -> FrameBuffer {
    let mut header = RoutedRequestHeader::new(Command::Request);
    header
        .frame
        .set_size(u32::try_from(HEADER_SIZE + body.len()).unwrap());
    header.set_client(ClientId(0x77));
    header.set_request(RequestNumber(number));
    header.set_session(1);
    header.set_user_id(1);
    header.set_operation(operation);
    FrameBuffer::from_parts(&header, body)
}

fn send(batch: &[u8]) -> FrameBuffer {
    let mut body = METADATA.to_vec();
    body.extend(batch);
    request(Operation::SendMessages, 1, &body)
}

fn state(committed_next: u64) -> LogState {
    LogState {
        next_offset: committed_next,
        unapplied: Default::default(),
        is_ahead: false,
        is_unmarked: false,
        is_replaying: false,
        committed_next,
        rewind_floor: 0,
        unbacked: 0,
        marks: Vec::new(),
        retained_from: 0,
        purge_floor: Op::ZERO,
        installed: Op::ZERO,
        purge_deferred: false,
        persisted: false,
        refused_stamp: None,
        resident: VecDeque::new(),
        dedup: Dedup::new(4),
        offsets: ConsumerOffsets::new(2),
    }
}

fn checked(state: &LogState, request: &FrameBuffer, room: Option<LogRoom>) -> Check {
    check(
        state,
        request.header::<RoutedRequestHeader>(),
        request.body(),
        room,
    )
}

#[test]
fn metadata_is_cut_off_in_place_and_the_partition_is_written() {
    let batch = producer_batch(&[0, 1], T);
    let mut frame = send(&batch);
    assert_eq!(biplane_wire::xxh3(frame.body()), 0xd91c_8e95_fa37_93da);
    let tail = frame.body()[26 + 8..].as_ptr();
    convert(&mut frame, PARTITION).unwrap();
    assert_eq!(frame.size(), 256 + 363);
    assert_eq!(
        frame.header::<RoutedRequestHeader>().frame.size(),
        256 + 363
    );
    assert_eq!(frame.body()[..8], 3u64.to_le_bytes());
    assert_eq!(frame.body()[8..], batch[8..]);
    assert_eq!(frame.body()[8..].as_ptr(), tail, "the batch did not move");
    assert_eq!(
        frame.header::<RoutedRequestHeader>().client(),
        ClientId(0x77)
    );
}

#[test]
fn a_bare_batch_of_this_partition_is_taken_as_it_is() {
    let bare = crate::testing::stamped(&[0, 1], T, 3, 0, 0);
    let mut frame = request(Operation::SendMessages, 1, &bare);
    convert(&mut frame, PARTITION).unwrap();
    assert_eq!(frame.body(), bare);
    let foreign = crate::testing::stamped(&[0, 1], T, 4, 0, 0);
    let mut frame = request(Operation::SendMessages, 1, &foreign);
    assert_eq!(convert(&mut frame, PARTITION), Err(3));
}

#[test]
fn each_malformed_send_has_its_status() {
    let batch = producer_batch(&[0, 1], T);
    let with = |at: usize, byte: u8| {
        let mut body = METADATA.to_vec();
        body.extend(&batch);
        body[at] ^= byte;
        convert(&mut request(Operation::SendMessages, 1, &body), PARTITION)
    };
    assert_eq!(with(0, 1), Err(3), "metadata length");
    assert_eq!(with(4, 2), Err(3), "identifier kind");
    assert_eq!(with(16, 8), Err(3), "partitioning kind");
    assert_eq!(with(22, 1), Err(3), "message count");
    assert_eq!(with(26 + 40, 1), Err(4039), "batch checksum");
    assert_eq!(with(26 + 362, 1), Err(4027), "message checksum");
    for len in 0..26 + 363 {
        let mut body = METADATA.to_vec();
        body.extend(&batch);
        body.truncate(len);
        let refused = convert(&mut request(Operation::SendMessages, 1, &body), PARTITION);
        assert_eq!(refused, Err(3), "length {len}");
    }
    let mut longer = batch.clone();
    longer.push(0);
    assert_eq!(convert(&mut send(&longer), PARTITION), Err(3));
    let mut empty = METADATA.to_vec();
    empty[22] = 0;
    empty.extend(producer_batch(&[], T));
    let refused = convert(&mut request(Operation::SendMessages, 1, &empty), PARTITION);
    assert_eq!(refused, Err(3), "no messages");
}

#[test]
fn checks_come_in_the_order_of_the_chapter() {
    let mut state = state(10);
    let key = ConsumerKey::Consumer(1);
    let store = |number, key, offset| {
        let body = offset_request::encode(key, PARTITION, Some(offset));
        request(Operation::StoreConsumerOffset, number, &body)
    };
    let delete = |number| {
        let body = offset_request::encode(key, PARTITION, None);
        request(Operation::DeleteConsumerOffset, number, &body)
    };
    assert_eq!(checked(&state, &store(1, key, 9), None), Check::Admit);
    assert_eq!(
        checked(&state, &store(1, key, 10), None),
        Check::Refuse(4100)
    );
    assert_eq!(checked(&state, &delete(1), None), Check::Refuse(3021));
    let broken = request(Operation::StoreConsumerOffset, 1, &[9, 9]);
    assert_eq!(checked(&state, &broken, None), Check::Refuse(3));
    let narrow = LogRoom {
        frame_bytes_max: 260,
        free_bytes: 1 << 20,
    };
    assert_eq!(
        checked(&state, &store(1, key, 10), Some(narrow)),
        Check::Refuse(4036)
    );
    let full = LogRoom {
        frame_bytes_max: 1 << 20,
        free_bytes: 10,
    };
    assert_eq!(
        checked(&state, &store(1, key, 10), Some(full)),
        Check::Refuse(58)
    );
    state.dedup.began(0x77, 1);
    assert_eq!(
        checked(&state, &store(1, key, 10), Some(full)),
        Check::Refuse(57)
    );
    state.dedup.commit(0x77, 1, 1, 1);
    assert_eq!(
        checked(&state, &store(1, key, 10), Some(full)),
        Check::Duplicate
    );
    state.offsets.store(key, 1);
    state.offsets.store(ConsumerKey::Consumer(2), 1);
    let third = store(2, ConsumerKey::Consumer(3), 1);
    assert_eq!(checked(&state, &third, None), Check::Refuse(3024));
    assert_eq!(checked(&state, &store(2, key, 1), None), Check::Admit);
    assert_eq!(checked(&state, &delete(2), None), Check::Admit);
}

#[test]
fn an_empty_partition_takes_no_position() {
    let body = offset_request::encode(ConsumerKey::Consumer(1), PARTITION, Some(0));
    let store = request(Operation::StoreConsumerOffset, 1, &body);
    assert_eq!(checked(&state(0), &store, None), Check::Refuse(4100));
    assert_eq!(checked(&state(1), &store, None), Check::Admit);
}
