//! One partition against a naive log: random sends, polls, positions, purges, deletions of
//! segments and restarts. The files it leaves are read back by a reader that shares no code
//! with the plane (chapter 06 sections 1.4 and 14.2). `SEED=n cargo test --test model` replays
//! one run.

mod support;

use std::collections::BTreeMap;

use biplane_journal::{DiskPath, DiskView};
use biplane_partition_plane::{ConsumerKey, GroupSpec, Input, Limits, Strategy, TopicOptions};
use support::*;

const SEGMENT: u64 = 1000;
const KEYS: u32 = 3;

/// A segment as the naive log cuts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    start: u64,
    next: u64,
    size: u64,
}

/// The naive log.
struct Model {
    messages: BTreeMap<u64, Vec<u8>>,
    next: u64,
    cuts: Vec<Cut>,
    stored: BTreeMap<u32, u64>,
    spec: GroupSpec,
}

impl Model {
    fn new(spec: GroupSpec) -> Self {
        let mut model = Self {
            messages: BTreeMap::new(),
            next: 0,
            cuts: Vec::new(),
            stored: BTreeMap::new(),
            spec,
        };
        model.empty();
        model
    }

    fn empty(&mut self) {
        self.messages.clear();
        self.next = 0;
        self.stored.clear();
        self.cuts = vec![Cut {
            start: 0,
            next: 0,
            size: 0,
        }];
    }

    /// Whole batches go to the last segment; one that makes it full is its last.
    fn append(&mut self, payloads: &[Vec<u8>]) {
        for payload in payloads {
            self.messages.insert(self.next, payload.clone());
            self.next += 1;
        }
        let frames: usize = payloads.iter().map(|payload| 48 + payload.len()).sum();
        let next = self.next;
        let active = self.cuts.last_mut().unwrap();
        active.size += 256 + frames as u64;
        active.next = next;
        if active.size >= SEGMENT {
            self.cuts.push(Cut {
                start: next,
                next,
                size: 0,
            });
        }
    }

    /// Full segments go, the oldest first, up to the watermark and to the slowest reader.
    fn truncate(&mut self) {
        let barrier = self.stored.values().min().copied().unwrap_or(u64::MAX);
        let most = self.spec.deleted_up_to.min(barrier);
        while self.spec.deleted_up_to > 0 && self.cuts.len() > 1 && self.cuts[0].next - 1 <= most {
            let gone = self.cuts.remove(0);
            self.messages.retain(|offset, _| *offset >= gone.next);
        }
    }

    fn read(&self, from: u64, count: u32) -> Vec<(u64, Vec<u8>)> {
        let found = self.messages.range(from..).take(count as usize);
        found
            .map(|(offset, text)| (*offset, text.clone()))
            .collect()
    }
}

struct Run {
    single: Single,
    model: Model,
    request: u64,
    random: Random,
}

impl Run {
    fn new(seed: u64) -> Self {
        let options = TopicOptions {
            segment_size: SEGMENT,
            ..TopicOptions::default()
        };
        let spec = spec(options);
        let mut single = Single::new(Limits::tiny());
        single.open(spec.clone());
        Self {
            single,
            model: Model::new(spec),
            request: 0,
            random: Random::new(seed),
        }
    }

    fn request(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    fn send(&mut self) {
        let request = self.request();
        let count = 1 + self.random.below(4);
        let payloads: Vec<Vec<u8>> = (0..count)
            .map(|n| {
                let length = self.random.below(120) as usize;
                let mut text = format!("{request}/{n} ").into_bytes();
                text.resize(text.len() + length, b'.');
                text
            })
            .collect();
        let answer = self.single.send(0x77, request, &payloads);
        assert_eq!(answer.base_offset(), Some(self.model.next));
        self.model.append(&payloads);
    }

    fn store(&mut self) {
        let id = self.random.below(u64::from(KEYS)) as u32;
        let offset = self.random.below(self.model.next + 3);
        let request = self.request();
        let request = store_request(0x77, request, ConsumerKey::Consumer(id), offset);
        let status = self.single.submit(request).status();
        if offset < self.model.next {
            assert_eq!(status, 0);
            self.model.stored.insert(id, offset);
        } else {
            assert_eq!(status, 4100);
        }
    }

    fn forget(&mut self) {
        let id = self.random.below(u64::from(KEYS)) as u32;
        let request = self.request();
        let request = delete_request(0x77, request, ConsumerKey::Consumer(id));
        let status = self.single.submit(request).status();
        let known = self.model.stored.remove(&id).is_some();
        assert_eq!(status, if known { 0 } else { 3021 });
    }

    fn poll(&mut self) {
        let count = 1 + self.random.below(9) as u32;
        let next = self.model.next;
        let (strategy, from) = match self.random.below(4) {
            0 => {
                let offset = self.random.below(next + 3);
                (Strategy::Offset(offset), offset)
            }
            1 => (Strategy::First, 0),
            2 => (Strategy::Last, next.saturating_sub(u64::from(count))),
            _ => {
                let stored = self.model.stored.get(&1);
                (Strategy::Next, stored.map_or(0, |stored| stored + 1))
            }
        };
        let reply = self.single.poll(poll_query(strategy, count));
        assert_eq!(
            messages(&reply),
            self.model.read(from, count),
            "{strategy:?}"
        );
    }

    fn poll_by_time(&mut self) {
        let batches = self.batches();
        let at = self.random.below(batches.len() as u64 + 1) as usize;
        let (time, from) = match batches.get(at) {
            Some(batch) => (batch.time, batch.base),
            None => (u64::MAX, u64::MAX),
        };
        let reply = self.single.poll(poll_query(Strategy::Timestamp(time), 3));
        assert_eq!(messages(&reply), self.model.read(from, 3), "at {time}");
    }

    fn purge(&mut self) {
        self.model.spec.purge_generation += 1;
        self.model.spec.deleted_up_to = 0;
        self.model.empty();
        let spec = self.model.spec.clone();
        self.single.step(Input::UpdateGroup(spec));
        self.single.tick(20);
    }

    fn delete_segments(&mut self) {
        let most = self.random.below(self.model.next + 1);
        self.model.spec.deleted_up_to = self.model.spec.deleted_up_to.max(most);
        let spec = self.model.spec.clone();
        self.single.step(Input::UpdateGroup(spec));
    }

    /// Deletions wait for the slowest reader and for the next pass.
    fn pass(&mut self) {
        self.single.tick(120);
        self.model.truncate();
    }

    fn restart(&mut self) {
        self.single.crash(Limits::tiny());
        let spec = GroupSpec {
            is_new: false,
            ..self.model.spec.clone()
        };
        self.single.open(spec);
        assert!(self.single.fenced.is_empty(), "{:?}", self.single.fenced);
    }

    fn event(&mut self) {
        match self.random.below(100) {
            0..40 => self.send(),
            40..50 => self.store(),
            50..55 => self.forget(),
            55..80 => self.poll(),
            80..86 => self.poll_by_time(),
            86..92 => self.delete_segments(),
            92..95 => self.purge(),
            _ => self.restart(),
        }
        self.pass();
    }

    fn check(&mut self) {
        self.pass();
        let batches = self.batches();
        let cuts = self.single_cuts(&batches);
        assert_eq!(cuts, self.model.cuts, "segments are cut by bytes alone");
        for id in 0..KEYS {
            let file = self.single.file(&format!("offsets/consumers/{id}"));
            let stored = self.model.stored.get(&id).map(|offset| {
                let value = offset.to_le_bytes();
                let seal = xxhash_rust::xxh3::xxh3_64(&value).to_le_bytes();
                [value, seal].concat()
            });
            assert_eq!(file, stored, "position of {id}");
        }
        let stats = self.single.plane.stats(group()).unwrap();
        assert_eq!(stats.messages_count, self.model.messages.len() as u64);
        assert_eq!(stats.current_offset, self.model.next.saturating_sub(1));
        assert_eq!(stats.segments_count as usize, self.model.cuts.len());
    }

    fn single_cuts(&self, batches: &[FoundBatch]) -> Vec<Cut> {
        let starts = self.segment_starts();
        let cut = |(at, start): (usize, &u64)| {
            let until = starts.get(at + 1).copied().unwrap_or(u64::MAX);
            let own = batches
                .iter()
                .filter(|batch| (*start..until).contains(&batch.base));
            let own: Vec<&FoundBatch> = own.collect();
            Cut {
                start: *start,
                next: own.last().map_or(*start, |last| last.base + last.count),
                size: own.iter().map(|batch| batch.length).sum(),
            }
        };
        starts.iter().enumerate().map(cut).collect()
    }

    fn segment_starts(&self) -> Vec<u64> {
        let dir = DiskPath::new("streams/1/topics/2/partitions/3").unwrap();
        let entries = self.single.disk.list(&dir).unwrap();
        let logs = entries
            .iter()
            .filter_map(|entry| entry.name.strip_suffix(".log"));
        let mut starts: Vec<u64> = logs
            .map(|name| {
                assert_eq!(name.len(), 20, "{name}");
                name.parse().unwrap()
            })
            .collect();
        starts.sort_unstable();
        starts
    }

    /// Reads every segment file and its index.
    fn batches(&self) -> Vec<FoundBatch> {
        let mut all = Vec::new();
        for start in self.segment_starts() {
            let log = self.single.file(&format!("{start:020}.log")).unwrap();
            let found = read_log(&log, start);
            let index = self.single.file(&format!("{start:020}.index")).unwrap();
            check_index(&index, &found);
            all.extend(found);
        }
        all
    }
}

/// A batch as it lies in a file.
#[derive(Clone, Copy, Debug)]
struct FoundBatch {
    position: u64,
    base: u64,
    time: u64,
    length: u64,
    count: u64,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn short(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
}

/// Batches lie back to back from byte 0, continue each other's offsets, and verify.
fn read_log(bytes: &[u8], start: u64) -> Vec<FoundBatch> {
    let mut found: Vec<FoundBatch> = Vec::new();
    let (mut at, mut next) = (0, start);
    while at < bytes.len() {
        let header = &bytes[at..at + 256];
        assert_eq!(number(header, 0), 3, "the partition id");
        assert_eq!(number(header, 8), next, "the base offset");
        let time = number(header, 16);
        assert!(found.last().is_none_or(|last| last.time < time));
        let length = number(header, 32) as usize;
        let count = short(header, 48);
        assert!(header[52..].iter().all(|byte| *byte == 0));
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(&header[..40]);
        hash.update(&header[48..52]);
        let mut frame = at + 256;
        for n in 0..count {
            let size = 48 + short(bytes, frame + 32) + short(bytes, frame + 36);
            let end = frame + size as usize;
            let seal = xxhash_rust::xxh3::xxh3_64(&bytes[frame + 8..end]);
            assert_eq!(number(bytes, frame), seal, "the checksum of a message");
            assert_eq!(short(bytes, frame + 24), n, "the delta of a message");
            assert_eq!(number(bytes, frame + 40), 0);
            hash.update(&bytes[frame..frame + 8]);
            frame = end;
        }
        assert_eq!(frame, at + length, "frames tile the batch");
        assert_eq!(hash.digest(), number(header, 40), "the batch checksum");
        found.push(FoundBatch {
            position: at as u64,
            base: next,
            time,
            length: length as u64,
            count,
        });
        next += count;
        at += length;
    }
    found
}

/// Entries ascend, and each names a batch of the log.
fn check_index(bytes: &[u8], batches: &[FoundBatch]) {
    assert_eq!(bytes.len() % 24, 0);
    let mut last = None;
    for entry in bytes.chunks_exact(24) {
        let named = (number(entry, 0), number(entry, 8), number(entry, 16));
        let is_there = batches
            .iter()
            .any(|batch| (batch.base, batch.time, batch.position) == named);
        assert!(is_there, "{named:?} is a batch");
        assert!(last.is_none_or(|last| last < named.2));
        last = Some(named.2);
    }
}

#[test]
fn a_partition_does_what_a_naive_log_does() {
    let first = seed("SEED", 1);
    for seed in first..first + 40 {
        println!("SEED={seed}");
        let mut run = Run::new(seed);
        for _ in 0..150 {
            run.event();
        }
        run.check();
    }
}
