//! What is written, and what is looked at when it is read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use iotape_formats::Op;

use super::{Replay, changes_data};
use crate::content::{Checked, Content, LARGEST_UNIT, REGION_BYTES, Recipe, SMALLEST_UNIT};
use crate::error::ReplayError;
use crate::options::{Options, TargetSpec};
use crate::plan::Rules;
use crate::result;
use crate::run::{Guard, Outcome};
use crate::source::Source;
use crate::sys::{self, Buffers};

/// Checks what can be checked without the tape.
///
/// # Errors
/// [`ReplayError::Content`].
pub fn check(options: &Options) -> Result<(), ReplayError> {
    let error = |option, why| Err(ReplayError::Content { option, why });
    let stored =
        |target: &TargetSpec| matches!(target, TargetSpec::Path(_) | TargetSpec::Scratch { .. });
    let stored = options.targets.iter().all(stored);
    if options.compressible > 100 {
        return error("--compressible", "expected a share from 0 to 100 percent");
    }
    if options.duplicate > 100 {
        return error("--duplicate", "expected a share from 0 to 100 percent");
    }
    if options.verify && options.duplicate > 0 {
        let why = "duplicates carry no tags; leave out --duplicate";
        return error("--verify", why);
    }
    if options.verify && !stored {
        let why = "this target stores nothing that could be read back; name a device or a file";
        return error("--verify", why);
    }
    Ok(())
}

/// # Errors
/// [`ReplayError::Content`] when requests are too odd for tags.
pub fn check_alignment(options: &Options, rules: &Rules) -> Result<(), ReplayError> {
    if options.verify && alignment(options, rules) < SMALLEST_UNIT {
        return Err(ReplayError::Content {
            option: "--verify",
            why: "the tape's requests, or the shift, are not multiples of 512 bytes",
        });
    }
    Ok(())
}

/// What all requests are a multiple of on their targets.
fn alignment(options: &Options, rules: &Rules) -> u64 {
    let volumes = rules.mapping.volumes().iter();
    let mut bits = volumes.fold(0, |bits, volume| bits | volume.layout().alignment_bits);
    bits |= options.map_offset_bytes.cast_unsigned();
    if rules.align_bytes > 1 {
        return rules.align_bytes;
    }
    1u64.checked_shl(bits.trailing_zeros())
        .unwrap_or(LARGEST_UNIT)
}

impl Options {
    /// Whether each write's bytes are its own.
    fn has_content(&self) -> bool {
        self.verify || self.duplicate > 0
    }

    /// What the result says of it.
    pub(super) fn payload_facts(&self) -> result::Payload {
        result::Payload {
            kind: if self.verify { "tagged" } else { "random" }.to_owned(),
            seed: self.seed,
            compressible_percent: self.compressible,
            duplicate_percent: self.duplicate,
        }
    }
}

impl<S: Source> Replay<S> {
    /// What looks on at a run, if the tape changes data.
    pub(super) fn guard(&self, buffers: Option<&Arc<Buffers>>, order: u32) -> Option<Guard> {
        let options = &self.options;
        if self.rules.filter.skip_writes || !changes_data(self.source.summary(), self.rules.filter)
        {
            return None;
        }
        let recipe = Recipe {
            // What an earlier run wrote is not what this one did.
            seed: options.seed.wrapping_add(u64::from(order) << 32),
            unit_bytes: alignment(options, &self.rules).clamp(SMALLEST_UNIT, LARGEST_UNIT),
            compressible: options.compressible,
            duplicate: options.duplicate,
            verify: options.verify,
        };
        let stride = self.rules.longest_part_bytes().next_multiple_of(4096);
        let names = self.targets.iter().map(|target| target.name()).collect();
        let content = buffers
            .filter(|_| options.has_content())
            .map(|buffers| Content::new(recipe, Arc::clone(buffers), stride, names));
        let in_order = options.order_overlaps || options.verify;
        let striping = self.rules.mapping.striping();
        Some(Guard::new(striping, in_order, content))
    }

    /// Reads back what was written, if it is to be checked, and returns what was found.
    pub(super) fn contents(&self, outcome: &mut Outcome, stop: &AtomicBool) -> Option<Checked> {
        let mut content = outcome.seen.as_mut()?.content.take()?;
        let length = usize::try_from(REGION_BYTES).ok()?;
        if let Ok(buffers) = Buffers::new(1, length, 0) {
            content.read_back(stop, |target, offset, length| {
                let target = self.targets.get(usize::from(target))?;
                let piece = buffers.slot(0, length)?;
                let read = sys::read_at(&target.file, piece, offset).ok()?;
                let mut bytes = vec![0; length];
                (read == length && buffers.copy_from_slot(0, &mut bytes)).then_some(bytes)
            });
        }
        content.into_checked()
    }

    /// Buffers for a run.
    ///
    /// # Errors
    /// When they take more than allowed, or cannot be had.
    pub(super) fn buffers(&self, depth: u32) -> Result<Buffers, ReplayError> {
        let summary = self.source.summary();
        let longest = self.rules.longest_part_bytes().next_multiple_of(4096);
        let count = |op: Op| summary.by_op[usize::from(op.number())].requests;
        let filter = &self.rules.filter;
        let reads = count(Op::Read) > 0 && filter.wants(Op::Read);
        let read_bytes = if reads { longest } else { 0 };
        let writes = count(Op::Write) > 0 && filter.wants(Op::Write) && !filter.skip_writes;
        let payload_bytes = match writes {
            true if self.options.has_content() => u64::from(depth).saturating_mul(longest),
            true => u64::from(self.rules.payload_bytes),
            false => 0,
        };
        let needed = u64::from(depth)
            .saturating_mul(read_bytes)
            .saturating_add(payload_bytes);
        let too_large = || ReplayError::Buffers {
            longest_bytes: self.rules.longest_bytes,
            depth,
            needed_bytes: needed,
            limit_bytes: self.options.buffer_limit_bytes,
        };
        // Places in the payload are numbers of 32 bits.
        if needed > self.options.buffer_limit_bytes || payload_bytes > u64::from(u32::MAX) {
            return Err(too_large());
        }
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| too_large());
        let slots = size(u64::from(depth))?;
        let mut buffers =
            Buffers::new(slots, size(read_bytes)?, size(payload_bytes)?).map_err(|source| {
                ReplayError::Memory {
                    needed_bytes: needed,
                    source,
                }
            })?;
        fill(
            buffers.payload_bytes(),
            self.options.seed,
            self.options.compressible,
        );
        Ok(buffers)
    }
}

/// Random bytes, of which a share at the end of each sector of 512 bytes is zero.
fn fill(payload: &mut [u8], seed: u64, compressible: u8) {
    fastrand::Rng::with_seed(seed).fill(payload);
    if compressible > 0 {
        for sector in payload.chunks_mut(512) {
            let random = sector.len() * usize::from(100 - compressible.min(100)) / 100;
            sector[random..].fill(0);
        }
    }
}
