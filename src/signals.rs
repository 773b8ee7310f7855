//! Ctrl-C and SIGTERM: the first ends the work cleanly, a second one ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::exit::Failure;

#[cfg(unix)]
const ENDING: [i32; 3] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
];
#[cfg(not(unix))]
const ENDING: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// A flag that the first signal sets.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    Signals::catch(false).map(|signals| signals.stop)
}

/// Signals that are caught.
pub struct Signals {
    stop: Arc<AtomicBool>,
    screen: bool,
}

impl Signals {
    /// Catches them. With a `screen`, what a second one does is up to [`Signals::guard_screen`].
    pub fn catch(screen: bool) -> Result<Signals, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            // In this order: the shutdown looks at the flag as the signal before left it.
            let shutdown = match screen {
                false => {
                    signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
                        .map(|_| ())
                }
                true => Ok(()),
            };
            shutdown
                .and_then(|()| signal_hook::flag::register(signal, Arc::clone(&stop)))
                .map_err(no_signals)?;
        }
        Ok(Signals { stop, screen })
    }

    /// A flag that the first signal sets.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// With a screen: starts a thread that gives the terminal back before a second signal ends the
    /// program, and while it is suspended.
    #[cfg(unix)]
    pub fn guard_screen(&self) -> Result<(), Failure> {
        if !self.screen {
            return Ok(());
        }
        let known = self.stop.load(std::sync::atomic::Ordering::Relaxed);
        screen_guard::start(known).map_err(no_signals)
    }

    /// No screen is drawn here.
    #[cfg(not(unix))]
    pub fn guard_screen(&self) -> Result<(), Failure> {
        let _ = self.screen;
        Ok(())
    }
}

fn no_signals(error: io::Error) -> Failure {
    Failure::at("cannot catch signals", error)
}

#[cfg(unix)]
mod screen_guard {
    use std::io;
    use std::thread;

    use signal_hook::consts::{SIGQUIT, SIGTSTP};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    use crate::live;

    /// `stopping`: a first signal came already.
    pub fn start(mut stopping: bool) -> io::Result<()> {
        let signals = super::ENDING.into_iter().chain([SIGQUIT, SIGTSTP]);
        let mut signals = Signals::new(signals)?;
        let guard = move || {
            for signal in signals.forever() {
                match signal {
                    SIGTSTP | SIGQUIT => {
                        let was_on = live::leave_screen();
                        // Goes on here when the program is continued.
                        let _ = emulate_default_handler(signal);
                        if was_on {
                            live::enter_screen_again();
                        }
                    }
                    _ if stopping => {
                        live::leave_screen();
                        std::process::exit(1);
                    }
                    _ => stopping = true,
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(guard).map(|_| ())
    }
}
