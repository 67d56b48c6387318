//! O6 and O7: offsets, and what readers see of them.
//!
//! Within one incarnation of a partition each offset maps to one message for ever; committed
//! batches follow each other without a gap; a poll returns a contiguous run of committed
//! messages, as they were written.

use std::collections::BTreeMap;

use biplane_wire::{
    Batch, Codec as _, Message, Operation, PrepareHeader, Verify,
    response::{PolledMessages, SendConfirmations},
    xxh3,
};

use super::{GroupKey, Violation};

/// What is at an offset: the id of the message and a digest of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Id the producer gave.
    pub id: u128,
    /// Digest of payload and user headers.
    pub digest: u64,
}

/// The messages between two purges of a partition.
#[derive(Debug, Default)]
struct Epoch {
    /// By offset.
    values: Vec<Value>,
    /// Every id with its offset.
    ids: BTreeMap<u128, u64>,
}

/// The messages of one partition.
#[derive(Debug, Default)]
pub struct Partition {
    /// The present one last; there is one as soon as there is a message.
    epochs: Vec<Epoch>,
    /// Purges that metadata has committed, and how many of them messages have followed.
    purges: u64,
    followed: u64,
    /// The first offset that no client was told of.
    told: u64,
    /// A lone replica was restarted: what nobody was told of may be gone.
    unsure: bool,
}

impl Partition {
    /// The offset the next message gets, unless a purge comes before it.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.epochs
            .last()
            .map_or(0, |epoch| epoch.values.len() as u64)
    }

    /// Offsets below this one must be served.
    #[must_use]
    pub fn owed(&self) -> u64 {
        if self.unsure {
            self.told.min(self.next_offset())
        } else {
            self.next_offset()
        }
    }

    /// Whether a purge is committed that no message has followed yet: what is kept then depends
    /// on who has carried it out.
    #[must_use]
    pub fn awaits_purge(&self) -> bool {
        self.purges > self.followed
    }

    /// The message at an offset.
    #[must_use]
    pub fn get(&self, offset: u64) -> Option<Value> {
        self.epochs.last()?.get(offset)
    }

    /// The epoch a batch that starts at `offset` belongs to; a purge may start a new one.
    fn epoch_for(&mut self, offset: u64) -> &mut Epoch {
        let restarts = offset == 0 && self.next_offset() > 0 && self.awaits_purge();
        if self.epochs.is_empty() || restarts {
            self.epochs.push(Epoch::default());
        }
        if restarts {
            self.followed += 1;
            self.told = 0;
        }
        let told = self.told;
        let last = self.epochs.len() - 1;
        let epoch = &mut self.epochs[last];
        if std::mem::take(&mut self.unsure) && offset >= told {
            epoch.values.truncate(offset as usize);
            epoch.ids.retain(|_, at| *at < offset);
        }
        epoch
    }
}

impl Epoch {
    fn get(&self, offset: u64) -> Option<Value> {
        self.values.get(usize::try_from(offset).ok()?).copied()
    }
}

/// The messages of all partitions.
#[derive(Debug, Default)]
pub struct Messages {
    partitions: BTreeMap<GroupKey, Partition>,
    /// Messages that got an offset.
    pub assigned: u64,
    /// Messages read and compared.
    pub polled: u64,
}

/// The messages of one record, by offset.
fn values(bytes: &[u8]) -> Result<Vec<(u64, Value)>, String> {
    let (batch, rest) = Batch::decode_prefix(bytes, Verify::Checksums)
        .map_err(|error| format!("the batch does not verify: {error}"))?;
    if !rest.is_empty() {
        return Err("bytes behind the batch".to_owned());
    }
    Ok(of_batch(&batch))
}

fn of_batch(batch: &Batch<'_>) -> Vec<(u64, Value)> {
    let value = |frame: &biplane_wire::MessageFrame<'_>| {
        let mut carried = frame.payload.to_vec();
        carried.extend_from_slice(frame.user_headers);
        Value {
            id: frame.header.id(),
            digest: xxh3(&carried),
        }
    };
    batch
        .frames()
        .map(|frame| (batch.offset_of(&frame), value(&frame)))
        .collect()
}

impl Messages {
    /// The messages of a partition.
    #[must_use]
    pub fn partition(&self, key: GroupKey) -> Option<&Partition> {
        self.partitions.get(&key)
    }

    /// A prepare became canonical. `fresh` says that no node has been restarted yet: the
    /// memory of what was sent before is complete, so that no repetition may get through. Says
    /// whether this is a repetition of messages that are there already.
    ///
    /// # Errors
    ///
    /// An offset that is skipped or used again, a message that is there twice, or a batch that
    /// does not verify.
    pub fn committed(
        &mut self,
        key: GroupKey,
        prepare: &Message,
        fresh: bool,
    ) -> Result<bool, Violation> {
        let header: &PrepareHeader = prepare.header();
        if key.group.is_metadata() || header.operation() != Operation::SendMessages {
            return Ok(false);
        }
        // Bare groups have no incarnation and carry opaque bytes.
        if key.incarnation == 0 {
            return Ok(false);
        }
        let op = header.op();
        let found = match values(prepare.body()) {
            Ok(found) => found,
            Err(text) => {
                return Err(Violation::new(
                    "O6 offsets",
                    key.group,
                    format!("op {op}: {text}"),
                ));
            }
        };
        let partition = self.partitions.entry(key).or_default();
        let first = found.first().map_or(0, |(offset, _)| *offset);
        let epoch = partition.epoch_for(first);
        let mut repeats = false;
        for (offset, value) in found {
            self.assigned += 1;
            let next = epoch.values.len() as u64;
            if offset != next {
                let text = format!("op {op} puts {value:x?} at offset {offset}; {next} is next");
                return Err(Violation::new("O6 offsets", key.group, text));
            }
            epoch.values.push(value);
            let before = epoch.ids.insert(value.id, offset);
            repeats |= before.is_some();
            if let (Some(before), true) = (before, fresh) {
                let text = format!(
                    "op {op} brings {:x} of offset {before} again at {offset}",
                    value.id
                );
                return Err(Violation::new("O6 offsets", key.group, text));
            }
        }
        Ok(repeats)
    }

    /// A client is told that its messages up to before `end` are kept.
    pub fn told(&mut self, key: GroupKey, end: u64) {
        let partition = self.partitions.entry(key).or_default();
        partition.told = partition.told.max(end);
    }

    /// The same, as the body of an answer says it.
    pub fn told_by(&mut self, key: GroupKey, body: &[u8]) {
        let Ok(told) = SendConfirmations::decode(body) else {
            return;
        };
        for confirmation in told.0 {
            let first = confirmation.base_offset;
            self.told(key, first + 1);
        }
    }

    /// A lone replica lost its memory. It answers only what is on its disk, and what it had
    /// merely prepared may be gone.
    pub fn lone_restart(&mut self) {
        self.partitions.values_mut().for_each(|it| it.unsure = true);
    }

    /// Metadata has committed this many purges of a partition.
    pub fn purged(&mut self, key: GroupKey, purges: u64) {
        let partition = self.partitions.entry(key).or_default();
        partition.purges = partition.purges.max(purges);
    }

    /// A node answers a poll.
    ///
    /// # Errors
    ///
    /// A message that is not the committed one, or an answer with a gap.
    pub fn polled(&mut self, node: u8, key: GroupKey, body: &[u8]) -> Result<(), Violation> {
        let wrong = |text: String| {
            Err(Violation::new(
                "O7 polls",
                key.group,
                format!("n{node}: {text}"),
            ))
        };
        let Ok(answer) = PolledMessages::decode(body) else {
            return wrong("the answer does not decode".to_owned());
        };
        let mut read: Vec<(u64, Value)> = Vec::new();
        for batch in answer.batches(Verify::Checksums) {
            match batch {
                Ok(batch) => read.extend(of_batch(&batch)),
                Err(error) => return wrong(format!("a record does not verify: {error}")),
            }
        }
        self.polled += read.len() as u64;
        let epochs = self.partitions.get(&key).map_or(&[][..], |it| &it.epochs);
        let written = epochs.iter().map(|epoch| epoch.values.len() as u64).max();
        // Zero stands for a partition without messages as well.
        if answer.current_offset > written.unwrap_or(0).saturating_sub(1) {
            let (said, written) = (answer.current_offset, written.unwrap_or(0));
            return wrong(format!(
                "offset {said} is said to be there, {written} are committed"
            ));
        }
        if read.len() as u64 != u64::from(answer.messages_count) {
            let announced = answer.messages_count;
            return wrong(format!("{} messages, {announced} announced", read.len()));
        }
        if let Some(pair) = read.windows(2).find(|pair| pair[1].0 != pair[0].0 + 1) {
            return wrong(format!("offset {} follows {}", pair[1].0, pair[0].0));
        }
        // A node that has not carried a purge out yet still serves what was there before.
        let all_in = |epoch: &Epoch| read.iter().all(|&(at, value)| epoch.get(at) == Some(value));
        if read.is_empty() || epochs.iter().any(all_in) {
            return Ok(());
        }
        let present = epochs.last();
        let differs = read
            .iter()
            .find(|&&(at, value)| present.and_then(|epoch| epoch.get(at)) != Some(value));
        let committed = differs.and_then(|&(at, _)| present.and_then(|epoch| epoch.get(at)));
        wrong(format!("reads {differs:x?}; committed is {committed:x?}"))
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{BatchBuilder, Command, GroupId, Op, prepare, stamp_batch};

    use super::*;

    fn key() -> GroupKey {
        let group = GroupId::partition(1, 1, 0).expect("small ids");
        GroupKey {
            group,
            incarnation: 7,
        }
    }

    fn batch(ids: &[u128], base_offset: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for &id in ids {
            builder.push(id, 1, &id.to_le_bytes(), &[]).expect("small");
        }
        let mut bytes = builder.finish().expect("small");
        stamp_batch(&mut bytes, 0, base_offset, 5).expect("a batch");
        bytes
    }

    fn committed(op: u64, ids: &[u128], base_offset: u64) -> Message {
        let mut header = PrepareHeader::new(Command::Prepare);
        header.set_op(Op(op));
        header.set_group(key().group);
        header.set_operation(Operation::SendMessages);
        prepare::build_with_body(header, &batch(ids, base_offset))
    }

    fn poll(records: &[Vec<u8>], count: u32) -> Vec<u8> {
        poll_at(records, count, 0)
    }

    fn poll_at(records: &[Vec<u8>], count: u32, current_offset: u64) -> Vec<u8> {
        let mut body = PolledMessages::head(0, current_offset, count).to_vec();
        records
            .iter()
            .for_each(|record| body.extend_from_slice(record));
        body
    }

    #[test]
    fn contiguous_offsets_pass_and_gaps_and_reuse_are_found() {
        let mut messages = Messages::default();
        messages
            .committed(key(), &committed(1, &[1, 2], 0), true)
            .expect("first");
        messages
            .committed(key(), &committed(2, &[3], 2), true)
            .expect("next");
        let gap = messages
            .committed(key(), &committed(3, &[4], 4), true)
            .expect_err("gap");
        assert_eq!(gap.oracle, "O6 offsets");
        assert!(
            messages
                .committed(key(), &committed(3, &[4], 2), true)
                .is_err()
        );
    }

    #[test]
    fn offsets_start_again_after_a_purge_and_only_then() {
        let mut messages = Messages::default();
        messages
            .committed(key(), &committed(1, &[1, 2], 0), true)
            .expect("first");
        assert!(
            messages
                .committed(key(), &committed(2, &[3], 0), true)
                .is_err()
        );
        messages.purged(key(), 1);
        messages
            .committed(key(), &committed(3, &[3], 0), true)
            .expect("purged");
        messages
            .polled(0, key(), &poll(&[batch(&[3], 0)], 1))
            .expect("present");
        messages
            .polled(0, key(), &poll(&[batch(&[1, 2], 0)], 2))
            .expect("not purged yet");
        assert!(
            messages
                .polled(0, key(), &poll(&[batch(&[3, 2], 0)], 2))
                .is_err()
        );
    }

    #[test]
    fn polls_of_what_was_written_pass_and_others_are_found() {
        let mut messages = Messages::default();
        messages
            .committed(key(), &committed(1, &[1, 2], 0), true)
            .expect("first");
        messages
            .committed(key(), &committed(2, &[3], 2), true)
            .expect("next");
        let good = poll_at(&[batch(&[1, 2], 0), batch(&[3], 2)], 3, 2);
        messages.polled(0, key(), &good).expect("as written");
        let cases = [
            poll(&[batch(&[1, 9], 0)], 2),
            poll(&[batch(&[1, 2], 0)], 3),
            poll(&[batch(&[3], 2), batch(&[1, 2], 0)], 3),
            poll(&[batch(&[4], 3)], 1),
            poll_at(&[], 0, 3),
        ];
        for case in cases {
            assert!(messages.polled(0, key(), &case).is_err());
        }
        assert!(messages.polled(0, key(), &[1, 2]).is_err());
    }
}
