//! The slices of a run as lines of an interval log.

use super::collector::Slice;
use super::{Latencies, OpRecord};
use crate::engine::Action;
use crate::hdr_log::HdrLog;

/// The log of one run.
#[derive(Debug)]
pub struct RunLog {
    log: HdrLog,
    run: String,
    /// Seconds between the start of the log and that of the run.
    offset_s: Option<f64>,
}

impl RunLog {
    /// Names the run in the log's tags, which know no blanks and commas.
    pub fn new(log: HdrLog, label: &str) -> Self {
        let dull = |c: char| {
            if c.is_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        };
        RunLog {
            log,
            run: label.chars().map(dull).collect(),
            offset_s: None,
        }
    }

    /// Adds a slice of a run that started at a time of the engine's clock.
    pub fn write(&mut self, slice: &Slice, start_ns: u64) {
        let length_s = seconds(slice.start.at_ns, slice.end.at_ns);
        let offset_s = *self
            .offset_s
            .get_or_insert_with(|| (self.log.elapsed_s() - length_s).max(0.0));
        let from_s = offset_s + seconds(start_ns, slice.start.at_ns);
        for (action, record) in Action::ALL.into_iter().zip(&slice.ops) {
            let op = action.op().name();
            for (figure, latencies) in figures(record) {
                let (Some(summary), Some(histogram)) = (latencies.figures(), latencies.to_base64())
                else {
                    continue;
                };
                let max_ms = seconds(0, summary.max) * 1e3;
                self.log.line(&format!(
                    "Tag={}/{op}/{figure},{from_s:.3},{length_s:.3},{max_ms:.3},{histogram}",
                    self.run
                ));
            }
        }
    }
}

fn figures(record: &OpRecord) -> [(&'static str, Latencies); 3] {
    [
        ("service", record.all_service()),
        ("response", record.response.clone()),
        ("lag", record.lag.clone()),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "seconds, to the millisecond")]
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;
    use crate::tokens::Area;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slice(start_ns: u64, end_ns: u64) -> Slice {
        let at = |at_ns| Area {
            at_ns,
            ..Area::default()
        };
        Slice {
            start: at(start_ns),
            end: at(end_ns),
            ..Slice::default()
        }
    }

    #[test]
    fn the_log_reads_back_with_the_reader_of_the_histogram_library() {
        let memory = Memory::default();
        let log = HdrLog::new(memory.clone()).unwrap();
        let mut run = RunLog::new(log.clone(), "depth 8, x");
        let mut first = slice(5_000_000_000, 6_000_000_000);
        let reads = &mut first.ops[Action::Read.index()];
        reads.succeeded(4096, 2_000_000, Some(500_000));
        reads.succeeded(8192, 3_000_000, Some(0));
        run.write(&first, 5_000_000_000);
        run.write(&slice(6_000_000_000, 7_000_000_000), 5_000_000_000);
        log.finish().unwrap();

        let bytes = memory.0.lock().unwrap().clone();
        let entries: Result<Vec<LogEntry<'_>>, _> = IntervalLogIterator::new(&bytes).collect();
        let mut found = Vec::new();
        for entry in entries.unwrap() {
            let LogEntry::Interval(line) = entry else {
                continue;
            };
            let packed = BASE64_STANDARD.decode(line.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut &packed[..]).unwrap();
            assert_eq!(line.duration().as_secs(), 1);
            found.push((
                line.tag().unwrap().as_str().to_owned(),
                line.max(),
                histogram.len(),
            ));
        }
        let line = |figure: &str, max| (format!("depth_8__x/read/{figure}"), max, 2);
        assert_eq!(
            found,
            [
                line("service", 3.0),
                line("response", 3.0),
                line("lag", 0.5)
            ]
        );
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if bytes.starts_with(b"Tag") {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = HdrLog::new(Full).unwrap();
        let mut first = slice(0, 1_000);
        first.ops[0].succeeded(4096, 50, None);
        RunLog::new(log.clone(), "light").write(&first, 0);
        assert_eq!(log.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
