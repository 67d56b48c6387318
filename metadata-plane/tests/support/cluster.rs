//! Nodes joined by queues: each a plane over an honest disk in memory.

use std::collections::{BTreeMap, VecDeque};

use biplane_journal::{Disk, Fate, MemoryDisk};
use biplane_metadata_plane::io::{
    DISCONNECT_REQUEST, Input, LogoutOutcome, Outcome, Output, RegisterOutcome, SessionChange,
};
use biplane_metadata_plane::preflight::{self, Caller, Supplied};
use biplane_metadata_plane::state::topology::TopologyChange;
use biplane_metadata_plane::{Config, Limits, MetadataPlane, RootUser, Timers};
use biplane_wire::{
    Checksum, ClientId, ClusterId, Command, EvictionReason, FrameBuffer, GroupId, Message,
    Operation, ReplicaId, RequestNumber, RoutedRequestHeader, decode_replica,
};

use super::prng::Prng;

/// What a token was answered with.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A reply frame.
    Reply(Message, Outcome),
    /// An eviction.
    Evicted(EvictionReason),
    /// No answer to the client.
    Dropped,
    /// The answer to a login.
    Registered(RegisterOutcome),
    /// The answer to a logout.
    LoggedOut(LogoutOutcome),
}

/// One node.
pub struct Node {
    /// The plane; None while the node is down.
    pub plane: Option<MetadataPlane>,
    /// Its disk.
    pub disk: MemoryDisk,
    /// Frames on their way to it.
    inbox: VecDeque<Message>,
    /// Topology changes it emitted.
    pub topology: Vec<TopologyChange>,
    /// Session changes it emitted.
    pub sessions: Vec<SessionChange>,
    /// Times it said that its state is up to date.
    pub confirmed: u64,
    /// Whether frames to and from it are lost.
    pub is_cut_off: bool,
    boots: u64,
}

/// Some nodes and a clock.
pub struct Cluster {
    /// The nodes by replica id.
    pub nodes: Vec<Node>,
    /// Answers by token.
    pub answers: BTreeMap<u64, Answer>,
    /// Wall clock, microseconds.
    pub wall: u64,
    /// Sizes of every node.
    pub limits: Limits,
    next_token: u64,
    /// Frames delivered so far, by command.
    pub delivered: BTreeMap<Command, u64>,
    /// Frames of these commands are lost.
    pub lossy: Vec<Command>,
    /// Where set, one frame in this many is lost.
    pub noise: Option<(Prng, u64)>,
}

impl Cluster {
    /// A cluster of fresh nodes.
    pub fn new(count: usize) -> Self {
        Self::with_limits(count, Limits::tiny())
    }

    /// A cluster of fresh nodes with these limits.
    pub fn with_limits(count: usize, limits: Limits) -> Self {
        let node = || Node {
            plane: None,
            disk: MemoryDisk::new(),
            inbox: VecDeque::new(),
            topology: Vec::new(),
            sessions: Vec::new(),
            confirmed: 0,
            is_cut_off: false,
            boots: 0,
        };
        let mut cluster = Self {
            nodes: std::iter::repeat_with(node).take(count).collect(),
            answers: BTreeMap::new(),
            wall: 1_700_000_000_000_000,
            limits,
            next_token: 1,
            delivered: BTreeMap::new(),
            lossy: Vec::new(),
            noise: None,
        };
        for index in 0..count {
            cluster.start(index);
        }
        cluster
    }

    fn config(&self, index: usize) -> Config {
        let boot = self.nodes[index].boots;
        Config {
            cluster: ClusterId(0xB1B1),
            replica: ReplicaId(u8::try_from(index).expect("few nodes")),
            replica_count: u8::try_from(self.nodes.len()).expect("few nodes"),
            root: RootUser {
                username: "iggy".into(),
                password_hash: "hash".into(),
            },
            limits: self.limits,
            timers: Timers::tiny(),
            incarnation: u128::from(boot) << 8 | 1,
            seed: boot * 100 + index as u64,
        }
    }

    /// Opens a node on its disk.
    pub fn start(&mut self, index: usize) {
        self.nodes[index].boots += 1;
        let config = self.config(index);
        let opened = MetadataPlane::open(config, &self.nodes[index].disk, self.wall);
        let (plane, outputs) = opened.expect("the node opens");
        plane.check_invariants();
        self.nodes[index].plane = Some(plane);
        self.nodes[index].inbox.clear();
        self.take(index, outputs);
    }

    /// Stops a node; what its disk was not told to keep is lost.
    pub fn crash(&mut self, index: usize) {
        self.nodes[index].plane = None;
        self.nodes[index].inbox.clear();
        self.nodes[index].disk.crash_losing_all();
    }

    /// Stops a node; of what its disk was not told to keep, chance decides.
    pub fn crash_by_chance(&mut self, index: usize, prng: &mut Prng) {
        self.nodes[index].plane = None;
        self.nodes[index].inbox.clear();
        self.nodes[index].disk.crash(&mut |_| match prng.below(2) {
            0 => Fate::Keep,
            _ => Fate::Lose,
        });
    }

    /// Stops a node and opens it again.
    pub fn restart(&mut self, index: usize) {
        self.crash(index);
        self.start(index);
    }

    /// Stops a node and takes its disk away.
    pub fn wipe(&mut self, index: usize) {
        self.crash(index);
        self.nodes[index].disk = MemoryDisk::new();
    }

    fn take(&mut self, index: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { to, message } => self.post(index, usize::from(to.0), message),
                Output::Disk(request) => self.nodes[index].disk.submit(request),
                Output::Topology(change) => self.nodes[index].topology.push(change),
                Output::Session(change) => self.nodes[index].sessions.push(change),
                Output::Reply {
                    token,
                    message,
                    outcome,
                } => {
                    self.answer(token, Answer::Reply(message, outcome));
                }
                Output::Evicted { token, reason } => self.answer(token, Answer::Evicted(reason)),
                Output::Dropped { token } => self.answer(token, Answer::Dropped),
                Output::Registered { token, outcome } => {
                    self.answer(token, Answer::Registered(outcome));
                }
                Output::LoggedOut { token, outcome } => {
                    self.answer(token, Answer::LoggedOut(outcome));
                }
                Output::Confirmed => self.nodes[index].confirmed += 1,
                Output::Role(_) => {}
                Output::Halt(reason) => panic!("node {index} halted: {reason:?}"),
            }
        }
    }

    fn answer(&mut self, token: u64, answer: Answer) {
        let previous = self.answers.insert(token, answer);
        assert!(previous.is_none(), "token {token} was answered twice");
    }

    fn post(&mut self, from: usize, to: usize, message: Message) {
        let lost = self.nodes[from].is_cut_off
            || self.nodes[to].is_cut_off
            || self.nodes[to].plane.is_none()
            || self.lossy.contains(&message.command());
        let lost = lost
            || self
                .noise
                .as_mut()
                .is_some_and(|(prng, one_in)| prng.below(*one_in) == 0);
        if !lost {
            *self.delivered.entry(message.command()).or_default() += 1;
            self.nodes[to].inbox.push_back(message);
        }
    }

    /// Hands an input to a node.
    pub fn input(&mut self, index: usize, input: Input) {
        let Some(plane) = &mut self.nodes[index].plane else {
            return;
        };
        let mut out = Vec::new();
        plane.step(input, &mut out);
        plane.check_invariants();
        self.take(index, out);
    }

    /// Delivers frames and completions until nothing is left.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for index in 0..self.nodes.len() {
                while let Some(completion) = self.nodes[index].disk.poll() {
                    moved = true;
                    self.input(index, Input::Disk(completion));
                }
                while let Some(message) = self.nodes[index].inbox.pop_front() {
                    moved = true;
                    let frame = decode_replica(message).expect("own frames decode");
                    self.input(index, Input::Frame(frame));
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets `ticks` pass.
    pub fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.wall += 10_000;
            let wall_micros = self.wall;
            for index in 0..self.nodes.len() {
                self.input(index, Input::Tick { wall_micros });
            }
            self.settle();
        }
    }

    /// Lets ticks pass until the condition holds.
    pub fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            if condition(self) {
                return;
            }
            self.run(1);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            println!(
                "node {index}: {:?}",
                node.plane.as_ref().map(MetadataPlane::status)
            );
        }
        panic!("never: {what}");
    }

    /// The plane of a node that is up.
    pub fn plane(&self, index: usize) -> &MetadataPlane {
        self.nodes[index].plane.as_ref().expect("the node is up")
    }

    /// The caught-up primary, if there is one.
    pub fn primary(&self) -> Option<usize> {
        let leads = |node: &Node| {
            node.plane
                .as_ref()
                .is_some_and(|plane| plane.status().is_caught_up_primary)
        };
        (0..self.nodes.len())
            .find(|index| !self.nodes[*index].is_cut_off && leads(&self.nodes[*index]))
    }

    /// Waits for a caught-up primary.
    pub fn await_primary(&mut self) -> usize {
        self.run_until("a primary", |cluster| cluster.primary().is_some());
        self.primary().expect("just seen")
    }

    /// A token that was not used before.
    pub fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Waits for the answer to a token.
    pub fn await_answer(&mut self, token: u64) -> Answer {
        self.settle();
        self.run_until("an answer", |cluster| cluster.answers.contains_key(&token));
        self.answers[&token].clone()
    }

    /// Logs in at a node and gives the outcome.
    pub fn register(&mut self, index: usize, client: ClientId, user_id: u32) -> RegisterOutcome {
        let token = self.token();
        self.input(
            index,
            Input::Register {
                token,
                client,
                user_id,
            },
        );
        match self.await_answer(token) {
            Answer::Registered(outcome) => outcome,
            other => panic!("a login was answered with {other:?}"),
        }
    }

    /// Logs in at a node and gives the session.
    pub fn login(&mut self, index: usize, client: ClientId) -> u64 {
        match self.register(index, client, 0) {
            RegisterOutcome::Registered { session, .. } => session,
            other => panic!("the login failed: {other:?}"),
        }
    }

    /// Logs out at a node and gives the outcome.
    pub fn logout(&mut self, index: usize, client: ClientId, session: u64, request: u64) -> Answer {
        let token = self.token();
        self.input(
            index,
            Input::Logout {
                token,
                client,
                session,
                request,
            },
        );
        self.await_answer(token)
    }

    /// A connection with a session ended at a node.
    pub fn disconnect(&mut self, index: usize, client: ClientId, session: u64) {
        let token = self.token();
        let request = DISCONNECT_REQUEST;
        self.input(
            index,
            Input::Logout {
                token,
                client,
                session,
                request,
            },
        );
        self.settle();
    }

    /// Submits a request without waiting; gives its token.
    pub fn submit(&mut self, index: usize, request: &Request) -> u64 {
        let token = self.token();
        let frame = request.frame(self.plane(index));
        self.input(
            index,
            Input::Submit {
                token,
                request: frame,
            },
        );
        token
    }

    /// Submits a request and waits for the answer.
    pub fn call(&mut self, index: usize, request: &Request) -> Answer {
        let token = self.submit(index, request);
        self.await_answer(token)
    }

    /// Submits a request that must commit, and gives its result code.
    pub fn commit(&mut self, index: usize, request: &Request) -> u32 {
        match self.call(index, request) {
            Answer::Reply(_, Outcome::Committed { code, .. }) => code,
            other => panic!("{request:?} was answered with {other:?}"),
        }
    }

    /// Waits until all nodes that are up have applied the same op, and compares their states.
    pub fn await_convergence(&mut self) {
        self.run_until("convergence", |cluster| {
            let up = cluster.nodes.iter().filter_map(|node| node.plane.as_ref());
            let ops: Vec<_> = up
                .map(|plane| (plane.commit_min(), plane.commit_max()))
                .collect();
            ops.iter().all(|(min, max)| *min == ops[0].0 && min == max)
        });
        let states: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| node.plane.as_ref())
            .map(|plane| plane.state().clone())
            .collect();
        for state in &states {
            assert_eq!(
                state, &states[0],
                "replicas that applied the same ops are equal"
            );
        }
    }
}

/// A client request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Client.
    pub client: ClientId,
    /// Session.
    pub session: u64,
    /// Number.
    pub number: u64,
    /// Operation as the client sends it.
    pub operation: Operation,
    /// Body as the client sends it.
    pub body: Vec<u8>,
    /// Partitions a group's members may be working on.
    pub in_flight: Vec<u32>,
}

impl Request {
    /// The frame after preflight at a node.
    fn frame(&self, plane: &MetadataPlane) -> FrameBuffer {
        let caller = Caller {
            user_id: Some(0),
            client: self.client,
            tokens_max: 100,
        };
        let hash = "b02ed059791ba84366c01ee57853984cc8489d23cc383af82b8786e1150bef84";
        let supplied = match preflight::needs(plane.state(), &caller, self.operation, &self.body) {
            Ok(preflight::Needs::PasswordHash { .. }) => Supplied::PasswordHash("hashed"),
            Ok(preflight::Needs::PasswordChange { .. }) => Supplied::PasswordChange(Some("new")),
            Ok(preflight::Needs::TokenHash) => Supplied::TokenHash(hash),
            Ok(preflight::Needs::InFlight { .. }) => Supplied::InFlight(&self.in_flight),
            Ok(preflight::Needs::Nothing) | Err(_) => Supplied::Nothing,
        };
        let body = if self.operation.is_internal() {
            self.body.clone()
        } else {
            preflight::rewrite(plane.state(), &caller, self.operation, &self.body, supplied)
                .expect("the request passes preflight")
                .into_owned()
        };
        let mut header = RoutedRequestHeader::new(Command::Request);
        header.set_client(self.client);
        header.set_session(self.session);
        header.set_request(RequestNumber(self.number));
        header.set_request_checksum(Checksum::of(&self.body));
        header.set_operation(self.operation);
        header.set_group(GroupId::METADATA);
        header
            .frame
            .set_size(u32::try_from(256 + body.len()).expect("small"));
        FrameBuffer::from_parts(&header, &body)
    }
}

/// A client with a session that numbers its requests.
pub struct Client {
    /// Client id.
    pub id: ClientId,
    /// Session.
    pub session: u64,
    /// Number of the next request.
    pub next: u64,
}

impl Client {
    /// Logs in at a node.
    pub fn login(cluster: &mut Cluster, index: usize, id: u128) -> Self {
        let id = ClientId(id);
        let session = cluster.login(index, id);
        Self {
            id,
            session,
            next: 1,
        }
    }

    /// The next request.
    pub fn request(&mut self, operation: Operation, body: Vec<u8>) -> Request {
        let number = self.next;
        self.next += 1;
        Request {
            client: self.id,
            session: self.session,
            number,
            operation,
            body,
            in_flight: Vec::new(),
        }
    }
}
