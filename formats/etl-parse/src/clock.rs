//! The times of events.

use crate::error::Error;
use crate::log_header::LogHeader;

/// FILETIME of 1970-01-01.
const UNIX_FILETIME: i64 = 116_444_736_000_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_FILETIME: i128 = 100;

/// Where the times of a trace come from (`Wnode.ClientContext`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClockType {
    /// QueryPerformanceCounter (1).
    #[default]
    PerformanceCounter,
    /// The system time (2): FILETIMEs, in steps of up to 15.6 ms.
    SystemTime,
    /// The processor's cycle counter (3).
    CycleCounter,
}

/// Turns a trace's ticks into times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    clock_type: ClockType,
    start_ticks: i64,
    start_filetime: i64,
    /// Ticks and nanoseconds in the same time.
    ticks: i64,
    ns: i64,
    perf_frequency: i64,
    /// Nanoseconds of a tick of the clock and of the performance counter, where they are whole:
    /// saves a division of 128 bits.
    whole_ns: Option<i64>,
    whole_perf_ns: Option<u64>,
}

impl Clock {
    /// The clock of a trace.
    ///
    /// # Errors
    ///
    /// When its type is not known, or its rate is 0.
    pub fn new(header: &LogHeader) -> Result<Clock, Error> {
        let (clock_type, ticks, ns) = match header.clock_type {
            // Traces of Windows 2000 say 0 and mean the performance counter.
            0 | 1 => (
                ClockType::PerformanceCounter,
                header.perf_frequency,
                1_000_000_000,
            ),
            2 => (ClockType::SystemTime, 1, 100),
            3 => (ClockType::CycleCounter, i64::from(header.cpu_mhz), 1000),
            _ => (ClockType::PerformanceCounter, 0, 0),
        };
        if ticks <= 0 {
            return Err(Error::Clock {
                clock: header.clock_type,
                frequency: match clock_type {
                    ClockType::CycleCounter => ticks.saturating_mul(1_000_000),
                    _ => header.perf_frequency,
                },
            });
        }
        Ok(Clock {
            clock_type,
            start_ticks: header.start_ticks,
            start_filetime: header.start_filetime,
            ticks,
            ns,
            perf_frequency: header.perf_frequency,
            whole_ns: (ns % ticks == 0).then_some(ns / ticks),
            whole_perf_ns: u64::try_from(header.perf_frequency)
                .ok()
                .filter(|frequency| *frequency > 0 && NS_PER_SECOND.is_multiple_of(*frequency))
                .map(|frequency| NS_PER_SECOND / frequency),
        })
    }

    /// Where the times come from.
    pub fn clock_type(&self) -> ClockType {
        self.clock_type
    }

    /// Nanoseconds from the start of the trace to this time; negative before it.
    #[inline]
    pub fn since_start_ns(&self, ticks: i64) -> i128 {
        let since = i128::from(ticks) - i128::from(self.start_ticks);
        match self.whole_ns {
            Some(ns) => since * i128::from(ns),
            None => since * i128::from(self.ns) / i128::from(self.ticks),
        }
    }

    /// Length of a span of the performance counter, whatever the trace's clock is; `None` if its
    /// frequency is not known or the span is beyond 64 bits of nanoseconds.
    #[inline]
    pub fn perf_span_ns(&self, ticks: u64) -> Option<u64> {
        if let Some(ns) = self.whole_perf_ns {
            return ticks.checked_mul(ns);
        }
        if self.perf_frequency <= 0 {
            return None;
        }
        let ns = i128::from(ticks) * i128::from(NS_PER_SECOND) / i128::from(self.perf_frequency);
        u64::try_from(ns).ok()
    }

    /// The start of the trace in nanoseconds since 1970-01-01 UTC.
    pub fn start_wall_ns(&self) -> i128 {
        (i128::from(self.start_filetime) - i128::from(UNIX_FILETIME)) * NS_PER_FILETIME
    }

    /// Smallest step of the clock, rounded up to whole nanoseconds.
    pub fn resolution_ns(&self) -> u32 {
        let step = self.ns.saturating_add(self.ticks - 1) / self.ticks;
        u32::try_from(step.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(clock_type: u32, perf_frequency: i64, cpu_mhz: u32) -> Result<Clock, Error> {
        Clock::new(&LogHeader {
            clock_type,
            perf_frequency,
            cpu_mhz,
            start_ticks: 1000,
            start_filetime: UNIX_FILETIME + 50,
            ..LogHeader::default()
        })
    }

    #[test]
    fn each_clock_has_its_own_tick() {
        let counter = clock(1, 3_000_000, 0).unwrap();
        assert_eq!(counter.since_start_ns(1003), 1000);
        assert_eq!(counter.since_start_ns(997), -1000);
        assert_eq!(counter.perf_span_ns(6_000_000), Some(2_000_000_000));
        assert_eq!(
            (counter.resolution_ns(), counter.start_wall_ns()),
            (334, 5000)
        );
        let system = clock(2, 3_000_000, 0).unwrap();
        assert_eq!(system.since_start_ns(1003), 300);
        assert_eq!(system.perf_span_ns(3), Some(1000));
        let cycles = clock(3, 0, 2500).unwrap();
        assert_eq!(cycles.since_start_ns(3500), 1000);
        assert_eq!(cycles.perf_span_ns(3), None);
    }

    #[test]
    fn a_clock_without_a_rate_is_refused() {
        for (clock_type, frequency) in [(1, 0), (1, -5), (3, 0), (4, 10_000_000)] {
            assert!(
                clock(clock_type, frequency, 0).is_err(),
                "{clock_type} {frequency}"
            );
        }
    }
}
