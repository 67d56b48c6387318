//! Sequences whose outcome the specification gives: ids, revisions, options, purges, and the
//! assignment of partitions to group members (chapter 05, sections 15 V5 and V7).

mod support;

use biplane_metadata_plane::options::{Compression, Durability};
use biplane_metadata_plane::state::MetadataState;
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_wire::{ClientId, Identifier, Operation};
use support::bodies::{
    assigned_partitions, assigned_topic, cat, complete, create_group, create_topic, group, id,
    join, leave, name, option, partitions, plain_topic, text_option, truncate,
};
use support::{TS, apply, apply_at, code, fresh};

use Operation as Op;

fn ok(state: &mut MetadataState, operation: Operation, body: &[u8]) {
    assert_eq!(code(state, operation, body), 0, "{operation}");
}

fn stream_id(state: &MetadataState, stream: &str) -> u32 {
    state
        .streams()
        .stream(&Identifier::named(stream).expect("a name"))
        .expect("there")
        .id
}

#[test]
fn freed_ids_are_used_again_lowest_first() {
    let mut state = fresh();
    for stream in ["a", "b", "c"] {
        ok(&mut state, Op::CreateStream, &name(stream));
    }
    ok(&mut state, Op::DeleteStream, &id(1));
    ok(&mut state, Op::DeleteStream, &id(0));
    for stream in ["d", "e", "f"] {
        ok(&mut state, Op::CreateStream, &name(stream));
    }
    let ids: Vec<u32> = ["d", "e", "f"]
        .iter()
        .map(|s| stream_id(&state, s))
        .collect();
    assert_eq!(ids, [0, 1, 3]);
    assert_eq!(state.streams().revision(), 2);
}

#[test]
fn group_ids_are_never_used_again_within_a_topic() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 1),
    );
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "g"),
    );
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "h"),
    );
    ok(&mut state, Op::DeleteConsumerGroup, &group(0, 0, 1));
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "k"),
    );
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(topic.groups().keys().copied().collect::<Vec<_>>(), [0, 2]);
    ok(&mut state, Op::DeleteTopic, &cat(&[&id(0), &id(0)]));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 1),
    );
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "g"),
    );
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(topic.groups().keys().copied().collect::<Vec<_>>(), [0]);
}

#[test]
fn partitions_come_and_go_at_the_end() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 3),
    );
    ok(&mut state, Op::DeletePartitions, &partitions(0, &id(0), 2));
    let body = assigned_partitions(&partitions(0, &id(0), 1), 1, 9, 4);
    let applied = apply(&mut state, Op::CreatePartitionsWithAssignments, &body);
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(topic.partition_ids(), [0, 1]);
    let revisions: Vec<u64> = topic
        .partitions
        .iter()
        .map(|p| p.created_revision)
        .collect();
    assert_eq!(revisions, [1, 3]);
    assert_eq!(topic.partitions[1].created_view, 4);
    let TopologyChange::PartitionCreated(spec) = applied.topology[0].clone() else {
        panic!("{applied:?}");
    };
    assert_eq!(
        (spec.partition, spec.created_revision, spec.partitions_count),
        (1, 3, 2)
    );
    assert!(matches!(
        applied.topology[1],
        TopologyChange::TopicUpdated {
            partitions_count: 2,
            ..
        }
    ));
}

#[test]
fn watermark_never_falls_and_a_purge_clears_it() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 1),
    );
    let partition =
        |state: &MetadataState| state.streams().topic_by_id(0, 0).expect("there").partitions[0];
    ok(&mut state, Op::TruncatePartition, &truncate(0, 0, 0, 10));
    ok(&mut state, Op::TruncatePartition, &truncate(0, 0, 0, 5));
    assert_eq!(partition(&state).deleted_up_to_offset, 10);
    assert_eq!(
        state.streams().revision(),
        3,
        "also where the watermark stays"
    );
    ok(&mut state, Op::PurgeTopic, &cat(&[&id(0), &id(0)]));
    let after = partition(&state);
    assert_eq!((after.deleted_up_to_offset, after.purge_generation), (0, 1));
    assert_eq!(state.streams().revision(), 4);
}

#[test]
fn purge_of_nothing_is_no_new_revision() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    ok(&mut state, Op::PurgeStream, &id(0));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", 0),
    );
    ok(&mut state, Op::PurgeStream, &id(0));
    ok(&mut state, Op::PurgeTopic, &cat(&[&id(0), &id(0)]));
    assert_eq!(state.streams().revision(), 1);
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "u", 2),
    );
    let applied = apply(&mut state, Op::PurgeStream, &id(0));
    assert_eq!(applied.topology.len(), 2);
    assert_eq!(state.streams().revision(), 3, "once for all partitions");
}

#[test]
fn root_is_there_before_the_first_prepare() {
    let mut state = fresh();
    let root = state.users().user(&Identifier::Numeric(0)).expect("there");
    assert_eq!((root.id, root.created_at), (0, 1));
    let body = support::bodies::create_user("alice", "hash", 1, None);
    apply_at(&mut state, Op::CreateUser, &body, 0, TS + 5);
    let alice = state.users().by_name("alice").expect("there");
    assert_eq!((alice.id, alice.created_at), (1, TS + 5));
}

/// The group as text: generation, then key:client[owned]{partition>target}.
fn picture(state: &MetadataState) -> String {
    let group = &state.streams().topic_by_id(0, 0).expect("there").groups()[&0];
    let mut text = group.generation.to_string();
    for (key, member) in group.members() {
        let client =
            char::from_u32(u32::try_from(member.client.0).expect("small")).expect("letter");
        let owned: Vec<String> = member.partitions.iter().map(u32::to_string).collect();
        text += &format!(" {key}:{client}[{}]", owned.join(","));
        for entry in &member.pending {
            text += &format!(
                "{{{}>{},{}}}",
                entry.partition, entry.target, entry.created_at
            );
        }
    }
    text
}

fn group_of(partition_count: u32) -> MetadataState {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &plain_topic(0, "t", partition_count),
    );
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "g"),
    );
    state
}

fn member(letter: char) -> u128 {
    u128::from(u32::from(letter))
}

#[test]
fn cooperative_hand_over_follows_the_worked_example() {
    let mut state = group_of(4);
    let joined = |state: &mut MetadataState, letter, in_flight: &[u32], at| {
        let body = join(0, 0, 0, member(letter), in_flight);
        assert_eq!(
            apply_at(state, Op::JoinConsumerGroup, &body, 0, at).code(),
            0
        );
        picture(state)
    };
    assert_eq!(joined(&mut state, 'A', &[], 100), "1 0:A[0,1,2,3]");
    assert_eq!(
        joined(&mut state, 'B', &[3], 200),
        "2 0:A[0,1,3]{3>1,200} 1:B[2]"
    );
    let target = biplane_wire::request::ConsumerGroupRequest {
        stream: Identifier::Numeric(0),
        topic: Identifier::Numeric(0),
        group: Identifier::Numeric(0),
    };
    let sync = |state: &MetadataState, letter| state.sync_group(ClientId(member(letter)), &target);
    assert_eq!(
        sync(&state, 'A'),
        support::hex("0200000000000000 02000000 00000000 01000000")
    );
    assert_eq!(
        sync(&state, 'B'),
        support::hex("0200000000000000 01000000 02000000")
    );
    assert!(sync(&state, 'Z').is_empty());
    let details = state.read_group(0, &target).expect("allowed");
    let owned = support::hex("00000000 03000000 00000000 01000000 03000000");
    assert!(
        details.windows(owned.len()).any(|window| window == owned),
        "owned, not pollable"
    );
    assert_eq!(
        joined(&mut state, 'C', &[0], 300),
        "3 0:A[0,1,3]{3>1,200} 1:B[2] 2:C[]"
    );
    let revision = state.streams().revision();
    ok(
        &mut state,
        Op::CompleteConsumerGroupRevocation,
        &complete(0, 0, 0, member('A'), 3),
    );
    assert_eq!(picture(&state), "4 0:A[0,1] 1:B[2,3] 2:C[]");
    assert_eq!(state.streams().revision(), revision + 1);
    ok(
        &mut state,
        Op::LeaveConsumerGroup,
        &leave(0, 0, 0, member('A')),
    );
    assert_eq!(picture(&state), "5 1:B[0,2] 2:C[1,3]");
    assert_eq!(
        joined(&mut state, 'D', &[], 400),
        "6 0:D[3] 1:B[0,2] 2:C[1]"
    );
    assert_eq!(
        joined(&mut state, 'D', &[1], 500),
        "6 0:D[3] 1:B[0,2] 2:C[1]",
        "joined already"
    );
}

#[test]
fn excess_is_taken_from_the_end_of_the_list() {
    let mut state = group_of(7);
    for letter in ['A', 'B', 'C'] {
        ok(
            &mut state,
            Op::JoinConsumerGroup,
            &join(0, 0, 0, member(letter), &[]),
        );
    }
    assert_eq!(picture(&state), "3 0:A[0,1,2] 1:B[6,5] 2:C[3,4]");
    let body = assigned_partitions(&partitions(0, &id(0), 2), 2, 8, 0);
    ok(&mut state, Op::CreatePartitionsWithAssignments, &body);
    assert_eq!(picture(&state), "4 0:A[0,3,6] 1:B[1,4,7] 2:C[2,5,8]");
}

#[test]
fn member_without_a_share_stays_idle() {
    let mut state = group_of(2);
    for letter in ['A', 'B', 'C'] {
        ok(
            &mut state,
            Op::JoinConsumerGroup,
            &join(0, 0, 0, member(letter), &[]),
        );
    }
    assert_eq!(picture(&state), "3 0:A[0] 1:B[1] 2:C[]");
}

#[test]
fn revocation_towards_a_member_that_left_deals_everything_out_again() {
    let mut state = group_of(2);
    ok(
        &mut state,
        Op::JoinConsumerGroup,
        &join(0, 0, 0, member('A'), &[]),
    );
    ok(
        &mut state,
        Op::JoinConsumerGroup,
        &join(0, 0, 0, member('B'), &[1]),
    );
    assert_eq!(picture(&state), format!("2 0:A[0,1]{{1>1,{TS}}} 1:B[]"));
    assert_eq!(state.pending_revocations().count(), 1);
    ok(
        &mut state,
        Op::LeaveConsumerGroup,
        &leave(0, 0, 0, member('B')),
    );
    assert_eq!(
        picture(&state),
        "3 0:A[0,1]",
        "the eager assignment clears what was pending"
    );
    ok(
        &mut state,
        Op::CompleteConsumerGroupRevocation,
        &complete(0, 0, 0, member('A'), 1),
    );
    assert_eq!(picture(&state), "3 0:A[0,1]");
}

#[test]
fn removal_of_a_client_touches_its_groups_alone() {
    let mut state = group_of(2);
    ok(
        &mut state,
        Op::CreateConsumerGroup,
        &create_group(0, 0, "h"),
    );
    ok(
        &mut state,
        Op::JoinConsumerGroup,
        &join(0, 0, 0, member('A'), &[]),
    );
    ok(
        &mut state,
        Op::JoinConsumerGroup,
        &join(0, 0, 1, member('B'), &[]),
    );
    let revision = state.streams().revision();
    ok(
        &mut state,
        Op::RemoveConsumerGroupMember,
        &member('A').to_le_bytes(),
    );
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(
        (topic.groups()[&0].generation, topic.groups()[&1].generation),
        (2, 1)
    );
    assert_eq!(state.streams().revision(), revision + 1);
    ok(
        &mut state,
        Op::RemoveConsumerGroupMember,
        &member('A').to_le_bytes(),
    );
    assert_eq!(
        state.streams().revision(),
        revision + 1,
        "nothing was removed"
    );
}

#[test]
fn options_of_a_new_topic_are_stored_in_canonical_form() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    let explicit = cat(&[
        &text_option("message_expiry", "7 days"),
        &text_option("durability", "PERSISTED"),
        &text_option("note", "kept"),
    ]);
    let derived = cat(&[
        &text_option("compression_algorithm", "gzip"),
        &text_option("consumer_offset_durability", "persisted"),
        &option("enforce_fsync", 3, &[1]),
    ]);
    let request = create_topic(0, 0, "t", &explicit);
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &assigned_topic(&request, &derived, 0, 1, 0),
    );
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    let week = 7 * 86_400 * 1_000_000;
    assert_eq!(topic.message_expiry, week);
    assert_eq!(topic.compression, Compression::Gzip);
    assert_eq!(topic.max_topic_size, 0, "neither block has it");
    let stored = |key: &str| {
        let option = &topic.options.entries()[key];
        (option.kind.0, option.value.clone(), option.explicit)
    };
    assert_eq!(
        stored("message_expiry"),
        (12, week.to_le_bytes().to_vec(), true)
    );
    assert_eq!(stored("durability"), (2, b"persisted".to_vec(), true));
    assert_eq!(
        stored("consumer_offset_durability"),
        (2, b"replicated".to_vec(), false)
    );
    assert_eq!(
        stored("note"),
        (2, b"kept".to_vec(), true),
        "unknown keys are kept"
    );
    assert_eq!(stored("enforce_fsync"), (3, vec![1], false));
    let settings = topic.settings();
    assert_eq!(settings.durability, Durability::Persisted);
    assert_eq!(settings.consumer_offset_durability, Durability::Replicated);
    assert_eq!(
        (settings.max_topic_size, settings.segment_size),
        (u64::MAX, 1 << 30)
    );
}

#[test]
fn update_keeps_the_bytes_of_the_client_and_zero_changes_nothing() {
    let mut state = fresh();
    ok(&mut state, Op::CreateStream, &name("s"));
    let request = create_topic(
        0,
        1,
        "t",
        &option("message_expiry", 12, &5_u64.to_le_bytes()),
    );
    ok(
        &mut state,
        Op::CreateTopicWithAssignments,
        &assigned_topic(&request, &[], 1, 1, 0),
    );
    let update = |options: &[u8]| cat(&[&id(0), &id(0), &name("t"), options]);
    let zero = option("message_expiry", 12, &0_u64.to_le_bytes());
    let applied = apply(&mut state, Op::UpdateTopic, &update(&zero));
    assert_eq!((applied.code(), applied.topology.len()), (0, 0));
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(topic.message_expiry, 5);
    assert_eq!(
        topic.options.entries()["message_expiry"].value,
        0_u64.to_le_bytes()
    );
    let applied = apply(
        &mut state,
        Op::UpdateTopic,
        &update(&text_option("max_topic_size", "2 GiB")),
    );
    assert_eq!(applied.topology.len(), 1);
    let topic = state.streams().topic_by_id(0, 0).expect("there");
    assert_eq!(topic.max_topic_size, 2 << 30);
    assert_eq!(topic.options.entries()["max_topic_size"].value, b"2 GiB");
    assert_eq!(topic.settings().message_expiry, 5);
}
