//! Writes a set of per-CPU files like blktrace's, of any size, to measure readers with:
//! `synthesize NAME BYTES [CPUS]` makes `NAME.blktrace.0` and so on.
//!
//! The load is made up (random reads and writes of 4 to 64 KiB from a few processes, on average 16
//! outstanding); its records are those of a real one: A Q G I D on one CPU, C mostly on another,
//! numbered, with the notes that a kernel writes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use blktrace_parse::{
    Action, ByteOrder, Categories, DeviceNumber, Format, Kind, Record, Version, encode,
};

const FORMAT: Format = Format::new(Version::V7, ByteOrder::NATIVE);
const DISK: DeviceNumber = DeviceNumber(8 << 20);
const PARTITION: DeviceNumber = DeviceNumber((8 << 20) | 1);
const PARTITION_START: u64 = 2048;
const PIDS: [u32; 5] = [812, 1044, 1045, 2210, 30_148];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: synthesize NAME BYTES [CPUS]";
    let name = args.next().ok_or(usage)?;
    let bytes: u64 = args.next().ok_or(usage)?.parse()?;
    let cpus: u32 = args.next().map_or(Ok(4), |cpus| cpus.parse())?;
    let mut set = Set::create(&name, cpus)?;
    set.notes()?;
    let mut load = Load {
        random: 1,
        now_ns: 1_000_000_000,
        open: BinaryHeap::new(),
    };
    while set.bytes < bytes {
        load.step(&mut set)?;
    }
    for cpu in set.cpus {
        cpu.into_inner()?.sync_all()?;
    }
    println!("{} bytes in {cpus} files", set.bytes);
    Ok(())
}

/// The files.
struct Set {
    cpus: Vec<BufWriter<File>>,
    sequences: Vec<u32>,
    bytes: u64,
    encoded: Vec<u8>,
}

impl Set {
    fn create(name: &str, cpus: u32) -> Result<Set, Box<dyn Error>> {
        let create = |cpu| File::create(format!("{name}.blktrace.{cpu}"));
        let files: std::io::Result<Vec<File>> = (0..cpus).map(create).collect();
        let cpus: Vec<BufWriter<File>> = files?.into_iter().map(BufWriter::new).collect();
        let sequences = vec![0; cpus.len()];
        Ok(Set {
            cpus,
            sequences,
            bytes: 0,
            encoded: Vec::new(),
        })
    }

    fn notes(&mut self) -> Result<(), Box<dyn Error>> {
        let mut clock = 1_700_000_000_u32.to_ne_bytes().to_vec();
        clock.extend(123_456_789_u32.to_ne_bytes());
        self.put(&note(0, Kind::WallClock, &clock))?;
        for pid in PIDS {
            let name = format!("{:\0<16}", format!("worker/{pid}"));
            self.put(&note(pid, Kind::Process, name.as_bytes()))?;
        }
        Ok(())
    }

    fn put(&mut self, record: &Record<'_>) -> Result<(), Box<dyn Error>> {
        let cpu = record.cpu as usize;
        let mut record = *record;
        if !record.action.is_note() {
            self.sequences[cpu] += 1;
            record.sequence = self.sequences[cpu];
        }
        self.encoded.clear();
        encode(&record, FORMAT, &mut self.encoded)?;
        self.bytes += self.encoded.len() as u64;
        Ok(self.cpus[cpu].write_all(&self.encoded)?)
    }
}

fn note(pid: u32, kind: Kind, pdu: &[u8]) -> Record<'_> {
    Record {
        pid,
        pdu,
        ..event(999_999_999, 0, kind, Categories::NOTE)
    }
}

fn event(time_ns: u64, cpu: u32, kind: Kind, categories: Categories) -> Record<'static> {
    Record {
        sequence: 0,
        time_ns,
        sector: 0,
        bytes: 0,
        action: Action::new(kind, categories, false),
        pid: 0,
        device: DISK,
        cpu,
        error: 0,
        cgroup: None,
        pdu: &[],
        order: ByteOrder::NATIVE,
    }
}

/// Requests that come and go.
struct Load {
    random: u64,
    now_ns: u64,
    /// By the time of their completion.
    open: BinaryHeap<Reverse<(u64, Request)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    sector: u64,
    bytes: u32,
    is_write: bool,
    pid: u32,
}

impl Load {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Completes what is due until `time_ns`.
    fn complete(&mut self, set: &mut Set, time_ns: u64) -> Result<(), Box<dyn Error>> {
        while let Some(Reverse((done_ns, request))) = self.open.peek().copied()
            && done_ns <= time_ns
        {
            self.open.pop();
            let cpu = self.random(set.cpus.len() as u64) as u32;
            let categories = Categories::COMPLETE | Categories::FS;
            set.put(&step_of(request, done_ns, cpu, Kind::Complete, categories))?;
        }
        Ok(())
    }

    /// Submits one request, and completes others in between.
    fn step(&mut self, set: &mut Set) -> Result<(), Box<dyn Error>> {
        self.now_ns += 2_000 + self.random(8_000);
        self.complete(set, self.now_ns)?;
        let request = Request {
            sector: PARTITION_START + 8 * self.random(100_000_000),
            bytes: 4096 << self.random(5),
            is_write: self.random(10) < 7,
            pid: PIDS[self.random(PIDS.len() as u64) as usize],
        };
        let cpu = self.random(set.cpus.len() as u64) as u32;
        let mut time_ns = self.now_ns;
        self.remap(set, request, time_ns, cpu)?;
        let steps = [
            (Kind::Queue, Categories::QUEUE),
            (Kind::GetRequest, Categories::QUEUE),
            (Kind::Insert, Categories::QUEUE | Categories::FS),
            (Kind::Issue, Categories::ISSUE | Categories::FS),
        ];
        for (kind, categories) in steps {
            time_ns += 150;
            self.complete(set, time_ns)?;
            set.put(&step_of(request, time_ns, cpu, kind, categories))?;
        }
        let done_ns = time_ns + 20_000 + self.random(150_000);
        self.open.push(Reverse((done_ns, request)));
        self.now_ns = time_ns;
        Ok(())
    }

    fn remap(
        &self,
        set: &mut Set,
        request: Request,
        time_ns: u64,
        cpu: u32,
    ) -> Result<(), Box<dyn Error>> {
        let mut pdu = PARTITION.0.to_be_bytes().to_vec();
        pdu.extend(DISK.0.to_be_bytes());
        pdu.extend((request.sector - PARTITION_START).to_be_bytes());
        let remap = step_of(request, time_ns, cpu, Kind::Remap, Categories::QUEUE);
        set.put(&Record { pdu: &pdu, ..remap })
    }
}

fn step_of(
    request: Request,
    time_ns: u64,
    cpu: u32,
    kind: Kind,
    categories: Categories,
) -> Record<'static> {
    let direction = if request.is_write {
        Categories::WRITE
    } else {
        Categories::READ
    };
    let pid = if kind == Kind::Complete {
        0
    } else {
        request.pid
    };
    Record {
        sector: request.sector,
        bytes: request.bytes,
        pid,
        ..event(time_ns, cpu, kind, categories | direction)
    }
}
