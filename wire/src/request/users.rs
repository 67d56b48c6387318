//! Requests about users and personal access tokens, and their replicated forms.

use crate::codec::{Codec, Cursor, body};
use crate::error::DecodeError;
use crate::permissions::OptionalPermissions;
use crate::primitive::{Identifier, Name, Text8};
use crate::tlv::Options;

body! {
    /// GetUser (31), DeleteUser (34).
    #[derive(Copy, Eq)]
    pub struct UserRequest<'a> {
        /// The user.
        user: Identifier<'a>,
    }
}

body! {
    /// CreateUser (33). Replicated with a password hash in place of the password.
    #[derive(Copy, Eq)]
    pub struct CreateUser<'a> {
        /// Name of the new user.
        username: Name<'a>,
        /// Password, or its hash.
        password: Text8<'a>,
        /// 1 active, 2 inactive; any other byte is stored as active and echoed as sent.
        status: u8,
        /// Permissions.
        permissions: OptionalPermissions<'a>,
        /// Options to the end of the body.
        options: Options<'a>,
    }
}

/// UpdateUser (35): `user | has u8 | name? | has u8 | status? | options`. A flag is set only
/// when it is exactly 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateUser<'a> {
    /// The user.
    pub user: Identifier<'a>,
    /// New name.
    pub username: Option<Name<'a>>,
    /// New status byte; anything but 1 and 2 changes nothing.
    pub status: Option<u8>,
    /// Options to the end of the body.
    pub options: Options<'a>,
}

impl<'a> Codec<'a> for UpdateUser<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let user = Identifier::read(cursor, "user")?;
        let username = read_flagged(cursor, "username")?;
        let status = read_flagged(cursor, "status")?;
        let options = Options::read(cursor, "options")?;
        Ok(Self {
            user,
            username,
            status,
            options,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.user.write(out);
        write_flagged(self.username.as_ref(), out);
        write_flagged(self.status.as_ref(), out);
        self.options.write(out);
    }
}

fn read_flagged<'a, T: Codec<'a>>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<Option<T>, DecodeError> {
    match u8::read(cursor, field)? {
        1 => T::read(cursor, field).map(Some),
        _ => Ok(None),
    }
}

fn write_flagged<'a, T: Codec<'a>>(value: Option<&T>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        value.write(out);
    }
}

body! {
    /// UpdatePermissions (36).
    #[derive(Copy, Eq)]
    pub struct UpdatePermissions<'a> {
        /// The user.
        user: Identifier<'a>,
        /// The permissions from now on; none clears them.
        permissions: OptionalPermissions<'a>,
    }
}

body! {
    /// ChangePassword (37). Replicated with an empty current password and the new hash, or an
    /// empty new one when the current password was wrong.
    #[derive(Copy, Eq)]
    pub struct ChangePassword<'a> {
        /// The user.
        user: Identifier<'a>,
        /// Current password.
        current: Text8<'a>,
        /// New password, or its hash.
        new: Text8<'a>,
    }
}

body! {
    /// CreatePersonalAccessToken (42).
    #[derive(Copy, Eq)]
    pub struct CreatePersonalAccessToken<'a> {
        /// Name of the token.
        name: Name<'a>,
        /// 0 the server default, `u64::MAX` never, else microseconds from commit.
        expiry: u64,
    }
}

body! {
    /// CreatePersonalAccessToken as replicated: the raw token never enters a prepare.
    #[derive(Copy, Eq)]
    pub struct CreatePersonalAccessTokenPrepared<'a> {
        /// Acting user of the connection.
        user_id: u32,
        /// Name of the token.
        name: Name<'a>,
        /// As sent.
        expiry: u64,
        /// BLAKE3-256 of the raw token in lower-case hex.
        token_hash: &'a [u8; 64],
    }
}

body! {
    /// DeletePersonalAccessToken (43).
    #[derive(Copy, Eq)]
    pub struct DeletePersonalAccessToken<'a> {
        /// Name of the token.
        name: Name<'a>,
    }
}

body! {
    /// DeletePersonalAccessToken as replicated.
    #[derive(Copy, Eq)]
    pub struct DeletePersonalAccessTokenPrepared<'a> {
        /// Owner of the token.
        user_id: u32,
        /// Name of the token.
        name: Name<'a>,
        /// Set by the cleaner: leave the token alone when it has not expired.
        only_if_expired: bool,
    }
}
