//! Reads of replicated state (chapter 07 sections 7 and 8): any node answers from what it has
//! applied, after it has caught up with what the client has already seen.

use biplane_metadata_plane::state::reads::{Counters, Statistics};
use biplane_partition_plane::PartitionPlane;
use biplane_wire::request::{ConsumerGroupRequest, StreamRequest, TopicRequest, UserRequest};
use biplane_wire::{ClientCode, Codec as _, ErrorCode, GroupId};

use super::dispatch::Request;
use super::session::Bound;
use crate::node::Node;

/// Counters as this node's partitions have them.
struct Local<'a>(&'a PartitionPlane);

impl Statistics for Local<'_> {
    fn partition(&self, group: GroupId) -> Counters {
        self.0
            .stats(group)
            .map_or_else(Counters::default, |stats| Counters {
                size_bytes: stats.size_bytes,
                messages: stats.messages_count,
                segments: stats.segments_count,
                current_offset: stats.current_offset,
            })
    }
}

impl Node {
    /// Every operation-2 command but polls, offsets and routing.
    pub(crate) fn read(&mut self, request: Request, code: ClientCode, bound: Bound) {
        let held = !matches!(
            code,
            ClientCode::GetClusterMetadata | ClientCode::DescribeOptions | ClientCode::GetSnapshot
        );
        let behind = self
            .clients
            .get(request.connection)
            .is_some_and(|session| self.metadata.commit_min() < session.watermark);
        if held && behind {
            let budget = self.frontier_budget();
            return self.hold_or_refuse(request, budget);
        }
        match code {
            ClientCode::GetStats => return self.ask_for_stats(request, bound),
            ClientCode::GetSnapshot => return self.ask_for_snapshot(request, bound),
            _ => {}
        }
        match self.read_body(&request, code, bound) {
            Ok(body) => self.succeed(&request, &body),
            Err(code) => self.refuse(&request, code),
        }
    }

    fn read_body(
        &self,
        request: &Request,
        code: ClientCode,
        bound: Bound,
    ) -> Result<Vec<u8>, ErrorCode> {
        let (state, user) = (self.metadata.state(), bound.user_id);
        let local = Local(&self.partitions);
        let body = request.frame.body();
        let malformed = |_| ErrorCode::InvalidCommand;
        match code {
            ClientCode::GetClusterMetadata => Ok(self.cluster_metadata(request.connection)),
            ClientCode::GetMe => Ok(self.client_details(request.connection)),
            ClientCode::GetClient => self.read_client(body, user),
            ClientCode::GetClients => self.read_clients(user),
            ClientCode::DescribeOptions => state.describe_options(body),
            ClientCode::GetUser => {
                let target = UserRequest::decode(body).map_err(malformed)?;
                state.read_user(user, &target.user)
            }
            ClientCode::GetUsers => state.read_users(user),
            ClientCode::GetPersonalAccessTokens => Ok(state.read_tokens(user)),
            ClientCode::GetStream => {
                let target = StreamRequest::decode(body).map_err(malformed)?;
                state.read_stream(user, &target.stream, &local)
            }
            ClientCode::GetStreams => state.read_streams(user, &local),
            ClientCode::GetTopic => {
                let target = TopicRequest::decode(body).map_err(malformed)?;
                state.read_topic_details(user, &target, &local)
            }
            ClientCode::GetTopics => {
                let target = StreamRequest::decode(body).map_err(malformed)?;
                state.read_topics(user, &target.stream, &local)
            }
            ClientCode::GetConsumerGroup => {
                let target = ConsumerGroupRequest::decode(body).map_err(malformed)?;
                state.read_group(user, &target)
            }
            ClientCode::GetConsumerGroups => {
                let target = TopicRequest::decode(body).map_err(malformed)?;
                state.read_groups(user, &target)
            }
            ClientCode::SyncConsumerGroup => {
                let target = ConsumerGroupRequest::decode(body).map_err(malformed)?;
                Ok(state.sync_group(bound.client, &target))
            }
            _ => Err(ErrorCode::InvalidCommand),
        }
    }
}
