//! What a worker saw: latencies, volumes, and both over time.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Length of a point of the series.
pub(super) const POINT: Duration = Duration::from_millis(250);
/// Longest latency told apart, in nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

/// One worker's figures, or several workers' together.
#[derive(Debug)]
pub(super) struct Record {
    histogram: Histogram<u64>,
    series: Vec<Bucket>,
    bytes: u64,
    messages: u64,
    requests: u64,
    retries: u64,
    empty: u64,
}

#[derive(Debug, Default, Clone)]
struct Bucket {
    bytes: u64,
    count: u64,
    nanos: u64,
    nanos_max: u64,
}

impl Record {
    /// Nothing seen yet, in a measured time of `duration`.
    pub(super) fn new(duration: Duration) -> Self {
        let buckets = duration.as_nanos().div_ceil(POINT.as_nanos());
        Self {
            histogram: Histogram::new_with_bounds(1, LATENCY_MAX, 3)
                .expect("the bounds are constants that the library accepts"),
            series: vec![Bucket::default(); usize::try_from(buckets).unwrap_or(0)],
            bytes: 0,
            messages: 0,
            requests: 0,
            retries: 0,
            empty: 0,
        }
    }

    /// A request of `messages` messages that took `latency` and ended `at` after the start of
    /// the measured time.
    pub(super) fn request(&mut self, at: Duration, latency: Duration, messages: u64, bytes: u64) {
        self.requests += 1;
        self.messages += messages;
        self.bytes += bytes;
        self.latency(at, latency);
        if let Some(bucket) = self.bucket(at) {
            bucket.bytes += bytes;
        }
    }

    /// A latency without a request of its own.
    pub(super) fn latency(&mut self, at: Duration, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_MAX);
        self.histogram
            .saturating_record(nanos.clamp(1, LATENCY_MAX));
        if let Some(bucket) = self.bucket(at) {
            bucket.count += 1;
            bucket.nanos += nanos;
            bucket.nanos_max = bucket.nanos_max.max(nanos);
        }
    }

    /// A request that the cluster asked to repeat.
    pub(super) const fn retry(&mut self) {
        self.retries += 1;
    }

    /// A poll that found nothing.
    pub(super) const fn empty(&mut self) {
        self.empty += 1;
    }

    fn bucket(&mut self, at: Duration) -> Option<&mut Bucket> {
        let index = at.as_nanos() / POINT.as_nanos();
        self.series.get_mut(usize::try_from(index).ok()?)
    }

    /// Adds another worker's figures.
    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        for (own, other) in self.series.iter_mut().zip(&other.series) {
            own.bytes += other.bytes;
            own.count += other.count;
            own.nanos += other.nanos;
            own.nanos_max = own.nanos_max.max(other.nanos_max);
        }
        self.bytes += other.bytes;
        self.messages += other.messages;
        self.requests += other.requests;
        self.retries += other.retries;
        self.empty += other.empty;
    }

    /// The figures for people, over `seconds` of measured time.
    pub(super) fn figures(&self, seconds: f64) -> Figures {
        Figures {
            megabytes_per_second: self.bytes as f64 / 1e6 / seconds,
            messages_per_second: self.messages as f64 / seconds,
            requests_per_second: self.requests as f64 / seconds,
            bytes: self.bytes,
            messages: self.messages,
            requests: self.requests,
            retries: self.retries,
            empty_polls: self.empty,
            latency: Percentiles::of(&self.histogram),
            series: self.series.iter().enumerate().map(point).collect(),
        }
    }
}

fn point((index, bucket): (usize, &Bucket)) -> Point {
    Point {
        second: index as f64 * POINT.as_secs_f64(),
        megabytes_per_second: bucket.bytes as f64 / 1e6 / POINT.as_secs_f64(),
        mean_micros: bucket.nanos as f64 / 1e3 / bucket.count.max(1) as f64,
        max_micros: bucket.nanos_max as f64 / 1e3,
    }
}

/// Figures of one role.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    /// Payload, in 10^6 bytes a second.
    pub(super) megabytes_per_second: f64,
    /// Messages a second.
    pub(super) messages_per_second: f64,
    /// Requests with an answer a second.
    pub(super) requests_per_second: f64,
    /// Payload bytes.
    pub(super) bytes: u64,
    /// Messages.
    pub(super) messages: u64,
    /// Requests.
    pub(super) requests: u64,
    /// Requests that had to be repeated.
    pub(super) retries: u64,
    /// Polls without a message.
    pub(super) empty_polls: u64,
    /// Distribution of latencies.
    pub(super) latency: Percentiles,
    /// The same over time.
    pub(super) series: Vec<Point>,
}

/// A distribution, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Percentiles {
    /// Smallest.
    pub(super) min: f64,
    /// Median.
    pub(super) p50: f64,
    /// 95 of 100 are no longer.
    pub(super) p95: f64,
    /// 99 of 100 are no longer.
    pub(super) p99: f64,
    /// 999 of 1,000 are no longer.
    pub(super) p999: f64,
    /// Largest.
    pub(super) max: f64,
    /// Mean.
    pub(super) mean: f64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |percent: f64| histogram.value_at_percentile(percent) as f64 / 1e3;
        Self {
            min: histogram.min() as f64 / 1e3,
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
            max: histogram.max() as f64 / 1e3,
            mean: histogram.mean() / 1e3,
        }
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Point {
    /// Its start.
    pub(super) second: f64,
    /// Payload, in 10^6 bytes a second.
    pub(super) megabytes_per_second: f64,
    /// Mean latency.
    pub(super) mean_micros: f64,
    /// Longest latency.
    pub(super) max_micros: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_add_up_and_what_comes_late_is_counted_outside_the_series() {
        let second = Duration::from_secs(1);
        let (mut one, mut two) = (Record::new(second), Record::new(second));
        one.request(
            Duration::from_millis(10),
            Duration::from_micros(100),
            5,
            500,
        );
        two.request(
            Duration::from_millis(990),
            Duration::from_micros(300),
            5,
            500,
        );
        two.request(
            Duration::from_millis(1400),
            Duration::from_micros(300),
            5,
            500,
        );
        one.merge(&two);
        let figures = one.figures(1.0);
        assert_eq!(
            (figures.requests, figures.messages, figures.bytes),
            (3, 15, 1500)
        );
        assert_eq!(figures.series.len(), 4);
        let in_series: f64 = figures
            .series
            .iter()
            .map(|point| point.megabytes_per_second)
            .sum();
        assert!((in_series * 0.25 - 0.001).abs() < 1e-9, "{in_series}");
        assert!(
            (figures.latency.p50 - 300.0).abs() < 1.0,
            "{:?}",
            figures.latency
        );
    }
}
