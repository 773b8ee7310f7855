//! How much a recording may write.

use std::time::Duration;

use crate::CaptureError;

/// How much a recording may write, and into how many files.
///
/// A bound on bytes is hard: it is never exceeded, and a tape that is closed because of it is
/// whole. Up to an eighth of a small segment, and up to 256 KiB of a large one, stays unused for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes that the recording may hold on its file system, all its segments together. Without
    /// [`Bounds::keep`] the recording ends there.
    pub max_bytes: Option<u64>,
    /// When a segment ends and the next one begins; `None` records one tape.
    pub rotate: Option<Rotate>,
    /// Most segments that exist at a time, the one being written included: before a new one begins,
    /// the oldest ones go. `None` keeps all.
    pub keep: Option<u32>,
    /// Space that is left free on the tape's file system. Where less is left, the oldest segments
    /// go ([`Bounds::keep`]), or else the recording ends.
    pub min_free_bytes: u64,
}

/// When a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// Before it exceeds so many bytes.
    Bytes(u64),
    /// After this time.
    Every(Duration),
}

impl Bounds {
    /// Smallest segment, and smallest tape, that can be asked for.
    pub const LEAST_BYTES: u64 = 64 << 10;

    /// Most bytes of one segment.
    pub fn segment_bytes(&self) -> Option<u64> {
        let rotated = match self.rotate {
            Some(Rotate::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        let share = self
            .keep
            .and_then(|keep| self.max_bytes?.checked_div(u64::from(keep)));
        [rotated, share].into_iter().flatten().min()
    }

    /// Whether so much space is free that a recording may begin.
    ///
    /// # Errors
    /// When less than [`Bounds::min_free_bytes`] is free; an unknown amount is enough.
    pub fn check_space(&self, free_bytes: Option<u64>) -> Result<(), CaptureError> {
        let floor = self.min_free_bytes;
        match free_bytes {
            Some(free) if free < floor => Err(CaptureError::NoSpace { free, floor }),
            _ => Ok(()),
        }
    }

    /// Whether these can be kept.
    pub(crate) fn check(&self) -> Result<(), CaptureError> {
        if self.keep.is_some() && self.rotate.is_none() {
            return Err(CaptureError::KeepWithoutRotate);
        }
        if self.keep == Some(0) {
            return Err(CaptureError::KeepNothing);
        }
        let least = [self.max_bytes, self.segment_bytes()];
        match least.into_iter().flatten().min() {
            Some(bytes) if bytes < Bounds::LEAST_BYTES => Err(CaptureError::SegmentSize {
                bytes,
                least: Bounds::LEAST_BYTES,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_segment_is_bounded_by_its_size_and_by_its_share() {
        let of = |max_bytes, rotate, keep| {
            let bounds = Bounds {
                max_bytes,
                rotate,
                keep,
                min_free_bytes: 0,
            };
            bounds.check().map(|()| bounds.segment_bytes())
        };
        let (size, time) = (Rotate::Bytes(MIB), Rotate::Every(Duration::from_secs(60)));
        assert_eq!(of(None, None, None).unwrap(), None);
        assert_eq!(of(Some(8 * MIB), Some(size), Some(4)).unwrap(), Some(MIB));
        assert_eq!(
            of(Some(2 * MIB), Some(size), Some(4)).unwrap(),
            Some(MIB / 2)
        );
        assert_eq!(
            of(Some(8 * MIB), Some(time), Some(4)).unwrap(),
            Some(2 * MIB)
        );
        assert_eq!(of(Some(8 * MIB), Some(time), None).unwrap(), None);
        assert!(of(Some(MIB), Some(time), Some(100)).is_err());
        assert!(of(Some(1000), None, None).is_err());
        assert!(of(None, Some(size), Some(0)).is_err());
        assert!(of(None, None, Some(3)).is_err());
    }
}
