//! Stored consumer offsets (chapter 06 section 10): writes through the partition's log, reads from
//! local memory.

use biplane_partition_plane::{ConsumerKey, Input, OffsetReply};
use biplane_wire::request::GetConsumerOffset;
use biplane_wire::{
    Codec as _, ConsumerKind, Cursor, DecodeError, ErrorCode, Identifier, Message,
    RoutedRequestHeader,
};

use super::dispatch::Request;
use super::reply::{self, Position};
use super::resolve::{Ownership, Target};
use super::session::{Bound, Wait, Waiting};
use super::writes::stamp;
use crate::node::Node;

/// The part common to the bodies of 120, 121, 122 and 123, and what follows it.
fn read_named(body: &[u8]) -> Result<(GetConsumerOffset<'_>, &[u8]), DecodeError> {
    let mut cursor = Cursor::new(body);
    let named = GetConsumerOffset::read(&mut cursor, "offset request")?;
    Ok((named, cursor.rest()))
}

impl Node {
    /// Operations 161 and 162.
    pub(crate) fn write_offset(&mut self, request: Request, bound: Bound) {
        let member = match self.member_of(&request) {
            Ok(member) => member,
            Err(code) => return self.refuse(&request, code),
        };
        let Ok((named, rest)) = read_named(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let target = match self.resolve(&named, bound.user_id, member, None) {
            Ok(target) => target,
            Err(code) => return self.refuse(&request, code),
        };
        if target.ownership == Ownership::None {
            return self.refuse(&request, ErrorCode::ConsumerGroupPartitionNotOwned);
        }
        if named.consumer.kind == ConsumerKind::Consumer {
            return self.submit_partition(request, bound, target.group);
        }
        // Replicas know a group by its number only.
        let body = with_group_id(named, target, rest);
        let (header, size) = (request.header(), request.size());
        let mut routed = RoutedRequestHeader::promote(&header, target.group);
        stamp(&mut routed, bound);
        let token = self
            .clients
            .wait(request.connection, header, size, false, Wait::Partition);
        let frame = Message::from_parts(routed, &body).into_unique();
        self.step_partitions(Input::Submit {
            token,
            group: target.group,
            request: frame,
        });
    }

    /// Code 120: any node, any authorised client; an absent partition is 0.
    pub(crate) fn get_offset(&mut self, request: Request, bound: Bound) {
        let Ok(named) = GetConsumerOffset::decode(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let target = match self.resolve(&named, bound.user_id, None, Some(0)) {
            Ok(target) => target,
            Err(ErrorCode::ConsumerGroupIdNotFound | ErrorCode::ConsumerGroupNameNotFound) => {
                return self.succeed(&request, &[]);
            }
            Err(code) => return self.refuse(&request, code),
        };
        let (header, size) = (request.header(), request.size());
        let token = self
            .clients
            .wait(request.connection, header, size, true, Wait::Offset);
        let Target { group, key, .. } = target;
        self.step_partitions(Input::GetOffset { token, group, key });
    }

    /// The partition plane has answered a read of an offset.
    pub(crate) fn on_offset(&mut self, waiting: &Waiting, answer: OffsetReply) {
        let client = waiting.header.client();
        let commit = self.metadata.commit_min();
        let position = Position {
            op: waiting.header.session(),
            commit,
        };
        let frame = if answer.status == 0 {
            let body = answer.body.as_ref().map_or(&[][..], |body| &body[..]);
            reply::success(&waiting.header, client, position, body)
        } else {
            reply::status_code(&waiting.header, client, position, answer.status)
        };
        self.finish(waiting, frame);
    }
}

fn with_group_id(mut named: GetConsumerOffset<'_>, target: Target, rest: &[u8]) -> Vec<u8> {
    if let ConsumerKey::Group(id) = target.key {
        named.consumer.id = Identifier::Numeric(id);
    }
    let mut body = named.encode();
    body.extend_from_slice(rest);
    body
}
