//! The permissions block (chapter 01 section 11.2): a view over received bytes and the owned,
//! ordered form that state keeps and that is written back.

use std::collections::BTreeMap;

use crate::codec::{Codec, Cursor, body};
use crate::error::DecodeError;
use crate::primitive::Bytes32;

body! {
    /// The ten flags that hold everywhere.
    #[derive(Copy, Default, Eq)]
    pub struct GlobalPermissions {
        /// Change servers.
        manage_servers: bool,
        /// Read server statistics and clients.
        read_servers: bool,
        /// Change users.
        manage_users: bool,
        /// Read users.
        read_users: bool,
        /// Change streams and all below.
        manage_streams: bool,
        /// Read streams and all below.
        read_streams: bool,
        /// Change topics.
        manage_topics: bool,
        /// Read topics.
        read_topics: bool,
        /// Poll everywhere.
        poll_messages: bool,
        /// Send everywhere.
        send_messages: bool,
    }
}

body! {
    /// The six flags of one stream.
    #[derive(Copy, Default, Eq)]
    pub struct StreamFlags {
        /// Change the stream.
        manage_stream: bool,
        /// Read the stream.
        read_stream: bool,
        /// Change its topics.
        manage_topics: bool,
        /// Read its topics.
        read_topics: bool,
        /// Poll from it.
        poll_messages: bool,
        /// Send to it.
        send_messages: bool,
    }
}

body! {
    /// The four flags of one topic.
    #[derive(Copy, Default, Eq)]
    pub struct TopicFlags {
        /// Change the topic.
        manage_topic: bool,
        /// Read the topic.
        read_topic: bool,
        /// Poll from it.
        poll_messages: bool,
        /// Send to it.
        send_messages: bool,
    }
}

/// Flags of a stream and of its topics, by topic id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPermissions {
    /// The stream's own flags.
    pub flags: StreamFlags,
    /// Flags by topic id.
    pub topics: BTreeMap<u32, TopicFlags>,
}

/// Permissions of a user, by stream id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The global flags.
    pub global: GlobalPermissions,
    /// Flags by stream id.
    pub streams: BTreeMap<u32, StreamPermissions>,
}

impl Permissions {
    /// Everything, everywhere: what the root user has.
    #[must_use]
    pub fn all() -> Self {
        let global = GlobalPermissions {
            manage_servers: true,
            read_servers: true,
            manage_users: true,
            read_users: true,
            manage_streams: true,
            read_streams: true,
            manage_topics: true,
            read_topics: true,
            poll_messages: true,
            send_messages: true,
        };
        Self {
            global,
            streams: BTreeMap::new(),
        }
    }
}

impl<'a> Codec<'a> for Permissions {
    /// Duplicate ids are legal on the wire; the last one wins.
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let global = GlobalPermissions::read(cursor, field)?;
        let mut streams = BTreeMap::new();
        let mut more = bool::read(cursor, field)?;
        while more {
            let id = u32::read(cursor, field)?;
            let flags = StreamFlags::read(cursor, field)?;
            let topics = read_topics(cursor, field)?;
            streams.insert(id, StreamPermissions { flags, topics });
            more = bool::read(cursor, field)?;
        }
        Ok(Self { global, streams })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.global.write(out);
        for (id, stream) in &self.streams {
            out.push(1);
            id.write(out);
            stream.flags.write(out);
            for (id, topic) in &stream.topics {
                out.push(1);
                id.write(out);
                topic.write(out);
            }
            out.push(0);
        }
        out.push(0);
    }
}

fn read_topics(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<BTreeMap<u32, TopicFlags>, DecodeError> {
    let mut topics = BTreeMap::new();
    let mut more = bool::read(cursor, field)?;
    while more {
        let id = u32::read(cursor, field)?;
        topics.insert(id, TopicFlags::read(cursor, field)?);
        more = bool::read(cursor, field)?;
    }
    Ok(topics)
}

/// A permissions block that was checked and is kept as it stands, because the reply to a user
/// creation echoes it byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermissionsBlock<'a> {
    bytes: &'a [u8],
}

impl<'a> PermissionsBlock<'a> {
    /// Checks that the block fills `bytes` exactly. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Where the block is cut short, or that bytes are left.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        skip(&mut cursor)?;
        cursor.finish("permissions")?;
        Ok(Self { bytes })
    }

    /// The block as it stands.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The owned form.
    #[must_use]
    pub fn to_permissions(&self) -> Permissions {
        match Permissions::decode(self.bytes) {
            Ok(permissions) => permissions,
            Err(_) => unreachable!("the block was checked when it was parsed"),
        }
    }
}

fn skip(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    const FIELD: &str = "permissions";
    cursor.bytes(10, FIELD)?;
    let mut more_streams = bool::read(cursor, FIELD)?;
    while more_streams {
        cursor.bytes(10, FIELD)?;
        let mut more_topics = bool::read(cursor, FIELD)?;
        while more_topics {
            cursor.bytes(8, FIELD)?;
            more_topics = bool::read(cursor, FIELD)?;
        }
        more_streams = bool::read(cursor, FIELD)?;
    }
    Ok(())
}

/// `has u8`, and when it is exactly 1: `len u32` and a block of exactly that length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalPermissions<'a>(pub Option<PermissionsBlock<'a>>);

impl<'a> Codec<'a> for OptionalPermissions<'a> {
    fn read(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Self, DecodeError> {
        if u8::read(cursor, field)? != 1 {
            return Ok(Self(None));
        }
        PermissionsBlock::parse(cursor.sub(field)?.rest()).map(|block| Self(Some(block)))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.0.is_some()));
        if let Some(block) = self.0 {
            Bytes32(block.bytes).write(out);
        }
    }
}
