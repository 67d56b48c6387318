//! One run: a cluster, its clients and its misfortunes, from the first event to the verdict.
//!
//! The world owns the event queue and everything that hangs on it. A run has two phases. In the
//! safety phase every drawn fault may strike; oracles watch each step. Then everything is
//! healed, and the cluster must finish all pending work, serve new work, and converge.

mod audit;
mod calls;
mod digests;
mod exposure;
mod faults;
mod links;
mod liveness;
mod marks;
mod nodes;
mod script;
mod slow;
mod watch;
mod wear;

use std::collections::BTreeMap;

use biplane_vsr::Replica;
use biplane_wire::{GroupId, xxh3};

use self::nodes::Node;
use crate::client::Client;
use crate::coverage::Counters;
use crate::faults::{FaultClass, Strike};
use crate::history::History;
use crate::machine::{Answer, Call};
use crate::mutations::Mutation;
use crate::network::{NetEvent, Network};
use crate::options::Options;
use crate::oracle::{Look, Oracles, Violation};
use crate::prng::{Prng, Streams};
use crate::queue::EventQueue;
use crate::tape::Recording;
use crate::time::{MILLISECOND, Nanos, SECOND, show};

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node's tick is due.
    Tick { node: u8, boot: u32 },
    /// Something on a node's disk is due.
    Disk { node: u8 },
    /// Something on the network is due.
    Net(NetEvent),
    /// A call reaches a node.
    Call {
        node: u8,
        token: u64,
        call: Box<Call>,
    },
    /// An answer reaches a client.
    Answer { token: u64, answer: Box<Answer> },
    /// A client looks at its clock.
    Wake { client: usize },
    /// A fault of a class is due.
    Fault(FaultClass),
    /// A node that is down is started.
    Start { node: u8 },
    /// A node that stands still goes on.
    Resume { node: u8 },
    /// The present partition ends.
    Rejoin,
    /// The present partition comes or goes, as it does many times.
    Flap,
    /// A link begins to stand still, as one of several.
    Stand { from: u8, to: u8, until: Nanos },
    /// A node that is slow has time for what waits.
    Work { node: u8, boot: u32 },
    /// A node is as quick as ever.
    Quick { node: u8 },
    /// A disk has room again.
    Room { node: u8 },
    /// Time to look whether the phase is over.
    Check,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Everything may go wrong.
    Safety,
    /// Nothing goes wrong any more; clients finish.
    Liveness,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every claim held and everything was finished.
    Passed,
    /// A claim about safety did not hold.
    Safety(Violation),
    /// The healed cluster did not finish.
    Liveness(String),
    /// A core panicked.
    Panic(String),
    /// What the profile promises did not happen.
    Vacuous(String),
}

impl Verdict {
    /// The exit code of a run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Safety(_) => 1,
            Self::Liveness(_) => 2,
            Self::Panic(_) => 3,
            Self::Vacuous(_) => 4,
        }
    }

    /// One word for tables.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Safety(_) => "SAFETY",
            Self::Liveness(_) => "LIVENESS",
            Self::Panic(_) => "PANIC",
            Self::Vacuous(_) => "vacuous",
        }
    }
}

/// What a run leaves behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The options it ran with.
    pub options: Options,
    /// How it ended.
    pub verdict: Verdict,
    /// Hash over everything that happened.
    pub trace: u64,
    /// Virtual time at the end.
    pub ended: Nanos,
    /// Inputs given to nodes.
    pub steps: u64,
    /// What happened, by name.
    pub counters: Counters,
    /// Frames by what they are and where they go.
    pub frames: crate::frames::Frames,
    /// Comparisons by oracle.
    pub comparisons: BTreeMap<&'static str, u64>,
    /// Faults that struck, in order.
    pub struck: Vec<Strike>,
    /// What clients asked and were told, as lines of JSON.
    pub history: Vec<String>,
    /// The log, when one was asked for: its last lines.
    pub log: Vec<String>,
    /// State of every node at the end, for people.
    pub nodes: Vec<String>,
    /// Everything that was drawn, when it was asked for.
    pub recording: Option<Recording>,
    /// Whether the run asked for more than its recording has: it is another run.
    pub is_misfit: bool,
}

/// A cluster under test. See the file's head.
pub struct World {
    pub(crate) options: Options,
    pub(crate) streams: Streams,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    /// Calls under way, by token.
    pub(crate) calls: BTreeMap<u64, calls::UnderWay>,
    pub(crate) next_token: u64,
    pub(crate) fault_prng: Prng,
    /// Which chunks of state are damaged.
    chunk_prng: Prng,
    pub(crate) fault_numbers: BTreeMap<FaultClass, u64>,
    pub(crate) struck: Vec<Strike>,
    pub(crate) oracles: Oracles,
    pub(crate) counters: Counters,
    pub(crate) phase: Phase,
    /// Nodes that must work in the liveness phase; all of them before.
    core: Vec<bool>,
    pub(crate) completed: u64,
    pub(crate) partitioned: bool,
    /// The partition that comes and goes.
    flapping: Option<links::Flapping>,
    /// Clients that do not reach a node, or are not reached by it.
    client_cuts: links::ClientCuts,
    /// Frames by what they are and where they go.
    pub(crate) frames: crate::frames::Frames,
    pub(crate) watch: watch::Watch,
    pub(crate) audit: audit::Audit,
    votes: marks::Votes,
    pub(crate) history: History,
    rests_until: Option<Nanos>,
    pub(crate) failure: Option<Verdict>,
    /// A crash that waits for a disk.
    pub(crate) trap: Option<script::Trap>,
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    /// Steps after which the run is given up.
    steps_max: u64,
    phase_ends: Nanos,
    log: Option<Vec<String>>,
}

/// Lines of log that are kept.
const LOG_LINES: usize = 200_000;

impl World {
    /// The world of these options, before its first event.
    #[must_use]
    pub fn new(options: Options, keep_log: bool) -> Self {
        let streams = Streams::new(options.seed);
        Self::drawing_from(streams, options, keep_log)
    }

    /// The world of these options with draws from these streams.
    #[must_use]
    pub fn drawing_from(streams: Streams, options: Options, keep_log: bool) -> Self {
        let network = Network::new(options.replicas, options.network, &streams);
        let clients = (0..options.clients)
            .map(|index| Client::new(index, &options, &streams))
            .collect();
        let nodes = (0..options.replicas)
            .map(|node| Node::new(node, &options, &streams))
            .collect();
        let core = vec![true; usize::from(options.replicas)];
        Self {
            queue: EventQueue::new(streams.stream("schedule")),
            fault_prng: streams.stream("faults"),
            chunk_prng: streams.stream("chunks"),
            fault_numbers: BTreeMap::new(),
            struck: Vec::new(),
            phase_ends: options.safety_max,
            options,
            streams,
            network,
            nodes,
            clients,
            calls: BTreeMap::new(),
            next_token: 1,
            oracles: Oracles::default(),
            counters: Counters::default(),
            phase: Phase::Safety,
            core,
            completed: 0,
            partitioned: false,
            flapping: None,
            client_cuts: links::ClientCuts::default(),
            frames: crate::frames::Frames::default(),
            watch: watch::Watch::default(),
            audit: audit::Audit::default(),
            votes: marks::Votes::default(),
            history: History::default(),
            rests_until: None,
            failure: None,
            trap: None,
            trace: 0,
            steps: 0,
            steps_max: u64::MAX,
            log: keep_log.then(Vec::new),
        }
    }

    /// Gives the run up after so many steps.
    #[must_use]
    pub fn giving_up_after(mut self, steps: u64) -> Self {
        self.steps_max = steps;
        self
    }

    /// Runs to the verdict.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        self.begin();
        self.finish()
    }

    /// Schedules the first events.
    pub(crate) fn begin(&mut self) {
        Mutation::switch_cores(self.options.mutation);
        for node in 0..self.options.replicas {
            let late = self.fault_prng.below(50 * MILLISECOND);
            self.queue.schedule(late, Event::Start { node });
        }
        for client in 0..self.clients.len() {
            self.clients[client].wake_at = Some(100 * MILLISECOND);
            self.queue
                .schedule(100 * MILLISECOND, Event::Wake { client });
        }
        self.schedule_faults();
        self.queue.schedule(100 * MILLISECOND, Event::Check);
    }

    /// Lets everything happen that is due by `until`.
    pub(crate) fn run_until(&mut self, until: Nanos) {
        while self.failure.is_none() && self.queue.next_due().is_some_and(|due| due <= until) {
            if let Some(event) = self.queue.pop() {
                let _ = self.handle(event);
            }
        }
    }

    /// Ends the safety phase at its next check, whatever its budget.
    pub(crate) fn end_safety(&mut self) {
        self.phase_ends = self.queue.now();
    }

    /// Runs from here to the verdict.
    pub(crate) fn finish(mut self) -> Outcome {
        let mut passed = None;
        while passed.is_none() && self.failure.is_none() && !self.streams.is_misfit() {
            let Some(event) = self.queue.pop() else {
                break;
            };
            passed = self.handle(event);
            if self.steps > self.steps_max {
                let text = format!("given up after {} steps", self.steps);
                passed = passed.or(Some(Verdict::Vacuous(text)));
            }
        }
        let verdict = self
            .failure
            .take()
            .or(passed)
            .unwrap_or_else(|| Verdict::Liveness("nothing is left to happen".to_owned()));
        self.outcome(verdict)
    }

    fn outcome(mut self, verdict: Verdict) -> Outcome {
        self.count_edges();
        let mut verdict = verdict;
        if verdict == Verdict::Passed
            && let Some(missing) = self.counters.missing(&self.options)
        {
            verdict = Verdict::Vacuous(missing);
        }
        let nodes = self.nodes.iter_mut().map(Node::describe).collect();
        Outcome {
            verdict,
            trace: self.trace,
            ended: self.queue.now(),
            steps: self.steps,
            comparisons: {
                let mut made = self.oracles.comparisons();
                made.insert("linearizability", self.history.checked());
                made
            },
            frames: self.frames,
            counters: self.counters,
            struck: self.struck,
            history: self.history.lines(),
            log: self.log.unwrap_or_default(),
            nodes,
            is_misfit: self.streams.is_misfit(),
            recording: match self.streams.tape() {
                Some(tape) if tape.is_kept() => Some(tape.recording()),
                _ => None,
            },
            options: self.options,
        }
    }

    fn handle(&mut self, event: Event) -> Option<Verdict> {
        match event {
            Event::Tick { node, boot } => self.on_tick(node, boot),
            Event::Disk { node } => self.on_disk(node),
            Event::Net(event) => self.on_net(event),
            Event::Call { node, token, call } => self.on_call(node, token, call),
            Event::Answer { token, answer } => self.on_answer(token, *answer),
            Event::Wake { client } => self.on_wake(client),
            Event::Fault(class) => self.on_fault(class),
            Event::Start { node } if self.is_in_core(node) => self.start(node),
            Event::Resume { node } if self.is_in_core(node) => self.resume(node),
            Event::Rejoin if self.phase == Phase::Safety => self.rejoin(),
            Event::Flap if self.phase == Phase::Safety => self.flap(),
            Event::Stand { from, to, until } if self.phase == Phase::Safety => {
                self.network.swizzle(from, to, until);
            }
            Event::Work { node, boot } => self.work(node, boot),
            Event::Quick { node } if self.is_in_core(node) => self.quicken(node),
            Event::Room { node } if self.is_in_core(node) => self.make_room(node),
            Event::Start { .. }
            | Event::Resume { .. }
            | Event::Rejoin
            | Event::Flap
            | Event::Stand { .. }
            | Event::Quick { .. }
            | Event::Room { .. } => {}
            Event::Check => return self.on_check(),
        }
        None
    }

    /// The core of a group on a node that runs.
    pub(crate) fn replica(&self, node: u8, group: GroupId) -> Option<&Replica> {
        let machine = self.nodes.get(usize::from(node))?.machine.as_ref()?;
        machine.replica(group)
    }

    fn on_net(&mut self, event: NetEvent) {
        let now = self.queue.now();
        let mut events = Vec::new();
        match event {
            NetEvent::Deliver(packet) => {
                if let Some(packet) = self.network.arrive(*packet) {
                    self.deliver(packet);
                }
            }
            NetEvent::Notice {
                node,
                peer,
                connected,
                epoch,
            } => {
                if self.network.notice(node, peer, connected, epoch) {
                    self.notice(node, peer, connected);
                }
            }
            NetEvent::Redial { a, b } => self.network.redial(now, a, b, &mut events),
        }
        self.schedule_net(events);
    }

    pub(crate) fn schedule_net(&mut self, events: Vec<(Nanos, NetEvent)>) {
        for (due, event) in events {
            self.queue.schedule(due, Event::Net(event));
        }
    }

    /// Whether a phase is over.
    fn on_check(&mut self) -> Option<Verdict> {
        let now = self.queue.now();
        self.queue.schedule(now + 50 * MILLISECOND, Event::Check);
        match self.phase {
            Phase::Safety => {
                let enough = self.completed >= self.options.requests;
                if enough && now >= self.options.safety_min || now >= self.phase_ends {
                    self.begin_liveness();
                }
                None
            }
            Phase::Liveness => self.check_liveness(now),
        }
    }

    /// Hands all nodes, as oracles see them, to `look`.
    pub(crate) fn with_looks<T>(&mut self, look: impl FnOnce(&[Look<'_>], &mut Oracles) -> T) -> T {
        let looks: Vec<Look<'_>> = self.nodes.iter().map(Node::look).collect();
        look(&looks, &mut self.oracles)
    }

    /// Records a violation; the first one ends the run.
    pub(crate) fn judge(&mut self, judged: Result<(), Violation>) {
        if let Err(violation) = judged {
            if self.is_silent(violation.oracle) {
                return self.counters.add("objections not heard", 1);
            }
            self.log(|| format!("VIOLATION {violation}"));
            self.failure.get_or_insert(Verdict::Safety(violation));
        }
    }

    /// Whether nobody listens to an oracle.
    fn is_silent(&self, oracle: &'static str) -> bool {
        let silent = self.options.silent.as_deref();
        silent == Some(crate::mutations::measure::number(oracle))
    }

    /// Folds something that happened into the trace.
    pub(crate) fn trace(&mut self, words: [u64; 4]) {
        let mut bytes = [0; 48];
        let all = [
            self.trace,
            self.queue.now(),
            words[0],
            words[1],
            words[2],
            words[3],
        ];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(all) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        self.trace = xxh3(&bytes);
    }

    /// Adds a line to the log, if one is kept.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        let now = self.queue.now();
        if let Some(log) = &mut self.log {
            if log.len() >= 2 * LOG_LINES {
                log.drain(..LOG_LINES);
            }
            log.push(format!("{:>10} {}", show(now), line()));
        }
    }

    fn count_edges(&mut self) {
        let counts = self.network.counts();
        self.counters.add("frames delivered", counts.delivered);
        self.counters
            .add("frames lost", counts.lost + counts.overflowed);
        self.counters.add("frames cut", counts.cut);
        self.counters.add("frames corrupted", counts.corrupted);
        self.counters.add("frames replayed", counts.replayed);
        self.counters.add("frames straggling", counts.stragglers);
        self.counters
            .add("frames lost with connection", counts.lost_with_connection);
        self.counters.add("connections broken", counts.resets);
        self.counters
            .add("frames into half-open connections", counts.into_half_open);
        self.counters
            .add("frames delayed by a clog", counts.clogged);
        self.counters
            .add("frames delayed by a swizzle", counts.swizzled);
        for node in &self.nodes {
            let disk = node.disk.counts();
            self.counters.add("disk requests", disk.executed);
            self.counters.add("disk errors", disk.errors);
            self.counters
                .add("disk changes unsynced at crash", disk.unsynced_at_crash);
            self.counters
                .add("disk requests interrupted", disk.interrupted);
            self.counters.add("disk sectors damaged", disk.damaged);
            self.counters.add("disk changes torn", disk.torn);
            self.counters
                .add("disk reads of damaged sectors", disk.damage_met);
            self.counters
                .add("disk requests refused for want of room", disk.refused);
            self.counters
                .add("disk reads of misdirected writes", disk.misplaced_met);
            self.counters
                .add("disk reads that were misdirected", disk.misread);
            self.counters
                .add("disk reads of lost writes", disk.unwritten_met);
        }
        self.counters.add("requests completed", self.completed);
        self.counters
            .add("virtual seconds", self.queue.now() / SECOND);
    }
}
