//! The promises of all partitions that have no files: one file and one sync for many groups.
//!
//! A partition that nobody has written to has nothing to keep but the views it promised. Folder,
//! first segment and superblock for each of them cost a dozen synced operations when a topic is
//! created, as many files to read at the next start, and a synced write each when a node fails
//! and all of them elect. So as long as a partition is *dormant*, its promises are a line of the
//! file `streams/dormant.superblocks`, and whatever thousands of groups promise at the same time
//! is one write. Its files are made before it takes part in the first operation, and then the
//! line is taken back.
//!
//! ```text
//!   group: view, log view ─┐
//!   group: view, log view ─┼─► waiting ─► one batch, one sync ─► every group of it is told
//!   group: has files now  ─┘
//! ```
//!
//! The first write of a process replaces the file with all lines there are, later ones are
//! appended, until the file is mostly old lines and is replaced again. A last batch that a crash
//! interrupted was never answered. Anything else that does not read back is damage: the file may
//! have said that this node voted, so no partition without files of its own is opened then
//! (chapter 04 section 5.5.2 for superblocks).

mod format;

use std::collections::{BTreeMap, VecDeque};

use biplane_journal::{
    Chunk, DiskError, DiskOp, DiskPath, DiskReply, DiskRequest, DiskView, QueueId, read_file,
};
use biplane_wire::{GroupId, View};

use crate::context::{Queues, backoff};
use crate::io::{Output, Outputs};
use crate::recovery::NodeIdentity;

/// Folder of the file.
const FOLDER: &str = "streams";
/// Its name.
const NAME: &str = "streams/dormant.superblocks";
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 30;
/// Changes in a file beyond its lines before it is replaced by a shorter one.
const SURPLUS: usize = 1 << 16;

/// What one group promised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The incarnation: metadata revision that created the partition.
    pub(crate) revision: u64,
    pub(crate) view: View,
    pub(crate) log_view: View,
}

/// What is to become of a group's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) group: GroupId,
    pub(crate) revision: u64,
    /// `None`: the group has files of its own, or is gone.
    pub(crate) line: Option<Line>,
}

/// The file, and what is on its way there.
#[derive(Debug)]
pub(crate) struct SharedSuperblock {
    identity: NodeIdentity,
    is_loaded: bool,
    damage: Option<String>,
    /// All lines as they were asked for last.
    lines: BTreeMap<GroupId, Line>,
    waiting: Vec<Change>,
    writing: Vec<Change>,
    /// Steps of the write under way, and the one that was submitted.
    steps: VecDeque<DiskOp>,
    submitted: Option<u64>,
    token: u64,
    failures: u32,
    retry_at: u64,
    /// Length of the file, number of its next batch, changes in it; nothing before the first
    /// write of this process.
    file: Option<(u64, u64, usize)>,
}

impl SharedSuperblock {
    pub(crate) fn new(identity: NodeIdentity) -> Self {
        Self {
            identity,
            is_loaded: false,
            damage: None,
            lines: BTreeMap::new(),
            waiting: Vec::new(),
            writing: Vec::new(),
            steps: VecDeque::new(),
            submitted: None,
            token: 0,
            failures: 0,
            retry_at: 0,
            file: None,
        }
    }

    /// Reads the file, the first time it is called.
    pub(crate) fn load(&mut self, view: &dyn DiskView) {
        if std::mem::replace(&mut self.is_loaded, true) {
            return;
        }
        let read = match read_file(view, &path(NAME), BYTES_MAX) {
            Ok(None) => return,
            Ok(Some(bytes)) => {
                format::decode(bytes.as_bytes(), self.identity).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(found) => self.lines = found.lines,
            Err(reason) => self.damage = Some(format!("{NAME}: {reason}")),
        }
    }

    /// What this incarnation of the group promised, if it is dormant.
    pub(crate) fn line(&self, group: GroupId, revision: u64) -> Option<Line> {
        let line = self.lines.get(&group).copied();
        line.filter(|line| line.revision == revision)
    }

    /// Why the file cannot be believed, if it cannot.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Whether completions of this queue belong here.
    pub(crate) fn owns(queues: Queues) -> bool {
        queues == Queues::shared()
    }

    fn queue() -> QueueId {
        Queues::shared().superblock()
    }

    /// Asks for a change; [`Self::pump`] writes it.
    pub(crate) fn set(&mut self, change: Change) {
        assert!(
            self.damage.is_none(),
            "a file that is not believed stays as it is"
        );
        match change.line {
            Some(line) => drop(self.lines.insert(change.group, line)),
            None if self.line(change.group, change.revision).is_some() => {
                self.lines.remove(&change.group);
            }
            None => {}
        }
        self.waiting.push(change);
    }

    /// Starts the next write when none is under way: everything that was asked for meanwhile
    /// goes into it. Tries again what failed.
    pub(crate) fn pump(&mut self, now: u64, out: &mut Outputs) {
        if self.submitted.is_some() || now < self.retry_at {
            return;
        }
        if self.steps.is_empty() && !self.waiting.is_empty() {
            self.begin_batch();
        }
        let Some(op) = self.steps.front().cloned() else {
            return;
        };
        self.token += 1;
        self.submitted = Some(self.token);
        out.push(Output::Disk(DiskRequest {
            queue: Self::queue(),
            token: self.token,
            op,
        }));
    }

    fn begin_batch(&mut self) {
        let many = self.waiting.len().min(format::CHANGES_MAX);
        self.writing = self.waiting.drain(..many).collect();
        let roomy = self.lines.len() * 2 + SURPLUS;
        if let Some((len, batch, changes)) = &mut self.file
            && *changes + many <= roomy
        {
            let bytes = format::encode(self.identity, *batch, &self.writing);
            let offset = *len;
            *len += bytes.len() as u64;
            *batch += 1;
            *changes += many;
            self.steps.push_back(DiskOp::Write {
                path: path(NAME),
                offset,
                data: vec![Chunk::from(bytes)],
                sync: true,
            });
            return;
        }
        let all: Vec<Change> = self
            .lines
            .iter()
            .map(|(group, line)| Change {
                group: *group,
                revision: line.revision,
                line: Some(*line),
            })
            .collect();
        let mut bytes = Vec::new();
        let mut batch = 0;
        for changes in all.chunks(format::CHANGES_MAX) {
            bytes.extend(format::encode(self.identity, batch, changes));
            batch += 1;
        }
        if all.is_empty() {
            bytes = format::encode(self.identity, 0, &[]);
            batch = 1;
        }
        self.file = Some((bytes.len() as u64, batch, all.len()));
        self.steps
            .push_back(DiskOp::CreateDirs { path: path(FOLDER) });
        self.steps.push_back(DiskOp::Replace {
            path: path(NAME),
            data: vec![Chunk::from(bytes)],
        });
    }

    /// The answer to a request; the changes that are durable by it. [`Self::pump`] follows.
    pub(crate) fn complete(
        &mut self,
        token: u64,
        result: &Result<DiskReply, DiskError>,
        now: u64,
        retry_ticks_max: u64,
    ) -> Vec<Change> {
        if self.submitted != Some(token) {
            return Vec::new();
        }
        self.submitted = None;
        if let Err(error) = result {
            tracing::warn!(%error, "promises of dormant partitions wait for the disk");
            self.failures += 1;
            self.retry_at = now + backoff(self.failures, retry_ticks_max);
            return Vec::new();
        }
        self.failures = 0;
        self.steps.pop_front();
        if self.steps.is_empty() {
            std::mem::take(&mut self.writing)
        } else {
            Vec::new()
        }
    }
}

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).expect("letters and dots make a path")
}
