//! The tracepoints through an instance of ftrace: buffers of our own, read in binary.
//!
//! An instance is a folder in tracefs with its own buffers, filters and clock. It disturbs no other
//! tracer. Unlike a perf event it does not go with a file descriptor, so a process of its own removes it
//! ([`Janitor`]), also when this one is killed.
//!
//! Buffers overwrite their oldest page when they are full. The kernel tells on the next page how many
//! events were lost before it, which is exactly where they were lost: nothing that was handed on is in
//! doubt, and the gap ends with that page's first event.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use iotape_formats::ftrace::{Cursor, Missed, PageLayout};
use iotape_formats::tape::LossReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};

use super::arm::{self, Plan};
use super::merge::{Lane, Merge};
use super::source::{Lost, Sample, Source, Told};
use super::sys::Janitor;
use super::tracefs::TraceFs;
use crate::CaptureError;

/// What our instances' names begin with; the number of the process follows.
const PREFIX: &str = "iotape-";
/// Part of a buffer that fills before we are woken, in percent.
const WATERMARK_PERCENT: &str = "25";

/// The buffers of all processors.
#[derive(Debug)]
pub(super) struct Buffers {
    // In this order: the files are closed before the instance is removed.
    buffers: Vec<Buffer>,
    _instance: Instance,
    layout: PageLayout,
    open_gaps: usize,
    merge: Merge,
}

/// The buffer of one processor.
#[derive(Debug)]
struct Buffer {
    cpu: u32,
    raw: OwnedFd,
    stats: OwnedFd,
    page: Vec<u8>,
    cursor: Option<Cursor>,
    /// Time of the last event that was handed on.
    last_ns: u64,
    /// Events that are accounted for as lost.
    known_lost: u64,
    /// Events were lost before the page at hand.
    gap: Option<Missed>,
}

/// A folder in tracefs, which goes when this is dropped.
#[derive(Debug)]
struct Instance {
    path: String,
    _janitor: Janitor,
}

impl Instance {
    fn make(tracefs: &TraceFs) -> io::Result<Instance> {
        let parent = tracefs.open_at("instances", OFlags::RDONLY | OFlags::DIRECTORY)?;
        // A process may hold several sessions.
        let made = (0..1000).find_map(|number| {
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            match mkdirat(&parent, name.as_str(), Mode::RWXU) {
                Ok(()) => Some(Ok(name)),
                Err(rustix::io::Errno::EXIST) => None,
                Err(error) => Some(Err(error)),
            }
        });
        let name = made.ok_or(io::ErrorKind::AlreadyExists)??;
        match Janitor::of_folder(parent.as_fd(), &name) {
            Ok(janitor) => Ok(Instance {
                path: format!("instances/{name}"),
                _janitor: janitor,
            }),
            Err(error) => {
                // Nobody else would.
                let _ = unlinkat(&parent, name.as_str(), AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }
}

/// Removes instances of recorders that are no more: a killed one's janitor may have been killed too. One
/// that is in use cannot be removed.
pub(super) fn remove_stale(tracefs: &TraceFs) -> usize {
    let Ok(parent) = tracefs.open_at("instances", OFlags::RDONLY | OFlags::DIRECTORY) else {
        return 0;
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&parent) else {
        return 0;
    };
    let stale = |name: &str| {
        let owner = name.strip_prefix(PREFIX)?.split('-').next()?;
        let alive = std::path::Path::new("/proc").join(owner).exists();
        (owner.parse::<u32>().is_ok() && !alive).then_some(())
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        if stale(&name).is_some() && unlinkat(&parent, &*name, AtFlags::REMOVEDIR).is_ok() {
            removed += 1;
        }
    }
    removed
}

impl Buffers {
    /// Makes an instance and arms the tracepoints of the plan in it.
    pub fn arm(plan: &Plan, tracefs: &TraceFs, now_ns: u64) -> Result<Buffers, CaptureError> {
        remove_stale(tracefs);
        let layout = tracefs
            .read("events/header_page")
            .map_err(failed("reading the layout of trace pages"))?;
        let layout = PageLayout::parse(&layout).map_err(|error| {
            failed("reading the layout of trace pages")(io::Error::other(error))
        })?;
        let instance = Instance::make(tracefs).map_err(failed("making an instance of ftrace"))?;
        let set = |file: &str, value: &str| {
            let path = format!("{}/{file}", instance.path);
            tracefs.write(&path, value).map_err(|source| {
                failed(&format!(
                    "setting {file} of an instance of ftrace to {value:?}"
                ))(source)
            })
        };
        set("trace_clock", "mono")?;
        set("buffer_size_kb", &(plan.ring_bytes() / 1024).to_string())?;
        set("options/overwrite", "1")?;
        // Since Linux 5.10; without it we are woken by the clock alone.
        let _ = set("buffer_percent", WATERMARK_PERCENT);
        let mut buffers = Buffers {
            buffers: Vec::new(),
            layout,
            open_gaps: 0,
            merge: Merge::default(),
            _instance: instance,
        };
        buffers
            .open(tracefs, now_ns)
            .map_err(failed("opening the buffers of ftrace"))?;
        buffers.enable(plan, tracefs)?;
        Ok(buffers)
    }

    /// Opens the buffers of all processors, also of those that are offline yet.
    fn open(&mut self, tracefs: &TraceFs, now_ns: u64) -> io::Result<()> {
        for cpu in arm::possible_cpus()? {
            let folder = format!("{}/per_cpu/cpu{cpu}", self._instance.path);
            let open = |file: &str, flags| tracefs.open_at(&format!("{folder}/{file}"), flags);
            self.buffers.push(Buffer {
                cpu,
                raw: match open("trace_pipe_raw", OFlags::RDONLY | OFlags::NONBLOCK) {
                    Ok(file) => file,
                    // A processor that cannot be has no folder.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
                stats: open("stats", OFlags::RDONLY)?,
                page: vec![0; self.layout.page_bytes()],
                cursor: None,
                last_ns: now_ns,
                known_lost: 0,
                gap: None,
            });
        }
        Ok(())
    }

    fn enable(&self, plan: &Plan, tracefs: &TraceFs) -> Result<(), CaptureError> {
        for (name, filter) in plan.tracepoints() {
            let path = format!("{}/events/block/{name}", self._instance.path);
            tracefs
                .write(&format!("{path}/filter"), filter)
                .map_err(failed("filtering events"))?;
            tracefs
                .write(&format!("{path}/enable"), "1")
                .map_err(failed("arming a tracepoint"))?;
        }
        Ok(())
    }
}

impl Source for Buffers {
    fn wait(&mut self, timeout: &Timespec) {
        let mut polled: Vec<PollFd<'_>> = self
            .buffers
            .iter()
            .map(|buffer| PollFd::new(&buffer.raw, PollFlags::IN))
            .collect();
        // An interrupted wait is just a short one.
        let _ = poll(&mut polled, Some(timeout));
    }

    fn is_pressing(&self) -> bool {
        // The thread whose process is to be found may end.
        true
    }

    fn drain(&mut self, until_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let Buffers {
            buffers,
            layout,
            open_gaps,
            merge,
            ..
        } = self;
        for buffer in buffers.iter_mut() {
            buffer.load(layout, open_gaps, told);
        }
        merge.run(buffers, until_ns, |buffer, limit_ns| {
            buffer.hand_on(limit_ns, layout, open_gaps, told);
        });
    }

    fn settle(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        for buffer in &mut self.buffers {
            buffer.close_gap(now_ns, &mut self.open_gaps, told);
            buffer.tell_rest(now_ns, told);
        }
    }

    fn add_processors(&mut self, _plan: &Plan, _now_ns: u64) -> Vec<u32> {
        // All that can be are open, and the kernel begins their buffers by itself.
        Vec::new()
    }
}

impl Lane for Buffer {
    fn next_ns(&self) -> Option<u64> {
        self.cursor.as_ref().and_then(Cursor::next_ns)
    }
}

impl Buffer {
    /// Reads the next page if this one is at its end.
    fn load(&mut self, layout: &PageLayout, open_gaps: &mut usize, told: &mut dyn FnMut(Told<'_>)) {
        while self.next_ns().is_none() {
            // Nothing there (or, on a processor that is offline, no buffer): later.
            match rustix::io::read(&self.raw, &mut self.page[..]) {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            self.cursor = layout.open(&self.page);
            let missed = self
                .cursor
                .map_or(Missed::Unknown, |cursor| cursor.missed());
            if missed == Missed::Nothing || self.gap.is_some() {
                continue;
            }
            self.gap = Some(missed);
            *open_gaps += 1;
            if *open_gaps == 1 {
                told(Told::GapBegins);
            }
        }
    }

    /// Hands on what is older than `limit_ns`.
    fn hand_on(
        &mut self,
        limit_ns: u64,
        layout: &PageLayout,
        open_gaps: &mut usize,
        told: &mut dyn FnMut(Told<'_>),
    ) {
        while let Some(time_ns) = self.next_ns().filter(|time_ns| *time_ns < limit_ns) {
            self.close_gap(time_ns, open_gaps, told);
            let record = self
                .cursor
                .as_mut()
                .and_then(|cursor| cursor.take(&self.page));
            self.last_ns = time_ns;
            if let Some(record) = record {
                told(Told::Sample(Sample {
                    time_ns,
                    cpu: self.cpu,
                    pid: None,
                    record,
                }));
            }
            self.load(layout, open_gaps, told);
        }
    }

    /// Records are complete again from here on.
    fn close_gap(&mut self, time_ns: u64, open_gaps: &mut usize, told: &mut dyn FnMut(Told<'_>)) {
        let Some(missed) = self.gap.take() else {
            return;
        };
        let events = match missed {
            Missed::Events(events) => events,
            // The page had no room to tell: the kernel's count does.
            _ => self
                .lost_so_far()
                .map_or(0, |lost| lost.saturating_sub(self.known_lost)),
        };
        self.tell(time_ns, events, told);
        *open_gaps -= 1;
        if *open_gaps == 0 {
            told(Told::GapEnds);
        }
    }

    /// What the kernel counted and no page told.
    fn tell_rest(&mut self, now_ns: u64, told: &mut dyn FnMut(Told<'_>)) {
        let lost = self.lost_so_far().unwrap_or(0);
        if lost > self.known_lost {
            self.tell(now_ns, lost - self.known_lost, told);
        }
    }

    fn tell(&mut self, to_ns: u64, events: u64, told: &mut dyn FnMut(Told<'_>)) {
        self.known_lost += events;
        told(Told::Lost(Lost {
            from_ns: self.last_ns,
            to_ns,
            events,
            requests: None,
            reason: LossReason::RingFull,
        }));
    }

    /// Events that this buffer lost, for whatever reason.
    fn lost_so_far(&self) -> Option<u64> {
        let mut text = [0; 1024];
        let count = rustix::io::pread(&self.stats, &mut text, 0).ok()?;
        lost_of_stats(std::str::from_utf8(text.get(..count)?).ok()?)
    }
}

/// Lost events in the text of a buffer's `stats`: overwritten, dropped, and given up while nested.
fn lost_of_stats(text: &str) -> Option<u64> {
    let of = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
        text.lines().find_map(value)
    };
    Some(of("overrun:")? + of("commit overrun:")? + of("dropped events:").unwrap_or(0))
}

fn failed(action: &str) -> impl Fn(io::Error) -> CaptureError {
    move |source| super::rights::ftrace_error(action, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_of_all_kinds() {
        let text = "entries: 1\noverrun: 7\ncommit overrun: 2\nbytes: 48\n\
                    oldest event ts: 13815.902175\nnow ts: 13815.902175\ndropped events: 3\nread events: 9\n";
        assert_eq!(lost_of_stats(text), Some(12));
        assert_eq!(lost_of_stats("entries: 1\n"), None);
    }
}
