//! Which machine a peer's frame is for.

use biplane_vsr as vsr;
use biplane_wire::{ReplicaFrame, ReplicaId};

use super::Group;
use crate::context::Context;

impl Group {
    /// A frame of `from` for this group. One line per kind of frame.
    pub(crate) fn frame(
        &mut self,
        from: ReplicaId,
        frame: ReplicaFrame,
        context: &mut Context<'_>,
    ) {
        match frame {
            ReplicaFrame::Commit(_) => {
                let input = vsr::Input::Frame(frame);
                if self.stays_at_rest(input, context) {
                    return;
                }
                if context.scratch.vsr.is_empty() && self.is_quiet(context.now) {
                    return;
                }
            }
            // As if it had been lost on the way: repair brings it when the disk has caught up. The
            // primary of a cluster with a slow backup has no other way to tell.
            ReplicaFrame::Prepare(_) | ReplicaFrame::RepairPrepare(_)
                if !self.replica.is_primary() && self.is_overfull(context) => {}
            ReplicaFrame::Prepare(ref typed) if !self.has_log_room(typed.header(), context) => {}
            ReplicaFrame::Prepare(_)
            | ReplicaFrame::PrepareOk(_)
            | ReplicaFrame::StartViewChange(_)
            | ReplicaFrame::DoViewChange(_)
            | ReplicaFrame::StartView(_)
            | ReplicaFrame::RequestStartView(_) => {
                self.notice_loss(&frame, context);
                self.step_replica(vsr::Input::Frame(frame), context);
            }
            ReplicaFrame::RequestPrepares(typed) => {
                self.serve_repair(from, typed.header(), context);
            }
            ReplicaFrame::RepairPrepare(typed) => {
                self.on_repair_prepare(from, typed.into_message(), context);
            }
            ReplicaFrame::RepairDone(typed) => self.on_repair_done(typed.header(), context),
            ReplicaFrame::RangeEvicted(typed) => self.on_range_evicted(typed.header(), context),
            ReplicaFrame::RequestStateTransfer(typed) => {
                self.serve_transfer(from, typed.header(), context);
            }
            ReplicaFrame::RequestStateChunk(typed) => {
                self.serve_chunk(from, typed.header(), context);
            }
            ReplicaFrame::StateTransferTarget(typed) => {
                self.on_transfer_target(from, &typed, context);
            }
            ReplicaFrame::StateChunk(typed) => {
                self.on_transfer_chunk(from, &typed, context);
            }
            ReplicaFrame::RoutedRequest(_)
            | ReplicaFrame::ForwardRegister(_)
            | ReplicaFrame::ForwardRegisterResult(_)
            | ReplicaFrame::ForwardLogout(_)
            | ReplicaFrame::ForwardLogoutResult(_) => {}
        }
        self.settle(context);
    }
}
