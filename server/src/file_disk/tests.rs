//! The file-backed disk keeps the promises of the seam.

use std::sync::Arc;

use biplane_journal::{Chunk, DiskOp, DiskReply, QueueId};

use super::*;
use crate::{mailbox, runtime};

struct Fixture {
    folder: DataFolder,
    disk: FileDisk,
    completions: runtime::Receiver<DiskCompletion>,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(dir.path()).unwrap();
    let (sender, completions) = mailbox::unbounded(&Arc::default());
    let disk = FileDisk::start(&folder, 2, &sender).unwrap();
    Fixture {
        folder,
        disk,
        completions,
        _dir: dir,
    }
}

fn path(text: &str) -> DiskPath {
    DiskPath::new(text).unwrap()
}

fn bytes(text: &str) -> Vec<Chunk> {
    vec![Chunk::Bytes(Arc::from(text.as_bytes()))]
}

impl Fixture {
    fn run_on(&self, queue: u64, op: DiskOp) -> Result<DiskReply, DiskError> {
        self.disk.submit(DiskRequest {
            queue: QueueId(queue),
            token: 7,
            op,
        });
        let completion = runtime::block_on(self.completions.recv()).unwrap();
        assert_eq!((completion.queue, completion.token), (QueueId(queue), 7));
        completion.result
    }

    fn run(&self, op: DiskOp) -> Result<DiskReply, DiskError> {
        self.run_on(0, op)
    }

    fn write(&self, file: &str, offset: u64, text: &str) {
        let data = bytes(text);
        self.run(DiskOp::Write {
            path: path(file),
            offset,
            data,
            sync: true,
        })
        .unwrap();
    }

    fn content(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap()
    }
}

#[test]
fn writes_land_where_they_are_told_and_reads_stop_at_the_end() {
    let disk = fixture();
    disk.run(DiskOp::CreateDirs {
        path: path("a/b/c"),
    })
    .unwrap();
    disk.run(DiskOp::CreateDirs {
        path: path("a/b/c"),
    })
    .unwrap();
    disk.write("a/b/c/file", 2, "cdef");
    disk.write("a/b/c/file", 0, "ab");
    let op = DiskOp::Read {
        path: path("a/b/c/file"),
        offset: 1,
        len: u32::MAX,
    };
    let Ok(DiskReply::Data(data)) = disk.run(op) else {
        panic!("no data")
    };
    assert_eq!(data.as_bytes(), b"bcdef");
    let op = DiskOp::Read {
        path: path("a/b/c/file"),
        offset: 100,
        len: 10,
    };
    let Ok(DiskReply::Data(data)) = disk.run(op) else {
        panic!("no data")
    };
    assert!(data.is_empty());
    disk.run(DiskOp::Truncate {
        path: path("a/b/c/file"),
        len: 3,
    })
    .unwrap();
    assert_eq!(disk.content("a/b/c/file"), "abc");
    disk.run(DiskOp::Sync {
        path: path("a/b/c/file"),
    })
    .unwrap();
    disk.run(DiskOp::SyncDir {
        path: path("a/b/c"),
    })
    .unwrap();
}

#[test]
fn a_replaced_file_is_new_and_leaves_no_temporary() {
    let disk = fixture();
    disk.write("file", 0, "old content");
    disk.run(DiskOp::Replace {
        path: path("file"),
        data: bytes("new"),
    })
    .unwrap();
    assert_eq!(disk.content("file"), "new");
    assert!(!disk.folder.path().join("file.tmp").exists());
}

#[test]
fn a_handle_of_another_thread_does_not_outlive_the_name() {
    let disk = fixture();
    disk.write("one", 0, "first");
    // Queue 1 is another thread: it renames away what queue 0 has open.
    disk.run_on(
        1,
        DiskOp::Rename {
            from: path("one"),
            to: path("two"),
        },
    )
    .unwrap();
    disk.write("one", 0, "second");
    assert_eq!(disk.content("two"), "first");
    assert_eq!(disk.content("one"), "second");
    disk.run_on(1, DiskOp::Remove { path: path("one") })
        .unwrap();
    disk.run_on(1, DiskOp::Remove { path: path("one") })
        .unwrap();
    disk.write("one", 0, "third");
    assert_eq!(disk.content("one"), "third");
}

#[test]
fn failures_name_the_verb_and_the_path() {
    let disk = fixture();
    let error = disk
        .run(DiskOp::Read {
            path: path("none"),
            offset: 0,
            len: 1,
        })
        .unwrap_err();
    assert_eq!(
        (error.verb, error.kind),
        (DiskVerb::Read, DiskErrorKind::NotFound)
    );
    disk.run(DiskOp::CreateDirs {
        path: path("folder"),
    })
    .unwrap();
    let op = DiskOp::Write {
        path: path("folder"),
        offset: 0,
        data: bytes("x"),
        sync: false,
    };
    let error = disk.run(op).unwrap_err();
    assert_eq!(
        (error.verb, error.kind),
        (DiskVerb::Write, DiskErrorKind::WrongKind)
    );
}

#[test]
fn the_view_tells_absence_from_failure() {
    let disk = fixture();
    let view = disk.folder.view();
    assert_eq!(view.len(&path("none")).unwrap(), None);
    assert!(view.list(&path("none")).unwrap().is_empty());
    assert!(view.read(&path("none"), 0, &mut [0; 4]).is_err());
    disk.run(DiskOp::CreateDirs {
        path: path("folder/inner"),
    })
    .unwrap();
    disk.write("folder/file", 0, "abc");
    assert_eq!(view.len(&path("folder/file")).unwrap(), Some(3));
    assert_eq!(
        view.len(&path("folder")).unwrap_err().kind,
        DiskErrorKind::WrongKind
    );
    let names: Vec<_> = view.list(&path("folder")).unwrap();
    assert_eq!(names.len(), 2);
    assert!(!names[0].is_dir && names[1].is_dir);
}

#[test]
fn a_folder_has_one_owner() {
    let disk = fixture();
    let error = DataFolder::open(disk.folder.path()).unwrap_err();
    assert!(matches!(error, FolderError::InUse { .. }), "{error}");
}

#[test]
fn shutting_down_executes_what_is_queued() {
    let disk = fixture();
    for index in 0..100u64 {
        let data = bytes("x");
        let op = DiskOp::Write {
            path: path("file"),
            offset: index,
            data,
            sync: false,
        };
        disk.disk.submit(DiskRequest {
            queue: QueueId(0),
            token: index,
            op,
        });
    }
    let Fixture { folder, disk, .. } = disk;
    disk.shut_down();
    assert_eq!(fs::metadata(folder.path().join("file")).unwrap().len(), 100);
}

#[test]
fn queues_of_the_same_purpose_are_spread_over_the_threads() {
    for stride in 1..=8 {
        let mut used = [0; 4];
        for group in 0..400 {
            used[thread_of(QueueId(group * stride), used.len())] += 1;
        }
        assert!(
            used.iter().all(|count| (60..=140).contains(count)),
            "{stride}: {used:?}"
        );
    }
}
