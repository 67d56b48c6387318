//! What the core asks of the plane around it.
//!
//! The core orders prepares and does not know what they mean. Everything it must know about the
//! meaning of one is a question in this trait: what acknowledging it promises, what the primary
//! writes into its body, whether a backup may take it. The answers come at once; no method may
//! call the replica back.

use biplane_wire::{FrameBuffer, Message, Op, PrepareHeader};

/// What must hold before a prepare counts as held by this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory.
    Memory,
    /// On stable storage.
    Disk,
}

/// How a prepare came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the primary of the current view, next in order.
    Live,
    /// From the journal of a peer, or live into a hole; order is not given.
    Repair,
    /// It was journaled here, a truncation below it took it out, and it goes back in.
    Restored,
}

/// What happens to a queued request whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Prepare it.
    Prepare,
    /// Not yet; keep it and everything behind it.
    Wait,
    /// Answer it with this code.
    Deny(u32),
    /// Forget it without an answer.
    Drop,
}

/// The plane as the core sees it.
pub trait Plane {
    /// What an acknowledgement of this prepare promises. A function of the prepare and of the
    /// topic's settled policy, the same every time it is asked.
    fn durability(&self, prepare: &PrepareHeader) -> Durability;

    /// At the primary: op, timestamp, parent and commit of a new prepare are fixed, its
    /// checksums are not; the plane writes into the body what depends on them.
    fn stamp(&mut self, header: &PrepareHeader, body: &mut [u8]);

    /// Whether this prepare may enter the log; counters the plane keeps of the log move here.
    ///
    /// # Errors
    ///
    /// The reason for which it is dropped, for the log.
    fn accept(&mut self, prepare: &Message, source: Source) -> Result<(), &'static str>;

    /// Every entry from `from` on left the log; `removed` are those that were held, ascending.
    /// None of them was applied.
    fn truncated(&mut self, from: Op, removed: &[Message]);

    /// A queued request is next.
    fn promote(&mut self, request: &FrameBuffer) -> Promotion;

    /// Whether acknowledgements may leave now. They are given later, when this changes.
    fn may_acknowledge(&self) -> bool {
        true
    }
}
