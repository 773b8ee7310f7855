//! Ctrl-C and SIGTERM: the first ends the work cleanly, a second one ends the program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::exit::Failure;

/// A flag that the first signal sets.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    let signals = [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ];
    #[cfg(not(unix))]
    let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    for signal in signals {
        // In this order: the shutdown looks at the flag as the signal before left it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::at("cannot catch signals", error))?;
    }
    Ok(stop)
}
