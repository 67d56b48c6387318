//! Every operation with every code it can answer, and that a rejection changes nothing.

mod support;

use biplane_metadata_plane::state::MetadataState;
use biplane_wire::{Operation, Permissions};
use support::bodies::{
    assigned_partitions, assigned_topic, cat, change_password, complete, create_group,
    create_token, create_topic, create_user, delete_token, global_permissions, group, id, join,
    leave, name, named, option, partitions, plain_topic, truncate, update_permissions, update_user,
};
use support::{TS, apply_at, code, fresh};

use Operation as Op;

/// Streams `a` (0) with topics `t` (0, three partitions, group `g`) and `u` (1, none), `b` (1);
/// users alice (1) and bob (2); a token `ci` of alice that expires.
fn furnished() -> MetadataState {
    let mut state = fresh();
    for (operation, body) in [
        (Op::CreateStream, name("a")),
        (Op::CreateStream, name("b")),
        (Op::CreateTopicWithAssignments, plain_topic(0, "t", 3)),
        (Op::CreateTopicWithAssignments, plain_topic(0, "u", 0)),
        (Op::CreateConsumerGroup, create_group(0, 0, "g")),
        (Op::JoinConsumerGroup, join(0, 0, 0, 77, &[])),
        (Op::CreateUser, create_user("alice", "hash", 1, None)),
        (Op::CreateUser, create_user("bob", "hash", 1, None)),
        (
            Op::CreatePersonalAccessToken,
            create_token(1, "ci", 1_000, 'a'),
        ),
    ] {
        assert_eq!(code(&mut state, operation, &body), 0, "{operation}");
    }
    state
}

fn bad_width() -> Vec<u8> {
    option("compression_algorithm", 12, &[1, 2, 3])
}

#[track_caller]
fn rejects(operation: Operation, body: &[u8], expected: u32) {
    let mut state = furnished();
    let before = state.clone();
    assert_eq!(code(&mut state, operation, body), expected, "{operation}");
    assert_eq!(state, before, "{operation}: a rejection changes nothing");
}

#[test]
fn streams() {
    rejects(Op::CreateStream, &name("a"), 1012);
    rejects(Op::CreateStream, &cat(&[&name("a"), &bad_width()]), 1012);
    rejects(Op::CreateStream, &cat(&[&name("c"), &bad_width()]), 4042);
    rejects(Op::UpdateStream, &cat(&[&id(9), &name("a")]), 1009);
    rejects(Op::UpdateStream, &cat(&[&named("zz"), &name("a")]), 1009);
    rejects(Op::UpdateStream, &cat(&[&id(1), &name("a")]), 1012);
    rejects(
        Op::UpdateStream,
        &cat(&[&id(1), &name("c"), &bad_width()]),
        4042,
    );
    rejects(Op::DeleteStream, &id(9), 1009);
    rejects(Op::PurgeStream, &named("A"), 1009);
    let mut state = furnished();
    assert_eq!(
        code(&mut state, Op::UpdateStream, &cat(&[&id(1), &name("b")])),
        0,
        "same name"
    );
    assert_eq!(
        code(
            &mut state,
            Op::UpdateStream,
            &cat(&[&named("b"), &name("c")])
        ),
        0
    );
    assert_eq!(
        code(&mut state, Op::CreateStream, &name("b")),
        0,
        "the old name is free"
    );
}

#[test]
fn topics() {
    rejects(
        Op::CreateTopicWithAssignments,
        &plain_topic(9, "x", 1),
        1009,
    );
    rejects(
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 1),
        2013,
    );
    let request = create_topic(0, 1, "x", &bad_width());
    rejects(
        Op::CreateTopicWithAssignments,
        &assigned_topic(&request, &[], 1, 9, 0),
        4042,
    );
    let request = create_topic(0, 1, "x", &[]);
    rejects(
        Op::CreateTopicWithAssignments,
        &assigned_topic(&request, &bad_width(), 1, 9, 0),
        4042,
    );
    for (ids, expected) in [
        (vec![1_000_000], 3013),
        (vec![0, 0], 2019),
        (vec![5, 1_000_000], 3013),
    ] {
        let mut body = assigned_topic(&request, &[], 0, 9, 0);
        body.truncate(body.len() - 8);
        body.extend_from_slice(&(ids.len() as u32).to_le_bytes());
        for id in ids {
            body.extend_from_slice(&u32::to_le_bytes(id));
            body.extend_from_slice(&9_u64.to_le_bytes());
        }
        rejects(Op::CreateTopicWithAssignments, &body, expected);
    }
    let update = |stream: &[u8], topic: &[u8], rest: &[u8]| cat(&[stream, topic, rest]);
    rejects(Op::UpdateTopic, &update(&id(9), &id(0), &name("t")), 1009);
    rejects(Op::UpdateTopic, &update(&id(0), &id(9), &name("t")), 2010);
    rejects(Op::UpdateTopic, &update(&id(0), &id(1), &name("t")), 2013);
    rejects(
        Op::UpdateTopic,
        &update(&id(0), &id(1), &cat(&[&name("v"), &bad_width()])),
        4042,
    );
    for operation in [Op::DeleteTopic, Op::PurgeTopic] {
        rejects(operation, &cat(&[&id(9), &id(0)]), 1009);
        rejects(operation, &cat(&[&id(0), &id(9)]), 2010);
        rejects(operation, &cat(&[&named("a"), &named("zz")]), 2010);
    }
}

#[test]
fn partition_operations() {
    let add = |stream, topic, count| {
        assigned_partitions(&partitions(stream, &id(topic), count), count, 50, 0)
    };
    rejects(Op::CreatePartitionsWithAssignments, &add(9, 0, 1), 1009);
    rejects(Op::CreatePartitionsWithAssignments, &add(0, 9, 1), 2010);
    let with_offset = |offset: u32| {
        let mut body = assigned_partitions(&partitions(0, &id(0), 1), 1, 50, 0);
        let at = body.len() - 16;
        body[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        body
    };
    rejects(
        Op::CreatePartitionsWithAssignments,
        &with_offset(u32::MAX),
        2019,
    );
    rejects(
        Op::CreatePartitionsWithAssignments,
        &with_offset(999_997),
        3013,
    );
    rejects(Op::DeletePartitions, &partitions(9, &id(0), 1), 1009);
    rejects(Op::DeletePartitions, &partitions(0, &id(9), 1), 2010);
    rejects(Op::DeletePartitions, &partitions(0, &id(0), 4), 2019);
    rejects(Op::TruncatePartition, &truncate(9, 0, 0, 1), 1009);
    rejects(Op::TruncatePartition, &truncate(0, 9, 0, 1), 2010);
    rejects(Op::TruncatePartition, &truncate(0, 0, 3, 1), 3007);
    let mut state = furnished();
    let before = state.clone();
    assert_eq!(
        code(&mut state, Op::DeletePartitions, &partitions(0, &id(0), 0)),
        0
    );
    assert_eq!(
        state, before,
        "count 0 of an old log succeeds without effect"
    );
}

#[test]
fn consumer_groups() {
    rejects(Op::CreateConsumerGroup, &create_group(9, 0, "x"), 1009);
    rejects(Op::CreateConsumerGroup, &create_group(0, 9, "x"), 2010);
    rejects(Op::CreateConsumerGroup, &create_group(0, 0, "g"), 5004);
    rejects(Op::DeleteConsumerGroup, &group(9, 0, 0), 1009);
    rejects(Op::DeleteConsumerGroup, &group(0, 9, 0), 2010);
    rejects(Op::DeleteConsumerGroup, &group(0, 0, 9), 5000);
    rejects(Op::JoinConsumerGroup, &join(9, 0, 0, 1, &[]), 1009);
    rejects(Op::JoinConsumerGroup, &join(0, 9, 0, 1, &[]), 2010);
    rejects(Op::JoinConsumerGroup, &join(0, 0, 9, 1, &[]), 5000);
    rejects(Op::LeaveConsumerGroup, &leave(9, 0, 0, 1), 1009);
    rejects(Op::LeaveConsumerGroup, &leave(0, 9, 0, 1), 2010);
    rejects(Op::LeaveConsumerGroup, &leave(0, 0, 9, 1), 5000);
    rejects(Op::LeaveConsumerGroup, &leave(0, 0, 0, 1), 5006);
    let unchanged = [
        (Op::JoinConsumerGroup, join(0, 0, 0, 77, &[0])),
        (Op::RemoveConsumerGroupMember, 1_u128.to_le_bytes().to_vec()),
        (
            Op::CompleteConsumerGroupRevocation,
            complete(9, 0, 0, 77, 0),
        ),
        (
            Op::CompleteConsumerGroupRevocation,
            complete(0, 0, 0, 77, 0),
        ),
        (
            Op::CompleteConsumerGroupRevocation,
            complete(0, 0, 5, 77, 0),
        ),
        (Op::CompleteConsumerGroupRevocation, complete(0, 0, 0, 1, 0)),
    ];
    for (operation, body) in unchanged {
        let mut state = furnished();
        let before = state.clone();
        assert_eq!(code(&mut state, operation, &body), 0, "{operation}");
        assert_eq!(state, before, "{operation} finds nothing to do");
    }
}

#[test]
fn users() {
    rejects(Op::CreateUser, &create_user("ab", "h", 1, None), 43);
    rejects(
        Op::CreateUser,
        &create_user(&"x".repeat(51), "h", 1, None),
        43,
    );
    rejects(Op::CreateUser, &create_user("alice", "h", 1, None), 46);
    rejects(Op::CreateUser, &create_user("iggy", "h", 1, None), 46);
    rejects(
        Op::CreateUser,
        &cat(&[&create_user("carol", "h", 1, None), &bad_width()]),
        4042,
    );
    rejects(
        Op::UpdateUser,
        &update_user(&id(9), Some("carol"), None),
        20,
    );
    rejects(
        Op::UpdateUser,
        &cat(&[&update_user(&id(1), Some("x"), None), &bad_width()]),
        4042,
    );
    rejects(Op::UpdateUser, &update_user(&id(1), Some("x"), None), 43);
    rejects(
        Op::UpdateUser,
        &update_user(&id(1), Some("bob"), Some(2)),
        46,
    );
    rejects(Op::DeleteUser, &id(9), 20);
    rejects(Op::DeleteUser, &id(0), 48);
    rejects(Op::DeleteUser, &named("iggy"), 48);
    rejects(Op::ChangePassword, &change_password(&id(9), "", "hash"), 20);
    rejects(Op::ChangePassword, &change_password(&id(1), "", ""), 42);
    rejects(Op::UpdatePermissions, &update_permissions(&id(9), None), 20);
    rejects(Op::UpdatePermissions, &update_permissions(&id(0), None), 49);
}

#[test]
fn root_may_be_renamed_and_status_bytes_without_meaning_are_ignored() {
    let mut state = furnished();
    let before = state.clone();
    assert_eq!(
        code(
            &mut state,
            Op::UpdateUser,
            &update_user(&id(1), None, Some(7))
        ),
        0
    );
    assert_eq!(state, before, "a status that means nothing is ignored");
    assert_eq!(
        code(
            &mut state,
            Op::UpdateUser,
            &update_user(&id(0), Some("root"), Some(2))
        ),
        0
    );
    assert_eq!(
        code(
            &mut state,
            Op::CreateUser,
            &create_user("iggy", "h", 9, None)
        ),
        0
    );
    assert_eq!(
        state
            .users()
            .by_name("iggy")
            .map(|user| (user.id, user.status.as_u8())),
        Some((3, 1))
    );
}

#[test]
fn tokens() {
    rejects(
        Op::CreatePersonalAccessToken,
        &create_token(1, "ci", 0, 'b'),
        51,
    );
    rejects(
        Op::CreatePersonalAccessToken,
        &create_token(1, "x", u64::MAX - TS + 1, 'b'),
        56,
    );
    rejects(
        Op::DeletePersonalAccessToken,
        &delete_token(1, "x", false),
        20,
    );
    rejects(
        Op::DeletePersonalAccessToken,
        &delete_token(9, "ci", false),
        20,
    );
    rejects(
        Op::DeletePersonalAccessToken,
        &delete_token(9, "ci", true),
        20,
    );
}

#[test]
fn tokens_expire_and_outlive_their_users() {
    let mut state = furnished();
    let before = state.clone();
    assert_eq!(
        code(
            &mut state,
            Op::DeletePersonalAccessToken,
            &delete_token(1, "ci", true)
        ),
        0
    );
    assert_eq!(
        code(
            &mut state,
            Op::DeletePersonalAccessToken,
            &delete_token(1, "x", true)
        ),
        0
    );
    assert_eq!(state, before, "the cleaner leaves what has not expired");
    assert_eq!(state.users().expired_tokens(TS + 999, 9), []);
    assert_eq!(
        state.users().expired_tokens(TS + 1_000, 9),
        [(1, "ci".to_owned())]
    );
    let body = delete_token(1, "ci", true);
    apply_at(
        &mut state,
        Op::DeletePersonalAccessToken,
        &body,
        0,
        TS + 1_000,
    );
    assert_eq!(state.users().token_count(1), 0);
    // A session of a deleted user may still make a token; a new user of the id starts without.
    assert_eq!(code(&mut state, Op::DeleteUser, &id(2)), 0);
    assert_eq!(
        code(
            &mut state,
            Op::CreatePersonalAccessToken,
            &create_token(2, "t", 0, 'c')
        ),
        0
    );
    assert!(state.users().token_by_hash(&"c".repeat(64)).is_some());
    assert_eq!(
        code(
            &mut state,
            Op::CreateUser,
            &create_user("carol", "h", 1, None)
        ),
        0
    );
    assert_eq!(state.users().token_count(2), 0);
    assert!(state.users().token_by_hash(&"c".repeat(64)).is_none());
}

#[test]
fn bodies_that_do_not_decode_are_errors_and_not_codes() {
    use biplane_metadata_plane::state::Prepared;
    use biplane_wire::ClientId;
    let mut not_text = create_token(1, "x", 0, 'a');
    *not_text.last_mut().expect("not empty") = 0xFF;
    let cases: [(Operation, Vec<u8>); 9] = [
        (Op::CreateTopic, create_topic(0, 1, "x", &[])),
        (Op::CreatePartitions, partitions(0, &id(0), 1)),
        (Op::DeleteSegments, vec![]),
        (Op::SendMessages, vec![]),
        (Op::NonReplicated, vec![]),
        (Op::DeleteStream, vec![1, 4, 0, 0, 0]),
        (Op::CreateStream, vec![0]),
        (Op::CreateStream, cat(&[&name("x"), &[2, 1]])),
        (Op::CreatePersonalAccessToken, not_text),
    ];
    for (operation, body) in cases {
        let mut state = furnished();
        let before = state.clone();
        let client = ClientId(1);
        let prepared = Prepared {
            operation,
            client,
            user_id: 0,
            timestamp: TS,
            body: &body,
        };
        let outcome = state.apply(&prepared);
        assert!(outcome.is_err(), "{operation}");
        assert_eq!(state, before);
    }
}

#[test]
fn permission_is_looked_at_after_existence() {
    let mut state = furnished();
    let alice = 1;
    let mut as_alice =
        |operation, body: &[u8]| apply_at(&mut state, operation, body, alice, TS).code();
    assert_eq!(as_alice(Op::CreateStream, &name("c")), 41);
    assert_eq!(as_alice(Op::DeleteStream, &id(9)), 1009);
    assert_eq!(as_alice(Op::DeleteStream, &id(0)), 41);
    assert_eq!(
        as_alice(Op::CreateTopicWithAssignments, &plain_topic(9, "x", 1)),
        1009
    );
    assert_eq!(
        as_alice(Op::CreateTopicWithAssignments, &plain_topic(0, "t", 1)),
        41
    );
    assert_eq!(as_alice(Op::PurgeTopic, &cat(&[&id(0), &id(9)])), 2010);
    assert_eq!(as_alice(Op::PurgeTopic, &cat(&[&id(0), &id(0)])), 41);
    assert_eq!(as_alice(Op::TruncatePartition, &truncate(0, 0, 9, 1)), 41);
    assert_eq!(as_alice(Op::DeleteConsumerGroup, &group(0, 0, 9)), 41);
    assert_eq!(as_alice(Op::JoinConsumerGroup, &join(0, 0, 0, 1, &[])), 41);
    assert_eq!(
        as_alice(Op::CreateUser, &create_user("carol", "h", 1, None)),
        41
    );
    assert_eq!(
        as_alice(Op::UpdateUser, &update_user(&id(9), None, None)),
        41
    );
    assert_eq!(as_alice(Op::DeleteUser, &id(9)), 41);
    assert_eq!(
        as_alice(Op::UpdatePermissions, &update_permissions(&id(1), None)),
        41
    );
    // One's own password is one's own matter, and an unknown user is reported as such.
    assert_eq!(
        as_alice(Op::ChangePassword, &change_password(&id(1), "", "new")),
        0
    );
    assert_eq!(
        as_alice(Op::ChangePassword, &change_password(&id(9), "", "new")),
        20
    );
    assert_eq!(
        as_alice(Op::ChangePassword, &change_password(&id(2), "", "new")),
        41
    );
    assert_eq!(
        as_alice(Op::CreatePersonalAccessToken, &create_token(1, "y", 0, 'd')),
        0
    );
    assert_eq!(
        as_alice(Op::DeletePersonalAccessToken, &delete_token(1, "y", false)),
        0
    );
    // Operations that servers make need no permission.
    assert_eq!(
        as_alice(
            Op::CompleteConsumerGroupRevocation,
            &complete(0, 0, 0, 77, 0)
        ),
        0
    );
}

#[test]
fn granted_permissions_open_exactly_their_operations() {
    let mut state = furnished();
    let grant = |state: &mut MetadataState, block: &[u8]| {
        assert_eq!(
            code(
                state,
                Op::UpdatePermissions,
                &update_permissions(&id(1), Some(block))
            ),
            0
        );
    };
    grant(&mut state, &global_permissions(&[5]));
    assert_eq!(
        apply_at(
            &mut state,
            Op::CreateConsumerGroup,
            &create_group(0, 0, "h"),
            1,
            TS
        )
        .code(),
        0
    );
    assert_eq!(
        apply_at(&mut state, Op::DeleteTopic, &cat(&[&id(0), &id(1)]), 1, TS).code(),
        41
    );
    // Stream 0 may be read, topic 1 below it managed; stream 1 nothing.
    let mut block = global_permissions(&[]);
    block.pop();
    block.extend([
        1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0,
    ]);
    Permissions::from_block(&block);
    grant(&mut state, &block);
    assert_eq!(
        apply_at(&mut state, Op::PurgeTopic, &cat(&[&id(0), &id(0)]), 1, TS).code(),
        41
    );
    assert_eq!(
        apply_at(&mut state, Op::PurgeTopic, &cat(&[&id(0), &id(1)]), 1, TS).code(),
        0
    );
    assert_eq!(
        apply_at(&mut state, Op::PurgeStream, &id(0), 1, TS).code(),
        41
    );
    assert_eq!(
        apply_at(&mut state, Op::PurgeStream, &id(1), 1, TS).code(),
        41
    );
}

#[test]
fn permissions_outlive_what_they_name() {
    let mut state = furnished();
    let mut block = global_permissions(&[]);
    block.pop();
    block.extend([
        1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0,
    ]);
    let body = update_permissions(&id(1), Some(&block));
    assert_eq!(code(&mut state, Op::UpdatePermissions, &body), 0);
    assert_eq!(code(&mut state, Op::DeleteStream, &id(0)), 0);
    assert_eq!(code(&mut state, Op::CreateStream, &name("new")), 0);
    assert_eq!(
        code(
            &mut state,
            Op::CreateTopicWithAssignments,
            &plain_topic(0, "x", 1)
        ),
        0
    );
    assert_eq!(
        code(
            &mut state,
            Op::CreateTopicWithAssignments,
            &plain_topic(0, "y", 1)
        ),
        0
    );
    assert_eq!(
        apply_at(&mut state, Op::PurgeTopic, &cat(&[&id(0), &id(1)]), 1, TS).code(),
        0
    );
}

/// Checks that a block built by hand is one.
trait FromBlock {
    fn from_block(block: &[u8]);
}

impl FromBlock for Permissions {
    fn from_block(block: &[u8]) {
        use biplane_wire::Codec;
        Self::decode_exact(block).expect("a permissions block");
    }
}
