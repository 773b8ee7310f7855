//! fio's I/O logs, versions 2 and 3, as its own replay understands them.
//!
//! Checked against fio 3.33 and its source: in version 3 each line begins with microseconds, and
//! the wait before it is the difference to the line before, except behind a line at 0, so times
//! start at 1. In version 2 a `wait` holds until so many *milliseconds* after fio's start, which
//! differs from its manual; fio takes about 100 of them to come to the first line, so that the first
//! request waits for a second, and the others as much longer. A delay of version 3 puts off all that
//! follows, one of version 2 does not. fio knows no flags and no write-zeroes, and its 3.33 leaves out
//! the `trim` of a log with a "bad ddir: 2".

use std::io::{self, Write};

use super::Losses;
use crate::request::{Flags, Op, Request};

/// Version of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `file action offset length`, with waits between, in milliseconds.
    V2,
    /// `time file action offset length`, in microseconds.
    V3,
}

/// First time in a log of version 3: fio takes 0 for "none yet".
const FIRST_US: u64 = 1;

/// When the first request of a log of version 2 is played, counted from fio's start: late enough that
/// fio is ready.
const LEAD_MS: u64 = 1000;

/// Writes an I/O log.
#[derive(Debug)]
pub struct FioWriter<W: Write> {
    sink: W,
    version: Version,
    files: Vec<String>,
    first_ns: Option<u64>,
    waited_ms: u64,
    last_us: u64,
    losses: Losses,
}

impl<W: Write> FioWriter<W> {
    /// Begins a log in which device `n` of the tape is the file `files[n]`.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn new(mut sink: W, version: Version, files: Vec<String>) -> io::Result<Self> {
        let (number, time) = match version {
            Version::V2 => (2, ""),
            Version::V3 => (3, "1 "),
        };
        writeln!(sink, "fio version {number} iolog")?;
        for file in &files {
            writeln!(sink, "{time}{file} add")?;
        }
        for file in &files {
            writeln!(sink, "{time}{file} open")?;
        }
        let (first_ns, losses) = (None, Losses::default());
        Ok(FioWriter {
            sink,
            version,
            files,
            first_ns,
            waited_ms: 0,
            last_us: FIRST_US,
            losses,
        })
    }

    /// Writes a request: a flush as `sync`, a discard as `trim`, a write with a preflush as both.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard => "trim",
            Op::WriteZeroes | Op::ZoneAppend | Op::ZoneReset | Op::Other => {
                self.losses
                    .count("left out: fio's log has no such operation");
                return Ok(());
            }
        };
        if request.length_bytes > u64::from(u32::MAX) {
            self.losses
                .count("left out: longer than the 4 GiB that fio's log can say");
            return Ok(());
        }
        if request.op == Op::Write && request.flags.contains(Flags::PREFLUSH) {
            self.losses
                .count("preflush written as a sync before the write");
            self.line(request, "sync", 0, 0)?;
        }
        if request.op == Op::Write && request.flags.contains(Flags::FUA) {
            self.losses.count("FUA not said: fio's log has no flags");
        }
        self.line(request, action, request.offset_bytes, request.length_bytes)
    }

    fn line(
        &mut self,
        request: &Request,
        action: &str,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let Some(file) = self.files.get(usize::from(request.device.0)) else {
            self.losses
                .count("left out: no file is named for its device");
            return Ok(());
        };
        let since_ns = request
            .time_ns
            .saturating_sub(*self.first_ns.get_or_insert(request.time_ns));
        match self.version {
            Version::V2 => {
                let at_ms = LEAD_MS + since_ns / 1_000_000;
                if at_ms > self.waited_ms {
                    self.waited_ms = at_ms;
                    writeln!(self.sink, "{file} wait {at_ms} 0")?;
                }
                writeln!(self.sink, "{file} {action} {offset} {length}")
            }
            Version::V3 => {
                // fio takes a step back for no wait and then waits twice: never step back.
                self.last_us = self.last_us.max(since_ns / 1000 + FIRST_US);
                writeln!(
                    self.sink,
                    "{} {file} {action} {offset} {length}",
                    self.last_us
                )
            }
        }
    }

    /// Ends the log; returns what it could not say.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(mut self) -> io::Result<Losses> {
        for file in &self.files {
            match self.version {
                Version::V2 => writeln!(self.sink, "{file} close")?,
                Version::V3 => writeln!(self.sink, "{} {file} close", self.last_us)?,
            }
        }
        self.sink.flush()?;
        Ok(self.losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        time_ns: u64,
        op: Op,
        flags: Flags,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Request {
        Request {
            time_ns,
            op,
            flags,
            offset_bytes,
            length_bytes,
            ..Request::default()
        }
    }

    fn log(version: Version, requests: &[Request]) -> (String, Vec<(&'static str, u64)>) {
        let mut out = Vec::new();
        let mut writer = FioWriter::new(&mut out, version, vec!["/dev/x".to_owned()]).unwrap();
        for request in requests {
            writer.write(request).unwrap();
        }
        let losses = writer.finish().unwrap();
        (String::from_utf8(out).unwrap(), losses.iter().collect())
    }

    fn mixed() -> Vec<Request> {
        vec![
            request(5_000_000, Op::Read, Flags::SYNC, 0, 4096),
            request(5_400_000, Op::Flush, Flags::NONE, 0, 0),
            request(
                7_100_000,
                Op::Write,
                Flags::PREFLUSH | Flags::FUA,
                8192,
                512,
            ),
            request(7_200_000, Op::WriteZeroes, Flags::NONE, 0, 4096),
            request(7_000_000, Op::Discard, Flags::NONE, 65_536, 1 << 20),
        ]
    }

    #[test]
    fn version_3_counts_microseconds_from_1_and_never_back() {
        let (text, losses) = log(Version::V3, &mixed());
        assert_eq!(
            text,
            "fio version 3 iolog\n1 /dev/x add\n1 /dev/x open\n\
             1 /dev/x read 0 4096\n401 /dev/x sync 0 0\n2101 /dev/x sync 0 0\n\
             2101 /dev/x write 8192 512\n2101 /dev/x trim 65536 1048576\n2101 /dev/x close\n"
        );
        assert_eq!(
            losses.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [1, 1, 1]
        );
    }

    #[test]
    fn version_2_waits_until_milliseconds_after_the_start() {
        let (text, _) = log(Version::V2, &mixed());
        assert_eq!(
            text,
            "fio version 2 iolog\n/dev/x add\n/dev/x open\n\
             /dev/x wait 1000 0\n/dev/x read 0 4096\n/dev/x sync 0 0\n/dev/x wait 1002 0\n\
             /dev/x sync 0 0\n/dev/x write 8192 512\n/dev/x trim 65536 1048576\n/dev/x close\n"
        );
    }

    #[test]
    fn what_does_not_fit_fios_numbers_is_left_out_and_counted() {
        let (text, losses) = log(
            Version::V3,
            &[request(0, Op::Discard, Flags::NONE, 0, 1 << 32)],
        );
        assert!(!text.contains("trim"), "{text}");
        assert_eq!(losses.len(), 1);
    }
}
