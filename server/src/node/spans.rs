//! What a log line is about, beyond what it says itself: the node, and the frame or the request
//! that was being served when it was written. The planes name their group; that it came to it by
//! this peer and this operation only the loop knows.
//!
//! The node's span is always there. Those of frames and requests cost something each time, so they
//! exist only where the filter lets `debug` through.

use biplane_wire::{ReplicaFrame, ReplicaId, RequestHeader};
use tracing::{Span, debug_span, info_span};

use crate::client::connection::ConnectionId;

/// Around everything the loop does.
pub(super) fn node(replica: ReplicaId) -> Span {
    info_span!("node", node = replica.0)
}

/// Around what a replica's frame brings about.
pub(super) fn frame(peer: ReplicaId, frame: &ReplicaFrame) -> Span {
    let op = || match frame {
        ReplicaFrame::Prepare(typed) | ReplicaFrame::RepairPrepare(typed) => {
            Some(typed.header().op().0)
        }
        ReplicaFrame::PrepareOk(typed) => Some(typed.header().op().0),
        _ => None,
    };
    debug_span!(
        "frame",
        %peer,
        command = %frame.message().command(),
        group = %frame.group(),
        view = frame.message().generic().frame.view().0,
        op = op(),
    )
}

/// Around what a client's request brings about.
pub(crate) fn request(connection: ConnectionId, header: &RequestHeader) -> Span {
    debug_span!("request", connection, operation = ?header.operation())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use biplane_wire::{Command, CommitHeader, Message, View, decode_replica};
    use parking_lot::Mutex;
    use tracing_subscriber::EnvFilter;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line_at(level: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(level))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let mut header = CommitHeader::new(Command::Commit);
        header.frame.set_view(View(7));
        header.set_group(biplane_wire::GroupId::METADATA);
        let commit = decode_replica(Message::sealed(header, &[])).expect("a frame");
        tracing::subscriber::with_default(subscriber, || {
            let _node = node(ReplicaId(2)).entered();
            let _frame = frame(ReplicaId(1), &commit).entered();
            tracing::info!("happened");
        });
        let text = lines.0.lock().clone();
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_line_says_which_node_and_at_debug_what_was_being_served() {
        let line = line_at("debug");
        for part in [
            "node=2",
            "peer=",
            "command=Commit",
            "group=metadata",
            "view=7",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(
            !line.contains("op="),
            "a commit frame is about no operation: {line}"
        );
        let line = line_at("info");
        assert!(
            line.contains("node=2") && line.contains("happened"),
            "{line}"
        );
        assert!(!line.contains("command="), "{line}");
    }
}
