//! Names of files, relative to the data folder and checked once.
//!
//! A [`DiskPath`] can be joined to a real folder without a look at its parts: it never leaves
//! that folder, whatever built it. Parts are separated by `/`; the empty path is the folder.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A path relative to the data folder. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskPath(Arc<str>);

/// Longest path, in bytes. Far above any name this server makes.
pub const PATH_BYTES_MAX: usize = 1024;

/// Longest single part of a path, in bytes: what common file systems allow.
pub const NAME_BYTES_MAX: usize = 255;

/// Why a text is not a path below the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// The whole is longer than [`PATH_BYTES_MAX`], or a part than [`NAME_BYTES_MAX`].
    #[error("path or name too long")]
    TooLong,
    /// A part is empty: a leading, trailing or double separator.
    #[error("empty path part")]
    EmptyPart,
    /// A part is `.` or `..`.
    #[error("path part refers to a directory by dots")]
    Dots,
    /// A character other than ASCII letters, digits and `-._`.
    #[error("character not allowed in a path")]
    Character,
}

impl DiskPath {
    /// The data folder itself.
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::from(""))
    }

    /// Checks `path` and takes it over. The empty text is the data folder.
    ///
    /// # Errors
    ///
    /// The first rule the text breaks.
    pub fn new(path: &str) -> Result<Self, PathError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if !path.is_empty() {
            path.split('/').try_for_each(check_name)?;
        }
        Ok(Self(Arc::from(path)))
    }

    /// `self/name`, where `name` may have several parts itself.
    ///
    /// # Errors
    ///
    /// As [`DiskPath::new`]; an empty `name` is refused.
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        if name.is_empty() {
            return Err(PathError::EmptyPart);
        }
        if self.0.is_empty() {
            return Self::new(name);
        }
        Self::new(&format!("{}/{name}", self.0))
    }

    /// The same path with `suffix` appended to its last part, as in `journal.wal` + `.tmp`.
    ///
    /// # Errors
    ///
    /// As [`DiskPath::new`]; the data folder itself has no name to extend.
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, PathError> {
        if self.0.is_empty() {
            return Err(PathError::EmptyPart);
        }
        Self::new(&format!("{}{suffix}", self.0))
    }

    /// The directory that holds this entry; `None` for the data folder.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let parent = self.0.rsplit_once('/').map_or("", |(parent, _)| parent);
        Some(Self(Arc::from(parent)))
    }

    /// The last part; empty for the data folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `self` is `ancestor` or lies below it.
    #[must_use]
    pub fn is_within(&self, ancestor: &Self) -> bool {
        if ancestor.0.is_empty() {
            return true;
        }
        match self.0.strip_prefix(&*ancestor.0) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for DiskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

impl fmt::Debug for DiskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

fn check_name(name: &str) -> Result<(), PathError> {
    if name.is_empty() {
        return Err(PathError::EmptyPart);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    if name == "." || name == ".." {
        return Err(PathError::Dots);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !name.bytes().all(allowed) {
        return Err(PathError::Character);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_data_folder() {
        for (path, wanted) in [
            ("metadata/journal.wal", None),
            (
                "streams/1/topics/2/partitions/3/00000000000000000000.log",
                None,
            ),
            ("", None),
            ("prepares-17", None),
            ("a/../b", Some(PathError::Dots)),
            ("..", Some(PathError::Dots)),
            ("./a", Some(PathError::Dots)),
            ("/etc/passwd", Some(PathError::EmptyPart)),
            ("a//b", Some(PathError::EmptyPart)),
            ("a/", Some(PathError::EmptyPart)),
            ("a\\b", Some(PathError::Character)),
            ("a\0b", Some(PathError::Character)),
            ("a b", Some(PathError::Character)),
            ("ä", Some(PathError::Character)),
        ] {
            assert_eq!(DiskPath::new(path).err(), wanted, "{path:?}");
        }
        assert_eq!(
            DiskPath::new(&"a".repeat(256)).err(),
            Some(PathError::TooLong)
        );
        assert_eq!(
            DiskPath::new(&"a/".repeat(600)).err(),
            Some(PathError::TooLong)
        );
    }

    #[test]
    fn parents_and_names_take_a_path_apart() {
        let path = DiskPath::new("metadata/journal.wal").unwrap();
        assert_eq!(path.name(), "journal.wal");
        assert_eq!(path.parent().unwrap().as_str(), "metadata");
        assert_eq!(path.parent().unwrap().parent().unwrap(), DiskPath::root());
        assert_eq!(DiskPath::root().parent(), None);
        assert_eq!(
            path.with_suffix(".tmp").unwrap().as_str(),
            "metadata/journal.wal.tmp"
        );
        assert_eq!(
            DiskPath::root().join("metadata").unwrap().as_str(),
            "metadata"
        );
        assert_eq!(DiskPath::root().join(""), Err(PathError::EmptyPart));
    }

    #[test]
    fn an_ancestor_is_a_whole_number_of_parts() {
        let path = |text| DiskPath::new(text).unwrap();
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(path("a").is_within(&DiskPath::root()));
        assert!(!path("ab").is_within(&path("a")));
        assert!(!path("a").is_within(&path("a/b")));
    }
}
