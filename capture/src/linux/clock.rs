//! The clocks of a recording.

use iotape_formats::tape::Anchor;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// How often the two clocks are read to catch a moment at which nothing came in between.
const ATTEMPTS: usize = 8;

/// Nanoseconds on the monotonic clock, which also stamps the events.
pub(super) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(nanoseconds(time)).unwrap_or(0)
}

/// A moment on both clocks, with `time_ns` on the monotonic one.
///
/// The wall clock is read between two readings of the monotonic one, several times; the narrowest
/// pair counts.
pub(super) fn moment() -> Anchor {
    let attempt = |_| {
        let before = monotonic_ns();
        let wall = nanoseconds(clock_gettime(ClockId::Realtime));
        let after = monotonic_ns();
        (
            after - before,
            Anchor {
                time_ns: before + (after - before) / 2,
                wall_ns: wall,
            },
        )
    };
    (0..ATTEMPTS)
        .map(attempt)
        .min_by_key(|(width, _)| *width)
        .map_or_else(Anchor::default, |(_, anchor)| anchor)
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}
