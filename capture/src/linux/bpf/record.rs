//! A record, as the programs write it (`kernel/recorder.bpf.c`, `struct entry`).

use iotape_formats::event::SECTOR_BYTES;

use super::kernel_values::KernelValues;
use crate::linux::source::Finished;

/// Words of a record.
pub(super) const WORDS: usize = 8;
/// The word that is 0 where a slot of a table is empty.
pub(super) const KEY: usize = 1;
/// The word that holds the lap, and that is written last.
pub(super) const LAST: usize = WORDS - 1;

const UNKNOWN_QUEUE: u64 = (1 << 48) - 1;
const UNKNOWN_PROCESS: u64 = (1 << 24) - 1;
const SECTOR_MASK: u64 = (1 << 48) - 1;
const ERRNO: u64 = 1 << 62;
const ERROR_MASK: u64 = ERRNO | 0xff << 48;
/// Bits of an identity that tell when the request was allocated.
const ALLOCATED_BITS: u32 = 22;
const NAME_BYTES: usize = 15;

/// What a record in a ring says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A bio from its beginning to its end.
    Whole,
    /// A request was issued.
    Begun,
    /// It goes back, to be issued again.
    Requeued,
    /// A part of it is done, with an error.
    PartFailed,
    /// It is done.
    Done,
    /// Done, if it was issued.
    MayBeUnissued,
}

/// Which request something happened to: its pointer, and when it was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub u64);

impl Identity {
    /// Two requests have the same one after the other.
    pub fn pointer(self) -> u64 {
        self.0 >> ALLOCATED_BITS
    }

    /// Whether the kernel took the time of allocation.
    pub fn is_sure(self) -> bool {
        self.0 & ((1 << ALLOCATED_BITS) - 1) != 0
    }
}

/// A request or a bio, done or on its way, or what happened to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record(pub [u64; WORDS]);

impl Record {
    pub fn time_ns(&self) -> u64 {
        self.0[0]
    }

    /// In which lap of its ring it was written: 1 and 2 in turn; 0 in a slot that was never used.
    pub fn lap_of(last: u64) -> u64 {
        last >> 56 & 3
    }

    pub fn kind(&self) -> Option<Kind> {
        Some(match self.0[LAST] >> 58 {
            0 => Kind::Whole,
            1 => Kind::Begun,
            2 => Kind::Requeued,
            3 => Kind::PartFailed,
            4 => Kind::Done,
            5 => Kind::MayBeUnissued,
            _ => return None,
        })
    }

    /// Of whom this is, unless it is a bio's.
    pub fn identity(&self) -> Identity {
        Identity(self.0[KEY])
    }

    /// Takes over an outcome, if there is one.
    pub fn note_error(&mut self, told: &Record) {
        let error = told.0[3] & ERROR_MASK;
        if error != 0 {
            self.0[3] = self.0[3] & !ERROR_MASK | error;
        }
    }

    /// It is done after `latency_ns`.
    pub fn with_latency(mut self, latency_ns: u64) -> Record {
        self.0[KEY] = latency_ns;
        self
    }

    /// It was issued again, as `again` tells: until then it waited.
    pub fn issued_again(mut self, again: &Record) -> Record {
        let waited_ns = again.time_ns().saturating_sub(self.time_ns());
        let queue_ns = match self.0[2] & UNKNOWN_QUEUE {
            UNKNOWN_QUEUE => UNKNOWN_QUEUE,
            queue_ns => (queue_ns + waited_ns).min(UNKNOWN_QUEUE - 1),
        };
        self.0[2] = again.0[2] & !UNKNOWN_QUEUE | queue_ns;
        self.0[0] = again.time_ns();
        self
    }

    /// Which of the recorded devices.
    pub fn device(&self) -> usize {
        (self.0[3] >> 56) as usize & 63
    }

    pub fn offset_bytes(&self) -> u64 {
        (self.0[3] & SECTOR_MASK) * SECTOR_BYTES
    }

    pub fn length_bytes(&self) -> u64 {
        u64::from(self.0[5] as u32)
    }

    /// Number of its control group; 0 if that is not known.
    pub fn cgroup(&self) -> u64 {
        self.0[4] & ((1 << 40) - 1)
    }

    /// It is still on its way: what it holds of its end is no latency.
    pub fn without_end(mut self) -> Record {
        self.0[KEY] = u64::MAX;
        self
    }

    /// It is a bio: it has no time in the queue.
    pub fn without_queue(mut self) -> Record {
        self.0[2] |= UNKNOWN_QUEUE;
        self
    }

    /// The bytes of the process's name.
    pub fn name(&self) -> [u8; NAME_BYTES + 1] {
        let mut name = [0; NAME_BYTES + 1];
        name[..8].copy_from_slice(&self.0[6].to_ne_bytes());
        name[8..].copy_from_slice(&self.0[7].to_ne_bytes());
        name[NAME_BYTES] = 0;
        name
    }

    /// What it says. `name` is [`Record::name`] of it.
    pub fn decode<'a>(&self, dev: u32, name: &'a [u8], values: &KernelValues) -> Finished<'a> {
        let [time_ns, latency_ns, queue, place, owner, request, ..] = self.0;
        let length_bytes = self.length_bytes();
        let opf = (request >> 32) as u32;
        let (op, flags) = values.op_and_flags(opf, length_bytes);
        let latency_ns = (latency_ns != u64::MAX).then_some(latency_ns);
        let error = (place >> 48) as u8;
        let error = match place & ERRNO {
            0 => values.errno(error),
            _ => u32::from(error),
        };
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        let (process, cgroup) = (owner >> 40, self.cgroup());
        Finished {
            dev,
            time_ns,
            latency_ns,
            queue_ns: Some(queue & UNKNOWN_QUEUE).filter(|queue_ns| *queue_ns != UNKNOWN_QUEUE),
            op,
            flags,
            offset_bytes: self.offset_bytes(),
            length_bytes,
            process: (process != UNKNOWN_PROCESS).then_some((process as u32, &name[..end])),
            cgroup: (cgroup != 0).then_some(cgroup),
            cpu: (queue >> 48) as u32,
            error: latency_ns.map(|_| error),
        }
    }
}
