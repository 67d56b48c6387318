//! Telling what happened in a play: names of frames and prepares, and what changed at a node.

use biplane_vsr::{DenyReason, HaltReason, Output, Status, StatusView, TransferNotice};
use biplane_wire::{
    Command, CommitHeader, DoViewChangeHeader, Message, PrepareHeader, PrepareOkHeader,
    RequestStartViewHeader, StartViewHeader, Suffix,
};

use super::{Play, Row};
use crate::support::node::Write;

/// What a node looked like before something happened to it.
pub(super) struct Before {
    pub(super) status: Option<StatusView>,
    pub(super) ignored: u64,
    pub(super) writes: usize,
    pub(super) answered: usize,
}

impl Play {
    pub(super) fn name(&mut self, header: &PrepareHeader) -> String {
        let identity = header.frame.checksum().0;
        if let Some(name) = self.names.get(&identity) {
            return name.clone();
        }
        let mut name = header.op().to_string();
        while self.names.values().any(|known| *known == name) {
            name.push('\'');
        }
        self.names.insert(identity, name.clone());
        name
    }

    pub(super) fn write_name(&mut self, write: &Write) -> String {
        match write {
            Write::Append(prepare) => format!("written {}", self.name(prepare.header())),
            Write::Truncate(from) => format!("cut from {from}"),
            Write::View(view, log_view, _) => format!("recorded v{view} log v{log_view}"),
        }
    }

    pub(super) fn frame_name(&mut self, message: &Message) -> String {
        let view = message.generic().frame.view();
        let kind = message.command();
        let text = match kind {
            Command::Prepare | Command::RepairPrepare => {
                let header = *message.header::<PrepareHeader>();
                format!("{} commit {}", self.name(&header), header.commit())
            }
            Command::PrepareOk => {
                let header: &PrepareOkHeader = message.header();
                let identity = header.prepare_checksum().0;
                let op = header.op().to_string();
                self.names.get(&identity).cloned().unwrap_or(op)
            }
            Command::Commit => {
                let header: &CommitHeader = message.header();
                format!(
                    "commit {} counter {}",
                    header.commit(),
                    header.timestamp_monotonic()
                )
            }
            Command::DoViewChange => {
                let frame = biplane_wire::decode_replica(message.clone()).expect("decodable");
                let biplane_wire::ReplicaFrame::DoViewChange(frame) = frame else {
                    unreachable!("the command says so")
                };
                let header: &DoViewChangeHeader = frame.header();
                let suffix = Suffix::of_do_view_change(&frame).expect("a suffix");
                format!(
                    "log v{} op {} commit {} {}",
                    header.log_view(),
                    header.op(),
                    header.commit(),
                    self.suffix_name(&suffix)
                )
            }
            Command::StartView => {
                let frame = biplane_wire::decode_replica(message.clone()).expect("decodable");
                let biplane_wire::ReplicaFrame::StartView(frame) = frame else {
                    unreachable!("the command says so")
                };
                let header: &StartViewHeader = frame.header();
                let suffix = Suffix::of_start_view(&frame).expect("a suffix");
                format!(
                    "op {} commit {} {}",
                    header.op(),
                    header.commit(),
                    self.suffix_name(&suffix)
                )
            }
            Command::RequestStartView => {
                let header: &RequestStartViewHeader = message.header();
                format!("incarnation {}", header.incarnation())
            }
            _ => String::new(),
        };
        format!("{kind:?} v{view} {text}").trim_end().to_owned()
    }

    pub(super) fn suffix_name(&mut self, suffix: &Suffix<'_>) -> String {
        let mut names = Vec::new();
        for entry in suffix.iter() {
            let name = match entry.header {
                Some(header) => self.name(header),
                None => "_".to_owned(),
            };
            let mark = match (entry.nack, entry.present) {
                (true, _) => "n",
                (_, true) => "P",
                _ => "",
            };
            names.push(format!("{name}{mark}"));
        }
        format!("[{}]", names.join(" "))
    }

    pub(super) fn before(&self, node: u8) -> Before {
        let target = &self.cluster.nodes[usize::from(node)];
        Before {
            status: target.replica.as_ref().map(|replica| replica.status()),
            ignored: target.replica.as_ref().map_or(0, |it| it.ignored().total()),
            writes: target.writes.len(),
            answered: target.answered.len(),
        }
    }

    /// What changed at a node, in words.
    pub(super) fn effects(&mut self, node: u8, before: &Before) -> Vec<String> {
        let mut effects = Vec::new();
        let target = &mut self.cluster.nodes[usize::from(node)];
        let Some(replica) = &target.replica else {
            return effects;
        };
        let after = replica.status();
        if let Some(before) = &before.status {
            differences(before, &after, &mut effects);
        }
        if replica.ignored().total() > before.ignored
            && let Some(reason) = replica.ignored().last()
        {
            effects.push(format!("ignored: {reason:?}"));
        }
        for (_, op) in target.answered.iter().skip(before.answered) {
            effects.push(format!("answers op {op}"));
        }
        for note in std::mem::take(&mut target.notes) {
            effects.extend(note_name(&note));
        }
        let started: Vec<Write> = target.writes.iter().skip(before.writes).cloned().collect();
        for write in started {
            effects.push(match write {
                Write::Append(prepare) => format!("writes {}", self.name(prepare.header())),
                Write::Truncate(from) => format!("cuts from {from}"),
                Write::View(view, log_view, _) => format!("records v{view} log v{log_view}"),
            });
        }
        effects
    }

    pub(super) fn summary(&self, node: u8) -> String {
        let Some(replica) = &self.cluster.nodes[usize::from(node)].replica else {
            return "down".to_owned();
        };
        let view = replica.status();
        let mut text = format!(
            "{:?} v{} log v{} head {} commit {}..{}",
            view.status, view.view, view.log_view, view.op_head, view.commit_min, view.commit_max
        );
        if view.is_primary {
            text += " primary";
        }
        if view.recovery_barrier > view.commit_max {
            text += &format!(" barrier {}", view.recovery_barrier);
        }
        text
    }

    pub(super) fn row(&mut self, path: String, frame: String, effects: &[String]) {
        self.steps += 1;
        let effect = if effects.is_empty() {
            "-".to_owned()
        } else {
            effects.join("; ")
        };
        self.rows.push(Row {
            step: self.steps,
            path,
            frame,
            effect,
        });
    }
}

fn differences(before: &StatusView, after: &StatusView, effects: &mut Vec<String>) {
    let is_new = (before.status, before.view, before.is_primary)
        != (after.status, after.view, after.is_primary);
    if is_new {
        let role = match (after.status, after.is_primary) {
            (Status::Normal, true) => " as primary",
            (Status::Normal, false) => " as backup",
            _ => "",
        };
        effects.push(format!("{:?} v{}{role}", after.status, after.view));
    }
    if before.log_view != after.log_view {
        effects.push(format!("log v{}", after.log_view));
    }
    if before.op_head != after.op_head {
        effects.push(format!("head {}", after.op_head));
    }
    if before.commit_max != after.commit_max {
        effects.push(format!("commit {}", after.commit_max));
    }
    if before.commit_min != after.commit_min {
        effects.push(format!("applied {}", after.commit_min));
    }
    if before.recovery_barrier != after.recovery_barrier {
        effects.push(format!("barrier {}", after.recovery_barrier));
    }
    if before.transfer_stage != after.transfer_stage {
        effects.push(format!("transfer {:?}", after.transfer_stage));
    }
}

fn note_name(note: &Output) -> Option<String> {
    Some(match note {
        Output::Denied { code, reason, .. } => {
            let why = match reason {
                DenyReason::ViewChanged => "the view is over",
                DenyReason::Plane => "the plane refuses",
            };
            format!("answers code {code}: {why}")
        }
        Output::Canceled { op, .. } => format!("whoever waits for op {op} hears nothing certain"),
        Output::Transfer(TransferNotice::Begin { from }) => format!("asks {from} for its state"),
        Output::Transfer(TransferNotice::Abandoned) => "gives the transfer up".to_owned(),
        Output::Halt(HaltReason::ForkedLog { op }) => format!("stops: the log forks at op {op}"),
        Output::Halt(HaltReason::AppendFailed { op }) => format!("stops: op {op} is not written"),
        _ => return None,
    })
}
