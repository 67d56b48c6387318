//! O8: a request of a session commits at most once, and in an order that real time allows.
//!
//! Metadata requests are numbered per client and remembered in the client table, so that no
//! number commits twice. If an answer had arrived anywhere before a request was first sent, the
//! request's op is the larger one.

use std::collections::BTreeMap;

use biplane_wire::{ClientId, GroupId, Op, Operation, PrepareHeader, RequestNumber};

use super::{GroupKey, Violation};

type Request = (ClientId, RequestNumber);

/// What was committed, answered and sent, and when.
#[derive(Debug, Default)]
pub struct ExactlyOnce {
    committed: BTreeMap<(GroupKey, Request), Op>,
    answered: BTreeMap<GroupId, (GroupKey, Op)>,
    /// The highest op that had been answered when a request was first sent.
    sent: BTreeMap<(GroupId, Request), Option<(GroupKey, Op)>>,
    /// Commits and answers checked.
    pub checked: u64,
}

impl ExactlyOnce {
    /// A prepare became canonical.
    ///
    /// # Errors
    ///
    /// The request had committed before.
    pub fn committed(&mut self, key: GroupKey, header: &PrepareHeader) -> Result<(), Violation> {
        let request = (header.client(), header.request());
        if key.group.is_metadata() && header.operation() == Operation::Logout {
            // The session is gone, and with it what its numbers stood for: the client may begin
            // to count anew.
            self.committed
                .retain(|(_, (client, _)), _| *client != request.0);
            return Ok(());
        }
        let numbered = request.1.0 > 0 && request.1.0 < u64::MAX && request.0.0 != 0;
        if !key.group.is_metadata() || !numbered {
            return Ok(());
        }
        self.checked += 1;
        match self.committed.insert((key, request), header.op()) {
            None => Ok(()),
            Some(before) => {
                let text = format!(
                    "request {} of client {:x} committed as op {before} and again as op {}",
                    request.1,
                    request.0.0,
                    header.op()
                );
                Err(Violation::new("O8 exactly once", key.group, text))
            }
        }
    }

    /// A client sends a request, perhaps not for the first time.
    pub fn sends(&mut self, group: GroupId, client: ClientId, request: RequestNumber) {
        let answered = self.answered.get(&group).copied();
        self.sent
            .entry((group, (client, request)))
            .or_insert(answered);
    }

    /// An answer with an op reaches a client.
    ///
    /// # Errors
    ///
    /// The op is not above one that had been answered before the request was first sent.
    pub fn answers(
        &mut self,
        key: GroupKey,
        client: ClientId,
        request: RequestNumber,
        op: Op,
    ) -> Result<(), Violation> {
        let place = (key.group, (client, request));
        if let Some(Some((seen, before))) = self.sent.get(&place) {
            self.checked += 1;
            if *seen == key && op <= *before {
                let text = format!(
                    "request {request} of client {:x} was sent after op {before} was answered \
                     and has op {op}",
                    client.0
                );
                return Err(Violation::new("O8 real time order", key.group, text));
            }
        }
        let newest = self.answered.entry(key.group).or_insert((key, op));
        if newest.0 != key || newest.1 < op {
            *newest = (key, op);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Command, GroupId};

    use super::*;

    const KEY: GroupKey = GroupKey {
        group: GroupId::METADATA,
        incarnation: 0,
    };
    const CLIENT: ClientId = ClientId(7);

    fn header(op: u64, request: u64) -> PrepareHeader {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_client(CLIENT);
        header.set_request(RequestNumber(request));
        header
    }

    #[test]
    fn different_requests_pass_and_a_repeated_one_is_found() {
        let mut oracle = ExactlyOnce::default();
        oracle
            .committed(KEY, &header(1, 0))
            .expect("a login has no number");
        oracle.committed(KEY, &header(2, 1)).expect("first");
        oracle.committed(KEY, &header(3, 2)).expect("second");
        oracle
            .committed(KEY, &header(4, 0))
            .expect("a login has no number");
        let again = oracle.committed(KEY, &header(5, 1)).expect_err("again");
        assert_eq!(again.oracle, "O8 exactly once");
        let mut logout = header(6, 3);
        logout.set_operation(Operation::Logout);
        oracle.committed(KEY, &logout).expect("the end of it");
        oracle.committed(KEY, &header(7, 1)).expect("counted anew");
    }

    #[test]
    fn an_answer_that_goes_back_in_real_time_is_found() {
        let mut oracle = ExactlyOnce::default();
        let number = RequestNumber;
        oracle.sends(KEY.group, CLIENT, number(1));
        oracle
            .answers(KEY, CLIENT, number(1), Op(5))
            .expect("nothing before");
        oracle.sends(KEY.group, CLIENT, number(2));
        oracle.sends(KEY.group, ClientId(8), number(1));
        oracle
            .answers(KEY, ClientId(8), number(1), Op(6))
            .expect("later");
        let back = oracle
            .answers(KEY, CLIENT, number(2), Op(4))
            .expect_err("earlier");
        assert_eq!(back.oracle, "O8 real time order");
    }
}
