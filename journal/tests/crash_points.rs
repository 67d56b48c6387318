//! A crash after every micro step of the disk, with every fate of what was not synced yet: the
//! log is one of the states the calls went through, at least as far as it had been reported,
//! and it can be opened and used again.

mod support;

use biplane_journal::{Fate, MemoryDisk, Unsynced, WalConfig, WalOutput};
use biplane_wire::{Checksum, Message, Op};
use support::*;

#[derive(Clone, Debug)]
enum Call {
    Append(Message),
    Truncate(u64),
    Drain(u64),
    /// Lets the disk work until it is idle.
    Settle,
}

/// Everything a log can have held: op and identity, ascending.
type State = Vec<(u64, Checksum)>;

/// The states the file goes through, the initial one first.
fn states(calls: &[Call]) -> Vec<State> {
    let mut states = vec![State::new()];
    for call in calls {
        let mut state = states.last().unwrap().clone();
        match call {
            Call::Append(message) => {
                let (op, checksum) = (op(message), checksum(message));
                state.retain(|(held, _)| *held != op);
                state.push((op, checksum));
                state.sort_unstable();
            }
            Call::Truncate(from) => state.retain(|(op, _)| op < from),
            Call::Drain(checkpoint) => state.retain(|(op, _)| op >= checkpoint),
            Call::Settle => continue,
        }
        states.push(state);
    }
    states
}

/// Makes the calls on a fresh disk that stops after `steps`.
fn run(config: &WalConfig, calls: &[Call], steps: u64) -> Rig {
    let mut disk = MemoryDisk::new();
    disk.halt_after(steps);
    let mut rig = Rig::on(config, disk, 0);
    for call in calls {
        match call {
            Call::Append(message) => rig.append(message),
            Call::Truncate(from) => rig.truncate(*from),
            Call::Drain(checkpoint) => rig.drain(*checkpoint),
            Call::Settle => rig.settle(),
        }
    }
    rig.settle();
    rig
}

/// Number of calls whose effect was reported to be durable: the length of the longest prefix.
fn reported(calls: &[Call], rig: &Rig) -> usize {
    let mut events = rig.events.iter();
    let effective = calls.iter().filter(|call| !matches!(call, Call::Settle));
    let reports = |call: &Call, event: Option<&WalOutput>| match (call, event) {
        (
            Call::Append(message),
            Some(WalOutput::Durable {
                op: done,
                checksum: sum,
            }),
        ) => {
            assert_eq!((done.0, *sum), (op(message), checksum(message)));
            true
        }
        (Call::Truncate(from), Some(WalOutput::Truncated { from: done })) => done.0 == *from,
        (Call::Drain(at), Some(WalOutput::Drained { checkpoint })) => checkpoint.0 == *at,
        (_, None) => false,
        (call, Some(event)) => panic!("{event:?} does not answer {call:?}"),
    };
    effective
        .take_while(|call| reports(call, events.next()))
        .count()
}

fn check_all_crashes(config: &WalConfig, calls: &[Call]) -> usize {
    let states = states(calls);
    let steps_max = run(config, calls, u64::MAX).disk.steps_done();
    let mut checked = 0;
    for steps in 0..=steps_max {
        let rig = run(config, calls, steps);
        let least = reported(calls, &rig);
        every_crash(&rig.disk, fates_in_order, &mut |disk, fates| {
            check_state(config, &states[least..], &disk, steps, fates);
            check_second_life(config, disk);
            checked += 1;
        });
        every_crash(&rig.disk, fates_with_holes, &mut |disk, fates| {
            check_nothing_synced_is_lost(config, &states, least, &disk, fates);
            check_second_life(config, disk);
            checked += 1;
        });
    }
    checked
}

fn check_state(
    config: &WalConfig,
    states: &[State],
    disk: &MemoryDisk,
    steps: u64,
    fates: &[Fate],
) {
    let recovered = biplane_journal::recover(config, disk, Op(0)).unwrap();
    let found = identities(&recovered);
    assert!(
        states.contains(&found),
        "after {steps} steps and {fates:?}: {found:?} is none of {states:?}"
    );
    assert!(
        recovered.damage.is_empty(),
        "after {steps} steps and {fates:?}"
    );
}

/// When the sectors of a write survive in any order, an op that was never reported may come
/// back damaged; but what was reported is intact, and nothing is there that never was.
fn check_nothing_synced_is_lost(
    config: &WalConfig,
    states: &[State],
    least: usize,
    disk: &MemoryDisk,
    fates: &[Fate],
) {
    let recovered = biplane_journal::recover(config, disk, Op(0)).unwrap();
    let found = identities(&recovered);
    let reported = &states[least];
    let later = &states[least..];
    for (op, checksum) in reported {
        let may_go = later.iter().any(|state| !state.contains(&(*op, *checksum)));
        assert!(
            found.contains(&(*op, *checksum)) || may_go,
            "lost op {op} with {fates:?}"
        );
    }
    for (op, checksum) in found {
        let known = later.iter().any(|state| state.contains(&(op, checksum)));
        let was_reported = reported.iter().any(|(held, _)| *held == op);
        let attempted = later.iter().flatten().any(|(held, _)| *held == op);
        let replaced = later
            .iter()
            .any(|state| !reported.iter().all(|each| state.contains(each)));
        let damaged = checksum == Checksum::ZERO && (!was_reported || replaced) && attempted;
        let phantom = checksum == Checksum::ZERO && !was_reported;
        assert!(
            known || damaged || phantom,
            "op {op} came from nowhere with {fates:?}"
        );
    }
}

/// What a crash left can be opened, goes back to rest in the same state, and takes more.
fn check_second_life(config: &WalConfig, disk: MemoryDisk) {
    let before = biplane_journal::recover(config, &disk, Op(0)).unwrap();
    let mut rig = Rig::on(config, disk, 0);
    rig.settle();
    let after = rig.recover();
    assert_eq!(identities(&before), identities(&after));
    assert!(after.torn.is_none());
    assert_eq!(after.layout_garbage(), 0, "garbage was replaced by markers");
    let next = before.head().0 + 1;
    let message = prepare_of(config.scope.group, next, Checksum(1), 9);
    rig.append(&message);
    rig.settle();
    assert!(rig.wal.is_durable(Op(next), checksum(&message)));
    rig.disk.crash_losing_all();
    let last = identities(&rig.recover()).pop();
    assert_eq!(last, Some((next, checksum(&message))));
}

trait LayoutGarbage {
    fn layout_garbage(&self) -> usize;
}

impl LayoutGarbage for biplane_journal::Recovered {
    fn layout_garbage(&self) -> usize {
        self.damage
            .iter()
            .filter(|damage| damage.op.is_none())
            .count()
    }
}

fn appends(prepares: &[Message]) -> Vec<Call> {
    prepares.iter().cloned().map(Call::Append).collect()
}

#[test]
fn appends_survive_in_order_and_whole() {
    for config in configs() {
        let prepares = chain(config.scope.group, 1, 5);
        let mut calls = appends(&prepares[..2]);
        calls.push(Call::Settle);
        calls.extend(appends(&prepares[2..]));
        let checked = check_all_crashes(&config, &calls);
        assert!(checked > 50, "only {checked} crashes");
    }
}

#[test]
fn a_truncated_suffix_is_there_whole_or_gone_whole() {
    for config in configs() {
        let prepares = chain(config.scope.group, 1, 5);
        let mut calls = appends(&prepares);
        calls.extend([Call::Settle, Call::Truncate(4)]);
        let parent = checksum(&prepares[2]);
        calls.extend(appends(&chain_after(config.scope.group, parent, 4, 6, 1)));
        let checked = check_all_crashes(&config, &calls);
        assert!(checked > 50, "only {checked} crashes");
    }
}

#[test]
fn a_truncation_between_survivors_rewrites_in_one_step() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    // Op 3 is repaired last, so the file ends with a survivor.
    let order = [0, 1, 3, 4, 5, 2].map(|index: usize| prepares[index].clone());
    let mut calls = appends(&order);
    calls.extend([Call::Settle, Call::Truncate(5), Call::Settle]);
    let parent = checksum(&prepares[3]);
    calls.extend(appends(&chain_after(config.scope.group, parent, 5, 6, 1)));
    check_all_crashes(&config, &calls);
}

#[test]
fn a_drained_prefix_is_there_whole_or_gone_whole() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    let mut calls = appends(&prepares[..5]);
    calls.extend([Call::Settle, Call::Drain(4)]);
    calls.extend(appends(&prepares[5..]));
    calls.extend([Call::Settle, Call::Drain(6)]);
    check_all_crashes(&config, &calls);
}

#[test]
fn a_replaced_op_is_the_old_one_or_the_new_one() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 4);
    let parent = checksum(&prepares[1]);
    let replaced = chain_after(config.scope.group, parent, 3, 4, 1);
    let mut calls = appends(&prepares);
    calls.push(Call::Settle);
    calls.extend(appends(&replaced));
    calls.extend([
        Call::Settle,
        Call::Drain(2),
        Call::Settle,
        Call::Truncate(4),
    ]);
    check_all_crashes(&config, &calls);
}

#[test]
fn calls_in_a_hurry_take_effect_in_their_order() {
    let config = metadata_config();
    let prepares = chain(config.scope.group, 1, 6);
    let parent = checksum(&prepares[2]);
    let again = chain_after(config.scope.group, parent, 4, 5, 1);
    let mut calls = appends(&prepares[..3]);
    calls.push(Call::Settle);
    calls.extend(appends(&prepares[3..]));
    // Everything from here on is queued while the first write is in flight.
    let rig = {
        let mut rig = run(&config, &calls[..4], u64::MAX);
        for call in &calls[4..] {
            if let Call::Append(message) = call {
                rig.append(message);
            }
        }
        rig.truncate(4);
        for message in &again {
            rig.append(message);
        }
        rig.drain(2);
        rig
    };
    let total = {
        let mut rig = rig.clone();
        rig.settle();
        rig.disk.steps_done()
    };
    let mut seen = std::collections::BTreeSet::new();
    for steps in 0..=total {
        let mut rig = rig.clone();
        rig.disk.halt_after(steps);
        rig.settle();
        every_crash(&rig.disk, fates_in_order, &mut |disk, _| {
            let recovered = biplane_journal::recover(&config, &disk, Op(0)).unwrap();
            seen.insert(summary(&recovered));
            let held = identities(&recovered);
            for event in &rig.events {
                if let WalOutput::Durable { op, checksum } = event {
                    let gone = op.0 < 2 && recovered.entries.first().is_some_and(|e| e.op().0 >= 2);
                    assert!(
                        gone || held.contains(&(op.0, *checksum)),
                        "op {op} was reported"
                    );
                }
            }
            check_second_life(&config, disk);
        });
    }
    let wanted: &[&[i64]] = &[&[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 3, 4, 5], &[2, 3, 4, 5]];
    for state in &seen {
        let grown: &[i64] = &[1, 2, 3, 4, 5, 6];
        assert!(
            wanted.contains(&state.as_slice()) || state == grown,
            "{state:?}"
        );
    }
    assert!(seen.contains([2, 3, 4, 5].as_slice()));
}

#[test]
fn damage_stays_known_through_rewrites_and_crashes() {
    for config in configs() {
        let prepares = chain(config.scope.group, 1, 6);
        let mut file = file_of(&config, &prepares);
        let start = file_of(&config, &prepares[..2]).len();
        // The header of op 3 is gone: only its neighbours say which op it was.
        file[start + 8] ^= 1;
        let mut disk = MemoryDisk::new();
        disk.put(&config.path, &file);
        let total = {
            let mut rig = damaged_life(&config, disk.clone(), u64::MAX);
            rig.settle();
            rig.disk.steps_done()
        };
        for steps in 0..=total {
            let rig = damaged_life(&config, disk.clone(), steps);
            every_crash(&rig.disk, fates_in_order, &mut |disk, fates| {
                let recovered = biplane_journal::recover(&config, &disk, Op(0)).unwrap();
                let found = summary(&recovered);
                let repaired = found.contains(&3);
                assert!(
                    repaired || found.contains(&-3),
                    "{found:?} {steps} {fates:?}"
                );
                check_second_life(&config, disk);
            });
        }
    }
}

/// Opens a damaged log, cuts its end, then repairs it.
fn damaged_life(config: &WalConfig, mut disk: MemoryDisk, steps: u64) -> Rig {
    disk.halt_after(steps);
    let mut rig = Rig::on(config, disk, 0);
    rig.settle();
    rig.truncate(6);
    rig.settle();
    rig.drain(2);
    rig.settle();
    rig.append(&chain(config.scope.group, 1, 3)[2]);
    rig.settle();
    rig
}

#[test]
fn fates_cover_each_change_once() {
    let change = Unsynced {
        id: 0,
        path: biplane_journal::DiskPath::root(),
        kind: biplane_journal::UnsyncedKind::Data,
        sectors: 3,
    };
    assert_eq!(fates_in_order(&change).len(), 4);
    assert_eq!(fates_with_holes(&change).len(), 6);
}
