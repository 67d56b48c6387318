//! Counts of frames that were not believed, by the rule they broke (chapter 01 section 5).

use std::sync::atomic::{AtomicU64, Ordering};

use biplane_wire::Refusal;

/// The rules, as they are named in reports.
const RULES: [&str; 7] = [
    "bad_size",
    "wrong_command",
    "client_bound",
    "bad_enum",
    "unknown_operation",
    "seal",
    "field",
];

fn rule(refusal: &Refusal) -> usize {
    match refusal {
        Refusal::Generic(_) => 0,
        Refusal::WrongCommand { .. } => 1,
        Refusal::ClientBound { .. } => 2,
        Refusal::BadEnum { .. } => 3,
        Refusal::UnknownOperation { .. } => 4,
        Refusal::Seal { .. } => 5,
        Refusal::Field { .. } => 6,
    }
}

/// How often each rule was broken.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts([AtomicU64; RULES.len()]);

impl RefusalCounts {
    /// One more.
    pub(crate) fn note(&self, refusal: &Refusal) {
        self.0[rule(refusal)].fetch_add(1, Ordering::Relaxed);
    }

    /// By name of the rule.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        RULES.into_iter().zip(counts).collect()
    }

    /// Of every rule together.
    pub(crate) fn total(&self) -> u64 {
        self.counts().iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{CloseReason, Command, FieldError};

    use super::*;

    #[test]
    fn every_rule_is_counted_under_its_name() {
        let command = Command::Commit;
        let checksum = biplane_wire::Checksum(1);
        let refusals = [
            Refusal::Generic(CloseReason::BadCommand { byte: 99 }),
            Refusal::WrongCommand { command },
            Refusal::ClientBound { command },
            Refusal::BadEnum {
                command,
                offset: 1,
                value: 9,
            },
            Refusal::UnknownOperation {
                command,
                operation: 255,
            },
            Refusal::Seal {
                command,
                stored: checksum,
                computed: checksum,
            },
            Refusal::Field {
                command,
                rule: FieldError::ClientZero,
            },
        ];
        for (rule, refusal) in refusals.iter().enumerate() {
            let counts = RefusalCounts::default();
            counts.note(refusal);
            counts.note(refusal);
            for (index, (name, count)) in counts.counts().into_iter().enumerate() {
                assert_eq!(name, RULES[index]);
                assert_eq!(count, if index == rule { 2 } else { 0 }, "{refusal}");
            }
            assert_eq!(counts.total(), 2);
        }
    }
}
