//! Where a tape goes.

use std::io::{self, Write};

/// Where the tapes of a recording go: one, or a sequence of segments.
///
/// [`crate::TapeFiles`] is the one for files; [`Single`] is any one sink.
pub trait Destination: Send {
    /// What a tape is written to. Each write is one whole record, followed by a flush.
    type Sink: Write;

    /// Begins the next tape.
    ///
    /// # Errors
    /// When it cannot be made.
    fn begin(&mut self) -> io::Result<Self::Sink>;

    /// The tape that was begun last ends at this byte: what lies behind is a torn record.
    ///
    /// # Errors
    /// When what lies behind cannot be taken away.
    fn end(&mut self, bytes: u64) -> io::Result<()>;

    /// Removes the oldest tape of this recording that is still there and ended.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_oldest(&mut self) -> io::Result<()>;

    /// Bytes that can still be written there; `None` if that is not known.
    fn free_bytes(&self) -> Option<u64>;
}

/// One tape into any sink.
#[derive(Debug)]
pub struct Single<W>(Option<W>);

impl<W: Write + Send> Single<W> {
    /// Writes the tape into this sink.
    pub fn new(sink: W) -> Single<W> {
        Single(Some(sink))
    }
}

impl<W: Write + Send> Destination for Single<W> {
    type Sink = W;

    fn begin(&mut self) -> io::Result<W> {
        let taken = "a single sink takes one tape: segments need another destination";
        self.0.take().ok_or_else(|| io::Error::other(taken))
    }

    fn end(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}
