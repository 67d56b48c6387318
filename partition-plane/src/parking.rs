//! Frames and requests for partitions that are not materialised here yet (chapter 03 section 13,
//! chapter 06 section 2.3).
//!
//! Nodes apply the creation of a partition at different times, so a primary may prepare before a
//! backup has the group. What arrives early waits within budgets: a refused prepare is dropped
//! and repaired later, a refused request is answered.

use std::collections::BTreeMap;

use biplane_wire::{FrameBuffer, GroupId, ReplicaFrame, ReplicaId, RoutedRequestHeader};

use crate::io::{Output, Outputs};
use crate::limits::Limits;
use crate::{reply, status};

/// Granularity in which a parked frame counts against the budgets.
const FOOTPRINT: usize = 4096;

/// Something that waits for its group.
#[derive(Debug)]
pub(crate) enum Parked {
    /// A prepare of a peer.
    Frame {
        from: ReplicaId,
        frame: ReplicaFrame,
    },
    /// A request of a client.
    Request {
        token: u64,
        request: FrameBuffer,
        passes: u32,
    },
}

impl Parked {
    fn footprint(&self) -> usize {
        let size = match self {
            Self::Frame { frame, .. } => frame.message().size(),
            Self::Request { request, .. } => request.size(),
        };
        size.next_multiple_of(FOOTPRINT)
    }
}

#[derive(Debug, Default)]
struct Lot {
    parked: Vec<Parked>,
    bytes: usize,
}

/// Everything parked on this node.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    lots: BTreeMap<GroupId, Lot>,
    bytes: usize,
}

impl Parking {
    /// Parks something for `group`, or gives it back when a budget is spent. A group without
    /// anything parked always has room for one, however large.
    pub(crate) fn park(
        &mut self,
        group: GroupId,
        parked: Parked,
        limits: &Limits,
    ) -> Result<(), Parked> {
        let lot = self.lots.get(&group);
        let (count, bytes) = lot.map_or((0, 0), |lot| (lot.parked.len(), lot.bytes));
        let group_is_full = count >= limits.park_frames || bytes >= limits.park_bytes_group;
        if count > 0 && group_is_full || self.bytes >= limits.park_bytes {
            return Err(parked);
        }
        let footprint = parked.footprint();
        self.bytes += footprint;
        let lot = self.lots.entry(group).or_default();
        lot.bytes += footprint;
        lot.parked.push(parked);
        Ok(())
    }

    /// Takes out what waits for `group`, in the order of arrival.
    pub(crate) fn take(&mut self, group: GroupId) -> Vec<Parked> {
        let Some(lot) = self.lots.remove(&group) else {
            return Vec::new();
        };
        self.bytes -= lot.bytes;
        lot.parked
    }

    /// One reconciler pass: requests that waited through too many are given back.
    pub(crate) fn pass(&mut self, limits: &Limits) -> Vec<(GroupId, u64, FrameBuffer)> {
        let mut expired = Vec::new();
        for (group, lot) in &mut self.lots {
            let mut kept = Vec::with_capacity(lot.parked.len());
            for mut parked in lot.parked.drain(..) {
                if let Parked::Request { passes, .. } = &mut parked {
                    *passes += 1;
                }
                match parked {
                    Parked::Request {
                        token,
                        request,
                        passes,
                    } if passes > limits.park_passes => {
                        let footprint = request.size().next_multiple_of(FOOTPRINT);
                        lot.bytes -= footprint;
                        self.bytes -= footprint;
                        expired.push((*group, token, request));
                    }
                    kept_one => kept.push(kept_one),
                }
            }
            lot.parked = kept;
        }
        self.lots.retain(|_, lot| !lot.parked.is_empty());
        expired
    }

    /// Bytes parked in all.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Answers a request whose group is not there to do it.
pub(crate) fn refuse_without_group(token: u64, request: &FrameBuffer, out: &mut Outputs) {
    let header = request.header::<RoutedRequestHeader>();
    let status = status::NOT_ACCEPTED;
    let message = reply::refused_without_group(header, status);
    out.push(Output::Reply {
        token,
        status,
        message,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(token: u64, size: usize) -> Parked {
        Parked::Request {
            token,
            request: FrameBuffer::zeroed(size),
            passes: 0,
        }
    }

    fn group(n: u32) -> GroupId {
        GroupId::partition(0, 0, n).unwrap()
    }

    #[test]
    fn budgets_hold_and_one_large_frame_always_fits_an_empty_lot() {
        let limits = Limits {
            park_frames: 3,
            park_bytes_group: 3 * FOOTPRINT,
            park_bytes: 6 * FOOTPRINT,
            ..Limits::tiny()
        };
        let mut parking = Parking::default();
        parking
            .park(group(1), request(1, 4 * FOOTPRINT), &limits)
            .unwrap();
        assert!(parking.park(group(1), request(2, 300), &limits).is_err());
        parking.park(group(2), request(3, 300), &limits).unwrap();
        parking.park(group(2), request(4, 300), &limits).unwrap();
        assert_eq!(parking.bytes(), 6 * FOOTPRINT);
        assert!(parking.park(group(3), request(5, 300), &limits).is_err());
        assert_eq!(parking.take(group(1)).len(), 1);
        parking.park(group(2), request(6, 300), &limits).unwrap();
        assert!(parking.park(group(2), request(7, 300), &limits).is_err());
        assert_eq!(parking.take(group(2)).len(), 3);
        assert_eq!(parking.bytes(), 0);
    }

    #[test]
    fn requests_expire_after_the_passes() {
        let limits = Limits::tiny();
        let mut parking = Parking::default();
        parking.park(group(1), request(7, 300), &limits).unwrap();
        for _ in 0..limits.park_passes {
            assert!(parking.pass(&limits).is_empty());
        }
        let expired = parking.pass(&limits);
        assert_eq!(
            expired
                .iter()
                .map(|(_, token, _)| *token)
                .collect::<Vec<_>>(),
            [7]
        );
        assert_eq!(parking.bytes(), 0);
        assert!(parking.take(group(1)).is_empty());
    }
}
