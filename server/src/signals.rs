//! Termination requests: SIGINT, SIGTERM and SIGHUP (chapter 02 section 11) become one callback,
//! run on a thread of its own. A limit on file sizes is not one of them: the write that meets it
//! fails like one on a full disk, and is tried again.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Calls `stop` at each of them from now on. The second one ends the process at once: an
/// operator who asks twice does not want to wait for a drain.
///
/// # Errors
/// What the operating system said when it refused the handler.
pub fn on_stop(mut stop: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXFSZ])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                if signal == SIGXFSZ {
                    continue;
                }
                if asked {
                    std::process::exit(128 + signal);
                }
                asked = true;
                stop();
            }
        })?;
    Ok(())
}
