//! A block's requests as columns in memory.

use std::sync::Arc;

use super::column::Columns;
use super::error::Corrupt;
use super::id::{IdSum, TapeId, name_of};
use super::model::Summary;
use crate::request::{DeviceIndex, Flags, Op, Process, Request};

/// Values of a field that not every request has.
#[derive(Clone, Debug, Default)]
pub(super) struct Optional<T> {
    /// One per row, anything where the row has none; empty when no row has one.
    pub values: Vec<T>,
    /// Whether each row has one; empty when all or none have.
    pub present: Vec<bool>,
    /// How many rows have one.
    pub count: usize,
}

impl<T: Copy + Default> Optional<T> {
    /// Adds the value of a row; `rows` are there already.
    #[inline(always)]
    pub(super) fn push(&mut self, value: Option<T>, rows: usize) {
        match value {
            Some(value) if self.count == rows => self.values.push(value),
            None if self.count == 0 => return,
            _ => self.push_mixed(value, rows),
        }
        self.count += usize::from(value.is_some());
    }

    /// Adds a row to a column of which some rows have a value and some have none.
    #[inline(never)]
    fn push_mixed(&mut self, value: Option<T>, rows: usize) {
        self.values.resize(rows, T::default());
        self.present.resize(rows, self.count > 0);
        self.values.push(value.unwrap_or_default());
        self.present.push(value.is_some());
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.present.clear();
        self.count = 0;
    }

    pub(super) fn get(&self, row: usize) -> Option<T> {
        let present = self.present.get(row).copied().unwrap_or(self.count > 0);
        self.values.get(row).copied().filter(|_| present)
    }

    fn column(&self, rows: usize) -> OptionalColumn<'_, T> {
        OptionalColumn { column: self, rows }
    }
}

/// A column whose rows may have no value.
#[derive(Clone, Copy, Debug)]
pub struct OptionalColumn<'a, T> {
    column: &'a Optional<T>,
    rows: usize,
}

impl<'a, T: Copy + Default> OptionalColumn<'a, T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many rows have a value.
    pub fn count(&self) -> usize {
        self.column.count
    }

    /// The value of a row.
    pub fn get(&self, row: usize) -> Option<T> {
        self.column.get(row)
    }

    /// The values, when every row has one.
    pub fn all(&self) -> Option<&'a [T]> {
        (self.column.count == self.rows).then_some(&self.column.values)
    }

    /// The rows' values in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<T>> + 'a {
        let column = self.column;
        (0..self.rows).map(move |row| column.get(row))
    }
}

/// Requests of one block, decoded. The buffers are reused from block to block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub(super) times: Vec<u64>,
    pub(super) ops: Vec<Op>,
    pub(super) flags: Vec<Flags>,
    pub(super) devices: Vec<DeviceIndex>,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
    pub(super) latency: Optional<u64>,
    pub(super) queue: Optional<u64>,
    /// Positions in `process_table`.
    pub(super) process: Optional<u32>,
    pub(super) process_table: Vec<Process>,
    pub(super) cgroup: Optional<u64>,
    pub(super) cpu: Optional<u32>,
    pub(super) error: Optional<u32>,
    pub(super) file: Optional<u64>,
    pub(super) summary: Summary,
    pub(super) columns: Columns,
}

impl Block {
    /// An empty block, to be filled by a reader.
    pub fn new() -> Block {
        Block::default()
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Totals of the block, from its header. They are of all its requests' fields, whichever
    /// columns were decoded.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Which columns the reader decoded; the others read as absent.
    pub fn columns(&self) -> Columns {
        self.columns
    }

    /// When each request was seen, in nanoseconds since the tape's first anchor.
    pub fn times_ns(&self) -> &[u64] {
        &self.times
    }

    /// What each request does.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// How each request asks to be treated.
    pub fn flags(&self) -> &[Flags] {
        &self.flags
    }

    /// The device of each request.
    pub fn devices(&self) -> &[DeviceIndex] {
        &self.devices
    }

    /// First byte of each request.
    pub fn offsets_bytes(&self) -> &[u64] {
        &self.offsets
    }

    /// Length of each request. Offset and length add up to at most 2^64 - 1.
    pub fn lengths_bytes(&self) -> &[u64] {
        &self.lengths
    }

    /// Time from each request until its completion, in nanoseconds.
    pub fn latencies_ns(&self) -> OptionalColumn<'_, u64> {
        self.latency.column(self.len())
    }

    /// Time that each request was queued before, in nanoseconds.
    pub fn queues_ns(&self) -> OptionalColumn<'_, u64> {
        self.queue.column(self.len())
    }

    /// Position of each request's process in [`Block::process_table`].
    pub fn processes(&self) -> OptionalColumn<'_, u32> {
        self.process.column(self.len())
    }

    /// The processes of this block.
    pub fn process_table(&self) -> &[Process] {
        &self.process_table
    }

    /// Control group of each request.
    pub fn cgroups(&self) -> OptionalColumn<'_, u64> {
        self.cgroup.column(self.len())
    }

    /// Processor of each request.
    pub fn cpus(&self) -> OptionalColumn<'_, u32> {
        self.cpu.column(self.len())
    }

    /// Outcome of each request.
    pub fn errors(&self) -> OptionalColumn<'_, u32> {
        self.error.column(self.len())
    }

    /// File of each request.
    pub fn files(&self) -> OptionalColumn<'_, u64> {
        self.file.column(self.len())
    }

    /// Whether the rows are those whose id the block's header tells.
    pub(super) fn verify_id(&self, told: TapeId) -> Result<(), Corrupt> {
        let mut id = IdSum::default();
        for request in self.requests() {
            id.add(&request, name_of(request.process.as_ref()));
        }
        if id.take() == told {
            return Ok(());
        }
        Err(Corrupt::Inconsistent {
            what: "a block's requests do not hash to its id",
        })
    }

    /// One request.
    ///
    /// # Panics
    ///
    /// When `row` is not below [`Block::len`].
    pub fn request(&self, row: usize) -> Request {
        let process = self
            .process
            .get(row)
            .and_then(|at| self.process_table.get(at as usize));
        Request {
            time_ns: self.times[row],
            device: self.devices[row],
            op: self.ops[row],
            flags: self.flags[row],
            offset_bytes: self.offsets[row],
            length_bytes: self.lengths[row],
            latency_ns: self.latency.get(row),
            queue_ns: self.queue.get(row),
            process: process.map(|Process { pid, name }| Process {
                pid: *pid,
                name: Arc::clone(name),
            }),
            cgroup: self.cgroup.get(row),
            cpu: self.cpu.get(row),
            error: self.error.get(row),
            file: self.file.get(row),
        }
    }

    /// The requests in the order of the tape.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        (0..self.len()).map(|row| self.request(row))
    }
}

impl Block {
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.ops.clear();
        self.flags.clear();
        self.devices.clear();
        self.offsets.clear();
        self.lengths.clear();
        self.latency.clear();
        self.queue.clear();
        self.process.clear();
        self.process_table.clear();
        self.cgroup.clear();
        self.cpu.clear();
        self.error.clear();
        self.file.clear();
        self.summary = Summary::default();
    }

    /// Adds a request, whose process is `process` in the table.
    pub(super) fn push(&mut self, request: &Request, process: Option<u32>) {
        let rows = self.times.len();
        self.times.push(request.time_ns);
        self.ops.push(request.op);
        self.flags.push(request.flags);
        self.devices.push(request.device);
        self.offsets.push(request.offset_bytes);
        self.lengths.push(request.length_bytes);
        self.latency.push(request.latency_ns, rows);
        self.queue.push(request.queue_ns, rows);
        self.process.push(process, rows);
        self.cgroup.push(request.cgroup, rows);
        self.cpu.push(request.cpu, rows);
        self.error.push(request.error, rows);
        self.file.push(request.file, rows);
    }
}

impl Block {
    /// Whether the rows are what the header says, and every range exists.
    pub(super) fn verify(&self) -> Result<(), Corrupt> {
        // The bit that an addition carries out of 64 bits, without comparing: that is faster where
        // the processor's vectors cannot compare 64-bit numbers.
        let mut carries = 0;
        for (offset, length) in self.offsets.iter().zip(&self.lengths) {
            let sum = offset.wrapping_add(*length);
            carries |= (offset & length) | ((offset | length) & !sum);
        }
        let past = carries >> (u64::BITS - 1) == 1;
        if past {
            return Err(Corrupt::Inconsistent {
                what: "a request ends beyond 2^64 bytes",
            });
        }
        let of_rows = Summary::of_rows(self);
        let told = &self.summary;
        let same = (
            of_rows.first_ns,
            of_rows.last_ns,
            &of_rows.by_op,
            &of_rows.devices,
        ) == (told.first_ns, told.last_ns, &told.by_op, &told.devices);
        if same {
            Ok(())
        } else {
            Err(Corrupt::Inconsistent {
                what: "a block's requests do not add up to its header",
            })
        }
    }
}
