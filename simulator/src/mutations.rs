//! Deliberate bugs, and who must find them: the proof that a passing run means something.
//!
//! Some break a promise at a seam the simulator owns (a disk that lies, a frame that is forged,
//! an answer that comes too early), in the way a bug on the other side of that seam would. The
//! others switch off one rule of the cores ([`biplane_vsr::mutation`], compiled in for this crate
//! alone). A run with a mutation that passes is a hole in the oracles; `tests/mutations.rs`
//! demands that each is found within its budget of seeds. The table of all of them is in
//! `mutations/table.rs`.

use biplane_journal::{DiskOp, DiskRequest};
pub use biplane_vsr::mutation::Mutation as Core;
use biplane_wire::{
    Command, CommitHeader, GroupId, Message, Op, PrepareHeader, PrepareOkHeader, ReplicaId,
    ReplyHeader, prepare,
};

use crate::machine::{Answer, Call};
use crate::options::Profile;

pub mod measure;
mod table;

pub use table::{MUTATIONS, NEEDED, SURVIVORS};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Syncs are answered and not carried out.
    SyncIsIgnored,
    /// The superblock is answered and not written.
    SuperblockIsNotWritten,
    /// An acknowledgement counts for two replicas.
    VoteCountsTwice,
    /// Success is answered before anything is committed.
    AnswerBeforeCommit,
    /// A replica comes back without its disk and takes part at once.
    RestartForgetsTheDisk,
    /// Backups hear that everything prepared is committed.
    CommitAboveHead,
    /// No backup ever misses a primary.
    NoElection,
    /// Polls return one message less than they say.
    PollDropsAMessage,
    /// Names of files are not synced, neither by themselves nor after a rename.
    DirectoryIsNotSynced,
    /// The superblock is written over itself and not beside it.
    SuperblockInPlace,
    /// A heartbeat of one partition is taken for one of another too.
    FrameOfAnotherGroup,
    /// A prepare that is sent for repair has another body than the one that was committed.
    RepairedBodyDiffers,
    /// A rule of the consensus core, or of what stands on it, does not hold.
    Core(Core),
}

/// What is known of a mutation before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The bug.
    pub mutation: Mutation,
    /// Name on the command line.
    pub name: &'static str,
    /// Oracles of which one must object, by their numbers; `panic` stands for a core that stops
    /// itself.
    pub found_by: &'static [&'static str],
    /// In runs of this profile.
    pub profile: Profile,
    /// With these options set by hand.
    pub settings: &'static [&'static str],
    /// Within this many seeds.
    pub seeds: u64,
}

impl Mutation {
    /// The mutation of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let known = MUTATIONS.iter().map(|known| (known.mutation, known.name));
        let survivors = SURVIVORS
            .iter()
            .map(|&(mutation, known, _)| (mutation, known));
        let mut all = known.chain(survivors);
        Some(all.find(|(_, known)| *known == name)?.0)
    }

    /// Makes the cores of this thread as wrong as a run with this mutation, or none, needs them.
    pub fn switch_cores(mutation: Option<Self>) {
        biplane_vsr::mutation::activate(match mutation {
            Some(Self::Core(rule)) => Some(rule),
            _ => None,
        });
    }

    /// The request a lying disk carries out in place of `request`.
    #[must_use]
    pub fn disk(self, request: DiskRequest) -> DiskRequest {
        let DiskRequest { queue, token, op } = request;
        let op = match (self, op) {
            (
                Self::SyncIsIgnored,
                DiskOp::Write {
                    path, offset, data, ..
                },
            ) => DiskOp::Write {
                path,
                offset,
                data,
                sync: false,
            },
            (Self::SuperblockIsNotWritten, DiskOp::Replace { path, .. })
                if path.name().starts_with("superblock") =>
            {
                // Something harmless that is answered in the same way.
                DiskOp::SyncDir {
                    path: path.parent().unwrap_or(path),
                }
            }
            (Self::SuperblockInPlace, DiskOp::Replace { path, data })
                if path.name().starts_with("superblock") =>
            {
                DiskOp::Write {
                    path,
                    offset: 0,
                    data,
                    sync: true,
                }
            }
            (_, op) => op,
        };
        DiskRequest { queue, token, op }
    }

    /// A frame that goes to `to` before `message` does.
    #[must_use]
    pub fn forged_before(self, message: &Message) -> Option<Message> {
        if self != Self::RepairedBodyDiffers || message.command() != Command::RepairPrepare {
            return None;
        }
        let header: PrepareHeader = *message.header();
        let mut body = message.body().to_vec();
        *body.last_mut()? ^= 1;
        let header = header.with_command(Command::Prepare);
        Some(prepare::build_with_body(header, &body).prepare_to_repair())
    }

    /// A frame that goes to `to` after `message`.
    #[must_use]
    pub fn forged(self, to: u8, replicas: u8, message: &Message) -> Option<Message> {
        match (self, message.command()) {
            (Self::VoteCountsTwice, Command::PrepareOk) => {
                let mut header: PrepareOkHeader = *message.header();
                let other = (0..replicas).find(|&it| it != to && it != header.frame.replica().0)?;
                header.frame.set_replica(ReplicaId(other));
                Some(Message::sealed(header, &[]))
            }
            (Self::CommitAboveHead, Command::Commit) => {
                let mut header: CommitHeader = *message.header();
                header.set_commit(Op(header.commit().0 + 1));
                Some(Message::sealed(header, &[]))
            }
            _ => None,
        }
    }

    /// A frame that a node takes for one of another of its groups too.
    #[must_use]
    pub fn strayed(self, message: &Message, groups: &[GroupId]) -> Option<Message> {
        if self != Self::FrameOfAnotherGroup || message.command() != Command::Commit {
            return None;
        }
        let mut header: CommitHeader = *message.header();
        let of = header.group();
        let mut others = groups.iter().filter(|it| !it.is_metadata() && **it != of);
        header.set_group(*others.next().filter(|_| !of.is_metadata())?);
        Some(Message::sealed(header, &[]))
    }

    /// An answer a node gives by itself as soon as a call arrives.
    #[must_use]
    pub fn early_answer(self, call: &Call, head: impl FnOnce(GroupId) -> Op) -> Option<Answer> {
        let Call::Request {
            group,
            client,
            request,
            ..
        } = call
        else {
            return None;
        };
        if self != Self::AnswerBeforeCommit {
            return None;
        }
        let mut header = ReplyHeader::new(Command::Reply);
        header.set_client(*client);
        header.set_request(biplane_wire::RequestNumber(*request));
        header.set_op(head(*group).next());
        let message = Message::from_parts(header, &[]);
        Some(Answer::Replied { code: 0, message })
    }

    /// The answer a client gets in place of `answer`.
    #[must_use]
    pub fn answer(self, answer: Answer) -> Answer {
        match (self, answer) {
            (
                Self::PollDropsAMessage,
                Answer::Polled {
                    status: 0,
                    mut body,
                },
            ) => {
                if let Some(count) = body.get_mut(12) {
                    *count = count.wrapping_add(1);
                }
                Answer::Polled { status: 0, body }
            }
            (_, answer) => answer,
        }
    }
}
