//! Whom to ask, and whom to ask next (chapter 04 section 2.12 rule 4).
//!
//! A backup prefers the primary of its view, because only the primary can follow up with a
//! state transfer; when that one just failed, the ring goes on. A primary-elect asks those who
//! said in their votes that they hold the bodies.

use biplane_wire::ReplicaId;

/// The peer for a session of a backup or of a primary with a gap; `None` in a cluster of one.
pub(crate) fn next_peer(
    own: ReplicaId,
    replica_count: u8,
    primary: ReplicaId,
    hint: Option<ReplicaId>,
    failed: Option<ReplicaId>,
) -> Option<ReplicaId> {
    let usable = |peer: &ReplicaId| *peer != own && peer.0 < replica_count && Some(*peer) != failed;
    if let Some(peer) = hint.filter(usable) {
        return Some(peer);
    }
    if usable(&primary) {
        return Some(primary);
    }
    ring_successor(failed.unwrap_or(own), own, replica_count)
}

/// The source a primary-elect asks after `failed`: the next in the list, which is best first.
pub(crate) fn next_source(
    own: ReplicaId,
    sources: &[ReplicaId],
    failed: Option<ReplicaId>,
) -> Option<ReplicaId> {
    let others = || sources.iter().copied().filter(|source| *source != own);
    let after = failed.and_then(|failed| {
        let position = others().position(|source| source == failed)?;
        others().nth(position + 1)
    });
    after.or_else(|| others().next())
}

fn ring_successor(after: ReplicaId, own: ReplicaId, replica_count: u8) -> Option<ReplicaId> {
    if replica_count < 2 {
        return None;
    }
    let step = |replica: ReplicaId| {
        let next = (u16::from(replica.0) + 1) % u16::from(replica_count);
        ReplicaId(u8::try_from(next).unwrap_or(0))
    };
    let next = step(after);
    Some(if next == own { step(next) } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ReplicaId = ReplicaId(1);

    fn peer(count: u8, primary: u8, hint: Option<u8>, failed: Option<u8>) -> Option<u8> {
        let id = |replica: Option<u8>| replica.map(ReplicaId);
        next_peer(OWN, count, ReplicaId(primary), id(hint), id(failed)).map(|peer| peer.0)
    }

    #[test]
    fn backup_prefers_the_hint_then_the_primary_then_the_ring() {
        assert_eq!(peer(3, 0, Some(2), None), Some(2));
        assert_eq!(peer(3, 0, None, None), Some(0));
        assert_eq!(
            peer(3, 0, None, Some(0)),
            Some(2),
            "the successor of 0 is this replica"
        );
        assert_eq!(peer(3, 0, None, Some(2)), Some(0));
        assert_eq!(peer(3, 0, Some(1), None), Some(0), "never itself");
        assert_eq!(
            peer(3, 0, Some(9), None),
            Some(0),
            "nobody outside the roster"
        );
        assert_eq!(peer(5, 0, None, Some(0)), Some(2));
        assert_eq!(peer(5, 4, None, Some(4)), Some(0));
    }

    #[test]
    fn primary_with_a_gap_walks_the_ring() {
        assert_eq!(peer(3, 1, None, None), Some(2));
        assert_eq!(peer(3, 1, None, Some(2)), Some(0));
        assert_eq!(peer(3, 1, None, Some(0)), Some(2));
    }

    #[test]
    fn two_replicas_have_no_choice_and_one_has_nobody() {
        assert_eq!(peer(2, 0, None, Some(0)), Some(0));
        assert_eq!(
            peer(1, 0, None, None),
            Some(0),
            "a primary that is not this replica"
        );
        assert_eq!(peer(1, 1, None, None), None);
    }

    #[test]
    fn elect_goes_round_its_sources() {
        let sources = [ReplicaId(4), ReplicaId(1), ReplicaId(2)];
        let next = |failed: Option<u8>| {
            next_source(OWN, &sources, failed.map(ReplicaId)).map(|source| source.0)
        };
        assert_eq!(next(None), Some(4));
        assert_eq!(next(Some(4)), Some(2), "its own vote is no source");
        assert_eq!(next(Some(2)), Some(4));
        assert_eq!(next(Some(3)), Some(4), "a source that is none any more");
        assert_eq!(next_source(OWN, &[OWN], None), None);
    }
}
