//! Calls of clients become inputs of the planes, and their answers become answers.

use biplane_metadata_plane::io::{Input as MetadataInput, Outcome, Output as MetadataOutput};
use biplane_metadata_plane::io::{LogoutOutcome, RegisterOutcome};
use biplane_metadata_plane::preflight::{self, Caller, Needs, Refusal, Supplied};
use biplane_partition_plane::{
    ConsumerKey, Input as PartitionInput, Output as PartitionOutput, PollQuery, SealedEnd,
    Strategy, concat_parts,
};
use biplane_wire::request::{DeleteSegments, TruncatePartition};
use biplane_wire::{
    Checksum, ClientId, Codec as _, Command, ErrorCode, FrameBuffer, GroupId, HEADER_SIZE,
    Operation, RequestHeader, RequestNumber, RoutedRequestHeader,
};

use super::PlanesNode;
use crate::bare::cluster;
use crate::machine::{Answer, Call, Directory, Effect, PollCall, PollFrom, Reader};

/// A request of a session, taken apart.
pub(super) struct Request {
    pub(super) group: GroupId,
    pub(super) client: ClientId,
    pub(super) user_id: u32,
    session: u64,
    request: u64,
    pub(super) operation: Operation,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn session(&self) -> u64 {
        self.session
    }
}

const NOT_ACCEPTED: u32 = 58;

impl PlanesNode {
    pub(super) fn call(&mut self, token: u64, call: Call, out: &mut Vec<Effect>) {
        match call {
            Call::Register { client, user_id } => {
                self.step_metadata(MetadataInput::Register {
                    token,
                    client,
                    user_id,
                });
            }
            Call::Logout {
                client,
                session,
                request,
            } => {
                self.step_metadata(MetadataInput::Logout {
                    token,
                    client,
                    session,
                    request,
                });
            }
            Call::Request {
                group,
                client,
                user_id,
                session,
                request,
                operation,
                body,
            } => {
                let request = Request {
                    group,
                    client,
                    user_id,
                    session,
                    request,
                    operation,
                    body,
                };
                if request.group.is_metadata() {
                    self.write_metadata(token, &request, out);
                } else {
                    self.write_partition(token, &request, out);
                }
            }
            Call::Directory => {
                let answer = Answer::Directory(self.directory());
                out.push(Effect::Answer { token, answer });
            }
            Call::Poll {
                group,
                reader,
                query,
            } => self.poll(token, group, reader, query, out),
            Call::Sync { group, client } => {
                let answer = Answer::Synced(self.assignment(group, client));
                out.push(Effect::Answer { token, answer });
            }
        }
    }

    /// What a client reads of the topology.
    fn directory(&self) -> Directory {
        let state = self.metadata.state();
        let keys = state.topology().filter_map(|spec| spec.group.unpack());
        Directory {
            streams: state.streams().by_id().keys().copied().collect(),
            partitions: keys.collect(),
            groups: self.consumer_groups(),
            users: state.users().by_id().keys().copied().collect(),
        }
    }

    fn write_metadata(&mut self, token: u64, request: &Request, out: &mut Vec<Effect>) {
        if !self.metadata.replica().is_primary() {
            refuse(token, NOT_ACCEPTED, out);
            return;
        }
        if request.operation == Operation::DeleteSegments {
            return self.delete_segments(token, request, out);
        }
        let caller = Caller {
            user_id: Some(request.user_id),
            client: request.client,
            tokens_max: 100,
        };
        let state = self.metadata.state();
        let (in_flight, token_hash);
        let supplied = match preflight::needs(state, &caller, request.operation, &request.body) {
            Ok(Needs::InFlight { target }) => {
                in_flight = self.in_flight(&target);
                Supplied::InFlight(&in_flight)
            }
            Ok(Needs::PasswordHash { password }) => Supplied::PasswordHash(password),
            Ok(Needs::PasswordChange {
                stored_hash,
                current,
                new,
            }) => {
                // Passwords are their own hashes here.
                let right = stored_hash.is_none_or(|hash| hash == current);
                Supplied::PasswordChange(right.then_some(new))
            }
            Ok(Needs::TokenHash) => {
                token_hash = format!("{:064x}", request.client.0 ^ u128::from(request.request));
                Supplied::TokenHash(&token_hash)
            }
            Ok(Needs::Nothing) => Supplied::Nothing,
            Err(refusal) => return refuse_preflight(token, &refusal, out),
        };
        let operation = request.operation;
        let body = match preflight::rewrite(state, &caller, operation, &request.body, supplied) {
            Ok(body) => body,
            Err(refusal) => return refuse_preflight(token, &refusal, out),
        };
        let frame = self.routed(request, &body);
        self.step_metadata(MetadataInput::Submit {
            token,
            request: frame,
        });
    }

    /// The count of segments becomes an offset here, where the partition is.
    fn delete_segments(&mut self, token: u64, request: &Request, out: &mut Vec<Effect>) {
        let wanted = DeleteSegments::decode(&request.body).expect("encoded by a client here");
        let streams = self.metadata.state().streams();
        let found = streams.topic(&wanted.stream, &wanted.topic).ok();
        let group = found
            .and_then(|(stream, topic)| GroupId::partition(stream.id, topic.id, wanted.partition));
        let end = group.map(|group| self.partitions.sealed_end(group, wanted.count));
        let up_to_offset = match end {
            Some(SealedEnd::UpTo(offset)) => offset,
            Some(SealedEnd::Lagging | SealedEnd::Unknown) => {
                return refuse(token, NOT_ACCEPTED, out);
            }
            Some(SealedEnd::Nothing) | None => 0,
        };
        let body = TruncatePartition {
            stream: wanted.stream,
            topic: wanted.topic,
            partition: wanted.partition,
            up_to_offset,
        };
        let body = body.encode();
        let mut frame = self.routed(request, &body);
        let mut header = *frame.header::<RoutedRequestHeader>();
        header.set_operation(Operation::TruncatePartition);
        frame.set_header(&header);
        self.step_metadata(MetadataInput::Submit {
            token,
            request: frame,
        });
    }

    fn write_partition(&mut self, token: u64, request: &Request, out: &mut Vec<Effect>) {
        let group = request.group;
        if self.partitions.status(group).is_none() {
            refuse(token, NOT_ACCEPTED, out);
            return;
        }
        if let Err(refused) = self.admit_to_partition(request) {
            out.push(Effect::Answer {
                token,
                answer: refused,
            });
            return;
        }
        let frame = self.routed(request, &request.body);
        self.step_partitions(PartitionInput::Submit {
            token,
            group,
            request: frame,
        });
    }

    /// The request as a connection hands it on: bound identity, resolved group.
    fn routed(&self, request: &Request, body: &[u8]) -> FrameBuffer {
        let mut header = RequestHeader::new(Command::Request);
        header.frame.set_cluster(cluster());
        header
            .frame
            .set_size((HEADER_SIZE + request.body.len()) as u32);
        header.set_client(request.client);
        header.set_session(request.session);
        header.set_request(RequestNumber(request.request));
        header.set_request_checksum(Checksum::of(&request.body));
        header.set_operation(request.operation);
        let mut routed = RoutedRequestHeader::promote(&header, request.group);
        routed.frame.set_size((HEADER_SIZE + body.len()) as u32);
        routed.set_user_id(request.user_id);
        FrameBuffer::from_parts(&routed, body)
    }

    fn poll(
        &mut self,
        token: u64,
        group: GroupId,
        reader: Reader,
        call: PollCall,
        out: &mut Vec<Effect>,
    ) {
        if let Err(answer) = self.admit_poll(group, reader, &call) {
            out.push(Effect::Answer { token, answer });
            return;
        }
        let key = match call.as_group {
            true => ConsumerKey::Group(call.consumer),
            false => ConsumerKey::Consumer(call.consumer),
        };
        let query = PollQuery {
            key,
            strategy: match call.from {
                PollFrom::Offset(offset) => Strategy::Offset(offset),
                PollFrom::First => Strategy::First,
                PollFrom::Last => Strategy::Last,
                PollFrom::Next => Strategy::Next,
                PollFrom::Timestamp(at) => Strategy::Timestamp(at),
            },
            count: call.count,
            auto_commit: call.auto_commit,
            primary_only: call.primary_only,
        };
        self.step_partitions(PartitionInput::Poll {
            token,
            group,
            query,
        });
    }
}

fn refuse(token: u64, code: u32, out: &mut Vec<Effect>) {
    let answer = Answer::Transient { maybe: false, code };
    out.push(Effect::Answer { token, answer });
}

fn refuse_preflight(token: u64, refusal: &Refusal, out: &mut Vec<Effect>) {
    let answer = match refusal {
        Refusal::Status(code) => Answer::Refused(code.as_u32()),
        Refusal::Evict(reason) => Answer::Evicted(*reason),
    };
    out.push(Effect::Answer { token, answer });
}

fn transient(code: ErrorCode) -> Answer {
    let code = code.as_u32();
    Answer::Transient {
        maybe: code != NOT_ACCEPTED,
        code,
    }
}

/// The answer to a call of the metadata plane.
pub(super) fn carry_answer(output: MetadataOutput, out: &mut Vec<Effect>) {
    let (token, answer) = match output {
        MetadataOutput::Reply {
            token,
            message,
            outcome,
        } => match outcome {
            Outcome::Committed { code, .. } => (token, Answer::Replied { code, message }),
            Outcome::Refused(code) => {
                let code = code.as_u32();
                let answer = match code {
                    57 | 58 => Answer::Transient {
                        maybe: code == 57,
                        code,
                    },
                    _ => Answer::Refused(code),
                };
                (token, answer)
            }
        },
        MetadataOutput::Evicted { token, reason } => (token, Answer::Evicted(reason)),
        MetadataOutput::Dropped { token } => {
            out.push(Effect::Forget { token });
            return;
        }
        MetadataOutput::Registered { token, outcome } => {
            let answer = match outcome {
                RegisterOutcome::Registered { session, watermark } => {
                    Answer::Registered { session, watermark }
                }
                RegisterOutcome::Transient(code) => transient(code),
                RegisterOutcome::OwnedByAnotherUser => Answer::Refused(0),
            };
            (token, answer)
        }
        MetadataOutput::LoggedOut { token, outcome } => {
            let answer = match outcome {
                LogoutOutcome::LoggedOut { .. } => Answer::LoggedOut,
                LogoutOutcome::Transient(code) => transient(code),
            };
            (token, answer)
        }
        _ => return,
    };
    out.push(Effect::Answer { token, answer });
}

/// The answer to a call of the partition plane.
pub(super) fn carry_partition_answer(output: PartitionOutput, out: &mut Vec<Effect>) {
    let (token, answer) = match output {
        PartitionOutput::Reply {
            token,
            status,
            message,
        } => match status {
            0 => (token, Answer::Replied { code: 0, message }),
            57 | 58 => (
                token,
                Answer::Transient {
                    maybe: status == 57,
                    code: status,
                },
            ),
            code => (token, Answer::Refused(code)),
        },
        PartitionOutput::PollReply { token, reply } => {
            let body = concat_parts(&reply.body);
            (
                token,
                Answer::Polled {
                    status: reply.status,
                    body,
                },
            )
        }
        _ => return,
    };
    out.push(Effect::Answer { token, answer });
}
