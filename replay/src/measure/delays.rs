//! Why requests were submitted after they were due.

/// A request that is submitted later than this, besides its wait for a token, came late by the
/// tool's fault.
pub const LATE_NS: u64 = 1_000_000;

/// Adds up lags by their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Requests with a time.
    pub requests: u64,
    /// Sum of their lags.
    pub total_ns: u128,
    /// Those that waited for a token.
    pub by_cap: u64,
    /// Sum of those waits.
    pub by_cap_ns: u128,
    /// Those that were more than [`LATE_NS`] late besides.
    pub late: u64,
    /// Lag of the request submitted last.
    pub last_ns: u64,
    /// What of it was no wait for a token.
    pub last_own_ns: u64,
}

impl Delays {
    /// A request is submitted so long after it was due, of which it waited so long for a token.
    #[inline]
    pub fn record(&mut self, lag_ns: u64, by_cap_ns: u64) {
        let own_ns = lag_ns.saturating_sub(by_cap_ns);
        self.requests += 1;
        self.total_ns += u128::from(lag_ns);
        self.by_cap += u64::from(by_cap_ns > 0);
        self.by_cap_ns += u128::from(by_cap_ns);
        self.late += u64::from(own_ns > LATE_NS);
        self.last_ns = lag_ns;
        self.last_own_ns = own_ns;
    }
}
