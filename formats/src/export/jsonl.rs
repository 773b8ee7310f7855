//! JSON lines: one request an object, with the names and units of the CSV's columns. A value that
//! the source did not have is left out.

use std::io::{self, Write};

use serde::Serialize;

use crate::request::Request;

#[derive(Serialize)]
struct Row<'a> {
    time_ns: u64,
    device: &'a str,
    op: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    flags: String,
    offset_bytes: u64,
    length_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<u64>,
}

/// Writes a request as one line; `device` is the name of its device.
///
/// # Errors
/// When the sink fails.
pub fn write(sink: &mut impl Write, request: &Request, device: &str) -> io::Result<()> {
    let process = request.process.as_ref();
    let row = Row {
        time_ns: request.time_ns,
        device,
        op: request.op.name(),
        flags: request.flags.to_string(),
        offset_bytes: request.offset_bytes,
        length_bytes: request.length_bytes,
        latency_ns: request.latency_ns,
        queue_ns: request.queue_ns,
        pid: process.map(|process| process.pid),
        process: process.map(|process| &*process.name),
        cgroup: request.cgroup,
        cpu: request.cpu,
        error: request.error,
        file: request.file,
    };
    serde_json::to_writer(&mut *sink, &row)?;
    sink.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Flags, Op, Process};

    #[test]
    fn a_line_has_the_names_of_the_csv_and_only_known_values() {
        let request = Request {
            time_ns: 17,
            op: Op::Write,
            flags: Flags::SYNC | Flags::FUA,
            offset_bytes: 4096,
            length_bytes: 512,
            process: Some(Process {
                pid: 42,
                name: "a \"b\"".into(),
            }),
            ..Request::default()
        };
        let mut out = Vec::new();
        write(&mut out, &request, "sda").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"time_ns\":17,\"device\":\"sda\",\"op\":\"write\",\"flags\":\"sync+fua\",\
             \"offset_bytes\":4096,\"length_bytes\":512,\"pid\":42,\"process\":\"a \\\"b\\\"\"}\n"
        );
    }
}
