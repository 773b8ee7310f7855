//! Waits in whole milliseconds, on a system whose clock ticks once in one.

use super::{TICK, Wait};

const MS: u64 = 1_000_000;
/// A wait ends up to two ticks late: one for the tick under way, one for what else runs.
const LATE_MS: u64 = 2;

/// How long to wait for a completion, at this time. A turn may end early, so a wait for a time
/// stops short of it by as much as it could end late, and the rest is spent looking.
pub fn timeout_ms(wait: Wait, now_ns: u64) -> u32 {
    let tick_ms = u64::try_from(TICK.as_millis()).unwrap_or(u64::MAX);
    let ms = match wait {
        Wait::No => 0,
        Wait::Tick => tick_ms,
        Wait::Until(time_ns) => {
            let left_ms = time_ns.saturating_sub(now_ns) / MS;
            left_ms.saturating_sub(LATE_MS).min(tick_ms)
        }
    };
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_time_never_passes_it() {
        let until = |time_ns, now_ns| timeout_ms(Wait::Until(time_ns), now_ns);
        assert_eq!(until(0, 5 * MS), 0);
        assert_eq!(until(5 * MS, 5 * MS), 0);
        assert_eq!(until(7 * MS, 5 * MS), 0);
        assert_eq!(until(8 * MS - 1, 5 * MS), 0);
        assert_eq!(until(8 * MS, 5 * MS), 1);
        assert_eq!(until(u64::MAX, 0), 100);
        assert_eq!(
            (timeout_ms(Wait::No, 7), timeout_ms(Wait::Tick, 7)),
            (0, 100)
        );
    }
}
