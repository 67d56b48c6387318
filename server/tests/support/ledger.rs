//! What producers were promised, and whether the content of a partition keeps the promises.
//!
//! A send that got no answer may be in the partition or not, and its repetition may be there too.
//! An acknowledged one must be where the acknowledgement put it, once and for good.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iggy::prelude::SendMessagesResponse;

use crate::support::messages::Plan;

/// Message numbers of a partition start here, so that numbers differ between partitions.
const PARTITION_SHIFT: u32 = 40;

/// Everything promised so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) plan: Plan,
    partitions: Vec<Mutex<Page>>,
}

#[derive(Debug)]
struct Page {
    next: u64,
    acknowledged: Vec<Acknowledged>,
    /// Acknowledged as a repetition, without an offset: there, but anywhere.
    unplaced: BTreeSet<u64>,
    failures: u32,
    failure_last: String,
}

#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    base_offset: u64,
    first: u64,
    count: u64,
}

impl Ledger {
    pub(crate) fn new(plan: Plan, partitions: u32) -> Self {
        let page = |partition: u32| {
            Mutex::new(Page {
                next: (u64::from(partition) << PARTITION_SHIFT) + 1,
                acknowledged: Vec::new(),
                unplaced: BTreeSet::new(),
                failures: 0,
                failure_last: "none".to_owned(),
            })
        };
        Self {
            plan,
            partitions: (0..partitions).map(page).collect(),
        }
    }

    fn page(&self, partition: u32) -> MutexGuard<'_, Page> {
        self.partitions[partition as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("few partitions")
    }

    /// Numbers for a batch that is about to be sent; returns the first.
    pub(crate) fn begin(&self, partition: u32, count: u64) -> u64 {
        let mut page = self.page(partition);
        let first = page.next;
        page.next += count;
        first
    }

    pub(crate) fn failed(&self, partition: u32, reason: String) {
        let mut page = self.page(partition);
        page.failures += 1;
        page.failure_last = reason;
    }

    /// Takes the answer to a batch.
    ///
    /// # Errors
    /// An answer that is for another partition, or that promises an offset twice.
    pub(crate) fn acknowledge(
        &self,
        partition: u32,
        first: u64,
        count: u64,
        response: &SendMessagesResponse,
    ) -> Result<(), String> {
        let mut page = self.page(partition);
        let base_offset = match response.confirmations.as_slice() {
            [] => {
                page.unplaced.extend(first..first + count);
                return Ok(());
            }
            [one] if one.partition_id == partition => one.base_offset,
            other => {
                return Err(format!(
                    "confirmations for partition {partition}: {other:?}"
                ));
            }
        };
        if let Some(last) = page.acknowledged.last()
            && base_offset < last.base_offset + last.count
        {
            return Err(format!(
                "partition {partition}: offset {base_offset} acknowledged after {last:?}"
            ));
        }
        page.acknowledged.push(Acknowledged {
            base_offset,
            first,
            count,
        });
        Ok(())
    }

    /// Acknowledged batches per partition.
    pub(crate) fn acknowledged(&self) -> Vec<usize> {
        let count = |partition| {
            let page = self.page(partition);
            page.acknowledged.len() + page.unplaced.len()
        };
        (0..self.partition_count()).map(count).collect()
    }

    /// How many messages a partition must have at least to hold all that is promised.
    pub(crate) fn end(&self, partition: u32) -> u64 {
        self.page(partition)
            .acknowledged
            .last()
            .map_or(0, |last| last.base_offset + last.count)
    }

    /// Failures and the last reason, per partition.
    pub(crate) fn failures(&self) -> String {
        let one = |partition| {
            let page = self.page(partition);
            format!(
                "partition {partition}: {}, last: {}",
                page.failures, page.failure_last
            )
        };
        (0..self.partition_count())
            .map(one)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Checks the numbers a partition holds, in order of offset, against the promises that end
    /// within them.
    ///
    /// # Errors
    /// The first promise that is not kept, or a message that nobody sent.
    pub(crate) fn check(&self, partition: u32, content: &[u64]) -> Result<(), String> {
        let page = self.page(partition);
        let sent = (u64::from(partition) << PARTITION_SHIFT) + 1..page.next;
        if let Some(offset) = content.iter().position(|number| !sent.contains(number)) {
            let number = content[offset];
            return Err(format!(
                "offset {offset} holds {number}, which was not sent ({sent:?})"
            ));
        }
        for promise in &page.acknowledged {
            let Acknowledged {
                base_offset,
                first,
                count,
            } = *promise;
            let end = base_offset + count;
            let Some(found) = content.get(base_offset as usize..end as usize) else {
                continue;
            };
            if !found.iter().copied().eq(first..first + count) {
                return Err(format!(
                    "{promise:?} is not kept, the offsets hold {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// As [`Ledger::check`] for the whole content of a partition: every promise is within it.
    ///
    /// # Errors
    /// As there, and promises beyond the content.
    pub(crate) fn check_whole(&self, partition: u32, content: &[u64]) -> Result<(), String> {
        let end = self.end(partition);
        if (content.len() as u64) < end {
            return Err(format!("{} messages, {end} were promised", content.len()));
        }
        self.check(partition, content)?;
        let held: BTreeSet<u64> = content.iter().copied().collect();
        match self.page(partition).unplaced.difference(&held).next() {
            Some(lost) => Err(format!(
                "message {lost} was acknowledged as a repetition and is lost"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use iggy::prelude::SendMessagesConfirmationResponse;

    use super::*;

    fn response(base_offset: u64) -> SendMessagesResponse {
        let confirmation = SendMessagesConfirmationResponse {
            stream_id: 0,
            topic_id: 0,
            partition_id: 0,
            base_offset,
        };
        SendMessagesResponse {
            confirmations: vec![confirmation],
        }
    }

    #[test]
    fn a_ledger_notices_what_is_lost_moved_foreign_or_promised_twice() {
        let ledger = Ledger::new(
            Plan {
                seed: 1,
                payload_max: 1,
            },
            1,
        );
        assert_eq!(
            (ledger.begin(0, 2), ledger.begin(0, 1), ledger.begin(0, 1)),
            (1, 3, 4)
        );
        ledger
            .acknowledge(0, 1, 2, &response(0))
            .expect("a new offset");
        ledger
            .acknowledge(0, 3, 1, &response(3))
            .expect("a later offset");
        assert_eq!(ledger.end(0), 4);
        // Message 4 got no answer: it may be there, be there twice, or not at all.
        for kept in [&[1, 2, 4, 3][..], &[1, 2, 4, 3, 4], &[1, 2, 2, 3]] {
            ledger.check_whole(0, kept).expect("all promises are kept");
        }
        for broken in [
            &[1, 2, 4][..],
            &[1, 4, 2, 3],
            &[2, 1, 4, 3],
            &[1, 2, 5, 3],
            &[1, 2, 3, 4],
        ] {
            ledger
                .check_whole(0, broken)
                .expect_err("a promise is broken");
        }
        ledger
            .acknowledge(0, 4, 1, &response(3))
            .expect_err("offset 3 is taken");
        ledger
            .acknowledge(
                0,
                4,
                1,
                &SendMessagesResponse {
                    confirmations: Vec::new(),
                },
            )
            .expect("no offset is legal");
        ledger
            .check_whole(0, &[1, 2, 2, 3])
            .expect_err("message 4 was acknowledged");
    }
}
