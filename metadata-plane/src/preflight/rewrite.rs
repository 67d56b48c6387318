//! Bodies that are rewritten on the node the client is connected to: passwords and tokens become
//! hashes, group requests name the client.

use biplane_wire::request::{
    ChangePassword, ConsumerGroupRequest, CreatePersonalAccessToken,
    CreatePersonalAccessTokenPrepared, CreateUser, DeletePersonalAccessToken,
    DeletePersonalAccessTokenPrepared, JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared,
};
use biplane_wire::{
    Codec, ErrorCode, EvictionReason, OptionalPermissions, PermissionsBlock, Text8,
};

use super::{Caller, Refusal, malformed};
use crate::options::check_empty;
use crate::state::MetadataState;

/// Operation 141: the hash for the password, truth values as 0 and 1.
pub(super) fn user(body: &[u8], hash: &str) -> Result<Vec<u8>, Refusal> {
    let request = CreateUser::decode(body).map_err(malformed)?;
    check_empty(&request.options)?;
    let granted = request
        .permissions
        .0
        .map(|block| block.to_permissions().encode());
    let permissions = granted
        .as_deref()
        .and_then(|bytes| PermissionsBlock::parse(bytes).ok());
    let user = CreateUser {
        password: short(hash)?,
        permissions: OptionalPermissions(permissions),
        ..request
    };
    Ok(user.encode())
}

/// Operation 144: no current password, and the hash of the new one or nothing.
pub(super) fn password(body: &[u8], hash: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let request = ChangePassword::decode(body).map_err(malformed)?;
    let new = hash.map_or(Ok(empty()), short)?;
    let current = empty();
    Ok(ChangePassword {
        current,
        new,
        ..request
    }
    .encode())
}

/// Operation 146: the owner, and the hash of the token.
pub(super) fn token(
    state: &MetadataState,
    caller: &Caller,
    body: &[u8],
    hash: &str,
) -> Result<Vec<u8>, Refusal> {
    let (user_id, request) = check_token(state, caller, body)?;
    let token_hash = <&[u8; 64]>::try_from(hash.as_bytes())
        .map_err(|_| Refusal::Evict(EvictionReason::InvalidRequestBody))?;
    let (name, expiry) = (request.name, request.expiry);
    Ok(CreatePersonalAccessTokenPrepared {
        user_id,
        name,
        expiry,
        token_hash,
    }
    .encode())
}

/// Operation 147: the owner, and that the token goes whether it expired or not.
pub(super) fn token_deletion(caller: &Caller, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let user_id = caller.user_id.ok_or(ErrorCode::Unauthenticated)?;
    let DeletePersonalAccessToken { name } =
        DeletePersonalAccessToken::decode(body).map_err(malformed)?;
    let only_if_expired = false;
    Ok(DeletePersonalAccessTokenPrepared {
        user_id,
        name,
        only_if_expired,
    }
    .encode())
}

/// Operation 148: the client, and what members may still be working on.
pub(super) fn join(caller: &Caller, body: &[u8], in_flight: &[u32]) -> Result<Vec<u8>, Refusal> {
    let ConsumerGroupRequest {
        stream,
        topic,
        group,
    } = ConsumerGroupRequest::decode(body).map_err(malformed)?;
    let client = caller.client;
    let list = encode_list(in_flight);
    let in_flight = Codec::decode(&list).map_err(malformed)?;
    Ok(JoinConsumerGroupPrepared {
        stream,
        topic,
        group,
        client,
        in_flight,
    }
    .encode())
}

/// Operation 149: the client.
pub(super) fn leave(caller: &Caller, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let ConsumerGroupRequest {
        stream,
        topic,
        group,
    } = ConsumerGroupRequest::decode(body).map_err(malformed)?;
    let client = caller.client;
    Ok(LeaveConsumerGroupPrepared {
        stream,
        topic,
        group,
        client,
    }
    .encode())
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

fn encode_list(values: &[u32]) -> Vec<u8> {
    let mut out = u32::try_from(values.len()).unwrap_or(u32::MAX).encode();
    for value in values {
        value.write(&mut out);
    }
    out
}

/// What is checked of operation 146 before and after its token is minted.
pub(super) fn check_token<'a>(
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
