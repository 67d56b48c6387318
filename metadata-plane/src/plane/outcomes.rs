//! Telling whoever waits what became of a request, a login or a logout.

use biplane_vsr::{DenyReason, Refusal};
use biplane_wire::{
    ClientId, ErrorCode, ForwardLogoutOutcome, ForwardRegisterOutcome, Message, Op, Operation,
    PrepareHeader, RoutedRequestHeader,
};

use super::MetadataPlane;
use super::machine::Committed;
use super::waiters::{Origin, Waiter};
use crate::io::{LogoutOutcome, Outcome, Output, RegisterOutcome};

/// Why a login or logout did not happen, or may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// This replica does not lead, or not well enough.
    NotPrimary,
    /// No room.
    Full,
    /// Another request of the client is in hand.
    InFlight,
    /// The view changed; it may still commit.
    Canceled,
    /// The client id belongs to another user.
    OwnedByAnother,
    /// The primary cannot be reached.
    Unreachable,
    /// The primary did not answer in time.
    TimedOut,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotPrimary | Refusal::Transferring => Self::NotPrimary,
            Refusal::Full => Self::Full,
            Refusal::InFlight => Self::InFlight,
        }
    }
}

impl Failure {
    /// The code a client gets: 58 where nothing happened, 57 where it may have.
    fn code(self) -> ErrorCode {
        match self {
            Self::NotPrimary | Self::Full | Self::Unreachable | Self::OwnedByAnother => {
                ErrorCode::TransientNotAccepted
            }
            Self::InFlight | Self::Canceled | Self::TimedOut => ErrorCode::TransientNotCommitted,
        }
    }

    fn register_outcome(self) -> ForwardRegisterOutcome {
        match self {
            Self::NotPrimary | Self::Unreachable => ForwardRegisterOutcome::NotPrimary,
            Self::Full => ForwardRegisterOutcome::PipelineFull,
            Self::InFlight => ForwardRegisterOutcome::InProgress,
            Self::Canceled | Self::TimedOut => ForwardRegisterOutcome::Canceled,
            Self::OwnedByAnother => ForwardRegisterOutcome::ClientIdOwnedByAnotherUser,
        }
    }

    fn logout_outcome(self) -> ForwardLogoutOutcome {
        match self {
            Self::NotPrimary | Self::Unreachable => ForwardLogoutOutcome::NotPrimary,
            Self::Full => ForwardLogoutOutcome::PipelineFull,
            Self::InFlight => ForwardLogoutOutcome::InProgress,
            Self::Canceled | Self::TimedOut | Self::OwnedByAnother => {
                ForwardLogoutOutcome::Canceled
            }
        }
    }

    /// From the answer of a primary; None for success.
    pub(crate) fn of_register(outcome: ForwardRegisterOutcome) -> Option<Self> {
        match outcome {
            ForwardRegisterOutcome::Ok => None,
            ForwardRegisterOutcome::NotPrimary | ForwardRegisterOutcome::NotCaughtUp => {
                Some(Self::NotPrimary)
            }
            ForwardRegisterOutcome::PipelineFull => Some(Self::Full),
            ForwardRegisterOutcome::InProgress => Some(Self::InFlight),
            ForwardRegisterOutcome::Canceled => Some(Self::Canceled),
            ForwardRegisterOutcome::ClientIdOwnedByAnotherUser => Some(Self::OwnedByAnother),
        }
    }

    /// From the answer of a primary; None for success.
    pub(crate) fn of_logout(outcome: ForwardLogoutOutcome) -> Option<Self> {
        match outcome {
            ForwardLogoutOutcome::Ok => None,
            ForwardLogoutOutcome::NotPrimary => Some(Self::NotPrimary),
            ForwardLogoutOutcome::PipelineFull => Some(Self::Full),
            ForwardLogoutOutcome::InProgress => Some(Self::InFlight),
            ForwardLogoutOutcome::Canceled => Some(Self::Canceled),
        }
    }
}

impl MetadataPlane {
    /// A request of ours has committed.
    pub(super) fn deliver(
        &mut self,
        waiter: Waiter,
        prepare: &PrepareHeader,
        committed: &Committed,
        out: &mut Vec<Output>,
    ) {
        let op = prepare.op();
        match waiter {
            Waiter::Request { token, .. } => {
                let operation = prepare.operation();
                let outcome = Outcome::Committed {
                    op,
                    operation,
                    code: committed.code,
                };
                let message = committed.reply.clone();
                out.push(Output::Reply {
                    token,
                    message,
                    outcome,
                });
            }
            Waiter::Register { origin, client } => {
                let session = self.machine.table.get(client);
                let watermark = session.map_or(0, |session| session.watermark.0);
                self.finish_register(origin, client, op.0, watermark, out);
            }
            Waiter::Logout { origin, client } => self.finish_logout(origin, client, op, out),
            Waiter::Proposal => {}
        }
    }

    /// A request of ours was prepared and the view changed before it committed.
    pub(super) fn on_canceled(&mut self, number: u64, out: &mut Vec<Output>) {
        match self.waiters.take(number) {
            Some(Waiter::Request { token, echo }) => {
                self.refuse(token, &echo, ErrorCode::TransientNotCommitted, out);
            }
            Some(Waiter::Register { origin, client }) => {
                self.fail_register(origin, client, Failure::Canceled, out);
            }
            Some(Waiter::Logout { origin, client }) => {
                self.fail_logout(origin, client, Failure::Canceled, out);
            }
            Some(Waiter::Proposal) | None => {}
        }
    }

    /// A request of ours that waited will not be prepared.
    pub(super) fn on_denied(
        &mut self,
        number: u64,
        request: &Message,
        reason: DenyReason,
        out: &mut Vec<Output>,
    ) {
        if reason == DenyReason::ViewChanged {
            return self.on_canceled(number, out);
        }
        // The state moved while it waited: answer what the state says now.
        match self.waiters.take(number) {
            Some(Waiter::Request { token, echo }) => {
                if !self.answer_from_table(token, &echo, out) {
                    self.refuse(token, &echo, ErrorCode::TransientNotCommitted, out);
                }
            }
            Some(Waiter::Register { origin, client }) => {
                let header = request.header::<RoutedRequestHeader>();
                debug_assert!(
                    header.operation() == Operation::Register,
                    "a login was denied"
                );
                self.fail_register(origin, client, Failure::OwnedByAnother, out);
            }
            Some(Waiter::Logout { origin, client }) => {
                let commit = self.replica.commit_min();
                self.finish_logout(origin, client, commit, out);
            }
            Some(Waiter::Proposal) | None => {}
        }
    }

    pub(super) fn finish_register(
        &mut self,
        origin: Origin,
        client: ClientId,
        session: u64,
        watermark: u64,
        out: &mut Vec<Output>,
    ) {
        match origin {
            Origin::Here(token) => {
                let outcome = RegisterOutcome::Registered { session, watermark };
                out.push(Output::Registered { token, outcome });
            }
            Origin::There { replica, nonce } => {
                let view = self.replica.view();
                let message =
                    self.forwarding
                        .register_result(nonce, client, view, Ok((session, watermark)));
                out.push(Output::Send {
                    to: replica,
                    message,
                });
            }
            Origin::Nobody => {}
        }
    }

    pub(super) fn fail_register(
        &mut self,
        origin: Origin,
        client: ClientId,
        failure: Failure,
        out: &mut Vec<Output>,
    ) {
        match origin {
            Origin::Here(token) => {
                let outcome = match failure {
                    Failure::OwnedByAnother => RegisterOutcome::OwnedByAnotherUser,
                    _ => RegisterOutcome::Transient(failure.code()),
                };
                out.push(Output::Registered { token, outcome });
            }
            Origin::There { replica, nonce } => {
                let view = self.replica.view();
                let outcome = Err(failure.register_outcome());
                let message = self
                    .forwarding
                    .register_result(nonce, client, view, outcome);
                out.push(Output::Send {
                    to: replica,
                    message,
                });
            }
            Origin::Nobody => {}
        }
    }

    pub(super) fn finish_logout(
        &mut self,
        origin: Origin,
        client: ClientId,
        commit: Op,
        out: &mut Vec<Output>,
    ) {
        match origin {
            Origin::Here(token) => {
                let outcome = LogoutOutcome::LoggedOut { commit };
                out.push(Output::LoggedOut { token, outcome });
            }
            Origin::There { replica, nonce } => {
                let view = self.replica.view();
                let message = self
                    .forwarding
                    .logout_result(nonce, client, view, Ok(commit));
                out.push(Output::Send {
                    to: replica,
                    message,
                });
            }
            Origin::Nobody => {}
        }
    }

    pub(super) fn fail_logout(
        &mut self,
        origin: Origin,
        client: ClientId,
        failure: Failure,
        out: &mut Vec<Output>,
    ) {
        match origin {
            Origin::Here(token) => {
                let outcome = LogoutOutcome::Transient(failure.code());
                out.push(Output::LoggedOut { token, outcome });
            }
            Origin::There { replica, nonce } => {
                let view = self.replica.view();
                let outcome = Err(failure.logout_outcome());
                let message = self.forwarding.logout_result(nonce, client, view, outcome);
                out.push(Output::Send {
                    to: replica,
                    message,
                });
            }
            Origin::Nobody => {}
        }
    }
}
