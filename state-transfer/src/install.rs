//! Decisions of an install, as pure functions, and the order of its steps, as data.
//!
//! An install replaces state that others may count on. Which of the pulled artifacts may replace
//! what, and in which order the replacing must reach the disk, is decided here; doing it is the
//! plane's part.

mod metadata;
mod partition;
mod partition_steps;

pub use self::metadata::{
    MetadataInstall, MetadataInstallFacts, MetadataRefusal, MetadataStep, decide_metadata,
    table_covers,
};
pub use self::partition::{
    CheckpointDefect, PartitionInstall, PartitionInstallFacts, PartitionRefusal, check_checkpoint,
    check_partition, newest_dedup,
};
pub use self::partition_steps::{AfterFailure, FrontierWrite, InstallStep};
