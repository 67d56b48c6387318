//! The status codes this plane answers with (chapter 06 section 21).

/// The body does not decode.
pub const INVALID_COMMAND: u32 = 3;
/// The same request is in flight, or its outcome is not known yet.
pub const NOT_COMMITTED: u32 = 57;
/// Nothing was done: try again, here or elsewhere.
pub const NOT_ACCEPTED: u32 = 58;
/// No position is stored under this key.
pub const OFFSET_NOT_FOUND: u32 = 3021;
/// The partition holds as many positions as it may.
pub const TOO_MANY_OFFSETS: u32 = 3024;
/// A message checksum is wrong.
pub const INVALID_MESSAGE_CHECKSUM: u32 = 4027;
/// The batch is larger than the prepare log takes.
pub const INVALID_MESSAGES_SIZE: u32 = 4036;
/// The batch checksum is wrong.
pub const INVALID_BATCH_CHECKSUM: u32 = 4039;
/// The offset lies beyond the partition's last one.
pub const INVALID_OFFSET: u32 = 4100;
/// A file could not be made durable.
pub const CANNOT_SYNC: u32 = 10009;
