//! Operations on personal access tokens (protocol specification, chapter 05, section 5.4).

use biplane_wire::ErrorCode;
use biplane_wire::request::{CreatePersonalAccessTokenPrepared, DeletePersonalAccessTokenPrepared};

use super::users::Token;
use super::{Applied, MetadataState};

impl MetadataState {
    /// The owner need not exist: a session outlives its user.
    pub(super) fn create_token(
        &mut self,
        body: &CreatePersonalAccessTokenPrepared<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        if self.users.token(body.user_id, body.name.as_str()).is_some() {
            return Err(ErrorCode::PersonalAccessTokenAlreadyExists);
        }
        let expiry = match body.expiry {
            0 | u64::MAX => None,
            // The sum wraps by rule: an instant beyond the end of time counts as past.
            lifetime => Some(now.wrapping_add(lifetime)),
        };
        if expiry.is_some_and(|instant| instant <= now) {
            return Err(ErrorCode::InvalidPersonalAccessTokenExpiry);
        }
        // Decoding has checked that the hash is text.
        let hash = String::from_utf8_lossy(body.token_hash).into_owned();
        let token = Token { hash, expiry };
        self.users
            .insert_token(body.user_id, body.name.as_str(), token);
        Ok(Applied::default())
    }

    pub(super) fn delete_token(
        &mut self,
        body: &DeletePersonalAccessTokenPrepared<'_>,
        now: u64,
    ) -> Result<Applied, ErrorCode> {
        if !self.users.has_token_list(body.user_id) {
            return Err(ErrorCode::ResourceNotFound);
        }
        let token = self.users.token(body.user_id, body.name.as_str());
        if body.only_if_expired {
            let expired = token
                .and_then(|token| token.expiry)
                .is_some_and(|at| at <= now);
            if expired {
                self.users.remove_token(body.user_id, body.name.as_str());
            }
            return Ok(Applied::default());
        }
        if self.users.remove_token(body.user_id, body.name.as_str()) {
            Ok(Applied::default())
        } else {
            Err(ErrorCode::ResourceNotFound)
        }
    }
}
