//! What each route does: read what was sent, ask the node, show what it answered.

mod messages;
mod offsets;
mod streams;
mod system;
mod topics;
mod users;

use std::sync::Arc;

use biplane_wire::{Codec, Options, TlvBuilder, TlvKind};

use super::Web;
use super::answer::Answer;
use super::call::{Call, Caller};
use super::page;
use super::route::Endpoint as E;
use biplane_wire::ErrorCode;

/// Either way an answer; an error leaves early.
pub(crate) type Served = Result<Answer, Answer>;

impl Web {
    /// Serves a route that anybody may ask.
    pub(crate) async fn serve_public(self: &Arc<Self>, endpoint: E, call: &Call) -> Served {
        match endpoint {
            E::Page => Ok(page::answer()),
            E::Ping => Ok(Answer::text(200, "pong").without_view()),
            E::Live => Ok(self.live()),
            E::Ready => Ok(self.ready()),
            E::Login => self.log_in(call).await,
            E::RefreshToken => self.refresh_token(call),
            E::TokenLogin => self.log_in_by_token(call).await,
            _ => Err(Answer::empty(404)),
        }
    }

    /// Serves a route on this node.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        endpoint: E,
        call: &Call,
        caller: &Caller,
    ) -> Served {
        match endpoint {
            E::Status => self.status(caller).await,
            E::StatusGroups => self.status_groups(call, caller).await,
            E::Metrics => self.metrics().await,
            E::Stats => self.stats(call, caller).await,
            E::ClusterMetadata => self.cluster_metadata(call, caller).await,
            E::Clients => self.clients(call, caller).await,
            E::Client => self.client(call, caller).await,
            E::Options => self.options(call, caller).await,
            E::Snapshot => self.snapshot(call, caller).await,
            E::Logout => self.log_out(caller).await.map(|()| Answer::empty(204)),
            E::Users => self.users(call, caller).await,
            E::CreateUser => self.create_user(call, caller).await,
            E::User => self.user(call, caller).await,
            E::UpdateUser => self.update_user(call, caller).await,
            E::DeleteUser => self.delete_user(call, caller).await,
            E::ChangePassword => self.change_password(call, caller).await,
            E::UpdatePermissions => self.update_permissions(call, caller).await,
            E::Tokens => self.tokens(call, caller).await,
            E::CreateToken => self.create_token(call, caller).await,
            E::DeleteToken => self.delete_token(call, caller).await,
            E::Streams => self.streams(call, caller).await,
            E::CreateStream => self.create_stream(call, caller).await,
            E::Stream => self.stream(call, caller).await,
            E::UpdateStream => self.update_stream(call, caller).await,
            E::DeleteStream => self.delete_stream(call, caller).await,
            E::PurgeStream => self.purge_stream(call, caller).await,
            E::Topics => self.topics(call, caller).await,
            E::CreateTopic => self.create_topic(call, caller).await,
            E::Topic => self.topic(call, caller).await,
            E::UpdateTopic => self.update_topic(call, caller).await,
            E::DeleteTopic => self.delete_topic(call, caller).await,
            E::PurgeTopic => self.purge_topic(call, caller).await,
            E::CreatePartitions => self.create_partitions(call, caller).await,
            E::DeletePartitions => self.delete_partitions(call, caller).await,
            E::DeleteSegments => self.delete_segments(call, caller).await,
            E::Groups => self.groups(call, caller).await,
            E::CreateGroup => self.create_group(call, caller).await,
            E::Group => self.group(call, caller).await,
            E::DeleteGroup => self.delete_group(call, caller).await,
            E::Poll => self.poll(call, caller).await,
            E::Send => self.send(call, caller).await,
            E::GetOffset => self.get_offset(call, caller).await,
            E::StoreOffset => self.store_offset(call, caller).await,
            E::DeleteOffset => self.delete_offset(call, caller).await,
            E::Page | E::Live | E::Ready | E::Ping => Err(Answer::empty(404)),
            E::Login | E::RefreshToken | E::TokenLogin => Err(Answer::empty(404)),
        }
    }
}

/// Decodes a payload of the node.
///
/// # Errors
/// The answer of error 1: the node said something we do not understand.
fn decode<'a, T: Codec<'a>>(payload: &'a [u8]) -> Result<T, Answer> {
    T::decode_exact(payload).map_err(|_| Answer::error(ErrorCode::Error))
}

/// Decodes a payload that is empty where the entity is absent.
///
/// # Errors
/// 404 for an absent entity.
fn decode_present<'a, T: Codec<'a>>(payload: &'a [u8]) -> Result<T, Answer> {
    if payload.is_empty() {
        return Err(Answer::not_found());
    }
    decode(payload)
}

/// A text that must be a name of 1 to 255 bytes.
fn name(text: &str, invalid: ErrorCode) -> Result<biplane_wire::Name<'_>, Answer> {
    biplane_wire::Name::new(text).map_err(|_| Answer::error(invalid))
}

/// Options as texts, as they travel.
type OptionTexts = std::collections::BTreeMap<String, String>;

/// Puts options into a block.
fn put_options(block: &mut TlvBuilder, options: &OptionTexts) -> Result<(), Answer> {
    for (key, value) in options {
        if !(1..=255).contains(&key.len()) {
            return Err(Answer::error(ErrorCode::UnsupportedOptionKey));
        }
        if !(1..=255).contains(&value.len()) {
            return Err(Answer::error(ErrorCode::InvalidOptionValue));
        }
        block.option(key, TlvKind::STRING, value.as_bytes());
    }
    Ok(())
}

/// Reads a block as options.
fn options(block: &TlvBuilder) -> Result<Options<'_>, Answer> {
    Options::parse(block.bytes()).map_err(|_| Answer::error(ErrorCode::OptionsBlockTooLarge))
}
