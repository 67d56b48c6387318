//! A machine of bare consensus groups: the cores and the journal with the smallest plane.
//!
//! One metadata group and a few partition groups, some acknowledged from memory and some from
//! disk. The applied state is the list of identities; nothing is ever evicted, so that every
//! gap can be repaired and no state is transferred. Protocol rules are all in the cores; here
//! their outputs become disk requests and completions become inputs.

mod group;
mod store;

use std::collections::BTreeMap;

use biplane_journal::{DiskView, QueueId};
use biplane_vsr::{Durability, Replica};
use biplane_wire::{ClusterId, GroupId, Operation};

use self::group::BareGroup;
use crate::machine::{Answer, Call, Cause, Effect, GroupFacts, Machine};

/// What a bare node is made from.
#[derive(Clone, Debug)]
pub struct BareConfig {
    /// This replica.
    pub replica: u8,
    /// Members of the cluster.
    pub replica_count: u8,
    /// The groups and what acknowledging in them promises.
    pub groups: Vec<(GroupId, Durability)>,
    /// Intervals.
    pub timers: biplane_vsr::Timers,
    /// Sizes.
    pub limits: biplane_vsr::Limits,
    /// Another one at every boot.
    pub seed: u64,
}

/// The cluster every simulation runs.
#[must_use]
pub fn cluster() -> ClusterId {
    ClusterId(0x0062_6970_6c61_6e65_2073_696d)
}

/// Groups of a bare world: metadata, and partitions of alternating policy.
#[must_use]
pub fn bare_groups(partitions: u32) -> Vec<(GroupId, Durability)> {
    let mut groups = vec![(GroupId::METADATA, Durability::Disk)];
    for partition in 0..partitions {
        let policy = if partition % 2 == 0 {
            Durability::Memory
        } else {
            Durability::Disk
        };
        groups.extend(GroupId::partition(1, 1, partition).map(|group| (group, policy)));
    }
    groups
}

/// A node of bare groups.
#[derive(Debug)]
pub struct BareNode {
    groups: BTreeMap<GroupId, BareGroup>,
    wall_micros: u64,
    ticks: u64,
    steps: u64,
    /// What the last step touched.
    touched: Touched,
}

/// Ticks between two checks of groups that nothing else touches, and steps between two checks of
/// what a group has on its disk.
const CHECK_EVERY: u64 = 8;

/// The groups a step can have changed.
#[derive(Clone, Copy, Debug)]
enum Touched {
    All,
    One(GroupId),
    Nothing,
}

impl BareNode {
    /// Opens every group from what the disk holds.
    ///
    /// # Errors
    ///
    /// The reason for which a group cannot be opened, as text.
    pub fn open(
        config: &BareConfig,
        disk: &dyn DiskView,
        out: &mut Vec<Effect>,
    ) -> Result<Self, String> {
        let mut groups = BTreeMap::new();
        for (index, &(group, durability)) in config.groups.iter().enumerate() {
            let opened = BareGroup::open(config, index as u64, group, durability, disk, out)?;
            groups.insert(group, opened);
        }
        Ok(Self {
            groups,
            wall_micros: 0,
            ticks: 0,
            steps: 0,
            touched: Touched::All,
        })
    }

    fn group_of_queue(&mut self, queue: QueueId) -> Option<(GroupId, &mut BareGroup)> {
        let mut groups = self.groups.iter_mut();
        let (id, group) = groups.find(|(_, group)| group.owns(queue))?;
        Some((*id, group))
    }

    fn call(&mut self, token: u64, call: Call, out: &mut Vec<Effect>) {
        let wall_micros = self.wall_micros;
        match call {
            Call::Request {
                group,
                client,
                session,
                request,
                operation,
                body,
                ..
            } => {
                let Some(found) = self.groups.get_mut(&group) else {
                    let answer = Answer::Transient {
                        maybe: false,
                        code: 58,
                    };
                    out.push(Effect::Answer { token, answer });
                    return;
                };
                let header = group::routed(group, client, session, request, operation, &body);
                found.submit(token, header, wall_micros, out);
            }
            _ => out.push(Effect::Answer {
                token,
                answer: Answer::Refused(3),
            }),
        }
    }
}

impl Machine for BareNode {
    fn step(&mut self, cause: Cause, _disk: &dyn DiskView, out: &mut Vec<Effect>) {
        self.steps += 1;
        match cause {
            Cause::Tick { wall_micros } => {
                self.wall_micros = wall_micros;
                self.ticks += 1;
                // Most ticks change nothing.
                self.touched = if self.ticks.is_multiple_of(CHECK_EVERY) {
                    Touched::All
                } else {
                    Touched::Nothing
                };
                self.groups
                    .values_mut()
                    .for_each(|group| group.tick(wall_micros, out));
            }
            Cause::Frame { frame, .. } => {
                self.touched = Touched::One(frame.group());
                if let Some(group) = self.groups.get_mut(&frame.group()) {
                    group.frame(*frame, out);
                }
            }
            Cause::Disk(completion) => {
                if let Some((id, group)) = self.group_of_queue(completion.queue) {
                    group.disk(completion, out);
                    self.touched = Touched::One(id);
                }
            }
            Cause::Peer { peer, connected } => {
                self.touched = Touched::All;
                self.groups
                    .values_mut()
                    .for_each(|group| group.peer(peer, connected, out));
            }
            Cause::Call { token, call } => {
                self.touched = Touched::All;
                self.call(token, *call, out);
            }
            Cause::Flush => {}
        }
    }

    fn groups(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    fn replica(&self, group: GroupId) -> Option<&Replica> {
        self.groups.get(&group).map(BareGroup::replica)
    }

    fn durability(&self, group: GroupId, _operation: Operation) -> Durability {
        self.groups
            .get(&group)
            .map_or(Durability::Memory, BareGroup::durability)
    }

    fn facts(&self, group: GroupId) -> Option<GroupFacts> {
        self.groups.get(&group).map(BareGroup::facts)
    }

    fn digest(&self, group: GroupId) -> u64 {
        self.groups.get(&group).map_or(0, BareGroup::digest)
    }

    fn describe(&self, group: GroupId) -> String {
        format!("digest {:016x}", self.digest(group))
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn check_invariants(&self) {
        let with_files = self.steps.is_multiple_of(CHECK_EVERY);
        let check = |group: &BareGroup| group.check_invariants(with_files);
        match self.touched {
            Touched::All => self.groups.values().for_each(check),
            Touched::One(group) => self.groups.get(&group).into_iter().for_each(check),
            Touched::Nothing => {}
        }
    }
}
