//! The message batch: one layout for the body of SendMessages, the replicated prepare, the
//! segment record and the poll reply (chapter 01 section 12).
//!
//! ```text
//! batch = batch header (256) | frame | frame | ...
//! frame = frame header (48) | payload | user headers
//! ```
//!
//! The batch checksum covers header fields and the *stored* checksum of each frame; bodies are
//! bound only through the frame checksums. A verifier therefore checks both levels.

mod build;
mod header;
mod send;
mod slice;
mod stamp;
mod view;

pub use build::{BatchBuilder, BatchOverflow};
pub use header::{BatchHeader, FrameHeader};
pub use send::{SendMessages, SendMetadata};
pub use slice::{BatchQuery, BatchSelection};
pub use stamp::{set_partition_id, stamp_batch};
pub use view::{Batch, BatchError, BatchFault, Batches, MessageFrame, Verify};

/// Length of a batch header.
pub const BATCH_HEADER_SIZE: usize = 256;
/// Length of a frame header.
pub const FRAME_HEADER_SIZE: usize = 48;
