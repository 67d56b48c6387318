//! O14: after healing, replicas are equal.
//!
//! All nodes run, each group is open everywhere in the same incarnation, applied exactly the
//! canonical log, and has the same digest of its state and of its sessions.

use std::collections::BTreeSet;

use biplane_vsr::TransferStage;
use biplane_wire::GroupId;

use super::{GroupKey, Look, Oracles, Violation};
use crate::machine::commit_min;

/// Why a group has not converged yet, or `None` when it has.
#[must_use]
pub fn waiting_for(looks: &[Look<'_>], oracles: &Oracles) -> Option<String> {
    let mut groups: BTreeSet<GroupId> = BTreeSet::new();
    for look in looks {
        let Some(machine) = look.machine else {
            return Some(format!("n{} is not running", look.node));
        };
        groups.extend(machine.groups());
    }
    let waits = |group| group_waits(looks, oracles, group);
    groups.into_iter().find_map(waits).map(|wait| wait.text)
}

/// A group whose replicas have nothing to do and are not the same: waiting will not help.
#[must_use]
pub fn diverged(looks: &[Look<'_>], oracles: &Oracles) -> Option<Violation> {
    let machines = looks.iter().filter_map(|look| look.machine);
    let groups: BTreeSet<GroupId> = machines.flat_map(|machine| machine.groups()).collect();
    groups.into_iter().find_map(|group| {
        let wait = group_waits(looks, oracles, group)?;
        let violation = Violation::new("O14 convergence", group, wait.text);
        wait.differs.then_some(violation)
    })
}

/// Why a group has not converged.
struct Wait {
    text: String,
    /// Its replicas are done and differ.
    differs: bool,
}

impl Wait {
    fn busy(text: String) -> Option<Self> {
        let differs = false;
        Some(Self { text, differs })
    }
}

fn group_waits(looks: &[Look<'_>], oracles: &Oracles, group: GroupId) -> Option<Wait> {
    let name = super::show_group(group);
    let mut primaries = 0;
    let mut digests = BTreeSet::new();
    for look in looks {
        let node = look.node;
        let machine = look.machine?;
        let (Some(facts), Some(replica)) = (machine.facts(group), machine.replica(group)) else {
            return Wait::busy(format!("n{node} has not opened {name}"));
        };
        let key = GroupKey::of_log(group, facts.incarnation, looks.len(), look.boot);
        let last = oracles
            .committed
            .canon(key)
            .map(super::committed::Canon::last);
        let status = replica.status();
        let applied = commit_min(machine, group);
        let exposed = oracles.is_exposed(group, facts.incarnation);
        let differs = applied != last.unwrap_or_default() && !exposed;
        if differs || status.commit_max != status.commit_min {
            return Wait::busy(format!("n{node} {name} is at {status:?} of {last:?}"));
        }
        if status.op_head != status.commit_max || status.requests_queued > 0 {
            return Wait::busy(format!("n{node} {name} has work in flight: {status:?}"));
        }
        if status.transfer_stage != TransferStage::Idle {
            return Wait::busy(format!(
                "n{node} {name} takes state from another: {status:?}"
            ));
        }
        primaries += u32::from(replica.is_caught_up_primary());
        let sessions = machine.sessions(group);
        digests.insert((key.incarnation, applied, machine.digest(group), sessions));
    }
    if primaries != 1 {
        return Wait::busy(format!("{name} has {primaries} primaries"));
    }
    if digests.len() != 1 {
        let text = format!("{name} differs between nodes: {digests:?}");
        let differs = true;
        return Some(Wait { text, differs });
    }
    None
}

/// Checks at the end what must hold on every node.
///
/// # Errors
///
/// The first claim that does not.
pub fn check(looks: &[Look<'_>], oracles: &mut Oracles) -> Result<(), Violation> {
    if let Some(text) = waiting_for(looks, oracles) {
        return Err(Violation {
            oracle: "O14 convergence",
            group: None,
            text,
        });
    }
    for look in looks {
        let Some(machine) = look.machine else {
            continue;
        };
        for group in machine.groups() {
            let Some(facts) = machine.facts(group) else {
                continue;
            };
            let key = GroupKey::of_log(group, facts.incarnation, looks.len(), look.boot);
            oracles.converged += 1;
            if oracles.is_exposed(group, facts.incarnation) {
                continue;
            }
            oracles
                .acknowledged
                .covered(look.node, key, commit_min(machine, group))?;
            held_entries_are_canonical(*look, key, oracles)?;
        }
    }
    Ok(())
}

fn held_entries_are_canonical(
    look: Look<'_>,
    key: GroupKey,
    oracles: &mut Oracles,
) -> Result<(), Violation> {
    let Some(replica) = look.machine.and_then(|machine| machine.replica(key.group)) else {
        return Ok(());
    };
    let Some(canon) = oracles.committed.canon(key) else {
        return Ok(());
    };
    for message in replica.log().iter() {
        let header: &biplane_wire::PrepareHeader = message.header();
        let canonical = canon.identity(header.op());
        if header.op() <= replica.commit_min() && canonical != Some(header.frame.checksum()) {
            let text = format!(
                "n{} holds {} below its commit point; canonical is {canonical:?}",
                look.node,
                super::committed::describe(header)
            );
            return Err(Violation::new("O14 convergence", key.group, text));
        }
        oracles.converged += 1;
    }
    Ok(())
}
