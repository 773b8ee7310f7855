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

/// A flag that the first signal sets. A second one ends the program.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let signals = Signals::catch(false)?;
    signals.guard()?;
    Ok(signals.stop)
}

/// Signals that are caught.
pub struct Signals {
    stop: Arc<AtomicBool>,
    screen: bool,
}

impl Signals {
    /// Catches them. What a second one does is up to [`Signals::guard`].
    pub fn catch(screen: bool) -> Result<Signals, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            #[cfg(not(unix))]
            // In this order: the shutdown looks at the flag as the signal before left it.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
                .map_err(no_signals)?;
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(no_signals)?;
        }
        Ok(Signals { stop, screen })
    }

    /// A flag that the first signal sets.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Starts a thread that ends the program at a second signal, gives the terminal back before, and
    /// while the program is suspended.
    #[cfg(unix)]
    pub fn guard(&self) -> Result<(), Failure> {
        let known = self.stop.load(std::sync::atomic::Ordering::Relaxed);
        guard::start(self.screen, known).map_err(no_signals)
    }

    /// The second signal ends the program without a thread here, and no screen is drawn.
    #[cfg(not(unix))]
    pub fn guard(&self) -> Result<(), Failure> {
        let _ = self.screen;
        Ok(())
    }
}

fn no_signals(error: io::Error) -> Failure {
    Failure::at("cannot catch signals", error)
}

#[cfg(unix)]
mod guard {
    use std::io;
    use std::thread;
    use std::time::{Duration, Instant};

    use signal_hook::consts::{SIGQUIT, SIGTSTP};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    use crate::live;

    /// Signals so close to the first are the same wish: `timeout` sends one to the program and one to
    /// its group, and who holds Ctrl-C down sends many. A tape is ended within this time.
    const SAME_WISH: Duration = Duration::from_secs(1);

    /// `stopping`: a first signal came already.
    pub fn start(screen: bool, stopping: bool) -> io::Result<()> {
        let of_screen: &[i32] = if screen { &[SIGQUIT, SIGTSTP] } else { &[] };
        let mut signals = Signals::new(super::ENDING.iter().chain(of_screen))?;
        let mut first = stopping.then(Instant::now);
        let guard = move || {
            for signal in signals.forever() {
                match signal {
                    SIGTSTP | SIGQUIT => suspend(signal),
                    _ => match first {
                        None => first = Some(Instant::now()),
                        Some(first) if first.elapsed() < SAME_WISH => {}
                        Some(_) => give_up(),
                    },
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(guard).map(|_| ())
    }

    fn suspend(signal: i32) {
        let was_on = live::leave_screen();
        // Goes on here when the program is continued.
        let _ = emulate_default_handler(signal);
        if was_on {
            live::enter_screen_again();
        }
    }

    fn give_up() -> ! {
        live::leave_screen();
        eprintln!("iotape: ended by a second signal: what was being written is not whole");
        std::process::exit(1)
    }
}
