//! The workers: a thread and a connection each, one request in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use biplane_wire::ErrorCode;
use biplane_wire::batch::Verify;

use super::BenchError;
use super::calls::{self, Destination, Reader};
use super::connection::Connection;
use super::options::{Load, Workload};
use super::record::Record;

/// Pause before a request that the cluster asked to repeat.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// How often a request is repeated; a view change fits several times.
const RETRIES_MAX: u32 = 4000;

/// What all workers of a run share.
#[derive(Debug)]
pub(super) struct Plan {
    /// What to do.
    pub(super) load: Load,
    /// Name of each stream.
    pub(super) streams: Vec<String>,
    /// Where time stamps in payloads count from.
    pub(super) epoch: Instant,
    /// Start of the measured time.
    pub(super) from: Instant,
    /// Its end.
    pub(super) until: Instant,
    /// Payload bytes acknowledged so far, for the progress line.
    pub(super) produced: AtomicU64,
    /// Payload bytes read so far, for the progress line.
    pub(super) consumed: AtomicU64,
    /// Set when a worker has failed: the others need not go on.
    pub(super) failed: AtomicBool,
}

impl Plan {
    fn runs(&self, now: Instant) -> bool {
        now < self.until && !self.failed.load(Ordering::Relaxed)
    }

    /// Time since the start of the measured time; `None` before it.
    fn measured(&self, now: Instant) -> Option<Duration> {
        now.checked_duration_since(self.from)
    }
}

/// Records of producers and of consumers.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) produced: Record,
    pub(super) consumed: Record,
}

/// Runs all workers to the end of the plan.
///
/// # Errors
/// What the first failing worker met.
pub(super) fn run(
    plan: &Arc<Plan>,
    producers: Vec<Connection>,
    consumers: Vec<Connection>,
) -> Result<Outcome, BenchError> {
    let mut outcome = Outcome {
        produced: Record::new(plan.load.args.duration()),
        consumed: Record::new(plan.load.args.duration()),
    };
    let start = |role: fn(&Plan, u32, Connection) -> Result<Record, BenchError>,
                 connections: Vec<Connection>| {
        let start_one = |(index, connection): (u32, Connection)| {
            let plan = Arc::clone(plan);
            thread::spawn(move || {
                let result = role(&plan, index, connection);
                if result.is_err() {
                    plan.failed.store(true, Ordering::Relaxed);
                }
                result
            })
        };
        (0..).zip(connections).map(start_one).collect::<Vec<_>>()
    };
    let producers = start(produce, producers);
    let consumers = start(consume, consumers);
    let mut first = None;
    for (workers, record) in [
        (producers, &mut outcome.produced),
        (consumers, &mut outcome.consumed),
    ] {
        for worker in workers {
            match worker.join() {
                Ok(Ok(own)) => record.merge(&own),
                Ok(Err(error)) => first = first.or(Some(error)),
                Err(_) => first = first.or(Some(BenchError::Worker)),
            }
        }
    }
    first.map_or(Ok(outcome), Err)
}

fn produce(plan: &Plan, index: u32, mut connection: Connection) -> Result<Record, BenchError> {
    let (load, args) = (&plan.load, &plan.load.args);
    let (stream, partition) = load.place(index);
    let destination = Destination::new(&plan.streams[stream as usize], partition, args.batch)?;
    let mut payload = pattern(index, args.size);
    let mut record = Record::new(args.duration());
    let mut batch = calls::batch(&payload, args.batch, wall_micros())?;
    let interval = match args.rate {
        0.0 => Duration::ZERO,
        rate => {
            let own = rate * 1e6 / f64::from(args.producers);
            Duration::from_secs_f64(args.request_size() as f64 / own)
        }
    };
    let mut due = Instant::now();
    while plan.runs(Instant::now()) {
        if !interval.is_zero() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            due += interval;
        }
        if !args.reuse_batch || load.workload == Workload::Latency {
            let stamp = Instant::now().duration_since(plan.epoch).as_nanos() as u64;
            payload[..8].copy_from_slice(&stamp.to_le_bytes());
            batch = calls::batch(&payload, args.batch, wall_micros())?;
        }
        let sent = Instant::now();
        repeat(&mut record, || {
            calls::send(&mut connection, &destination, &batch)
        })?;
        let done = Instant::now();
        plan.produced
            .fetch_add(args.request_size(), Ordering::Relaxed);
        if plan.measured(sent).is_some()
            && let Some(at) = plan.measured(done)
            && done <= plan.until
        {
            record.request(at, done - sent, u64::from(args.batch), args.request_size());
        }
    }
    Ok(record)
}

fn consume(plan: &Plan, index: u32, mut connection: Connection) -> Result<Record, BenchError> {
    let (load, args) = (&plan.load, &plan.load.args);
    let (stream, partition) = load.place(index);
    let mut reader = Reader::new(&plan.streams[stream as usize], partition, args.batch)?;
    let mut record = Record::new(args.duration());
    let pause = Duration::from_micros(args.poll_pause);
    let mut offset = 0;
    while plan.runs(Instant::now()) {
        let sent = Instant::now();
        let reply = repeat(&mut record, || reader.poll(&mut connection, offset))?;
        let done = Instant::now();
        let polled = calls::polled(&reply)?;
        if polled.messages_count == 0 {
            record.empty();
            match load.workload {
                // All that was filled in has been read: once more.
                Workload::Consume => offset = 0,
                _ => thread::sleep(pause),
            }
            continue;
        }
        let mut first = None;
        for batch in polled.batches(Verify::Layout) {
            let batch = batch.map_err(|error| BenchError::Protocol(error.to_string()))?;
            if first.is_none() {
                first = batch.frames().next().and_then(|frame| stamp(frame.payload));
            }
            if let Some(last) = batch.offset_last() {
                offset = last + 1;
            }
        }
        let bytes = u64::from(polled.messages_count) * u64::from(args.size);
        plan.consumed.fetch_add(bytes, Ordering::Relaxed);
        if plan.measured(sent).is_none() || done > plan.until {
            continue;
        }
        let Some(at) = plan.measured(done) else {
            continue;
        };
        let latency = match (load.workload, first) {
            (Workload::Latency, Some(stamp)) => {
                let age = done.duration_since(plan.epoch).as_nanos() as u64;
                Duration::from_nanos(age.saturating_sub(stamp))
            }
            _ => done - sent,
        };
        record.request(at, latency, u64::from(polled.messages_count), bytes);
    }
    Ok(record)
}

fn stamp(payload: &[u8]) -> Option<u64> {
    payload
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

/// Fills every partition with `megabytes` of payload.
pub(super) fn fill(plan: &Plan, connection: &mut Connection) -> Result<(), BenchError> {
    let (load, args) = (&plan.load, &plan.load.args);
    let mut unused = Record::new(Duration::ZERO);
    let batch = calls::batch(&pattern(0, args.size), args.batch, wall_micros())?;
    let requests = (u64::from(args.fill) * 1_000_000).div_ceil(args.request_size());
    for stream in &plan.streams {
        for partition in 0..load.partitions() {
            let destination = Destination::new(stream, partition, args.batch)?;
            for _ in 0..requests {
                repeat(&mut unused, || {
                    calls::send(connection, &destination, &batch)
                })?;
            }
        }
    }
    Ok(())
}

/// Repeats a request for as long as the cluster says that it was not carried out.
pub(super) fn repeat<T>(
    record: &mut Record,
    mut request: impl FnMut() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    for _ in 0..RETRIES_MAX {
        match request() {
            Err(BenchError::Status(code)) if is_transient(code) => {
                record.retry();
                thread::sleep(RETRY_PAUSE);
            }
            other => return other,
        }
    }
    request()
}

fn is_transient(code: u32) -> bool {
    code == ErrorCode::TransientNotCommitted.as_u32()
        || code == ErrorCode::TransientNotAccepted.as_u32()
}

/// A payload that differs between workers and does not compress to nothing.
fn pattern(index: u32, size: u32) -> Vec<u8> {
    let mut state = u64::from(index) + 0x9e37_79b9_7f4a_7c15;
    (0..size)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn wall_micros() -> u64 {
    crate::clock::wall_micros()
}
