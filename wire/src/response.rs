//! Response bodies of every command (chapters 01 and 07): what follows the result section
//! where there is one, else the whole body.
//!
//! A list without a count runs to the end of the body and is a `Vec`; a list with a count is
//! [`Counted`]. Commands that answer an absent entity or "not a member" with an empty body
//! decode through [`optional`].
//!
//! [`Counted`]: crate::codec::Counted

mod client_response;
mod consumer_groups;
mod messages;
mod system;
mod topics;
mod users;

pub use client_response::{ClientReply, ClientResponse};
pub use consumer_groups::{
    ConsumerGroupDetails, ConsumerGroupMember, ConsumerGroupRecord, SyncReply,
};
pub use messages::{ConsumerOffset, PolledMessages, SendConfirmation, SendConfirmations};
pub use system::{
    CacheMetrics, ClientDetails, ClientRecord, ClusterMetadata, ConsumerGroupMembership,
    NodeRecord, NodeRole, NodeStatus, OptionSpec, Routing, Stats, TransportKind,
};
pub use topics::{PartitionRecord, StreamDetails, StreamRecord, TopicDetails, TopicRecord};
pub use users::{
    LoginReply, PersonalAccessTokenRecord, RawPersonalAccessToken, UserDetails, UserRecord,
};

use crate::codec::Codec;
use crate::error::DecodeError;

/// A body that is empty when there is nothing to tell.
///
/// # Errors
///
/// Why a body that is not empty does not decode.
pub fn optional<'a, T: Codec<'a>>(body: &'a [u8]) -> Result<Option<T>, DecodeError> {
    if body.is_empty() {
        Ok(None)
    } else {
        T::decode_exact(body).map(Some)
    }
}
