//! Whether clients keep this node busy: feeding a peer then has to leave room for them.

use biplane_wire::ReplicaFrame;

use crate::io::Input;

/// Ticks between two looks, and the requests in between from which on a node is busy: a hundred
/// a second.
const LOOK_TICKS: u64 = 10;
const BUSY: u64 = 10;

/// Work that clients brought, here or at a primary elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Load {
    seen: u64,
    bytes: u64,
    /// Bytes that came in a tick of late, while the node is busy.
    rate: Option<u64>,
}

impl Load {
    /// Counts an input that comes of a client's request.
    pub(crate) fn note(&mut self, input: &Input) {
        let size = match input {
            Input::Submit { request, .. } => request.size(),
            Input::Poll { .. } => 0,
            Input::Frame {
                frame: ReplicaFrame::Prepare(prepare),
                ..
            } => prepare.message().size(),
            _ => return,
        };
        self.seen += 1;
        self.bytes += size as u64;
    }

    /// How many bytes of new messages come in a tick, or `None` while the node is not busy;
    /// called in every tick.
    pub(crate) fn look(&mut self, now: u64) -> Option<u64> {
        if now.is_multiple_of(LOOK_TICKS) {
            let (seen, bytes) = (
                std::mem::take(&mut self.seen),
                std::mem::take(&mut self.bytes),
            );
            self.rate = (seen >= BUSY).then_some(bytes / LOOK_TICKS);
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::GroupId;

    use super::*;

    #[test]
    fn a_node_is_busy_while_requests_keep_coming() {
        let group = GroupId::partition(1, 1, 1).expect("a small id");
        let key = crate::ConsumerKey::Consumer(1);
        let (mut load, mut now) = (Load::default(), 0);
        let mut looks = |load: &mut Load| {
            now += LOOK_TICKS;
            (load.look(now - 1), load.look(now))
        };
        for _ in 0..2 * BUSY {
            load.note(&Input::Tick { wall_micros: 1 });
            load.note(&Input::GetOffset {
                token: 1,
                group,
                key,
            });
        }
        assert_eq!(looks(&mut load), (None, None), "that is no work");
        for token in 0..BUSY {
            let query = crate::PollQuery {
                key,
                strategy: crate::Strategy::First,
                count: 1,
                auto_commit: false,
                primary_only: false,
            };
            load.note(&Input::Poll {
                token,
                group,
                query,
            });
        }
        assert_eq!(looks(&mut load), (None, Some(0)));
        assert_eq!(looks(&mut load), (Some(0), None));
    }
}
