//! What happens to a request before it is replicated.
//!
//! On the node the client is connected to, [`needs`] tells what has to be computed outside (a
//! password hash, a token) and [`rewrite`] turns the client's body into the one to submit, or
//! refuses it. On the primary, [`prepare_body`] turns a submitted body into the replicated one.
//! Nothing that apply could not decode gets past either (protocol specification, chapter 05,
//! sections 3.2, 3.3, 4.2, 5.3, 5.4 and 6.3).

mod created_view;
mod prepare;
mod rewrite;

use std::borrow::Cow;

use biplane_wire::request::{
    ChangePassword, ConsumerGroupRequest, CreateStream, CreateTopic, CreateUser, PartitionsRequest,
    UpdateStream, UpdateTopic, UpdateUser,
};
use biplane_wire::{ClientId, Codec, ErrorCode, EvictionReason, Operation};

pub use created_view::CreatedViews;
pub use prepare::{GroupNumbers, prepare_body};

use crate::options::{
    REQUEST_PARTITIONS_MAX, SEGMENT_BYTES_MAX, check_create, check_empty, check_update,
};
use crate::state::{MetadataState, decode_prepared};

/// Who sent a request, as its connection knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User of the connection.
    pub user_id: Option<u32>,
    /// Consensus client id bound to the connection.
    pub client: ClientId,
    /// Most access tokens of a user.
    pub tokens_max: usize,
}

/// Why a request goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Answered with this status and an empty body.
    Status(ErrorCode),
    /// Answered with an eviction.
    Evict(EvictionReason),
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::Status(code)
    }
}

/// What has to be computed for a request before [`rewrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing; [`Supplied::Nothing`].
    Nothing,
    /// The hash of a password; [`Supplied::PasswordHash`].
    PasswordHash {
        /// Password to hash; may be empty.
        password: &'a str,
    },
    /// A verification, then a hash; [`Supplied::PasswordChange`].
    PasswordChange {
        /// Hash to verify against; None where the user is unknown and only the new password
        /// is hashed.
        stored_hash: Option<&'a str>,
        /// Password to verify.
        current: &'a str,
        /// Password to hash.
        new: &'a str,
    },
    /// The hash of a newly minted access token; [`Supplied::TokenHash`].
    TokenHash,
    /// The partitions a group's members may still be working on; [`Supplied::InFlight`].
    InFlight {
        /// Group that is joined.
        target: ConsumerGroupRequest<'a>,
    },
}

/// The answer to [`Needs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supplied<'a> {
    /// For [`Needs::Nothing`].
    Nothing,
    /// PHC string of the password.
    PasswordHash(&'a str),
    /// PHC string of the new password; None where the current one was wrong.
    PasswordChange(Option<&'a str>),
    /// 64 hexadecimal digits.
    TokenHash(&'a str),
    /// Partition ids in the order of the topic; empty is safe.
    InFlight(&'a [u32]),
}

fn malformed<T>(_: T) -> Refusal {
    Refusal::Status(ErrorCode::InvalidCommand)
}

/// Tells what must be computed outside before a request can be rewritten.
///
/// # Errors
///
/// A refusal that is certain already; nothing need be computed then.
pub fn needs<'a>(
    state: &'a MetadataState,
    caller: &Caller,
    operation: Operation,
    body: &'a [u8],
) -> Result<Needs<'a>, Refusal> {
    match operation {
        Operation::CreateUser => {
            let request = CreateUser::decode(body).map_err(malformed)?;
            check_empty(&request.options)?;
            Ok(Needs::PasswordHash {
                password: request.password.as_str(),
            })
        }
        Operation::ChangePassword => {
            let request = ChangePassword::decode(body).map_err(malformed)?;
            let user = state.users().user(&request.user);
            Ok(Needs::PasswordChange {
                stored_hash: user.map(|user| user.password_hash.as_str()),
                current: request.current.as_str(),
                new: request.new.as_str(),
            })
        }
        Operation::CreatePersonalAccessToken => {
            rewrite::check_token(state, caller, body)?;
            Ok(Needs::TokenHash)
        }
        Operation::JoinConsumerGroup => {
            let target = ConsumerGroupRequest::decode(body).map_err(malformed)?;
            Ok(Needs::InFlight { target })
        }
        _ => Ok(Needs::Nothing),
    }
}

/// Turns the body of a client request into the body to submit.
///
/// The header's request checksum stays that of the client's body. `supplied` must be the answer
/// to what [`needs`] asked for.
///
/// # Errors
///
/// The first check that fails; internal and foreign operations are evicted with reason 4.
pub fn rewrite<'a>(
    state: &MetadataState,
    caller: &Caller,
    operation: Operation,
    body: &'a [u8],
    supplied: Supplied<'_>,
) -> Result<Cow<'a, [u8]>, Refusal> {
    let owned = match (operation, supplied) {
        (Operation::CreateUser, Supplied::PasswordHash(hash)) => rewrite::user(body, hash)?,
        (Operation::ChangePassword, Supplied::PasswordChange(hash)) => {
            rewrite::password(body, hash)?
        }
        (Operation::CreatePersonalAccessToken, Supplied::TokenHash(hash)) => {
            rewrite::token(state, caller, body, hash)?
        }
        (Operation::DeletePersonalAccessToken, Supplied::Nothing) => {
            rewrite::token_deletion(caller, body)?
        }
        (Operation::JoinConsumerGroup, Supplied::InFlight(in_flight)) => {
            rewrite::join(caller, body, in_flight)?
        }
        (Operation::LeaveConsumerGroup, Supplied::Nothing) => rewrite::leave(caller, body)?,
        (operation, Supplied::Nothing) => {
            check_static(state, operation, body)?;
            return Ok(Cow::Borrowed(body));
        }
        // What was computed is not what the operation needs.
        _ => return Err(Refusal::Evict(EvictionReason::InvalidRequestBody)),
    };
    Ok(Cow::Owned(owned))
}

/// Checks of operations whose body is submitted as sent.
fn check_static(state: &MetadataState, operation: Operation, body: &[u8]) -> Result<(), Refusal> {
    match operation {
        Operation::CreateStream => {
            let request = CreateStream::decode(body).map_err(malformed)?;
            check_empty(&request.options).map_err(Refusal::from)
        }
        Operation::UpdateStream => {
            let request = UpdateStream::decode(body).map_err(malformed)?;
            check_empty(&request.options).map_err(Refusal::from)
        }
        Operation::UpdateUser => {
            let request = UpdateUser::decode(body).map_err(malformed)?;
            check_empty(&request.options).map_err(Refusal::from)
        }
        Operation::CreateTopic => {
            let request = CreateTopic::decode(body).map_err(malformed)?;
            check_create(&request.options, request.partitions)?;
            Ok(())
        }
        Operation::UpdateTopic => {
            let request = UpdateTopic::decode(body).map_err(malformed)?;
            let segment_size = state
                .streams()
                .topic(&request.stream, &request.topic)
                .map_or(SEGMENT_BYTES_MAX, |(_, topic)| topic.options.segment_size());
            check_update(&request.options, segment_size).map_err(Refusal::from)
        }
        Operation::CreatePartitions | Operation::DeletePartitions => {
            check_partition_count(&PartitionsRequest::decode(body).map_err(malformed)?)
                .map_err(Refusal::from)
        }
        Operation::DeleteStream
        | Operation::PurgeStream
        | Operation::DeleteTopic
        | Operation::PurgeTopic
        | Operation::CreateConsumerGroup
        | Operation::DeleteConsumerGroup
        | Operation::DeleteUser
        | Operation::UpdatePermissions => {
            decode_prepared(operation, body).map_err(malformed)?;
            Ok(())
        }
        _ => Err(Refusal::Evict(EvictionReason::InvalidRequestOperation)),
    }
}

fn check_partition_count(request: &PartitionsRequest<'_>) -> Result<(), ErrorCode> {
    if (1..=REQUEST_PARTITIONS_MAX).contains(&request.count) {
        Ok(())
    } else {
        Err(ErrorCode::TooManyPartitions)
    }
}
