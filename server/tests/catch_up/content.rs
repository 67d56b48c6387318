//! What stopped nodes have on their disks, compared file by file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use biplane_wire::xxh3;

/// Length and hash of every file that must be the same on all nodes, by its path.
pub(crate) type Content = BTreeMap<String, (u64, u64)>;

/// The segments and the stored positions of every partition under a node's data folder. Indexes
/// and journals may differ: they are derived, or say what this node still needs of them.
pub(crate) fn of(data: &Path) -> Content {
    let mut content = Content::new();
    let streams = data.join("streams");
    if streams.exists() {
        collect(data, &streams, &mut content);
    }
    content
}

fn collect(root: &Path, folder: &Path, content: &mut Content) {
    for entry in fs::read_dir(folder).expect("a folder of the node") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, content);
            continue;
        }
        let name = path.strip_prefix(root).expect("below the root");
        let name = name.display().to_string();
        if name.ends_with(".log") || name.contains("/offsets/") {
            let bytes = fs::read(&path).expect("a file of the node");
            content.insert(name, (bytes.len() as u64, xxh3(&bytes)));
        }
    }
}

/// Compares the folders of all nodes.
///
/// # Panics
/// With the first file that two nodes do not have in common.
pub(crate) fn assert_same(folders: &[std::path::PathBuf]) -> Content {
    let first = of(&folders[0]);
    for other in &folders[1..] {
        let theirs = of(other);
        for (name, found) in &first {
            let (here, there) = (folders[0].display(), other.display());
            assert_eq!(
                Some(found),
                theirs.get(name),
                "{name}: length and hash in {here} and in {there}"
            );
        }
        let more = theirs.keys().find(|name| !first.contains_key(*name));
        assert_eq!(more, None, "only in {}", other.display());
    }
    first
}
