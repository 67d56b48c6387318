//! The two login bodies. Both travel as operation 1 and nothing says which one it is, so the
//! receiver reads the version prefix, judges it, and then tries both shapes on the rest
//! (chapter 01 section 13, chapter 07 section 4.1).

use crate::codec::{Codec, Cursor, body};
use crate::error::DecodeError;
use crate::primitive::{Name, Text8, Text32};
use crate::version::ProtocolVersion;

/// The prefix of both shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientVersion<'a> {
    /// Packed protocol version of the client.
    pub protocol: ProtocolVersion,
    /// Name of the client library; for diagnostics only.
    pub sdk_name: Name<'a>,
    /// Its version; for diagnostics only.
    pub sdk_version: Name<'a>,
}

impl<'a> Codec<'a> for ClientVersion<'a> {
    fn read(cursor: &mut Cursor<'a>, _field: &'static str) -> Result<Self, DecodeError> {
        let protocol = ProtocolVersion(u32::read(cursor, "protocol version")?);
        let sdk_name = Name::read(cursor, "sdk name")?;
        let sdk_version = Name::read(cursor, "sdk version")?;
        Ok(Self {
            protocol,
            sdk_name,
            sdk_version,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.protocol.0.write(out);
        self.sdk_name.write(out);
        self.sdk_version.write(out);
    }
}

/// A login body whose version prefix decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login<'a> {
    /// The prefix. Judge it before the rest.
    pub version: ClientVersion<'a>,
    rest: &'a [u8],
}

impl<'a> Login<'a> {
    /// Reads the version prefix of a register body.
    ///
    /// # Errors
    ///
    /// Answered with eviction 15.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(body);
        let version = ClientVersion::read(&mut cursor, "version")?;
        Ok(Self {
            version,
            rest: cursor.rest(),
        })
    }

    /// The body as it was read, whatever its shape.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.version.encode();
        body.extend_from_slice(self.rest);
        body
    }

    /// The rest as user and password (code 40). Try this shape first.
    ///
    /// # Errors
    ///
    /// When the rest has another shape.
    pub fn password(&self) -> Result<LoginPassword<'a>, DecodeError> {
        LoginPassword::decode(self.rest)
    }

    /// The rest as an access token (code 45).
    ///
    /// # Errors
    ///
    /// When the rest has another shape.
    pub fn token(&self) -> Result<LoginToken<'a>, DecodeError> {
        LoginToken::decode(self.rest)
    }
}

body! {
    /// LoginRegister (40), behind the version prefix.
    #[derive(Copy, Eq)]
    pub struct LoginPassword<'a> {
        /// The user.
        username: Name<'a>,
        /// The password, possibly empty.
        password: Text8<'a>,
        /// Client context, usually empty.
        context: Text32<'a>,
    }
}

body! {
    /// LoginRegisterWithPersonalAccessToken (45), behind the version prefix.
    #[derive(Copy, Eq)]
    pub struct LoginToken<'a> {
        /// The raw token.
        token: Text8<'a>,
        /// Client context, usually empty.
        context: Text32<'a>,
    }
}
