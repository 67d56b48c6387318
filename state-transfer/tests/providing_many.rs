//! Plays of a node that serves several partitions: how many at once, and what an offer costs that
//! nobody pulls. The limits are the tiny ones: two groups at once.

mod support;

use std::sync::Arc;

use biplane_state_transfer::{
    ArtifactSource, ArtifactSpec, Gate, OfferSpec, ProvideLimits, ProvideOutput, Provider,
    ProviderConfig, ProviderView, artifact_kind,
};
use biplane_wire::{GroupId, Op, ReplicaId, RequestStateChunkHeader, RequestStateTransferHeader};
use support::{
    CLUSTER, PULLER, SERVER, VIEW, ask, describe, partition_gate, partition_group, want,
};

const NONCE: u128 = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000;

/// A provider of several partitions whose offers are two bytes in memory.
struct Many {
    provider: Provider,
}

impl Many {
    fn new() -> Self {
        let limits = ProvideLimits::tiny();
        let config = ProviderConfig {
            cluster: CLUSTER,
            replica: SERVER,
            replica_count: 3,
            limits,
        };
        Self {
            provider: Provider::new(config),
        }
    }

    fn ask(&mut self, partition: u32, from: u8) -> Vec<String> {
        let group = GroupId::partition(0, 0, partition).expect("a legal key");
        let request = ask(group, u128::from(from) + 1);
        let header = request.header::<RequestStateTransferHeader>();
        let gate = Gate::Partition(partition_gate());
        let mut out = Vec::new();
        let ticket = self
            .provider
            .on_request(ReplicaId(from), header, &gate, &mut out);
        if let Some(ticket) = ticket {
            let bytes = Arc::from(b"xy".as_slice());
            let source = ArtifactSource::Memory {
                bytes,
                checksum: None,
            };
            let kind = artifact_kind::CONSUMER_OFFSETS;
            let artifacts = vec![ArtifactSpec {
                kind,
                frontier: 100,
                source,
            }];
            let (commit_op, commit_max) = (Op(100), Op(100));
            let spec = OfferSpec {
                view: VIEW,
                commit_op,
                commit_max,
                artifacts,
            };
            self.provider.offer(ticket, spec, &mut out);
        }
        self.said(&out)
    }

    /// Asks for the first byte.
    fn pull(&mut self, partition: u32, from: u8) -> Vec<String> {
        self.pull_at(partition, from, 0)
    }

    /// Asks for the last byte.
    fn pull_on(&mut self, partition: u32, from: u8) -> Vec<String> {
        self.pull_at(partition, from, 1)
    }

    fn pull_at(&mut self, partition: u32, from: u8, offset: u64) -> Vec<String> {
        let group = GroupId::partition(0, 0, partition).expect("a legal key");
        let request = want(group, u128::from(from) + 1, 0, offset, 1);
        let view = ProviderView {
            view: VIEW,
            commit_max: Op(100),
        };
        let mut out = Vec::new();
        let header = request.header::<RequestStateChunkHeader>();
        self.provider
            .on_chunk_request(ReplicaId(from), header, view, &mut out);
        self.said(&out)
    }

    fn said(&self, out: &[ProvideOutput]) -> Vec<String> {
        self.provider.check_invariants();
        let sent = out.iter().map(|output| match output {
            ProvideOutput::Send { message, .. } => describe(message),
            ProvideOutput::Read { .. } => panic!("it is in memory"),
        });
        sent.collect()
    }
}

#[test]
fn no_more_groups_are_served_at_once_than_allowed() {
    let mut many = Many::new();
    for partition in 1..=3 {
        assert_eq!(many.ask(partition, 1), ["offer 100"], "to look at");
    }
    assert_eq!(many.pull(1, 1), ["chunk 0@0+1"]);
    assert_eq!(many.pull(2, 1), ["chunk 0@0+1"]);
    assert_eq!(many.pull(3, 1), ["later"]);
    assert_eq!(many.pull(3, 1), ["later"], "and the offer is gone");
    assert_eq!(many.ask(3, 1), ["offer 100"], "to look at again");
    assert_eq!(
        many.ask(2, 2),
        ["offer 100"],
        "the same group for another replica"
    );
    assert_eq!(many.pull(2, 2), ["chunk 0@0+1"]);
    many.provider
        .forget(GroupId::partition(0, 0, 1).expect("a legal key"));
    assert_eq!(many.pull(3, 1), ["chunk 0@0+1"]);
}

#[test]
fn group_that_was_served_whole_makes_room_at_once() {
    let mut many = Many::new();
    for partition in 1..=20 {
        assert_eq!(many.ask(partition, 1), ["offer 100"]);
        assert_eq!(many.pull(partition, 1), ["chunk 0@0+1"]);
        assert_eq!(many.pull_on(partition, 1), ["chunk 0@1+1"]);
        assert_eq!(many.pull_on(partition, 1), ["chunk 0@1+1"], "once more");
    }
}

#[test]
fn offers_that_nobody_pulls_are_bounded() {
    let mut many = Many::new();
    for partition in 0..1_000 {
        assert_eq!(many.ask(partition, 1), ["offer 100"]);
        assert!(many.provider.groups_offered().len() <= 256);
        if partition % 20 == 0 {
            many.provider.tick(None, &mut Vec::new());
        }
    }
    assert_eq!(many.pull(999, 1), ["chunk 0@0+1"], "the newest is there");
    assert_eq!(many.pull(900, 1), ["chunk 0@0+1"], "and those before");
    assert_eq!(many.pull(700, 1), ["later"]);
}

#[test]
fn ticket_can_be_refused_and_is_void_afterwards() {
    let mut provider = Many::new().provider;
    let request = ask(partition_group(), NONCE);
    let header = request.header::<RequestStateTransferHeader>();
    let gate = Gate::Partition(partition_gate());
    let mut out = Vec::new();
    let ticket = provider
        .on_request(PULLER, header, &gate, &mut out)
        .expect("a ticket");
    assert!(out.is_empty());
    provider.refuse(&ticket, false, &mut out);
    assert_eq!(out.len(), 1);
    provider.refuse(&ticket, false, &mut out);
    let (commit_op, commit_max) = (Op(1), Op(1));
    let spec = OfferSpec {
        view: VIEW,
        commit_op,
        commit_max,
        artifacts: Vec::new(),
    };
    provider.offer(ticket, spec.clone(), &mut out);
    assert_eq!(out.len(), 1, "answered once");
    let ticket = provider
        .on_request(PULLER, header, &gate, &mut out)
        .expect("another ticket");
    provider.offer(ticket, spec, &mut out);
    let ProvideOutput::Send { message, .. } = &out[1] else {
        panic!("an answer")
    };
    assert_eq!(describe(message), "no", "an offer of nothing is none");
}
