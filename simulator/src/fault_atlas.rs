//! Which records may be damaged on which node, decided in advance.
//!
//! Every record that a policy promises to keep has copies on a replication quorum at least.
//! Damage must hit fewer of them, so that what it takes can be recovered while all nodes are
//! reachable. Stripes of file positions are dealt out to the nodes: a stripe may go bad on one
//! node only. Superblocks are never damaged: a node that cannot trust its votes refuses to
//! start, and that is a scripted test.

use biplane_journal::DiskPath;
use biplane_wire::{GroupId, Op};

use crate::disk::SECTOR;
use crate::world::World;

/// Sectors per stripe: longer than most records, so that few records span two stripes.
const STRIPE: u64 = 16 * SECTOR;

/// Whether a file may be damaged at all.
#[must_use]
pub fn may_rot(path: &str) -> bool {
    path.ends_with("journal.wal")
}

/// Whether this node may lose the sector at `position` of a file.
#[must_use]
pub fn owns(seed: u64, replicas: u8, node: u8, path: &str, position: u64) -> bool {
    if replicas < 3 || !may_rot(path) {
        return false;
    }
    // The first and last sector of a stripe stay good on every node: a record that spans two
    // stripes would otherwise be exposed on two nodes.
    let within = position % STRIPE;
    let inner = (4 * SECTOR..STRIPE - 4 * SECTOR).contains(&within);
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(position / STRIPE).to_le_bytes());
    inner && biplane_wire::xxh3(&bytes) % u64::from(replicas) == u64::from(node)
}

/// A place on a node's disk where damage is allowed; `None` when the draw found none.
pub(crate) fn pick(world: &mut World, node: u8) -> Option<(DiskPath, u64)> {
    let seed = world.options.seed;
    let replicas = world.options.replicas;
    let mut files = world.nodes[usize::from(node)].disk.inventory();
    files.retain(|(path, len, _)| may_rot(path) && *len > 0);
    let (path, len, _) = world.fault_prng.pick(&files)?.clone();
    // Damage of the last record cannot be told from a torn tail by any reader of this format.
    let exposed = len.saturating_sub(world.options.rot_spares);
    for _ in 0..16 {
        let position = world.fault_prng.below(exposed);
        if exposed > 0 && owns(seed, replicas, node, &path, position) {
            return Some((DiskPath::new(&path).ok()?, position));
        }
    }
    None
}

/// Whether this node may lose the record of `op` of a group: one node may, for each op.
#[must_use]
pub fn owns_op(seed: u64, replicas: u8, node: u8, group: GroupId, op: Op) -> bool {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend_from_slice(&group.0.to_le_bytes());
    bytes.extend_from_slice(&op.0.to_le_bytes());
    replicas >= 3 && biplane_wire::xxh3(&bytes) % u64::from(replicas) == u64::from(node)
}

/// Whether this node may lose records of a group: one node may, for each group.
#[must_use]
pub fn owns_group(seed: u64, replicas: u8, node: u8, group: GroupId) -> bool {
    // No log has an op of that number.
    owns_op(seed, replicas, node, group, Op(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_go_bad_on_one_node_if_there_are_three() {
        for op in 0..100 {
            let owners = |replicas: u8| {
                let owns = |node: &u8| owns_op(1, replicas, *node, GroupId::METADATA, Op(op));
                (0..replicas).filter(owns).count()
            };
            assert_eq!((owners(2), owners(3), owners(5)), (0, 1, 1));
            let owns = |node: &u8| owns_group(op, 3, *node, GroupId::METADATA);
            assert_eq!((0..3).filter(owns).count(), 1);
        }
    }

    #[test]
    fn no_sector_may_go_bad_on_two_nodes_and_some_may_go_bad() {
        let mut allowed = 0;
        for position in (0..1_000_000).step_by(512) {
            let owners = (0..3).filter(|&node| owns(1, 3, node, "metadata/journal.wal", position));
            let owners = owners.count();
            assert!(owners <= 1);
            allowed += owners;
        }
        assert!(allowed > 100);
        assert!(!owns(1, 3, 0, "metadata/superblock.a", 4096));
        assert!((0..2).all(|node| !owns(1, 2, node, "metadata/journal.wal", 3000)));
    }
}
