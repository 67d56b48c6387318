//! Responses about logins, users and personal access tokens.

use crate::codec::{Codec, Cursor, body};
use crate::error::DecodeError;
use crate::permissions::PermissionsBlock;
use crate::primitive::{Bytes32, Name, Text8};
use crate::tlv::Options32;

body! {
    /// LoginRegister (40) and its token form (45), behind the result section.
    #[derive(Copy, Eq)]
    pub struct LoginReply<'a> {
        /// The user.
        user_id: u32,
        /// Epoch of the session, nonzero.
        session: u64,
        /// Packed protocol version of the server.
        protocol_version: u32,
        /// Version text of the server.
        server_version: Name<'a>,
    }
}

body! {
    /// A user in GetUsers (32) and at the start of [`UserDetails`].
    #[derive(Copy, Eq)]
    pub struct UserRecord<'a> {
        /// The user.
        id: u32,
        /// Microseconds since the epoch.
        created_at: u64,
        /// 1 active, 2 inactive.
        status: u8,
        /// Name.
        username: Name<'a>,
        /// Options.
        options: Options32<'a>,
    }
}

/// GetUser (31) and CreateUser (33): a record, then `00000000` or `01 | len u32 | permissions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDetails<'a> {
    /// The record.
    pub user: UserRecord<'a>,
    /// The permissions; a creation echoes them as sent.
    pub permissions: Option<PermissionsBlock<'a>>,
}

impl<'a> Codec<'a> for UserDetails<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let user = UserRecord::read(cursor, "user")?;
        let permissions = if bool::read(cursor, "has permissions")? {
            Some(PermissionsBlock::parse(cursor.sub("permissions")?.rest())?)
        } else {
            cursor.array::<3>("no permissions")?;
            None
        };
        Ok(Self { user, permissions })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.user.write(out);
        match self.permissions {
            Some(block) => {
                out.push(1);
                Bytes32(block.bytes()).write(out);
            }
            None => out.extend_from_slice(&[0; 4]),
        }
    }
}

body! {
    /// A token in GetPersonalAccessTokens (41).
    #[derive(Copy, Eq)]
    pub struct PersonalAccessTokenRecord<'a> {
        /// Name.
        name: Name<'a>,
        /// Microseconds since the epoch, 0 for never.
        expiry_at: u64,
    }
}

/// CreatePersonalAccessToken (42): the raw token, which exists nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPersonalAccessToken<'a> {
    /// The token text, never empty. Its type keeps it out of logs.
    pub token: Text8<'a>,
}

impl<'a> Codec<'a> for RawPersonalAccessToken<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let token = Text8::read(cursor, "token")?;
        if token.as_str().is_empty() {
            return Err(DecodeError::Length {
                field: "token",
                length: 0,
            });
        }
        Ok(Self { token })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.token.write(out);
    }
}
