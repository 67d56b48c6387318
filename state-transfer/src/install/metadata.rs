//! What a metadata replica does with a downloaded snapshot and client table (chapter 04 section
//! 3.10).
//!
//! The two reflect different ops: the snapshot is as old as the server's last checkpoint, the
//! table is as new as the offer. Between them, the commit walk applies effects on the state and
//! leaves the table alone, because the table has them already.

use biplane_wire::Op;

/// What the decision depends on. The artifacts match their digests and decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataInstallFacts {
    /// Highest op applied here, read again right before the install.
    pub commit_min: Op,
    /// The op of the offer.
    pub commit_op: Op,
    /// The op the snapshot reflects.
    pub snapshot_op: Op,
    /// XXH3 of the snapshot payload.
    pub snapshot_checksum: u64,
    /// The op the client table reflects; `None` when the offer had none and the one inside the
    /// snapshot serves.
    pub table_frontier: Option<Op>,
}

/// Why the artifacts can not be installed. The attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataRefusal {
    /// The snapshot is newer than the offer.
    #[error("the snapshot is newer than the op of the offer")]
    SnapshotAboveCommit,
    /// The table is newer than the offer.
    #[error("the client table is newer than the op of the offer")]
    TableAboveCommit,
    /// The table is older than the snapshot: the ops in between can not be replayed into it.
    #[error("the client table is older than the snapshot")]
    TableBelowSnapshot,
}

/// What is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataInstall {
    /// Nothing: what is here is at least as new.
    KeepLocal,
    /// The client table alone.
    TableOnly {
        /// The op it reflects.
        frontier: Op,
    },
    /// State and client table.
    Replace {
        /// The op the snapshot reflects.
        snapshot_op: Op,
        /// XXH3 of its payload.
        snapshot_checksum: u64,
        /// The op the table reflects.
        table_frontier: Op,
        /// Whether the table comes as an artifact of its own.
        table_artifact: bool,
        /// The op of the offer.
        commit_op: Op,
    },
}

/// One step of a metadata install. Each is durable, where it touches the disk, before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataStep {
    /// Drop the log from this op on. Entries below are covered by the snapshot. Allowed only
    /// because the replacing bytes are verified and in memory.
    TruncateLog {
        /// First op to drop.
        from: Op,
    },
    /// Write the snapshot payload with a file trailer, atomically.
    WriteSnapshot,
    /// Remember which snapshot the superblock is going to name.
    RecordPairing {
        /// The op it reflects.
        op: Op,
        /// XXH3 of its payload.
        checksum: u64,
    },
    /// Replace the state in memory.
    ReplaceState,
    /// Replace the client table in memory, and skip its part of the commit walk up to the
    /// frontier ([`table_covers`]).
    ReplaceTable {
        /// The op it reflects.
        frontier: Op,
        /// From the artifact, or from within the snapshot.
        from_artifact: bool,
    },
    /// Raise the points: watermark and applied point to `commit_min`, head to at least that,
    /// known commit to at least `commit_max`.
    RaisePoints {
        /// The op the snapshot reflects.
        commit_min: Op,
        /// The op of the offer.
        commit_max: Op,
    },
    /// Write the superblock. When that fails, the replica sends nothing that depends on its
    /// view until a later write succeeds.
    WriteSuperblock {
        /// The op it names as checkpoint.
        checkpoint_op: Op,
        /// XXH3 of the snapshot payload.
        checkpoint_checksum: u64,
    },
}

/// Decides what a download replaces.
///
/// # Errors
///
/// A frontier rule that does not hold.
pub fn decide_metadata(facts: &MetadataInstallFacts) -> Result<MetadataInstall, MetadataRefusal> {
    let MetadataInstallFacts {
        commit_min,
        commit_op,
        snapshot_op,
        ..
    } = *facts;
    if commit_op < snapshot_op {
        return Err(MetadataRefusal::SnapshotAboveCommit);
    }
    if facts
        .table_frontier
        .is_some_and(|frontier| frontier > commit_op)
    {
        return Err(MetadataRefusal::TableAboveCommit);
    }
    if snapshot_op <= commit_min && !biplane_vsr::mutated!(OlderOfferTaken) {
        // A table older than the applied point would resurrect consumed request numbers.
        return Ok(
            match facts
                .table_frontier
                .filter(|frontier| *frontier >= commit_min)
            {
                Some(frontier) => MetadataInstall::TableOnly { frontier },
                None => MetadataInstall::KeepLocal,
            },
        );
    }
    let table_frontier = facts.table_frontier.unwrap_or(snapshot_op);
    if table_frontier < snapshot_op {
        return Err(MetadataRefusal::TableBelowSnapshot);
    }
    Ok(MetadataInstall::Replace {
        snapshot_op,
        snapshot_checksum: facts.snapshot_checksum,
        table_frontier,
        table_artifact: facts.table_frontier.is_some(),
        commit_op,
    })
}

impl MetadataInstall {
    /// The steps, in order. After them the stage becomes Idle, the commits are walked, and the
    /// tail is repaired from the serving peer.
    #[must_use]
    pub fn steps(&self) -> Vec<MetadataStep> {
        match *self {
            Self::KeepLocal => Vec::new(),
            Self::TableOnly { frontier } => {
                vec![MetadataStep::ReplaceTable {
                    frontier,
                    from_artifact: true,
                }]
            }
            Self::Replace {
                snapshot_op,
                snapshot_checksum,
                table_frontier,
                table_artifact,
                commit_op,
            } => vec![
                MetadataStep::TruncateLog {
                    from: snapshot_op.next(),
                },
                MetadataStep::WriteSnapshot,
                MetadataStep::RecordPairing {
                    op: snapshot_op,
                    checksum: snapshot_checksum,
                },
                MetadataStep::ReplaceState,
                MetadataStep::ReplaceTable {
                    frontier: table_frontier,
                    from_artifact: table_artifact,
                },
                MetadataStep::RaisePoints {
                    commit_min: snapshot_op,
                    commit_max: commit_op,
                },
                MetadataStep::WriteSuperblock {
                    checkpoint_op: snapshot_op,
                    checkpoint_checksum: snapshot_checksum,
                },
            ],
        }
    }
}

/// Whether an installed table of this frontier contains the effects of `op` already, so that the
/// commit walk applies the op to the state only.
#[must_use]
pub fn table_covers(frontier: Op, op: Op) -> bool {
    op <= frontier
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        commit_min: u64,
        snapshot_op: u64,
        table: Option<u64>,
        commit_op: u64,
    ) -> Result<MetadataInstall, MetadataRefusal> {
        decide_metadata(&MetadataInstallFacts {
            commit_min: Op(commit_min),
            commit_op: Op(commit_op),
            snapshot_op: Op(snapshot_op),
            snapshot_checksum: 0xabc,
            table_frontier: table.map(Op),
        })
    }

    #[test]
    fn a_newer_snapshot_replaces_state_and_table() {
        let install = decide(5, 192, Some(195), 195).expect("it holds");
        let steps = install.steps();
        assert_eq!(
            steps,
            [
                MetadataStep::TruncateLog { from: Op(193) },
                MetadataStep::WriteSnapshot,
                MetadataStep::RecordPairing {
                    op: Op(192),
                    checksum: 0xabc
                },
                MetadataStep::ReplaceState,
                MetadataStep::ReplaceTable {
                    frontier: Op(195),
                    from_artifact: true
                },
                MetadataStep::RaisePoints {
                    commit_min: Op(192),
                    commit_max: Op(195)
                },
                MetadataStep::WriteSuperblock {
                    checkpoint_op: Op(192),
                    checkpoint_checksum: 0xabc
                },
            ]
        );
    }

    #[test]
    fn an_older_snapshot_brings_nothing_and_its_table_only_if_it_is_not_older() {
        assert_eq!(
            decide(192, 192, Some(191), 195),
            Ok(MetadataInstall::KeepLocal)
        );
        let table_only = Ok(MetadataInstall::TableOnly { frontier: Op(195) });
        assert_eq!(decide(193, 192, Some(195), 195), table_only);
        assert_eq!(
            decide(200, 192, Some(195), 195),
            Ok(MetadataInstall::KeepLocal)
        );
        assert_eq!(decide(200, 192, None, 195), Ok(MetadataInstall::KeepLocal));
    }

    #[test]
    fn a_missing_table_is_the_one_inside_the_snapshot() {
        let Ok(MetadataInstall::Replace {
            table_frontier,
            table_artifact,
            ..
        }) = decide(5, 192, None, 195)
        else {
            panic!("the snapshot is newer");
        };
        assert_eq!((table_frontier, table_artifact), (Op(192), false));
    }

    #[test]
    fn frontiers_that_contradict_each_other_fail_the_attempt() {
        assert_eq!(
            decide(5, 196, Some(196), 195),
            Err(MetadataRefusal::SnapshotAboveCommit)
        );
        assert_eq!(
            decide(5, 192, Some(196), 195),
            Err(MetadataRefusal::TableAboveCommit)
        );
        assert_eq!(
            decide(5, 192, Some(191), 195),
            Err(MetadataRefusal::TableBelowSnapshot)
        );
    }

    #[test]
    fn the_walk_skips_the_table_up_to_its_frontier() {
        let covered: Vec<u64> = (192..198)
            .filter(|op| table_covers(Op(195), Op(*op)))
            .collect();
        assert_eq!(covered, [192, 193, 194, 195]);
    }
}
