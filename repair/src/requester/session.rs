//! One repair session: a window of ops asked of one peer under one nonce.

use biplane_wire::{
    ClusterId, Command, GroupId, Message, Op, ReplicaId, RequestPreparesHeader, View,
};

use crate::connect::{Evidence, HeldOp};
use crate::view::NeedKind;

/// A range the peer cannot serve, and the case for doing without it.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    /// One below the first op the peer retains, at most the known commit point.
    pub(super) op: Op,
    pub(super) evidence: Evidence,
    /// The lowest op above that is still missing, where the next chunk starts.
    pub(super) resume_at: Option<Op>,
}

/// An open session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) nonce: u128,
    pub(super) peer: ReplicaId,
    pub(super) kind: NeedKind,
    /// The view in which it was opened; it does not outlive it.
    pub(super) view: View,
    /// First op of the window when the session was opened.
    pub(super) opened_at: Op,
    /// First op of the last request.
    pub(super) from: Op,
    /// Last op of the window.
    pub(super) to: Op,
    /// Ticks since the last usable frame or request.
    pub(super) idle: u32,
    /// Retries since the last progress.
    pub(super) stalled_rounds: u32,
    /// Ops stored since the last request: what "progress" means.
    pub(super) stored_in_round: u64,
    /// The applied point at the last request; its rise is progress as well.
    pub(super) commit_min_in_round: Op,
    /// What the peer no longer has, and what was seen above it (partition).
    pub(super) floor: Option<Floor>,
    /// The floor was raised on our word; the next chunk is due once the owner has walked.
    pub(super) resume: bool,
    /// The peer is not connected any more.
    pub(super) peer_lost: bool,
    pub(super) stored: u64,
    pub(super) ticks: u64,
}

impl Session {
    pub(super) fn new(
        nonce: u128,
        peer: ReplicaId,
        kind: NeedKind,
        view: View,
        window: (Op, Op),
    ) -> Self {
        assert!(nonce != 0, "a nonce names a session");
        let (from, to) = window;
        Self {
            nonce,
            peer,
            kind,
            view,
            opened_at: from,
            from,
            to,
            idle: 0,
            stalled_rounds: 0,
            stored_in_round: 0,
            commit_min_in_round: Op::ZERO,
            floor: None,
            resume: false,
            peer_lost: false,
            stored: 0,
            ticks: 0,
        }
    }

    /// Whether it serves a primary-elect, which has rules of its own.
    pub(super) fn is_elect(&self) -> bool {
        self.kind == NeedKind::Elect
    }

    /// Whether the last request brought anything.
    pub(super) fn has_progressed(&self, commit_min: Op) -> bool {
        self.stored_in_round > 0 || commit_min > self.commit_min_in_round
    }

    /// The peer retains nothing up to `floor`. Saying so again changes nothing.
    pub(super) fn mark_floor(&mut self, op: Op) {
        if self.floor.as_ref().is_none_or(|floor| floor.op != op) {
            let evidence = Evidence::above(op);
            self.floor = Some(Floor {
                op,
                evidence,
                resume_at: None,
            });
        }
    }

    /// A verified prepare above the floor.
    pub(super) fn see(&mut self, op: Op, content: HeldOp) -> bool {
        let floor = self.floor.as_mut().filter(|floor| floor.op < op);
        floor.is_some_and(|floor| floor.evidence.see(op, content))
    }

    /// Starts a round: the request for `[from, to]` leaves now.
    pub(super) fn begin_round(&mut self, from: Op, to: Op, commit_min: Op) {
        assert!(Op::ZERO < from && from <= to, "a request names a window");
        self.from = from;
        self.to = to;
        self.idle = 0;
        self.stored_in_round = 0;
        self.commit_min_in_round = commit_min;
        self.resume = false;
    }

    /// The request of the current round.
    pub(super) fn request(&self, cluster: ClusterId, group: GroupId, own: ReplicaId) -> Message {
        let mut header = RequestPreparesHeader::new(Command::RequestPrepares);
        header.frame.set_cluster(cluster);
        header.frame.set_replica(own);
        header.set_nonce(self.nonce);
        header.set_from_op(self.from);
        header.set_to_op(self.to);
        header.set_group(group);
        Message::sealed(header, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a dump in which `[00×n]` stands for n zero bytes.
    fn golden(dump: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in dump.split_whitespace() {
            if let Some(run) = word.strip_prefix("[00×") {
                let count: usize = run.trim_end_matches(']').parse().expect("a number");
                bytes.resize(bytes.len() + count, 0);
                continue;
            }
            for at in (0..word.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&word[at..at + 2], 16).expect("hex"));
            }
        }
        bytes
    }

    #[test]
    fn request_is_the_frame_of_the_specification() {
        let nonce = 0xf0e0_d0c0_b0a0_9080_7060_5040_3020_1000;
        let window = (Op(6), Op(133));
        let session = Session::new(nonce, ReplicaId(0), NeedKind::Gap, View(2), window);
        let cluster = ClusterId(0x1122_3344_5566_7788_9900_aabb_ccdd_eeff);
        let message = session.request(cluster, GroupId::METADATA, ReplicaId(2));
        let expected = golden(include_str!(
            "../../tests/golden/request_prepares_6_133.txt"
        ));
        assert_eq!(message.to_vec(), expected);
    }
}
