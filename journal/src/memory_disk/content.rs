//! What an in-memory disk holds: what a reader sees, what a crash cannot take, and the effects
//! in between.
//!
//! Files are inodes, names point to them. Every change is made to the visible side at once and
//! recorded as an [`Effect`]; a sync of the file or of the directory moves its effects to the
//! durable side. At a crash each effect still recorded meets its own fate.

use std::collections::BTreeMap;

use super::{Fate, SECTOR_BYTES, Unsynced, UnsyncedKind};
use crate::disk::{DirEntry, DiskErrorKind};
use crate::path::DiskPath;

/// Number of a file's content, independent of its names.
pub(super) type InodeId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(InodeId),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Change {
    Data {
        inode: InodeId,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        inode: InodeId,
        len: u64,
    },
    Link {
        path: DiskPath,
        node: Node,
    },
    Unlink {
        path: DiskPath,
    },
    Rename {
        from: DiskPath,
        to: DiskPath,
        node: Node,
    },
}

#[derive(Clone, Debug)]
struct Effect {
    id: u64,
    change: Change,
    /// The path the change was made under, for whoever decides its fate.
    path: DiskPath,
    /// Directories that must be synced before a change of names is durable.
    dirs: Vec<DiskPath>,
    /// A sync of this data failed: later syncs do not cover it any more.
    abandoned: bool,
}

/// Both sides of the disk and the effects between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    inodes: BTreeMap<InodeId, Inode>,
    visible: BTreeMap<DiskPath, Node>,
    durable: BTreeMap<DiskPath, Node>,
    effects: Vec<Effect>,
    effect_next: u64,
    inode_next: InodeId,
}

impl Content {
    pub(super) fn node(&self, path: &DiskPath) -> Option<Node> {
        if *path == DiskPath::root() {
            return Some(Node::Dir);
        }
        self.visible.get(path).copied()
    }

    pub(super) fn inode(&self, path: &DiskPath) -> Result<InodeId, DiskErrorKind> {
        match self.node(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Dir) => Err(DiskErrorKind::WrongKind),
            None => Err(DiskErrorKind::NotFound),
        }
    }

    pub(super) fn bytes(&self, inode: InodeId) -> &[u8] {
        self.inodes.get(&inode).map_or(&[], |inode| &inode.visible)
    }

    pub(super) fn list(&self, dir: &DiskPath) -> Result<Vec<DirEntry>, DiskErrorKind> {
        match self.node(dir) {
            Some(Node::Dir) => {}
            Some(Node::File(_)) => return Err(DiskErrorKind::WrongKind),
            None => return Ok(Vec::new()),
        }
        let children = self
            .visible
            .iter()
            .filter(|(path, _)| path.parent().as_ref() == Some(dir));
        Ok(children
            .map(|(path, node)| DirEntry {
                name: path.name().to_owned(),
                is_dir: *node == Node::Dir,
            })
            .collect())
    }

    fn require_parent(&self, path: &DiskPath) -> Result<DiskPath, DiskErrorKind> {
        let parent = path.parent().ok_or(DiskErrorKind::WrongKind)?;
        match self.node(&parent) {
            Some(Node::Dir) => Ok(parent),
            Some(Node::File(_)) => Err(DiskErrorKind::WrongKind),
            None => Err(DiskErrorKind::NotFound),
        }
    }

    fn record(&mut self, path: DiskPath, dirs: Vec<DiskPath>, change: Change) {
        let id = self.effect_next;
        self.effect_next += 1;
        self.effects.push(Effect {
            id,
            change,
            path,
            dirs,
            abandoned: false,
        });
    }

    /// The inode at `path`, created empty when the name is free.
    pub(super) fn open_or_create(&mut self, path: &DiskPath) -> Result<InodeId, DiskErrorKind> {
        match self.node(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Dir) => Err(DiskErrorKind::WrongKind),
            None => self.create(path),
        }
    }

    /// A fresh empty inode under `path`, in place of whatever file was there.
    pub(super) fn create(&mut self, path: &DiskPath) -> Result<InodeId, DiskErrorKind> {
        let parent = self.require_parent(path)?;
        if self.node(path) == Some(Node::Dir) {
            return Err(DiskErrorKind::WrongKind);
        }
        let inode = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(inode, Inode::default());
        self.visible.insert(path.clone(), Node::File(inode));
        let change = Change::Link {
            path: path.clone(),
            node: Node::File(inode),
        };
        self.record(path.clone(), vec![parent], change);
        Ok(inode)
    }

    pub(super) fn create_dir(&mut self, path: &DiskPath) -> Result<(), DiskErrorKind> {
        let parent = self.require_parent(path)?;
        self.visible.insert(path.clone(), Node::Dir);
        let change = Change::Link {
            path: path.clone(),
            node: Node::Dir,
        };
        self.record(path.clone(), vec![parent], change);
        Ok(())
    }

    pub(super) fn write(&mut self, path: &DiskPath, inode: InodeId, offset: u64, bytes: Vec<u8>) {
        if let Some(file) = self.inodes.get_mut(&inode) {
            overwrite(&mut file.visible, offset, &bytes);
        }
        self.record(
            path.clone(),
            Vec::new(),
            Change::Data {
                inode,
                offset,
                bytes,
            },
        );
    }

    pub(super) fn set_len(&mut self, path: &DiskPath, inode: InodeId, len: u64) {
        if let Some(file) = self.inodes.get_mut(&inode) {
            file.visible.resize(to_index(len), 0);
        }
        self.record(path.clone(), Vec::new(), Change::Length { inode, len });
    }

    pub(super) fn unlink(&mut self, path: &DiskPath) -> Result<(), DiskErrorKind> {
        let Some(parent) = path.parent() else {
            return Err(DiskErrorKind::WrongKind);
        };
        if self.visible.remove(path).is_some() {
            let change = Change::Unlink { path: path.clone() };
            self.record(path.clone(), vec![parent], change);
        }
        Ok(())
    }

    /// Removes `path` and everything below it, children before their directory.
    pub(super) fn unlink_tree(&mut self, path: &DiskPath) -> Result<(), DiskErrorKind> {
        let inside = self.visible.keys().filter(|child| child.is_within(path));
        let mut doomed: Vec<DiskPath> = inside.cloned().collect();
        doomed.reverse();
        doomed.iter().try_for_each(|child| self.unlink(child))
    }

    pub(super) fn rename(&mut self, from: &DiskPath, to: &DiskPath) -> Result<(), DiskErrorKind> {
        let node = self.node(from).ok_or(DiskErrorKind::NotFound)?;
        let from_dir = from.parent().ok_or(DiskErrorKind::WrongKind)?;
        let to_dir = self.require_parent(to)?;
        if let Some(target) = self.node(to)
            && (target == Node::Dir || node == Node::Dir)
        {
            return Err(DiskErrorKind::WrongKind);
        }
        move_names(&mut self.visible, from, to, node);
        let mut dirs = vec![from_dir];
        if dirs[0] != to_dir {
            dirs.push(to_dir);
        }
        let change = Change::Rename {
            from: from.clone(),
            to: to.clone(),
            node,
        };
        self.record(to.clone(), dirs, change);
        Ok(())
    }

    /// Makes the content of `inode` durable, except what an earlier failed sync gave up.
    pub(super) fn sync(&mut self, inode: InodeId) {
        for effect in std::mem::take(&mut self.effects) {
            if effect.abandoned || effect.change.inode() != Some(inode) {
                self.effects.push(effect);
            } else {
                self.settle(&effect.change, None);
            }
        }
    }

    /// A sync that failed: its data may be dropped by the system without another word.
    pub(super) fn abandon(&mut self, inode: InodeId) {
        for effect in &mut self.effects {
            if effect.change.inode() == Some(inode) {
                effect.abandoned = true;
            }
        }
    }

    pub(super) fn sync_dir(&mut self, dir: &DiskPath) -> Result<(), DiskErrorKind> {
        match self.node(dir) {
            Some(Node::Dir) => {}
            Some(Node::File(_)) => return Err(DiskErrorKind::WrongKind),
            None => return Err(DiskErrorKind::NotFound),
        }
        for mut effect in std::mem::take(&mut self.effects) {
            let names = !effect.dirs.is_empty();
            effect.dirs.retain(|waiting| waiting != dir);
            if names && effect.dirs.is_empty() {
                self.settle(&effect.change, None);
            } else {
                self.effects.push(effect);
            }
        }
        Ok(())
    }

    /// Applies a change to the durable side; of data, only the sectors in `kept` if given.
    fn settle(&mut self, change: &Change, kept: Option<std::ops::Range<u64>>) {
        match change {
            Change::Data {
                inode,
                offset,
                bytes,
            } => {
                let Some(file) = self.inodes.get_mut(inode) else {
                    return;
                };
                let (from, to) = kept_bytes(*offset, bytes.len(), kept);
                if from < to {
                    overwrite(&mut file.durable, offset + from as u64, &bytes[from..to]);
                }
            }
            Change::Length { inode, len } => {
                if let Some(file) = self.inodes.get_mut(inode) {
                    file.durable.resize(to_index(*len), 0);
                }
            }
            Change::Link { path, node } => {
                self.durable.insert(path.clone(), *node);
            }
            Change::Unlink { path } => {
                self.durable.remove(path);
            }
            Change::Rename { from, to, node } => move_names(&mut self.durable, from, to, *node),
        }
    }

    pub(super) fn unsynced(&self) -> Vec<Unsynced> {
        self.effects.iter().map(Effect::describe).collect()
    }

    /// Lets every effect meet its fate; what survives becomes all there is.
    pub(super) fn crash(&mut self, choose: &mut dyn FnMut(&Unsynced) -> Fate) {
        for effect in std::mem::take(&mut self.effects) {
            let fate = choose(&effect.describe());
            let is_data = matches!(effect.change, Change::Data { .. });
            match fate {
                Fate::Keep => self.settle(&effect.change, None),
                Fate::Torn { keep } if is_data => self.settle(&effect.change, Some(keep)),
                Fate::Torn { keep } if !keep.is_empty() => self.settle(&effect.change, None),
                Fate::Torn { .. } | Fate::Lose => {}
            }
        }
        self.drop_orphans();
        self.visible = self.durable.clone();
        let held: Vec<InodeId> = self.visible.values().filter_map(Node::inode).collect();
        self.inodes.retain(|inode, _| held.contains(inode));
        for file in self.inodes.values_mut() {
            file.visible.clone_from(&file.durable);
        }
    }

    /// A name below a directory that was lost is lost with it.
    fn drop_orphans(&mut self) {
        let names: Vec<DiskPath> = self.durable.keys().cloned().collect();
        for path in names {
            let parent = path.parent().unwrap_or_else(DiskPath::root);
            let rooted = parent == DiskPath::root();
            if !rooted && self.durable.get(&parent) != Some(&Node::Dir) {
                self.durable.remove(&path);
            }
        }
    }

    /// Puts a file with its directories, durably.
    pub(super) fn put(&mut self, path: &DiskPath, bytes: &[u8]) {
        let mut dir = path.parent();
        while let Some(each) = dir.filter(|each| *each != DiskPath::root()) {
            self.visible.insert(each.clone(), Node::Dir);
            self.durable.insert(each.clone(), Node::Dir);
            dir = each.parent();
        }
        let inode = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(
            inode,
            Inode {
                visible: bytes.to_vec(),
                durable: bytes.to_vec(),
            },
        );
        self.visible.insert(path.clone(), Node::File(inode));
        self.durable.insert(path.clone(), Node::File(inode));
    }

    /// Damages one byte of a file, on both sides; false when there is no such byte.
    pub(super) fn flip(&mut self, path: &DiskPath, offset: u64, mask: u8) -> bool {
        let Ok(inode) = self.inode(path) else {
            return false;
        };
        let Some(file) = self.inodes.get_mut(&inode) else {
            return false;
        };
        let index = to_index(offset);
        if let Some(byte) = file.durable.get_mut(index) {
            *byte ^= mask;
        }
        match file.visible.get_mut(index) {
            Some(byte) => {
                *byte ^= mask;
                true
            }
            None => false,
        }
    }
}

impl Node {
    fn inode(&self) -> Option<InodeId> {
        match self {
            Self::File(inode) => Some(*inode),
            Self::Dir => None,
        }
    }
}

impl Change {
    fn inode(&self) -> Option<InodeId> {
        match self {
            Self::Data { inode, .. } | Self::Length { inode, .. } => Some(*inode),
            Self::Link { .. } | Self::Unlink { .. } | Self::Rename { .. } => None,
        }
    }
}

impl Effect {
    fn describe(&self) -> Unsynced {
        let (kind, sectors) = match &self.change {
            Change::Data { offset, bytes, .. } => {
                (UnsyncedKind::Data, sector_count(*offset, bytes.len()))
            }
            Change::Length { .. } => (UnsyncedKind::Length, 1),
            Change::Link { .. } | Change::Unlink { .. } | Change::Rename { .. } => {
                (UnsyncedKind::Name, 1)
            }
        };
        Unsynced {
            id: self.id,
            path: self.path.clone(),
            kind,
            sectors,
        }
    }
}

fn to_index(position: u64) -> usize {
    usize::try_from(position).expect("an in-memory file fits into memory")
}

fn overwrite(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = to_index(offset);
    let end = start + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

/// Number of sectors a write touches.
fn sector_count(offset: u64, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    let last = (offset + len as u64 - 1) / SECTOR_BYTES;
    last - offset / SECTOR_BYTES + 1
}

/// The part of a write, in bytes from its start, that lies in its `kept` sectors.
fn kept_bytes(offset: u64, len: usize, kept: Option<std::ops::Range<u64>>) -> (usize, usize) {
    let Some(kept) = kept else {
        return (0, len);
    };
    let sector = offset / SECTOR_BYTES;
    let position = |index: u64| {
        let absolute = sector.saturating_add(index).saturating_mul(SECTOR_BYTES);
        to_index(absolute.saturating_sub(offset).min(len as u64))
    };
    (position(kept.start), position(kept.end.max(kept.start)))
}

/// Moves `from` and, of a directory, everything below it.
fn move_names(names: &mut BTreeMap<DiskPath, Node>, from: &DiskPath, to: &DiskPath, node: Node) {
    names.remove(from);
    if node == Node::Dir {
        let below: Vec<DiskPath> = names
            .keys()
            .filter(|path| path.is_within(from))
            .cloned()
            .collect();
        for path in below {
            let rest = &path.as_str()[from.as_str().len() + 1..];
            if let (Some(child), Ok(moved)) = (names.remove(&path), to.join(rest)) {
                names.insert(moved, child);
            }
        }
    }
    names.insert(to.clone(), node);
}
