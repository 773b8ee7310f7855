//! The view as lines of text, one an interval, for pipes and simple terminals.

use std::time::Duration;

use super::figures::Figures;
use crate::render::table::fit;
use crate::render::units;

/// Lines between two heads.
const BETWEEN_HEADS: u32 = 20;

/// The lines so far.
#[derive(Debug, Default)]
pub struct Lines {
    shown: u32,
}

impl Lines {
    /// The line of an interval, below a head now and then. Empty where an interval is too short to tell
    /// anything.
    pub fn of(&mut self, figures: &Figures) -> String {
        let all = &figures.all;
        let (Some(mb_s), Some(iops)) = (all.throughput_mb_s, all.iops) else {
            return String::new();
        };
        let mut text = String::new();
        if self.shown.is_multiple_of(BETWEEN_HEADS) {
            text.push_str(&head(figures));
        }
        self.shown = self.shown.wrapping_add(1);
        let latency = |of: fn(&super::latencies::LatencyFigures) -> u64| {
            let value = all.latency_ns.as_ref().map(|figures| of(figures) as f64);
            value.map_or("-".to_owned(), units::nanos)
        };
        let read = all.by_op.get("read").map_or(0, |read| read.requests);
        text.push_str(&format!(
            "{:>8} {:>7} {:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
            units::span(Duration::from_nanos(figures.to_ns)),
            units::significant(mb_s),
            units::count(iops.round() as u64),
            units::percent(read, all.requests),
            all.mean_depth.map_or("-".to_owned(), units::significant),
            all.mean_request_bytes
                .map_or("-".to_owned(), |bytes| units::bytes(bytes.round() as u64)),
            latency(|figures| figures.p50),
            latency(|figures| figures.p99),
            latency(|figures| figures.p99_9),
            units::count(figures.lost_events),
        ));
        if let Some(bytes) = figures.tape_bytes {
            text.push_str(&format!(" {:>8}", units::bytes(bytes)));
        }
        text.push_str(&format!("  {}\n", busiest(figures)));
        text
    }
}

fn head(figures: &Figures) -> String {
    let tape = figures
        .tape_bytes
        .map_or(String::new(), |_| format!(" {:>8}", "tape"));
    format!(
        "{:>8} {:>7} {:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}{tape}  busiest\n",
        "time", "MB/s", "IOPS", "reads", "depth", "size", "p50", "p99", "p99.9", "lost"
    )
}

/// The process that moved the most, and of several devices the one.
fn busiest(figures: &Figures) -> String {
    let process = figures.processes.first().map_or("-".to_owned(), |process| {
        format!("{}[{}]", fit(&process.name, 20), process.pid)
    });
    let devices = figures.devices.iter();
    match devices.max_by_key(|device| (device.sums.bytes, device.sums.requests)) {
        Some(device) if figures.devices.len() > 1 => {
            format!("{process} {}", fit(&device.name, 20))
        }
        _ => process,
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::History;
    use super::super::testing::{gathered, watched};
    use super::*;

    #[test]
    fn a_head_then_a_line_each_and_nothing_for_what_is_too_short() {
        let mut history = History::new(watched(&["sda", "sdb"]));
        let mut lines = Lines::default();
        let first = lines.of(&history.take(&gathered(1_000)));
        assert_eq!(
            first,
            "    time    MB/s      IOPS   reads  depth     size      p50      p99    p99.9     \
             lost     tape  busiest\n  1.00 s    0.02         5  60.0 %   0.50   5120 B   100 ms   \
             200 ms   200 ms        7  977 KiB  fi\u{fffd}o\u{fffd}[7] sda\n"
        );
        let second = lines.of(&history.take(&gathered(2_000)));
        assert_eq!(second.lines().count(), 1);
        assert_eq!(lines.of(&history.take(&gathered(2_001))), "");
    }
}
