//! What a file is, by its beginning.

use std::fmt::Write;
use std::path::Path;

use iotape_formats::csv::COLUMNS;
use iotape_formats::import::text::{self, TextFormat};
use iotape_formats::import::{perf_data, tracing};
use iotape_formats::tape;

use crate::exit::Failure;
use crate::render::units;

/// Most bytes that a format is found by.
pub const BYTES: usize = 4096;
/// Bytes that are shown of what is not known.
const SHOWN_BYTES: usize = 16;

const KNOWN: &str = "this project's CSV (its first line names columns such as \
    time_ns,op,offset_bytes,length_bytes), the per-CPU files of blktrace, event trace logs of Windows \
    (.etl), text of xperf's dumper, tables of wpaexporter, MSR Cambridge traces, perf.data with block events, and Linux' block events \
    as text (trace_pipe, perf script --ns)";

/// A format that can be read from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Csv,
    PerfData,
    Text(TextFormat),
    Tracing,
}

/// The format of what begins with `start`.
pub fn find(start: &[u8]) -> Option<Found> {
    if perf_data::is_perf_data(start) {
        return Some(Found::PerfData);
    }
    if tracing::is_trace(start) {
        return Some(Found::Tracing);
    }
    if let Some(format) = text::detect(start) {
        return Some(Found::Text(format));
    }
    let first = start.split(|byte| *byte == b'\n').next()?;
    let first = String::from_utf8_lossy(first);
    let mut names = first
        .trim_start_matches('\u{feff}')
        .split(',')
        .map(|name| name.trim().trim_matches('"'));
    names
        .any(|name| COLUMNS.contains(&name))
        .then_some(Found::Csv)
}

/// A folder is no trace.
pub fn directory(path: &Path) -> Failure {
    Failure::at(
        path.display(),
        format_args!(
            "is a directory; expected a file, the per-CPU files of one blktrace, or what stands before \
             .blktrace in their names. Formats that are known: {KNOWN}"
        ),
    )
}

/// What begins with `start` is none of the formats. `bytes` is its size, if that is known.
pub fn unknown(path: &Path, bytes: Option<u64>, start: &[u8]) -> Failure {
    let mut found = match bytes {
        Some(0) => "is empty".to_owned(),
        None if start.is_empty() => "is empty".to_owned(),
        Some(bytes) => format!("{} of an unknown format", units::bytes(bytes)),
        None => "of an unknown format".to_owned(),
    };
    if tape::is_tape(start) {
        found = "is a tape already: see info, edit and export".to_owned();
        return Failure::at(path.display(), found);
    }
    if !start.is_empty() {
        // Text is told as such.
        let shown = &start[..start.len().min(SHOWN_BYTES)];
        let _ = match std::str::from_utf8(shown) {
            Ok(text) if !text.contains(|char: char| char.is_control() && !char.is_whitespace()) => {
                write!(found, ", beginning with {text:?}")
            }
            _ => write!(found, ", beginning with the bytes {}", hex(shown)),
        };
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    let expected = match extension {
        Some("etl") => "; an .etl begins with a buffer of Windows' event tracing",
        Some("iotape") => "; a tape begins with other bytes, and needs no import",
        Some("csv") => "; the first line of a CSV names its columns",
        _ => "",
    };
    Failure::at(
        path.display(),
        format_args!("{found}{expected}. Formats that are known: {KNOWN}. --from names one"),
    )
}

fn hex(bytes: &[u8]) -> String {
    let all: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_found_by_its_first_line() {
        let csv = Some(Found::Csv);
        for (start, expected) in [
            (
                &b"time_ns,op,offset_bytes,length_bytes\n1,read,0,512\n"[..],
                csv,
            ),
            (b"\xef\xbb\xbf\"op\", \"time_ns\"\r\n", csv),
            (b"Zeit,op\n", csv),
            (b"PERFILE2h\0\0\0\0\0\0\0", Some(Found::PerfData)),
            (b"2ELIFREP\0\0\0\0\0\0\0h", Some(Found::PerfData)),
            (b"a,b,c\n1,2,3\n", None),
            (b"time_ns;op\n", None),
            (b"\0\0\0\0", None),
            (b"", None),
        ] {
            assert_eq!(find(start), expected, "{start:?}");
        }
    }

    #[test]
    fn what_is_unknown_is_described() {
        let said =
            |name: &str, bytes, start: &[u8]| unknown(Path::new(name), bytes, start).to_string();
        let empty = said("a.etl", Some(0), b"");
        assert!(
            empty.starts_with("a.etl: is empty; an .etl begins"),
            "{empty}"
        );
        let random = said("x", Some(2048), b"\x7fELF\x02\x01");
        assert!(
            random.contains(
                "2048 B of an unknown format, beginning with the bytes 7f 45 4c 46 02 01. Formats"
            ),
            "{random}"
        );
        let prose = said("-", None, b"Dear reader,\nthis is no trace");
        assert!(
            prose.contains(r#"beginning with "Dear reader,\nthi""#),
            "{prose}"
        );
        let tape = said("t.csv", Some(9), b"\x89IOTAPE\n\0");
        assert!(tape.starts_with("t.csv: is a tape already"), "{tape}");
    }
}
