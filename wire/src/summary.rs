//! One line about a frame, for logs and test failures.

use std::fmt;

use crate::command::Command;
use crate::header::{
    CommitHeader, DoViewChangeHeader, EvictionHeader, PrepareHeader, PrepareOkHeader,
    RepairRangeReplyHeader, ReplyHeader, RequestHeader, RequestPreparesHeader,
    RequestStartViewHeader, RequestStateChunkHeader, RequestStateTransferHeader,
    StartViewChangeHeader, StartViewHeader, StateChunkHeader, StateTransferTargetHeader,
};
use crate::message::Message;

pub(crate) fn write(message: &Message, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let frame = &message.generic().frame;
    write!(
        f,
        "{}({}B from {} v{}",
        frame.command(),
        message.size(),
        frame.replica(),
        frame.view()
    )?;
    match frame.command() {
        Command::Request => {
            let h = message.header::<RequestHeader>();
            write!(
                f,
                " {} client {:x} request {}",
                h.operation(),
                h.client().0,
                h.request()
            )?;
        }
        Command::Prepare | Command::RepairPrepare => {
            let h = message.header::<PrepareHeader>();
            write!(f, " {} op {} commit {}", h.group(), h.op(), h.commit())?;
            write!(f, " {} id {:016x}", h.operation(), h.frame.checksum().0)?;
        }
        Command::PrepareOk => {
            let h = message.header::<PrepareOkHeader>();
            write!(f, " {} op {} commit {}", h.group(), h.op(), h.commit())?;
        }
        Command::Reply => {
            let h = message.header::<ReplyHeader>();
            write!(
                f,
                " {} request {} status {}",
                h.operation(),
                h.request(),
                h.status()
            )?;
        }
        Command::Commit => {
            let h = message.header::<CommitHeader>();
            write!(f, " {} commit {}", h.group(), h.commit())?;
        }
        Command::StartViewChange => {
            write!(f, " {}", message.header::<StartViewChangeHeader>().group())?;
        }
        Command::DoViewChange => {
            let h = message.header::<DoViewChangeHeader>();
            write!(f, " {} log v{}", h.group(), h.log_view())?;
            write!(f, " op {} commit {}", h.op(), h.commit())?;
        }
        Command::StartView => {
            let h = message.header::<StartViewHeader>();
            write!(f, " {} op {} commit {}", h.group(), h.op(), h.commit())?;
        }
        Command::Eviction => {
            write!(f, " {:?}", message.header::<EvictionHeader>().reason())?;
        }
        Command::RequestStartView => {
            write!(f, " {}", message.header::<RequestStartViewHeader>().group())?;
        }
        _ => write_transfer(message, f)?,
    }
    f.write_str(")")
}

fn write_transfer(message: &Message, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match message.command() {
        Command::RequestStateTransfer => {
            write!(
                f,
                " {}",
                message.header::<RequestStateTransferHeader>().group()
            )
        }
        Command::RequestPrepares => {
            let h = message.header::<RequestPreparesHeader>();
            write!(f, " {} ops {}..={}", h.group(), h.from_op(), h.to_op())
        }
        Command::RepairDone | Command::RangeEvicted => {
            let h = message.header::<RepairRangeReplyHeader>();
            write!(f, " {} op {}", h.group(), h.op())
        }
        Command::StateTransferTarget => {
            let h = message.header::<StateTransferTargetHeader>();
            write!(
                f,
                " {} offer {} op {}",
                h.group(),
                h.available(),
                h.commit_op()
            )
        }
        Command::RequestStateChunk => {
            let h = message.header::<RequestStateChunkHeader>();
            write!(
                f,
                " {} artifact {} at {}",
                h.group(),
                h.artifact(),
                h.offset()
            )
        }
        Command::StateChunk => {
            let h = message.header::<StateChunkHeader>();
            write!(
                f,
                " {} artifact {} at {}",
                h.group(),
                h.artifact(),
                h.offset()
            )
        }
        _ => Ok(()),
    }
}
