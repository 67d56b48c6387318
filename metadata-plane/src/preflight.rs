//! What happens to a request before it is replicated.
//!
//! On the node the client is connected to, [`needs`] tells what has to be computed outside (a
//! password hash, a token) and [`rewrite`] turns the client's body into the one to submit, or
//! refuses it. On the primary, [`prepare_body`] turns a submitted body into the replicated one.
//! Nothing that apply could not decode gets past either (protocol specification, chapter 05,
//! sections 3.2, 3.3, 4.2, 5.3, 5.4 and 6.3).

use std::borrow::Cow;

use biplane_wire::request::{
    Assignment, Assignments, ChangePassword, ConsumerGroupRequest, CreatePartitionsWithAssignments,
    CreatePersonalAccessToken, CreatePersonalAccessTokenPrepared, CreateStream, CreateTopic,
    CreateTopicWithAssignments, CreateUser, DeletePersonalAccessToken,
    DeletePersonalAccessTokenPrepared, JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared,
    MetadataBody, PartitionsRequest, UpdateStream, UpdateTopic, UpdateUser,
};
use biplane_wire::{
    ClientId, Codec, ErrorCode, EvictionReason, Operation, OptionalPermissions, Options,
    PermissionsBlock, Text8, View,
};

use crate::options::{
    REQUEST_PARTITIONS_MAX, SEGMENT_BYTES_MAX, canonical_blocks, check_create, check_empty,
    check_update,
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
            check_token(state, caller, body)?;
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
    match (operation, supplied) {
        (Operation::CreateUser, Supplied::PasswordHash(hash)) => {
            let request = CreateUser::decode(body).map_err(malformed)?;
            check_empty(&request.options)?;
            Ok(Cow::Owned(hashed_user(&request, short(hash)?)))
        }
        (Operation::ChangePassword, Supplied::PasswordChange(hash)) => {
            let request = ChangePassword::decode(body).map_err(malformed)?;
            let new = hash.map_or(Ok(empty()), short)?;
            let user = request.user;
            Ok(Cow::Owned(
                ChangePassword {
                    user,
                    current: empty(),
                    new,
                }
                .encode(),
            ))
        }
        (Operation::CreatePersonalAccessToken, Supplied::TokenHash(hash)) => {
            let (user_id, request) = check_token(state, caller, body)?;
            let token_hash = <&[u8; 64]>::try_from(hash.as_bytes())
                .map_err(|_| Refusal::Evict(EvictionReason::InvalidRequestBody))?;
            let (name, expiry) = (request.name, request.expiry);
            let prepared = CreatePersonalAccessTokenPrepared {
                user_id,
                name,
                expiry,
                token_hash,
            };
            Ok(Cow::Owned(prepared.encode()))
        }
        (Operation::DeletePersonalAccessToken, Supplied::Nothing) => {
            let user_id = caller.user_id.ok_or(ErrorCode::Unauthenticated)?;
            let request = DeletePersonalAccessToken::decode(body).map_err(malformed)?;
            let name = request.name;
            let prepared = DeletePersonalAccessTokenPrepared {
                user_id,
                name,
                only_if_expired: false,
            };
            Ok(Cow::Owned(prepared.encode()))
        }
        (Operation::JoinConsumerGroup, Supplied::InFlight(in_flight)) => {
            let ConsumerGroupRequest {
                stream,
                topic,
                group,
            } = ConsumerGroupRequest::decode(body).map_err(malformed)?;
            let list = encode_list(in_flight);
            let in_flight = Codec::decode(&list).map_err(malformed)?;
            let client = caller.client;
            let joined = JoinConsumerGroupPrepared {
                stream,
                topic,
                group,
                client,
                in_flight,
            };
            Ok(Cow::Owned(joined.encode()))
        }
        (Operation::LeaveConsumerGroup, Supplied::Nothing) => {
            let ConsumerGroupRequest {
                stream,
                topic,
                group,
            } = ConsumerGroupRequest::decode(body).map_err(malformed)?;
            let client = caller.client;
            Ok(Cow::Owned(
                LeaveConsumerGroupPrepared {
                    stream,
                    topic,
                    group,
                    client,
                }
                .encode(),
            ))
        }
        (operation, Supplied::Nothing) => {
            check_static(state, operation, body)?;
            Ok(Cow::Borrowed(body))
        }
        // What was computed is not what the operation needs.
        _ => Err(Refusal::Evict(EvictionReason::InvalidRequestBody)),
    }
}

/// "No password" and "wrong current password".
fn empty() -> Text8<'static> {
    Text8::new("").expect("a short text may be empty")
}

/// A hash must fit the short string that carries it and must not look like "none".
fn short(hash: &str) -> Result<Text8<'_>, Refusal> {
    match Text8::new(hash) {
        Ok(text) if !hash.is_empty() => Ok(text),
        _ => Err(Refusal::Evict(EvictionReason::InvalidRequestBody)),
    }
}

/// The replicated form: the hash for the password, truth values as 0 and 1.
fn hashed_user(request: &CreateUser<'_>, password: Text8<'_>) -> Vec<u8> {
    let granted = request
        .permissions
        .0
        .map(|block| block.to_permissions().encode());
    let permissions = granted
        .as_deref()
        .and_then(|bytes| PermissionsBlock::parse(bytes).ok());
    CreateUser {
        username: request.username,
        password,
        status: request.status,
        permissions: OptionalPermissions(permissions),
        options: request.options,
    }
    .encode()
}

fn encode_list(values: &[u32]) -> Vec<u8> {
    let mut out = u32::try_from(values.len()).unwrap_or(u32::MAX).encode();
    for value in values {
        value.write(&mut out);
    }
    out
}

fn check_token<'a>(
    state: &MetadataState,
    caller: &Caller,
    body: &'a [u8],
) -> Result<(u32, CreatePersonalAccessToken<'a>), Refusal> {
    let user_id = caller.user_id.ok_or(ErrorCode::Unauthenticated)?;
    let request = CreatePersonalAccessToken::decode(body).map_err(malformed)?;
    if state.users().token_count(user_id) >= caller.tokens_max {
        return Err(ErrorCode::PersonalAccessTokensLimitReached.into());
    }
    Ok((user_id, request))
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

/// Hands out the numbers that new partitions carry.
///
/// Every replica raises it to what stands in the prepares it appends, so that a new primary
/// never hands a number out twice (chapter 05, section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupNumbers {
    highest: u64,
}

impl GroupNumbers {
    /// Starts above `highest`.
    pub fn above(highest: u64) -> Self {
        Self { highest }
    }

    /// Takes note of a number that is in use.
    pub fn raise(&mut self, used: u64) {
        self.highest = self.highest.max(used);
    }

    /// Takes note of every number in the body of a prepare.
    pub fn raise_from(&mut self, operation: Operation, body: &[u8]) {
        let body = MetadataBody::decode(operation, body);
        let assignments = match &body {
            Ok(MetadataBody::CreateTopicWithAssignments(body)) => &body.assignments,
            Ok(MetadataBody::CreatePartitionsWithAssignments(body)) => &body.assignments,
            _ => return,
        };
        for assignment in assignments.entries {
            self.raise(assignment.consensus_group_id());
        }
    }

    fn assign(&mut self, count: u32) -> Vec<Assignment> {
        (0..count)
            .map(|partition| {
                self.highest = self.highest.wrapping_add(1);
                Assignment::new(partition, self.highest)
            })
            .collect()
    }
}

/// Turns a submitted request into operation and body of the prepare, on the primary.
///
/// # Errors
///
/// The eviction that answers a request that cannot be prepared: reason 4 for an operation that
/// has no place here, reason 5 for a body that fails a check.
pub fn prepare_body<'a>(
    operation: Operation,
    body: &'a [u8],
    view: View,
    numbers: &mut GroupNumbers,
) -> Result<(Operation, Cow<'a, [u8]>), EvictionReason> {
    let invalid = EvictionReason::InvalidRequestBody;
    match operation {
        Operation::CreateTopic => {
            let request = CreateTopic::decode(body).map_err(|_| invalid)?;
            let settings =
                check_create(&request.options, request.partitions).map_err(|_| invalid)?;
            let (explicit, derived) = canonical_blocks(&settings);
            let entries = numbers.assign(request.partitions);
            let body = CreateTopicWithAssignments {
                request: CreateTopic {
                    options: block(&explicit),
                    ..request
                },
                derived: block(&derived),
                assignments: Assignments {
                    entries: &entries,
                    created_view: view,
                },
            }
            .encode();
            Ok((Operation::CreateTopicWithAssignments, Cow::Owned(body)))
        }
        Operation::CreatePartitions => {
            let request = PartitionsRequest::decode(body).map_err(|_| invalid)?;
            check_partition_count(&request).map_err(|_| invalid)?;
            let entries = numbers.assign(request.count);
            let assignments = Assignments {
                entries: &entries,
                created_view: view,
            };
            let body = CreatePartitionsWithAssignments {
                request,
                assignments,
            }
            .encode();
            Ok((Operation::CreatePartitionsWithAssignments, Cow::Owned(body)))
        }
        Operation::TruncatePartition => decodable(operation, body),
        _ if operation.is_metadata() && !operation.is_internal() => decodable(operation, body),
        _ => Err(EvictionReason::InvalidRequestOperation),
    }
}

/// A block that this server wrote itself.
fn block(bytes: &[u8]) -> Options<'_> {
    Options::parse(bytes).expect("canonical options form a block")
}

fn decodable(
    operation: Operation,
    body: &[u8],
) -> Result<(Operation, Cow<'_, [u8]>), EvictionReason> {
    let decoded =
        decode_prepared(operation, body).map_err(|_| EvictionReason::InvalidRequestBody)?;
    let allowed = match &decoded {
        MetadataBody::CreateStream(body) => body.options.is_empty(),
        MetadataBody::UpdateStream(body) => body.options.is_empty(),
        MetadataBody::CreateUser(body) => body.options.is_empty(),
        MetadataBody::UpdateUser(body) => body.options.is_empty(),
        // The limit of an update was checked against local state, which may lag here.
        MetadataBody::UpdateTopic(body) => check_update(&body.options, 0).is_ok(),
        MetadataBody::DeletePartitions(body) => check_partition_count(body).is_ok(),
        _ => true,
    };
    if allowed {
        Ok((operation, Cow::Borrowed(body)))
    } else {
        Err(EvictionReason::InvalidRequestBody)
    }
}
