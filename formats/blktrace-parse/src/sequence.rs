//! Lost records, from the gaps in the kernel's numbering.
//!
//! The kernel counts the events of each CPU from 1 and raises the count before it looks for room
//! in its buffer: a record that found none leaves a gap. This is the only trace of it, as the
//! kernel's own counter of dropped records is not stored. Notes carry 0.
//!
//! A gap is reported one record late: if the count goes on from before the gap, the number in
//! between was damaged and nothing is missing.

use crate::record::Record;

/// Linux supports at most 8,192 CPUs; a larger number is damage.
const MAX_CPUS: usize = 8192;

/// Records that are missing between two others of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// CPU on which they happened.
    pub cpu: u32,
    /// How many.
    pub records: u64,
    /// Time of the record before them.
    pub after_ns: u64,
    /// Time of the record behind them.
    pub before_ns: u64,
}

/// What the numbering of a file tells besides gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// Records that are missing in gaps.
    pub lost: u64,
    /// Records that are missing before the first one of their CPU: lost, or cut off.
    pub missing_before_first: u64,
    /// Records without a number, as the kernel's `blk` tracer writes them: gaps cannot be seen.
    pub unnumbered: u64,
    /// Records whose number alone was damaged.
    pub damaged: u64,
    /// How often the count began again at 1: traces that were joined in one file.
    pub restarts: u64,
    /// CPUs whose count went back elsewhere: several traces are mixed in one file, and their gaps
    /// cannot be told. Counting stops there.
    pub confused_cpus: u64,
}

/// Follows the numbers of one file's records, which must come in the file's order.
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    cpus: Vec<Option<Cpu>>,
    numbering: Numbering,
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// The number that the next record should have.
    expected: u32,
    last_ns: u64,
    pending: Option<Pending>,
    confused: bool,
}

/// A gap that the next record has to confirm.
#[derive(Clone, Copy, Debug)]
struct Pending {
    gap: Gap,
    /// The number that was expected where the gap is.
    expected: u32,
}

impl SequenceTracker {
    /// A tracker for one file.
    pub fn new() -> SequenceTracker {
        SequenceTracker::default()
    }

    /// Takes the file's next record; returns the gap that it confirms.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) -> Option<Gap> {
        if record.action.is_note() {
            return None;
        }
        if let Some(Some(cpu)) = self.cpus.get_mut(record.cpu as usize)
            && record.sequence == cpu.expected
            && cpu.pending.is_none()
        {
            cpu.expected = cpu.expected.wrapping_add(1);
            cpu.last_ns = record.time_ns;
            return None;
        }
        self.observe_with_care(record)
    }

    /// The gaps that no record confirmed before the file ended.
    pub fn finish(&mut self) -> Vec<Gap> {
        let cpus = self.cpus.iter_mut().flatten();
        let gaps: Vec<Gap> = cpus
            .filter_map(|cpu| cpu.pending.take())
            .map(|pending| pending.gap)
            .collect();
        self.numbering.lost += gaps.iter().map(|gap| gap.records).sum::<u64>();
        gaps
    }

    /// What the numbers told so far.
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    #[cold]
    fn observe_with_care(&mut self, record: &Record<'_>) -> Option<Gap> {
        let index = record.cpu as usize;
        if index >= MAX_CPUS {
            self.numbering.damaged += 1;
            return None;
        }
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, None);
        }
        let slot = self.cpus.get_mut(index)?;
        let Some(cpu) = slot else {
            if record.sequence == 0 {
                self.numbering.unnumbered += 1;
                return None;
            }
            self.numbering.missing_before_first += u64::from(record.sequence) - 1;
            *slot = Some(Cpu {
                expected: record.sequence.wrapping_add(1),
                last_ns: record.time_ns,
                pending: None,
                confused: false,
            });
            return None;
        };
        let gap = cpu.observe(record, &mut self.numbering);
        self.numbering.lost += gap.map_or(0, |gap| gap.records);
        gap
    }
}

impl Cpu {
    fn observe(&mut self, record: &Record<'_>, numbering: &mut Numbering) -> Option<Gap> {
        let sequence = record.sequence;
        let expected = self.expected;
        let ahead = sequence.wrapping_sub(expected);
        if sequence == 0 && expected != 0 {
            numbering.unnumbered += 1;
            return None;
        }
        let after_ns = std::mem::replace(&mut self.last_ns, record.time_ns);
        self.expected = sequence.wrapping_add(1);
        if self.confused {
            return None;
        }
        let pending = self.pending.take();
        if let Some(pending) = pending
            && sequence == pending.expected.wrapping_add(1)
        {
            numbering.damaged += 1;
            return None;
        }
        if ahead > u32::MAX / 2 && sequence == 1 {
            numbering.restarts += 1;
        } else if ahead > u32::MAX / 2 {
            numbering.confused_cpus += 1;
            self.confused = true;
            return None;
        } else if ahead > 0 {
            let gap = Gap {
                cpu: record.cpu,
                records: u64::from(ahead),
                after_ns,
                before_ns: record.time_ns,
            };
            self.pending = Some(Pending { gap, expected });
        }
        pending.map(|pending| pending.gap)
    }
}
