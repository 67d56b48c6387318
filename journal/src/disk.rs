//! The seam between a plane and a disk: plain values out, plain values back.
//!
//! A plane describes what it wants as a [`DiskRequest`]; whoever drives the plane executes it and
//! hands back a [`DiskCompletion`]. Nothing here waits. Requests of one queue are executed in the
//! order they were submitted; between queues there is no order at all, so two effects that must
//! follow each other either share a queue or wait for the first completion.
//!
//! What "done" means for each [`DiskOp`] is part of the contract and is written at the variant.

use std::ops::Range;
use std::sync::Arc;

use biplane_wire::Message;
use thiserror::Error;

use crate::buffer::ReadBytes;
use crate::path::DiskPath;

/// A line of requests that are executed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// One request to a disk.
#[derive(Clone, Debug)]
pub struct DiskRequest {
    /// The line it waits in.
    pub queue: QueueId,
    /// Chosen by the submitter, unique among its requests in flight on this queue.
    pub token: u64,
    /// What to do.
    pub op: DiskOp,
}

/// What a disk can be asked to do. Every success completes with [`DiskReply::Done`], except a
/// read.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Writes the chunks one after the other from `offset`, creating the file (but not its
    /// directory) when absent; a gap before `offset` reads as zeros. With `sync` it completes
    /// only once the bytes and the file's length are durable. The *name* of a file created here
    /// is durable only after [`DiskOp::SyncDir`] of its directory.
    Write {
        /// The file.
        path: DiskPath,
        /// Position of the first byte.
        offset: u64,
        /// The bytes, in order.
        data: Vec<Chunk>,
        /// Whether to wait for stable storage.
        sync: bool,
    },
    /// Makes earlier writes to the file durable.
    Sync {
        /// The file.
        path: DiskPath,
    },
    /// Sets the length of an existing file, durably.
    Truncate {
        /// The file.
        path: DiskPath,
        /// The new length in bytes.
        len: u64,
    },
    /// Reads up to `len` bytes; fewer when the file ends before.
    Read {
        /// The file.
        path: DiskPath,
        /// Position of the first byte.
        offset: u64,
        /// Number of bytes wanted.
        len: u32,
    },
    /// Replaces the whole content of the file, which may be absent, in one step: temporary file
    /// `{path}.tmp`, sync, rename over `path`, sync of the directory. A crash leaves the old
    /// content or the new one, and after completion the new one.
    Replace {
        /// The file.
        path: DiskPath,
        /// Its new content.
        data: Vec<Chunk>,
    },
    /// Renames a file or directory, replacing a file at `to`. Durable only after
    /// [`DiskOp::SyncDir`] of both directories.
    Rename {
        /// The old name.
        from: DiskPath,
        /// The new name.
        to: DiskPath,
    },
    /// Removes a file; its absence is not an error. Durable after [`DiskOp::SyncDir`].
    Remove {
        /// The file.
        path: DiskPath,
    },
    /// Removes a directory with everything in it; its absence is not an error. Durable after
    /// [`DiskOp::SyncDir`] of its parent.
    RemoveTree {
        /// The directory.
        path: DiskPath,
    },
    /// Creates a directory and its ancestors, durably. Existing ones are no error.
    CreateDirs {
        /// The directory.
        path: DiskPath,
    },
    /// Makes creations, renames and removals in a directory durable.
    SyncDir {
        /// The directory.
        path: DiskPath,
    },
}

impl DiskOp {
    /// The path the operation is about; the old name of a rename.
    #[must_use]
    pub fn path(&self) -> &DiskPath {
        match self {
            Self::Write { path, .. }
            | Self::Sync { path }
            | Self::Truncate { path, .. }
            | Self::Read { path, .. }
            | Self::Replace { path, .. }
            | Self::Rename { from: path, .. }
            | Self::Remove { path }
            | Self::RemoveTree { path }
            | Self::CreateDirs { path }
            | Self::SyncDir { path } => path,
        }
    }

    /// The verb an error about this operation carries.
    #[must_use]
    pub fn verb(&self) -> DiskVerb {
        match self {
            Self::Write { .. } => DiskVerb::Write,
            Self::Sync { .. } => DiskVerb::Sync,
            Self::Truncate { .. } => DiskVerb::Truncate,
            Self::Read { .. } => DiskVerb::Read,
            Self::Replace { .. } => DiskVerb::Replace,
            Self::Rename { .. } => DiskVerb::Rename,
            Self::Remove { .. } | Self::RemoveTree { .. } => DiskVerb::Remove,
            Self::CreateDirs { .. } => DiskVerb::CreateDirs,
            Self::SyncDir { .. } => DiskVerb::SyncDir,
        }
    }
}

/// A run of bytes to write, shared with whoever else holds them.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// A whole frame: header and body.
    Frame(Message),
    /// The body of a frame.
    Body(Message),
    /// A part of the body of a frame; build it with [`Chunk::body_range`].
    BodyRange(Message, Range<usize>),
    /// Bytes of their own.
    Bytes(Arc<[u8]>),
}

impl Chunk {
    /// A part of the body of `message`; `None` when the range reaches beyond it.
    #[must_use]
    pub fn body_range(message: Message, range: Range<usize>) -> Option<Self> {
        message.body().get(range.clone())?;
        Some(Self::BodyRange(message, range))
    }

    /// The bytes to write, one slice after the other. The second is empty unless a frame
    /// carries a replaced header in front of a shared body.
    ///
    /// # Panics
    ///
    /// When a `BodyRange` was built by hand and reaches beyond its body.
    #[must_use]
    pub fn slices(&self) -> [&[u8]; 2] {
        match self {
            Self::Frame(message) => message.slices(),
            Self::Body(message) => [message.body(), &[]],
            Self::BodyRange(message, range) => [&message.body()[range.clone()], &[]],
            Self::Bytes(bytes) => [bytes, &[]],
        }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Frame(message) => message.size(),
            Self::Body(message) => message.body().len(),
            Self::BodyRange(_, range) => range.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes of a list of chunks.
    #[must_use]
    pub fn total(chunks: &[Self]) -> u64 {
        chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Arc::from(bytes))
    }
}

/// The answer to one [`DiskRequest`].
#[derive(Clone, Debug)]
pub struct DiskCompletion {
    /// Queue of the request.
    pub queue: QueueId,
    /// Token of the request.
    pub token: u64,
    /// What came of it.
    pub result: Result<DiskReply, DiskError>,
}

/// A successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskReply {
    /// Executed as its [`DiskOp`] promises.
    Done,
    /// The bytes read.
    Data(ReadBytes),
}

/// What was being done when a disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskVerb {
    /// Creating directories.
    CreateDirs,
    /// Listing a directory.
    List,
    /// Reading bytes or asking for a length.
    Read,
    /// Removing a file or tree.
    Remove,
    /// Renaming.
    Rename,
    /// Replacing a file as a whole.
    Replace,
    /// Making file content durable.
    Sync,
    /// Making directory entries durable.
    SyncDir,
    /// Setting a length.
    Truncate,
    /// Writing bytes.
    Write,
}

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DiskErrorKind {
    /// The file or directory does not exist.
    #[error("not found")]
    NotFound,
    /// The device or a quota is full.
    #[error("no space left")]
    NoSpace,
    /// The operating system does not allow it.
    #[error("permission denied")]
    Permission,
    /// A directory where a file was expected, or the reverse.
    #[error("wrong kind of directory entry")]
    WrongKind,
    /// Anything else, with the code of the operating system where it gave one.
    #[error("input/output error (code {0:?})")]
    Io(Option<i32>),
}

/// A failing environment: which file, which verb, which failure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{verb:?} {path}: {kind}")]
pub struct DiskError {
    /// What was attempted.
    pub verb: DiskVerb,
    /// On which path.
    pub path: DiskPath,
    /// What happened.
    pub kind: DiskErrorKind,
}

/// Executes requests. Two methods, so that a driver over files, a simulated disk and the
/// in-memory one are interchangeable.
pub trait Disk {
    /// Takes a request over. Never waits; a request is never lost, it completes or fails.
    fn submit(&mut self, request: DiskRequest);

    /// The next answer, if there is one by now.
    fn poll(&mut self) -> Option<DiskCompletion>;
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Reads that wait, for the time before a machine runs: opening and recovering.
pub trait DiskView {
    /// Length of a file in bytes; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// Any failure but absence; a directory is [`DiskErrorKind::WrongKind`].
    fn len(&self, path: &DiskPath) -> Result<Option<u64>, DiskError>;

    /// Reads from `offset` until `buf` is full or the file ends; the number of bytes read.
    ///
    /// # Errors
    ///
    /// Any failure, absence included.
    fn read(&self, path: &DiskPath, offset: u64, buf: &mut [u8]) -> Result<usize, DiskError>;

    /// The entries of a directory, ascending by name; none when it does not exist.
    ///
    /// # Errors
    ///
    /// Any failure but absence; a file is [`DiskErrorKind::WrongKind`].
    fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskError>;
}

/// Why a whole file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadFileError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is longer than the caller is willing to hold.
    #[error("{path} has {len} bytes, more than the {limit} allowed")]
    TooLong {
        /// The file.
        path: DiskPath,
        /// Its length in bytes.
        len: u64,
        /// The caller's limit.
        limit: u64,
    },
}

/// Reads a whole file of at most `limit` bytes; `None` when it does not exist.
///
/// # Errors
///
/// A failing disk, or a file longer than `limit`.
pub fn read_file(
    view: &dyn DiskView,
    path: &DiskPath,
    limit: u64,
) -> Result<Option<ReadBytes>, ReadFileError> {
    let Some(len) = view.len(path)? else {
        return Ok(None);
    };
    let too_long = || ReadFileError::TooLong {
        path: path.clone(),
        len,
        limit,
    };
    if len > limit {
        return Err(too_long());
    }
    let size = usize::try_from(len).map_err(|_| too_long())?;
    let mut buffer = crate::buffer::ReadBuffer::zeroed(size);
    let read = view.read(path, 0, buffer.as_mut_bytes())?;
    buffer.truncate(read);
    Ok(Some(buffer.freeze()))
}
