//! Whom a partition asks next (chapter 04 section 3.8).

use biplane_wire::ReplicaId;

/// The primary of the view, unless it is this replica or just failed; then on along the ring.
pub(super) fn next_peer(
    own: ReplicaId,
    replica_count: u8,
    primary: ReplicaId,
    failed: Option<ReplicaId>,
) -> Option<ReplicaId> {
    if primary != own && Some(primary) != failed {
        return Some(primary);
    }
    if replica_count < 2 {
        return None;
    }
    let step = |replica: ReplicaId| {
        let next = (u16::from(replica.0) + 1) % u16::from(replica_count);
        ReplicaId(u8::try_from(next).unwrap_or(0))
    };
    let next = step(failed.unwrap_or(own));
    Some(if next == own { step(next) } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_primary_and_otherwise_goes_round() {
        let own = ReplicaId(1);
        let next = |count, primary, failed: Option<u8>| {
            next_peer(own, count, ReplicaId(primary), failed.map(ReplicaId)).map(|peer| peer.0)
        };
        assert_eq!(next(3, 0, None), Some(0));
        assert_eq!(next(3, 0, Some(2)), Some(0));
        assert_eq!(next(3, 0, Some(0)), Some(2));
        assert_eq!(next(3, 1, None), Some(2));
        assert_eq!(next(3, 1, Some(2)), Some(0));
        assert_eq!(next(2, 0, Some(0)), Some(0), "there is nobody else");
        assert_eq!(next(1, 1, None), None);
    }
}
