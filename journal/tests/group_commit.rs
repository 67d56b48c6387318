//! Many logs over one group commit, on a disk that crashes between any two steps: the files seen
//! through the replay are always in a state that was asked for, at least as far as was answered.
//!
//! `SEED=7 RUNS=1` replays one random run, `RUNS=2000` explores.

use biplane_journal::{
    Chunk, Disk as _, DiskCompletion, DiskErrorKind, DiskOp, DiskPath, DiskRequest, DiskVerb,
    DiskView as _, Fate, Fault, GroupCommit, GroupCommitConfig, MemoryDisk, QueueId, Replay,
    ReplayError,
};

const LOGS: u64 = 4;

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).unwrap()
}

fn log_path(log: u64) -> DiskPath {
    path(&format!("p{log}/prepares.wal"))
}

struct Prng(u64);

impl Prng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A log: what it surely holds, and what it will hold once the request under way is answered.
#[derive(Clone, Default)]
struct Log {
    before: Vec<u8>,
    after: Option<Vec<u8>>,
    /// Whether the request under way may be found half done: appended bytes, never old ones lost.
    may_tear: bool,
}

/// Group commit over a disk, and the logs that use it.
struct Rig {
    disk: MemoryDisk,
    commit: GroupCommit,
    out: Vec<DiskRequest>,
    logs: Vec<Log>,
    answered: u64,
    refused: u64,
}

impl Rig {
    fn start(disk: MemoryDisk, logs: Vec<Log>, salt: u64) -> Self {
        let replay = Replay::read(&disk).unwrap();
        let mut out = Vec::new();
        let commit = GroupCommit::open(GroupCommitConfig::tiny(salt), replay, &mut out);
        let mut rig = Self {
            disk,
            commit,
            out,
            logs,
            answered: 0,
            refused: 0,
        };
        rig.pass();
        rig
    }

    fn pass(&mut self) {
        self.commit.flush(&mut self.out);
        for request in self.out.drain(..) {
            self.disk.submit(request);
        }
    }

    fn submit(&mut self, log: u64, op: DiskOp) {
        let queue = QueueId(log);
        let token = self.answered;
        self.commit
            .submit(DiskRequest { queue, token, op }, &mut self.out);
    }

    fn step(&mut self) -> bool {
        let moved = self.disk.step();
        while let Some(done) = self.finished() {
            self.commit.complete(done, &mut self.out);
        }
        while let Some(answer) = self.commit.next_answer() {
            self.answer(&answer);
        }
        self.pass();
        moved
    }

    /// A completion, without any further step of the disk.
    fn finished(&mut self) -> Option<DiskCompletion> {
        self.disk.halt_after(self.disk.steps_done());
        let done = self.disk.poll();
        self.disk.halt_after(u64::MAX);
        done
    }

    fn answer(&mut self, answer: &DiskCompletion) {
        let log = &mut self.logs[answer.queue.0 as usize];
        let after = log.after.take().expect("one request of a log is under way");
        if answer.result.is_ok() {
            log.before = after;
            self.answered += 1;
        } else {
            self.refused += 1;
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    /// Asks for something on a log that waits for nothing.
    fn ask(&mut self, log: u64, prng: &mut Prng) {
        let entry = &mut self.logs[log as usize];
        if entry.after.is_some() {
            return;
        }
        let path = log_path(log);
        let offset = entry.before.len() as u64;
        let mut after = entry.before.clone();
        entry.may_tear = false;
        let op = match prng.below(20) {
            0 => {
                let len = prng.below(offset + 1);
                after.truncate(len as usize);
                DiskOp::Truncate { path, len }
            }
            1 => {
                let len = prng.below(3000);
                after = prng.bytes(len);
                let data = vec![Chunk::from(after.clone())];
                DiskOp::Replace { path, data }
            }
            2 => {
                // Too large to be gathered.
                let bytes = prng.bytes(9000);
                after.extend(&bytes);
                entry.may_tear = true;
                write(path, offset, bytes)
            }
            _ => {
                let len = 1 + prng.below(900);
                let bytes = prng.bytes(len);
                after.extend(&bytes);
                write(path, offset, bytes)
            }
        };
        entry.after = Some(after);
        self.submit(log, op);
    }

    /// What the files hold now is one of what they may hold. Takes that for granted afterwards.
    fn check(&mut self, replay: &Replay, context: &str) {
        let view = replay.view(&self.disk);
        for (index, log) in self.logs.iter_mut().enumerate() {
            let path = log_path(index as u64);
            let len = view.len(&path).unwrap().expect("the log is there");
            let mut found = vec![0; len as usize];
            assert_eq!(view.read(&path, 0, &mut found), Ok(found.len()));
            let mut part = vec![0; 700];
            let read = view.read(&path, 300, &mut part).unwrap();
            assert_eq!(
                &part[..read],
                found.get(300..).unwrap_or_default().get(..read).unwrap()
            );
            let after = log.after.take();
            let is_after = after.as_ref().is_some_and(|after| *after == found);
            let is_torn = log.may_tear && after.is_some() && found.starts_with(&log.before);
            assert!(
                found == log.before || is_after || is_torn,
                "log {index} has {len} bytes, {} were answered, {context}",
                log.before.len()
            );
            log.before = found;
        }
    }
}

fn write(path: DiskPath, offset: u64, bytes: Vec<u8>) -> DiskOp {
    DiskOp::Write {
        path,
        offset,
        data: vec![Chunk::from(bytes)],
        sync: true,
    }
}

fn fresh() -> (MemoryDisk, Vec<Log>) {
    let mut disk = MemoryDisk::new();
    for log in 0..LOGS {
        disk.put(&log_path(log), &[]);
    }
    (disk, vec![Log::default(); LOGS as usize])
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Several lives of one disk, each ended by a crash at a drawn step with drawn fates.
fn lives(seed: u64) -> u64 {
    let mut prng = Prng(seed);
    let (mut disk, mut logs) = fresh();
    let mut answered = 0;
    for life in 0..6 {
        disk.shuffle(seed + life);
        let mut rig = Rig::start(disk, logs, seed ^ life << 40);
        for _ in 0..prng.below(1500) {
            if prng.below(3) == 0 {
                let log = prng.below(LOGS);
                rig.ask(log, &mut prng);
                rig.pass();
            }
            if prng.below(50) == 0 {
                rig.settle();
            }
            rig.step();
        }
        answered += rig.answered;
        assert_eq!(rig.refused, 0);
        rig.disk.crash(&mut |change| match prng.below(3) {
            0 => Fate::Keep,
            1 => Fate::Lose,
            _ => {
                let from = prng.below(change.sectors + 1);
                let to = from + prng.below(change.sectors + 1 - from);
                Fate::Torn { keep: from..to }
            }
        });
        let replay = Replay::read(&rig.disk).unwrap();
        rig.check(&replay, &format!("seed {seed} life {life}"));
        (disk, logs) = (rig.disk, rig.logs);
    }
    answered
}

#[test]
fn what_was_answered_survives_any_crash_and_nothing_old_comes_back() {
    let (first, runs) = (number("SEED", 1), number("RUNS", 60));
    println!("SEED={first} RUNS={runs}");
    let answered: u64 = (first..first + runs).map(lives).sum();
    assert!(
        answered > runs * 100,
        "only {answered} requests were answered"
    );
}

/// A crash after every single step of a short script.
#[test]
fn every_step_of_two_turns_can_be_the_last() {
    let script = |steps: u64| {
        let mut prng = Prng(11);
        let (disk, logs) = fresh();
        let mut rig = Rig::start(disk, logs, 99);
        let mut left = steps;
        for round in 0..40 {
            for log in 0..LOGS {
                rig.ask(log, &mut prng);
            }
            rig.pass();
            let rest = if round % 3 == 0 { 5 } else { u64::MAX };
            for _ in 0..rest {
                if left == 0 || !rig.step() {
                    break;
                }
                left -= 1;
            }
        }
        (rig, left)
    };
    let (whole, left) = script(u64::MAX);
    assert!(whole.answered > 100);
    let steps = u64::MAX - left;
    assert!(steps > 200, "{steps}");
    for last in 0..steps {
        for lose in [true, false] {
            let (mut rig, _) = script(last);
            rig.disk
                .crash(&mut |_| if lose { Fate::Lose } else { Fate::Keep });
            let replay = Replay::read(&rig.disk).unwrap();
            rig.check(&replay, &format!("after {last} steps"));
            // The next life begins with the replay, and ends while it is under way, or while the
            // redo files go.
            let mut rig = Rig::start(rig.disk, rig.logs, 100);
            for _ in 0..last % 13 {
                rig.step();
            }
            rig.disk
                .crash(&mut |_| if lose { Fate::Lose } else { Fate::Keep });
            let replay = Replay::read(&rig.disk).unwrap();
            rig.check(&replay, &format!("after {last} steps and a replay"));
        }
    }
}

fn appended(rig: &mut Rig, log: u64, bytes: &[u8]) {
    let entry = &mut rig.logs[log as usize];
    let offset = entry.before.len() as u64;
    entry.after = Some([&entry.before[..], bytes].concat());
    rig.submit(log, write(log_path(log), offset, bytes.to_vec()));
}

#[test]
fn writes_that_arrive_together_share_one_sync() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"first");
    rig.pass();
    rig.settle();
    let before = rig.disk.steps_done();
    for log in 0..LOGS {
        appended(&mut rig, log, b"together");
    }
    rig.pass();
    rig.settle();
    assert_eq!(rig.answered, 1 + LOGS);
    assert_eq!(rig.disk.steps_done() - before, 2, "one write, one sync");
    assert!(rig.commit.is_idle());
    // The file itself has nothing yet, and a reader sees it nevertheless.
    assert_eq!(rig.disk.get(&log_path(1)), Some(Vec::new()));
    let view = rig.commit.view(&rig.disk);
    assert_eq!(view.len(&log_path(1)), Ok(Some(8)));
}

#[test]
fn a_file_that_is_replaced_does_not_get_its_old_bytes_back() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"old old old");
    rig.pass();
    rig.settle();
    rig.logs[0].after = Some(b"new".to_vec());
    let data = vec![Chunk::from(b"new".to_vec())];
    rig.submit(
        0,
        DiskOp::Replace {
            path: log_path(0),
            data,
        },
    );
    rig.pass();
    rig.settle();
    assert_eq!(rig.answered, 2);
    rig.disk.crash_losing_all();
    let replay = Replay::read(&rig.disk).unwrap();
    rig.check(&replay, "after the replacement");
    assert_eq!(rig.logs[0].before, b"new");
}

#[test]
fn a_file_that_cannot_be_written_yet_is_tried_again() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    rig.disk.fail(Fault {
        verb: DiskVerb::Write,
        path: Some(log_path(2)),
        kind: DiskErrorKind::NoSpace,
        after: 0,
    });
    for round in 0..40 {
        for log in 0..LOGS {
            if rig.logs[log as usize].after.is_none() {
                appended(&mut rig, log, &[round; 700]);
            }
        }
        rig.pass();
        rig.settle();
    }
    let held_up = rig.answered;
    assert!(held_up < 40 * LOGS, "the files are full and cannot change");
    for _ in 0..20 {
        rig.commit.tick(&mut rig.out);
        rig.pass();
        rig.settle();
    }
    assert_eq!(rig.refused, 0);
    assert!(rig.answered > held_up, "space has returned");
    rig.disk.crash_losing_all();
    let replay = Replay::read(&rig.disk).unwrap();
    rig.check(&replay, "after the disk was full");
}

#[test]
fn a_full_disk_is_waited_out_by_batches_and_by_large_writes() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"first");
    rig.pass();
    rig.settle();
    for path in [path("commits/redo.1"), log_path(1)] {
        rig.disk.fail(Fault {
            verb: DiskVerb::Write,
            path: Some(path),
            kind: DiskErrorKind::NoSpace,
            after: 0,
        });
    }
    appended(&mut rig, 0, b"second");
    appended(&mut rig, 1, &[7; 9000]);
    rig.pass();
    rig.settle();
    assert_eq!((rig.answered, rig.refused), (1, 0), "both wait");
    for _ in 0..20 {
        rig.commit.tick(&mut rig.out);
        rig.pass();
        rig.settle();
    }
    assert_eq!((rig.answered, rig.refused), (3, 0));
    rig.disk.crash_losing_all();
    let replay = Replay::read(&rig.disk).unwrap();
    rig.check(&replay, "after the disk was full");
    assert_eq!(rig.logs[0].before, b"firstsecond");
    assert_eq!(rig.logs[1].before.len(), 9000);
}

/// A cut that failed is no cut that a second sync makes good: the log is told, and asks for
/// something else.
#[test]
fn a_cut_without_room_is_for_its_log_to_repeat() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"first");
    rig.pass();
    rig.settle();
    rig.disk.fail(Fault {
        verb: DiskVerb::Truncate,
        path: Some(log_path(0)),
        kind: DiskErrorKind::NoSpace,
        after: 0,
    });
    rig.logs[0].after = Some(Vec::new());
    let path = log_path(0);
    rig.submit(0, DiskOp::Truncate { path, len: 0 });
    rig.pass();
    rig.settle();
    assert_eq!((rig.answered, rig.refused), (1, 1));
    assert!(rig.logs[0].after.is_none());
}

#[test]
fn without_room_for_redo_files_every_log_syncs_for_itself() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    rig.disk.fail(Fault {
        verb: DiskVerb::Write,
        path: Some(path("commits/redo.1")),
        kind: DiskErrorKind::NoSpace,
        after: 0,
    });
    for _ in 0..3 {
        for log in 0..LOGS {
            appended(&mut rig, log, b"alone");
        }
        rig.pass();
        rig.settle();
    }
    assert_eq!((rig.answered, rig.refused), (3 * LOGS, 0));
    assert_eq!(
        rig.disk.get(&log_path(3)),
        Some(b"alonealonealone".to_vec())
    );
}

#[test]
fn a_batch_that_cannot_be_written_is_refused_and_so_is_all_that_follows() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"good");
    rig.pass();
    rig.settle();
    rig.disk.fail(Fault {
        verb: DiskVerb::Sync,
        path: Some(path("commits/redo.1")),
        kind: DiskErrorKind::Io(Some(5)),
        after: 0,
    });
    appended(&mut rig, 0, b"bad");
    appended(&mut rig, 1, b"bad");
    rig.pass();
    rig.settle();
    appended(&mut rig, 2, b"late");
    rig.pass();
    rig.settle();
    assert_eq!((rig.answered, rig.refused), (1, 3));
    rig.disk.crash_keeping_all();
    let replay = Replay::read(&rig.disk).unwrap();
    let view = replay.view(&rig.disk);
    assert!(view.len(&log_path(0)).unwrap() >= Some(4));
}

#[test]
fn damage_in_front_of_a_whole_batch_is_no_torn_end() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    for _ in 0..3 {
        appended(&mut rig, 0, b"something");
        rig.pass();
        rig.settle();
    }
    let file = path("commits/redo.1");
    let mut torn = rig.disk.clone();
    assert!(torn.flip(&file, 3 * 4096 + 60, 1));
    let replay = Replay::read(&torn).unwrap();
    assert_eq!(replay.view(&torn).len(&log_path(0)), Ok(Some(18)));
    let mut holed = rig.disk.clone();
    assert!(holed.flip(&file, 2 * 4096 + 60, 1));
    let error = Replay::read(&holed).unwrap_err();
    let (epoch, batch) = (1, 1);
    assert_eq!(
        error,
        ReplayError::Hole {
            path: file.clone(),
            epoch,
            batch
        }
    );
    let mut headless = rig.disk;
    assert!(headless.flip(&file, 9, 1));
    assert_eq!(
        Replay::read(&headless).unwrap_err(),
        ReplayError::Head { path: file }
    );
}

#[test]
fn a_payload_that_looks_like_a_batch_is_none() {
    let (disk, logs) = fresh();
    let mut rig = Rig::start(disk, logs, 5);
    appended(&mut rig, 0, b"first");
    rig.pass();
    rig.settle();
    let file = rig.disk.get(&path("commits/redo.1")).unwrap();
    // What another process wrote, with another salt, inside a payload that fills a block.
    let mut forged = vec![0; 4096 - 48 - 16 - log_path(1).as_str().len()];
    forged.extend(&file[4096..4096 + 300]);
    let mut other = Rig::start(fresh().0, fresh().1, 6);
    appended(&mut other, 1, &forged);
    other.pass();
    other.settle();
    let redo = path("commits/redo.1");
    // The batch around it is torn, so the scan looks at every block.
    assert!(other.disk.flip(&redo, 4096 + 44, 1));
    let replay = Replay::read(&other.disk).unwrap();
    assert_eq!(replay.file_count(), 0);
}
