//! What is recorded of one operation, in a slice of time or altogether.

use super::{Latencies, SIZES, size_class};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct OpRecord {
    /// Requests, failed ones included.
    pub requests: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Service times of those that succeeded, by class of size.
    pub service: [Latencies; SIZES],
    /// Response times; none in a closed loop, where they are the service times.
    pub response: Latencies,
    /// Lags; none in a closed loop.
    pub lag: Latencies,
}

impl OpRecord {
    /// A request that succeeded; `lag_ns` in an open loop.
    #[inline]
    pub fn succeeded(&mut self, bytes: u64, service_ns: u64, lag_ns: Option<u64>) {
        self.requests += 1;
        self.bytes += bytes;
        self.service[size_class(bytes)].record(service_ns);
        if let Some(lag_ns) = lag_ns {
            self.lag.record(lag_ns);
            self.response.record(lag_ns.saturating_add(service_ns));
        }
    }

    /// Service times of all sizes.
    pub fn all_service(&self) -> Latencies {
        let mut all = Latencies::default();
        self.service.iter().for_each(|class| all.add(class));
        all
    }

    /// Adds another record of the same operation.
    pub fn add(&mut self, other: &OpRecord) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        for (ours, theirs) in self.service.iter_mut().zip(&other.service) {
            ours.add(theirs);
        }
        self.response.add(&other.response);
        self.lag.add(&other.lag);
    }

    /// Empties the record and keeps its memory.
    pub fn clear(&mut self) {
        self.requests = 0;
        self.bytes = 0;
        self.service.iter_mut().for_each(Latencies::clear);
        self.response.clear();
        self.lag.clear();
    }
}
