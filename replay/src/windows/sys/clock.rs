//! The clock of a run, and processor time.

use std::sync::OnceLock;

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, GetProcessTimes, GetThreadTimes,
};

/// Nanoseconds of the performance counter, the clock of every time in a run.
pub fn monotonic_ns() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    let frequency = *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: the pointer is to an i64 that lives through the call, which never fails.
        unsafe { QueryPerformanceFrequency(&raw mut frequency) };
        u64::try_from(frequency).unwrap_or(0).max(1)
    });
    let mut ticks = 0;
    // SAFETY: as above.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    nanoseconds(u64::try_from(ticks).unwrap_or(0), frequency)
}

/// In two parts, so that no product overflows.
fn nanoseconds(ticks: u64, frequency: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let (seconds, rest) = (ticks / frequency, ticks % frequency);
    let rest = u128::from(rest) * u128::from(SECOND) / u128::from(frequency);
    seconds
        .wrapping_mul(SECOND)
        .wrapping_add(u64::try_from(rest).unwrap_or(0))
}

/// Processor time used.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuTime {
    /// Of all threads of the process.
    pub fn of_process() -> Self {
        // SAFETY: all pointers are to FILETIMEs that live through the call.
        Self::of(|[creation, exit, kernel, user]| unsafe {
            GetProcessTimes(GetCurrentProcess(), creation, exit, kernel, user)
        })
    }

    /// Of the calling thread.
    pub fn of_thread() -> Self {
        // SAFETY: as above.
        Self::of(|[creation, exit, kernel, user]| unsafe {
            GetThreadTimes(GetCurrentThread(), creation, exit, kernel, user)
        })
    }

    fn of(call: impl FnOnce([*mut FILETIME; 4]) -> i32) -> Self {
        let mut times = [FILETIME::default(); 4];
        let [creation, exit, kernel, user] = &mut times;
        if call([creation, exit, kernel, user]) == 0 {
            return CpuTime::default();
        }
        CpuTime {
            user_ns: span_ns(times[3]),
            system_ns: span_ns(times[2]),
        }
    }

    /// User and kernel time.
    pub fn total_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// What was used since an earlier reading.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

/// A FILETIME that is a span counts units of 100 ns.
fn span_ns(time: FILETIME) -> u64 {
    let units = u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    units.saturating_mul(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        assert_eq!(nanoseconds(10_000_001, 10_000_000), 1_000_000_100);
        // A hundred years of a counter of 3 GHz.
        let century = 100 * 365 * 86_400;
        assert_eq!(
            nanoseconds(century * 3_000_000_000, 3_000_000_000),
            century * 1_000_000_000
        );
    }

    #[test]
    fn work_takes_processor_time() {
        let before = CpuTime::of_thread();
        let start = monotonic_ns();
        while monotonic_ns() < start + 100_000_000 {}
        let used = CpuTime::of_thread().since(before).total_ns();
        // The system counts in ticks of up to 16 ms, and others may have had the processor.
        assert!(used > 0 && used < 1_000_000_000, "{used}");
    }
}
