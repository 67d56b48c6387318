//! Names of one partition's files below the data folder (chapter 06 section 14.1).

use biplane_journal::DiskPath;
use biplane_wire::PartitionKey;

use crate::consumer_offsets::ConsumerKey;
use crate::segments;

/// Folder of the positions of plain consumers, below the partition folder.
pub(crate) const CONSUMERS: &str = "offsets/consumers";
/// Folder of the positions of groups.
pub(crate) const GROUPS: &str = "offsets/groups";
/// Suffix of files of an unfinished transfer.
pub(crate) const STAGING: &str = ".staging";

/// Paths of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    dir: DiskPath,
}

impl Paths {
    /// Paths of the partition `key`.
    pub(crate) fn new(key: PartitionKey) -> Self {
        let PartitionKey {
            stream,
            topic,
            partition,
        } = key;
        let dir = format!("streams/{stream}/topics/{topic}/partitions/{partition}");
        Self {
            dir: DiskPath::new(&dir).expect("decimal parts make a path"),
        }
    }

    /// The partition folder.
    pub(crate) fn dir(&self) -> &DiskPath {
        &self.dir
    }

    /// The folder that holds it and what was set aside of it.
    pub(crate) fn parent(&self) -> DiskPath {
        self.dir
            .parent()
            .expect("a partition folder lies in another")
    }

    /// Where damaged content goes: a sibling folder numbered `n`.
    pub(crate) fn fenced(&self, n: u64) -> DiskPath {
        self.dir
            .with_suffix(&format!(".fenced.{n}"))
            .expect("a suffix of allowed characters")
    }

    /// The folder that takes the place of one that is set aside: complete before the old one
    /// moves, so that no promise is without a home in between.
    pub(crate) fn successor(&self) -> DiskPath {
        self.dir
            .with_suffix(".next")
            .expect("a suffix of allowed characters")
    }

    /// A file or folder in the partition folder.
    pub(crate) fn file(&self, name: &str) -> DiskPath {
        self.dir
            .join(name)
            .expect("names of this crate are allowed")
    }

    /// Log file of the segment that starts at `start`.
    pub(crate) fn log(&self, start: u64) -> DiskPath {
        self.file(&segments::log_name(start))
    }

    /// Index file of the segment that starts at `start`.
    pub(crate) fn index(&self, start: u64) -> DiskPath {
        self.file(&segments::index_name(start))
    }

    /// Offset file of `key`.
    pub(crate) fn offset(&self, key: ConsumerKey) -> DiskPath {
        self.file(&key.file())
    }
}
