//! Random operations of several users against a naive model, and against a twin that is put
//! through a snapshot again and again.

mod support;

use std::collections::BTreeSet;

use biplane_metadata_plane::snapshot::{TableImage, decode_snapshot, encode_snapshot};
use biplane_metadata_plane::state::MetadataState;
use biplane_metadata_plane::state::groups::Group;
use biplane_metadata_plane::state::permissions::Action;
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_metadata_plane::state::users::UserStatus;
use biplane_wire::{ClientId, GroupId, Op, Operation};
use support::model::grants::{self, Rule};
use support::model::{Model, Step};
use support::prng::{Prng, seed};
use support::{TS, apply_at, fresh};

/// Sequences unless `BIPLANE_MODEL_RUNS` names another number.
const RUNS: u64 = 100;

/// User ids that own tokens at some time, and more.
const OWNERS: u32 = 8;

/// Operations that need a permission.
const GUARDED: [Operation; 20] = [
    Operation::CreateStream,
    Operation::UpdateStream,
    Operation::DeleteStream,
    Operation::PurgeStream,
    Operation::CreateTopicWithAssignments,
    Operation::UpdateTopic,
    Operation::DeleteTopic,
    Operation::PurgeTopic,
    Operation::CreatePartitionsWithAssignments,
    Operation::DeletePartitions,
    Operation::TruncatePartition,
    Operation::CreateConsumerGroup,
    Operation::DeleteConsumerGroup,
    Operation::JoinConsumerGroup,
    Operation::LeaveConsumerGroup,
    Operation::CreateUser,
    Operation::UpdateUser,
    Operation::DeleteUser,
    Operation::ChangePassword,
    Operation::UpdatePermissions,
];

fn compare(state: &MetadataState, model: &Model) {
    assert_eq!(state.streams().revision(), model.revision, "revision");
    assert_eq!(
        state.streams().by_id().len(),
        model.streams.len(),
        "streams"
    );
    for stream in &model.streams {
        let found = &state.streams().by_id()[&stream.id];
        assert_eq!(found.name, stream.name);
        assert_eq!(found.topics().len(), stream.topics.len(), "topics");
        for topic in &stream.topics {
            let found = &found.topics()[&topic.id];
            assert_eq!(found.name, topic.name);
            assert_eq!(found.next_group_id, topic.groups_made);
            let partitions: Vec<(u32, u64, u64, u64)> = found
                .partitions
                .iter()
                .map(|p| {
                    (
                        p.id,
                        p.created_revision,
                        p.deleted_up_to_offset,
                        p.purge_generation,
                    )
                })
                .collect();
            let expected: Vec<(u32, u64, u64, u64)> = (0..)
                .zip(&topic.partitions)
                .map(|(id, p)| (id, p.created_revision, p.deleted_up_to, p.purges))
                .collect();
            assert_eq!(partitions, expected);
            assert_eq!(found.groups().len(), topic.groups.len(), "groups");
            for group in &topic.groups {
                let expected: Vec<(u32, ClientId)> = (0..)
                    .zip(&group.members)
                    .filter_map(|(key, client)| Some((key, ClientId((*client)?))))
                    .collect();
                compare_group(
                    &found.groups()[&group.id],
                    &expected,
                    &found.partition_ids(),
                );
            }
        }
    }
    compare_users(state, model);
}

fn compare_users(state: &MetadataState, model: &Model) {
    assert_eq!(state.users().by_id().len(), model.users.len(), "users");
    for user in &model.users {
        let found = &state.users().by_id()[&user.id];
        assert_eq!(found.username, user.name);
        assert_eq!(found.password_hash, user.password);
        assert_eq!(found.status == UserStatus::Active, user.is_active);
        assert_eq!(found.permissions.is_some(), user.grants.is_some());
    }
    for owner in 0..OWNERS {
        let found: BTreeSet<(&str, Option<u64>)> = state
            .users()
            .tokens_of(owner)
            .map(|(name, token)| (name, token.expiry))
            .collect();
        let tokens = model
            .tokens(owner)
            .into_iter()
            .flat_map(|list| &list.tokens);
        let expected: BTreeSet<(&str, Option<u64>)> = tokens
            .map(|(name, expiry)| (name.as_str(), *expiry))
            .collect();
        assert_eq!(found, expected, "tokens of {owner}");
    }
}

/// Every question of permission that a server asks, of one user about one topic.
fn questions(stream: u32, topic: u32) -> [(Action, Rule); 13] {
    [
        (Action::CreateStream, grants::CREATE_STREAM),
        (Action::ManageStream(stream), grants::MANAGE_STREAM),
        (Action::CreateTopic(stream), grants::CREATE_TOPIC),
        (Action::ManageTopic(stream, topic), grants::MANAGE_TOPIC),
        (Action::ReadTopic(stream, topic), grants::READ_TOPIC),
        (Action::ListTopics(stream), grants::LIST_TOPICS),
        (Action::ReadStream(stream), grants::READ_STREAM),
        (Action::ListStreams, grants::LIST_STREAMS),
        (Action::ManageUsers, grants::MANAGE_USERS),
        (Action::ReadUsers, grants::READ_USERS),
        (Action::ReadServers, grants::READ_SERVERS),
        (Action::Poll(stream, topic), grants::POLL),
        (Action::Send(stream, topic), grants::SEND),
    ]
}

/// What users may read, poll and send is decided outside of apply, by the same grants; nobody is
/// exempt there, and what is named need not exist.
fn compare_permissions(state: &MetadataState, model: &Model, user: u32, stream: u32, topic: u32) {
    for (action, rule) in questions(stream, topic) {
        assert_eq!(
            state.is_allowed(user, action),
            model.grants(user, rule, stream, topic),
            "user {user}: {action:?}"
        );
    }
}

fn compare_group(group: &Group, expected: &[(u32, ClientId)], partitions: &[u32]) {
    let members: Vec<(u32, ClientId)> = group
        .members()
        .iter()
        .map(|(key, member)| (*key, member.client))
        .collect();
    assert_eq!(members, expected, "members by key");
    let owned: Vec<u32> = group
        .members()
        .values()
        .flat_map(|m| m.partitions.iter().copied())
        .collect();
    let distinct: BTreeSet<u32> = owned.iter().copied().collect();
    assert_eq!(distinct.len(), owned.len(), "a partition has one owner");
    if !members.is_empty() {
        assert_eq!(
            distinct,
            partitions.iter().copied().collect(),
            "every partition is owned"
        );
    }
}

/// The topology as a listener of the changes knows it.
#[derive(Default)]
struct Listener(BTreeSet<(GroupId, u64)>);

impl Listener {
    fn hear(&mut self, change: &TopologyChange) {
        match change {
            TopologyChange::PartitionCreated(spec) => {
                assert!(
                    self.0.insert((spec.group, spec.created_revision)),
                    "created once"
                );
            }
            TopologyChange::PartitionDeleted {
                group,
                created_revision,
            } => {
                assert!(
                    self.0.remove(&(*group, *created_revision)),
                    "deleted what was there"
                );
            }
            TopologyChange::PartitionPurged {
                group,
                created_revision,
                ..
            }
            | TopologyChange::PartitionTruncated {
                group,
                created_revision,
                ..
            } => {
                assert!(
                    self.0.contains(&(*group, *created_revision)),
                    "of what is there"
                );
            }
            _ => {}
        }
    }
}

/// Completes a pending revocation now and then. The model counts the revision; it knows members
/// and not who owns what.
fn complete_some(
    prng: &mut Prng,
    state: &mut MetadataState,
    twin: &mut MetadataState,
    model: &mut Model,
    number: u64,
) {
    let pending = state.pending_revocations().next();
    if let Some(pending) = pending.filter(|_| prng.below(4) == 0) {
        let operation = Operation::CompleteConsumerGroupRevocation;
        let body = pending.key.body();
        for state in [state, twin] {
            assert_eq!(apply_at(state, operation, &body, 0, TS + number).code(), 0);
        }
        model.revision += 1;
    }
}

/// What was answered: operation, whether root issued it, code.
type Answers = BTreeSet<(String, bool, u32)>;

fn run(seed: u64, steps: u64, answers: &mut Answers) {
    let mut prng = Prng::new(seed);
    let (mut state, mut twin) = (fresh(), fresh());
    let mut model = Model::new();
    let mut listener = Listener::default();
    for number in 0..steps {
        let Step {
            operation,
            user_id,
            body,
            code,
        } = model.random_step(&mut prng, TS + number);
        let before = state.clone();
        let applied = apply_at(&mut state, operation, &body, user_id, TS + number);
        assert_eq!(
            applied.code(),
            code,
            "seed {seed}, step {number}: {operation} of user {user_id}"
        );
        answers.insert((operation.to_string(), user_id == 0, code));
        if code != 0 {
            assert_eq!(state, before, "a rejection changes nothing");
            assert!(applied.topology.is_empty() && applied.payload.is_empty());
        }
        applied
            .topology
            .iter()
            .for_each(|change| listener.hear(change));
        compare(&state, &model);
        let user = prng.small(OWNERS);
        compare_permissions(&state, &model, user, prng.small(5), prng.small(5));
        let listed: BTreeSet<(GroupId, u64)> = state
            .topology()
            .map(|spec| (spec.group, spec.created_revision))
            .collect();
        assert_eq!(listener.0, listed, "changes add up to the listing");
        if prng.below(10) == 0 {
            let bytes = encode_snapshot(0, Op(number), &twin, &TableImage::default());
            twin = decode_snapshot(&bytes).expect("decodes").state;
        }
        let again = apply_at(&mut twin, operation, &body, user_id, TS + number);
        assert_eq!(
            again, applied,
            "seed {seed}, step {number}: the twin answers the same"
        );
        complete_some(&mut prng, &mut state, &mut twin, &mut model, number);
        assert_eq!(
            twin, state,
            "seed {seed}, step {number}: the twin is the same"
        );
    }
    let bytes = |state| encode_snapshot(0, Op(steps), state, &TableImage::default());
    assert!(
        bytes(&twin) == bytes(&state),
        "seed {seed}: snapshots and replays end in the same bytes as replay alone"
    );
}

/// A model that let everything through, or nothing, would agree with a state that does.
fn check_coverage(answers: &Answers) {
    for operation in GUARDED {
        for code in [0, 41] {
            let wanted = (operation.to_string(), false, code);
            assert!(answers.contains(&wanted), "{operation}: never {code}");
        }
    }
    for (operation, code) in [
        (Operation::CreateUser, 43),
        (Operation::CreateUser, 46),
        (Operation::CreateUser, 4042),
        (Operation::UpdateUser, 20),
        (Operation::UpdateUser, 43),
        (Operation::UpdateUser, 46),
        (Operation::UpdateUser, 4042),
        (Operation::DeleteUser, 20),
        (Operation::DeleteUser, 48),
        (Operation::ChangePassword, 20),
        (Operation::ChangePassword, 42),
        (Operation::UpdatePermissions, 20),
        (Operation::UpdatePermissions, 49),
        (Operation::CreatePersonalAccessToken, 0),
        (Operation::CreatePersonalAccessToken, 51),
        (Operation::CreatePersonalAccessToken, 56),
        (Operation::DeletePersonalAccessToken, 0),
        (Operation::DeletePersonalAccessToken, 20),
    ] {
        let seen = |is_root| answers.contains(&(operation.to_string(), is_root, code));
        assert!(seen(true) || seen(false), "{operation}: never {code}");
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    let first = seed(20_260_101);
    let runs = std::env::var("BIPLANE_MODEL_RUNS").map_or(RUNS, |text| {
        text.parse().expect("BIPLANE_MODEL_RUNS is a number")
    });
    let mut answers = Answers::new();
    for round in 0..runs {
        run(first + round, 400, &mut answers);
    }
    if runs >= RUNS {
        check_coverage(&answers);
    }
    println!("{runs} sequences of 400 operations");
}
