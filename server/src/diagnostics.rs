//! What the machine and this process look like, and the archive that an operator asks for when
//! something is wrong (chapter 07 section 8: GetStats, GetSnapshot).
//!
//! Looking at processes and packing files takes long, so a thread of its own does it. It serves
//! one question at a time; of archives only one is made at a time, and who asks meanwhile is told.

mod archive;
mod facts;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use biplane_wire::request::{SnapshotCompression, SnapshotType};
use crossbeam::channel;

pub(crate) use facts::HostFacts;

use crate::mailbox::Post;
use facts::Host;

/// Questions that may wait.
const QUEUE_CAPACITY: usize = 256;

/// A question. `token` comes back with the answer.
#[derive(Debug)]
pub(crate) enum DiagnosticsJob {
    /// What the host looks like now.
    Facts {
        /// Chosen by the caller.
        token: u64,
    },
    /// A ZIP archive of these reports.
    Archive {
        /// Chosen by the caller.
        token: u64,
        /// How entries are packed.
        compression: SnapshotCompression,
        /// Which reports.
        reports: Vec<SnapshotType>,
    },
}

/// An answer.
#[derive(Debug)]
pub(crate) enum DiagnosticsDone {
    /// The facts.
    Facts {
        /// Of the question.
        token: u64,
        /// The answer.
        facts: Box<HostFacts>,
    },
    /// The archive's bytes; `None` when it could not be made.
    Archive {
        /// Of the question.
        token: u64,
        /// The answer.
        bytes: Option<Vec<u8>>,
    },
}

/// What an archive shows of the node besides its host and its folder.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The configuration in effect, without its secrets.
    pub(crate) config: String,
    /// The log file being written, when there is one.
    pub(crate) log: Option<PathBuf>,
}

/// The queue to the thread.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    jobs: channel::Sender<DiagnosticsJob>,
    packing: Arc<AtomicBool>,
}

impl Diagnostics {
    /// Starts the thread. `folder` is the data folder.
    pub(crate) fn start(
        folder: PathBuf,
        shown: Shown,
        answers: &Post<DiagnosticsDone>,
    ) -> io::Result<Self> {
        let (sender, jobs) = channel::bounded::<DiagnosticsJob>(QUEUE_CAPACITY);
        let packing = Arc::new(AtomicBool::new(false));
        let (done, answers) = (Arc::clone(&packing), answers.clone());
        thread::Builder::new()
            .name("diagnostics".to_owned())
            .spawn(move || {
                let mut host = Host::new(folder);
                for job in jobs {
                    answers.post(match job {
                        DiagnosticsJob::Facts { token } => DiagnosticsDone::Facts {
                            token,
                            facts: Box::new(host.look()),
                        },
                        DiagnosticsJob::Archive {
                            token,
                            compression,
                            reports,
                        } => {
                            let bytes = archive::pack(&mut host, &shown, compression, &reports);
                            done.store(false, Ordering::Release);
                            DiagnosticsDone::Archive { token, bytes }
                        }
                    });
                }
            })?;
        Ok(Self {
            jobs: sender,
            packing,
        })
    }

    /// Queues a question; false when too many wait, or when an archive is already being made.
    pub(crate) fn submit(&self, job: DiagnosticsJob) -> bool {
        let packs = matches!(job, DiagnosticsJob::Archive { .. });
        if packs && self.packing.swap(true, Ordering::AcqRel) {
            return false;
        }
        let queued = self.jobs.try_send(job).is_ok();
        if packs && !queued {
            self.packing.store(false, Ordering::Release);
        }
        queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mailbox, runtime};

    #[test]
    fn one_archive_at_a_time_and_facts_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (post, answers) = mailbox::unbounded(&Arc::default());
        let shown = Shown {
            config: "key = 1".to_owned(),
            log: None,
        };
        let diagnostics = Diagnostics::start(folder.path().to_owned(), shown, &post).unwrap();
        let archive = |token| DiagnosticsJob::Archive {
            token,
            compression: SnapshotCompression::Stored,
            reports: vec![SnapshotType::Test, SnapshotType::ServerConfig],
        };
        assert!(diagnostics.submit(DiagnosticsJob::Facts { token: 1 }));
        assert!(diagnostics.submit(archive(2)));
        let second = diagnostics.submit(archive(3));
        let mut facts = None;
        let mut bytes = None;
        while facts.is_none() || bytes.is_none() {
            match runtime::block_on(answers.recv()).unwrap() {
                DiagnosticsDone::Facts {
                    token: 1,
                    facts: it,
                } => facts = Some(it),
                DiagnosticsDone::Archive {
                    token: 2,
                    bytes: it,
                } => bytes = it,
                // It was let in only if the first was done by then.
                DiagnosticsDone::Archive { token: 3, .. } if second => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(facts.unwrap().memory_bytes > 0);
        assert!(bytes.unwrap().starts_with(b"PK"));
        assert!(diagnostics.submit(archive(4)), "the next one is let in");
    }
}
