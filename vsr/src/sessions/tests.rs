//! The client table by example: commits in order, and what a client may still be told.

use biplane_wire::{
    Checksum, ClientId, Command, Message, Op, Operation, PrepareHeader, ReplyHeader, RequestNumber,
    View, xxh3,
};

use super::*;

const ALICE: ClientId = ClientId(0xa);
const BOB: ClientId = ClientId(0xb);

fn prepare(op: u64, client: ClientId, request: u64, user: u32, checksum: u128) -> PrepareHeader {
    let mut header = PrepareHeader::new(Command::Prepare);
    header.set_op(Op(op));
    header.set_client(client);
    header.set_request(RequestNumber(request));
    header.set_user_id(user);
    header.set_request_checksum(Checksum(checksum));
    header
}

fn reply(prepare: &PrepareHeader) -> Message {
    let mut header = ReplyHeader::new(Command::Reply);
    header.set_client(prepare.client());
    header.set_request(prepare.request());
    header.set_request_checksum(prepare.request_checksum());
    header.set_op(prepare.op());
    header.set_commit(prepare.op());
    Message::from_parts(header, &prepare.op().0.to_le_bytes())
}

fn register(table: &mut ClientTable, op: u64, client: ClientId, user: u32) -> Registered {
    let prepare = prepare(op, client, 0, user, 0);
    let registered = table.commit_register(&prepare, reply(&prepare));
    table.check_invariants();
    registered
}

fn request(table: &mut ClientTable, op: u64, client: ClientId, number: u64) -> Cached {
    let prepare = prepare(op, client, number, 1, u128::from(number) + 100);
    let cached = table.commit_request(&prepare, &reply(&prepare));
    table.check_invariants();
    cached
}

fn check(table: &ClientTable, client: ClientId, epoch: u64, number: u64) -> Check<'_> {
    table.check(
        client,
        epoch,
        RequestNumber(number),
        Checksum(u128::from(number) + 100),
    )
}

#[test]
fn register_always_moves_the_epoch_and_keeps_the_history() {
    let mut table = ClientTable::new(4);
    assert_eq!(register(&mut table, 1, ALICE, 1).epoch, 1);
    request(&mut table, 2, ALICE, 1);
    let again = register(&mut table, 3, ALICE, 1);
    assert_eq!((again.epoch, again.watermark), (3, RequestNumber(1)));
    let session = table.get(ALICE).expect("registered");
    let numbers: Vec<u64> = session
        .replies()
        .iter()
        .map(|reply| reply_header(reply).request().0)
        .collect();
    assert_eq!(numbers, [1, 0], "one register reply, the newest");
    assert_eq!(session.latest_commit(), 3);
    assert_eq!(check(&table, ALICE, 1, 2), Check::SessionTooLow);
    assert!(matches!(check(&table, ALICE, 3, 1), Check::Replay(_)));
}

#[test]
fn check_goes_through_the_table_in_order() {
    let mut table = ClientTable::new(4);
    assert_eq!(check(&table, ALICE, 1, 1), Check::NoSession);
    register(&mut table, 5, ALICE, 1);
    for number in [1, 2, 3, 7] {
        request(&mut table, 10 + number, ALICE, number);
    }
    assert_eq!(
        check(&table, ALICE, 4, 7),
        Check::SessionTooLow,
        "the epoch comes first"
    );
    assert_eq!(
        check(&table, ALICE, 6, 9),
        Check::Drop(DropReason::EpochAhead)
    );
    assert_eq!(check(&table, ALICE, 5, 8), Check::New);
    assert_eq!(check(&table, ALICE, 5, 20), Check::New, "gaps are legal");
    let Check::Replay(replay) = check(&table, ALICE, 5, 7) else {
        unreachable!()
    };
    assert_eq!(reply_header(replay).op(), Op(17));
    let conflicting = Checksum(1);
    let reused = Check::Drop(DropReason::NumberReused);
    assert_eq!(table.check(ALICE, 5, RequestNumber(7), conflicting), reused);
    assert_eq!(table.check(ALICE, 5, RequestNumber(2), conflicting), reused);
    let unstamped = table.check(ALICE, 5, RequestNumber(2), Checksum::ZERO);
    assert!(
        matches!(unstamped, Check::Replay(_)),
        "an unstamped one conflicts with nothing"
    );
    assert_eq!(check(&table, ALICE, 5, 5), Check::AlreadyApplied);
}

#[test]
fn ring_keeps_the_last_five_replies() {
    let mut table = ClientTable::new(2);
    register(&mut table, 1, ALICE, 1);
    for number in 1..=6 {
        assert_eq!(
            request(&mut table, 1 + number, ALICE, number),
            Cached::InSession
        );
    }
    assert_eq!(check(&table, ALICE, 1, 1), Check::AlreadyApplied);
    assert!(matches!(check(&table, ALICE, 1, 2), Check::Replay(_)));
    assert_eq!(
        table.get(ALICE).expect("registered").replies().len(),
        RING_MAX
    );
}

#[test]
fn late_commits_do_not_replace_newer_replies() {
    let mut table = ClientTable::new(2);
    register(&mut table, 1, ALICE, 1);
    request(&mut table, 5, ALICE, 3);
    assert_eq!(request(&mut table, 6, ALICE, 2), Cached::Nowhere);
    assert_eq!(request(&mut table, 4, ALICE, 3), Cached::Nowhere);
    assert_eq!(
        request(&mut table, 7, ALICE, 3),
        Cached::InSession,
        "same number, in place"
    );
    let session = table.get(ALICE).expect("registered");
    assert_eq!((session.replies().len(), session.latest_commit()), (2, 7));
}

#[test]
fn full_table_evicts_who_was_answered_longest_ago() {
    let mut table = ClientTable::new(2);
    register(&mut table, 1, ALICE, 1);
    register(&mut table, 2, BOB, 1);
    request(&mut table, 3, ALICE, 1);
    let third = register(&mut table, 4, ClientId(0xc), 1);
    assert_eq!(third.evicted, Some(BOB));
    assert_eq!(table.fences().count(), 0, "it never committed a request");
    let fourth = register(&mut table, 5, ClientId(0xd), 1);
    assert_eq!(fourth.evicted, Some(ALICE));
    let slots: Vec<(usize, ClientId)> = table
        .sessions()
        .map(|(slot, session)| (slot, session.client))
        .collect();
    assert_eq!(
        slots,
        [(0, ClientId(0xd)), (1, ClientId(0xc))],
        "slots are used again"
    );
    assert_eq!(check(&table, ALICE, 1, 2), Check::NoSession);
}

#[test]
fn fence_gives_its_user_the_history_back_and_nobody_else() {
    let mut table = ClientTable::new(2);
    register(&mut table, 1, ALICE, 1);
    request(&mut table, 2, ALICE, 9);
    register(&mut table, 3, BOB, 1);
    register(&mut table, 4, ClientId(0xc), 1);
    assert!(table.get(ALICE).is_none());
    assert_eq!(table.owner(ALICE, 1), 1, "the fence knows whose it was");
    // Another user under the same client id starts from nothing.
    let other = register(&mut table, 5, ALICE, 2);
    assert_eq!(other.watermark, RequestNumber(0));
    assert_eq!(
        table.check_register(ALICE, 1),
        Err(OwnedByAnother { owner: 2 })
    );
    let logout = prepare(6, ALICE, 1, 2, 0);
    table.commit_logout(&logout);
    let back = register(&mut table, 7, ALICE, 1);
    assert_eq!(back.watermark, RequestNumber(9));
    assert!(matches!(check(&table, ALICE, 7, 9), Check::Replay(_)));
    assert_eq!(table.fences().count(), 0, "it was handed over");
}

#[test]
fn request_that_commits_after_the_session_ended_moves_the_fence() {
    let mut table = ClientTable::new(2);
    register(&mut table, 1, ALICE, 1);
    request(&mut table, 2, ALICE, 1);
    table.commit_logout(&prepare(3, ALICE, u64::MAX, 1, 0));
    assert_eq!(request(&mut table, 4, ALICE, 2), Cached::InFence);
    assert_eq!(request(&mut table, 5, ALICE, 1), Cached::Nowhere);
    assert_eq!(request(&mut table, 6, BOB, 1), Cached::Nowhere);
    let back = register(&mut table, 7, ALICE, 1);
    assert_eq!(back.watermark, RequestNumber(2));
}

#[test]
fn logout_by_the_client_forgets_and_a_lost_connection_remembers() {
    let mut table = ClientTable::new(3);
    register(&mut table, 1, ALICE, 1);
    request(&mut table, 2, ALICE, 4);
    let ended = table
        .commit_logout(&prepare(3, ALICE, u64::MAX, 0, 0))
        .expect("there was one");
    assert_eq!(ended.client, ALICE);
    assert_eq!(table.fences().count(), 1);
    // Nobody is named: the fence stays. The owner is named: it goes.
    assert!(table.commit_logout(&prepare(4, ALICE, 5, 0, 0)).is_none());
    assert_eq!(table.fences().count(), 1);
    table.commit_logout(&prepare(5, ALICE, 5, 1, 0));
    assert_eq!(table.fences().count(), 0);
    assert_eq!(
        register(&mut table, 6, ALICE, 1).watermark,
        RequestNumber(0)
    );
}

#[test]
fn oldest_fences_go_when_there_are_more_than_slots() {
    let mut table = ClientTable::new(2);
    for client in 1..=5_u64 {
        let id = ClientId(u128::from(client));
        register(&mut table, client * 10, id, 1);
        request(&mut table, client * 10 + 1, id, 1);
        table.commit_logout(&prepare(client * 10 + 2, id, u64::MAX, 1, 0));
        table.check_invariants();
    }
    let left: Vec<ClientId> = table.fences().map(|fence| fence.client).collect();
    assert_eq!(left, [ClientId(4), ClientId(5)]);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Vectors 17.11.
#[test]
fn empty_tables_are_those_of_the_vectors() {
    let table = ClientTable::new(8);
    assert_eq!(
        hex(&table.encode()),
        "494354330000000000000000810bd9ed67e71288"
    );
    let older = [
        0x49, 0x43, 0x54, 0x32, 0, 0, 0, 0, 0x0b, 0xe7, 0xe1, 0x67, 0xef, 0x67, 0xcc, 0x17,
    ];
    let decoded = ClientTable::decode(&older, 8).expect("the older layout");
    assert!(decoded.is_empty() && decoded.capacity() == 8);
    let mut fenced = ClientTable::new(8);
    fenced.fences.push(Fence {
        client: ClientId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        epoch: 7,
        user_id: 1,
        watermark: RequestNumber(42),
        watermark_checksum: Checksum::ZERO,
        reply: None,
    });
    let expected = "494354330000000001000000100f0e0d0c0b0a09080706050403020107000000000000000100\
        00002a000000000000000000000000000000000000000000000000000000bb43832ab0ee012f";
    assert_eq!(hex(&fenced.encode()), expected);
}

/// Vector of chapter 04 section 8.5: one session and one fence.
#[test]
fn table_with_a_session_and_a_fence_is_that_of_the_vector() {
    let client = ClientId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
    let mut header = ReplyHeader::new(Command::Reply);
    let cluster = 0x1122_3344_5566_7788_9900_aabb_ccdd_eeff;
    header.frame.set_cluster(biplane_wire::ClusterId(cluster));
    header.frame.set_view(View(2));
    header.set_client(client);
    header.set_op(Op(5));
    header.set_commit(Op(5));
    header.set_timestamp(0x0006_0590_9823_1de0);
    header.set_operation(Operation::Register);
    let mut table = ClientTable::new(8);
    let mut prepare = prepare(5, client, 0, 7, 0);
    prepare.set_operation(Operation::Register);
    table.commit_register(&prepare, Message::from_parts(header, &[]));
    table.fences.push(Fence {
        client: ClientId(0x42),
        epoch: 3,
        user_id: 9,
        watermark: RequestNumber(12),
        watermark_checksum: Checksum::ZERO,
        reply: None,
    });
    let bytes = table.encode();
    assert_eq!(bytes.len(), 389);
    assert_eq!(hex(&bytes[381..]), "a0879426b0d0ed8a");
    assert_eq!(hex(&bytes[..8]), "4943543301000000");
    assert_eq!(hex(&bytes[60..65]), "0100010000", "one reply of 256 bytes");
    // The same without the fence section is the older layout.
    let mut older = bytes[..321].to_vec();
    older[..4].copy_from_slice(b"ICT2");
    older.extend_from_slice(&xxh3(&older).to_le_bytes());
    assert_eq!(hex(&older[321..]), "8d8aa64313c6b3ee");
    let decoded = ClientTable::decode(&older, 8).expect("the older layout");
    assert_eq!((decoded.len(), decoded.fences().count()), (1, 0));
    let decoded = ClientTable::decode(&bytes, 8).expect("our own");
    assert_eq!(decoded.encode(), bytes);
}

fn sample() -> ClientTable {
    let mut table = ClientTable::new(4);
    register(&mut table, 1, ALICE, 1);
    register(&mut table, 2, BOB, 2);
    for number in 1..=7 {
        request(&mut table, 10 + number, ALICE, number);
    }
    register(&mut table, 30, ClientId(0xc), 3);
    request(&mut table, 31, ClientId(0xc), 5);
    table.commit_logout(&prepare(32, ClientId(0xc), u64::MAX, 3, 0));
    table
}

#[test]
fn transfer_keeps_rings_and_fences() {
    let table = sample();
    let copy = ClientTable::decode(&table.encode(), 4).expect("our own");
    copy.check_invariants();
    assert_eq!(copy.encode(), table.encode());
    assert_eq!(copy.get(ALICE), table.get(ALICE));
    assert_eq!(
        copy.fences().collect::<Vec<_>>(),
        table.fences().collect::<Vec<_>>()
    );
    let grown = ClientTable::decode(&table.encode(), 2).expect("it fits");
    assert_eq!(grown.capacity(), 2);
}

#[test]
fn snapshot_keeps_slots_and_the_newest_reply() {
    let mut table = sample();
    table.commit_logout(&prepare(40, ALICE, u64::MAX, 1, 0));
    let slots: Vec<SlotSnapshot> = table.snapshot().collect();
    assert_eq!(slots.iter().map(|held| held.slot).collect::<Vec<_>>(), [1]);
    let fences: Vec<Fence> = table.fences().cloned().collect();
    let restored = ClientTable::restore(4, slots.clone(), fences).expect("our own");
    restored.check_invariants();
    assert_eq!(
        restored.get(BOB).map(|session| session.replies().len()),
        Some(1)
    );
    assert_eq!(restored.encode(), table.encode());
    let twice = [slots[0].clone(), slots[0].clone()];
    let refused = ClientTable::restore(4, twice, []).map(|_| ());
    assert_eq!(
        refused,
        Err(TableDecodeError::DuplicateClient { client: BOB })
    );
    let mut other = slots[0].clone();
    other.client = ALICE;
    let refused = ClientTable::restore(4, [slots[0].clone(), other.clone()], []).map(|_| ());
    assert_eq!(refused, Err(TableDecodeError::DuplicateSlot { slot: 1 }));
    other.slot = SLOTS_MAX;
    let refused = ClientTable::restore(4, [other.clone()], []).map(|_| ());
    assert_eq!(
        refused,
        Err(TableDecodeError::SlotOutOfRange { slot: SLOTS_MAX })
    );
    other.slot = 9;
    let grown = ClientTable::restore(4, [other], []).expect("it grows");
    assert_eq!(grown.capacity(), 10);
}

/// Replaces bytes and makes the trailer right again.
fn resealed(mut bytes: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    bytes[at..at + value.len()].copy_from_slice(value);
    let split = bytes.len() - 8;
    let trailer = xxh3(&bytes[..split]).to_le_bytes();
    bytes[split..].copy_from_slice(&trailer);
    bytes
}

#[test]
fn broken_tables_are_refused_with_a_reason() {
    let mut table = ClientTable::new(4);
    register(&mut table, 1, ALICE, 1);
    register(&mut table, 2, BOB, 1);
    let bytes = table.encode();
    let entry = (bytes.len() - 8 - 4 - 8) / 2;
    let decode = |bytes: &[u8]| ClientTable::decode(bytes, 4).map(|_| ());
    let at = |offset, value: &[u8]| decode(&resealed(bytes.clone(), offset, value));
    assert_eq!(at(0, b"ICT9"), Err(TableDecodeError::Magic));
    let many = Err(TableDecodeError::TooMany {
        what: "entries",
        count: 65_537,
    });
    assert_eq!(at(4, &65_537_u32.to_le_bytes()), many);
    for count in [0, 6, 255] {
        assert_eq!(
            at(8 + 52, &[count]),
            Err(TableDecodeError::RingLength { count })
        );
    }
    assert_eq!(
        at(8 + 53, &255_u32.to_le_bytes()),
        Err(TableDecodeError::Reply)
    );
    assert_eq!(
        at(8 + 53 + 4 + 60, &[6]),
        Err(TableDecodeError::Reply),
        "not a reply"
    );
    let duplicate = Err(TableDecodeError::DuplicateClient { client: ALICE });
    assert_eq!(at(8 + entry, &ALICE.0.to_le_bytes()), duplicate);
    let mut longer = bytes.clone();
    longer.insert(bytes.len() - 8, 0);
    let longer = resealed(longer, 0, b"ICT3");
    assert_eq!(decode(&longer), Err(TableDecodeError::Trailing { left: 1 }));
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 0x10;
        assert_eq!(
            decode(&flipped),
            Err(TableDecodeError::Checksum),
            "flip at {index}"
        );
    }
    // Truncated content under a right trailer ends in a reason too.
    for cut in 4..bytes.len() - 8 {
        let mut short = bytes[..cut].to_vec();
        short.extend_from_slice(&xxh3(&bytes[..cut]).to_le_bytes());
        assert!(decode(&short).is_err(), "resealed at {cut}");
    }
}
