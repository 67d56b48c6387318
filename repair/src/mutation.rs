//! Deliberate bugs of repair, for whoever has to prove that it would find them.
//!
//! As in the consensus core: the feature `mutation` compiles points in at which one named rule can
//! be switched off for the running thread, and only the simulator turns it on. Without it the
//! question at each point is the constant `false`.

/// Whether the named bug is switched on here.
#[cfg(feature = "mutation")]
macro_rules! mutated {
    ($name:ident) => {
        $crate::mutation::is_active($crate::mutation::Mutation::$name)
    };
}

/// Whether the named bug is switched on here: never, in what ships.
#[cfg(not(feature = "mutation"))]
macro_rules! mutated {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutated;

#[cfg(feature = "mutation")]
pub use self::switch::{Mutation, activate};

#[cfg(feature = "mutation")]
pub(crate) use self::switch::is_active;

#[cfg(feature = "mutation")]
mod switch {
    use std::cell::Cell;

    /// A rule that does not hold.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mutation {
        /// A peer that has nothing to give is asked again, and nobody else.
        PeerNeverChanges,
        /// A peer that says it no longer has a range is not believed.
        RefusalIgnored,
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Switches one bug on for this thread, or all of them off.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}
