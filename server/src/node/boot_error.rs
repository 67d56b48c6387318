//! Why a node does not start.

use std::io;
use std::path::PathBuf;

use biplane_handshake::SecretError;
use biplane_journal::ReplayError;
use biplane_metadata_plane as metadata;

use super::root::RootError;
use crate::config::ConfigError;
use crate::file_disk::FolderError;
use crate::peer::ListenError;
use crate::tls::TlsError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Root user.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Metadata on disk.
    #[error("the metadata in {} cannot be opened: {reason}", folder.display())]
    Metadata {
        /// Data folder.
        folder: PathBuf,
        /// What recovery found.
        reason: metadata::OpenError,
    },
    /// Writes that were durable in the redo files only.
    #[error("the redo files in {} cannot be believed: {reason}", folder.display())]
    Redo {
        /// Data folder.
        folder: PathBuf,
        /// What is wrong with them.
        reason: ReplayError,
    },
    /// Secrets.
    #[error("cluster.auth: {0}")]
    Secret(#[from] SecretError),
    /// Certificates and keys.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A port.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Threads or randomness.
    #[error("the system refuses a resource: {0}")]
    System(#[from] io::Error),
}
