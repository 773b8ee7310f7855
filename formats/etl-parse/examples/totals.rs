//! Reads a trace and prints how many events it holds, and how many of them are disk requests: what
//! the parser alone can do. `totals FILE`

use std::error::Error;
use std::fs::File;

use etl_parse::Reader;
use etl_parse::kernel::DiskIo;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: totals FILE")?;
    let mut trace = Reader::open(File::open(path)?)?;
    let (mut events, mut requests, mut payload_bytes) = (0u64, 0u64, 0u64);
    while let Some(event) = trace.next_event()? {
        events += 1;
        payload_bytes += event.payload.len() as u64;
        if let Some(DiskIo::Transfer(_) | DiskIo::Flush(_)) = DiskIo::parse(&event) {
            requests += 1;
        }
    }
    println!("{events} events, {requests} requests, {payload_bytes} bytes of payload");
    Ok(())
}
