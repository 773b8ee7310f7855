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

/// What a record's number says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The number is not the one behind that of the CPU's last event.
    pub jumped: bool,
    /// The gap before an earlier record, which this one confirms.
    pub gap: Option<Gap>,
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

    /// Takes the file's next record.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) -> Observation {
        if record.action.is_note() {
            return Observation::default();
        }
        if let Some(Some(cpu)) = self.cpus.get_mut(record.cpu as usize)
            && record.sequence == cpu.expected
            && cpu.pending.is_none()
        {
            cpu.expected = cpu.expected.wrapping_add(1);
            cpu.last_ns = record.time_ns;
            return Observation::default();
        }
        self.observe_with_care(record)
    }

    /// The gaps that no record confirmed before the file ended.
    pub fn finish(&mut self) -> Vec<Gap> {
        let cpus = self.cpus.iter_mut().flatten();
        let gaps: Vec<Gap> = cpus
            .filter(|cpu| !cpu.confused)
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
    fn observe_with_care(&mut self, record: &Record<'_>) -> Observation {
        let index = record.cpu as usize;
        if index >= MAX_CPUS {
            self.numbering.damaged += 1;
            return Observation::default();
        }
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, None);
        }
        match self.cpus.get_mut(index) {
            Some(Some(cpu)) => {
                let observation = cpu.observe(record, &mut self.numbering);
                self.numbering.lost += observation.gap.map_or(0, |gap| gap.records);
                observation
            }
            Some(slot) => {
                *slot = Cpu::begin(record, &mut self.numbering);
                Observation::default()
            }
            None => Observation::default(),
        }
    }
}

impl Cpu {
    /// The first event of a CPU, if it has a number.
    fn begin(record: &Record<'_>, numbering: &mut Numbering) -> Option<Cpu> {
        let Some(missing) = record.sequence.checked_sub(1) else {
            numbering.unnumbered += 1;
            return None;
        };
        numbering.missing_before_first += u64::from(missing);
        Some(Cpu {
            expected: record.sequence.wrapping_add(1),
            last_ns: record.time_ns,
            pending: None,
            confused: false,
        })
    }

    fn observe(&mut self, record: &Record<'_>, numbering: &mut Numbering) -> Observation {
        let sequence = record.sequence;
        if sequence == 0 && self.expected != 0 {
            numbering.unnumbered += 1;
            return Observation::default();
        }
        let after_ns = std::mem::replace(&mut self.last_ns, record.time_ns);
        let expected = std::mem::replace(&mut self.expected, sequence.wrapping_add(1));
        let ahead = sequence.wrapping_sub(expected);
        let jumped = ahead != 0;
        let pending = self.pending.take().filter(|_| !self.confused);
        let is_damage = |pending: &Pending| sequence == pending.expected.wrapping_add(1);
        if pending.as_ref().is_some_and(is_damage) {
            numbering.damaged += 1;
            return Observation { jumped, gap: None };
        }
        if ahead > u32::MAX / 2 && sequence == 1 {
            numbering.restarts += 1;
        } else if ahead > u32::MAX / 2 {
            numbering.confused_cpus += u64::from(!self.confused);
            self.confused = true;
        } else if jumped {
            let gap = Gap {
                cpu: record.cpu,
                records: u64::from(ahead),
                after_ns,
                before_ns: record.time_ns,
            };
            self.pending = Some(Pending { gap, expected });
        }
        let confirmed = pending.filter(|_| !self.confused);
        let gap = confirmed.map(|pending| pending.gap);
        Observation { jumped, gap }
    }
}
