//! The computed test vectors of the protocol specification, chapter 05, section 15.

mod support;

use biplane_metadata_plane::preflight::{self, Caller, GroupNumbers, Supplied};
use biplane_metadata_plane::revocation::RevocationKey;
use biplane_wire::request::{
    ConsumerGroupRequest, JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared, MetadataBody,
    TruncatePartition,
};
use biplane_wire::{ClientId, Codec, Identifier, Operation, Permissions, View, result, xxh3};
use support::bodies::{change_password, create_user, name};
use support::{TS, apply, fresh, hex};

const CLIENT: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

fn caller(user_id: u32) -> Caller {
    Caller {
        user_id: Some(user_id),
        client: ClientId(CLIENT),
        tokens_max: 100,
    }
}

#[test]
fn create_stream_body_and_reply_match() {
    let body = name("orders");
    assert_eq!(body, hex("066f7264657273"));
    assert_eq!(xxh3(&body), 0x327d_5d19_644d_82d7);
    let mut state = fresh();
    let applied = apply(&mut state, Operation::CreateStream, &body);
    let expected = hex(
        "00000000 00000000 00401e18240a0600 00000000 0000000000000000 0000000000000000
         066f7264657273 00000000",
    );
    assert_eq!(result::success(&applied.payload), expected);
    assert_eq!(
        result::rejection(1009).to_vec(),
        hex("0100000000000000f1030000")
    );
}

#[test]
fn group_bodies_match() {
    let request = hex("01040000000001040000000002026731");
    let tail = hex("100f0e0d0c0b0a090807060504030201 02000000 00000000 03000000");
    let body = rewrite(
        Operation::JoinConsumerGroup,
        &request,
        Supplied::InFlight(&[0, 3]),
    );
    assert_eq!(body, [request.clone(), tail].concat());
    let joined = JoinConsumerGroupPrepared::decode(&body).expect("decodes");
    assert_eq!(joined.client, ClientId(CLIENT));
    let body = rewrite(Operation::LeaveConsumerGroup, &request, Supplied::Nothing);
    assert_eq!(
        body,
        [request.clone(), hex("100f0e0d0c0b0a090807060504030201")].concat()
    );
    assert!(LeaveConsumerGroupPrepared::decode(&body).is_ok());
    let target = ConsumerGroupRequest::decode(&request).expect("decodes");
    let needs = preflight::Needs::InFlight { target };
    let state = fresh();
    let operation = Operation::JoinConsumerGroup;
    assert_eq!(
        preflight::needs(&state, &caller(0), operation, &request),
        Ok(needs)
    );
}

fn rewrite(operation: Operation, body: &[u8], supplied: Supplied<'_>) -> Vec<u8> {
    let state = fresh();
    preflight::rewrite(&state, &caller(1), operation, body, supplied)
        .expect("rewritten")
        .into_owned()
}

#[test]
fn truncation_and_completion_bodies_match() {
    let (stream, topic) = (Identifier::Numeric(0), Identifier::Numeric(0));
    let out = TruncatePartition {
        stream,
        topic,
        partition: 1,
        up_to_offset: 999,
    }
    .encode();
    assert_eq!(
        out,
        hex("010400000000 010400000000 01000000 e703000000000000")
    );
    let client = ClientId(CLIENT);
    let key = RevocationKey {
        stream: 0,
        topic: 0,
        group: 5,
        client,
        partition: 1,
    };
    let expected =
        hex("010400000000 010400000000 0500000000000000 100f0e0d0c0b0a090807060504030201 01000000");
    assert_eq!(key.body(), expected);
    assert_eq!(key.proposer().0, 0xffff_ffff_ffff_ffff_0000_0005_0000_0001);
}

/// The request of vector V2.
fn topic_request() -> Vec<u8> {
    hex("010400000000 02000000 027431
         02 1a000000 636f6e73756d65725f6f66667365745f6475726162696c697479
         02 0a000000 7265706c696361746564
         02 0a000000 6475726162696c697479 02 09000000 706572736973746564
         02 0c000000 7365676d656e745f73697a65 02 06000000 3132384d6942")
}

fn topic_prepared() -> Vec<u8> {
    hex("76000000
         010400000000 02000000 027431
         02 1a000000 636f6e73756d65725f6f66667365745f6475726162696c697479
         02 0a000000 7265706c696361746564
         02 0a000000 6475726162696c697479 02 09000000 706572736973746564
         02 0c000000 7365676d656e745f73697a65 0c 08000000 0000000800000000
         dc000000
         02 15000000 636f6d7072657373696f6e5f616c676f726974686d 02 04000000 6e6f6e65
         02 0e000000 6d61785f746f7069635f73697a65 0c 08000000 ffffffffffffffff
         02 0e000000 6d6573736167655f657870697279 0c 08000000 ffffffffffffffff
         02 19000000 6d657373616765735f72657175697265645f746f5f73617665 0b 04000000 00040000
         02 14000000 707265616c6c6f636174655f7365676d656e7473 03 01000000 00
         02 21000000 73697a655f6f665f6d657373616765735f72657175697265645f746f5f73617665
         0c 08000000 0000100000000000
         02000000 00000000 0100000000000000 01000000 0200000000000000
         03000000")
}

#[test]
fn create_topic_is_prepared_with_options_and_assignments() {
    let request = topic_request();
    assert_eq!(request.len(), 116);
    assert_eq!(xxh3(&request), 0x07bb_b7aa_8f60_cdd2);
    let state = fresh();
    let checked = preflight::rewrite(
        &state,
        &caller(0),
        Operation::CreateTopic,
        &request,
        Supplied::Nothing,
    );
    assert_eq!(checked.expect("accepted").as_ref(), &request[..]);
    let mut numbers = GroupNumbers::default();
    let (operation, body) =
        preflight::prepare_body(Operation::CreateTopic, &request, View(3), &mut numbers)
            .expect("prepared");
    assert_eq!(operation, Operation::CreateTopicWithAssignments);
    assert_eq!(body.as_ref(), &topic_prepared()[..]);
    assert_eq!(xxh3(&body), 0xb3e7_306e_71d7_69a8);
}

#[test]
fn derived_block_without_any_options_matches() {
    let request = hex("010400000000 00000000 027431");
    let mut numbers = GroupNumbers::default();
    let (operation, body) =
        preflight::prepare_body(Operation::CreateTopic, &request, View(0), &mut numbers)
            .expect("prepared");
    let Ok(MetadataBody::CreateTopicWithAssignments(topic)) =
        MetadataBody::decode(operation, &body)
    else {
        panic!("a topic");
    };
    assert_eq!(topic.derived.bytes().len(), 326);
    assert_eq!(xxh3(topic.derived.bytes()), 0xf9ca_a71c_6f2a_28b6);
}

#[test]
fn create_topic_reply_matches() {
    let mut state = fresh();
    apply(&mut state, Operation::CreateStream, &name("orders"));
    let prepared = topic_prepared();
    let applied = apply(&mut state, Operation::CreateTopicWithAssignments, &prepared);
    let reply = result::success(&applied.payload);
    let mut expected = hex(
        "00000000 00000000 00401e18240a0600 02000000 ffffffffffffffff 01 ffffffffffffffff
         0000000000000000 0000000000000000 027431",
    );
    expected.extend(hex("69000000"));
    expected.extend_from_slice(&prepared[17..17 + 105]);
    expected.extend_from_slice(&prepared[122..122 + 4 + 220]);
    for partition in ["00000000", "01000000"] {
        expected.extend(hex(partition));
        expected.extend(hex("00401e18240a0600 00000000"));
        expected.extend([0; 24]);
    }
    assert_eq!(reply, expected);
    assert_eq!(reply.len(), 469);
    assert_eq!(xxh3(&reply), 0xa913_2ba3_c8b2_62ea);
}

#[test]
fn create_partitions_is_prepared_and_applied() {
    let request = hex("010400000000 02027431 02000000");
    let mut numbers = GroupNumbers::above(2);
    let (operation, body) =
        preflight::prepare_body(Operation::CreatePartitions, &request, View(3), &mut numbers)
            .expect("prepared");
    let expected = hex("0e000000 010400000000 02027431 02000000
         02000000 00000000 0300000000000000 01000000 0400000000000000 03000000");
    assert_eq!(body.as_ref(), &expected[..]);
    assert_eq!(xxh3(&body), 0x4bbf_bd4d_7f51_1e00);
    let mut state = fresh();
    apply(&mut state, Operation::CreateStream, &name("orders"));
    apply(
        &mut state,
        Operation::CreateTopicWithAssignments,
        &topic_prepared(),
    );
    assert_eq!(apply(&mut state, operation, &body).rejection, None);
    let (_, topic) = state
        .streams()
        .topic(
            &Identifier::Numeric(0),
            &Identifier::named("t1").expect("a name"),
        )
        .expect("there");
    assert_eq!(topic.partition_ids(), [0, 1, 2, 3]);
    let numbers: Vec<u64> = topic
        .partitions
        .iter()
        .map(|p| p.consensus_group_id)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(topic.partitions.iter().all(|p| p.created_view == 3));
}

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAECAwQFBgcICQoLDA0ODw$\
                    wf2/c/vlFte6hIN2Uyogmn1x/V/pPV40SfMbuFX/DGA";

#[test]
fn create_user_is_rewritten_and_applied() {
    let request = create_user("alice", "secret", 1, None);
    assert_eq!(request, hex("05616c696365 06736563726574 01 00"));
    let state = fresh();
    let needs = preflight::needs(&state, &caller(0), Operation::CreateUser, &request);
    assert_eq!(
        needs,
        Ok(preflight::Needs::PasswordHash { password: "secret" })
    );
    let body = preflight::rewrite(
        &state,
        &caller(0),
        Operation::CreateUser,
        &request,
        Supplied::PasswordHash(HASH),
    )
    .expect("rewritten");
    assert_eq!(body.len(), 106);
    assert_eq!(xxh3(&body), 0x96b2_1533_68d2_14ba);
    let mut state = state;
    let applied = apply(&mut state, Operation::CreateUser, &body);
    let expected = hex("00000000 01000000 00401e18240a0600 01 05616c696365 00000000 00000000");
    assert_eq!(result::success(&applied.payload), expected);
}

#[test]
fn wrong_current_password_leaves_an_empty_hash() {
    let state = fresh();
    let request = change_password(&support::bodies::id(1), "old", "new");
    let body = preflight::rewrite(
        &state,
        &caller(1),
        Operation::ChangePassword,
        &request,
        Supplied::PasswordChange(None),
    );
    assert_eq!(
        body.expect("rewritten").as_ref(),
        &hex("010401000000 00 00")[..]
    );
}

#[test]
fn token_bodies_match() {
    let state = fresh();
    let hash = "b02ed059791ba84366c01ee57853984cc8489d23cc383af82b8786e1150bef84";
    let request = [name("ci"), 3_600_000_000_u64.to_le_bytes().to_vec()].concat();
    let body = preflight::rewrite(
        &state,
        &caller(1),
        Operation::CreatePersonalAccessToken,
        &request,
        Supplied::TokenHash(hash),
    )
    .expect("rewritten");
    assert_eq!(body.len(), 79);
    assert_eq!(xxh3(&body), 0x685e_65f7_99b5_41fe);
    let request = name("ci");
    let body = preflight::rewrite(
        &state,
        &caller(1),
        Operation::DeletePersonalAccessToken,
        &request,
        Supplied::Nothing,
    );
    assert_eq!(
        body.expect("rewritten").as_ref(),
        &hex("01000000 026369 00")[..]
    );
}

#[test]
fn permissions_block_round_trips() {
    let block = hex("00 01 00 00 00 01 00 00 00 00 01
         00000000 00 01 00 00 01 00 01
           01000000 00 01 01 01 01
           02000000 01 00 00 00 00
         01
         07000000 01 00 00 00 00 00 00 00");
    assert_eq!(block.len(), 53);
    let permissions = Permissions::decode_exact(&block).expect("decodes");
    assert_eq!(permissions.encode(), block);
    assert!(permissions.global.read_servers && permissions.global.read_streams);
    assert_eq!(TS, 1_700_000_000_000_000);
}
