//! Open files of one disk thread, the least recently used closed first.
//!
//! A name can be given to another file by a thread that does not own this cache (a rename, a
//! removal). Every such change raises a shared generation, and a cache of an older generation is
//! emptied before it is used: writing through a handle whose name is gone would lose bytes
//! silently.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use biplane_journal::DiskPath;

/// The cache.
pub(super) struct Handles {
    open: HashMap<DiskPath, (File, u64)>,
    /// Files kept open at most.
    max: usize,
    clock: u64,
    seen: u64,
    generation: Arc<AtomicU64>,
}

impl Handles {
    pub(super) fn new(generation: Arc<AtomicU64>, max: usize) -> Self {
        Self {
            open: HashMap::new(),
            max,
            clock: 0,
            seen: 0,
            generation,
        }
    }

    /// Names changed: every thread forgets its handles before its next use.
    pub(super) fn names_changed(&mut self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.open.clear();
    }

    /// The file `path` below `root`, opened for reading and writing; created when `create`.
    pub(super) fn get(&mut self, root: &Path, path: &DiskPath, create: bool) -> io::Result<&File> {
        let generation = self.generation.load(Ordering::Acquire);
        if generation != self.seen {
            self.open.clear();
            self.seen = generation;
        }
        self.clock += 1;
        if !self.open.contains_key(path) {
            if self.open.len() >= self.max {
                self.close_oldest();
            }
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(create)
                .truncate(false)
                .open(root.join(path.as_str()))?;
            self.open.insert(path.clone(), (file, self.clock));
        }
        match self.open.get_mut(path) {
            Some((file, used)) => {
                *used = self.clock;
                Ok(file)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn close_oldest(&mut self) {
        let oldest = self.open.iter().min_by_key(|(_, (_, used))| *used);
        if let Some(path) = oldest.map(|(path, _)| path.clone()) {
            self.open.remove(&path);
        }
    }
}
