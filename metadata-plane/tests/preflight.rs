//! Checks before replication: the statuses of chapter 05, section 3.2, in their order.

mod support;

use biplane_metadata_plane::preflight::{
    self, Caller, GroupNumbers, Needs, Refusal, Supplied, prepare_body,
};
use biplane_metadata_plane::state::MetadataState;
use biplane_wire::{ClientId, ErrorCode, EvictionReason, Operation, View};
use support::bodies::{
    assigned_topic, cat, change_password, create_group, create_topic, create_user, group, id, name,
    option, partitions, text_option, truncate, update_permissions, update_user,
};
use support::{apply, fresh};

use Operation as Op;

fn caller() -> Caller {
    Caller {
        user_id: Some(1),
        client: ClientId(7),
        tokens_max: 2,
    }
}

fn refusal(state: &MetadataState, operation: Operation, body: &[u8]) -> Option<Refusal> {
    let caller = caller();
    let hash = "a".repeat(64);
    let supplied = match preflight::needs(state, &caller, operation, body) {
        Ok(Needs::Nothing) => Supplied::Nothing,
        Ok(Needs::PasswordHash { .. }) => Supplied::PasswordHash("hash"),
        Ok(Needs::PasswordChange { .. }) => Supplied::PasswordChange(None),
        Ok(Needs::TokenHash) => Supplied::TokenHash(&hash),
        Ok(Needs::InFlight { .. }) => Supplied::InFlight(&[]),
        Err(refusal) => return Some(refusal),
    };
    preflight::rewrite(state, &caller, operation, body, supplied).err()
}

#[track_caller]
fn status(operation: Operation, body: &[u8], expected: u32) {
    let found = refusal(&fresh(), operation, body);
    let code = match found {
        None => 0,
        Some(Refusal::Status(code)) => code.as_u32(),
        Some(Refusal::Evict(reason)) => panic!("evicted: {reason:?}"),
    };
    assert_eq!(code, expected, "{operation}");
}

fn u64_option(key: &str, value: u64) -> Vec<u8> {
    option(key, 12, &value.to_le_bytes())
}

#[test]
fn bodies_that_do_not_decode_get_status_3() {
    let all = [
        Op::CreateStream,
        Op::UpdateStream,
        Op::DeleteStream,
        Op::PurgeStream,
        Op::CreateTopic,
        Op::UpdateTopic,
        Op::DeleteTopic,
        Op::PurgeTopic,
        Op::CreatePartitions,
        Op::DeletePartitions,
        Op::CreateConsumerGroup,
        Op::DeleteConsumerGroup,
        Op::CreateUser,
        Op::UpdateUser,
        Op::DeleteUser,
        Op::ChangePassword,
        Op::UpdatePermissions,
        Op::CreatePersonalAccessToken,
        Op::DeletePersonalAccessToken,
        Op::JoinConsumerGroup,
        Op::LeaveConsumerGroup,
    ];
    for operation in all {
        for body in [&[][..], &[0], &[9, 9, 9]] {
            status(operation, body, 3);
        }
    }
}

#[test]
fn complete_bodies_pass() {
    for (operation, body) in [
        (Op::CreateStream, name("s")),
        (Op::UpdateStream, cat(&[&id(9), &name("s")])),
        (Op::DeleteStream, id(9)),
        (Op::PurgeStream, cat(&[&id(9), b"trailing bytes"])),
        (Op::CreateTopic, create_topic(9, 0, "t", &[])),
        (Op::CreateTopic, create_topic(9, 1_000, "t", &[])),
        (Op::UpdateTopic, cat(&[&id(9), &id(9), &name("t")])),
        (Op::CreatePartitions, partitions(9, &id(9), 1_000)),
        (Op::DeletePartitions, partitions(9, &id(9), 1)),
        (Op::CreateConsumerGroup, create_group(9, 9, "g")),
        (Op::JoinConsumerGroup, group(9, 9, 9)),
        (Op::LeaveConsumerGroup, group(9, 9, 9)),
        (Op::CreateUser, create_user("x", "", 9, None)),
        (Op::UpdateUser, update_user(&id(9), None, None)),
        (Op::ChangePassword, change_password(&id(9), "", "")),
        (Op::UpdatePermissions, update_permissions(&id(9), None)),
        (Op::CreatePersonalAccessToken, cat(&[&name("t"), &[0; 8]])),
        (Op::DeletePersonalAccessToken, name("t")),
    ] {
        status(operation, &body, 0);
    }
}

#[test]
fn option_keys_are_refused_where_there_is_no_catalogue() {
    let some = text_option("segment_size", "128MiB");
    status(Op::CreateStream, &cat(&[&name("s"), &some]), 4041);
    status(Op::UpdateStream, &cat(&[&id(0), &name("s"), &some]), 4041);
    status(
        Op::CreateUser,
        &cat(&[&create_user("x", "y", 1, None), &some]),
        4041,
    );
    status(
        Op::UpdateUser,
        &cat(&[&update_user(&id(0), None, None), &some]),
        4041,
    );
}

#[test]
fn topic_options_are_checked_in_order() {
    let with = |options: &[u8], count| create_topic(0, count, "t", options);
    let cases: [(Vec<u8>, u32, u32); 24] = [
        (u64_option("segment_size", 1 << 20), 1, 0),
        (u64_option("segment_size", 0), 1, 0),
        (u64_option("segment_size", (1 << 20) + 1), 1, 4042),
        (u64_option("segment_size", (1 << 20) - 512), 1, 4042),
        (u64_option("segment_size", (1 << 30) + 512), 1, 4042),
        (option("segment_size", 11, &[0, 0, 16, 0]), 1, 4042),
        (text_option("enforce_fsync", "true"), 1, 4041),
        (option("partitions_count", 11, &[1, 0, 0, 0]), 1, 4041),
        (text_option("durability", "Persisted"), 1, 0),
        (text_option("durability", "async"), 1, 4042),
        (option("durability", 1, b"persisted"), 1, 4042),
        (text_option("compression_algorithm", "Gzip"), 1, 4042),
        (option("compression_algorithm", 9, &[2]), 1, 0),
        (option("compression_algorithm", 9, &[3]), 1, 4042),
        (
            option("messages_required_to_save", 11, &0_u32.to_le_bytes()),
            1,
            4042,
        ),
        (text_option("messages_required_to_save", "16777216"), 1, 0),
        (
            text_option("messages_required_to_save", "16777217"),
            1,
            4042,
        ),
        (
            u64_option("size_of_messages_required_to_save", (1 << 30) + 1),
            1,
            4042,
        ),
        (option("preallocate_segments", 3, &[2]), 1, 4042),
        (option("preallocate_segments", 3, &[1]), 64, 0),
        (option("preallocate_segments", 3, &[1]), 65, 4042),
        (option("preallocate_segments", 3, &[1]), 2_000, 4042),
        (u64_option("max_topic_size", (1 << 30) - 1), 1, 1019),
        (u64_option("max_topic_size", (1 << 30) - 1), 1_001, 2015),
    ];
    for (number, (options, count, expected)) in cases.iter().enumerate() {
        println!("case {number}");
        status(Op::CreateTopic, &with(options, *count), *expected);
    }
    let small = cat(&[
        &u64_option("max_topic_size", 1 << 20),
        &u64_option("segment_size", 1 << 20),
    ]);
    status(Op::CreateTopic, &with(&small, 1), 0);
    let first_wins = cat(&[
        &text_option("message_expiry", "soon"),
        &text_option("zzz", "x"),
    ]);
    status(Op::CreateTopic, &with(&first_wins, 1), 4042);
    let first_wins = cat(&[
        &text_option("zzz", "x"),
        &text_option("message_expiry", "soon"),
    ]);
    status(Op::CreateTopic, &with(&first_wins, 1), 4041);
    status(
        Op::CreateTopic,
        &with(&text_option("message_expiry", "7 days"), 1_001),
        2015,
    );
}

#[test]
fn topic_updates_know_the_segment_size_of_the_topic() {
    let mut state = fresh();
    apply(&mut state, Op::CreateStream, &name("s"));
    let request = create_topic(0, 1, "t", &u64_option("segment_size", 1 << 20));
    apply(
        &mut state,
        Op::CreateTopicWithAssignments,
        &assigned_topic(&request, &[], 1, 1, 0),
    );
    let update = |topic, size| {
        cat(&[
            &id(0),
            &id(topic),
            &name("t"),
            &u64_option("max_topic_size", size),
        ])
    };
    let check = |body: &[u8]| refusal(&state, Op::UpdateTopic, body);
    assert_eq!(check(&update(0, 1 << 20)), None);
    assert_eq!(check(&update(0, 0)), None);
    let too_small = Some(Refusal::Status(ErrorCode::InvalidTopicSize));
    assert_eq!(check(&update(0, (1 << 20) - 1)), too_small);
    assert_eq!(
        check(&update(9, 1 << 20)),
        too_small,
        "an unknown topic counts as 1 GiB"
    );
    let fixed = cat(&[
        &id(0),
        &id(0),
        &name("t"),
        &u64_option("segment_size", 1 << 20),
    ]);
    assert_eq!(
        check(&fixed),
        Some(Refusal::Status(ErrorCode::UnsupportedOptionKey))
    );
}

#[test]
fn partition_counts_of_a_request_are_bounded() {
    for operation in [Op::CreatePartitions, Op::DeletePartitions] {
        for count in [0, 1_001, u32::MAX] {
            status(operation, &partitions(0, &id(0), count), 2015);
        }
    }
}

#[test]
fn tokens_need_a_user_and_are_limited() {
    let mut state = fresh();
    let body = cat(&[&name("t"), &[0; 8]]);
    let nobody = Caller {
        user_id: None,
        ..caller()
    };
    for operation in [Op::CreatePersonalAccessToken, Op::DeletePersonalAccessToken] {
        let supplied = match operation {
            Op::CreatePersonalAccessToken => Supplied::TokenHash("x"),
            _ => Supplied::Nothing,
        };
        let refused = preflight::rewrite(&state, &nobody, operation, &body, supplied);
        assert_eq!(refused, Err(Refusal::Status(ErrorCode::Unauthenticated)));
    }
    for token in ["a", "b"] {
        let body = support::bodies::create_token(1, token, 1, token.chars().next().expect("one"));
        assert_eq!(
            apply(&mut state, Op::CreatePersonalAccessToken, &body).code(),
            0
        );
    }
    let refused = refusal(&state, Op::CreatePersonalAccessToken, &body);
    let full = ErrorCode::PersonalAccessTokensLimitReached;
    assert_eq!(refused, Some(Refusal::Status(full)), "expired ones count");
    let bad = preflight::rewrite(
        &fresh(),
        &caller(),
        Op::CreatePersonalAccessToken,
        &body,
        Supplied::TokenHash("too short"),
    );
    assert_eq!(bad, Err(Refusal::Evict(EvictionReason::InvalidRequestBody)));
}

#[test]
fn operations_of_servers_are_evicted() {
    let invalid = Some(Refusal::Evict(EvictionReason::InvalidRequestOperation));
    for operation in Operation::ALL {
        if operation.is_internal() || operation.is_partition() || operation.as_u8() < 4 {
            assert_eq!(refusal(&fresh(), operation, &[]), invalid, "{operation}");
        }
    }
    let invalid = Some(Refusal::Evict(EvictionReason::InvalidRequestOperation));
    assert_eq!(
        refusal(&fresh(), Op::DeleteSegments, &[]),
        invalid,
        "submitted as operation 68"
    );
}

#[test]
fn primary_refuses_what_it_cannot_prepare() {
    let mut numbers = GroupNumbers::default();
    let mut reason =
        |operation, body: &[u8]| prepare_body(operation, body, View(1), &mut numbers).err();
    let body = Some(EvictionReason::InvalidRequestBody);
    let operation = Some(EvictionReason::InvalidRequestOperation);
    assert_eq!(reason(Op::CreateStream, &[]), body);
    assert_eq!(reason(Op::DeleteStream, &[9]), body);
    assert_eq!(
        reason(Op::CreateTopic, &create_topic(0, 1_001, "t", &[])),
        body
    );
    assert_eq!(
        reason(Op::CreatePartitions, &partitions(0, &id(0), 0)),
        body
    );
    assert_eq!(
        reason(Op::DeletePartitions, &partitions(0, &id(0), 0)),
        body
    );
    assert_eq!(
        reason(
            Op::UpdateTopic,
            &cat(&[&id(0), &id(0), &name("t"), &text_option("x", "y")])
        ),
        body
    );
    assert_eq!(
        reason(Op::JoinConsumerGroup, &group(0, 0, 0)),
        body,
        "the client's form"
    );
    let mut token = support::bodies::create_token(1, "t", 0, 'a');
    *token.last_mut().expect("not empty") = 0xFF;
    assert_eq!(reason(Op::CreatePersonalAccessToken, &token), body);
    assert_eq!(reason(Op::TruncatePartition, &truncate(0, 0, 0, 1)), None);
    for refused in [
        Op::CreateTopicWithAssignments,
        Op::CreatePartitionsWithAssignments,
        Op::RemoveConsumerGroupMember,
        Op::CompleteConsumerGroupRevocation,
        Op::DeleteSegments,
        Op::SendMessages,
        Op::Register,
        Op::Logout,
    ] {
        assert_eq!(reason(refused, &[0; 64]), operation, "{refused}");
    }
}

#[test]
fn numbers_are_never_handed_out_twice() {
    let mut numbers = GroupNumbers::above(5);
    numbers.raise(3);
    let request = create_topic(0, 2, "t", &[]);
    let (operation, first) =
        prepare_body(Op::CreateTopic, &request, View(1), &mut numbers).expect("prepared");
    let mut other = GroupNumbers::default();
    other.raise_from(operation, &first);
    let request = partitions(0, &id(0), 1);
    let (_, second) =
        prepare_body(Op::CreatePartitions, &request, View(1), &mut other).expect("prepared");
    let at = second.len() - 12;
    assert_eq!(second[at..at + 8], 8_u64.to_le_bytes());
}
