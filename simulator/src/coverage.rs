//! What happened in a run, by name, and what must have happened for it to mean anything.

use std::collections::BTreeMap;

use crate::options::{Options, Profile};

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// A count.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// All counts that are not zero, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts
            .iter()
            .map(|(&name, &count)| (name, count))
            .filter(|(_, count)| *count > 0)
    }

    /// Adds all counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in other.iter() {
            self.add(name, count);
        }
    }

    /// What the profile of a run promises and its counts do not show.
    #[must_use]
    pub fn missing(&self, options: &Options) -> Option<String> {
        let mut needed = vec!["ops committed", "requests completed"];
        if options.replicas > 1 {
            needed.push("frames delivered");
            let promised = promised(options.profile).iter().copied();
            // Of two replicas, the one that is left has no quorum: it takes part in a view change
            // and answers no probe, and who comes back is let in by electing. So what such a run
            // must have met is the crash itself.
            needed.extend(promised.map(|name| match (name, options.replicas) {
                ("replicas readmitted", 2) => "fault: crash",
                _ => name,
            }));
        }
        let missing = needed.into_iter().find(|name| self.get(name) == 0);
        missing.map(|name| format!("no {name}"))
    }
}

/// What must happen in a run of a profile with more than one replica.
fn promised(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Net => &["view changes begun", "views started", "connections broken"],
        Profile::Crash | Profile::Disk | Profile::Correlated => &["replicas readmitted"],
        Profile::Lite => &["replicas readmitted", "views started"],
        Profile::Decay => &["fault: decay"],
        Profile::Phantom => &["disk reads of lost writes"],
        Profile::Transfer => &["transfers begun"],
        Profile::Calm
        | Profile::Clock
        | Profile::Churn
        | Profile::Purge
        | Profile::Upkeep
        | Profile::All => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_commits_is_vacuous() {
        let options = Options::drawn(1, Profile::Calm);
        let mut counters = Counters::default();
        assert_eq!(
            counters.missing(&options).as_deref(),
            Some("no ops committed")
        );
        for name in ["ops committed", "requests completed", "frames delivered"] {
            counters.add(name, 1);
        }
        assert_eq!(counters.missing(&options), None);
    }

    #[test]
    fn two_replicas_need_a_crash_and_nobody_who_lets_the_other_in() {
        let mut options = Options::drawn(1, Profile::Lite);
        let mut counters = Counters::default();
        for name in ["ops committed", "requests completed", "frames delivered"] {
            counters.add(name, 1);
        }
        counters.add("views started", 1);
        let text = |counters: &Counters, options: &Options| counters.missing(options);
        let readmitted = Some("no replicas readmitted".to_owned());
        assert_eq!(text(&counters, &options), readmitted);
        options.replicas = 2;
        assert_eq!(
            text(&counters, &options),
            Some("no fault: crash".to_owned())
        );
        counters.add("fault: crash", 1);
        assert_eq!(text(&counters, &options), None);
    }
}
