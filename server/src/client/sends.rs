//! SendMessages (chapter 06 section 4): find the partition, then hand the frame over as it came.
//! Not a byte of the messages is looked at here.

use biplane_metadata_plane::state::permissions::Action;
use biplane_metadata_plane::state::streams::Topic;
use biplane_partition_plane::Input;
use biplane_wire::{ErrorCode, GroupId, Partitioning, RoutedRequestHeader, SendMessages};

use super::dispatch::Request;
use super::session::{Bound, Wait};
use super::writes::stamp;
use crate::node::Node;

/// How long a send waits for its partition to be materialised here, in ticks.
const ROUTABLE_BUDGET: u64 = 300;

impl Node {
    /// Operation 160.
    pub(crate) fn send_messages(&mut self, request: Request, bound: Bound) {
        let group = match self.destination(&request, bound) {
            Ok(group) => group,
            Err(code) => return self.refuse(&request, code),
        };
        if self.partitions.status(group).is_none() {
            return self.hold_or_refuse(request, ROUTABLE_BUDGET);
        }
        self.submit_partition(request, bound, group);
    }

    /// Hands a partition write over; its connection goes on meanwhile.
    pub(crate) fn submit_partition(&mut self, request: Request, bound: Bound, group: GroupId) {
        let (header, size) = (request.header(), request.size());
        let mut routed = RoutedRequestHeader::promote(&header, group);
        stamp(&mut routed, bound);
        let token = self
            .clients
            .wait(request.connection, header, size, false, Wait::Partition);
        // The connection's reader gave the frame away, so this moves it without a copy.
        let mut frame = request.frame.into_message().into_unique();
        frame.set_header(&routed);
        self.step_partitions(Input::Submit {
            token,
            group,
            request: frame,
        });
    }

    fn destination(&mut self, request: &Request, bound: Bound) -> Result<GroupId, ErrorCode> {
        let unknown = ErrorCode::ResourceNotFound;
        let (wanted, _) =
            SendMessages::decode_metadata(request.frame.body()).map_err(|_| unknown)?;
        let state = self.metadata.state();
        let (stream, topic) = state
            .streams()
            .topic(&wanted.stream, &wanted.topic)
            .map_err(|_| unknown)?;
        state.authorize(bound.user_id, Action::Send(stream.id, topic.id))?;
        let partition = match wanted.partitioning {
            Partitioning::PartitionId(id) => topic.partition(id).map(|partition| partition.id),
            Partitioning::MessagesKey(key) => {
                let index = Partitioning::key_index(key, count(topic));
                index.and_then(|index| nth(topic, index))
            }
            Partitioning::Balanced => {
                let turn = self.balance.entry((stream.id, topic.id)).or_insert(0);
                let index = turn.checked_rem(count(topic));
                *turn = turn.wrapping_add(1);
                index.and_then(|index| nth(topic, index))
            }
        };
        partition
            .and_then(|partition| GroupId::partition(stream.id, topic.id, partition))
            .ok_or(unknown)
    }
}

fn count(topic: &Topic) -> u32 {
    u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX)
}

fn nth(topic: &Topic, index: u32) -> Option<u32> {
    topic
        .partitions
        .get(index as usize)
        .map(|partition| partition.id)
}
