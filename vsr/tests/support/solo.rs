//! One replica alone, fed by hand.

use biplane_vsr::{Boot, Config, Ingest, Input, LogEntry, Output, Replica, Start};
use biplane_wire::{Command, Message, Op, PrepareHeader, View};

use super::node::TestPlane;
use super::{Kind, config, frames};

pub struct Solo {
    pub replica: Replica,
    pub plane: TestPlane,
    /// Outputs not looked at yet.
    pub out: Vec<Output>,
    /// Disk writes are confirmed at once.
    pub disk_works: bool,
    pub wall_micros: u64,
}

impl Solo {
    pub fn open(config: Config, boot: Boot) -> Self {
        let replica = Replica::open(config, boot).expect("a valid boot");
        Self {
            replica,
            plane: TestPlane::new(Kind::Metadata),
            out: Vec::new(),
            disk_works: true,
            wall_micros: 1_700_000_000_000_000,
        }
    }

    /// Replica `replica` of three, normal in `view` with an empty log.
    pub fn normal(replica: u8, view: u32) -> Self {
        let boot = Boot {
            view: View(view),
            log_view: View(view),
            ..Boot::empty(Start::Fresh { view: View(view) })
        };
        Self::open(config(Kind::Metadata, replica, 3), boot)
    }

    /// Replica `replica` of three after a restart, recovering, with this journal.
    pub fn restarted(replica: u8, view: u32, log_view: u32, log: &[Message]) -> Self {
        let start = Start::Used {
            await_transfer: false,
            view_floor: View(0),
        };
        let boot = Boot {
            view: View(view),
            log_view: View(log_view),
            log: log.iter().cloned().map(LogEntry::Intact).collect(),
            ..Boot::empty(start)
        };
        Self::open(config(Kind::Metadata, replica, 3), boot)
    }

    pub fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.replica.step(input, &mut self.plane, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, out: Vec<Output>) {
        self.replica.check_invariants();
        for output in out {
            let done = match &output {
                Output::Append { prepare } => {
                    let header = prepare.header::<PrepareHeader>();
                    Some(Input::Appended {
                        op: header.op(),
                        checksum: header.frame.checksum(),
                    })
                }
                Output::Truncate { from } => Some(Input::Truncated { from: *from }),
                Output::PersistView {
                    view,
                    log_view,
                    commit_max,
                } => Some(Input::ViewPersisted {
                    view: *view,
                    log_view: *log_view,
                    commit_max: *commit_max,
                }),
                _ => None,
            };
            self.out.push(output);
            if let (Some(input), true) = (done, self.disk_works) {
                self.step(input);
            }
        }
        self.apply();
    }

    fn apply(&mut self) {
        while let Some(prepare) = self.replica.next_committed() {
            let op = prepare.header::<PrepareHeader>().op();
            self.replica.applied(op);
        }
    }

    pub fn feed(&mut self, message: Message) {
        self.step(Input::Frame(frames::frame(message)));
    }

    pub fn ingest(&mut self, message: &Message) -> Ingest {
        let mut out = Vec::new();
        let outcome = self
            .replica
            .ingest_repaired(message.clone(), &mut self.plane, &mut out);
        self.carry_out(out);
        outcome
    }

    pub fn admit(&mut self, client: u128) -> biplane_vsr::Admission {
        let mut out = Vec::new();
        let request = frames::request(client, 1, &client.to_le_bytes());
        let wall = self.wall_micros;
        let admission = self
            .replica
            .admit(request, 1, wall, &mut self.plane, &mut out);
        self.carry_out(out);
        admission
    }

    pub fn tick(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.wall_micros += 10_000;
            let wall_micros = self.wall_micros;
            self.step(Input::Tick { wall_micros });
        }
    }

    /// Confirms all writes that were held back, oldest first.
    pub fn confirm_writes(&mut self) {
        self.disk_works = true;
        let held = std::mem::take(&mut self.out);
        self.carry_out(held);
    }

    /// Takes out the frames of one kind sent since the last look; forgets everything else.
    pub fn sent(&mut self, command: Command) -> Vec<(u8, Message)> {
        let sent = self.out.drain(..).filter_map(|output| match output {
            Output::Send { to, message } if message.command() == command => Some((to.0, message)),
            _ => None,
        });
        sent.collect()
    }

    pub fn has(&self, op: u64) -> bool {
        self.replica.log().contains(Op(op))
    }

    /// Ops acknowledged since the last look.
    pub fn acknowledged(&mut self) -> Vec<u64> {
        let sent = self.sent(Command::PrepareOk);
        let op = |message: &Message| message.header::<biplane_wire::PrepareOkHeader>().op().0;
        sent.iter().map(|(_, message)| op(message)).collect()
    }
}
