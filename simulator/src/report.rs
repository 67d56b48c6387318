//! What people read: frames, calls and answers on one line, verdicts, tables, bundles.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use biplane_journal::{Chunk, DiskOp, DiskRequest};
use biplane_wire::{
    Command, CommitHeader, DoViewChangeHeader, Message, PrepareHeader, PrepareOkHeader,
    RepairRangeReplyHeader, RequestPreparesHeader, RequestStateTransferHeader, StartViewHeader,
    StateTransferTargetHeader,
};

use crate::machine::{Answer, Call};
use crate::oracle::show_group;
use crate::time::show;
use crate::world::{Outcome, Verdict};

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Remembers where a core panics instead of printing it: that is a verdict. Panics of the
/// simulator itself are printed as ever.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                let place = info
                    .location()
                    .map_or_else(String::new, ToString::to_string);
                PANIC_PLACE.with(|slot| *slot.borrow_mut() = place);
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs code of a core; where and how it panicked, if it did.
///
/// # Errors
///
/// Place and message of the panic.
pub fn catch_core<T>(core: impl FnOnce() -> T) -> Result<T, String> {
    CATCHING.set(true);
    let caught = catch_unwind(AssertUnwindSafe(core));
    CATCHING.set(false);
    caught.map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "no message".to_owned());
        let place = PANIC_PLACE.with(|slot| slot.borrow().clone());
        format!("{place}: {text}")
    })
}

/// A replica frame on one line.
#[must_use]
pub fn describe_frame(message: &Message) -> String {
    let command = message.command();
    let view = message.generic().frame.view();
    let detail = match command {
        Command::Prepare | Command::RepairPrepare => {
            let header: &PrepareHeader = message.header();
            format!(
                "{} op {} ({:016x}) commit {}",
                show_group(header.group()),
                header.op(),
                header.frame.checksum().0,
                header.commit()
            )
        }
        Command::PrepareOk => {
            let header: &PrepareOkHeader = message.header();
            let checksum = header.prepare_checksum().0;
            format!(
                "{} op {} ({checksum:016x})",
                show_group(header.group()),
                header.op()
            )
        }
        Command::Commit => {
            let header: &CommitHeader = message.header();
            format!("{} commit {}", show_group(header.group()), header.commit())
        }
        Command::DoViewChange => {
            let header: &DoViewChangeHeader = message.header();
            format!(
                "{} log {} op {} commit {} nack {:b} present {:b}",
                show_group(header.group()),
                header.log_view(),
                header.op(),
                header.commit(),
                header.nack_bitset(),
                header.present_bitset()
            )
        }
        Command::StartView => {
            let header: &StartViewHeader = message.header();
            let (op, commit) = (header.op(), header.commit());
            format!("{} op {op} commit {commit}", show_group(header.group()))
        }
        Command::RequestPrepares => {
            let header: &RequestPreparesHeader = message.header();
            let (from, to) = (header.from_op(), header.to_op());
            format!("{} {from}..{to}", show_group(header.group()))
        }
        Command::RepairDone | Command::RangeEvicted => {
            let header: &RepairRangeReplyHeader = message.header();
            format!("{} op {}", show_group(header.group()), header.op())
        }
        Command::RequestStateTransfer => {
            let header: &RequestStateTransferHeader = message.header();
            show_group(header.group())
        }
        Command::StateTransferTarget => {
            let header: &StateTransferTargetHeader = message.header();
            let offer = match (header.available(), header.unavailable_transient()) {
                (true, _) => "offered",
                (false, true) => "not now",
                (false, false) => "refused",
            };
            let (op, commit) = (header.commit_op(), header.commit_max());
            format!(
                "{} {offer} op {op} commit {commit}",
                show_group(header.group())
            )
        }
        _ => String::new(),
    };
    format!("{command:?} v{view} {detail}")
}

/// A disk request on one line.
#[must_use]
pub fn describe_disk(request: &DiskRequest) -> String {
    let path = request.op.path().as_str();
    let detail = match &request.op {
        DiskOp::Write {
            offset, data, sync, ..
        } => {
            format!("{} bytes at {offset} sync {sync}", Chunk::total(data))
        }
        DiskOp::Truncate { len, .. } => format!("to {len}"),
        DiskOp::Replace { data, .. } => format!("{} bytes", Chunk::total(data)),
        DiskOp::Rename { to, .. } => format!("to {}", to.as_str()),
        _ => String::new(),
    };
    format!(
        "{:?} {:?} {path} {detail}",
        request.queue,
        request.op.verb()
    )
}

/// A call on one line.
#[must_use]
pub fn describe_call(call: &Call) -> String {
    match call {
        Call::Register { client, user_id } => format!("Register {:x} user {user_id}", client.0),
        Call::Logout {
            client,
            session,
            request,
        } => {
            format!("Logout {:x} session {session} request {request}", client.0)
        }
        Call::Request {
            group,
            client,
            session,
            request,
            operation,
            ..
        } => format!(
            "{operation:?} {} client {:x} session {session} request {request}",
            show_group(*group),
            client.0
        ),
        Call::Directory => "Directory".to_owned(),
        Call::Poll { group, query, .. } => format!("Poll {} {query:?}", show_group(*group)),
        Call::Sync { group, client } => format!("Sync {group:?} client {:x}", client.0),
    }
}

/// An answer on one line.
#[must_use]
pub fn describe_answer(answer: &Answer) -> String {
    match answer {
        Answer::Replied { code, message } => {
            let header: &biplane_wire::ReplyHeader = message.header();
            format!("code {code} op {}", header.op())
        }
        Answer::Polled { status, body } => format!("poll {status}, {} bytes", body.len()),
        other => format!("{other:?}"),
    }
}

/// The line that runs an outcome again.
#[must_use]
pub fn reproduce(outcome: &Outcome) -> String {
    let options = &outcome.options;
    let mut line = format!(
        "cargo run --release -p biplane-simulator -- --seed {} --profile {}",
        options.seed,
        options.profile.name()
    );
    for setting in &options.overrides {
        let _ = write!(line, " --set {setting}");
    }
    line
}

/// The verdict of a run on one line.
#[must_use]
pub fn verdict_line(outcome: &Outcome) -> String {
    let options = &outcome.options;
    let mut line = format!(
        "seed {} {} r{} {}: {} steps, {}, trace {:016x}",
        options.seed,
        options.profile.name(),
        options.replicas,
        outcome.verdict.word(),
        outcome.steps,
        show(outcome.ended),
        outcome.trace
    );
    match &outcome.verdict {
        Verdict::Passed => {}
        Verdict::Safety(violation) => {
            let _ = write!(line, ": {violation}");
        }
        Verdict::Liveness(text) | Verdict::Panic(text) | Verdict::Vacuous(text) => {
            let _ = write!(line, ": {text}");
        }
    }
    line
}

/// Everything that helps to understand a failed run.
#[must_use]
pub fn bundle(outcome: &Outcome) -> String {
    let mut text = format!("{}\n{}\n\n", verdict_line(outcome), reproduce(outcome));
    text.push_str(&state(outcome));
    let _ = writeln!(text);
    for line in &outcome.log {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The last events of every node: its own steps, without those of others in between.
#[must_use]
pub fn last_events(outcome: &Outcome, count: usize) -> String {
    let mut text = String::new();
    for node in 0..outcome.options.replicas {
        let of_node = format!("n{node}");
        let is_own = |line: &&String| {
            let mut words = line.split_ascii_whitespace().skip(1);
            words.next() == Some(of_node.as_str())
        };
        let mut lines: Vec<&String> = outcome
            .log
            .iter()
            .rev()
            .filter(is_own)
            .take(count)
            .collect();
        lines.reverse();
        let _ = writeln!(text, "  last events of {of_node}:");
        for line in lines {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// Options, counters, and the state of every node.
#[must_use]
pub fn state(outcome: &Outcome) -> String {
    let mut text = format!("{:#?}\n\n", outcome.options);
    for (name, count) in outcome.counters.iter() {
        let _ = writeln!(text, "{count:>10} {name}");
    }
    for (name, count) in &outcome.comparisons {
        let _ = writeln!(text, "{count:>10} comparisons of {name}");
    }
    text.push('\n');
    text.push_str(&outcome.frames.table());
    for node in &outcome.nodes {
        let _ = writeln!(text, "\n{node}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, Profile};
    use crate::world::World;

    #[test]
    fn last_events_are_told_node_by_node() {
        let mut options = Options::drawn(1, Profile::Lite);
        options.requests = 5;
        let outcome = World::new(options, true).run();
        let text = last_events(&outcome, 4);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3 * (1 + 4), "{text}");
        for (index, lines) in lines.chunks(5).enumerate() {
            assert_eq!(lines[0], format!("  last events of n{index}:"));
            let own = format!(" n{index} ");
            assert!(lines[1..].iter().all(|line| line.contains(&own)), "{text}");
        }
    }
}
