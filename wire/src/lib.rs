//! The wire format: bytes in, checked frames out, and back.
//!
//! ```text
//!              Deframer          decode_replica           handlers of the planes
//!   bytes ───────────────► Message ──────────────► ReplicaFrame ──► header(), body()
//!            generic check   │     decode_client          │
//!            or close        │   ──────────────► Typed<RequestHeader>
//!                            │      or a Refusal          │
//!   bytes ◄──── slices ──────┘◄── Message::sealed, prepare::build, SuffixBuilder
//! ```
//!
//! A frame is a 256-byte header and a body (chapter 01 of the protocol specification). A
//! [`FrameBuffer`] owns one and may change it; [`FrameBuffer::freeze`] turns it into a
//! [`Message`], which is shared read-only. A [`FrameRef`] borrows one from a receive buffer.
//! Headers are typed views in place; decoding copies and allocates nothing.
//!
//! **What this crate does not do.** No protocol state, no time, no IO, no keyed hashes. It
//! does not decide who may send what when; it says what the bytes mean and whether they hold
//! together. Body-level checks of prepares are offered here and called where a prepare enters
//! a log.
//!
//! **Invariants.** A `Message` is at least a header long, its size field is its length and its
//! command byte is defined. A [`Typed`] value passed the closed-set, seal and field rules of
//! its kind. No function panics on foreign bytes; asserts guard what our own code built.
#![forbid(unsafe_code)]

/// Length of every header in bytes.
pub const HEADER_SIZE: usize = 256;
/// Default of the largest frame, 64 MiB (chapter 01 section 2.2).
pub const FRAME_SIZE_MAX_DEFAULT: u32 = 64 * 1024 * 1024;
/// Largest value the largest frame may be configured to, 256 MiB.
pub const FRAME_SIZE_MAX_LIMIT: u32 = 256 * 1024 * 1024;

pub mod batch;
mod buffer;
pub mod checksum;
mod client_code;
pub mod codec;
mod command;
mod decode;
mod deframer;
mod error;
mod error_code;
mod frame_ref;
mod header;
mod ids;
mod manifest;
mod message;
pub mod meter;
mod operation;
mod permissions;
pub mod prepare;
mod primitive;
pub mod request;
pub mod response;
pub mod result;
mod storage;
mod suffix;
mod summary;
mod tlv;
mod version;

pub use batch::{
    Batch, BatchBuilder, BatchError, BatchFault, BatchHeader, BatchQuery, BatchSelection, Batches,
    FrameHeader, MessageFrame, SendMessages, SendMetadata, Verify, set_partition_id, stamp_batch,
};
pub use buffer::FrameBuffer;
pub use checksum::{body_seal, frame_seal, prepare_identity, seal, seal_is_valid, xxh3, xxh32};
pub use client_code::ClientCode;
pub use codec::{Codec, Counted, Cursor};
pub use command::Command;
pub use decode::{
    ReplicaFrame, Typed, decode_client, decode_handshake, decode_header, decode_replica,
};
pub use deframer::{Deframer, LARGE_ALLOCATION_FIRST, SMALL_FRAME_SIZE_MAX, STAGING_SIZE};
pub use error::{BodyRule, CloseReason, DecodeError, Disposition, FieldError, Refusal};
pub use error_code::ErrorCode;
pub use frame_ref::FrameRef;
pub use header::{
    CommitHeader, DoViewChangeHeader, EvictionHeader, EvictionReason, ForwardLogoutHeader,
    ForwardLogoutOutcome, ForwardLogoutResultHeader, ForwardRegisterHeader, ForwardRegisterOutcome,
    ForwardRegisterResultHeader, FramePrefix, GenericHeader, HandshakeHeader, HandshakeStatus,
    Header, PrepareHeader, PrepareOkHeader, RepairRangeReplyHeader, ReplyHeader, RequestHeader,
    RequestPreparesHeader, RequestStartViewHeader, RequestStateChunkHeader,
    RequestStateTransferHeader, RoutedRequestHeader, StartViewChangeHeader, StartViewHeader,
    StateChunkHeader, StateTransferTargetHeader, UndefinedByte,
};
pub use ids::{
    Checksum, ClientId, ClusterId, GroupId, Op, PartitionKey, ReplicaId, RequestNumber, View,
};
pub use manifest::{MANIFEST_ENTRIES_MAX, Manifest, ManifestEntry, ManifestError};
pub use message::Message;
pub use operation::Operation;
pub use permissions::{
    GlobalPermissions, OptionalPermissions, Permissions, PermissionsBlock, StreamFlags,
    StreamPermissions, TopicFlags,
};
pub use primitive::{
    AckLevel, Bytes32, Consumer, ConsumerKind, Identifier, Name, OptionalPartition, Partitioning,
    PollingKind, PollingStrategy, Text8, Text32,
};
pub use result::ResultSection;
pub use storage::{Recycler, Spare};
pub use suffix::{
    SUFFIX_ENTRIES_MAX, Suffix, SuffixBuilder, SuffixEntry, SuffixError, check_suffix_body_seal,
};
pub use summary::{CheckedPart, FieldVisitor, KeyNumbers, Summary, Verdict};
pub use tlv::{
    OPTIONS_COUNT_MAX, OPTIONS_SIZE_MAX, Options, Options32, TlvBlock, TlvBuilder, TlvField,
    TlvKind, USER_HEADERS_SIZE_MAX,
};
pub use version::ProtocolVersion;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
