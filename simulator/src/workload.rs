//! What clients ask for: a stream of calls, each with a value of its own.

mod planes;

use biplane_wire::{ClientId, GroupId, Operation};

use crate::bare::bare_groups;
use crate::machine::{Answer, Call};
use crate::options::{MachineKind, Options};
use crate::prng::Prng;

/// What an answer means for the pending call.
#[derive(Clone, Debug)]
pub enum Step {
    /// Its outcome is known and it is over.
    Done,
    /// Its outcome is not known or it did not happen: the same call again.
    Retry,
    /// Another call has to come first, or takes its place.
    Replace(Call),
}

/// A source of calls.
pub trait Workload {
    /// The next call.
    fn next(&mut self, prng: &mut Prng) -> Call;

    /// What an answer to `call` means.
    fn outcome(&mut self, call: &Call, answer: &Answer) -> Step;
}

/// The workload of a client, by the machines it talks to.
#[derive(Debug)]
pub enum WorkloadKind {
    /// For bare groups.
    Bare(BareWorkload),
    /// For the planes.
    Planes(Box<planes::PlanesWorkload>),
}

impl WorkloadKind {
    /// The workload of the client with this number.
    #[must_use]
    pub fn new(index: u32, options: &Options) -> Self {
        match options.machine {
            MachineKind::Bare => Self::Bare(BareWorkload::new(index, options.partitions)),
            MachineKind::Planes => {
                Self::Planes(Box::new(planes::PlanesWorkload::new(index, options)))
            }
        }
    }

    /// See [`Workload::next`].
    pub fn next(&mut self, prng: &mut Prng) -> Call {
        match self {
            Self::Bare(workload) => workload.next(prng),
            Self::Planes(workload) => workload.next(prng),
        }
    }

    /// See [`Workload::outcome`].
    pub fn outcome(&mut self, call: &Call, answer: &Answer) -> Step {
        match self {
            Self::Bare(workload) => workload.outcome(call, answer),
            Self::Planes(workload) => workload.outcome(call, answer),
        }
    }
}

/// The client id of a client of the simulation.
#[must_use]
pub fn client_id(index: u32) -> ClientId {
    ClientId(0x0c11_e000_0000 + u128::from(index))
}

/// Opaque requests into bare groups.
#[derive(Debug)]
pub struct BareWorkload {
    client: ClientId,
    serial: u64,
    groups: Vec<GroupId>,
}

impl BareWorkload {
    fn new(index: u32, partitions: u32) -> Self {
        let groups = bare_groups(partitions)
            .into_iter()
            .map(|(group, _)| group)
            .collect();
        Self {
            client: client_id(index),
            serial: 0,
            groups,
        }
    }
}

impl Workload for BareWorkload {
    fn next(&mut self, prng: &mut Prng) -> Call {
        self.serial += 1;
        let group = prng
            .pick(&self.groups)
            .copied()
            .unwrap_or(GroupId::METADATA);
        let operation = if group.is_metadata() {
            Operation::CreateStream
        } else {
            Operation::SendMessages
        };
        let mut body = vec![0; 24 + prng.index(600)];
        body[..16].copy_from_slice(&self.client.0.to_le_bytes());
        body[16..24].copy_from_slice(&self.serial.to_le_bytes());
        let (client, request) = (self.client, self.serial);
        Call::Request {
            group,
            client,
            user_id: 0,
            session: 1,
            request,
            operation,
            body,
        }
    }

    fn outcome(&mut self, _call: &Call, answer: &Answer) -> Step {
        match answer {
            Answer::Replied { code: 0, .. } => Step::Done,
            _ => Step::Retry,
        }
    }
}
