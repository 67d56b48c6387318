//! The client table of the consensus core as a snapshot keeps it, and back.

use biplane_vsr::sessions::{ClientTable, Fence, SlotSnapshot};
use biplane_wire::{Checksum, ClientId, Message, RequestNumber};

use crate::snapshot::{SessionImage, SnapshotError, TableImage};

const INCONSISTENT: SnapshotError = SnapshotError::Inconsistent("a session does not decode");

/// The table as a snapshot keeps it: each session with its slot and its newest reply.
pub(crate) fn image(table: &ClientTable) -> TableImage {
    let slots = table.snapshot().map(|held| {
        let slot = u32::try_from(held.slot).expect("a table has at most 65536 slots");
        let image = SessionImage {
            client: held.client.0,
            epoch: held.epoch,
            user_id: held.user_id,
            watermark: held.watermark.0,
            watermark_checksum: held.watermark_checksum.0,
            reply: held.reply.to_vec(),
        };
        (slot, image)
    });
    let fences = table.fences().map(|fence| SessionImage {
        client: fence.client.0,
        epoch: fence.epoch,
        user_id: fence.user_id,
        watermark: fence.watermark.0,
        watermark_checksum: fence.watermark_checksum.0,
        reply: fence.reply.as_ref().map_or_else(Vec::new, Message::to_vec),
    });
    TableImage {
        slots: slots.collect(),
        fences: fences.collect(),
    }
}

/// The table a snapshot describes, with `capacity` slots or more where an occupied one lies
/// higher.
pub(crate) fn restore(image: &TableImage, capacity: usize) -> Result<ClientTable, SnapshotError> {
    let slots: Result<Vec<SlotSnapshot>, SnapshotError> = image
        .slots
        .iter()
        .map(|(slot, session)| slot_of(*slot, session))
        .collect();
    let fences: Result<Vec<Fence>, SnapshotError> = image.fences.iter().map(fence_of).collect();
    ClientTable::restore(capacity, slots?, fences?).map_err(|_| INCONSISTENT)
}

fn slot_of(slot: u32, session: &SessionImage) -> Result<SlotSnapshot, SnapshotError> {
    Ok(SlotSnapshot {
        slot: usize::try_from(slot).map_err(|_| INCONSISTENT)?,
        client: ClientId(session.client),
        epoch: session.epoch,
        user_id: session.user_id,
        watermark: RequestNumber(session.watermark),
        watermark_checksum: Checksum(session.watermark_checksum),
        reply: reply_of(&session.reply)?,
    })
}

fn fence_of(session: &SessionImage) -> Result<Fence, SnapshotError> {
    let reply = if session.reply.is_empty() {
        None
    } else {
        Some(reply_of(&session.reply)?)
    };
    Ok(Fence {
        client: ClientId(session.client),
        epoch: session.epoch,
        user_id: session.user_id,
        watermark: RequestNumber(session.watermark),
        watermark_checksum: Checksum(session.watermark_checksum),
        reply,
    })
}

fn reply_of(bytes: &[u8]) -> Result<Message, SnapshotError> {
    Message::from_bytes(bytes).map_err(|_| INCONSISTENT)
}
