//! GetStats and GetSnapshot (chapter 07 section 8.1): questions about the host, answered once the
//! diagnostics thread has looked.

use biplane_wire::request::{GetSnapshot, SnapshotType};
use biplane_wire::{Codec as _, ErrorCode};

use super::dispatch::Request;
use super::reply::{self, Position};
use super::session::{Bound, Wait, Waiting};
use crate::diagnostics::{DiagnosticsDone, DiagnosticsJob};
use crate::node::Node;

/// Largest archive that is sent, in bytes.
const ARCHIVE_SIZE_MAX: usize = 64 << 20;

impl Node {
    /// Code 10.
    pub(crate) fn ask_for_stats(&mut self, request: Request, bound: Bound) {
        if let Err(code) = self.may_read_servers(bound.user_id) {
            return self.refuse(&request, code);
        }
        let busy = ErrorCode::TransientNotAccepted;
        self.ask(request, |token| DiagnosticsJob::Facts { token }, busy);
    }

    /// Code 11.
    pub(crate) fn ask_for_snapshot(&mut self, request: Request, bound: Bound) {
        let Ok(wanted) = GetSnapshot::decode(request.frame.body()) else {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        };
        let (compression, reports) = (wanted.compression, wanted.types().collect::<Vec<_>>());
        if let Err(code) = self.may_read_servers(bound.user_id) {
            return self.refuse(&request, code);
        }
        if reports.contains(&SnapshotType::All) && reports.len() > 1 {
            return self.refuse(&request, ErrorCode::InvalidCommand);
        }
        let job = |token| DiagnosticsJob::Archive {
            token,
            compression,
            reports,
        };
        self.ask(request, job, ErrorCode::SnapshotFileCompletionFailed);
    }

    fn ask(&mut self, request: Request, job: impl FnOnce(u64) -> DiagnosticsJob, busy: ErrorCode) {
        let (connection, header, size) = (request.connection, request.header(), request.size());
        let wait = Wait::Diagnosis;
        let token = self.clients.wait(connection, header, size, true, wait);
        if !self.diagnostics.submit(job(token))
            && let Some(waiting) = self.clients.take(token)
        {
            self.diagnosed(&waiting, Err(busy));
        }
    }

    /// The diagnostics thread has answered.
    pub(crate) fn on_diagnosed(&mut self, done: DiagnosticsDone) {
        let (token, answer) = match done {
            DiagnosticsDone::Facts { token, facts } => (token, Ok(self.stats_of(&facts))),
            DiagnosticsDone::Archive { token, bytes } => {
                let fits = bytes.filter(|bytes| bytes.len() <= ARCHIVE_SIZE_MAX);
                (token, fits.ok_or(ErrorCode::SnapshotFileCompletionFailed))
            }
        };
        // The client may be gone.
        if let Some(waiting) = self.clients.take(token) {
            self.diagnosed(&waiting, answer);
        }
    }

    fn diagnosed(&mut self, waiting: &Waiting, answer: Result<Vec<u8>, ErrorCode>) {
        let client = waiting.header.client();
        let position = Position {
            op: waiting.header.session(),
            commit: self.metadata.commit_min(),
        };
        let frame = match answer {
            Ok(body) => reply::success(&waiting.header, client, position, &body),
            Err(code) => reply::status(&waiting.header, client, position, code),
        };
        self.finish(waiting, frame);
    }
}
