//! Logins, users and personal access tokens.

use std::sync::Arc;

use biplane_wire::request::{
    ChangePassword, ClientRequest, CreatePersonalAccessToken, CreateUser,
    DeletePersonalAccessToken, UpdatePermissions, UpdateUser, UserRequest,
};
use biplane_wire::response::{
    PersonalAccessTokenRecord, RawPersonalAccessToken, UserDetails, UserRecord,
};
use biplane_wire::{
    Codec as _, ErrorCode, OptionalPermissions, Options, Permissions, PermissionsBlock, Text8,
    TlvBuilder,
};
use serde::{Deserialize, Serialize};

use super::{OptionTexts, Served, decode, decode_present, name, options, put_options};
use crate::client::http::{Credential, OwnedIdentifier};
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::authenticate::now_seconds;
use crate::http::call::{Call, Caller, borrow};
use crate::http::permissions::PermissionsJson;
use crate::http::shapes::UserJson;

/// Lengths of passwords and of names of access tokens (chapter 08 sections 4.3 and 5.2).
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;
const TOKEN_NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=30;

#[derive(Deserialize)]
struct LoginBody {
    username: String,
    password: String,
}

#[derive(Deserialize)]
struct TokenBody {
    token: String,
}

#[derive(Serialize)]
struct IdentityJson {
    user_id: u32,
    access_token: AccessTokenJson,
}

#[derive(Serialize)]
struct AccessTokenJson {
    token: String,
    expiry: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatusBody {
    Active,
    Inactive,
}

impl StatusBody {
    const fn byte(self) -> u8 {
        match self {
            Self::Active => 1,
            Self::Inactive => 2,
        }
    }
}

#[derive(Deserialize)]
struct CreateUserBody {
    username: String,
    password: String,
    status: StatusBody,
    #[serde(default)]
    permissions: Option<PermissionsJson>,
}

#[derive(Deserialize)]
struct UpdateUserBody {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    status: Option<StatusBody>,
    #[serde(default)]
    options: OptionTexts,
}

#[derive(Deserialize)]
struct PasswordBody {
    current_password: String,
    new_password: String,
}

#[derive(Deserialize)]
struct PermissionsBody {
    permissions: Option<PermissionsJson>,
}

#[derive(Deserialize)]
struct CreateTokenBody {
    name: String,
    expiry: u64,
}

#[derive(Serialize)]
struct TokenJson<'a> {
    name: &'a str,
    expiry_at: Option<u64>,
}

#[derive(Serialize)]
struct RawTokenJson<'a> {
    token: &'a str,
}

fn permissions_bytes(json: Option<PermissionsJson>) -> Option<Vec<u8>> {
    json.map(|json| Permissions::from(json).encode())
}

fn permissions_block(bytes: Option<&[u8]>) -> Result<OptionalPermissions<'_>, Answer> {
    let block = bytes.map(PermissionsBlock::parse).transpose();
    let block = block.map_err(|_| Answer::error(ErrorCode::InvalidCommand))?;
    Ok(OptionalPermissions(block))
}

/// A password that a field of the protocol can hold.
fn password(text: &str) -> Result<Text8<'_>, Answer> {
    Text8::new(text).map_err(|_| Answer::error(ErrorCode::InvalidPassword))
}

/// A password that somebody is given: its length is judged here, since only its hash is
/// replicated.
fn new_password(text: &str) -> Result<Text8<'_>, Answer> {
    if !PASSWORD_BYTES.contains(&text.len()) {
        return Err(Answer::error(ErrorCode::InvalidPassword));
    }
    password(text)
}

impl Web {
    fn identity(&self, user_id: u32) -> Served {
        let issued = self.tokens.issue(user_id, now_seconds());
        let (token, expiry) = issued.ok_or_else(|| Answer::error(ErrorCode::CannotGenerateJwt))?;
        Ok(Answer::json(&IdentityJson {
            user_id,
            access_token: AccessTokenJson { token, expiry },
        }))
    }

    pub(super) async fn log_in(&self, call: &Call) -> Served {
        let LoginBody { username, password } = call.json()?;
        self.recovered()?;
        let credential = Credential::Password { username, password };
        match self.identify(credential).await {
            Ok(identified) => self.identity(identified.user_id),
            Err(ErrorCode::TransientNotAccepted) => Err(Answer::no_answer()),
            Err(code) => Err(Answer::error(code)),
        }
    }

    pub(super) fn refresh_token(&self, call: &Call) -> Served {
        let TokenBody { token } = call.json()?;
        let verified = self.tokens.verify(&token, now_seconds());
        let verified = verified.ok_or_else(|| Answer::error(ErrorCode::Unauthenticated))?;
        self.identity(verified.user_id)
    }

    pub(super) async fn log_in_by_token(&self, call: &Call) -> Served {
        let TokenBody { token } = call.json()?;
        self.recovered()?;
        match self.identify(Credential::Token(token)).await {
            Ok(identified) => self.identity(identified.user_id),
            Err(ErrorCode::TransientNotAccepted) => Err(Answer::no_answer()),
            Err(code) => Err(Answer::error(code)),
        }
    }

    fn recovered(&self) -> Result<(), Answer> {
        let recovered = self.glance.is_recovered();
        recovered.then_some(()).ok_or_else(Answer::no_answer)
    }

    pub(super) async fn users(&self, call: &Call, caller: &Caller) -> Served {
        let payload = self.read(call, caller, &ClientRequest::GetUsers).await?;
        let mut users: Vec<UserRecord<'_>> = decode(&payload)?;
        users.sort_by_key(|user| user.id);
        let users: Vec<_> = users.into_iter().map(UserJson::from).collect();
        Ok(Answer::json(&users))
    }

    pub(super) async fn user(&self, call: &Call, caller: &Caller) -> Served {
        let user = match call.parameter(0) {
            "me" => OwnedIdentifier::Numeric(caller.user_id),
            _ => call.identifier(0)?,
        };
        let user = borrow(&user)?;
        let request = ClientRequest::GetUser(UserRequest { user });
        let payload = self.read(call, caller, &request).await?;
        let user: UserDetails<'_> = decode_present(&payload)?;
        Ok(Answer::json(&UserJson::from(user)))
    }

    pub(super) async fn create_user(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let body: CreateUserBody = call.json()?;
        let permissions = permissions_bytes(body.permissions);
        let request = ClientRequest::CreateUser(CreateUser {
            username: name(&body.username, ErrorCode::InvalidUsername)?,
            password: new_password(&body.password)?,
            status: body.status.byte(),
            permissions: permissions_block(permissions.as_deref())?,
            options: Options::EMPTY,
        });
        let payload = self.write(call, caller, &request).await?;
        let user: UserDetails<'_> = decode(&payload)?;
        Ok(Answer::json(&UserJson::from(user)))
    }

    pub(super) async fn update_user(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let user = call.identifier(0)?;
        let body: UpdateUserBody = call.json()?;
        let username = body.username.as_deref();
        let username = username.map(|text| name(text, ErrorCode::InvalidUsername));
        let mut block = TlvBuilder::new();
        put_options(&mut block, &body.options)?;
        let request = ClientRequest::UpdateUser(UpdateUser {
            user: borrow(&user)?,
            username: username.transpose()?,
            status: body.status.map(StatusBody::byte),
            options: options(&block)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn delete_user(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let user = call.identifier(0)?;
        let user = borrow(&user)?;
        let request = ClientRequest::DeleteUser(UserRequest { user });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn change_password(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let user = call.identifier(0)?;
        let body: PasswordBody = call.json()?;
        let request = ClientRequest::ChangePassword(ChangePassword {
            user: borrow(&user)?,
            current: password(&body.current_password)?,
            new: new_password(&body.new_password)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn update_permissions(
        self: &Arc<Self>,
        call: &Call,
        caller: &Caller,
    ) -> Served {
        let user = call.identifier(0)?;
        let body: PermissionsBody = call.json()?;
        let permissions = permissions_bytes(body.permissions);
        let request = ClientRequest::UpdatePermissions(UpdatePermissions {
            user: borrow(&user)?,
            permissions: permissions_block(permissions.as_deref())?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }

    pub(super) async fn tokens(&self, call: &Call, caller: &Caller) -> Served {
        let request = ClientRequest::GetPersonalAccessTokens;
        let payload = self.read(call, caller, &request).await?;
        let mut tokens: Vec<PersonalAccessTokenRecord<'_>> = decode(&payload)?;
        tokens.sort_by_key(|token| token.name.as_str());
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| TokenJson {
                name: token.name.as_str(),
                expiry_at: (token.expiry_at != 0).then_some(token.expiry_at),
            })
            .collect();
        Ok(Answer::json(&tokens))
    }

    pub(super) async fn create_token(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let body: CreateTokenBody = call.json()?;
        if !TOKEN_NAME_BYTES.contains(&body.name.len()) {
            return Err(Answer::error(ErrorCode::InvalidPersonalAccessTokenName));
        }
        let request = ClientRequest::CreatePersonalAccessToken(CreatePersonalAccessToken {
            name: name(&body.name, ErrorCode::InvalidPersonalAccessTokenName)?,
            expiry: body.expiry,
        });
        let payload = self.write(call, caller, &request).await?;
        let raw: RawPersonalAccessToken<'_> = decode(&payload)?;
        Ok(Answer::json(&RawTokenJson {
            token: raw.token.as_str(),
        }))
    }

    pub(super) async fn delete_token(self: &Arc<Self>, call: &Call, caller: &Caller) -> Served {
        let request = ClientRequest::DeletePersonalAccessToken(DeletePersonalAccessToken {
            name: name(call.parameter(0), ErrorCode::InvalidPersonalAccessTokenName)?,
        });
        self.write(call, caller, &request).await?;
        Ok(Answer::empty(204))
    }
}
