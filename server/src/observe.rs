//! Log output: one subscriber, to standard error and to files, filtered by `RUST_LOG` or the
//! configured level.

mod files;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use files::LogFiles;

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level does not parse.
    #[error("{place} \"{level}\": {error}")]
    Level {
        /// The variable or the key it comes from.
        place: &'static str,
        /// The level.
        level: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// The folder of the files cannot be written; one sentence that names it.
    #[error("{0}")]
    Files(String),
}

/// Installs the subscriber. A level that does not parse is an error of the configuration.
///
/// # Errors
/// [`LoggingError`].
pub fn install(
    level: &str,
    rust_log: Option<&str>,
    files: Option<LogFiles>,
) -> Result<(), LoggingError> {
    let (place, level) = match rust_log {
        Some(directives) => ("RUST_LOG", directives),
        None => ("configuration key logging.level", level),
    };
    let filter = EnvFilter::try_new(level).map_err(|error| LoggingError::Level {
        place,
        level: level.to_owned(),
        error,
    })?;
    let files = files.map(LogFiles::open).transpose();
    let files = files.map_err(LoggingError::Files)?;
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
