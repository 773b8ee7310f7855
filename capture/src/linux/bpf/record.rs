//! The record of a request, as the programs write it (`kernel/recorder.bpf.c`, `struct entry`).

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
const NAME_BYTES: usize = 15;

/// A request, done or on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record(pub [u64; WORDS]);

impl Record {
    pub fn time_ns(&self) -> u64 {
        self.0[0]
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
