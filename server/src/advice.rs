//! What an operator does when a node does not start, or stops by itself: the end of the last line
//! of such a process.

use std::io::{self, ErrorKind};

use biplane_journal::{
    DiskError, DiskErrorKind, OpenError as JournalError, ReadFileError, ReplayError,
    SuperblockDecodeError, SuperblockError,
};
use biplane_metadata_plane::OpenError;
use biplane_metadata_plane::io::HaltReason;
use biplane_metadata_plane::snapshot::SnapshotError;

use crate::config::ConfigError;
use crate::file_disk::FolderError;
use crate::node::BootError;
use crate::observe::LoggingError;
use crate::serve::ServeError;
use crate::tls::TlsError;

const REPLACE: &str = "the data folder cannot be believed any more. If the other nodes are a \
     majority, move it away and start again: this node is filled by them (docs/operations.md, \
     \"Replace a dead node\"). A node alone needs its backup";
const FOREIGN: &str = "this data folder belongs to another node or another cluster: compare \
     --replica-id, --data, cluster.name and the number of [[cluster.nodes]] with those it was \
     started with before";
const NEWER: &str = "the data was written by a newer release, or is damaged: start the release \
     that was running before; docs/operations.md, \"Replace a dead node\", if that does not help";
const REPORT: &str = "keep the data folder and the log, and report this: it should not be \
     possible. If the other nodes are a majority, the cluster goes on without this one";
const ROOM: &str = "make room on the disk of the data folder, or raise its quota, and start \
     again: nothing that was acknowledged is lost";
const PERMISSION: &str = "give the folder and all that is in it to the user that runs the node \
     (chown -R), and see that the file system is not read-only";
const CONFIGURATION: &str = "correct it; `biplane config check FILE` lists every problem of a \
     file at once";
const FILE: &str = "name a file that this user can read; `biplane config example` prints a \
     configuration to begin with";
const KIND: &str = "a file stands where a folder should be, or the other way round: choose \
     another data folder, or move away what does not belong there";
const DISK: &str = "the disk of the data folder fails or is gone: look at the kernel's log and \
     at the mount, then start again. If the disk is lost, see docs/operations.md, \"Replace a \
     dead node\"";
const LIMITS: &str = "the system refuses threads or descriptors: raise its limits (ulimit -n, \
     ulimit -u, LimitNOFILE= of the unit) and start again";

fn of_io(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => PERMISSION,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ROOM,
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => KIND,
        ErrorKind::NotFound => {
            "a folder on the way to it is missing: create it, or mount what \
             should be there"
        }
        _ => DISK,
    }
}

fn of_disk(error: &DiskError) -> &'static str {
    match error.kind {
        DiskErrorKind::NoSpace => ROOM,
        DiskErrorKind::Permission => PERMISSION,
        DiskErrorKind::WrongKind => KIND,
        DiskErrorKind::NotFound => REPLACE,
        DiskErrorKind::Io(_) => DISK,
    }
}

fn of_file(error: &ReadFileError) -> &'static str {
    match error {
        ReadFileError::Disk(error) => of_disk(error),
        ReadFileError::TooLong { .. } => REPLACE,
    }
}

fn of_superblock(error: &SuperblockError) -> &'static str {
    match error {
        SuperblockError::Disk(error) => of_disk(error),
        SuperblockError::IdentityMismatch { .. } => FOREIGN,
        SuperblockError::Unverifiable {
            error: SuperblockDecodeError::Version(_),
            ..
        } => NEWER,
        _ => REPLACE,
    }
}

fn of_metadata(error: &OpenError) -> &'static str {
    match error {
        OpenError::Limit(_) => CONFIGURATION,
        OpenError::Superblock(error) => of_superblock(error),
        OpenError::SnapshotRead(error) => of_file(error),
        OpenError::Journal(JournalError::Disk(error)) => of_disk(error),
        OpenError::Journal(JournalError::Foreign { .. }) => FOREIGN,
        OpenError::Snapshot(SnapshotError::Version(_) | SnapshotError::NewerRelease(_))
        | OpenError::Undecodable { .. } => NEWER,
        OpenError::SnapshotFile(_)
        | OpenError::Snapshot(_)
        | OpenError::Pairing(_)
        | OpenError::Journal(JournalError::OpOutOfReach { .. }) => REPLACE,
        OpenError::Replica(_) | OpenError::Path(_) => REPORT,
    }
}

fn of_listen(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::AddrInUse => {
            "another process listens there, perhaps this node already: stop it (`ss -ltnp` names \
             it), or choose another port"
        }
        ErrorKind::AddrNotAvailable => {
            "the address is none of this host: correct it; to listen on all of them say 0.0.0.0 \
             in the transport's `address`"
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 are for the administrator: choose a higher one, or give the process \
             CAP_NET_BIND_SERVICE"
        }
        _ => LIMITS,
    }
}

fn of_tls(error: &TlsError) -> &'static str {
    match error {
        TlsError::Unreadable { .. } => {
            "correct the path, and see that the user that runs the node can read the file"
        }
        TlsError::Invalid { .. } | TlsError::Refused { .. } => {
            "name a certificate and its key, both PEM, and made for each other"
        }
        TlsError::Mint(_) => REPORT,
    }
}

fn of_folder(error: &FolderError) -> &'static str {
    match error {
        FolderError::Unusable { source, .. } => of_io(source),
        FolderError::InUse { .. } => {
            "a node runs on it: stop that one, or give this one a folder of its own with --data"
        }
    }
}

fn of_config(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Unreadable { .. } => FILE,
        ConfigError::DotEnv { .. } => {
            "correct the file, one NAME=value a line, or see that this user can read it"
        }
        ConfigError::Refused { .. } => CONFIGURATION,
        ConfigError::Rule { .. } => "correct the command line or the configuration",
    }
}

fn of_boot(error: &BootError) -> &'static str {
    match error {
        BootError::Config(error) => of_config(error),
        BootError::Folder(error) => of_folder(error),
        BootError::Root(error) => error.advice().unwrap_or_else(|source| of_io(source)),
        BootError::Metadata { reason, .. } => of_metadata(reason),
        BootError::Redo {
            reason: ReplayError::Read(error),
            ..
        } => of_file(error),
        BootError::Redo { .. } => REPLACE,
        BootError::Secret(_) => {
            "all nodes need the same secret of at least 32 bytes, best in the environment: \
             IGGY_CLUSTER_AUTH_SHARED_SECRET"
        }
        BootError::Tls(error) => of_tls(error),
        BootError::Listen(error) => of_listen(&error.source),
        BootError::System(_) => LIMITS,
    }
}

/// What to do about a node that does not start or has stopped by itself.
pub(crate) fn advice(error: &ServeError) -> &'static str {
    match error {
        ServeError::Config(error) => of_config(error),
        ServeError::Boot(error) => of_boot(error),
        ServeError::Logging(LoggingError::Level { .. }) => {
            "correct it: `info`, `debug`, or more finely `info,biplane_server=debug`"
        }
        ServeError::Logging(LoggingError::Files(_)) => {
            "see that the user that runs the node can write there and that the disk has room, or \
             say logging.file_enabled = false"
        }
        ServeError::Signals(_) => LIMITS,
        ServeError::Halted { advice, .. } => advice,
    }
}

/// The end of a metadata plane that cannot go on: why, in a sentence, and what to do.
pub(crate) fn metadata_halt(reason: &HaltReason) -> (String, &'static str) {
    use biplane_vsr::HaltReason as ReplicaHalt;
    match reason {
        HaltReason::SuperblockStuck => (
            "the superblock of the metadata group could not be written for longer than \
             cluster.superblock_wedged_fatal_timeout"
                .to_owned(),
            "the disk is full, or fails: look at its room and at the kernel's log, then start \
             again. Nothing that was acknowledged is lost",
        ),
        HaltReason::Journal(error) => (
            format!("the log of the metadata group can no longer be written: {error}"),
            of_disk(&error.0),
        ),
        HaltReason::Replica(ReplicaHalt::AppendFailed { op }) => (
            format!("operation {op} of the metadata group could not be stored, nor taken back"),
            DISK,
        ),
        HaltReason::Replica(ReplicaHalt::ForkedLog { op }) => (
            format!("the primary sent operation {op} of the metadata group on another history"),
            REPORT,
        ),
        HaltReason::Undecodable { op, reason } => (
            format!("the committed operation {op} of the metadata group does not decode: {reason}"),
            "another node runs a newer release: start that one here, too",
        ),
    }
}

/// The same for a partition.
pub(crate) const PARTITION_HALT: &str = "if the reason is the disk, look at its room and at the \
     kernel's log, then start again; nothing that was acknowledged is lost. If it is not, keep \
     the data folder and report it";

#[cfg(test)]
mod tests {
    use biplane_journal::{DiskPath, DiskVerb, SuperblockCopy};

    use super::*;

    fn disk(kind: DiskErrorKind) -> DiskError {
        DiskError {
            verb: DiskVerb::Write,
            path: DiskPath::new("metadata/log").expect("a path"),
            kind,
        }
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one_and_from_a_lost_file() {
        for (kind, word) in [
            (DiskErrorKind::NoSpace, "make room"),
            (DiskErrorKind::Permission, "chown"),
            (DiskErrorKind::Io(Some(5)), "kernel's log"),
            (DiskErrorKind::NotFound, "move it away"),
            (DiskErrorKind::WrongKind, "choose another data folder"),
        ] {
            let error = HaltReason::Journal(biplane_journal::WalError(disk(kind)));
            let (reason, advice) = metadata_halt(&error);
            assert!(reason.contains("metadata/log"), "{reason}");
            assert!(advice.contains(word), "{kind:?}: {advice}");
            let error = OpenError::Superblock(SuperblockError::Disk(disk(kind)));
            assert!(of_metadata(&error).contains(word), "{kind:?}");
        }
    }

    #[test]
    fn only_damage_costs_a_node_its_data() {
        let copy = SuperblockCopy::A;
        let damaged = |error| OpenError::Superblock(SuperblockError::Unverifiable { copy, error });
        assert_eq!(of_metadata(&damaged(SuperblockDecodeError::Seal)), REPLACE);
        let newer = damaged(SuperblockDecodeError::Version(9));
        assert_eq!(of_metadata(&newer), NEWER);
        let release = OpenError::Snapshot(SnapshotError::NewerRelease(9));
        assert_eq!(of_metadata(&release), NEWER);
    }
}
