//! State transfer: a replica too far behind pulls whole artifacts from the caught-up primary.
//!
//! ```text
//!                 RequestStateTransfer
//!   start ──► Puller ────────────────────────────► Provider ──► Ticket ──► the plane builds
//!   tick        │ ▲  StateTransferTarget + manifest    │  ▲                     │
//!               │ └────────────────────────────────────┘  └── OfferSpec ────────┘
//!               │    RequestStateChunk / StateChunk ...        Read ──► storage
//!               ▼
//!   Spool, Complete, Discard ──► the plane keeps and checks artifacts
//!   Fetched ──► decide_metadata / check_partition ──► steps() ──► the plane installs
//! ```
//!
//! A [`Puller`] serves one group and has at most one attempt: a nonce, a peer, a manifest, and
//! artifacts pulled one chunk at a time, hashed as they arrive. A [`Provider`] serves all groups
//! of a plane: it answers every request that reaches it with an offer or a refusal, keeps an
//! offer for as long as a peer pulls, and asks the plane for stored bytes. What a download may
//! replace, and in which order, is decided by pure functions; their results are values the plane
//! carries out.
//!
//! **What this crate does not do.** It opens no file and keeps no state of a plane. It does not
//! know snapshots or client tables; to it an artifact is a length and a digest. The exceptions
//! are the CONSUMER_OFFSETS artifact, whose format exists for transfers alone, and the walk over
//! a SEGMENT_LOG, which must run while it arrives. It does not decide when a transfer is needed.
//!
//! **Invariants.** At most one attempt a group, one chunk in flight. A nonce is never used for
//! two attempts, a descriptor never changes under a nonce. The stage moves along its table only.
//! No artifact is complete whose digest is not that of the manifest, and no install step exists
//! without a check that passed. Nothing a peer sends can panic.
//!
//! The rules are those of chapter 04 sections 1, 3 and 4.4 of the protocol specification.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod budget;
mod chunk_cursor;
mod entry_set;
mod install;
mod limits;
mod manifest;
mod memory_spool;
mod offsets;
mod provider;
mod puller;
mod segment_walk;
mod stage;

pub use biplane_wire::{Manifest, ManifestEntry, ManifestError};
pub use budget::PullBudget;
pub use install::{
    AfterFailure, CheckpointDefect, FrontierWrite, InstallStep, MetadataInstall,
    MetadataInstallFacts, MetadataRefusal, MetadataStep, PartitionInstall, PartitionInstallFacts,
    PartitionRefusal, check_checkpoint, check_partition, decide_metadata, newest_dedup,
    table_covers,
};
pub use limits::{
    CHECKPOINT_PREPARE_BYTES_MAX, CHUNK_BYTES_MAX, METADATA_ARTIFACT_BYTES_MAX,
    METADATA_TOTAL_BYTES_MAX, OFFSETS_BYTES_MAX, OFFSETS_ENTRIES_MAX, PARTITION_TOTAL_BYTES_MAX,
    PULLS_MAX_DEFAULT, ProvideLimits, PullLimits, SEGMENT_BYTES_MAX_DEFAULT, TICK_MILLIS,
    chunk_bytes_max,
};
pub use manifest::{OfferDefect, artifact_kind, check_offer};
pub use memory_spool::MemorySpool;
pub use offsets::{Checkpoint, ConsumerOffsets, DedupEntry, OffsetsError, StoredOffset};
pub use provider::{
    ArtifactSource, ArtifactSpec, Flush, Gate, Lane, MetadataGate, OfferSpec, PartitionGate,
    ProvideOutput, Provider, ProviderConfig, ProviderView, ReadError, Ticket,
};
pub use puller::{
    Ended, Offer, Progress, PullIgnored, PullOutput, PullView, Puller, PullerConfig, trouble,
};
pub use segment_walk::{SegmentDefect, SegmentWalk, WalkedBatch, WalkedSegment};
pub use stage::{PlaneKind, Stage};
