//! The prepare log of a partition whose topic has a persisted policy (chapter 06 section 3.3):
//! where it lies and what it held after a restart.

use biplane_journal::{
    self as journal, DirEntry, DiskError, DiskErrorKind, DiskPath, DiskVerb, DiskView, Entry,
    LogScope, QueueId, Wal, WalConfig, WalOutput,
};
use biplane_vsr::LogEntry;
use biplane_wire::Op;

use crate::io::GroupSpec;
use crate::limits::Limits;
use crate::paths::Paths;
use crate::recovery::NodeIdentity;

/// What the log held, if the group has one.
#[derive(Debug, Default)]
pub(crate) struct RecoveredLog {
    found: Option<journal::Recovered>,
}

impl RecoveredLog {
    /// The entries as vsr takes them.
    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        let entries = self.found.iter().flat_map(|found| &found.entries);
        let convert = |entry: &Entry| match entry {
            Entry::Intact(message) => LogEntry::Intact(message.clone()),
            Entry::Damaged(op) => LogEntry::Damaged(*op),
        };
        entries.map(convert).collect()
    }

    /// See [`journal::Recovered::heed_commit`].
    pub(crate) fn heed_commit(&mut self, commit: Op) {
        if let Some(found) = &mut self.found {
            found.heed_commit(commit);
        }
    }
}

fn config(
    node: NodeIdentity,
    limits: &Limits,
    spec: &GroupSpec,
    dir: &DiskPath,
    queue: QueueId,
) -> Result<WalConfig, String> {
    let scope = LogScope {
        cluster: node.cluster,
        group: spec.group,
    };
    let frame_max = u32::try_from(limits.wal_prepare_bytes_max).unwrap_or(u32::MAX);
    let bytes_max = limits.wal_bytes_max;
    WalConfig::partition(
        dir,
        spec.created_revision,
        queue,
        scope,
        bytes_max,
        frame_max,
    )
    .map_err(|error| error.to_string())
}

/// Reads the log below the partition folder; operations up to `floor` are in synced files.
pub(crate) fn recover(
    node: NodeIdentity,
    limits: &Limits,
    spec: &GroupSpec,
    view: &dyn DiskView,
    floor: Op,
) -> Result<RecoveredLog, String> {
    let paths = spec
        .group
        .unpack()
        .map(Paths::new)
        .ok_or("not a partition")?;
    let config = config(node, limits, spec, paths.dir(), QueueId(0))?;
    let found = journal::recover(&config, view, floor).map_err(|error| error.to_string())?;
    Ok(RecoveredLog { found: Some(found) })
}

/// A folder without files: the log of a partition that starts without one.
struct NoFiles;

impl DiskView for NoFiles {
    fn len(&self, _path: &DiskPath) -> Result<Option<u64>, DiskError> {
        Ok(None)
    }

    fn read(&self, path: &DiskPath, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
        let (verb, path) = (DiskVerb::Read, path.clone());
        Err(DiskError {
            verb,
            path,
            kind: DiskErrorKind::NotFound,
        })
    }

    fn list(&self, _path: &DiskPath) -> Result<Vec<DirEntry>, DiskError> {
        Ok(Vec::new())
    }
}

/// Opens the log for writing; `None` when the group needs none.
pub(crate) fn open(
    node: NodeIdentity,
    limits: &Limits,
    spec: &GroupSpec,
    dir: &DiskPath,
    queue: QueueId,
    recovered: &RecoveredLog,
    out: &mut Vec<WalOutput>,
) -> Result<Option<Wal>, String> {
    if node.replica_count == 1 || !spec.options.needs_prepare_log() {
        return Ok(None);
    }
    let config = config(node, limits, spec, dir, queue)?;
    let none;
    let found = match &recovered.found {
        Some(found) => found,
        None => {
            none = journal::recover(&config, &NoFiles, Op::ZERO).map_err(|e| e.to_string())?;
            &none
        }
    };
    Ok(Some(Wal::open(config, found, out)))
}
