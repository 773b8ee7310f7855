//! Writes a trace like a kernel session's, of any size, to measure readers with:
//! `synthesize FILE BYTES [COMPRESSION [OTHERS [BUFFER]]]`, compressions: none, xpress, huffman, lznt1.
//!
//! The load is made up: random reads and writes of 4 to 64 KiB and some flushes from a few processes,
//! on average 16 outstanding, on eight processors. Each request has an Init and a completion, as
//! with DISK_IO and DISK_IO_INIT, and OTHERS context switches beside it (0 when left out: a trace of
//! disk events alone). Buffers are of BUFFER bytes, 64 KiB when left out; the size is meant before
//! compression.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

use etl_parse::encode::{Encoder, payload, usual_header};
use etl_parse::kernel::{
    DiskFlush, DiskInit, DiskTransfer, PhyDisk, ProcessInfo, Response, ThreadInfo, hook,
};
use etl_parse::{Compression, Event, EventId, HeaderKind, LogHeader, PointerWidth};

const WIDTH: PointerWidth = PointerWidth::Bits64;
const PROCESSORS: u64 = 8;
const OUTSTANDING: usize = 16;
const PIDS: [u32; 5] = [4, 812, 1044, 2210, 30_148];
const CONTEXT_SWITCH: u16 = 0x0524;
/// Bytes of an Init, a completion and a context switch with their headers, rounded up to 8.
const REQUEST_BYTES: u64 = 48 + 72;
const SWITCH_BYTES: u64 = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: synthesize FILE BYTES [none|xpress|huffman|lznt1 [OTHERS [BUFFER]]]";
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or(usage)?;
    let bytes: u64 = args.next().ok_or(usage)?.parse()?;
    let compression = match args.next().as_deref() {
        None | Some("none") => None,
        Some("xpress") => Some(Compression::Xpress),
        Some("huffman") => Some(Compression::XpressHuffman),
        Some("lznt1") => Some(Compression::Lznt1),
        Some(_) => return Err(usage.into()),
    };
    let others: u64 = args.next().map_or(Ok(0), |others| others.parse())?;
    let buffer_size = args.next().map_or(Ok(64 << 10), |bytes| bytes.parse())?;
    let header = LogHeader {
        buffer_size,
        processors: PROCESSORS as u32,
        ..usual_header()
    };
    let sink = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    let mut load = Load {
        trace: Encoder::start(sink, &header, compression)?,
        random: 1,
        now: header.start_ticks + 1000,
        open: BinaryHeap::new(),
        requests: 0,
    };
    load.people()?;
    let per_request = REQUEST_BYTES + others * SWITCH_BYTES;
    while load.requests * per_request < bytes {
        load.step()?;
        for _ in 0..others {
            load.switch()?;
        }
    }
    load.drain()?;
    load.disk()?;
    let requests = load.requests;
    load.trace.finish()?.into_inner()?.sync_all()?;
    println!(
        "{requests} requests in {} bytes",
        std::fs::metadata(&path)?.len()
    );
    Ok(())
}

/// A request that is not done; the earliest completion is the greatest.
type Open = Reverse<(i64, u64, i64)>;

struct Load {
    trace: Encoder<BufWriter<File>>,
    random: u64,
    now: i64,
    open: BinaryHeap<Open>,
    requests: u64,
}

impl Load {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % below
    }

    fn push(
        &mut self,
        kind: HeaderKind,
        hook: u16,
        version: u8,
        pid: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let processor = self.random(PROCESSORS) as u16;
        self.trace.push(&Event {
            kind,
            id: EventId::Kernel { hook },
            version,
            ticks: Some(self.now),
            processor,
            process_id: Some(pid),
            thread_id: Some(pid + 4),
            pointers: WIDTH,
            payload,
            extended: &[],
        })
    }

    /// A request begins, after those that are done before.
    fn step(&mut self) -> std::io::Result<()> {
        while self.open.len() >= OUTSTANDING {
            self.complete()?;
        }
        self.now += 1 + self.random(40) as i64;
        let number = self.requests;
        self.requests += 1;
        let init = DiskInit {
            irp: 0xffff_fa80_0000_0000 + number % 64 * 0x200,
            thread_id: Some(8),
        };
        let pid = PIDS[(number % PIDS.len() as u64) as usize];
        let hook = match number {
            _ if number.is_multiple_of(64) => hook::DISK_FLUSH_INIT,
            _ if number.is_multiple_of(3) => hook::DISK_WRITE_INIT,
            _ => hook::DISK_READ_INIT,
        };
        self.push(
            HeaderKind::System,
            hook,
            3,
            pid,
            &payload::disk_init(&init, 3, WIDTH),
        )?;
        let done = self.now + 100 + self.random(600) as i64;
        self.open.push(Reverse((done, number, self.now)));
        Ok(())
    }

    /// The request that is done first.
    fn complete(&mut self) -> std::io::Result<()> {
        let Some(Reverse((done, number, issued))) = self.open.pop() else {
            return Ok(());
        };
        self.now = self.now.max(done);
        let irp = 0xffff_fa80_0000_0000 + number % 64 * 0x200;
        let response = Response::PerfTicks((self.now - issued).unsigned_abs());
        if number.is_multiple_of(64) {
            let flush = DiskFlush {
                disk: 0,
                irp_flags: 0,
                irp,
                response,
                thread_id: Some(8),
            };
            let payload = payload::disk_flush(&flush, 3, WIDTH);
            return self.push(HeaderKind::PerfInfo, hook::DISK_FLUSH, 3, 0, &payload);
        }
        let is_write = number.is_multiple_of(3);
        let transfer = DiskTransfer {
            is_write,
            disk: 0,
            irp_flags: 0x6_0043,
            bytes: 4096 << self.random(5),
            offset: 4096 * self.random(1 << 28),
            file_object: 0xffff_f8a0_0000_0000 + self.random(1000) * 64,
            irp: Some(irp),
            response,
            thread_id: Some(8),
        };
        let hook = if is_write {
            hook::DISK_WRITE
        } else {
            hook::DISK_READ
        };
        let payload = payload::disk_transfer(&transfer, 3, WIDTH);
        self.push(HeaderKind::PerfInfo, hook, 3, 0, &payload)
    }

    fn drain(&mut self) -> std::io::Result<()> {
        while !self.open.is_empty() {
            self.complete()?;
        }
        Ok(())
    }

    fn switch(&mut self) -> std::io::Result<()> {
        self.now += self.random(3) as i64;
        let mut payload = [0; 24];
        payload[..4].copy_from_slice(&(self.random(5000) as u32).to_le_bytes());
        self.push(HeaderKind::PerfInfo, CONTEXT_SWITCH, 4, 0, &payload)
    }

    fn people(&mut self) -> std::io::Result<()> {
        for pid in PIDS {
            let process = ProcessInfo {
                process_id: pid,
                image: format!("server{pid}.exe"),
                is_end: false,
            };
            let thread = ThreadInfo {
                thread_id: pid + 4,
                process_id: pid,
            };
            let (start, rundown) = (hook::PROCESS_RUNDOWN_START, hook::THREAD_RUNDOWN_START);
            let kind = HeaderKind::PerfInfo;
            self.push(kind, start, 4, 0, &payload::process(&process, 4, WIDTH))?;
            self.push(kind, rundown, 3, 0, &payload::thread(&thread, 3, WIDTH))?;
        }
        Ok(())
    }

    fn disk(&mut self) -> std::io::Result<()> {
        let disk = PhyDisk {
            disk: 0,
            sector_bytes: 512,
            sectors_per_track: 63,
            tracks_per_cylinder: 255,
            cylinders: 133_674,
            address: None,
            model: "Made up".to_owned(),
            partitions: 1,
            write_cache: true,
        };
        let payload = payload::phy_disk(&disk, WIDTH);
        self.push(HeaderKind::System, hook::PHY_DISK, 2, 0, &payload)
    }
}
