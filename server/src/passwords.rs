//! Password hashing on threads of its own.
//!
//! Argon2id is slow and hungry on purpose. One login must not stop the node's loop, and a thousand
//! logins must not take a thousand times its memory: the work goes through a bounded queue to a few
//! threads.

use std::io;
use std::sync::Arc;
use std::thread;

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};
use crossbeam::channel::{self, TrySendError};

use crate::mailbox::Post;

/// Jobs that may wait. A right password waits behind all the wrong ones, so the queue is short: who
/// does not fit is told at once to come again.
const QUEUE_CAPACITY: usize = 256;
/// Added to the niceness of the threads: somebody who guesses passwords takes the time that the
/// node's loop leaves, and not more.
const NICENESS: i32 = 10;
/// Hashes computed side by side; each takes 19 MiB.
const THREADS: usize = 2;
const SALT_LENGTH: usize = 16;

/// Work for the hashing threads. `token` comes back with the answer.
#[derive(Debug)]
pub(crate) enum PasswordJob {
    /// Compare `password` with a PHC string; `None` (no such user) takes as long and fails.
    Verify {
        /// Chosen by the caller.
        token: u64,
        /// The stored hash.
        hash: Option<Arc<str>>,
        /// What the client sent.
        password: String,
    },
    /// Hash a new password.
    Hash {
        /// Chosen by the caller.
        token: u64,
        /// What the client sent.
        password: String,
    },
}

/// An answer of the hashing threads.
#[derive(Debug)]
pub(crate) enum PasswordDone {
    /// Whether the password is right.
    Verified {
        /// Of the job.
        token: u64,
        /// The answer.
        matches: bool,
    },
    /// The PHC string; `None` when hashing failed.
    Hashed {
        /// Of the job.
        token: u64,
        /// The answer.
        hash: Option<String>,
    },
}

/// The queue to the hashing threads.
#[derive(Debug, Clone)]
pub(crate) struct Passwords {
    jobs: channel::Sender<PasswordJob>,
}

impl Passwords {
    /// Starts the threads; answers go to `answers`.
    pub(crate) fn start(answers: &Post<PasswordDone>) -> io::Result<Self> {
        let (sender, jobs) = channel::bounded::<PasswordJob>(QUEUE_CAPACITY);
        for index in 0..THREADS {
            let (jobs, answers) = (jobs.clone(), answers.clone());
            thread::Builder::new()
                .name(format!("password-{index}"))
                .spawn(move || {
                    // The calling thread's own, not the process's.
                    if let Err(error) = rustix::process::nice(NICENESS) {
                        tracing::debug!(%error, "password threads keep their priority");
                    }
                    // Verified when a user does not exist, so that the answer takes as long.
                    let dummy = hash("no such password").unwrap_or_default();
                    for job in jobs {
                        answers.post(run(job, &dummy));
                    }
                })?;
        }
        Ok(Self { jobs: sender })
    }

    /// Queues a job; gives it back when too many wait.
    pub(crate) fn submit(&self, job: PasswordJob) -> Result<(), PasswordJob> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn run(job: PasswordJob, dummy: &str) -> PasswordDone {
    match job {
        PasswordJob::Verify {
            token,
            hash,
            password,
        } => {
            let known = hash.is_some();
            let matches = verify(hash.as_deref().unwrap_or(dummy), &password);
            PasswordDone::Verified {
                token,
                matches: matches && known,
            }
        }
        PasswordJob::Hash { token, password } => PasswordDone::Hashed {
            token,
            hash: hash(&password),
        },
    }
}

fn verify(phc: &str, password: &str) -> bool {
    PasswordHash::new(phc).is_ok_and(|parsed| {
        Argon2::default()
            .verify_password(password.as_bytes(), &parsed)
            .is_ok()
    })
}

/// An Argon2id PHC string with a random salt; `None` when the system has no randomness.
pub(crate) fn hash(password: &str) -> Option<String> {
    let mut salt = [0; SALT_LENGTH];
    getrandom::fill(&mut salt).ok()?;
    let salt = SaltString::encode_b64(&salt).ok()?;
    let hash = Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .ok()?;
    Some(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mailbox, runtime};

    #[test]
    fn right_wrong_and_unknown_are_told_apart() {
        let (sender, answers) = mailbox::unbounded(&Arc::default());
        let passwords = Passwords::start(&sender).unwrap();
        let stored: Arc<str> = hash("secret").unwrap().into();
        assert!(stored.starts_with("$argon2id$"));
        let jobs = [
            (Some(stored.clone()), "secret", true),
            (Some(stored), "Secret", false),
            (None, "secret", false),
        ];
        for (index, (hash, password, wanted)) in jobs.into_iter().enumerate() {
            let job = PasswordJob::Verify {
                token: index as u64,
                hash,
                password: password.to_owned(),
            };
            passwords.submit(job).unwrap();
            match runtime::block_on(answers.recv()).unwrap() {
                PasswordDone::Verified { token, matches } => {
                    assert_eq!((token, matches), (index as u64, wanted));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_stored_text_that_is_no_hash_never_matches() {
        assert!(!verify("", "x"));
        assert!(!verify("plain", "plain"));
    }
}
