//! What goes on while it is recorded: `record --live` and `top`.
//!
//! Two threads share the work. The one that drains the kernel's rings adds each batch up
//! ([`Gatherer`]), which takes some tens of nanoseconds a request. Another one derives figures
//! from the sums and shows them. Between them go two sets of sums: one is filled while the other is
//! shown. As long as a terminal or a pipe is slow, sums are not exchanged and an interval becomes longer;
//! the drain never waits, and nothing is left out.

mod figures;
mod gather;
mod latencies;
mod lines;
mod page;
mod screen;
#[cfg(test)]
mod testing;
mod top_processes;

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iotape_capture::Report;
use iotape_formats::tape::Device;

use crate::exit::Failure;
use figures::{Figures, History};
use gather::Gathered;
pub use gather::Gatherer;
use lines::Lines;
use screen::Screen;
#[cfg(unix)]
pub use screen::{enter_again as enter_screen_again, leave as leave_screen};

/// How often the size of the terminal is looked at.
const LOOK_AT_SIZE: Duration = Duration::from_millis(200);

/// How the view is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A JSON object a line.
    Json,
    /// A line of text.
    Lines,
    /// The whole screen of a terminal.
    Screen,
}

impl Form {
    /// The one that suits standard output.
    pub fn choose(json: bool) -> Form {
        match (json, Screen::is_possible()) {
            (true, _) => Form::Json,
            (false, true) => Form::Screen,
            (false, false) => Form::Lines,
        }
    }
}

/// What is watched.
pub struct Watched {
    /// The command and where it writes to, for the head of the screen.
    pub title: String,
    pub devices: Vec<Device>,
    pub interval: Duration,
    /// Whether a tape is written.
    pub tape: bool,
}

/// The view: a thread that shows what its gatherer adds up.
pub struct View {
    gatherer: Gatherer,
    thread: JoinHandle<io::Result<()>>,
}

impl View {
    /// Begins to show. `gone` is set when nobody reads any more.
    ///
    /// # Errors
    /// When the terminal or a thread is refused.
    pub fn start(watched: Watched, form: Form, gone: Option<Arc<AtomicBool>>) -> io::Result<View> {
        let (full, shown) = channel();
        let (back, empty) = channel();
        let devices = watched.devices.len();
        // The second set; the gatherer has the first.
        let _ = back.send(Box::new(Gathered::new(devices)));
        let gatherer = Gatherer::new(watched.interval, devices, full, empty);
        let painter = Painter::new(form, &watched)?;
        let history = History::new(watched);
        let show = move || {
            let result = show(&shown, &back, history, painter);
            if let (Err(_), Some(gone)) = (&result, gone) {
                gone.store(true, Ordering::Relaxed);
            }
            result
        };
        let thread = thread::Builder::new().name("live view".to_owned());
        Ok(View {
            gatherer,
            thread: thread.spawn(show)?,
        })
    }

    /// What the recording tells.
    pub fn observer(&mut self) -> &mut Gatherer {
        &mut self.gatherer
    }

    /// Shows what is left and ends the view. `report` is of a recording that went well.
    ///
    /// # Errors
    /// When it could not be shown, unless nobody wanted to read it.
    pub fn finish(self, report: Option<&Report>) -> Result<(), Failure> {
        self.gatherer.finish(report);
        match self.thread.join() {
            Ok(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::at("cannot show the live view", error))
            }
            Ok(_) => Ok(()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn show(
    shown: &Receiver<Box<Gathered>>,
    back: &Sender<Box<Gathered>>,
    mut history: History,
    mut painter: Painter,
) -> io::Result<()> {
    let mut figures = None;
    loop {
        match shown.recv_timeout(LOOK_AT_SIZE) {
            Ok(mut gathered) => {
                let latest = history.take(&gathered);
                gathered.clear();
                // The gatherer is gone at the end.
                let _ = back.send(gathered);
                painter.show(figures.insert(latest))?;
            }
            Err(RecvTimeoutError::Timeout) => painter.adapt(figures.as_ref())?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Puts figures onto standard output.
enum Painter {
    Json,
    Lines(Lines),
    Screen { screen: Screen, title: String },
}

impl Painter {
    fn new(form: Form, watched: &Watched) -> io::Result<Painter> {
        Ok(match form {
            Form::Json => Painter::Json,
            Form::Lines => Painter::Lines(Lines::default()),
            Form::Screen => {
                let (mut screen, title) = (Screen::enter()?, watched.title.clone());
                screen.draw(|size, style| page::before(&title, watched.interval, size, style))?;
                Painter::Screen { screen, title }
            }
        })
    }

    fn show(&mut self, figures: &Figures) -> io::Result<()> {
        match self {
            Painter::Json => put(&(figures.to_json()? + "\n")),
            Painter::Lines(lines) => put(&lines.of(figures)),
            Painter::Screen { screen, title } => {
                screen.draw(|size, style| page::of(title, figures, size, style))
            }
        }
    }

    /// Shows the same again if that is not what the terminal shows.
    fn adapt(&mut self, figures: Option<&Figures>) -> io::Result<()> {
        match (&*self, figures) {
            (Painter::Screen { screen, .. }, Some(figures)) if screen.is_stale() => {
                self.show(figures)
            }
            _ => Ok(()),
        }
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
