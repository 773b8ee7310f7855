//! A set of latencies: exact moments and a histogram.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::result;

/// Longest latency that the histogram tells apart: an hour. Longer ones count as that; the maximum
/// stays exact.
const LONGEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// See the module. A histogram takes about 270 KB, so it is made when the first latency comes.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    moments: Moments,
    histogram: Option<Histogram<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Moments {
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments {
            count: 0,
            sum: 0,
            sum_of_squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        let moments = &mut self.moments;
        moments.count += 1;
        moments.sum += u128::from(latency_ns);
        // A u64 squared fits; the sum overflows after 2^64 latencies of half an hour.
        moments.sum_of_squares += u128::from(latency_ns) * u128::from(latency_ns);
        moments.min = moments.min.min(latency_ns);
        moments.max = moments.max.max(latency_ns);
        if let Some(histogram) = self.histogram_mut() {
            histogram.saturating_record(latency_ns);
        }
    }

    /// Adds another set.
    pub fn add(&mut self, other: &Latencies) {
        if other.moments.count == 0 {
            return;
        }
        let (ours, theirs) = (&mut self.moments, &other.moments);
        ours.count += theirs.count;
        ours.sum += theirs.sum;
        ours.sum_of_squares += theirs.sum_of_squares;
        ours.min = ours.min.min(theirs.min);
        ours.max = ours.max.max(theirs.max);
        if let (Some(ours), Some(theirs)) = (self.histogram_mut(), &other.histogram) {
            // Both have the same bounds: nothing can fall outside.
            let _ = ours.add(theirs);
        }
    }

    /// Empties the set and keeps its memory.
    pub fn clear(&mut self) {
        if self.moments.count == 0 {
            return;
        }
        self.moments = Moments::default();
        if let Some(histogram) = &mut self.histogram {
            histogram.reset();
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.moments.count
    }

    /// The figures; `None` of an empty set.
    #[expect(clippy::cast_precision_loss, reason = "means and deviations")]
    pub fn figures(&self) -> Option<result::Latency> {
        let moments = &self.moments;
        let histogram = self.histogram.as_ref()?;
        if moments.count == 0 {
            return None;
        }
        let count = moments.count as f64;
        let mean = moments.sum as f64 / count;
        let variance = (moments.sum_of_squares as f64 / count - mean * mean).max(0.0);
        // A bucket's upper edge can lie above the largest latency in it.
        let percentile = |quantile| histogram.value_at_quantile(quantile).min(moments.max);
        Some(result::Latency {
            count: moments.count,
            mean,
            stddev: variance.sqrt(),
            min: moments.min,
            p50: percentile(0.5),
            p90: percentile(0.9),
            p99: percentile(0.99),
            p99_9: percentile(0.999),
            p99_99: percentile(0.9999),
            max: moments.max,
        })
    }

    /// The histogram as HdrHistogram V2, compressed, in base64; `None` of an empty set.
    pub fn to_base64(&self) -> Option<String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(self.histogram.as_ref()?, &mut bytes)
            .ok()?;
        Some(BASE64_STANDARD.encode(bytes))
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
    use hdrhistogram::serialization::Deserializer;

    use super::*;

    #[test]
    fn moments_are_exact_and_percentiles_within_three_digits() {
        let mut latencies = Latencies::default();
        for value in 1..=10_000u64 {
            latencies.record(value * 1_000);
        }
        let figures = latencies.figures().unwrap();
        // Mean of 1..=n is (n + 1) / 2, variance (n² − 1) / 12.
        assert!((figures.mean - 5_000_500.0).abs() < 1e-6);
        let stddev = ((1e8 - 1.0) / 12.0f64).sqrt() * 1_000.0;
        assert!((figures.stddev / stddev - 1.0).abs() < 1e-9);
        assert_eq!(
            (figures.count, figures.min, figures.max),
            (10_000, 1_000, 10_000_000)
        );
        for (found, exact) in [
            (figures.p50, 5_000_000.0),
            (figures.p90, 9_000_000.0),
            (figures.p99, 9_900_000.0),
            (figures.p99_9, 9_990_000.0),
            (figures.p99_99, 9_999_000.0),
        ] {
            assert!(
                (found as f64 / exact - 1.0).abs() < 0.001,
                "{found} for {exact}"
            );
        }
    }

    #[test]
    fn adding_sets_equals_recording_all_and_clearing_leaves_none() {
        let (mut left, mut right, mut both) = (
            Latencies::default(),
            Latencies::default(),
            Latencies::default(),
        );
        for value in [3, 5_000, 70_000_000] {
            left.record(value);
            both.record(value);
        }
        for value in [1, 9_000_000_000_000] {
            right.record(value);
            both.record(value);
        }
        left.add(&right);
        assert_eq!(left.figures(), both.figures());
        assert_eq!(left.figures().unwrap().max, 9_000_000_000_000);
        left.clear();
        assert_eq!(left.figures(), None);
        left.record(7);
        assert_eq!(left.figures().unwrap().min, 7);
    }

    #[test]
    fn the_histogram_reads_back() {
        let mut latencies = Latencies::default();
        for value in [1_000, 2_000, 2_000] {
            latencies.record(value);
        }
        let bytes = BASE64_STANDARD
            .decode(latencies.to_base64().unwrap())
            .unwrap();
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!((back.len(), back.count_at(2_000)), (3, 2));
    }
}
