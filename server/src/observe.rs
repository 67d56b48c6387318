//! Log output: one subscriber, to standard error and to files, filtered by `RUST_LOG` or the
//! configured level.

mod files;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use files::LogFiles;

/// Installs the subscriber. A level that does not parse is an error of the configuration.
///
/// # Errors
/// One sentence.
pub fn install(level: &str, rust_log: Option<&str>, files: Option<LogFiles>) -> Result<(), String> {
    let filter = match rust_log {
        Some(directives) => EnvFilter::try_new(directives)
            .map_err(|error| format!("RUST_LOG \"{directives}\": {error}"))?,
        None => EnvFilter::try_new(level)
            .map_err(|error| format!("configuration key logging.level \"{level}\": {error}"))?,
    };
    let files = match files {
        Some(files) => Some(files.open()?),
        None => None,
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let screen = layer().with_writer(std::io::stderr).with_ansi(ansi);
    let files = files.map(|files| layer().with_writer(files).with_ansi(false));
    // A second subscriber exists only in tests, which do not care.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(screen)
        .with(files)
        .try_init();
    Ok(())
}
