//! What of an input or an output goes into the trace of a run, and how frames are counted.

use biplane_wire::{Command, Message, xxh3};

use crate::machine::{Cause, Effect};

/// The name frames of a command are counted under.
pub(super) fn command_name(command: Command) -> &'static str {
    match command {
        Command::Prepare => "sent: Prepare",
        Command::PrepareOk => "sent: PrepareOk",
        Command::Commit => "sent: Commit",
        Command::StartViewChange => "sent: StartViewChange",
        Command::DoViewChange => "sent: DoViewChange",
        Command::StartView => "sent: StartView",
        Command::RequestStartView => "sent: RequestStartView",
        Command::RequestPrepares => "sent: RequestPrepares",
        Command::RepairPrepare => "sent: RepairPrepare",
        Command::RepairDone => "sent: RepairDone",
        Command::RangeEvicted => "sent: RangeEvicted",
        Command::RequestStateTransfer => "sent: RequestStateTransfer",
        Command::StateTransferTarget => "sent: StateTransferTarget",
        Command::RequestStateChunk => "sent: RequestStateChunk",
        Command::StateChunk => "sent: StateChunk",
        _ => "sent: sessions",
    }
}

pub(super) fn digest_cause(node: u8, cause: &Cause) -> [u64; 4] {
    let node = u64::from(node);
    match cause {
        Cause::Tick { wall_micros } => [node, 1, *wall_micros, 0],
        Cause::Frame { from, frame } => [node, 2, u64::from(*from), digest(frame.message())],
        Cause::Disk(done) => [
            node,
            3 | u64::from(done.result.is_ok()) << 8,
            done.queue.0,
            done.token,
        ],
        Cause::Peer { peer, connected } => [node, 4, u64::from(*peer), u64::from(*connected)],
        Cause::Call { token, .. } => [node, 5, *token, 0],
        Cause::Flush => [node, 6, 0, 0],
    }
}

pub(super) fn digest_effect(node: u8, effect: &Effect) -> [u64; 4] {
    let node = u64::from(node);
    match effect {
        Effect::Send { to, message } => [node, 11, u64::from(*to), digest(message)],
        Effect::Disk(request) => {
            let text = request.op.path().as_str().as_bytes();
            [
                node,
                12,
                request.queue.0 ^ request.token.rotate_left(32),
                xxh3(text),
            ]
        }
        Effect::Answer { token, .. } => [node, 13, *token, 0],
        Effect::Forget { token } => [node, 14, *token, 0],
        Effect::Fenced { group, .. } => [node, 15, group.0, 0],
        Effect::Halt(reason) => [node, 16, xxh3(reason.as_bytes()), 0],
    }
}

fn digest(message: &Message) -> u64 {
    xxh3(message.header_bytes()) ^ xxh3(message.body())
}
