//! Random operations against a naive model, and against a twin that is put through a snapshot
//! again and again.

mod support;

use std::collections::BTreeSet;

use biplane_metadata_plane::snapshot::{TableImage, decode_snapshot, encode_snapshot};
use biplane_metadata_plane::state::MetadataState;
use biplane_metadata_plane::state::groups::Group;
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_wire::{ClientId, GroupId, Op, Operation};
use support::model::{Model, Step};
use support::prng::{Prng, seed};
use support::{TS, apply_at, fresh};

/// Sequences unless `BIPLANE_MODEL_RUNS` names another number.
const RUNS: u64 = 20;

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
    let users: BTreeSet<(u32, &str)> = state
        .users()
        .by_id()
        .values()
        .map(|user| (user.id, user.username.as_str()))
        .collect();
    let mut expected: BTreeSet<(u32, &str)> = model
        .users
        .iter()
        .map(|user| (user.id, user.name.as_str()))
        .collect();
    expected.insert((0, "iggy"));
    assert_eq!(users, expected);
    for user in &model.users {
        assert_eq!(
            state.users().token_count(user.id),
            user.tokens.len(),
            "tokens"
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

fn run(seed: u64, steps: u64) {
    let mut prng = Prng::new(seed);
    let (mut state, mut twin) = (fresh(), fresh());
    let mut model = Model::default();
    let mut listener = Listener::default();
    for number in 0..steps {
        let Step {
            operation,
            body,
            code,
        } = model.random_step(&mut prng);
        let before = state.clone();
        let applied = apply_at(&mut state, operation, &body, 0, TS + number);
        assert_eq!(
            applied.code(),
            code,
            "seed {seed}, step {number}: {operation}"
        );
        if code != 0 {
            assert_eq!(state, before, "a rejection changes nothing");
            assert!(applied.topology.is_empty() && applied.payload.is_empty());
        }
        applied
            .topology
            .iter()
            .for_each(|change| listener.hear(change));
        compare(&state, &model);
        let listed: BTreeSet<(GroupId, u64)> = state
            .topology()
            .map(|spec| (spec.group, spec.created_revision))
            .collect();
        assert_eq!(listener.0, listed, "changes add up to the listing");
        if prng.below(10) == 0 {
            let bytes = encode_snapshot(0, Op(number), &twin, &TableImage::default());
            twin = decode_snapshot(&bytes).expect("decodes").state;
        }
        let again = apply_at(&mut twin, operation, &body, 0, TS + number);
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

#[test]
fn random_operations_agree_with_the_model() {
    let first = seed(20_260_101);
    let runs = std::env::var("BIPLANE_MODEL_RUNS").map_or(RUNS, |text| {
        text.parse().expect("BIPLANE_MODEL_RUNS is a number")
    });
    for round in 0..runs {
        run(first + round, 400);
    }
    println!("{runs} sequences of 400 operations");
}
