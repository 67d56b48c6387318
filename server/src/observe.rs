//! Log output: one subscriber, to standard error, filtered by `RUST_LOG` or the configured level.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Installs the subscriber. A level that does not parse is an error of the configuration.
///
/// # Errors
/// One sentence.
pub fn install(level: &str) -> Result<(), String> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => EnvFilter::try_new(&directives)
            .map_err(|error| format!("RUST_LOG \"{directives}\": {error}"))?,
        _ => EnvFilter::try_new(level)
            .map_err(|error| format!("configuration key logging.level \"{level}\": {error}"))?,
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A second subscriber exists only in tests, which do not care.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .with_span_events(FmtSpan::NONE)
        .with_target(true)
        .try_init();
    Ok(())
}
