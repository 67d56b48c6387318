//! The part of the plane that the consensus core asks, and that committed prepares change: the
//! metadata, the client table, and the numbers for new partitions.

use biplane_vsr::sessions::{Check, ClientTable};
use biplane_vsr::{Durability, Plane, Promotion, Source};
use biplane_wire::{
    ClientId, DecodeError, FrameBuffer, Message, Op, Operation, PrepareHeader, RoutedRequestHeader,
};

use crate::io::SessionChange;
use crate::preflight::GroupNumbers;
use crate::reply;
use crate::state::topology::TopologyChange;
use crate::state::{MetadataState, Prepared, decode_prepared};

/// What the plane answers a queued request with itself, once the core has given it back.
const ANSWERED_BY_PLANE: u32 = 0;

/// The replicated state and what hangs on it.
pub(crate) struct Machine {
    pub(crate) state: MetadataState,
    pub(crate) table: ClientTable,
    pub(crate) numbers: GroupNumbers,
    /// The table holds the effects of every op up to here already: it came by transfer.
    pub(crate) table_frontier: Op,
    /// Whether this replica is a caught-up primary, as of the last look.
    pub(crate) caught_up: bool,
    /// Highest op that the prepare log on disk can take, as of the last look.
    pub(crate) op_limit: Op,
    /// Whether a whole pipeline of prepares fits the log above its head, as of the last look.
    pub(crate) has_room: bool,
}

/// What committing a prepare came to.
pub(crate) struct Committed {
    pub(crate) reply: Message,
    pub(crate) code: u32,
    pub(crate) topology: Vec<TopologyChange>,
    pub(crate) session: Option<SessionChange>,
}

impl Machine {
    /// Applies a committed prepare and caches its reply.
    pub(crate) fn commit(&mut self, prepare: &Message) -> Result<Committed, DecodeError> {
        let header = prepare.header::<PrepareHeader>();
        let operation = header.operation();
        let applied = self.state.apply(&Prepared {
            operation,
            client: header.client(),
            user_id: header.user_id(),
            timestamp: header.timestamp(),
            body: prepare.body(),
        })?;
        let reply = reply::committed(header, &applied);
        let in_table = header.op() <= self.table_frontier;
        let client = header.client();
        let session = match operation {
            Operation::Register => {
                if !in_table {
                    self.table.commit_register(header, reply.clone());
                }
                let (session, user_id) = (header.op().0, header.user_id());
                Some(SessionChange::Registered {
                    client,
                    session,
                    user_id,
                })
            }
            Operation::Logout => {
                if !in_table {
                    self.table.commit_logout(header);
                }
                Some(SessionChange::Ended { client })
            }
            _ => {
                if !in_table && client != ClientId(0) {
                    self.table.commit_request(header, &reply);
                }
                None
            }
        };
        Ok(Committed {
            reply,
            code: applied.code(),
            topology: applied.topology,
            session,
        })
    }

    /// Whether a logout still has something to end.
    pub(crate) fn has_session(&self, client: ClientId, epoch: u64) -> bool {
        self.table
            .get(client)
            .is_some_and(|session| session.epoch == epoch)
    }

    /// What the client table says to a request.
    pub(crate) fn check(&self, request: &RoutedRequestHeader) -> Check<'_> {
        let checksum = request.request_checksum();
        self.table.check(
            request.client(),
            request.session(),
            request.request(),
            checksum,
        )
    }

    fn may_prepare(&self, request: &RoutedRequestHeader) -> bool {
        match request.operation() {
            Operation::Register => self
                .table
                .check_register(request.client(), request.user_id())
                .is_ok(),
            Operation::Logout => self.has_session(request.client(), request.session()),
            // Made by a server: no session stands behind it.
            Operation::CompleteConsumerGroupRevocation => true,
            _ if request.client() == ClientId(0) => true,
            _ => matches!(self.check(request), Check::New),
        }
    }
}

impl Plane for Machine {
    fn durability(&self, _prepare: &PrepareHeader) -> Durability {
        Durability::Disk
    }

    fn stamp(&mut self, header: &PrepareHeader, body: &mut [u8]) {
        // Bodies are final before they are admitted; what is left is to remember the numbers.
        self.numbers.raise_from(header.operation(), body);
    }

    fn accept(&mut self, prepare: &Message, source: Source) -> Result<(), &'static str> {
        let header = prepare.header::<PrepareHeader>();
        if header.op() > self.op_limit {
            return Err("the log is full until a checkpoint is done");
        }
        // A body that cannot be applied must not gather a quorum with our help. What the cluster
        // has settled on is taken as it is: the log must not have a hole for ever.
        if source == Source::Live && decode_prepared(header.operation(), prepare.body()).is_err() {
            return Err("the body does not decode");
        }
        self.numbers.raise_from(header.operation(), prepare.body());
        Ok(())
    }

    fn truncated(&mut self, _from: Op, _removed: &[Message]) {
        // Numbers of a truncated prepare stay used up: they need not be dense.
    }

    fn promote(&mut self, request: &FrameBuffer) -> Promotion {
        if !self.caught_up || !self.has_room {
            return Promotion::Wait;
        }
        if self.may_prepare(request.header::<RoutedRequestHeader>()) {
            Promotion::Prepare
        } else {
            Promotion::Deny(ANSWERED_BY_PLANE)
        }
    }
}
