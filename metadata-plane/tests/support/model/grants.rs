//! What a user was granted, as a set of named grants, and the rules over it in words.
//!
//! Written from the tables of the protocol specification (chapter 05, sections 1.2 and 8.2) and
//! from nothing else: a rule is the list of the grants of which one is enough.

use std::collections::BTreeSet;

use super::super::prng::Prng;

/// Where a grant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Everywhere.
    Global,
    /// In one stream.
    Stream(u32),
    /// In one topic.
    Topic(u32, u32),
}

/// Grants by place and name.
pub type Grants = BTreeSet<(Place, &'static str)>;

/// Names of the booleans of a block, in the order of their bytes.
const GLOBAL: [&str; 10] = [
    "manage_servers",
    "read_servers",
    "manage_users",
    "read_users",
    "manage_streams",
    "read_streams",
    "manage_topics",
    "read_topics",
    "poll_messages",
    "send_messages",
];
const STREAM: [&str; 6] = [
    "manage_stream",
    "read_stream",
    "manage_topics",
    "read_topics",
    "poll_messages",
    "send_messages",
];
const TOPIC: [&str; 4] = [
    "manage_topic",
    "read_topic",
    "poll_messages",
    "send_messages",
];

/// A rule: grants, one of which is enough; G global, S of the stream, T of the topic.
pub type Rule = &'static str;

/// Create a stream.
pub const CREATE_STREAM: Rule = "G.manage_streams";
/// Update, delete or purge a stream.
pub const MANAGE_STREAM: Rule = "G.manage_streams S.manage_stream";
/// Create a topic.
pub const CREATE_TOPIC: Rule = "G.manage_streams G.manage_topics S.manage_stream S.manage_topics";
/// Change a topic.
pub const MANAGE_TOPIC: Rule =
    "G.manage_streams G.manage_topics S.manage_stream S.manage_topics T.manage_topic";
/// See a topic; its consumer groups.
pub const READ_TOPIC: Rule = "G.manage_streams G.read_streams G.manage_topics G.read_topics \
     S.manage_stream S.read_stream S.manage_topics S.read_topics T.manage_topic T.read_topic";
/// List the topics of a stream.
pub const LIST_TOPICS: Rule = "G.manage_streams G.read_streams G.manage_topics G.read_topics \
     S.manage_stream S.read_stream S.manage_topics S.read_topics";
/// See a stream.
pub const READ_STREAM: Rule = "G.manage_streams G.read_streams S.manage_stream S.read_stream";
/// List the streams.
pub const LIST_STREAMS: Rule = "G.manage_streams G.read_streams";
/// Users other than oneself.
pub const MANAGE_USERS: Rule = "G.manage_users";
/// See users other than oneself.
pub const READ_USERS: Rule = "G.manage_users G.read_users";
/// Statistics and clients.
pub const READ_SERVERS: Rule = "G.manage_servers G.read_servers";
/// Poll messages, offsets of consumers.
pub const POLL: Rule = "G.poll_messages G.manage_streams G.read_streams G.manage_topics \
     G.read_topics S.poll_messages S.manage_stream S.read_stream S.manage_topics S.read_topics \
     T.manage_topic T.read_topic T.poll_messages";
/// Send messages.
pub const SEND: Rule = "G.send_messages G.manage_streams G.manage_topics S.send_messages \
     S.manage_stream S.manage_topics T.manage_topic T.send_messages";

/// All global grants: what root has.
pub fn everything() -> Grants {
    GLOBAL.iter().map(|name| (Place::Global, *name)).collect()
}

/// Whether one of the grants of `rule` is among `grants`.
pub fn satisfies(grants: &Grants, rule: Rule, stream: u32, topic: u32) -> bool {
    rule.split_whitespace().any(|wanted| {
        let (level, name) = wanted.split_once('.').expect("level and name");
        let place = match level {
            "G" => Place::Global,
            "S" => Place::Stream(stream),
            _ => Place::Topic(stream, topic),
        };
        grants.contains(&(place, name))
    })
}

/// A byte that reads as true with a chance of one in `rarity`, else 0.
fn flag(prng: &mut Prng, rarity: u64) -> u8 {
    match prng.below(rarity) {
        0 => [1, 1, 1, 2, 255][prng.below(5) as usize],
        _ => 0,
    }
}

fn put_flags(
    prng: &mut Prng,
    names: &[&'static str],
    place: Place,
    rarity: u64,
    out: &mut Vec<u8>,
    grants: &mut Grants,
) {
    for name in names {
        let byte = flag(prng, rarity);
        out.push(byte);
        if byte != 0 {
            grants.insert((place, *name));
        }
    }
}

/// A block as it may come in a prepare, and what it grants. Ids come twice now and then: the
/// last entry stands.
pub fn random_block(prng: &mut Prng) -> (Vec<u8>, Grants) {
    let (mut out, mut grants) = (Vec::new(), Grants::new());
    put_flags(prng, &GLOBAL, Place::Global, 9, &mut out, &mut grants);
    for _ in 0..prng.below(4) {
        let stream = prng.small(4);
        grants.retain(|(place, _)| match place {
            Place::Global => true,
            Place::Stream(id) | Place::Topic(id, _) => *id != stream,
        });
        out.push(1);
        out.extend_from_slice(&stream.to_le_bytes());
        let place = Place::Stream(stream);
        put_flags(prng, &STREAM, place, 7, &mut out, &mut grants);
        for _ in 0..prng.below(4) {
            let topic = prng.small(4);
            let place = Place::Topic(stream, topic);
            grants.retain(|(other, _)| *other != place);
            out.push(1);
            out.extend_from_slice(&topic.to_le_bytes());
            put_flags(prng, &TOPIC, place, 3, &mut out, &mut grants);
        }
        out.push(0);
    }
    out.push(0);
    (out, grants)
}
