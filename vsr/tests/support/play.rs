//! Scripts that are played on a cluster in memory, and the table of what happened.
//!
//! A script is lines of words: what to build, what to break, what to send, what must hold. While
//! it runs every frame that is delivered, every write that completes and every tick that changes
//! something becomes a row. `expect` lines hold whatever the table says, so blessing a table
//! cannot bless a broken rule. The words are listed in `tests/transcripts/README.md`.

mod telling;

use std::collections::BTreeMap;

use biplane_vsr::{Boot, Config, Ingest, Input, LogEntry, Start, TransferStage};
use biplane_wire::{Checksum, Command, Message, Op, PrepareHeader, View};

use super::frames::{self, PrepareParts};
use super::node::{Node, Write};
use super::{Cluster, Kind, Packet, config};

/// One line of the table.
pub struct Row {
    pub step: usize,
    pub path: String,
    pub frame: String,
    pub effect: String,
}

pub struct Play {
    cluster: Cluster,
    rows: Vec<Row>,
    steps: usize,
    /// Names of prepares by identity.
    names: BTreeMap<u128, String>,
    /// Prepares by name.
    prepares: BTreeMap<String, Message>,
    /// Heartbeats that change nothing are rows too.
    shows_heartbeats: bool,
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    let digits = word.trim_start_matches(['v', '#']);
    digits
        .parse()
        .unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// The word after `key`, if the line has it.
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == key)?;
    Some(words.get(at + 1).unwrap_or_else(|| panic!("{key} what?")))
}

fn value_or<T: std::str::FromStr>(words: &[&str], key: &str, default: T) -> T {
    value(words, key).map_or(default, number)
}

/// The words between brackets.
fn list(line: &str) -> Vec<&str> {
    let Some((_, rest)) = line.split_once('[') else {
        return Vec::new();
    };
    let (inside, _) = rest.split_once(']').expect("a closing bracket");
    words(inside)
}

fn command(name: &str) -> Command {
    let known = [
        Command::Prepare,
        Command::PrepareOk,
        Command::Commit,
        Command::StartViewChange,
        Command::DoViewChange,
        Command::StartView,
        Command::RequestStartView,
        Command::RepairPrepare,
    ];
    let found = known.into_iter().find(|it| format!("{it:?}") == name);
    found.unwrap_or_else(|| panic!("no frame {name}"))
}

impl Play {
    pub fn new() -> Self {
        let mut cluster = Cluster::metadata(3);
        cluster.repairs = false;
        Self {
            cluster,
            rows: Vec::new(),
            steps: 0,
            names: BTreeMap::new(),
            prepares: BTreeMap::new(),
            shows_heartbeats: false,
        }
    }

    /// The rows since the last look.
    pub fn take_rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }

    /// Plays one line.
    pub fn play(&mut self, line: &str) {
        let all = words(line);
        let (verb, rest) = all.split_first().expect("a verb");
        match *verb {
            "cluster" => self.build(rest),
            "repairs" => self.cluster.repairs = rest == ["on"],
            "heartbeats" => self.shows_heartbeats = rest == ["on"],
            "chain" => self.chain(rest),
            "request" => self.request(rest),
            "tick" => self.ticks(number(rest[0])),
            "until" => self.until(rest),
            "cut" => self.cluster.cut(number(rest[0]), number(rest[1])),
            "one-way" => self.cluster.cut_one_way(number(rest[0]), number(rest[1])),
            "isolate" => self.cluster.isolate(number(rest[0])),
            "heal" => self.cluster.heal(),
            "lose" => {
                let times = value_or(rest, "times", 1);
                let to = value_or(rest, "to", 0);
                self.cluster.lose_first(command(rest[0]), to, times);
            }
            "crash" => self.crash(number(rest[0])),
            "only" => {
                let stays: u8 = number(rest[0]);
                (0..self.cluster.count())
                    .filter(|node| *node != stays)
                    .for_each(|node| self.cluster.crash(node));
            }
            "restart" => self.restart(rest),
            "boot" => self.boot(rest, line),
            "feed" => self.feed(rest, line),
            "disk" => self.disk(rest),
            "evict" => self.evict(number(rest[0]), number(rest[2])),
            "floor" => self.floor(rest),
            "transfer" => self.transfer_stage(rest),
            "state" => self.states(),
            "need" => self.need(number(rest[0])),
            "complete" if rest[1] == "record" => self.complete_record(number(rest[0])),
            "complete" => {
                self.complete_one(number(rest[0]));
            }
            "expect" => self.expect(rest, line),
            other => panic!("no verb {other}"),
        }
        self.settle();
    }

    fn build(&mut self, rest: &[&str]) {
        let kind = match rest[0] {
            "metadata" => Kind::Metadata,
            "partition" => Kind::Partition,
            "persisted" => Kind::Persisted,
            other => panic!("no kind {other}"),
        };
        self.cluster = Cluster::new(kind, number(rest[1]));
        self.cluster.repairs = value(rest, "repairs") == Some("on");
    }

    fn chain(&mut self, rest: &[&str]) {
        let (letter, view) = (rest[0], number(rest[1]));
        let (first, last) = rest[2].split_once("..").expect("first..last");
        let mut parent = match value(rest, "on") {
            Some(name) => frames::identity(&self.named(name)),
            None => Checksum::ZERO,
        };
        let commit = value_or(rest, "commit", 0);
        let variant = u64::from(letter.as_bytes()[0]);
        for op in number::<u64>(first)..=number(last) {
            let parts = PrepareParts {
                view,
                replica: (view % u32::from(self.cluster.count())) as u8,
                op,
                commit,
                parent,
                variant,
            };
            let message = frames::prepare(parts);
            parent = frames::identity(&message);
            self.names.insert(parent.0, format!("{letter}{op}"));
            self.prepares.insert(format!("{letter}{op}"), message);
        }
    }

    fn named(&self, name: &str) -> Message {
        let found = self.prepares.get(name);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no prepare {name}"))
    }

    fn request(&mut self, rest: &[&str]) {
        let node: u8 = number(rest[0]);
        for _ in 0..value_or(rest, "times", 1) {
            let before = self.before(node);
            let op = self.cluster.submit(node);
            let mut effects = self.effects(node, &before);
            match op {
                Some(op) => effects.insert(0, format!("prepared as op {op}")),
                None => effects.insert(0, "not prepared".to_owned()),
            }
            self.row(format!("client -> {node}"), "Request".to_owned(), &effects);
        }
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.cluster.ticks += 1;
        let wall_micros = self.cluster.wall_micros();
        for node in 0..self.cluster.count() {
            let before = self.before(node);
            self.cluster.step(node, Input::Tick { wall_micros });
            let effects = self.effects(node, &before);
            if !effects.is_empty() {
                let tick = format!("tick {}", self.cluster.ticks);
                self.row(node.to_string(), tick, &effects);
            }
        }
        if self.cluster.repairs {
            self.cluster.repair();
        }
        self.settle();
    }

    fn until(&mut self, rest: &[&str]) {
        let limit = value_or(rest, "within", 400);
        for _ in 0..limit {
            if self.holds(rest) {
                return;
            }
            self.tick();
        }
        assert!(
            self.holds(rest),
            "{rest:?} within {limit} ticks:\n{}",
            self.cluster.describe()
        );
    }

    fn holds(&self, rest: &[&str]) -> bool {
        match rest[0] {
            "primary" => self.cluster.primary() == Some(number(rest[1])),
            "someone-leads" => self.cluster.primary().is_some(),
            "converged" => self.cluster.is_converged(),
            "committed" => self.cluster.committed.contains_key(&Op(number(rest[1]))),
            "view" => self.cluster.status(number(rest[1])).view == View(number(rest[2])),
            other => panic!("no condition {other}"),
        }
    }

    fn crash(&mut self, node: u8) {
        self.cluster.crash(node);
        self.row(node.to_string(), "crash".to_owned(), &[]);
    }

    fn restart(&mut self, rest: &[&str]) {
        let node: u8 = number(rest[0]);
        let start = Start::Used {
            await_transfer: rest.contains(&"awaiting-transfer"),
            view_floor: View(0),
        };
        self.cluster.restart_as(node, start);
        let effects = [self.summary(node)];
        self.row(node.to_string(), "restart".to_owned(), &effects);
    }

    /// A node with a disk made up by the script.
    fn boot(&mut self, rest: &[&str], line: &str) {
        let node: u8 = number(rest[0]);
        let count = self.cluster.count();
        let kind = self.cluster.kind;
        let mut made = Node::fresh(kind, self.config(node, count, rest));
        let (view, log_view) = (value_or(rest, "view", 0), value_or(rest, "log_view", 0));
        made.superblock = (View(view), View(log_view), Op(value_or(rest, "commit", 0)));
        let mut log = Vec::new();
        for word in list(line) {
            if let Some(op) = word.strip_prefix('!') {
                made.damaged.push(Op(number(op)));
                log.push(LogEntry::Damaged(Op(number(op))));
                continue;
            }
            let message = match word.strip_suffix('?') {
                Some(name) => self.named(name).prepare_in_view(View(u32::MAX)),
                None => self.named(word),
            };
            let op = message.header::<PrepareHeader>().op();
            made.journal.insert(op, message.clone());
            log.push(LogEntry::Intact(message));
        }
        let start = match rest[1] {
            "fresh" => Start::Fresh { view: View(view) },
            _ => Start::Used {
                await_transfer: rest.contains(&"awaiting-transfer"),
                view_floor: View(0),
            },
        };
        let boot = Boot {
            view: View(view),
            log_view: View(log_view),
            commit_max: made.superblock.2,
            log,
            ..Boot::empty(start)
        };
        let opened = biplane_vsr::Replica::open(made.config.clone(), boot);
        made.replica = Some(opened.expect("a valid boot"));
        self.cluster.nodes[usize::from(node)] = made;
        self.cluster.after(node, Vec::new());
        let effects = [self.summary(node)];
        self.row(node.to_string(), "boot".to_owned(), &effects);
    }

    fn config(&self, node: u8, count: u8, rest: &[&str]) -> Config {
        let mut made = config(self.cluster.kind, node, count);
        made.incarnation = value_or(rest, "incarnation", made.incarnation);
        made
    }

    fn feed(&mut self, rest: &[&str], line: &str) {
        let (to, kind) = (number(rest[0]), command(rest[1]));
        let from = value_or(rest, "from", 0);
        let view = value_or(rest, "view", 0);
        let (op, commit) = (value_or(rest, "op", 0), value_or(rest, "commit", 0));
        let entries: Vec<(Option<Message>, bool, bool)> = list(line)
            .into_iter()
            .map(|word| {
                let core = word.trim_end_matches(['P', 'n']);
                let held = (!core.starts_with('_')).then(|| self.named(core));
                (held, word.ends_with('n'), word.ends_with('P'))
            })
            .collect();
        let incarnation = value_or(rest, "incarnation", 0);
        let message = match kind {
            Command::Prepare => {
                let message = self.named(rest[2]);
                match value(rest, "view") {
                    Some(view) => message.prepare_in_view(View(number(view))),
                    None => message,
                }
            }
            Command::RepairPrepare => self.named(rest[2]).prepare_to_repair(),
            Command::PrepareOk => frames::prepare_ok(from, view, &self.named(rest[2])),
            Command::Commit => frames::commit(from, view, commit, value_or(rest, "counter", 1)),
            Command::StartViewChange => frames::start_view_change(from, view),
            Command::RequestStartView => frames::request_start_view(from, view, incarnation),
            Command::DoViewChange => {
                let log_view = value_or(rest, "log_view", 0);
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(held, nack, present)| (held.as_ref(), *nack, *present))
                    .collect();
                frames::do_view_change(from, view, log_view, (op, commit), &entries)
            }
            Command::StartView => {
                let held: Vec<_> = entries.iter().map(|(held, ..)| held.as_ref()).collect();
                frames::start_view(view, (op, commit), incarnation, &held)
            }
            other => panic!("{other:?} is not fed"),
        };
        let from = message.generic().frame.replica().0;
        self.deliver(Packet { from, to, message });
    }

    fn disk(&mut self, rest: &[&str]) {
        let node = &mut self.cluster.nodes[usize::from(number::<u8>(rest[0]))];
        node.holds_disk = rest[1] == "holds";
        node.superblock_fails = rest[1] == "fails";
    }

    fn evict(&mut self, node: u8, through: u64) {
        let replica = self.cluster.nodes[usize::from(node)].replica.as_mut();
        let replica = replica.expect("the node is up");
        replica.log_mut().evict_through(Op(through));
    }

    fn floor(&mut self, rest: &[&str]) {
        let node: u8 = number(rest[0]);
        let floor = Op(number(rest[1]));
        let identity = value(rest, "is").map(|name| frames::identity(&self.named(name)));
        let before = self.before(node);
        let target = &mut self.cluster.nodes[usize::from(node)];
        let replica = target.replica.as_mut().expect("the node is up");
        let mut out = Vec::new();
        let commit_max = Op(value_or(rest, "commit", floor.0));
        replica.install_floor(floor, identity, commit_max, &mut target.plane, &mut out);
        self.cluster.after(node, out);
        let effects = self.effects(node, &before);
        let text = format!("state up to op {floor} installed");
        self.row(node.to_string(), text, &effects);
    }

    fn transfer_stage(&mut self, rest: &[&str]) {
        let stage = match rest[1] {
            "idle" => TransferStage::Idle,
            "awaiting" => TransferStage::AwaitingTarget,
            "fetching" => TransferStage::Fetching,
            other => panic!("no stage {other}"),
        };
        let node = &mut self.cluster.nodes[usize::from(number::<u8>(rest[0]))];
        let replica = node.replica.as_mut().expect("the node is up");
        replica.set_transfer_stage(stage);
    }

    fn states(&mut self) {
        for node in 0..self.cluster.count() {
            let effects = [self.summary(node)];
            self.row(node.to_string(), "state".to_owned(), &effects);
        }
    }

    fn need(&mut self, node: u8) {
        let text = match self.cluster.replica(node).repair_need() {
            None => "nothing".to_owned(),
            Some(need) => {
                let sources: Vec<u8> = need.sources.iter().map(|source| source.0).collect();
                let range = format!("{:?} {}..{}", need.kind, need.from, need.to);
                match sources.is_empty() {
                    true => range,
                    false => format!("{range} from {sources:?}"),
                }
            }
        };
        self.row(node.to_string(), "what is missing".to_owned(), &[text]);
    }

    fn expect(&self, rest: &[&str], line: &str) {
        let node: u8 = number(rest[0]);
        let view = self.cluster.status(node);
        for pair in rest[1..].chunks(2) {
            let [key, wanted] = pair else {
                panic!("{line}: keys and values")
            };
            let found = match *key {
                "status" => format!("{:?}", view.status),
                "view" => view.view.to_string(),
                "log_view" => view.log_view.to_string(),
                "recorded" => format!("{}/{}", view.view_durable, view.log_view_durable),
                "head" => view.op_head.to_string(),
                "applied" => view.commit_min.to_string(),
                "commit" => view.commit_max.to_string(),
                "primary" => view.is_primary.to_string(),
                "barrier" => view.recovery_barrier.to_string(),
                "caught-up" => self
                    .cluster
                    .replica(node)
                    .is_caught_up_primary()
                    .to_string(),
                "halted" => view.halted.is_some().to_string(),
                "holds" => self.held(node, wanted),
                "chained" => self.is_chained(node).to_string(),
                "in-flight" => view.prepares_in_flight.to_string(),
                "span" => self.cluster.replica(node).log().span().to_string(),
                other => panic!("no key {other}"),
            };
            assert_eq!(found, *wanted, "{line}\n{}", self.cluster.describe());
        }
    }

    /// Whether every prepare a node holds names the one below it as its parent.
    fn is_chained(&self, node: u8) -> bool {
        let log = self.cluster.replica(node).log();
        let held: Vec<PrepareHeader> = log.iter().map(|it| *it.header()).collect();
        let mut pairs = held.windows(2);
        pairs.all(|pair| pair[1].parent() == pair[0].frame.checksum())
    }

    /// Completes the first write of the superblock, whatever waits before it.
    fn complete_record(&mut self, node: u8) {
        let target = &mut self.cluster.nodes[usize::from(node)];
        let mut waiting = target.writes.iter();
        let at = waiting.position(|write| matches!(write, Write::View(..)));
        let write = target.writes.remove(at.expect("a record waits"));
        let write = write.expect("it is there");
        target.writes.push_front(write);
        self.complete_one(node);
    }

    /// The name itself if the node has that prepare in its log.
    fn held(&self, node: u8, name: &str) -> String {
        let wanted = self.named(name);
        let op = wanted.header::<PrepareHeader>().op();
        let held = self.cluster.replica(node).log().header(op);
        match held.map(|held| held.frame.checksum()) {
            Some(identity) if identity == frames::identity(&wanted) => name.to_owned(),
            Some(_) => format!("another {op}"),
            None => format!("no {op}"),
        }
    }

    /// Delivers frames and completes writes until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some(packet) = self.cluster.packets.pop_front() {
                moved = true;
                self.deliver(packet);
            }
            for node in 0..self.cluster.count() {
                moved |= self.complete_writes(node);
            }
            if !moved {
                return;
            }
        }
    }

    fn complete_writes(&mut self, node: u8) -> bool {
        if self.cluster.nodes[usize::from(node)].holds_disk {
            return false;
        }
        let mut moved = false;
        while self.complete_one(node) {
            moved = true;
        }
        moved
    }

    fn complete_one(&mut self, node: u8) -> bool {
        let target = &mut self.cluster.nodes[usize::from(node)];
        let Some(write) = target.writes.front().cloned() else {
            return false;
        };
        let Some(input) = target.complete_one() else {
            return false;
        };
        let failed = matches!(input, Input::PersistFailed);
        let before = self.before(node);
        self.cluster.step(node, input);
        let effects = self.effects(node, &before);
        let mut text = self.write_name(&write);
        if failed {
            text += " failed";
        }
        self.row(format!("{node} disk"), text, &effects);
        true
    }

    fn deliver(&mut self, packet: Packet) {
        let (from, to) = (packet.from, packet.to);
        let path = format!("{from} -> {to}");
        let frame = self.frame_name(&packet.message);
        let is_heartbeat = packet.message.command() == Command::Commit;
        let before = self.before(to);
        if before.status.is_none() || self.cluster.is_lost(&packet) {
            if !is_heartbeat || self.shows_heartbeats {
                let why = match before.status {
                    None => "nobody there",
                    Some(_) => "lost",
                };
                // Sent again and lost again: the first time tells it.
                let is_again =
                    |row: &Row| row.path == path && row.frame == frame && row.effect == why;
                if !self.rows.iter().any(is_again) {
                    self.row(path, frame, &[why.to_owned()]);
                }
            }
            return;
        }
        let mut more = None;
        if packet.message.command() == Command::RepairPrepare {
            let ingest = self.cluster.ingest(to, packet.message.repair_to_prepare());
            more = ingest.map(|ingest| match ingest {
                Ingest::Journaled => "taken".to_owned(),
                other => format!("{other:?}"),
            });
        } else {
            let frame = biplane_wire::decode_replica(packet.message).expect("decodable frames");
            self.cluster.step(to, Input::Frame(frame));
        }
        let mut effects: Vec<String> = more.into_iter().collect();
        effects.extend(self.effects(to, &before));
        let is_plain = effects.iter().all(|text| text.starts_with("ignored"));
        if is_heartbeat && is_plain && !self.shows_heartbeats {
            return;
        }
        self.row(path, frame, &effects);
    }
}
