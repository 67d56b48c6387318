//! The node and its host: ping, health, statistics, cluster, clients, options, snapshots.

use biplane_wire::request::{
    ClientRequest, DescribeOptions, GetClient, GetSnapshot, OptionScope, SnapshotCompression,
    SnapshotType,
};
use biplane_wire::response::{ClientDetails, ClientRecord, ClusterMetadata, OptionSpec, Stats};
use biplane_wire::{Counted, ErrorCode};
use serde::Deserialize;

use super::{Served, decode, decode_present};
use crate::clock;
use crate::http::Web;
use crate::http::answer::Answer;
use crate::http::call::{Call, Caller};
use crate::http::metrics;
use crate::http::shapes::{ClientJson, ClusterJson, OptionSpecJson, StatsJson};
use crate::node::group_page::GroupQuery;

/// Groups on a page where the caller does not say how many.
const GROUPS_PAGE_DEFAULT: usize = 50;

#[derive(Deserialize)]
struct SnapshotBody {
    compression: Compression,
    snapshot_types: Vec<ReportKind>,
}

#[derive(Clone, Copy, Deserialize)]
enum Compression {
    Stored,
    Deflated,
    Bzip2,
    Zstd,
    Lzma,
    Xz,
}

#[derive(Clone, Copy, Deserialize)]
enum ReportKind {
    FilesystemOverview,
    ProcessList,
    ResourceUsage,
    Test,
    ServerLogs,
    ServerConfig,
    All,
}

impl From<Compression> for SnapshotCompression {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::Stored => Self::Stored,
            Compression::Deflated => Self::Deflated,
            Compression::Bzip2 => Self::Bzip2,
            Compression::Zstd => Self::Zstd,
            Compression::Lzma => Self::Lzma,
            Compression::Xz => Self::Xz,
        }
    }
}

impl From<ReportKind> for SnapshotType {
    fn from(kind: ReportKind) -> Self {
        match kind {
            ReportKind::FilesystemOverview => Self::FilesystemOverview,
            ReportKind::ProcessList => Self::ProcessList,
            ReportKind::ResourceUsage => Self::ResourceUsage,
            ReportKind::Test => Self::Test,
            ReportKind::ServerLogs => Self::ServerLogs,
            ReportKind::ServerConfig => Self::ServerConfig,
            ReportKind::All => Self::All,
        }
    }
}

impl Web {
    /// The process answers.
    pub(super) fn live(&self) -> Answer {
        Answer::json(&serde_json::json!({ "status": "live" })).without_view()
    }

    /// The node serves everything it holds; 503 until then.
    pub(super) fn ready(&self) -> Answer {
        if self.glance.is_ready() {
            return Answer::json(&serde_json::json!({ "status": "ready" })).without_view();
        }
        let reason = "The node does not serve everything it holds yet";
        Answer::transport(503, "not_ready", reason)
    }

    /// What the node looks like, for operators.
    pub(super) async fn status(&self, caller: &Caller) -> Served {
        let report = self.report(caller).await?;
        Ok(Answer::json(&*report))
    }

    /// A page of the partition groups with who leads them.
    pub(super) async fn status_groups(&self, call: &Call, caller: &Caller) -> Served {
        let head = &call.head;
        let query = GroupQuery {
            name: head.query_value("name").unwrap_or_default().into_owned(),
            primary: head.query_parsed("primary")?,
            troubled: head.query_parsed("troubled")?.unwrap_or(false),
            from: head.query_parsed("from")?.unwrap_or(0),
            count: head.query_parsed("count")?.unwrap_or(GROUPS_PAGE_DEFAULT),
        };
        Ok(Answer::json(&self.group_page(caller, query).await?))
    }

    pub(super) async fn metrics(&self) -> Served {
        let report = self.report_for_metrics().await?;
        let requests = self.requests.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Answer::of(
            200,
            crate::http::answer::TEXT,
            metrics::text(&report, requests),
        ))
    }

    pub(super) async fn stats(&self, call: &Call, caller: &Caller) -> Served {
        let payload = self.read(call, caller, &ClientRequest::GetStats).await?;
        let stats: Stats<'_> = decode(&payload)?;
        Ok(Answer::json(&StatsJson::from(stats)))
    }

    pub(super) async fn cluster_metadata(&self, call: &Call, caller: &Caller) -> Served {
        let request = ClientRequest::GetClusterMetadata;
        let payload = self.read(call, caller, &request).await?;
        let cluster: ClusterMetadata<'_> = decode(&payload)?;
        Ok(Answer::json(&ClusterJson::from(cluster)))
    }

    pub(super) async fn clients(&self, call: &Call, caller: &Caller) -> Served {
        let payload = self.read(call, caller, &ClientRequest::GetClients).await?;
        let mut clients: Vec<ClientRecord<'_>> = decode(&payload)?;
        clients.sort_by_key(|client| client.client_id);
        let clients: Vec<_> = clients.into_iter().map(ClientJson::from).collect();
        Ok(Answer::json(&clients))
    }

    pub(super) async fn client(&self, call: &Call, caller: &Caller) -> Served {
        let client_id = call.number(0)?;
        let request = ClientRequest::GetClient(GetClient { client_id });
        let payload = self.read(call, caller, &request).await?;
        let client: ClientDetails<'_> = decode_present(&payload)?;
        Ok(Answer::json(&ClientJson::from(client)))
    }

    pub(super) async fn options(&self, call: &Call, caller: &Caller) -> Served {
        let scope = match call.parameter(0) {
            "topic" => OptionScope::Topic,
            "stream" => OptionScope::Stream,
            "user" => OptionScope::User,
            _ => return Err(Answer::error(ErrorCode::InvalidCommand)),
        };
        let request = ClientRequest::DescribeOptions(DescribeOptions { scope });
        let payload = self.read(call, caller, &request).await?;
        let Counted(options): Counted<OptionSpec<'_>> = decode(&payload)?;
        let options: Vec<_> = options.into_iter().map(OptionSpecJson::from).collect();
        Ok(Answer::json(&options))
    }

    pub(super) async fn snapshot(&self, call: &Call, caller: &Caller) -> Served {
        let body: SnapshotBody = call.json()?;
        let kinds = body.snapshot_types.into_iter();
        let kinds: Vec<u8> = kinds.map(|kind| SnapshotType::from(kind) as u8).collect();
        let wanted = GetSnapshot::new(body.compression.into(), &kinds)
            .map_err(|_| Answer::error(ErrorCode::InvalidCommand))?;
        let request = ClientRequest::GetSnapshot(wanted);
        let archive = self.read(call, caller, &request).await?;
        let name = format!("iggy_snapshot_{}.zip", stamp(clock::wall_micros()));
        let disposition = format!("attachment; filename=\"{name}\"");
        Ok(Answer::of(200, "application/zip", archive).with("content-disposition", disposition))
    }
}

/// `YYYYMMDD_HHMMSS` of a time in microseconds since the epoch. In UTC: the zone of the host is
/// not known here.
fn stamp(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of year 0, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn times_as_file_names() {
        for (seconds, text) in [
            (0, "19700101_000000"),
            (951_827_696, "20000229_123456"),
            (1_700_000_000, "20231114_221320"),
            (1_709_251_199, "20240229_235959"),
            (4_102_444_800, "21000101_000000"),
        ] {
            assert_eq!(stamp(seconds * 1_000_000), text);
        }
    }
}
