//! Any bytes as an event trace log: events lie within it, each byte of a buffer is read once, and
//! every payload can be looked at.
#![no_main]

use std::io::Cursor;

use etl_parse::kernel::{DiskIo, LogDisk, PhyDisk, ProcessInfo, ThreadInfo, host_name};
use etl_parse::{Event, Reader};
use libfuzzer_sys::fuzz_target;

/// Bytes of the longest buffer that the first one allows.
const MAX_BUFFER_BYTES: u64 = 16 << 20;

fuzz_target!(|data: &[u8]| {
    let Ok(mut trace) = Reader::open(Cursor::new(data)) else {
        return;
    };
    trace
        .visit_edges(1000, &mut |event| look(event))
        .expect("memory can be read");
    let clock = *trace.clock();
    let mut payload_bytes = 0;
    while let Some(event) = trace.next_event().expect("memory can be read") {
        payload_bytes += event.payload.len() as u64;
        if let Some(ticks) = event.ticks {
            clock.since_start_ns(ticks);
        }
        look(&event);
    }
    assert!(trace.bytes_read() <= data.len() as u64);
    assert!(payload_bytes <= trace.buffers() * MAX_BUFFER_BYTES);
    assert!(trace.damage().skipped_bytes <= data.len() as u64);
});

fn look(event: &Event<'_>) {
    event.provider_name();
    DiskIo::parse(event);
    DiskIo::parse_kernel_disk(event);
    ProcessInfo::parse(event);
    ThreadInfo::parse(event);
    PhyDisk::parse(event);
    LogDisk::parse(event);
    host_name(event);
}
