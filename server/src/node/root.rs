//! The root user of a node (chapter 09 section 6).
//!
//! Root is not replicated: every node creates it before it replays its log. Name and hash are kept
//! in a file of their own from the first boot on, so that a restart needs no credentials and never
//! changes the password.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use biplane_metadata_plane::RootUser;
use tracing::{info, warn};

use crate::config::Variables;
use crate::passwords;

const USERNAME: &str = "IGGY_ROOT_USERNAME";
const PASSWORD: &str = "IGGY_ROOT_PASSWORD";
const DEFAULT: &str = "iggy";

/// Why there is no root user to boot with.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Only one variable is set.
    #[error("{USERNAME} and {PASSWORD} must be set together")]
    Half,
    /// A variable has a length that no login can have.
    #[error("{variable} must have {low} to {high} bytes")]
    Length {
        /// Which one.
        variable: &'static str,
        /// Fewest.
        low: usize,
        /// Most.
        high: usize,
    },
    /// The first boot of a cluster needs credentials.
    #[error(
        "the first boot of a cluster node needs {USERNAME} and {PASSWORD}, equal on all nodes, or \
         --with-default-root-credentials"
    )]
    Missing,
    /// The file cannot be read or written.
    #[error("the root user file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("the root user file {} is damaged; restore it, or remove it and set {USERNAME} and \
             {PASSWORD}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// No randomness for the salt.
    #[error("the root password cannot be hashed: the system has no randomness")]
    Hash,
}

impl RootError {
    /// What an operator does about it; of a file that cannot be used, why that is.
    pub(crate) fn advice(&self) -> Result<&'static str, &io::Error> {
        match self {
            Self::Half | Self::Length { .. } | Self::Missing => Ok(
                "set both in the environment, equal on all nodes; they are needed at the first \
                 start only",
            ),
            Self::File { source, .. } => Err(source),
            Self::Damaged { .. } => {
                Ok("copy the file from another node of the cluster: all have the same root user")
            }
            Self::Hash => Ok("wait until the system has randomness, and start again"),
        }
    }
}

/// The credentials that the environment and the command line give.
fn given(variables: &Variables, with_default: bool) -> Result<Option<(String, String)>, RootError> {
    let variable = |name| variables.get(name).map(str::to_owned);
    if with_default && variable(USERNAME).and(variable(PASSWORD)).is_some() {
        warn!("--with-default-root-credentials is ignored: {USERNAME} and {PASSWORD} are set");
    }
    let default = || with_default.then(|| DEFAULT.to_owned());
    let pair = (
        variable(USERNAME).or_else(default),
        variable(PASSWORD).or_else(default),
    );
    match pair {
        (None, None) => Ok(None),
        (Some(username), Some(password)) => {
            let within = |text: &str, variable, low, high| {
                let valid = (low..=high).contains(&text.len());
                if valid {
                    Ok(())
                } else {
                    Err(RootError::Length {
                        variable,
                        low,
                        high,
                    })
                }
            };
            within(&username, USERNAME, 3, 50)?;
            within(&password, PASSWORD, 3, 100)?;
            Ok(Some((username, password)))
        }
        _ => Err(RootError::Half),
    }
}

/// The root user of the node whose data lies in `folder`.
///
/// # Errors
/// [`RootError`].
pub(super) fn resolve(
    folder: &Path,
    clustered: bool,
    variables: &Variables,
    with_default: bool,
) -> Result<RootUser, RootError> {
    let given = given(variables, with_default)?;
    let path = folder.join("metadata").join("root.user");
    if let Some(stored) = read(&path)? {
        return Ok(stored);
    }
    let (username, password) = match given {
        Some(pair) => pair,
        None if clustered => return Err(RootError::Missing),
        None => {
            let password = random_password().ok_or(RootError::Hash)?;
            warn!(username = DEFAULT, %password, "root user created with a random password");
            (DEFAULT.to_owned(), password)
        }
    };
    let password_hash = passwords::hash(&password).ok_or(RootError::Hash)?;
    let root = RootUser {
        username,
        password_hash,
    };
    write(&path, &root)?;
    info!(username = %root.username, "root user created");
    Ok(root)
}

fn read(path: &Path) -> Result<Option<RootUser>, RootError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // No text at all.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(RootError::Damaged {
                path: path.to_owned(),
            });
        }
        Err(source) => {
            return Err(RootError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut lines = text.lines();
    match (lines.next(), lines.next(), lines.next()) {
        (Some(username), Some(hash), None) if hash.starts_with("$argon2") => Ok(Some(RootUser {
            username: username.to_owned(),
            password_hash: hash.to_owned(),
        })),
        _ => Err(RootError::Damaged {
            path: path.to_owned(),
        }),
    }
}

/// Written aside, synced and renamed: a crash leaves no half a root user.
fn write(path: &Path, root: &RootUser) -> Result<(), RootError> {
    let failed = |source| RootError::File {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let temporary = path.with_extension("user.tmp");
    let store = || -> io::Result<()> {
        let mut file = fs::File::create(&temporary)?;
        writeln!(file, "{}\n{}", root.username, root.password_hash)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(folder)?.sync_all()
    };
    store().map_err(failed)
}

fn random_password() -> Option<String> {
    let mut random = [0u8; 18];
    getrandom::fill(&mut random).ok()?;
    Some(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_root_user_wins_and_damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = resolve(folder.path(), true, &Variables::default(), true).unwrap();
        assert_eq!(first.username, DEFAULT);
        let again = resolve(folder.path(), true, &Variables::default(), false).unwrap();
        assert_eq!(again.password_hash, first.password_hash);
        let path = folder.path().join("metadata").join("root.user");
        fs::write(&path, "iggy\n").unwrap();
        assert!(matches!(
            resolve(folder.path(), true, &Variables::default(), true),
            Err(RootError::Damaged { .. })
        ));
    }

    #[test]
    fn half_of_the_credentials_or_wrong_ones_are_refused_at_every_boot() {
        let folder = tempfile::tempdir().unwrap();
        let of = |pairs: &[(&str, &str)]| {
            Variables::of(
                pairs
                    .iter()
                    .map(|(a, b)| ((*a).to_owned(), (*b).to_owned())),
            )
        };
        let good = of(&[(USERNAME, "admin"), (PASSWORD, "secret")]);
        let first = resolve(folder.path(), true, &good, false).unwrap();
        assert_eq!(first.username, "admin");
        let half = of(&[(USERNAME, "admin")]);
        let refused = resolve(folder.path(), true, &half, false);
        assert!(matches!(refused, Err(RootError::Half)));
        for pairs in [
            [(USERNAME, "ab"), (PASSWORD, "secret")],
            [(USERNAME, "admin"), (PASSWORD, "12")],
        ] {
            let refused = resolve(folder.path(), true, &of(&pairs), false);
            assert!(
                matches!(refused, Err(RootError::Length { .. })),
                "{pairs:?}"
            );
        }
        let empty = tempfile::tempdir().unwrap();
        let refused = resolve(empty.path(), true, &Variables::default(), false);
        assert!(matches!(refused, Err(RootError::Missing)));
    }
}
