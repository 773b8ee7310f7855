//! The log files of one session, one after another, as a recorder gets them.

use std::io::{Read, Seek};

use etl_parse::{Clock, Damage, Losses, Reader};

use super::error::ImportError;
use super::header::system_of;
use super::people::People;
use super::requests::{Counts, Requests, Traced};
use super::run::is_of_interest;
use crate::request::Request;

/// What is known from one log file to the next: the clock, processes and open requests.
#[derive(Debug, Default)]
pub struct Stream {
    people: People,
    session: Option<Session>,
}

/// What the first file told.
#[derive(Debug)]
struct Session {
    clock: Clock,
    system: Option<String>,
    requests: Requests,
}

/// A request that is done. Its device is not set, nor its time.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskRequest {
    /// Number of the physical disk.
    pub disk: u32,
    /// When it was issued, since the session began; negative if it was before.
    pub time_ns: i64,
    /// The rest.
    pub request: Request,
}

/// What a log file told besides its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEnd {
    /// Time of its latest event, since the session began.
    pub end_ns: i64,
    /// Events of all kinds.
    pub events: u64,
    /// What the session had lost by then.
    pub losses: Losses,
    /// What was no event.
    pub damage: Damage,
}

/// What the disk events of all files so far were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Disk events that contradict themselves: left out.
    pub malformed: u64,
    /// Requests that do not say, or not believably, how long they took: without latency.
    pub without_latency: u64,
}

impl Stream {
    /// Begins with a session's first log file.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Opens the session's next log file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no event trace log.
    pub fn open<R: Read + Seek>(&mut self, source: R) -> Result<Log<'_, R>, ImportError> {
        let reader = Reader::open(source)?;
        let clock = *reader.clock();
        // Ticks go on from file to file: all count from the start of the first.
        let session = self.session.get_or_insert_with(|| Session {
            clock,
            system: system_of(reader.header()),
            requests: Requests::new(clock, None),
        });
        Ok(Log {
            people: &mut self.people,
            session,
            end_ticks: reader.header().start_ticks,
            events: 0,
            reader,
        })
    }

    /// Time of day when the session began, in nanoseconds since 1970-01-01 UTC; `None` before the
    /// first file.
    pub fn start_wall_ns(&self) -> Option<i64> {
        let wall_ns = self.session.as_ref()?.clock.start_wall_ns();
        i64::try_from(wall_ns).ok()
    }

    /// Smallest step of the session's clock; `None` before the first file.
    pub fn resolution_ns(&self) -> Option<u32> {
        Some(self.session.as_ref()?.clock.resolution_ns())
    }

    /// The traced system, such as `Windows 10.0 build 19045`; `None` before the first file.
    pub fn system(&self) -> Option<&str> {
        self.session.as_ref()?.system.as_deref()
    }

    /// Counts of all files so far.
    pub fn counts(&self) -> StreamCounts {
        let counts = self.session.as_ref().map(|session| session.requests.counts);
        let Counts {
            malformed,
            without_response,
            ..
        } = counts.unwrap_or_default();
        StreamCounts {
            malformed,
            without_latency: without_response,
        }
    }
}

/// A log file that is being read.
#[derive(Debug)]
pub struct Log<'s, R> {
    people: &'s mut People,
    session: &'s mut Session,
    reader: Reader<R>,
    end_ticks: i64,
    events: u64,
}

impl<R: Read + Seek> Log<'_, R> {
    /// The next request, in the order of completion; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn next_request(&mut self) -> Result<Option<DiskRequest>, ImportError> {
        while let Some(event) = self.reader.next_event()? {
            self.events += 1;
            self.end_ticks = self.end_ticks.max(event.ticks.unwrap_or(i64::MIN));
            if !is_of_interest(&event) {
                continue;
            }
            self.people.learn(&event);
            if let Some((disk, traced)) = self.session.requests.take(&event, self.people) {
                let Traced {
                    time_ns, request, ..
                } = traced;
                return Ok(Some(DiskRequest {
                    disk,
                    time_ns,
                    request,
                }));
            }
        }
        Ok(None)
    }

    /// What the file told besides.
    pub fn end(self) -> LogEnd {
        let end_ns = self.session.clock.since_start_ns(self.end_ticks);
        LogEnd {
            end_ns: end_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            events: self.events,
            losses: *self.reader.losses(),
            damage: self.reader.damage().clone(),
        }
    }
}
