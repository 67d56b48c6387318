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
    /// One side of a connection is gone and the other does not know.
    HalfOpen,
    /// Links stand still one after the other, and go on in another order.
    Swizzle,
    /// The network falls apart and together again, many times.
    Flap,
    /// Clients and nodes do not hear each other.
    Cutoff,
    /// A node is slow at everything.
    SlowNode,
    /// A disk is full.
    Full,
    /// A write or a read goes to another place of a log.
    Misdirect,
    /// A write was confirmed and never happened.
    LostWrite,
}

impl FaultClass {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Crash,
        Self::Pause,
        Self::Partition,
        Self::Clog,
        Self::Reset,
        Self::Rot,
        Self::Wipe,
        Self::Stop,
        Self::Decay,
        Self::HalfOpen,
        Self::Swizzle,
        Self::Flap,
        Self::Cutoff,
        Self::SlowNode,
        Self::Full,
        Self::Misdirect,
        Self::LostWrite,
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
            Self::HalfOpen => "halfopen",
            Self::Swizzle => "swizzle",
            Self::Flap => "flap",
            Self::Cutoff => "cutoff",
            Self::SlowNode => "slownode",
            Self::Full => "full",
            Self::Misdirect => "misdirect",
            Self::LostWrite => "lostwrite",
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
            Self::HalfOpen => "fault: halfopen",
            Self::Swizzle => "fault: swizzle",
            Self::Flap => "fault: flap",
            Self::Cutoff => "fault: cutoff",
            Self::SlowNode => "fault: slownode",
            Self::Full => "fault: full",
            Self::Misdirect => "fault: misdirect",
            Self::LostWrite => "fault: lostwrite",
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
