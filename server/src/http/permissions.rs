//! Permissions as JSON, both ways: ids of streams and topics are the keys of objects (chapter 08
//! section 5.1).

use std::collections::BTreeMap;

use biplane_wire::{Permissions, StreamFlags, StreamPermissions};
use serde::{Deserialize, Serialize};

macro_rules! flags {
    ($name:ident, $wire:ident, $($field:ident),*) => {
        #[derive(Debug, Clone, Copy, Serialize, Deserialize)]
        struct $name {
            $($field: bool,)*
        }

        impl From<biplane_wire::$wire> for $name {
            fn from(flags: biplane_wire::$wire) -> Self {
                Self { $($field: flags.$field,)* }
            }
        }

        impl From<$name> for biplane_wire::$wire {
            fn from(flags: $name) -> Self {
                Self { $($field: flags.$field,)* }
            }
        }
    };
}

flags!(
    GlobalJson,
    GlobalPermissions,
    manage_servers,
    read_servers,
    manage_users,
    read_users,
    manage_streams,
    read_streams,
    manage_topics,
    read_topics,
    poll_messages,
    send_messages
);
flags!(
    TopicFlagsJson,
    TopicFlags,
    manage_topic,
    read_topic,
    poll_messages,
    send_messages
);

/// Permissions, both ways.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PermissionsJson {
    global: GlobalJson,
    #[serde(default)]
    streams: Option<BTreeMap<u32, StreamPermissionsJson>>,
}

/// Its flags are not a struct of their own: a flattened one could not hold a map by number.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StreamPermissionsJson {
    manage_stream: bool,
    read_stream: bool,
    manage_topics: bool,
    read_topics: bool,
    poll_messages: bool,
    send_messages: bool,
    #[serde(default)]
    topics: Option<BTreeMap<u32, TopicFlagsJson>>,
}

impl From<&Permissions> for PermissionsJson {
    fn from(all: &Permissions) -> Self {
        let streams = all.streams.iter().map(|(id, stream)| {
            let topics = stream.topics.iter();
            let topics: BTreeMap<_, _> = topics
                .map(|(id, topic)| (*id, TopicFlagsJson::from(*topic)))
                .collect();
            let flags = stream.flags;
            let stream = StreamPermissionsJson {
                manage_stream: flags.manage_stream,
                read_stream: flags.read_stream,
                manage_topics: flags.manage_topics,
                read_topics: flags.read_topics,
                poll_messages: flags.poll_messages,
                send_messages: flags.send_messages,
                topics: (!topics.is_empty()).then_some(topics),
            };
            (*id, stream)
        });
        let streams: BTreeMap<_, _> = streams.collect();
        Self {
            global: all.global.into(),
            streams: (!streams.is_empty()).then_some(streams),
        }
    }
}

impl From<PermissionsJson> for Permissions {
    fn from(json: PermissionsJson) -> Self {
        let streams = json.streams.unwrap_or_default().into_iter();
        let streams = streams.map(|(id, stream)| {
            let topics = stream.topics.unwrap_or_default().into_iter();
            let topics = topics.map(|(id, topic)| (id, topic.into())).collect();
            let flags = StreamFlags {
                manage_stream: stream.manage_stream,
                read_stream: stream.read_stream,
                manage_topics: stream.manage_topics,
                read_topics: stream.read_topics,
                poll_messages: stream.poll_messages,
                send_messages: stream.send_messages,
            };
            let stream = StreamPermissions { flags, topics };
            (id, stream)
        });
        Self {
            global: json.global.into(),
            streams: streams.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_come_back_as_they_went() {
        let json = r#"{"global":{"manage_servers":true,"read_servers":false,"manage_users":false,
            "read_users":true,"manage_streams":false,"read_streams":false,"manage_topics":false,
            "read_topics":false,"poll_messages":true,"send_messages":false},"streams":{"3":{
            "manage_stream":false,"read_stream":true,"manage_topics":false,"read_topics":false,
            "poll_messages":false,"send_messages":true,"topics":{"7":{"manage_topic":true,
            "read_topic":false,"poll_messages":false,"send_messages":false}}}}}"#;
        let read: PermissionsJson = serde_json::from_str(json).unwrap();
        let all = Permissions::from(read);
        assert!(all.streams[&3].topics[&7].manage_topic && all.streams[&3].flags.read_stream);
        let again = serde_json::to_string(&PermissionsJson::from(&all)).unwrap();
        let compact: String = json.chars().filter(|c| !c.is_whitespace()).collect();
        assert_eq!(again, compact);
    }
}
