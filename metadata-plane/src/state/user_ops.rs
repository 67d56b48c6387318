//! Operations on users (protocol specification, chapter 05, section 5.3).

use biplane_wire::ErrorCode;
use biplane_wire::request::{
    ChangePassword, CreateUser, UpdatePermissions, UpdateUser, UserRequest,
};

use super::ids::lowest_free;
use super::users::{ROOT_USER_ID, User, UserStatus};
use super::{Applied, MetadataState, replies};
use crate::options::{OptionsMap, check_readable};

/// Legal lengths of a username in bytes.
const USERNAME_BYTES: std::ops::RangeInclusive<usize> = 3..=50;

fn check_username(username: &str) -> Result<(), ErrorCode> {
    if USERNAME_BYTES.contains(&username.len()) {
        Ok(())
    } else {
        Err(ErrorCode::InvalidUsername)
    }
}

impl MetadataState {
    pub(super) fn create_user(
        &mut self,
        body: &CreateUser<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        check_username(body.username.as_str())?;
        if self.users.names.contains_key(body.username.as_str()) {
            return Err(ErrorCode::UserAlreadyExists);
        }
        check_readable(&body.options)?;
        let id = lowest_free(&self.users.by_id);
        let mut options = OptionsMap::default();
        options.overlay(&body.options, true);
        let user = User {
            id,
            username: body.username.as_str().to_owned(),
            password_hash: body.password.as_str().to_owned(),
            status: UserStatus::from_u8(body.status).unwrap_or_default(),
            created_at: now,
            permissions: body.permissions.0.map(|block| block.to_permissions()),
            options,
        };
        let mut payload = Vec::new();
        replies::put_new_user(&mut payload, &user, body);
        self.users.insert(user);
        self.users.reset_tokens(id);
        Ok(Applied::with_payload(payload))
    }

    pub(super) fn update_user(&mut self, body: &UpdateUser<'_>) -> Result<Applied, ErrorCode> {
        let id = self
            .users
            .user_id(&body.user)
            .ok_or(ErrorCode::ResourceNotFound)?;
        let username = body.username.map(|name| name.as_str());
        check_readable(&body.options)?;
        if let Some(username) = username {
            check_username(username)?;
            if self
                .users
                .names
                .get(username)
                .is_some_and(|owner| *owner != id)
            {
                return Err(ErrorCode::UserAlreadyExists);
            }
        }
        let user = self
            .users
            .by_id
            .get_mut(&id)
            .ok_or(ErrorCode::ResourceNotFound)?;
        if let Some(status) = body.status.and_then(UserStatus::from_u8) {
            user.status = status;
        }
        user.options.overlay(&body.options, true);
        if let Some(username) = username {
            let old = std::mem::replace(&mut user.username, username.to_owned());
            self.users.names.remove(&old);
            self.users.names.insert(username.to_owned(), id);
        }
        Ok(Applied::default())
    }

    pub(super) fn delete_user(&mut self, body: &UserRequest<'_>) -> Result<Applied, ErrorCode> {
        let id = self
            .users
            .user_id(&body.user)
            .ok_or(ErrorCode::ResourceNotFound)?;
        if id == ROOT_USER_ID {
            return Err(ErrorCode::CannotDeleteUser);
        }
        let user = self
            .users
            .by_id
            .remove(&id)
            .ok_or(ErrorCode::ResourceNotFound)?;
        self.users.names.remove(&user.username);
        self.users.drop_tokens(id);
        Ok(Applied::default())
    }

    pub(super) fn change_password(
        &mut self,
        body: &ChangePassword<'_>,
    ) -> Result<Applied, ErrorCode> {
        let id = self
            .users
            .user_id(&body.user)
            .ok_or(ErrorCode::ResourceNotFound)?;
        // The node that admitted the request marks a wrong current password with an empty hash.
        if body.new.as_str().is_empty() {
            return Err(ErrorCode::InvalidCredentials);
        }
        let user = self
            .users
            .by_id
            .get_mut(&id)
            .ok_or(ErrorCode::ResourceNotFound)?;
        user.password_hash = body.new.as_str().to_owned();
        Ok(Applied::default())
    }

    pub(super) fn update_permissions(
        &mut self,
        body: &UpdatePermissions<'_>,
    ) -> Result<Applied, ErrorCode> {
        let id = self
            .users
            .user_id(&body.user)
            .ok_or(ErrorCode::ResourceNotFound)?;
        if id == ROOT_USER_ID {
            return Err(ErrorCode::CannotChangePermissions);
        }
        let user = self
            .users
            .by_id
            .get_mut(&id)
            .ok_or(ErrorCode::ResourceNotFound)?;
        user.permissions = body.permissions.0.map(|block| block.to_permissions());
        Ok(Applied::default())
    }
}
