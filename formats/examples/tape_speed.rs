//! Measures a tape: bytes per request, and how fast it is encoded and decoded on one core.
//!
//! `cargo run --release -p iotape-formats --example tape_speed -- FILE.csv`, where the columns are those of
//! `iotape export --to csv`, or `time_ns,dev,cpu,pid,comm,rwbs,sector,nr_sectors,latency_ns`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Cursor};
use std::time::{Duration, Instant};

use iotape_formats::tape::{Block, Columns, Device, Header, Level, TapeReader, TapeWriter};
use iotape_formats::{DeviceIndex, Flags, Op, Process, Request};

/// Each measurement runs this often; the best counts.
const ROUNDS: u32 = 7;
/// Speed is measured on at least so many requests: the file's, one round behind the other.
const SPEED_REQUESTS: usize = 2_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("which CSV?")?;
    let requests = load(BufReader::new(std::fs::File::open(path)?))?;
    let levels = std::env::args().nth(2).unwrap_or("live,archive".into());
    println!("{} requests", requests.len());
    for (name, level) in [("live", Level::Live), ("archive", Level::Archive)] {
        if levels.contains(name) {
            measure(name, level, &requests)?;
        }
    }
    Ok(())
}

fn measure(name: &str, level: Level, requests: &[Request]) -> Result<(), Box<dyn Error>> {
    let tape = encode(level, requests)?;
    println!(
        "{name}: {:.3} bytes/request",
        tape.len() as f64 / requests.len() as f64
    );
    let requests = if level == Level::Live {
        repeated(requests)
    } else {
        requests.to_vec()
    };
    let rate = |time: Duration| requests.len() as f64 / time.as_secs_f64() / 1e6;
    let mut tape = Vec::new();
    let rounds = if level == Level::Live { ROUNDS } else { 1 };
    let time = best(rounds, || {
        tape = encode(level, &requests)?;
        Ok(())
    })?;
    println!("  encoded at {:.2} M requests/s", rate(time));
    let selections = [
        ("core", Columns::CORE),
        ("core + latency", Columns::CORE | Columns::LATENCY),
        ("all", Columns::ALL),
    ];
    for (what, columns) in selections {
        let mut read = 0;
        let mut reader = TapeReader::open(Cursor::new(&tape))?;
        reader.select(columns);
        let mut block = Block::new();
        let time = best(ROUNDS, || {
            reader.rewind();
            read = 0;
            while reader.next_block(&mut block)? {
                read += block.len();
            }
            Ok(())
        })?;
        println!("  {what}: {read} decoded at {:.1} M requests/s", rate(time));
    }
    Ok(())
}

fn best(
    rounds: u32,
    mut work: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let start = Clock::now();
        work()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Time on the processor, which other load does not count in; on the wall where the system does
/// not tell.
struct Clock {
    wall: Instant,
    processor: Option<Duration>,
}

impl Clock {
    fn now() -> Clock {
        Clock {
            wall: Instant::now(),
            processor: on_processor(),
        }
    }

    fn elapsed(&self) -> Duration {
        let processor = on_processor()
            .zip(self.processor)
            .map(|(now, start)| now - start);
        processor.unwrap_or_else(|| self.wall.elapsed())
    }
}

/// How long this thread has run so far.
fn on_processor() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
}

/// The requests again and again, each round later than the one before.
fn repeated(requests: &[Request]) -> Vec<Request> {
    let span = requests
        .iter()
        .map(|request| request.time_ns)
        .max()
        .unwrap_or(0)
        + 1_000_000;
    let rounds = SPEED_REQUESTS.div_ceil(requests.len().max(1)) as u64;
    let later = |round: u64| {
        move |request: &Request| Request {
            time_ns: request.time_ns + round * span,
            ..request.clone()
        }
    };
    (0..rounds)
        .flat_map(|round| requests.iter().map(later(round)))
        .collect()
}

fn encode(level: Level, requests: &[Request]) -> Result<Vec<u8>, Box<dyn Error>> {
    let devices = requests
        .iter()
        .map(|request| request.device.0)
        .max()
        .unwrap_or(0);
    let device = |index| Device {
        index: DeviceIndex(index),
        name: format!("disk{index}"),
        ..Device::default()
    };
    let devices: Vec<Device> = (0..=devices).map(device).collect();
    let mut writer = TapeWriter::create(Vec::new(), &Header::default(), &devices, level)?;
    for request in requests {
        writer.push(request)?;
    }
    Ok(writer.finish()?.0)
}

fn load(input: impl BufRead) -> Result<Vec<Request>, Box<dyn Error>> {
    let mut lines = input.lines();
    let header = lines.next().ok_or("empty file")??;
    let names: BTreeMap<&str, usize> = header
        .split(',')
        .enumerate()
        .map(|(at, name)| (name, at))
        .collect();
    let mut devices: Vec<String> = Vec::new();
    let mut requests = Vec::new();
    for line in lines {
        let line = line?;
        let fields: Vec<&str> = line.split(',').collect();
        let text = |name: &str| {
            names
                .get(name)
                .and_then(|at| fields.get(*at))
                .copied()
                .unwrap_or("")
        };
        let number = |name: &str| text(name).parse::<u64>().ok();
        let name = if text("device").is_empty() {
            text("dev")
        } else {
            text("device")
        };
        let device = devices
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                devices.push(name.to_owned());
                devices.len() - 1
            });
        let (op, flags) = match text("op") {
            "" => rwbs(text("rwbs")),
            op => (op.parse()?, text("flags").parse()?),
        };
        let process = if text("comm").is_empty() {
            text("process")
        } else {
            text("comm")
        };
        let sectors = |name: &str| number(name).map(|sectors| sectors * 512);
        requests.push(Request {
            time_ns: number("time_ns").ok_or("no time_ns")?,
            device: DeviceIndex(device as u16),
            op,
            flags,
            offset_bytes: number("offset_bytes").or(sectors("sector")).unwrap_or(0),
            length_bytes: number("length_bytes")
                .or(sectors("nr_sectors"))
                .unwrap_or(0),
            latency_ns: number("latency_ns"),
            queue_ns: number("queue_ns"),
            process: number("pid").map(|pid| Process {
                pid: pid as u32,
                name: process.into(),
            }),
            cgroup: None,
            file: None,
            cpu: number("cpu").map(|cpu| cpu as u32),
            error: number("error").map(|error| error as u32),
        });
    }
    Ok(requests)
}

/// Operation and flags of a kernel's `rwbs` text.
fn rwbs(text: &str) -> (Op, Flags) {
    let has = |letter: char| text.contains(letter);
    let op = match text.trim_start_matches('F').chars().next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        Some('D') => Op::Discard,
        _ => Op::Flush,
    };
    let flag = |on: bool, flag: Flags| if on { flag } else { Flags::NONE };
    let flags = flag(has('S'), Flags::SYNC)
        | flag(has('M'), Flags::META)
        | flag(has('A'), Flags::READAHEAD)
        | flag(text.starts_with('F') && op != Op::Flush, Flags::PREFLUSH)
        | flag(text.len() > 1 && text[1..].contains('F'), Flags::FUA);
    (op, flags)
}
