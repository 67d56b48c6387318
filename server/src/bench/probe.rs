//! Raw probes of the machine, in the same run as the load: what loopback, memory and disk do
//! without a server in between. Figures of a server mean something only beside them, because
//! machines differ and shared machines differ from minute to minute.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

/// How long each probe runs.
const PROBE_TIME: Duration = Duration::from_millis(700);
/// Bytes of each write of the stream probe.
const CHUNK: usize = 1 << 20;
/// Bytes of a ping.
const PING: usize = 512;
/// Bytes copied at once; larger than the caches.
const COPY: usize = 64 << 20;
/// Bytes of each synced write.
const SYNC_BLOCK: usize = 4096;

/// What the machine does raw.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Probes {
    /// One loopback TCP stream, 10^6 bytes a second.
    pub(super) stream_megabytes_per_second: f64,
    /// Exchanges of 512 bytes a second over loopback.
    pub(super) ping_pongs_per_second: f64,
    /// Median time of one exchange, in microseconds.
    pub(super) ping_pong_micros: f64,
    /// Copying memory, 10^6 bytes a second.
    pub(super) copy_megabytes_per_second: f64,
    /// Writes of 4 KiB, each made durable, a second.
    pub(super) syncs_per_second: f64,
}

impl Probes {
    /// Runs every probe, one after the other.
    pub(super) fn run(folder: &Path) -> io::Result<Self> {
        let (ping_pongs_per_second, ping_pong_micros) = ping_pong()?;
        Ok(Self {
            stream_megabytes_per_second: stream()?,
            ping_pongs_per_second,
            ping_pong_micros,
            copy_megabytes_per_second: copy(),
            syncs_per_second: syncs(folder)?,
        })
    }

    /// The better of two runs: whatever disturbs a probe makes it slower.
    pub(super) fn best(self, other: Self) -> Self {
        Self {
            stream_megabytes_per_second: self
                .stream_megabytes_per_second
                .max(other.stream_megabytes_per_second),
            ping_pongs_per_second: self.ping_pongs_per_second.max(other.ping_pongs_per_second),
            ping_pong_micros: self.ping_pong_micros.min(other.ping_pong_micros),
            copy_megabytes_per_second: self
                .copy_megabytes_per_second
                .max(other.copy_megabytes_per_second),
            syncs_per_second: self.syncs_per_second.max(other.syncs_per_second),
        }
    }
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn stream() -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let reader = thread::spawn(move || -> io::Result<u64> {
        let mut buffer = vec![0; CHUNK];
        let mut total = 0;
        loop {
            match far.read(&mut buffer)? {
                0 => return Ok(total),
                received => total += received as u64,
            }
        }
    });
    let chunk = vec![7; CHUNK];
    let start = Instant::now();
    while start.elapsed() < PROBE_TIME {
        near.write_all(&chunk)?;
    }
    drop(near);
    let total = reader
        .join()
        .map_err(|_| io::Error::other("the reader ended"))??;
    Ok(total as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn ping_pong() -> io::Result<(f64, f64)> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; PING];
        loop {
            match far.read_exact(&mut buffer) {
                Ok(()) => far.write_all(&buffer)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    });
    let mut buffer = [7; PING];
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < PROBE_TIME {
        let sent = Instant::now();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        times.push(sent.elapsed());
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    drop(near);
    echo.join()
        .map_err(|_| io::Error::other("the echo ended"))??;
    times.sort_unstable();
    Ok((rate, times[times.len() / 2].as_secs_f64() * 1e6))
}

fn copy() -> f64 {
    let (from, mut to) = (vec![7_u8; COPY], vec![0_u8; COPY]);
    to.copy_from_slice(&from);
    let mut copies = 0;
    let start = Instant::now();
    while start.elapsed() < PROBE_TIME {
        black_box(&mut to).copy_from_slice(black_box(&from));
        copies += 1;
    }
    (copies * COPY) as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn syncs(folder: &Path) -> io::Result<f64> {
    let path = folder.join(format!("biplane-sync-probe-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let measured = (|| {
        let block = [7; SYNC_BLOCK];
        let mut syncs = 0;
        let start = Instant::now();
        while start.elapsed() < PROBE_TIME {
            file.write_all(&block)?;
            file.sync_data()?;
            syncs += 1;
        }
        Ok(f64::from(syncs) / start.elapsed().as_secs_f64())
    })();
    let removed = std::fs::remove_file(&path);
    measured.and_then(|rate| removed.map(|()| rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probes_measure_something_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let probes = Probes::run(folder.path()).unwrap();
        for figure in [
            probes.stream_megabytes_per_second,
            probes.ping_pongs_per_second,
            probes.ping_pong_micros,
            probes.copy_megabytes_per_second,
            probes.syncs_per_second,
        ] {
            assert!(figure.is_finite() && figure > 0.0, "{probes:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
