//! Names: directories whose entries are volatile until the directory is synced.
//!
//! Directories and files are inodes and a name is an entry of a directory inode, so that a
//! rename moves a whole subtree without touching what is below it, on the visible side at once
//! and on the durable side when the directories are synced.

use std::collections::BTreeMap;

use biplane_journal::{DirEntry, DiskErrorKind, DiskPath};

use super::content::{Fate, Fates, FileContent};

type InodeId = u64;
const ROOT: InodeId = 0;

#[derive(Clone, Debug, Default)]
struct Directory {
    visible: BTreeMap<String, InodeId>,
    durable: BTreeMap<String, InodeId>,
}

#[derive(Clone, Debug)]
enum Inode {
    Directory(Directory),
    File(FileContent),
}

/// One entry of a directory gets another inode, or none.
#[derive(Clone, Debug)]
struct Part {
    directory: InodeId,
    name: String,
    inode: Option<InodeId>,
}

/// Names and contents of one disk.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    inodes: BTreeMap<InodeId, Inode>,
    next: InodeId,
    /// Unsynced changes of names, each with the parts that are not durable yet.
    changes: Vec<Vec<Part>>,
}

impl Tree {
    /// An empty disk.
    #[must_use]
    pub(super) fn new() -> Self {
        let root = Inode::Directory(Directory::default());
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            next: 1,
            changes: Vec::new(),
        }
    }

    fn directory(&self, id: InodeId) -> Result<&Directory, DiskErrorKind> {
        match self.inodes.get(&id) {
            Some(Inode::Directory(directory)) => Ok(directory),
            _ => Err(DiskErrorKind::WrongKind),
        }
    }

    fn resolve(&self, path: &DiskPath) -> Result<InodeId, DiskErrorKind> {
        self.walk(path, |directory| &directory.visible)
    }

    fn walk(
        &self,
        path: &DiskPath,
        side: impl Fn(&Directory) -> &BTreeMap<String, InodeId>,
    ) -> Result<InodeId, DiskErrorKind> {
        let mut at = ROOT;
        for name in path.as_str().split('/').filter(|name| !name.is_empty()) {
            let entries = side(self.directory(at)?);
            at = *entries.get(name).ok_or(DiskErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn parent(&self, path: &DiskPath) -> Result<InodeId, DiskErrorKind> {
        let parent = path.parent().ok_or(DiskErrorKind::WrongKind)?;
        let id = self.resolve(&parent)?;
        self.directory(id)?;
        Ok(id)
    }

    fn create(&mut self, inode: Inode) -> InodeId {
        let id = self.next;
        self.next += 1;
        self.inodes.insert(id, inode);
        id
    }

    fn change(&mut self, parts: Vec<Part>) {
        for part in &parts {
            if let Some(Inode::Directory(directory)) = self.inodes.get_mut(&part.directory) {
                set(&mut directory.visible, part);
            }
        }
        self.changes.push(parts);
    }

    /// The file at `path`.
    ///
    /// # Errors
    ///
    /// Absence, or a directory.
    pub(super) fn file(&self, path: &DiskPath) -> Result<&FileContent, DiskErrorKind> {
        match self.inodes.get(&self.resolve(path)?) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(DiskErrorKind::WrongKind),
        }
    }

    /// The file at `path`, to be changed.
    ///
    /// # Errors
    ///
    /// Absence, or a directory.
    pub(super) fn file_mut(&mut self, path: &DiskPath) -> Result<&mut FileContent, DiskErrorKind> {
        let id = self.resolve(path)?;
        match self.inodes.get_mut(&id) {
            Some(Inode::File(file)) => Ok(file),
            _ => Err(DiskErrorKind::WrongKind),
        }
    }

    /// The file a crash would leave at `path`, if its name is durable, and its inode.
    #[must_use]
    pub(super) fn durable_file(&self, path: &DiskPath) -> Option<(u64, &FileContent)> {
        let id = self.walk(path, |directory| &directory.durable).ok()?;
        match self.inodes.get(&id) {
            Some(Inode::File(file)) => Some((id, file)),
            _ => None,
        }
    }

    /// The file at `path`, created when absent; its name is volatile.
    ///
    /// # Errors
    ///
    /// No such directory, or a directory of that name.
    pub(super) fn open_or_create(
        &mut self,
        path: &DiskPath,
    ) -> Result<&mut FileContent, DiskErrorKind> {
        if self.resolve(path) == Err(DiskErrorKind::NotFound) {
            let directory = self.parent(path)?;
            let inode = Some(self.create(Inode::File(FileContent::default())));
            self.change(vec![Part {
                directory,
                name: path.name().to_owned(),
                inode,
            }]);
        }
        self.file_mut(path)
    }

    /// Replaces the file at `path` durably.
    ///
    /// # Errors
    ///
    /// No such directory, or a directory of that name.
    pub(super) fn replace(&mut self, path: &DiskPath, bytes: Vec<u8>) -> Result<(), DiskErrorKind> {
        self.begin_replace(path, bytes, true)?;
        self.sync_dir(&path.parent().ok_or(DiskErrorKind::WrongKind)?)
    }

    /// The new file is there and renamed, and the directory is not synced yet.
    ///
    /// # Errors
    ///
    /// As [`Tree::replace`].
    pub(super) fn begin_replace(
        &mut self,
        path: &DiskPath,
        bytes: Vec<u8>,
        renamed: bool,
    ) -> Result<(), DiskErrorKind> {
        let directory = self.parent(path)?;
        if let Ok(id) = self.resolve(path)
            && matches!(self.inodes.get(&id), Some(Inode::Directory(_)))
        {
            return Err(DiskErrorKind::WrongKind);
        }
        let inode = Some(self.create(Inode::File(FileContent::durable_from(bytes))));
        let name = path.name().to_owned();
        let name = if renamed { name } else { format!("{name}.tmp") };
        self.change(vec![Part {
            directory,
            name,
            inode,
        }]);
        Ok(())
    }

    /// Renames a file or a directory.
    ///
    /// # Errors
    ///
    /// No such entry or directory.
    pub(super) fn rename(&mut self, from: &DiskPath, to: &DiskPath) -> Result<(), DiskErrorKind> {
        let inode = self.resolve(from)?;
        let source = self.parent(from)?;
        let directory = self.parent(to)?;
        self.change(vec![
            Part {
                directory: source,
                name: from.name().to_owned(),
                inode: None,
            },
            Part {
                directory,
                name: to.name().to_owned(),
                inode: Some(inode),
            },
        ]);
        Ok(())
    }

    /// Removes a file, or a directory with everything below it; absence is no error.
    ///
    /// # Errors
    ///
    /// A directory where a file was expected.
    pub(super) fn remove(
        &mut self,
        path: &DiskPath,
        whole_tree: bool,
    ) -> Result<(), DiskErrorKind> {
        let id = match self.resolve(path) {
            Err(DiskErrorKind::NotFound) => return Ok(()),
            other => other?,
        };
        if !whole_tree && matches!(self.inodes.get(&id), Some(Inode::Directory(_))) {
            return Err(DiskErrorKind::WrongKind);
        }
        let directory = self.parent(path)?;
        self.change(vec![Part {
            directory,
            name: path.name().to_owned(),
            inode: None,
        }]);
        Ok(())
    }

    /// Creates directories durably.
    ///
    /// # Errors
    ///
    /// A file in the way.
    pub(super) fn create_dirs(&mut self, path: &DiskPath) -> Result<(), DiskErrorKind> {
        let mut at = ROOT;
        for name in path.as_str().split('/').filter(|name| !name.is_empty()) {
            let next = match self.directory(at)?.visible.get(name) {
                Some(&id) => id,
                None => {
                    let inode = self.create(Inode::Directory(Directory::default()));
                    let name = name.to_owned();
                    self.change(vec![Part {
                        directory: at,
                        name,
                        inode: Some(inode),
                    }]);
                    inode
                }
            };
            self.directory(next)?;
            self.sync_inode(at);
            at = next;
        }
        Ok(())
    }

    /// Makes the names of a directory durable.
    ///
    /// # Errors
    ///
    /// No such directory.
    pub(super) fn sync_dir(&mut self, path: &DiskPath) -> Result<(), DiskErrorKind> {
        let id = self.resolve(path)?;
        self.directory(id)?;
        self.sync_inode(id);
        Ok(())
    }

    fn sync_inode(&mut self, id: InodeId) {
        let Some(Inode::Directory(directory)) = self.inodes.get_mut(&id) else {
            return;
        };
        for change in &mut self.changes {
            change.retain(|part| {
                if part.directory != id {
                    return true;
                }
                set(&mut directory.durable, part);
                false
            });
        }
        self.changes.retain(|change| !change.is_empty());
    }

    /// Entries of a directory; none when it does not exist.
    ///
    /// # Errors
    ///
    /// A file.
    pub(super) fn list(&self, path: &DiskPath) -> Result<Vec<DirEntry>, DiskErrorKind> {
        let id = match self.resolve(path) {
            Err(DiskErrorKind::NotFound) => return Ok(Vec::new()),
            other => other?,
        };
        let entries = self.directory(id)?.visible.iter();
        Ok(entries
            .map(|(name, id)| DirEntry {
                name: name.clone(),
                is_dir: matches!(self.inodes.get(id), Some(Inode::Directory(_))),
            })
            .collect())
    }

    /// Number of changes that no sync has covered.
    #[must_use]
    pub(super) fn unsynced(&self) -> u64 {
        let files = self.inodes.values().map(|inode| match inode {
            Inode::File(file) => file.unsynced(),
            Inode::Directory(_) => 0,
        });
        files.sum::<u64>() + self.changes.len() as u64
    }

    /// Power off and on: every unsynced change meets its fate.
    pub(super) fn crash(&mut self, fates: &mut Fates<'_>) {
        for change in std::mem::take(&mut self.changes) {
            if fates.next() == Fate::Lose {
                continue;
            }
            for part in &change {
                if let Some(Inode::Directory(directory)) = self.inodes.get_mut(&part.directory) {
                    set(&mut directory.durable, part);
                }
            }
        }
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::File(file) => file.crash(fates),
                Inode::Directory(directory) => directory.visible.clone_from(&directory.durable),
            }
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let mut reached = BTreeMap::new();
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            let Some(inode) = self.inodes.remove(&id) else {
                continue;
            };
            if let Inode::Directory(directory) = &inode {
                open.extend(directory.visible.values().copied());
            }
            reached.insert(id, inode);
        }
        self.inodes = reached;
    }

    /// Every file with its path, in the order of names.
    pub(super) fn for_each_file(&mut self, mut visit: impl FnMut(&str, &mut FileContent)) {
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, id)) = open.pop() {
            match self.inodes.get_mut(&id) {
                Some(Inode::File(file)) => visit(&path, file),
                Some(Inode::Directory(directory)) => {
                    open.extend(directory.visible.iter().rev().map(|(name, &id)| {
                        let slash = if path.is_empty() { "" } else { "/" };
                        (format!("{path}{slash}{name}"), id)
                    }));
                }
                None => {}
            }
        }
    }
}

fn set(entries: &mut BTreeMap<String, InodeId>, part: &Part) {
    match part.inode {
        Some(inode) => entries.insert(part.name.clone(), inode),
        None => entries.remove(&part.name),
    };
}
