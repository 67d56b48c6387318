//! O6 and O7: offsets, and what readers see of them.
//!
//! Within one incarnation of a partition each offset maps to one message for ever; committed
//! batches follow each other without a gap; a poll returns a contiguous run of committed
//! messages, as they were written.

use std::collections::BTreeMap;

use biplane_wire::{
    Batch, Codec as _, Message, Operation, PrepareHeader, Verify, response::PolledMessages, xxh3,
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

/// The messages of one partition.
#[derive(Debug, Default)]
pub struct Partition {
    /// By offset.
    values: Vec<Value>,
    /// Every id with its offset.
    ids: BTreeMap<u128, u64>,
}

impl Partition {
    /// The offset the next message gets.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.values.len() as u64
    }

    /// The message at an offset.
    #[must_use]
    pub fn get(&self, offset: u64) -> Option<Value> {
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
    /// memory of what was sent before is complete, so that no repetition may get through.
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
    ) -> Result<(), Violation> {
        let header: &PrepareHeader = prepare.header();
        if key.group.is_metadata() || header.operation() != Operation::SendMessages {
            return Ok(());
        }
        // Bare groups have no incarnation and carry opaque bytes.
        if key.incarnation == 0 {
            return Ok(());
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
        for (offset, value) in found {
            self.assigned += 1;
            if offset != partition.next_offset() {
                let next = partition.next_offset();
                let text = format!("op {op} puts {value:x?} at offset {offset}; {next} is next");
                return Err(Violation::new("O6 offsets", key.group, text));
            }
            partition.values.push(value);
            let before = partition.ids.insert(value.id, offset);
            if let (Some(before), true) = (before, fresh) {
                let text = format!(
                    "op {op} brings {:x} of offset {before} again at {offset}",
                    value.id
                );
                return Err(Violation::new("O6 offsets", key.group, text));
            }
        }
        Ok(())
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
        let mut previous: Option<u64> = None;
        let mut count = 0;
        for batch in answer.batches(Verify::Checksums) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return wrong(format!("a record does not verify: {error}")),
            };
            for (offset, value) in of_batch(&batch) {
                self.polled += 1;
                count += 1;
                if previous.is_some_and(|previous| offset != previous + 1) {
                    return wrong(format!("offset {offset} follows {previous:?}"));
                }
                previous = Some(offset);
                let canonical = self.partitions.get(&key).and_then(|it| it.get(offset));
                if canonical != Some(value) {
                    return wrong(format!(
                        "offset {offset} reads {value:x?}; committed is {canonical:x?}"
                    ));
                }
            }
        }
        if count != answer.messages_count {
            return wrong(format!(
                "{count} messages, {} announced",
                answer.messages_count
            ));
        }
        Ok(())
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
        let mut body = PolledMessages::head(0, 9, count).to_vec();
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
    fn polls_of_what_was_written_pass_and_others_are_found() {
        let mut messages = Messages::default();
        messages
            .committed(key(), &committed(1, &[1, 2], 0), true)
            .expect("first");
        messages
            .committed(key(), &committed(2, &[3], 2), true)
            .expect("next");
        let good = poll(&[batch(&[1, 2], 0), batch(&[3], 2)], 3);
        messages.polled(0, key(), &good).expect("as written");
        let cases = [
            poll(&[batch(&[1, 9], 0)], 2),
            poll(&[batch(&[1, 2], 0)], 3),
            poll(&[batch(&[3], 2), batch(&[1, 2], 0)], 3),
            poll(&[batch(&[4], 3)], 1),
        ];
        for case in cases {
            assert!(messages.polled(0, key(), &case).is_err());
        }
        assert!(messages.polled(0, key(), &[1, 2]).is_err());
    }
}
