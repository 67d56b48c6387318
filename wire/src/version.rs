//! The packed protocol version and the gate at login (chapter 01 section 13).

use std::fmt;

/// `major << 20 | minor << 10 | patch`, each below 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// The version this server speaks, 0.11.0.
    pub const CURRENT: Self = Self(11 << 10);
    /// The smallest version it accepts.
    pub const MIN: Self = Self::CURRENT;

    /// Packs a version; `None` when a part is 1024 or more.
    #[must_use]
    pub const fn pack(major: u32, minor: u32, patch: u32) -> Option<Self> {
        if major >= 1024 || minor >= 1024 || patch >= 1024 {
            return None;
        }
        Some(Self(major << 20 | minor << 10 | patch))
    }

    /// Major, minor and patch.
    #[must_use]
    pub const fn unpack(self) -> (u32, u32, u32) {
        (self.0 >> 20, self.0 >> 10 & 0x3FF, self.0 & 0x3FF)
    }

    /// Whether a client of this version may log in: not below the minimum, and not above the
    /// server's major and minor. The patch does not count at the upper end.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 >= Self::MIN.0 && self.0 >> 10 <= Self::CURRENT.0 >> 10
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.unpack();
        write!(f, "{major}.{minor}.{patch}")
    }
}
