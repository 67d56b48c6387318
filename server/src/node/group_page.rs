//! The partition groups by name, with who leads them: a page of the list at a time, since there may
//! be thousands.

use std::fmt::Write as _;

use biplane_metadata_plane::state::streams::Topic;
use biplane_vsr::{Status, StatusView, TransferStage};
use biplane_wire::GroupId;
use serde::Serialize;

use super::Node;
use super::report::{GroupReport, group_report};

/// Groups on one page at most.
pub(crate) const GROUPS_PAGE_MAX: usize = 200;

/// Which groups are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupQuery {
    /// Part of `stream/topic/partition` by name.
    pub(crate) name: String,
    /// Only those led by this replica.
    pub(crate) primary: Option<u8>,
    /// Only those that are not in order here.
    pub(crate) troubled: bool,
    /// Matching groups to skip.
    pub(crate) from: usize,
    /// Groups on the page.
    pub(crate) count: usize,
}

/// A page of groups as this node knows them, ordered by stream, topic and partition.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct GroupPage {
    /// Partitions there are.
    pub(crate) total: usize,
    /// Those that match.
    pub(crate) matched: usize,
    /// Matching groups before this page.
    pub(crate) from: usize,
    /// The page.
    pub(crate) groups: Vec<NamedGroup>,
}

/// A partition group with the names of its stream and topic.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NamedGroup {
    stream: String,
    topic: String,
    partition: u32,
    /// `None` while this node has not opened it.
    #[serde(flatten)]
    report: Option<GroupReport>,
}

/// Nothing has to be looked at.
fn is_in_order(status: &StatusView) -> bool {
    status.status == Status::Normal
        && status.transfer_stage == TransferStage::Idle
        && status.commit_min == status.commit_max
}

/// The names of a topic's partitions, for looking something up in them.
struct Names {
    /// `stream/topic/` in small letters, then the number that was asked for last.
    text: String,
    prefix: usize,
    /// What stands before the number contains what is looked for.
    all: bool,
}

impl Names {
    fn new(stream: &str, topic: &str, wanted: &str) -> Self {
        let text = format!("{stream}/{topic}/").to_lowercase();
        Self {
            prefix: text.len(),
            all: text.contains(wanted),
            text,
        }
    }

    fn contain(&mut self, wanted: &str, partition: u32) -> bool {
        self.all || {
            self.text.truncate(self.prefix);
            let _ = write!(self.text, "{partition}");
            self.text.contains(wanted)
        }
    }
}

impl GroupQuery {
    /// Whether a group is wanted for what it is; `None` is one that is not open here.
    fn takes(&self, status: Option<&StatusView>) -> bool {
        let led = self.primary.is_none_or(|wanted| {
            status
                .is_some_and(|status| status.status == Status::Normal && status.primary.0 == wanted)
        });
        let troubled = !self.troubled || !status.is_some_and(is_in_order);
        led && troubled
    }

    /// Without any of these a group need not be looked at to know that it is wanted.
    fn looks_at_groups(&self) -> bool {
        self.primary.is_some() || self.troubled
    }
}

impl Node {
    /// One page. Of the groups that are not on it as little is looked at as can be: all of them
    /// are passed in one turn of the loop.
    pub(crate) fn group_page(&self, query: &GroupQuery) -> GroupPage {
        let wanted = query.name.to_lowercase();
        let mut page = GroupPage {
            total: 0,
            matched: 0,
            from: query.from,
            groups: Vec::new(),
        };
        for stream in self.metadata.state().streams().by_id().values() {
            for topic in stream.topics().values() {
                self.add_topic(
                    (stream.id, &stream.name),
                    topic,
                    (query, &wanted),
                    &mut page,
                );
            }
        }
        page
    }

    fn add_topic(
        &self,
        (stream_id, stream): (u32, &str),
        topic: &Topic,
        (query, wanted): (&GroupQuery, &str),
        page: &mut GroupPage,
    ) {
        let count = query.count.min(GROUPS_PAGE_MAX);
        let mut names = Names::new(stream, &topic.name, wanted);
        for partition in &topic.partitions {
            page.total += 1;
            if !names.contain(wanted, partition.id) {
                continue;
            }
            let on_page = page.matched >= query.from && page.groups.len() < count;
            if !on_page && !query.looks_at_groups() {
                page.matched += 1;
                continue;
            }
            let group = GroupId::partition(stream_id, topic.id, partition.id);
            let found = group.and_then(|group| Some((group, self.partitions.replica(group)?)));
            let status = found.map(|(_, replica)| replica.status());
            if !query.takes(status.as_ref()) {
                continue;
            }
            page.matched += 1;
            if on_page {
                let report = found.map(|(group, replica)| {
                    let catch_up = self.partition_catch_up(group);
                    let name = format!("{stream}/{}/{}", topic.name, partition.id);
                    group_report(name, replica, catch_up)
                });
                page.groups.push(NamedGroup {
                    stream: stream.to_owned(),
                    topic: topic.name.clone(),
                    partition: partition.id,
                    report,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use biplane_wire::{Op, ReplicaId, View};

    use super::*;

    fn status(status: Status, primary: u8, lag: u64) -> StatusView {
        StatusView {
            status,
            view: View(1),
            log_view: View(1),
            view_durable: View(1),
            log_view_durable: View(1),
            op_head: Op(9),
            commit_min: Op(9 - lag),
            commit_max: Op(9),
            primary: ReplicaId(primary),
            is_primary: false,
            ceded: false,
            recovery_barrier: Op(0),
            transfer_stage: TransferStage::Idle,
            prepares_in_flight: 0,
            requests_queued: 0,
            halted: None,
        }
    }

    #[test]
    fn names_are_matched_in_part_and_without_regard_to_capitals() {
        for (wanted, seven, eight) in [
            ("", true, true),
            ("ders/eu", true, true),
            ("eu/7", true, false),
            ("orders/eu/8", false, true),
            ("/78", false, false),
            ("payments", false, false),
        ] {
            let mut names = Names::new("Orders", "EU", wanted);
            assert_eq!(names.contain(wanted, 7), seven, "{wanted}");
            assert_eq!(names.contain(wanted, 8), eight, "{wanted}");
        }
    }

    #[test]
    fn groups_are_told_apart_by_primary_and_by_state() {
        let fine = status(Status::Normal, 2, 0);
        let behind = status(Status::Normal, 2, 4);
        let choosing = status(Status::ViewChange, 2, 0);
        let led = GroupQuery {
            primary: Some(2),
            ..GroupQuery::default()
        };
        assert!(led.takes(Some(&fine)) && led.takes(Some(&behind)));
        assert!(!led.takes(Some(&choosing)), "nobody leads it");
        assert!(!led.takes(Some(&status(Status::Normal, 1, 0))) && !led.takes(None));
        let troubled = GroupQuery {
            troubled: true,
            ..GroupQuery::default()
        };
        let fetching = StatusView {
            transfer_stage: TransferStage::Fetching,
            ..fine
        };
        assert!(!troubled.takes(Some(&fine)));
        for status in [Some(&behind), Some(&choosing), Some(&fetching), None] {
            assert!(troubled.takes(status), "{status:?}");
        }
    }

    #[test]
    fn a_group_that_is_not_open_has_names_only() {
        let group = NamedGroup {
            stream: "s".to_owned(),
            topic: "t".to_owned(),
            partition: 3,
            report: None,
        };
        let text = serde_json::to_string(&group).unwrap();
        assert_eq!(text, r#"{"stream":"s","topic":"t","partition":3}"#);
    }
}
