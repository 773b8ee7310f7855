//! The terminal as a screen: entered, drawn on, and restored however the program ends.
//!
//! Restoring must work from a panic and from a second Ctrl-C while another thread draws. So all goes
//! straight to a duplicate of standard output, without locks or buffers.

use std::fs::File;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use terminal_size::{Height, Width, terminal_size_of};

/// Alternate screen, no cursor, no wrapping of long lines.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";
/// A terminal that does not tell its size.
const USUAL: Size = Size {
    columns: 80,
    rows: 24,
};

static TERMINAL: OnceLock<File> = OnceLock::new();
static ON: AtomicBool = AtomicBool::new(false);
/// Another program may have drawn meanwhile.
static STALE: AtomicBool = AtomicBool::new(false);

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// How a line may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// As the user asked with `NO_COLOR`, plain.
    Colored,
}

/// The screen; it is left when this is dropped.
pub struct Screen {
    terminal: &'static File,
    size: Size,
    style: Style,
}

impl Screen {
    /// Whether standard output is a terminal that can be drawn on.
    pub fn is_possible() -> bool {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        !dumb && terminal().is_some()
    }

    /// Enters the screen. From here on a panic restores the terminal before it says anything.
    pub fn enter() -> io::Result<Screen> {
        let terminal = match (TERMINAL.get(), terminal()) {
            (Some(known), _) => known,
            (None, Some(found)) => TERMINAL.get_or_init(|| found),
            (None, None) => return Err(io::Error::other("standard output is no terminal")),
        };
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        ON.store(true, Ordering::Relaxed);
        write(terminal, ENTER)?;
        let colored = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Screen {
            terminal,
            size: size_of(terminal),
            style: if colored {
                Style::Colored
            } else {
                Style::Plain
            },
        })
    }

    /// Draws lines over what is there. `lines` is given the size and may give more than fits.
    pub fn draw(&mut self, lines: impl FnOnce(Size, Style) -> Vec<String>) -> io::Result<()> {
        self.size = size_of(self.terminal);
        let mut text = String::from("\x1b[H");
        let lines = lines(self.size, self.style);
        for (row, line) in lines.iter().take(self.size.rows).enumerate() {
            text.push_str(if row == 0 { "" } else { "\r\n" });
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        if !ON.load(Ordering::Relaxed) {
            return Ok(());
        }
        write(self.terminal, text.as_bytes())
    }

    /// Whether what was drawn is not what should be seen: the terminal has another size now, or was given
    /// back for a while.
    pub fn is_stale(&self) -> bool {
        STALE.swap(false, Ordering::Relaxed) || size_of(self.terminal) != self.size
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back as it was, if a screen is on. Answers whether one was.
pub fn leave() -> bool {
    let was_on = ON.swap(false, Ordering::Relaxed);
    if let Some(terminal) = TERMINAL.get().filter(|_| was_on) {
        // A terminal that is gone needs nothing.
        let _ = write(terminal, LEAVE);
    }
    was_on
}

/// Takes it again, after a pause.
#[cfg(unix)]
pub fn enter_again() {
    if let Some(terminal) = TERMINAL.get() {
        ON.store(true, Ordering::Relaxed);
        let _ = write(terminal, ENTER);
        STALE.store(true, Ordering::Relaxed);
    }
}

fn size_of(terminal: &File) -> Size {
    match terminal_size_of(terminal) {
        Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => Size {
            columns: usize::from(columns),
            rows: usize::from(rows),
        },
        _ => USUAL,
    }
}

fn write(mut terminal: &File, bytes: &[u8]) -> io::Result<()> {
    terminal.write_all(bytes)
}

/// Standard output, if it is a terminal that understands the sequences above.
#[cfg(unix)]
fn terminal() -> Option<File> {
    use std::io::IsTerminal;
    use std::os::fd::AsFd;

    let stdout = io::stdout();
    let duplicate = || stdout.as_fd().try_clone_to_owned().ok();
    stdout.is_terminal().then(duplicate)?.map(File::from)
}

/// Consoles of Windows are not taken for terminals: some show the sequences as text.
#[cfg(not(unix))]
fn terminal() -> Option<File> {
    None
}
