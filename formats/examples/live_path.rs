//! Measures what a recorder does to each request, stage by stage, in processor time of one core.
//!
//! `cargo run --release -p iotape-formats --example live_path -- TAPE...`
//!
//! The tape's requests become the tracepoint records that a kernel would have written for them. Then
//! *decode* reads the records, *pairing* makes requests of the events and puts them in order,
//! *encode* makes a tape of the requests. A peer runs in the same minute: `zstd -1` of the
//! requests as fixed rows of 69 bytes, the form that the tape's id is made of.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use iotape_formats::event::{Event, Step};
use iotape_formats::pairing::{DeviceRules, Limits, Pairing};
use iotape_formats::tape::{Block, Device, Header, Layer, Level, TapeReader, TapeWriter};
use iotape_formats::tracepoint::BlockTracepoint;
use iotape_formats::{Flags, Op, Request};

/// Each stage runs this often; the best counts.
const ROUNDS: usize = 7;
/// Most requests of a tape that are taken.
const REQUESTS: usize = 1_000_000;
/// Encoding is measured on at least so many requests, the tape's again and again: an encoder looks for
/// the best plan now and then, most of all at the start.
const ENCODED: usize = 4_000_000;
/// Events after which the recorder lets requests out: a quarter of a ring of 4 MiB.
const RELEASE_EVERY: usize = 8192;
const SECTOR_BYTES: u64 = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        return Err("which TAPE?".into());
    }
    println!("ns per request, best of {ROUNDS} (encode: mean), processor time of one thread");
    println!(
        "{:<24} {:>9} {:>7} {:>8} {:>7} {:>8} {:>9} {:>9}",
        "tape", "requests", "decode", "pairing", "encode", "zstd -1", "bytes", "zstd -1"
    );
    for path in paths {
        measure(&path)?;
    }
    Ok(())
}

fn measure(path: &str) -> Result<(), Box<dyn Error>> {
    let (devices, requests) = load(path)?;
    let layouts = Layouts::new()?;
    let records = records(&devices, &requests);
    let encoded: Vec<Vec<u8>> = records.iter().map(|event| layouts.encode(event)).collect();
    let mut read = 0;
    let decode = best(|| {
        read = 0;
        for (event, record) in records.iter().zip(&encoded) {
            read += usize::from(layouts.of(event.step).decode(record).is_some());
        }
        Ok(())
    })?;
    if read != records.len() {
        return Err(format!("{path}: {read} of {} records were read", records.len()).into());
    }
    let pairing = best(|| {
        pair(&devices, &records, |requests| _ = black_box(requests));
        Ok(())
    })?;
    let mut paired = Vec::new();
    pair(&devices, &records, |requests| {
        paired.extend_from_slice(requests);
    });
    let (encode, tape) = encode(&devices, &mut paired)?;
    let rows: Vec<u8> = paired.iter().flat_map(row).collect();
    let mut packed = Vec::new();
    let peer = best(|| {
        packed = zstd::bulk::compress(&rows, 1)?;
        Ok(())
    })?;
    let each = |time: Duration| time.as_nanos() as f64 / paired.len() as f64;
    let bytes = |bytes: usize| bytes as f64 / paired.len() as f64;
    let name = path.rsplit('/').next().unwrap_or(path);
    println!(
        "{name:<24} {:>9} {:>7.0} {:>8.0} {:>7.0} {:>8.0} {:>9.2} {:>9.2}",
        paired.len(),
        each(decode),
        each(pairing),
        encode,
        each(peer),
        tape,
        bytes(packed.len()),
    );
    Ok(())
}

fn load(path: &str) -> Result<(Vec<Device>, Vec<Request>), Box<dyn Error>> {
    let mut reader = TapeReader::open(File::open(path)?)?;
    let mut block = Block::new();
    let mut requests = Vec::new();
    while requests.len() < REQUESTS && reader.next_block(&mut block)? {
        requests.extend(block.requests());
    }
    requests.truncate(REQUESTS);
    Ok((reader.devices().to_vec(), requests))
}

/// What the kernel reports for the requests, in the order of time.
fn records(devices: &[Device], requests: &[Request]) -> Vec<Event> {
    let mut events = Vec::with_capacity(3 * requests.len());
    for request in requests {
        let layer = devices
            .get(usize::from(request.device.0))
            .map(|device| device.layer);
        let event = |step, time_ns| Event {
            time_ns,
            step,
            device: request.device,
            op: request.op,
            flags: request.flags,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            cpu: request.cpu,
            error: None,
            process: None,
            cgroup: None,
        };
        let queued_ns = request
            .time_ns
            .saturating_sub(request.queue_ns.unwrap_or(0));
        events.push(Event {
            process: request.process.clone(),
            ..event(Step::Queued, queued_ns)
        });
        if layer == Some(Layer::Device) {
            events.push(event(Step::Issued, request.time_ns));
        }
        if let Some(latency_ns) = request.latency_ns {
            let done_ns = request.time_ns.saturating_add(latency_ns);
            events.push(Event {
                error: request.error,
                ..event(Step::RequestCompleted, done_ns)
            });
        }
    }
    events.sort_by_key(|event| event.time_ns);
    events
}

/// Hands on the requests as the recorder does, batch by batch in a buffer that is used again.
fn pair(devices: &[Device], events: &[Event], mut each: impl FnMut(&[Request])) {
    let rules = |device: &Device| DeviceRules {
        layer: device.layer,
        scattered_discards: false,
        single_queue: true,
        busy_at_start: false,
    };
    let rules = devices.iter().map(rules).collect();
    let mut pairing = Pairing::new(rules, Limits::default(), 0, None);
    let mut out = Vec::new();
    for batch in events.chunks(RELEASE_EVERY) {
        for event in batch {
            pairing.event(event.clone());
        }
        pairing.release(batch.last().map_or(0, |event| event.time_ns), &mut out);
        each(&out);
        out.clear();
    }
    pairing.finish(&mut out);
    each(&out);
}

/// Nanoseconds and bytes of a tape per request.
fn encode(devices: &[Device], requests: &mut [Request]) -> Result<(f64, f64), Box<dyn Error>> {
    let last_ns = requests
        .iter()
        .map(|request| request.time_ns)
        .max()
        .unwrap_or(0);
    // Whole seconds, so that times stay as even as they are.
    let span_ns = (last_ns / 1_000_000_000 + 1) * 1_000_000_000;
    let rounds = ENCODED.div_ceil(requests.len().max(1));
    let mut writer = TapeWriter::create(Counted(0), &Header::default(), devices, Level::Live)?;
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let clock = Clock::start();
        for request in requests.iter() {
            writer.push(request)?;
        }
        spent += clock.spent();
        for request in requests.iter_mut() {
            request.time_ns += span_ns;
        }
    }
    let (Counted(bytes), _) = writer.finish()?;
    let encoded = (rounds * requests.len()) as f64;
    Ok((spent.as_nanos() as f64 / encoded, bytes as f64 / encoded))
}

/// A sink that counts.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request without its process's name, as bytes.
fn row(request: &Request) -> Vec<u8> {
    let mut row = Vec::with_capacity(69);
    row.extend_from_slice(&[0, 0, request.op.number()]);
    row.extend_from_slice(&request.device.0.to_le_bytes());
    row.extend_from_slice(&request.flags.bits().to_le_bytes());
    for number in [
        request.time_ns,
        request.offset_bytes,
        request.length_bytes,
        request.latency_ns.unwrap_or(0),
        request.queue_ns.unwrap_or(0),
        request.cgroup.unwrap_or(0),
    ] {
        row.extend_from_slice(&number.to_le_bytes());
    }
    let pid = request.process.as_ref().map_or(0, |process| process.pid);
    for number in [pid, request.cpu.unwrap_or(0), request.error.unwrap_or(0)] {
        row.extend_from_slice(&number.to_le_bytes());
    }
    row
}

/// Layouts of the tracepoints' records, as Linux 6.18 has them.
struct Layouts {
    queued: BlockTracepoint,
    issued: BlockTracepoint,
    completed: BlockTracepoint,
}

const DEV_AT: usize = 8;
const SECTOR_AT: usize = 16;
const SECTORS_AT: usize = 24;

impl Layouts {
    fn new() -> Result<Layouts, Box<dyn Error>> {
        let common = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n";
        let queued = "\tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;
\tfield:char comm[16];\toffset:38;\tsize:16;\tsigned:0;\n";
        let issued = "\tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
\tfield:char comm[16];\toffset:44;\tsize:16;\tsigned:0;\n";
        let completed = "\tfield:int error;\toffset:28;\tsize:4;\tsigned:1;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";
        let layout = |step, id: u16, fields: &str| {
            BlockTracepoint::parse(step, &format!("ID: {id}\n{common}{fields}"))
        };
        Ok(Layouts {
            queued: layout(Step::Queued, 1, queued)?,
            issued: layout(Step::Issued, 2, issued)?,
            completed: layout(Step::RequestCompleted, 3, completed)?,
        })
    }

    fn of(&self, step: Step) -> &BlockTracepoint {
        match step {
            Step::Queued => &self.queued,
            Step::Issued => &self.issued,
            _ => &self.completed,
        }
    }

    fn encode(&self, event: &Event) -> Vec<u8> {
        let mut record = vec![0; 64];
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.of(event.step).id().to_ne_bytes());
        put(
            DEV_AT,
            &(7u32 << 20 | u32::from(event.device.0)).to_ne_bytes(),
        );
        put(
            SECTOR_AT,
            &(event.offset_bytes / SECTOR_BYTES).to_ne_bytes(),
        );
        put(
            SECTORS_AT,
            &((event.length_bytes / SECTOR_BYTES) as u32).to_ne_bytes(),
        );
        let rwbs_at = if event.step == Step::Queued { 28 } else { 34 };
        put(rwbs_at, rwbs(event.op, event.flags).as_bytes());
        if let Some(process) = &event.process {
            put(38, &process.name.as_bytes()[..process.name.len().min(15)]);
        }
        record
    }
}

/// The kernel's short notation.
fn rwbs(op: Op, flags: Flags) -> String {
    let mut text = String::new();
    let operation = match op {
        Op::Read => "R",
        Op::Write => "W",
        Op::Flush => "FF",
        Op::Discard => "D",
        Op::WriteZeroes => "WZ",
        Op::ZoneAppend => "ZA",
        Op::ZoneReset => "ZR",
        Op::Other => "N",
    };
    if flags.contains(Flags::PREFLUSH) && op != Op::Flush {
        text.push('F');
    }
    text.push_str(operation);
    let letters = [
        (Flags::FUA, 'F'),
        (Flags::READAHEAD, 'A'),
        (Flags::SYNC, 'S'),
        (Flags::META, 'M'),
        (Flags::ATOMIC, 'U'),
    ];
    text.extend(
        letters
            .iter()
            .filter(|(flag, _)| flags.contains(*flag))
            .map(|(_, letter)| letter),
    );
    text
}

fn best(mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let clock = Clock::start();
        work()?;
        best = best.min(clock.spent());
    }
    Ok(best)
}

/// Time on the processor; on the wall where the system does not tell.
struct Clock {
    wall: Instant,
    processor: Option<Duration>,
}

impl Clock {
    fn start() -> Clock {
        Clock {
            wall: Instant::now(),
            processor: on_processor(),
        }
    }

    fn spent(&self) -> Duration {
        let spent = on_processor()
            .zip(self.processor)
            .map(|(now, start)| now - start);
        spent.unwrap_or_else(|| self.wall.elapsed())
    }
}

/// How long this thread has run so far, which other load does not count in; `None` where the system
/// does not tell.
fn on_processor() -> Option<Duration> {
    // The system adds up at every tick, and when a thread gives way.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
}
