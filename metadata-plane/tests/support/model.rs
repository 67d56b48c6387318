//! A naive model of the metadata: lists that are searched from the front, no indexes.

use biplane_wire::Operation;

use super::bodies;
use super::prng::Prng;

/// A partition as far as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Revision at its creation.
    pub created_revision: u64,
    /// Watermark.
    pub deleted_up_to: u64,
    /// Purges.
    pub purges: u64,
}

/// A consumer group: id, name, clients in order of their keys.
#[derive(Clone, Debug)]
pub struct Group {
    /// Id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Client by key; None for a key that is free.
    pub members: Vec<Option<u128>>,
}

/// A topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Partitions; the index is the id.
    pub partitions: Vec<Partition>,
    /// Groups.
    pub groups: Vec<Group>,
    /// Groups created so far.
    pub groups_made: u64,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Topics.
    pub topics: Vec<Topic>,
}

/// A user: id, name, whether it may do anything.
#[derive(Clone, Debug)]
pub struct User {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Token names.
    pub tokens: Vec<String>,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Streams in order of creation.
    pub streams: Vec<Stream>,
    /// Users but root, in order of creation.
    pub users: Vec<User>,
    /// Revision.
    pub revision: u64,
}

/// One random step: operation, body, and the code the model expects.
pub struct Step {
    /// Operation of the prepare.
    pub operation: Operation,
    /// Body of the prepare.
    pub body: Vec<u8>,
    /// Code.
    pub code: u32,
}

fn lowest_free(used: impl Iterator<Item = u32>) -> u32 {
    let used: Vec<u32> = used.collect();
    (0..)
        .find(|id| !used.contains(id))
        .expect("numbers do not end")
}

impl Model {
    fn step(operation: Operation, body: Vec<u8>, code: u32) -> Step {
        Step {
            operation,
            body,
            code,
        }
    }

    fn topic(&mut self, stream: u32, topic: u32) -> Result<&mut Topic, u32> {
        let found = self
            .streams
            .iter_mut()
            .find(|s| s.id == stream)
            .ok_or(1009_u32)?;
        found.topics.iter_mut().find(|t| t.id == topic).ok_or(2010)
    }

    /// Draws an operation, changes the model, and tells what the state must answer.
    pub fn random_step(&mut self, prng: &mut Prng) -> Step {
        match prng.below(18) {
            0 | 1 => self.create_stream(prng),
            2 => self.rename_stream(prng),
            3 => self.delete_stream(prng),
            4..=6 => self.create_topic(prng),
            7 => self.delete_topic(prng),
            8 => self.create_partitions(prng),
            9 => self.delete_partitions(prng),
            10 => self.purge(prng),
            11 => self.truncate(prng),
            12 => self.create_group(prng),
            13 => self.delete_group(prng),
            14 => self.join(prng),
            15 => self.leave(prng),
            16 => self.users(prng),
            _ => self.tokens(prng),
        }
    }

    fn create_stream(&mut self, prng: &mut Prng) -> Step {
        let name = format!("s{}", prng.below(6));
        let body = bodies::name(&name);
        if self.streams.iter().any(|stream| stream.name == name) {
            return Self::step(Operation::CreateStream, body, 1012);
        }
        let id = lowest_free(self.streams.iter().map(|stream| stream.id));
        self.streams.push(Stream {
            id,
            name,
            topics: Vec::new(),
        });
        Self::step(Operation::CreateStream, body, 0)
    }

    fn rename_stream(&mut self, prng: &mut Prng) -> Step {
        let (old, new) = (format!("s{}", prng.below(6)), format!("s{}", prng.below(6)));
        let body = bodies::cat(&[&bodies::named(&old), &bodies::name(&new)]);
        let code = if !self.streams.iter().any(|stream| stream.name == old) {
            1009
        } else if old != new && self.streams.iter().any(|stream| stream.name == new) {
            1012
        } else {
            0
        };
        if code == 0 {
            let found = self.streams.iter_mut().find(|stream| stream.name == old);
            found.expect("just seen").name = new;
        }
        Self::step(Operation::UpdateStream, body, code)
    }

    fn delete_stream(&mut self, prng: &mut Prng) -> Step {
        let id = prng.small(5);
        let before = self.streams.len();
        self.streams.retain(|stream| stream.id != id);
        let is_gone = self.streams.len() < before;
        self.revision += u64::from(is_gone);
        Self::step(
            Operation::DeleteStream,
            bodies::id(id),
            if is_gone { 0 } else { 1009 },
        )
    }

    fn create_topic(&mut self, prng: &mut Prng) -> Step {
        let (stream, count) = (prng.small(4), prng.small(4));
        let name = format!("t{}", prng.below(4));
        let body = bodies::plain_topic(stream, &name, count);
        let operation = Operation::CreateTopicWithAssignments;
        let Some(found) = self.streams.iter_mut().find(|s| s.id == stream) else {
            return Self::step(operation, body, 1009);
        };
        if found.topics.iter().any(|topic| topic.name == name) {
            return Self::step(operation, body, 2013);
        }
        self.revision += 1;
        let created_revision = self.revision;
        let partition = Partition {
            created_revision,
            deleted_up_to: 0,
            purges: 0,
        };
        let id = lowest_free(found.topics.iter().map(|topic| topic.id));
        let partitions = vec![partition; count as usize];
        found.topics.push(Topic {
            id,
            name,
            partitions,
            groups: Vec::new(),
            groups_made: 0,
        });
        Self::step(operation, body, 0)
    }

    fn delete_topic(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = (prng.small(4), prng.small(4));
        let body = bodies::cat(&[&bodies::id(stream), &bodies::id(topic)]);
        let code = self.topic(stream, topic).err().unwrap_or(0);
        if code == 0 {
            self.revision += 1;
            let found = self
                .streams
                .iter_mut()
                .find(|s| s.id == stream)
                .expect("just seen");
            found.topics.retain(|t| t.id != topic);
        }
        Self::step(Operation::DeleteTopic, body, code)
    }

    fn create_partitions(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, count) = (prng.small(4), prng.small(4), 1 + prng.small(3));
        let request = bodies::partitions(stream, &bodies::id(topic), count);
        let body = bodies::assigned_partitions(&request, count, 7, 0);
        let created_revision = self.revision + 1;
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => {
                let partition = Partition {
                    created_revision,
                    deleted_up_to: 0,
                    purges: 0,
                };
                found.partitions.extend(vec![partition; count as usize]);
                self.revision += 1;
                0
            }
        };
        Self::step(Operation::CreatePartitionsWithAssignments, body, code)
    }

    fn delete_partitions(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, count) = (prng.small(4), prng.small(4), 1 + prng.small(3));
        let body = bodies::partitions(stream, &bodies::id(topic), count);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) if found.partitions.len() < count as usize => 2019,
            Ok(found) => {
                found
                    .partitions
                    .truncate(found.partitions.len() - count as usize);
                self.revision += 1;
                0
            }
        };
        Self::step(Operation::DeletePartitions, body, code)
    }

    fn purge(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = (prng.small(4), prng.small(4));
        let body = bodies::cat(&[&bodies::id(stream), &bodies::id(topic)]);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => {
                for partition in &mut found.partitions {
                    partition.purges += 1;
                    partition.deleted_up_to = 0;
                }
                let any = !found.partitions.is_empty();
                self.revision += u64::from(any);
                0
            }
        };
        Self::step(Operation::PurgeTopic, body, code)
    }

    fn truncate(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, partition) = (prng.small(4), prng.small(4), prng.small(4));
        let up_to = prng.below(100);
        let body = bodies::truncate(stream, topic, partition, up_to);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => match found.partitions.get_mut(partition as usize) {
                None => 3007,
                Some(partition) => {
                    partition.deleted_up_to = partition.deleted_up_to.max(up_to);
                    self.revision += 1;
                    0
                }
            },
        };
        Self::step(Operation::TruncatePartition, body, code)
    }

    fn create_group(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = (prng.small(4), prng.small(4));
        let name = format!("g{}", prng.below(3));
        let body = bodies::create_group(stream, topic, &name);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) if found.groups.iter().any(|group| group.name == name) => 5004,
            Ok(found) => {
                let id = found.groups_made;
                found.groups_made += 1;
                found.groups.push(Group {
                    id,
                    name,
                    members: Vec::new(),
                });
                0
            }
        };
        Self::step(Operation::CreateConsumerGroup, body, code)
    }

    fn delete_group(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, group) = (prng.small(4), prng.small(4), prng.small(3));
        let body = bodies::group(stream, topic, group);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => {
                let before = found.groups.len();
                found.groups.retain(|g| g.id != u64::from(group));
                if found.groups.len() < before { 0 } else { 5000 }
            }
        };
        self.revision += u64::from(code == 0);
        Self::step(Operation::DeleteConsumerGroup, body, code)
    }

    fn join(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, group) = (prng.small(4), prng.small(4), prng.small(3));
        let client = u128::from(prng.below(5));
        let in_flight: Vec<u32> = (0..4).filter(|_| prng.below(2) == 0).collect();
        let body = bodies::join(stream, topic, group, client, &in_flight);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => match found.groups.iter_mut().find(|g| g.id == u64::from(group)) {
                None => 5000,
                Some(group) if group.members.contains(&Some(client)) => 0,
                Some(group) => {
                    match group.members.iter_mut().find(|slot| slot.is_none()) {
                        Some(slot) => *slot = Some(client),
                        None => group.members.push(Some(client)),
                    }
                    0
                }
            },
        };
        Self::step(Operation::JoinConsumerGroup, body, code)
    }

    fn leave(&mut self, prng: &mut Prng) -> Step {
        let client = u128::from(prng.below(5));
        if prng.below(3) == 0 {
            let mut any = false;
            let topics = self
                .streams
                .iter_mut()
                .flat_map(|stream| stream.topics.iter_mut());
            for group in topics.flat_map(|topic| topic.groups.iter_mut()) {
                for slot in group
                    .members
                    .iter_mut()
                    .filter(|slot| **slot == Some(client))
                {
                    *slot = None;
                    any = true;
                }
            }
            self.revision += u64::from(any);
            let body = client.to_le_bytes().to_vec();
            return Self::step(Operation::RemoveConsumerGroupMember, body, 0);
        }
        let (stream, topic, group) = (prng.small(4), prng.small(4), prng.small(3));
        let body = bodies::leave(stream, topic, group, client);
        let code = match self.topic(stream, topic) {
            Err(code) => code,
            Ok(found) => match found.groups.iter_mut().find(|g| g.id == u64::from(group)) {
                None => 5000,
                Some(group) => match group.members.iter_mut().find(|m| **m == Some(client)) {
                    None => 5006,
                    Some(slot) => {
                        *slot = None;
                        0
                    }
                },
            },
        };
        Self::step(Operation::LeaveConsumerGroup, body, code)
    }

    fn users(&mut self, prng: &mut Prng) -> Step {
        if prng.below(3) == 0 {
            let id = prng.small(4);
            let before = self.users.len();
            self.users.retain(|user| user.id != id);
            let code = match id {
                0 => 48,
                _ if self.users.len() < before => 0,
                _ => 20,
            };
            return Self::step(Operation::DeleteUser, bodies::id(id), code);
        }
        let name = format!("user{}", prng.below(4));
        let body = bodies::create_user(&name, "hash", 1, None);
        if self.users.iter().any(|user| user.name == name) {
            return Self::step(Operation::CreateUser, body, 46);
        }
        let used = self.users.iter().map(|user| user.id).chain([0]);
        let id = lowest_free(used);
        self.users.push(User {
            id,
            name,
            tokens: Vec::new(),
        });
        Self::step(Operation::CreateUser, body, 0)
    }

    fn tokens(&mut self, prng: &mut Prng) -> Step {
        let ids: Vec<u32> = self.users.iter().map(|user| user.id).collect();
        let Some(id) = ids.get(prng.below(4) as usize).copied() else {
            return self.users(prng);
        };
        let user = self
            .users
            .iter_mut()
            .find(|user| user.id == id)
            .expect("just seen");
        let name = format!("k{}", prng.below(3));
        let has = user.tokens.contains(&name);
        if prng.below(2) == 0 {
            user.tokens.retain(|token| *token != name);
            let body = bodies::delete_token(id, &name, false);
            let code = if has { 0 } else { 20 };
            return Self::step(Operation::DeletePersonalAccessToken, body, code);
        }
        let letter = char::from(b'a' + u8::try_from(prng.below(26)).expect("small"));
        let body = bodies::create_token(id, &name, prng.below(2) * 1_000, letter);
        if !has {
            user.tokens.push(name);
        }
        Self::step(
            Operation::CreatePersonalAccessToken,
            body,
            if has { 51 } else { 0 },
        )
    }
}
