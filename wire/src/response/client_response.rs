//! Any answer to a client by the code of the command that was asked, bodies decoded.

use super::{
    ClientDetails, ClientRecord, ClusterMetadata, ConsumerGroupDetails, ConsumerGroupRecord,
    ConsumerOffset, LoginReply, OptionSpec, PersonalAccessTokenRecord, PolledMessages,
    RawPersonalAccessToken, Routing, SendConfirmations, Stats, StreamDetails, StreamRecord,
    SyncReply, TopicDetails, TopicRecord, UserDetails, UserRecord, optional,
};
use crate::client_code::ClientCode;
use crate::codec::{Codec, Counted};
use crate::error::DecodeError;
use crate::header::ReplyHeader;
use crate::result::ResultSection;

/// A whole reply: the status channel, the result section, or what was asked for
/// (chapter 01 section 14).
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // The large one is the usual one, and is read at once.
pub enum ClientReply<'a> {
    /// `status` is an error code; decided before commit.
    Refused(u32),
    /// The result section is an error code.
    Rejected(u32),
    /// The answer.
    Success(ClientResponse<'a>),
}

impl<'a> ClientReply<'a> {
    /// Reads a reply to the command `code`, the way a client does: status first, then the
    /// result section where the operation of the *reply* has one.
    ///
    /// # Errors
    ///
    /// A malformed result section or payload.
    pub fn decode(
        code: ClientCode,
        header: &ReplyHeader,
        body: &'a [u8],
    ) -> Result<Self, DecodeError> {
        if header.status() != 0 {
            return Ok(Self::Refused(header.status()));
        }
        let payload = if header.operation().is_result_framed(body.len()) {
            match ResultSection::decode(body)? {
                ResultSection::Success(payload) => payload,
                ResultSection::Rejection(code) => return Ok(Self::Rejected(code)),
            }
        } else {
            body
        };
        ClientResponse::decode(code, payload).map(Self::Success)
    }
}

/// The payload of a successful reply, behind the result section where there is one. What may
/// be absent is an `Option`; it is absent when the payload is empty.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientResponse<'a> {
    /// Nothing to tell: the command succeeded.
    Done,
    /// GetStats (10).
    Stats(Stats<'a>),
    /// GetSnapshot (11): the bytes of an archive.
    Snapshot(&'a [u8]),
    /// GetClusterMetadata (12).
    ClusterMetadata(ClusterMetadata<'a>),
    /// DescribeOptions (13).
    OptionCatalog(Counted<OptionSpec<'a>>),
    /// GetMe (20), GetClient (21).
    Client(Option<ClientDetails<'a>>),
    /// GetClients (22).
    Clients(Vec<ClientRecord<'a>>),
    /// GetUser (31), CreateUser (33).
    User(Option<UserDetails<'a>>),
    /// GetUsers (32).
    Users(Vec<UserRecord<'a>>),
    /// LoginRegister (40, 45).
    Login(LoginReply<'a>),
    /// GetPersonalAccessTokens (41).
    Tokens(Vec<PersonalAccessTokenRecord<'a>>),
    /// CreatePersonalAccessToken (42).
    RawToken(RawPersonalAccessToken<'a>),
    /// PollMessages (100, 104).
    Polled(PolledMessages<'a>),
    /// SendMessages (101).
    Sent(SendConfirmations),
    /// GetPollRouting (103), GetConsumerOffsetRouting (123).
    Routing(Routing<'a>),
    /// GetConsumerOffset (120).
    ConsumerOffset(Option<ConsumerOffset>),
    /// GetStream (200), CreateStream (202).
    Stream(Option<StreamDetails<'a>>),
    /// GetStreams (201).
    Streams(Vec<StreamRecord<'a>>),
    /// GetTopic (300), CreateTopic (302).
    Topic(Option<TopicDetails<'a>>),
    /// GetTopics (301).
    Topics(Counted<TopicRecord<'a>>),
    /// GetConsumerGroup (600), CreateConsumerGroup (602).
    ConsumerGroup(Option<ConsumerGroupDetails<'a>>),
    /// GetConsumerGroups (601).
    ConsumerGroups(Vec<ConsumerGroupRecord<'a>>),
    /// SyncConsumerGroup (606); absent for a client that is no member.
    Assignment(Option<SyncReply>),
}

impl<'a> ClientResponse<'a> {
    /// Decodes the payload of a successful reply to `code`. For commands that answer nothing
    /// the payload is not looked at.
    ///
    /// # Errors
    ///
    /// Why the payload does not decode; bytes behind it are an error.
    pub fn decode(code: ClientCode, payload: &'a [u8]) -> Result<Self, DecodeError> {
        use ClientCode as C;
        Ok(match code {
            C::GetStats => Self::Stats(Codec::decode_exact(payload)?),
            C::GetSnapshot => Self::Snapshot(payload),
            C::GetClusterMetadata => Self::ClusterMetadata(Codec::decode_exact(payload)?),
            C::DescribeOptions => Self::OptionCatalog(Codec::decode_exact(payload)?),
            C::GetMe | C::GetClient => Self::Client(optional(payload)?),
            C::GetClients => Self::Clients(Codec::decode_exact(payload)?),
            C::GetUser | C::CreateUser => Self::User(optional(payload)?),
            C::GetUsers => Self::Users(Codec::decode_exact(payload)?),
            C::LoginRegister | C::LoginRegisterWithPersonalAccessToken => {
                Self::Login(Codec::decode_exact(payload)?)
            }
            C::GetPersonalAccessTokens => Self::Tokens(Codec::decode_exact(payload)?),
            C::CreatePersonalAccessToken => Self::RawToken(Codec::decode_exact(payload)?),
            C::PollMessages | C::PollMessagesOnPrimary => {
                Self::Polled(Codec::decode_exact(payload)?)
            }
            C::SendMessages => Self::Sent(Codec::decode_exact(payload)?),
            C::GetPollRouting | C::GetConsumerOffsetRouting => {
                Self::Routing(Codec::decode_exact(payload)?)
            }
            C::GetConsumerOffset => Self::ConsumerOffset(optional(payload)?),
            C::GetStream | C::CreateStream => Self::Stream(optional(payload)?),
            C::GetStreams => Self::Streams(Codec::decode_exact(payload)?),
            C::GetTopic | C::CreateTopic => Self::Topic(optional(payload)?),
            C::GetTopics => Self::Topics(Codec::decode_exact(payload)?),
            C::GetConsumerGroup | C::CreateConsumerGroup => Self::ConsumerGroup(optional(payload)?),
            C::GetConsumerGroups => Self::ConsumerGroups(Codec::decode_exact(payload)?),
            C::SyncConsumerGroup => Self::Assignment(optional(payload)?),
            C::Ping
            | C::AttachConsumerSession
            | C::DeleteUser
            | C::UpdateUser
            | C::UpdatePermissions
            | C::ChangePassword
            | C::LoginUser
            | C::LogoutUser
            | C::DeletePersonalAccessToken
            | C::LoginWithPersonalAccessToken
            | C::FlushUnsavedBuffer
            | C::StoreConsumerOffset
            | C::DeleteConsumerOffset
            | C::DeleteStream
            | C::UpdateStream
            | C::PurgeStream
            | C::DeleteTopic
            | C::UpdateTopic
            | C::PurgeTopic
            | C::CreatePartitions
            | C::DeletePartitions
            | C::DeleteSegments
            | C::DeleteConsumerGroup
            | C::JoinConsumerGroup
            | C::LeaveConsumerGroup => Self::Done,
        })
    }

    /// The payload as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => Vec::new(),
            Self::Stats(body) => body.encode(),
            Self::Snapshot(archive) => archive.to_vec(),
            Self::ClusterMetadata(body) => body.encode(),
            Self::OptionCatalog(body) => body.encode(),
            Self::Client(body) => encode_optional(body.as_ref()),
            Self::Clients(body) => body.encode(),
            Self::User(body) => encode_optional(body.as_ref()),
            Self::Users(body) => body.encode(),
            Self::Login(body) => body.encode(),
            Self::Tokens(body) => body.encode(),
            Self::RawToken(body) => body.encode(),
            Self::Polled(body) => body.encode(),
            Self::Sent(body) => body.encode(),
            Self::Routing(body) => body.encode(),
            Self::ConsumerOffset(body) => encode_optional(body.as_ref()),
            Self::Stream(body) => encode_optional(body.as_ref()),
            Self::Streams(body) => body.encode(),
            Self::Topic(body) => encode_optional(body.as_ref()),
            Self::Topics(body) => body.encode(),
            Self::ConsumerGroup(body) => encode_optional(body.as_ref()),
            Self::ConsumerGroups(body) => body.encode(),
            Self::Assignment(body) => encode_optional(body.as_ref()),
        }
    }
}

fn encode_optional<'a, T: Codec<'a>>(body: Option<&T>) -> Vec<u8> {
    body.map(Codec::encode).unwrap_or_default()
}
