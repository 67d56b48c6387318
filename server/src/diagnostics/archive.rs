//! The archive: a text file for each report.

use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::Path;

use biplane_wire::request::{SnapshotCompression, SnapshotType};
use tracing::warn;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::facts::Host;

/// Files listed of the data folder.
const FILES_MAX: usize = 20_000;

/// Every report but [`SnapshotType::All`].
const REPORTS: [SnapshotType; 6] = [
    SnapshotType::FilesystemOverview,
    SnapshotType::ProcessList,
    SnapshotType::ResourceUsage,
    SnapshotType::Test,
    SnapshotType::ServerLogs,
    SnapshotType::ServerConfig,
];

/// Makes the archive; `None` when packing fails.
pub(super) fn pack(
    host: &mut Host,
    config: &str,
    compression: SnapshotCompression,
    reports: &[SnapshotType],
) -> Option<Vec<u8>> {
    let all = reports.contains(&SnapshotType::All);
    let reports = if all { &REPORTS[..] } else { reports };
    let options = SimpleFileOptions::default().compression_method(method(compression));
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for report in reports {
        let text = text_of(host, config, *report);
        let written = archive
            .start_file(format!("{}.txt", name(*report)), options)
            .map_err(std::io::Error::from)
            .and_then(|()| archive.write_all(text.as_bytes()));
        if let Err(error) = written {
            warn!(%error, report = name(*report), "a diagnostics archive cannot be made");
            return None;
        }
    }
    match archive.finish() {
        Ok(cursor) => Some(cursor.into_inner()),
        Err(error) => {
            warn!(%error, "a diagnostics archive cannot be made");
            None
        }
    }
}

const fn method(compression: SnapshotCompression) -> CompressionMethod {
    match compression {
        SnapshotCompression::Stored => CompressionMethod::Stored,
        SnapshotCompression::Deflated => CompressionMethod::Deflated,
        SnapshotCompression::Bzip2 => CompressionMethod::Bzip2,
        SnapshotCompression::Zstd => CompressionMethod::Zstd,
        // The library reads LZMA entries and does not write them; XZ is the same compression in
        // another container.
        SnapshotCompression::Lzma | SnapshotCompression::Xz => CompressionMethod::Xz,
    }
}

const fn name(report: SnapshotType) -> &'static str {
    match report {
        SnapshotType::FilesystemOverview => "filesystem_overview",
        SnapshotType::ProcessList => "process_list",
        SnapshotType::ResourceUsage => "resource_usage",
        SnapshotType::Test => "test",
        SnapshotType::ServerLogs => "server_logs",
        SnapshotType::ServerConfig => "server_config",
        SnapshotType::All => "all",
    }
}

fn text_of(host: &mut Host, config: &str, report: SnapshotType) -> String {
    match report {
        SnapshotType::FilesystemOverview => files(&host.folder),
        SnapshotType::ProcessList => host.processes(),
        SnapshotType::ResourceUsage => format!("{:#?}\n", host.look()),
        SnapshotType::Test => "test\n".to_owned(),
        SnapshotType::ServerLogs => {
            "This node writes its log to standard error; whatever started it keeps it.\n".to_owned()
        }
        SnapshotType::ServerConfig => config.to_owned(),
        SnapshotType::All => String::new(),
    }
}

/// Sizes of the files below the data folder. Links are not followed, so the walk ends.
fn files(folder: &Path) -> String {
    let mut text = String::from("bytes file\n");
    let mut folders = vec![folder.to_owned()];
    let mut listed = 0;
    while let Some(current) = folders.pop() {
        let entries = match fs::read_dir(&current) {
            Ok(entries) => entries,
            Err(error) => {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "? {}: {error}", current.display());
                continue;
            }
        };
        for entry in entries.flatten() {
            if listed == FILES_MAX {
                text.push_str("... and more\n");
                return text;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => {
                    let path = entry.path();
                    let shown = path.strip_prefix(folder).unwrap_or(&path);
                    let _ = writeln!(text, "{} {}", metadata.len(), shown.display());
                    listed += 1;
                }
                // It was removed meanwhile.
                Err(_) => {}
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn every_compression_holds_every_report() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), b"12345").unwrap();
        let mut host = Host::new(folder.path().to_owned());
        for compression in [
            SnapshotCompression::Stored,
            SnapshotCompression::Deflated,
            SnapshotCompression::Bzip2,
            SnapshotCompression::Zstd,
            SnapshotCompression::Lzma,
            SnapshotCompression::Xz,
        ] {
            let bytes = pack(&mut host, "key = 1\n", compression, &[SnapshotType::All]);
            let bytes = bytes.unwrap_or_else(|| panic!("{compression:?}"));
            let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
            assert_eq!(archive.len(), REPORTS.len());
            for (report, wanted) in [
                ("filesystem_overview.txt", "5 inner/file"),
                ("server_config.txt", "key = 1"),
                ("resource_usage.txt", "memory_bytes"),
                ("process_list.txt", "pid cpu%"),
            ] {
                let mut text = String::new();
                let mut file = archive.by_name(report).unwrap();
                file.read_to_string(&mut text).unwrap();
                assert!(text.contains(wanted), "{compression:?} {report}: {text}");
            }
        }
    }
}
