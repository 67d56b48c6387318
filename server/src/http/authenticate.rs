//! Bearer tokens: a JSON Web Token issued by a node with our key, or the raw text of a personal
//! access token (chapter 08 section 2.2).

use biplane_wire::ErrorCode;

use super::Web;
use super::answer::Answer;
use super::call::{Caller, Head};
use crate::client::http::Credential;
use crate::clock;

/// Longest personal access token that is looked up, in bytes.
const TOKEN_LENGTH_MAX: usize = 1024;

/// Seconds since the epoch.
pub(crate) fn now_seconds() -> u64 {
    clock::wall_micros() / 1_000_000
}

impl Web {
    /// Who asks.
    ///
    /// # Errors
    /// 401: no token, or none that is valid.
    pub(crate) async fn authenticate(&self, head: &Head) -> Result<Caller, Answer> {
        let missing = || Answer::error(ErrorCode::AccessTokenMissing);
        let header = head.authorization.as_deref().ok_or_else(missing)?;
        let token = header.strip_prefix("Bearer ").ok_or_else(missing)?;
        if let Some(verified) = self.tokens.verify(token, now_seconds()) {
            return Ok(Caller {
                user_id: verified.user_id,
                key: format!("jwt:{}", verified.jti),
                expires: Some(verified.expires),
            });
        }
        let unauthenticated = || Answer::error(ErrorCode::Unauthenticated);
        if token.is_empty() || token.len() > TOKEN_LENGTH_MAX {
            return Err(unauthenticated());
        }
        match self.identify(Credential::Token(token.to_owned())).await {
            Ok(identified) => Ok(Caller {
                user_id: identified.user_id,
                key: format!("pat:{}", blake3::hash(token.as_bytes()).to_hex()),
                expires: identified.expires.map(|micros| micros / 1_000_000),
            }),
            Err(ErrorCode::TransientNotAccepted) => Err(Answer::no_answer()),
            Err(_) => Err(unauthenticated()),
        }
    }
}
