//! The classes of faults, and what is remembered of each fault that struck.

use crate::time::Nanos;

/// A class of faults with its own rhythm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultClass {
    /// Power fails.
    Crash,
    /// A node stands still.
    Pause,
    /// The network falls apart.
    Partition,
    /// A link stands still.
    Clog,
    /// A connection breaks.
    Reset,
    /// A sector goes bad.
    Rot,
    /// A disk is replaced by an empty one.
    Wipe,
    /// A node stops in good order.
    Stop,
    /// A record that was acknowledged goes bad, and power fails.
    Decay,
}

impl FaultClass {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Crash,
        Self::Pause,
        Self::Partition,
        Self::Clog,
        Self::Reset,
        Self::Rot,
        Self::Wipe,
        Self::Stop,
        Self::Decay,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::Partition => "partition",
            Self::Clog => "clog",
            Self::Reset => "reset",
            Self::Rot => "rot",
            Self::Wipe => "wipe",
            Self::Stop => "stop",
            Self::Decay => "decay",
        }
    }

    /// The name its faults are counted under.
    #[must_use]
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Crash => "fault: crash",
            Self::Pause => "fault: pause",
            Self::Partition => "fault: partition",
            Self::Clog => "fault: clog",
            Self::Reset => "fault: reset",
            Self::Rot => "fault: rot",
            Self::Wipe => "fault: wipe",
            Self::Stop => "fault: stop",
            Self::Decay => "fault: decay",
        }
    }

    /// The class of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// A fault that struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Its class.
    pub class: FaultClass,
    /// Its number in the class, which is how a run without it is asked for.
    pub number: u64,
    /// When.
    pub at: Nanos,
}
