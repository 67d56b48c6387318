//! A naive model of the metadata: lists that are searched from the front, no indexes.
//!
//! Each operation is issued by somebody; what this user may do is looked up in the grants
//! ([`grants`]) after what the operation names has been found.

pub mod accounts;
pub mod grants;

use biplane_wire::Operation;

use super::bodies;
use super::prng::Prng;
use accounts::{TokenList, User};
use grants::{
    CREATE_STREAM, CREATE_TOPIC, MANAGE_STREAM, MANAGE_TOPIC, READ_TOPIC, Rule, satisfies,
};

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

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    /// Streams in order of creation.
    pub streams: Vec<Stream>,
    /// Users in order of creation; the first is root.
    pub users: Vec<User>,
    /// Tokens by owner.
    pub tokens: Vec<TokenList>,
    /// Revision.
    pub revision: u64,
    /// Who issues the operation that is being drawn.
    actor: u32,
}

/// One random step: operation, body, and the code the model expects.
pub struct Step {
    /// Operation of the prepare.
    pub operation: Operation,
    /// User who issues it.
    pub user_id: u32,
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
    /// Root alone.
    pub fn new() -> Self {
        Self {
            streams: Vec::new(),
            users: vec![User::root()],
            tokens: Vec::new(),
            revision: 0,
            actor: 0,
        }
    }

    fn step(&self, operation: Operation, body: Vec<u8>, code: u32) -> Step {
        Step {
            operation,
            user_id: self.actor,
            body,
            code,
        }
    }

    /// Whether a user's grants satisfy a rule. A user that is gone has none.
    pub fn grants(&self, user: u32, rule: Rule, stream: u32, topic: u32) -> bool {
        self.user(user)
            .and_then(|user| user.grants.as_ref())
            .is_some_and(|grants| satisfies(grants, rule, stream, topic))
    }

    /// Whether the rule keeps the acting user from what was found. Nothing is kept from root.
    fn denies(&self, rule: Rule, stream: u32, topic: u32) -> bool {
        self.actor != 0 && !self.grants(self.actor, rule, stream, topic)
    }

    /// As [`Model::topic`], for a user who needs `rule` on it: 41 where what is named exists.
    fn topic_for(&mut self, rule: Rule, stream: u32, topic: u32) -> Result<&mut Topic, u32> {
        let is_denied = self.denies(rule, stream, topic);
        let found = self.topic(stream, topic)?;
        if is_denied { Err(41) } else { Ok(found) }
    }

    fn topic(&mut self, stream: u32, topic: u32) -> Result<&mut Topic, u32> {
        let found = self
            .streams
            .iter_mut()
            .find(|s| s.id == stream)
            .ok_or(1009_u32)?;
        found.topics.iter_mut().find(|t| t.id == topic).ok_or(2010)
    }

    /// A topic, every other time one that exists, if any does.
    fn draw_topic(&self, prng: &mut Prng) -> (u32, u32) {
        let topics = self
            .streams
            .iter()
            .flat_map(|stream| stream.topics.iter().map(|topic| (stream.id, topic.id)));
        Self::draw(prng, topics.collect(), |prng| {
            (prng.small(4), prng.small(4))
        })
    }

    /// The same of consumer groups.
    fn draw_group(&self, prng: &mut Prng) -> (u32, u32, u32) {
        let mut groups = Vec::new();
        for stream in &self.streams {
            for topic in &stream.topics {
                let of_topic = topic.groups.iter().map(|group| group.id);
                groups.extend(of_topic.map(|id| (stream.id, topic.id, id as u32)));
            }
        }
        Self::draw(prng, groups, |prng| {
            (prng.small(4), prng.small(4), prng.small(3))
        })
    }

    fn draw<T: Copy>(prng: &mut Prng, known: Vec<T>, any: impl Fn(&mut Prng) -> T) -> T {
        let index = prng.below(2 * known.len().max(1) as u64) as usize;
        known.get(index).copied().unwrap_or_else(|| any(prng))
    }

    /// Draws an operation, changes the model, and tells what the state must answer.
    ///
    /// Half of the operations come from root, the others from users that exist, do not yet, or
    /// no longer.
    pub fn random_step(&mut self, prng: &mut Prng, now: u64) -> Step {
        self.actor = match prng.below(2) {
            0 => 0,
            _ => 1 + prng.small(5),
        };
        match prng.below(23) {
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
            16 => self.purge_stream(prng),
            17 => self.rename_topic(prng),
            18..=20 => self.accounts(prng),
            _ => self.own_tokens(prng, now),
        }
    }

    fn create_stream(&mut self, prng: &mut Prng) -> Step {
        let name = format!("s{}", prng.below(6));
        let body = bodies::name(&name);
        if self.denies(CREATE_STREAM, 0, 0) {
            return self.step(Operation::CreateStream, body, 41);
        }
        if self.streams.iter().any(|stream| stream.name == name) {
            return self.step(Operation::CreateStream, body, 1012);
        }
        let id = lowest_free(self.streams.iter().map(|stream| stream.id));
        self.streams.push(Stream {
            id,
            name,
            topics: Vec::new(),
        });
        self.step(Operation::CreateStream, body, 0)
    }

    fn rename_stream(&mut self, prng: &mut Prng) -> Step {
        let (old, new) = (format!("s{}", prng.below(6)), format!("s{}", prng.below(6)));
        let body = bodies::cat(&[&bodies::named(&old), &bodies::name(&new)]);
        let found = self.streams.iter().find(|stream| stream.name == old);
        let code = if found.is_none() {
            1009
        } else if found.is_some_and(|stream| self.denies(MANAGE_STREAM, stream.id, 0)) {
            41
        } else if old != new && self.streams.iter().any(|stream| stream.name == new) {
            1012
        } else {
            0
        };
        if code == 0 {
            let found = self.streams.iter_mut().find(|stream| stream.name == old);
            found.expect("just seen").name = new;
        }
        self.step(Operation::UpdateStream, body, code)
    }

    fn delete_stream(&mut self, prng: &mut Prng) -> Step {
        let id = prng.small(5);
        let code = if !self.streams.iter().any(|stream| stream.id == id) {
            1009
        } else if self.denies(MANAGE_STREAM, id, 0) {
            41
        } else {
            self.streams.retain(|stream| stream.id != id);
            self.revision += 1;
            0
        };
        self.step(Operation::DeleteStream, bodies::id(id), code)
    }

    fn purge_stream(&mut self, prng: &mut Prng) -> Step {
        let id = prng.small(5);
        let is_denied = self.denies(MANAGE_STREAM, id, 0);
        let code = match self.streams.iter_mut().find(|stream| stream.id == id) {
            None => 1009,
            Some(_) if is_denied => 41,
            Some(stream) => {
                let mut any = false;
                for partition in stream.topics.iter_mut().flat_map(|t| &mut t.partitions) {
                    partition.purges += 1;
                    partition.deleted_up_to = 0;
                    any = true;
                }
                self.revision += u64::from(any);
                0
            }
        };
        self.step(Operation::PurgeStream, bodies::id(id), code)
    }

    fn rename_topic(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let name = format!("t{}", prng.below(5));
        let body = bodies::cat(&[
            &bodies::id(stream),
            &bodies::id(topic),
            &bodies::name(&name),
        ]);
        let is_taken = self
            .streams
            .iter()
            .filter(|other| other.id == stream)
            .flat_map(|stream| &stream.topics)
            .any(|other| other.id != topic && other.name == name);
        let code = match self.topic_for(MANAGE_TOPIC, stream, topic) {
            Err(code) => code,
            Ok(_) if is_taken => 2013,
            Ok(found) => {
                found.name = name;
                0
            }
        };
        self.step(Operation::UpdateTopic, body, code)
    }

    fn create_topic(&mut self, prng: &mut Prng) -> Step {
        let (stream, count) = (prng.small(4), prng.small(4));
        let name = format!("t{}", prng.below(4));
        let body = bodies::plain_topic(stream, &name, count);
        let operation = Operation::CreateTopicWithAssignments;
        let is_denied = self.denies(CREATE_TOPIC, stream, 0);
        let Some(found) = self.streams.iter_mut().find(|s| s.id == stream) else {
            return self.step(operation, body, 1009);
        };
        if is_denied {
            return self.step(operation, body, 41);
        }
        if found.topics.iter().any(|topic| topic.name == name) {
            return self.step(operation, body, 2013);
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
        self.step(operation, body, 0)
    }

    fn delete_topic(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let body = bodies::cat(&[&bodies::id(stream), &bodies::id(topic)]);
        let found = self.topic_for(MANAGE_TOPIC, stream, topic);
        let code = found.err().unwrap_or(0);
        if code == 0 {
            self.revision += 1;
            let found = self
                .streams
                .iter_mut()
                .find(|s| s.id == stream)
                .expect("just seen");
            found.topics.retain(|t| t.id != topic);
        }
        self.step(Operation::DeleteTopic, body, code)
    }

    fn create_partitions(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let count = 1 + prng.small(3);
        let request = bodies::partitions(stream, &bodies::id(topic), count);
        let body = bodies::assigned_partitions(&request, count, 7, 0);
        let created_revision = self.revision + 1;
        let code = match self.topic_for(MANAGE_TOPIC, stream, topic) {
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
        self.step(Operation::CreatePartitionsWithAssignments, body, code)
    }

    fn delete_partitions(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let count = 1 + prng.small(3);
        let body = bodies::partitions(stream, &bodies::id(topic), count);
        let code = match self.topic_for(MANAGE_TOPIC, stream, topic) {
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
        self.step(Operation::DeletePartitions, body, code)
    }

    fn purge(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let body = bodies::cat(&[&bodies::id(stream), &bodies::id(topic)]);
        let code = match self.topic_for(MANAGE_TOPIC, stream, topic) {
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
        self.step(Operation::PurgeTopic, body, code)
    }

    fn truncate(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let partition = prng.small(4);
        let up_to = prng.below(100);
        let body = bodies::truncate(stream, topic, partition, up_to);
        let code = match self.topic_for(MANAGE_TOPIC, stream, topic) {
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
        self.step(Operation::TruncatePartition, body, code)
    }

    fn create_group(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic) = self.draw_topic(prng);
        let name = format!("g{}", prng.below(3));
        let body = bodies::create_group(stream, topic, &name);
        let code = match self.topic_for(READ_TOPIC, stream, topic) {
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
        self.step(Operation::CreateConsumerGroup, body, code)
    }

    fn delete_group(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, group) = self.draw_group(prng);
        let body = bodies::group(stream, topic, group);
        let code = match self.topic_for(READ_TOPIC, stream, topic) {
            Err(code) => code,
            Ok(found) => {
                let before = found.groups.len();
                found.groups.retain(|g| g.id != u64::from(group));
                if found.groups.len() < before { 0 } else { 5000 }
            }
        };
        self.revision += u64::from(code == 0);
        self.step(Operation::DeleteConsumerGroup, body, code)
    }

    fn join(&mut self, prng: &mut Prng) -> Step {
        let (stream, topic, group) = self.draw_group(prng);
        let client = u128::from(prng.below(5));
        let in_flight: Vec<u32> = (0..4).filter(|_| prng.below(2) == 0).collect();
        let body = bodies::join(stream, topic, group, client, &in_flight);
        let code = match self.topic_for(READ_TOPIC, stream, topic) {
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
        self.step(Operation::JoinConsumerGroup, body, code)
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
            return self.step(Operation::RemoveConsumerGroupMember, body, 0);
        }
        let (stream, topic, group) = self.draw_group(prng);
        let members = self
            .topic(stream, topic)
            .ok()
            .and_then(|found| found.groups.iter().find(|g| g.id == u64::from(group)))
            .map_or(Vec::new(), |group| {
                group.members.iter().flatten().copied().collect()
            });
        let client = Self::draw(prng, members, |_| client);
        let body = bodies::leave(stream, topic, group, client);
        let code = match self.topic_for(READ_TOPIC, stream, topic) {
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
        self.step(Operation::LeaveConsumerGroup, body, code)
    }
}
