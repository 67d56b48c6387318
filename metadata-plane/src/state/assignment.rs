//! How the partitions of a topic are shared out among the members of a consumer group.
//!
//! Two algorithms exist and both are replicated behaviour: the eager one deals everything out
//! again, the cooperative one moves only what a newly joined member needs and leaves partitions
//! that are still being read with their owner until a revocation completes. The order of every
//! list is state: it decides which partitions are taken next time (protocol specification,
//! chapter 05, sections 6.4 to 6.6).

use std::collections::BTreeSet;

use super::groups::{Group, Member, Revocation};

/// Deals all `partitions` (ascending) out among the members in key order.
///
/// Raises the generation even where there is nobody to give anything to. Every list of owned
/// and of pending partitions is replaced.
pub(crate) fn assign_eager(group: &mut Group, partitions: &[u32]) {
    group.generation = group.generation.wrapping_add(1);
    for member in group.members.values_mut() {
        member.partitions.clear();
        member.pending.clear();
    }
    if group.members.is_empty() {
        return;
    }
    let keys: Vec<u32> = group.members.keys().copied().collect();
    for (partition, key) in partitions.iter().zip(keys.iter().cycle()) {
        if let Some(member) = group.members.get_mut(key) {
            member.partitions.push(*partition);
        }
    }
}

/// Shares partitions with members that own nothing after a join.
///
/// `partitions` are those of the topic, ascending; `in_flight` those a member may still be
/// working on, whose hand-over is only marked; `now` is the timestamp of the prepare in
/// microseconds and becomes the start of every revocation made here.
pub(crate) fn assign_cooperative(
    group: &mut Group,
    partitions: &[u32],
    in_flight: &BTreeSet<u32>,
    now: u64,
) {
    group.generation = group.generation.wrapping_add(1);
    if partitions.is_empty() || group.members.is_empty() {
        return;
    }
    give_unowned(group, partitions);
    let idle = idle_members(group);
    if idle.is_empty() {
        return;
    }
    let excess = collect_excess(group, partitions.len());
    for ((partition, source), target) in excess.into_iter().zip(idle.iter().copied().cycle()) {
        if in_flight.contains(&partition) {
            let created_at = now;
            if let Some(member) = group.members.get_mut(&source) {
                member.pending.push(Revocation {
                    partition,
                    target,
                    created_at,
                });
            }
        } else {
            transfer(group, partition, source, target);
        }
    }
}

/// Completes the revocation of `partition` by the member under key `source`.
///
/// Returns false and changes nothing where no such revocation is pending.
pub(crate) fn complete_revocation(group: &mut Group, source: u32, partition: u32) -> bool {
    let Some(member) = group.members.get_mut(&source) else {
        return false;
    };
    let Some(position) = member
        .pending
        .iter()
        .position(|entry| entry.partition == partition)
    else {
        return false;
    };
    let target = member.pending.remove(position).target;
    member.partitions.retain(|owned| *owned != partition);
    if let Some(member) = group.members.get_mut(&target) {
        member.partitions.push(partition);
        group.generation = group.generation.wrapping_add(1);
    } else {
        let mut union: BTreeSet<u32> = owned(group);
        union.insert(partition);
        let union: Vec<u32> = union.into_iter().collect();
        assign_eager(group, &union);
    }
    true
}

/// Partitions owned by any member of the group.
fn owned(group: &Group) -> BTreeSet<u32> {
    group
        .members
        .values()
        .flat_map(|member| member.partitions.iter().copied())
        .collect()
}

/// Appends partitions nobody owns to the members that own nothing, in turn.
fn give_unowned(group: &mut Group, partitions: &[u32]) {
    let taken = owned(group);
    let unowned: Vec<u32> = partitions
        .iter()
        .copied()
        .filter(|partition| !taken.contains(partition))
        .collect();
    let idle: Vec<u32> = group
        .members
        .iter()
        .filter(|(_, member)| member.partitions.is_empty())
        .map(|(key, _)| *key)
        .collect();
    for (partition, key) in unowned.into_iter().zip(idle.iter().cycle()) {
        if let Some(member) = group.members.get_mut(key) {
            member.partitions.push(partition);
        }
    }
}

/// Members that own nothing and are promised nothing, ascending by key.
fn idle_members(group: &Group) -> Vec<u32> {
    let promised: BTreeSet<u32> = group
        .members
        .values()
        .flat_map(|member| member.pending.iter().map(|entry| entry.target))
        .collect();
    group
        .members
        .iter()
        .filter(|(key, member)| member.partitions.is_empty() && !promised.contains(key))
        .map(|(key, _)| *key)
        .collect()
}

/// What members hold beyond their fair share, as (partition, member key), in the order in
/// which it is handed out.
fn collect_excess(group: &Group, partition_count: usize) -> Vec<(u32, u32)> {
    let members = group.members.len();
    let fair = partition_count / members;
    let mut remainder = partition_count % members;
    let mut excess = Vec::new();
    for (key, member) in &group.members {
        let effective = effective(member);
        let limit = if remainder > 0 { fair + 1 } else { fair };
        if effective.len() <= limit {
            if effective.len() > fair {
                remainder = remainder.saturating_sub(1);
            }
            continue;
        }
        remainder = remainder.saturating_sub(1);
        let surplus = effective.len() - limit;
        excess.extend(
            effective
                .iter()
                .rev()
                .take(surplus)
                .map(|partition| (*partition, *key)),
        );
    }
    excess
}

/// Owned partitions that are not promised to anyone, in list order.
fn effective(member: &Member) -> Vec<u32> {
    let pending: BTreeSet<u32> = member.pending.iter().map(|entry| entry.partition).collect();
    member
        .partitions
        .iter()
        .copied()
        .filter(|owned| !pending.contains(owned))
        .collect()
}

/// Moves one partition from the list of `source` to the end of the list of `target`.
fn transfer(group: &mut Group, partition: u32, source: u32, target: u32) {
    if let Some(member) = group.members.get_mut(&source) {
        member.partitions.retain(|owned| *owned != partition);
    }
    if let Some(member) = group.members.get_mut(&target) {
        member.partitions.push(partition);
    }
}
