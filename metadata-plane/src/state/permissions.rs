//! The rules that decide who may do what.
//!
//! Every rule is an OR of literal booleans at three levels: global, the entry of the stream and
//! the entry of the topic below it. Nothing is implied. Entries are keyed by numeric ids and
//! outlive what they name (protocol specification, chapter 05, sections 1.2 and 8.2).

use biplane_wire::{Permissions, StreamFlags, TopicFlags};

/// What somebody wants to do, as the permission rules distinguish it. Ids are resolved ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a stream.
    CreateStream,
    /// Update, delete or purge a stream.
    ManageStream(u32),
    /// Create a topic in a stream.
    CreateTopic(u32),
    /// Update, delete or purge a topic, change its partitions or truncate one.
    ManageTopic(u32, u32),
    /// See a topic; every consumer-group command but sync.
    ReadTopic(u32, u32),
    /// List the topics of a stream.
    ListTopics(u32),
    /// See a stream.
    ReadStream(u32),
    /// List all streams.
    ListStreams,
    /// Create, update or delete users, change permissions or the password of another.
    ManageUsers,
    /// See users other than oneself.
    ReadUsers,
    /// See statistics, clients and diagnostic archives.
    ReadServers,
    /// Poll messages; get, store and delete consumer offsets; ask for routes.
    Poll(u32, u32),
    /// Send messages.
    Send(u32, u32),
}

/// The rules over the permissions of one user.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a>(pub &'a Permissions);

impl<'a> Rules<'a> {
    /// The rule of `action` over these permissions.
    pub fn allow(self, action: Action) -> bool {
        let global = &self.0.global;
        match action {
            Action::CreateStream => global.manage_streams,
            Action::ManageStream(stream) => {
                global.manage_streams || self.stream(stream).is_some_and(|s| s.manage_stream)
            }
            Action::CreateTopic(stream) => self.manages_topics(stream),
            Action::ManageTopic(stream, topic) => self.manages_topic(stream, topic),
            Action::ReadTopic(stream, topic) => self.reads_topic(stream, topic),
            Action::ListTopics(stream) => self.reads_topics(stream),
            Action::ReadStream(stream) => {
                global.manage_streams
                    || global.read_streams
                    || self
                        .stream(stream)
                        .is_some_and(|s| s.manage_stream || s.read_stream)
            }
            Action::ListStreams => global.manage_streams || global.read_streams,
            Action::ManageUsers => global.manage_users,
            Action::ReadUsers => global.manage_users || global.read_users,
            Action::ReadServers => global.manage_servers || global.read_servers,
            Action::Poll(stream, topic) => {
                global.poll_messages
                    || self.reads_topic(stream, topic)
                    || self.stream(stream).is_some_and(|s| s.poll_messages)
                    || self.topic(stream, topic).is_some_and(|t| t.poll_messages)
            }
            Action::Send(stream, topic) => {
                global.send_messages
                    || self.manages_topic(stream, topic)
                    || self.stream(stream).is_some_and(|s| s.send_messages)
                    || self.topic(stream, topic).is_some_and(|t| t.send_messages)
            }
        }
    }

    fn stream(self, stream: u32) -> Option<&'a StreamFlags> {
        self.0.streams.get(&stream).map(|entry| &entry.flags)
    }

    fn topic(self, stream: u32, topic: u32) -> Option<&'a TopicFlags> {
        self.0.streams.get(&stream)?.topics.get(&topic)
    }

    fn manages_topics(self, stream: u32) -> bool {
        self.0.global.manage_streams
            || self.0.global.manage_topics
            || self
                .stream(stream)
                .is_some_and(|s| s.manage_stream || s.manage_topics)
    }

    fn manages_topic(self, stream: u32, topic: u32) -> bool {
        self.manages_topics(stream) || self.topic(stream, topic).is_some_and(|t| t.manage_topic)
    }

    fn reads_topics(self, stream: u32) -> bool {
        self.manages_topics(stream)
            || self.0.global.read_streams
            || self.0.global.read_topics
            || self
                .stream(stream)
                .is_some_and(|s| s.read_stream || s.read_topics)
    }

    fn reads_topic(self, stream: u32, topic: u32) -> bool {
        self.reads_topics(stream)
            || self
                .topic(stream, topic)
                .is_some_and(|t| t.manage_topic || t.read_topic)
    }
}
