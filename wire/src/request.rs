//! Request bodies of every command (chapters 01 and 07), and the bodies as the primary
//! replicates them where those differ (chapter 05).
//!
//! Types are named after the command. Those of one field list are the list read in order;
//! decoding borrows from the frame and ignores trailing bytes.

mod client_request;
mod consumer_groups;
mod encode;
mod login;
mod messages;
mod prepared;
mod streams;
mod system;
mod topics;
mod users;

pub use client_request::{ClientRequest, command_of};
pub use consumer_groups::{
    CompleteConsumerGroupRevocation, ConsumerGroupRequest, CreateConsumerGroup,
    JoinConsumerGroupPrepared, LeaveConsumerGroupPrepared, RemoveConsumerGroupMember,
};
pub use login::{ClientVersion, Login, LoginPassword, LoginToken};
pub use messages::{
    DeleteConsumerOffset, FlushUnsavedBuffer, GetConsumerOffset, PollMessages, StoreConsumerOffset,
};
pub use prepared::MetadataBody;
pub use streams::{CreateStream, StreamRequest, UpdateStream};
pub use system::{
    AttachConsumerSession, DescribeOptions, GetClient, GetSnapshot, OptionScope,
    SnapshotCompression, SnapshotType,
};
pub use topics::{
    Assignment, Assignments, CreatePartitionsWithAssignments, CreateTopic,
    CreateTopicWithAssignments, DeleteSegments, PartitionsRequest, TopicRequest, TruncatePartition,
    UpdateTopic,
};
pub use users::{
    ChangePassword, CreatePersonalAccessToken, CreatePersonalAccessTokenPrepared, CreateUser,
    DeletePersonalAccessToken, DeletePersonalAccessTokenPrepared, UpdatePermissions, UpdateUser,
    UserRequest,
};
