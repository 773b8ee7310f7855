//! Latencies in a histogram of fixed size.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency that is told apart: an hour. Longer ones count as that; the maximum stays exact.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Percentiles are at most 1 % above the truth, for 35 KB.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A set of latencies.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// `None` until the first one comes.
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// What a set says. Mean and maximum are exact; percentiles are at most 1 % too high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyFigures {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Latencies {
    /// An empty set.
    pub fn new() -> Latencies {
        Latencies {
            histogram: None,
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }

    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns += u128::from(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        if let Some(histogram) = self.histogram_mut() {
            histogram.saturating_record(latency_ns);
        }
    }

    /// Adds another set.
    pub fn add(&mut self, other: &Latencies) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        if let (Some(ours), Some(theirs)) = (self.histogram_mut(), &other.histogram) {
            // Both have the same bounds: nothing can fall outside.
            let _ = ours.add(theirs);
        }
    }

    /// Empties the set and keeps its memory.
    pub fn clear(&mut self) {
        if self.count == 0 {
            return;
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.reset();
        }
        (self.count, self.sum_ns, self.max_ns) = (0, 0, 0);
    }

    /// All of them, one after the other.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The figures; `None` of an empty set.
    pub fn figures(&self) -> Option<LatencyFigures> {
        let histogram = self.histogram.as_ref()?;
        if self.count == 0 {
            return None;
        }
        // A bucket's upper edge can lie above the largest latency in it.
        let percentile = |quantile| histogram.value_at_quantile(quantile).min(self.max_ns);
        Some(LatencyFigures {
            count: self.count,
            mean: self.sum_ns as f64 / self.count as f64,
            p50: percentile(0.5),
            p99: percentile(0.99),
            p99_9: percentile(0.999),
            max: self.max_ns,
        })
    }

    fn histogram_mut(&mut self) -> Option<&mut Histogram<u64>> {
        if self.histogram.is_none() {
            self.histogram = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS).ok();
        }
        self.histogram.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_in_a_hundred_and_sets_add_up() {
        let (mut odd, mut even) = (Latencies::new(), Latencies::new());
        for value in 1..=10_000u64 {
            match value % 2 {
                0 => even.record(value * 1_000),
                _ => odd.record(value * 1_000),
            }
        }
        odd.add(&even);
        let figures = odd.figures().unwrap();
        assert_eq!((figures.count, figures.max), (10_000, 10_000_000));
        // The mean of 1..=n is (n + 1) / 2.
        assert!((figures.mean - 5_000_500.0).abs() < 1e-6);
        let found = [figures.p50, figures.p99, figures.p99_9];
        for (found, exact) in found.into_iter().zip([5_000_000, 9_900_000, 9_990_000]) {
            assert!(found >= exact && found <= exact + exact / 100, "{found}");
        }
        odd.clear();
        assert_eq!(odd.figures(), None);
        odd.record(u64::MAX);
        assert_eq!(odd.figures().unwrap().max, u64::MAX);
    }
}
