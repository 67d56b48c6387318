//! O9: sessions. Nothing of an older session of a client commits after a newer registration of
//! it, and a registration that is confirmed stands in the log.
//!
//! A prepare does not carry its session, so the oracle remembers under which sessions clients
//! sent each request. Deletion of a session by logout or eviction is not its business.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::{ClientId, GroupId, Op, Operation, PrepareHeader, RequestNumber};

use super::Violation;
use super::committed::{Canon, describe};

/// Sessions as the canonical log and the clients have them.
#[derive(Debug, Default)]
pub struct Fencing {
    /// The newest registration of a client in the canonical log.
    epochs: BTreeMap<ClientId, Op>,
    /// Sessions under which a numbered request was sent.
    sent: BTreeMap<(ClientId, RequestNumber), BTreeSet<u64>>,
    /// Commits and registrations checked.
    pub checked: u64,
}

impl Fencing {
    /// A client sends a numbered metadata request.
    pub fn sends(&mut self, client: ClientId, request: RequestNumber, session: u64) {
        self.sent
            .entry((client, request))
            .or_default()
            .insert(session);
    }

    /// A prepare of the metadata group became canonical.
    ///
    /// # Errors
    ///
    /// Every session it was sent under is older than the client's registration below it.
    pub fn committed(&mut self, header: &PrepareHeader) -> Result<(), Violation> {
        let client = header.client();
        if header.operation() == Operation::Register {
            self.epochs.insert(client, header.op());
            return Ok(());
        }
        if header.operation() == Operation::Logout {
            // It ends whatever session there is, and no request of a session goes by its number.
            return Ok(());
        }
        let (Some(epoch), Some(sessions)) = (
            self.epochs.get(&client),
            self.sent.get(&(client, header.request())),
        ) else {
            return Ok(());
        };
        self.checked += 1;
        if sessions.iter().all(|session| *session < epoch.0) {
            let text = format!(
                "{} was sent under {sessions:?} and commits after the registration at op {epoch}",
                describe(header)
            );
            return Err(Violation::new(
                "O9 session fencing",
                GroupId::METADATA,
                text,
            ));
        }
        Ok(())
    }

    /// A node confirms a registration.
    ///
    /// # Errors
    ///
    /// The canonical log has something else at the op that is its session.
    pub fn registered(
        &mut self,
        client: ClientId,
        session: u64,
        canon: Option<&Canon>,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let found = canon.and_then(|canon| canon.header(Op(session)));
        let stands = found.is_some_and(|header| {
            header.operation() == Operation::Register && header.client() == client
        });
        if stands {
            return Ok(());
        }
        let found = found.map(describe);
        let text = format!(
            "client {:x} is told of session {session}, where the log has {found:?}",
            client.0
        );
        Err(Violation::new(
            "O9 session fencing",
            GroupId::METADATA,
            text,
        ))
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, prepare};

    use super::super::GroupKey;
    use super::super::committed::Committed;
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    fn header(op: u64, operation: Operation, request: u64) -> PrepareHeader {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_client(CLIENT);
        header.set_operation(operation);
        header.set_request(RequestNumber(request));
        header
    }

    #[test]
    fn requests_of_the_present_session_pass_and_those_of_an_older_one_are_found() {
        let mut fencing = Fencing::default();
        let register = |op| header(op, Operation::Register, 0);
        let create = |op, request| header(op, Operation::CreateStream, request);
        fencing.committed(&register(1)).expect("a login");
        fencing.sends(CLIENT, RequestNumber(1), 1);
        fencing.committed(&create(2, 1)).expect("its own");
        fencing.sends(CLIENT, RequestNumber(2), 1);
        fencing.sends(CLIENT, RequestNumber(3), 1);
        fencing.committed(&register(3)).expect("again");
        fencing.sends(CLIENT, RequestNumber(2), 3);
        fencing
            .committed(&create(4, 2))
            .expect("sent again under the new one");
        let old = fencing
            .committed(&create(5, 3))
            .expect_err("of the old one");
        assert_eq!(old.oracle, "O9 session fencing");
        assert_eq!(fencing.checked, 3);
    }

    #[test]
    fn a_registration_that_is_not_in_the_log_is_found() {
        let key = GroupKey {
            group: GroupId::METADATA,
            incarnation: 0,
        };
        let mut committed = Committed::default();
        let message = prepare::build_with_body(header(1, Operation::Register, 0), &[]);
        committed.commit(0, key, &message).expect("first");
        let mut fencing = Fencing::default();
        let canon = committed.canon(key);
        fencing.registered(CLIENT, 1, canon).expect("it stands");
        assert!(fencing.registered(ClientId(8), 1, canon).is_err());
        assert!(fencing.registered(CLIENT, 2, canon).is_err());
        assert!(fencing.registered(CLIENT, 1, None).is_err());
    }
}
