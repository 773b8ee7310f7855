//! When a request is due: a time of the tape as a time of the run.

use crate::options::Speed;

/// The gap between two passes over a tape whose requests all have the same time.
const LEAST_GAP_NS: u64 = 1_000;

/// See the module. Each time is computed from the tape's own by one division of whole numbers, so
/// that nothing adds up.
#[derive(Clone, Debug)]
pub struct Timeline {
    speed: Speed,
    /// The time of the tape at which a pass begins; by default that of its first request.
    origin_ns: Option<u64>,
    /// The time of the run at which this pass begins.
    pass_ns: u64,
    /// Of this pass, the time from its origin to its latest request.
    span_ns: u64,
    rows: u64,
}

impl Timeline {
    /// A run of this speed, whose passes begin at a time of the tape or with its first request.
    pub fn new(speed: Speed, origin_ns: Option<u64>) -> Self {
        Timeline {
            speed,
            origin_ns,
            pass_ns: 0,
            span_ns: 0,
            rows: 0,
        }
    }

    /// When a request with this time is due, since the start of the run. To be asked of every
    /// request of the tape, replayed or not, in the order of their times.
    #[inline]
    pub fn at(&mut self, time_ns: u64) -> u64 {
        let origin_ns = *self.origin_ns.get_or_insert(time_ns);
        self.rows += 1;
        self.span_ns = self.span_ns.max(time_ns.saturating_sub(origin_ns));
        let since_ns = self.scale(time_ns.saturating_sub(origin_ns));
        self.pass_ns.saturating_add(since_ns)
    }

    /// How long a time of the tape is in the run.
    #[inline]
    pub fn scale(&self, time_ns: u64) -> u64 {
        self.speed.divide(time_ns)
    }

    /// The next pass begins one mean gap after the last request of this one.
    pub fn next_pass(&mut self) {
        if self.rows == 0 {
            return;
        }
        let gap_ns = self.span_ns / (self.rows - 1).max(1);
        let length_ns = self.span_ns.saturating_add(gap_ns.max(LEAST_GAP_NS));
        self.pass_ns = self.pass_ns.saturating_add(self.scale(length_ns).max(1));
        self.span_ns = 0;
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(text: &str) -> Speed {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_exact_after_a_hundred_days_at_any_speed() {
        let mut timeline = Timeline::new(speed("3"), None);
        assert_eq!(timeline.at(5), 0);
        let gap_ns = 20_000;
        for n in [1u64, 2, 3, 432_000_000_000] {
            // Rounded down once, whatever came before.
            assert_eq!(timeline.at(5 + n * gap_ns), n * gap_ns / 3);
        }
        let mut slow = Timeline::new(speed("0.000001"), None);
        slow.at(0);
        assert_eq!(slow.at(7), 7_000_000);
        assert_eq!(slow.at(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_given_origin_keeps_the_gap_before_the_first_request() {
        let mut timeline = Timeline::new(speed("2"), Some(1_000));
        assert_eq!(timeline.at(4_000), 1_500);
    }

    #[test]
    fn passes_follow_after_one_mean_gap() {
        let mut timeline = Timeline::new(speed("1"), None);
        for pass in 0..3u64 {
            // Gaps of 1,000 and 3,000: 2,000 in the mean.
            let due: Vec<u64> = [10_000, 11_000, 14_000]
                .map(|time| timeline.at(time))
                .into();
            let start = pass * 6_000;
            assert_eq!(due, [start, start + 1_000, start + 4_000]);
            timeline.next_pass();
        }
    }
}
