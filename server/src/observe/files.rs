//! Log files: one that grows, closed at a size or an age, and removed when they are too many or too
//! old (`[logging]` of chapter 09 section 5.14).
//!
//! ```text
//!   logs/iggy-server.log                 being written
//!   logs/iggy-server.log.00017612345678  closed, by the milliseconds since 1970 of that moment
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::Logging;

/// The file being written.
const NAME: &str = "iggy-server.log";
/// Age at which a file is closed, unless sizes are unlimited.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// Where log files go and when they end.
#[derive(Debug, Clone)]
pub struct LogFiles {
    folder: PathBuf,
    file_bytes_max: u64,
    total_bytes_max: u64,
    check_interval: Duration,
    retention: Duration,
}

impl LogFiles {
    /// What the section says, below the data folder; `None` when files are off.
    pub fn of(section: &Logging, data: &Path) -> Option<Self> {
        section.file_enabled.then(|| Self {
            folder: data.join(&section.path),
            file_bytes_max: section.max_file_size.0,
            total_bytes_max: section.max_total_size.0,
            check_interval: section.rotation_check_interval.0,
            retention: section.retention.0,
        })
    }

    /// The file being written of a data folder.
    pub fn current(section: &Logging, data: &Path) -> Option<PathBuf> {
        Self::of(section, data).map(|files| files.folder.join(NAME))
    }

    /// Opens the folder and the file.
    ///
    /// # Errors
    /// One sentence that names the folder.
    pub fn open(self) -> Result<Writer, String> {
        let failed = |error: io::Error| {
            let folder = self.folder.display();
            format!("configuration key logging.path: {folder} cannot be written: {error}")
        };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let (file, size) = append(&self.folder.join(NAME)).map_err(failed)?;
        let now = SystemTime::now();
        let mut state = State {
            file,
            size,
            opened: now,
            checked: now,
            files: self,
        };
        state.sweep(now);
        Ok(Writer(Arc::new(Mutex::new(state))))
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Where log lines are written to.
#[derive(Debug, Clone)]
pub struct Writer(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    files: LogFiles,
    file: File,
    size: u64,
    opened: SystemTime,
    checked: SystemTime,
}

impl State {
    fn write(&mut self, line: &[u8], now: SystemTime) -> io::Result<()> {
        let since = |moment| now.duration_since(moment).unwrap_or_default();
        let limit = self.files.file_bytes_max;
        let full = self.size > 0 && self.size + line.len() as u64 > limit;
        if limit > 0 && (full || since(self.opened) >= AGE_MAX) {
            self.close(now);
        }
        if since(self.checked) >= self.files.check_interval {
            self.sweep(now);
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Begins a new file. When that fails the old one goes on: a long file is better than none.
    fn close(&mut self, now: SystemTime) {
        self.opened = now;
        let millis = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let current = self.files.folder.join(NAME);
        let closed = self.files.folder.join(format!("{NAME}.{millis:014}"));
        if fs::rename(&current, &closed).is_err() {
            return;
        }
        if let Ok((file, size)) = append(&current) {
            (self.file, self.size) = (file, size);
        }
        self.sweep(now);
    }

    /// Removes closed files that are too old, and the oldest while all are too large.
    fn sweep(&mut self, now: SystemTime) {
        self.checked = now;
        let Ok(entries) = fs::read_dir(&self.files.folder) else {
            return;
        };
        let prefix = format!("{NAME}.");
        let mut closed: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
            .collect();
        closed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut total = self.size + closed.iter().map(|(_, file)| file.len()).sum::<u64>();
        for (path, file) in closed {
            let age = file
                .modified()
                .map(|at| now.duration_since(at).unwrap_or_default());
            let old = age.is_ok_and(|age| age > self.files.retention);
            let large = self.files.total_bytes_max > 0 && total > self.files.total_bytes_max;
            if (old || large) && fs::remove_file(&path).is_ok() {
                total -= file.len();
            }
        }
    }
}

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().write(line, SystemTime::now())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, file: u64, total: u64) -> LogFiles {
        LogFiles {
            folder: folder.join("logs"),
            file_bytes_max: file,
            total_bytes_max: total,
            check_interval: Duration::from_secs(1),
            retention: Duration::from_secs(60),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder.join("logs")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_end_at_their_size_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let writer = files(folder.path(), 100, 250).open().unwrap();
        let start = SystemTime::now();
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            writer.0.lock().write(&[b'x'; 60], now).unwrap();
        }
        let names = names(folder.path());
        assert_eq!(names[0], NAME);
        assert_eq!(names.len(), 5, "four of 60 bytes stay below 250: {names:?}");
    }

    #[test]
    fn old_files_go_and_an_hour_ends_one() {
        let folder = tempfile::tempdir().unwrap();
        let writer = files(folder.path(), 1 << 20, 0).open().unwrap();
        let start = SystemTime::now();
        writer.0.lock().write(b"one\n", start).unwrap();
        writer.0.lock().write(b"two\n", start + AGE_MAX).unwrap();
        // The closed one was written to just now, so it is not old by its own time stamp until a
        // later look.
        assert_eq!(
            names(folder.path()).len(),
            1,
            "closed an hour after it was written"
        );
        let text = fs::read_to_string(folder.path().join("logs").join(NAME)).unwrap();
        assert_eq!(text, "two\n");
    }

    #[test]
    fn without_a_limit_a_file_never_ends() {
        let folder = tempfile::tempdir().unwrap();
        let writer = files(folder.path(), 0, 0).open().unwrap();
        for hour in 0..5 {
            let now = SystemTime::now() + AGE_MAX * hour;
            writer.0.lock().write(&[b'x'; 600], now).unwrap();
        }
        assert_eq!(names(folder.path()), [NAME]);
    }
}
