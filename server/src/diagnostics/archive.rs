//! The archive: a text file for each report.

use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use biplane_wire::request::{SnapshotCompression, SnapshotType};
use tracing::warn;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::Shown;
use super::facts::Host;

/// Bytes of the log file that go into an archive.
const LOG_BYTES_MAX: u64 = 4 << 20;
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
    shown: &Shown,
    compression: SnapshotCompression,
    reports: &[SnapshotType],
) -> Option<Vec<u8>> {
    let all = reports.contains(&SnapshotType::All);
    let reports = if all { &REPORTS[..] } else { reports };
    let options = SimpleFileOptions::default().compression_method(method(compression));
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for report in reports {
        let text = text_of(host, shown, *report);
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

fn text_of(host: &mut Host, shown: &Shown, report: SnapshotType) -> String {
    match report {
        SnapshotType::FilesystemOverview => files(&host.folder),
        SnapshotType::ProcessList => host.processes(),
        SnapshotType::ResourceUsage => format!("{:#?}\n", host.look()),
        SnapshotType::Test => "test\n".to_owned(),
        SnapshotType::ServerLogs => shown.log.as_deref().map_or_else(
            || {
                "This node writes its log to standard error only; whatever started it keeps it.\n"
                    .to_owned()
            },
            last_lines,
        ),
        SnapshotType::ServerConfig => shown.config.clone(),
        SnapshotType::All => String::new(),
    }
}

/// The end of the log file, from the first whole line on.
fn last_lines(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(LOG_BYTES_MAX);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        let cut = match start {
            0 => 0,
            _ => bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1),
        };
        Ok(bytes.split_off(cut))
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("{}: {error}\n", path.display()),
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
            let shown = Shown {
                config: "key = 1\n".to_owned(),
                log: None,
            };
            let bytes = pack(&mut host, &shown, compression, &[SnapshotType::All]);
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
