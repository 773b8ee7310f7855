//! The view as a page: what is drawn on a screen.

use std::time::Duration;

use super::figures::{Figures, Sums};
use super::latencies::LatencyFigures;
use super::screen::{Size, Style};
use crate::render::table::{Table, fit};
use crate::render::units;

const BOLD: &str = "1";
const RED: &str = "31";

/// The lines of a page, each cut to the screen's width.
pub fn of(title: &str, figures: &Figures, size: Size, style: Style) -> Vec<String> {
    let painted = |text: &str, code: &str| paint(text, code, size.columns, style);
    let plain = |text: &str| fit(text, size.columns);
    let elapsed = units::span(Duration::from_nanos(figures.to_ns));
    let mut lines = vec![
        painted(&format!("{title}   {elapsed}   Ctrl-C ends"), BOLD),
        plain(&tape(figures)),
        match figures.lost_events_total {
            0 => plain(&losses(figures)),
            _ => painted(&losses(figures), RED),
        },
        String::new(),
    ];
    let mut tables = devices(figures, size.rows);
    tables.push((operations(figures), usize::MAX));
    for (table, rows) in tables {
        let text = table.to_string();
        let mut rows_of = text.lines().take(rows);
        lines.extend(rows_of.next().map(|head| painted(head, BOLD)));
        lines.extend(rows_of.map(plain));
        lines.push(String::new());
    }
    let text = processes(figures).to_string();
    let mut rows = text.lines();
    lines.extend(rows.next().map(|head| painted(head, BOLD)));
    lines.extend(rows.map(plain));
    lines.truncate(size.rows);
    lines
}

/// What is shown until there are figures.
pub fn before(title: &str, interval: Duration, size: Size, style: Style) -> Vec<String> {
    let soon = format!("first figures after {}", units::span(interval));
    vec![
        paint(&format!("{title}   Ctrl-C ends"), BOLD, size.columns, style),
        fit(&soon, size.columns),
    ]
}

fn paint(text: &str, code: &str, columns: usize, style: Style) -> String {
    let text = fit(text, columns);
    match style {
        Style::Plain => text,
        Style::Colored => format!("\x1b[{code}m{text}\x1b[0m"),
    }
}

fn tape(figures: &Figures) -> String {
    let Some(bytes) = figures.tape_bytes else {
        return "no tape is written".to_owned();
    };
    let rate = figures.tape_bytes_per_s.map_or(String::new(), |rate| {
        format!(", {}/s", units::bytes(rate.round() as u64))
    });
    let segments = match figures.segments {
        Some(segments @ 2..) => format!(", segment {segments}"),
        _ => String::new(),
    };
    format!("tape {}{rate}{segments}", units::bytes(bytes))
}

fn losses(figures: &Figures) -> String {
    let requests = |lost: Option<u64>| {
        lost.map_or(String::new(), |lost| {
            format!(", {} requests", units::count(lost))
        })
    };
    format!(
        "lost {} events{}; in this interval {} events{}",
        units::count(figures.lost_events_total),
        requests(figures.lost_requests_total),
        units::count(figures.lost_events),
        requests(figures.lost_requests),
    )
}

/// Tables of the devices, and how many rows of each there is room for.
fn devices(figures: &Figures, rows: usize) -> Vec<(Table, usize)> {
    let mut now = Table::new([
        "now",
        "MB/s",
        "IOPS",
        "in flight",
        "depth",
        "size",
        "p50",
        "p99",
        "p99.9",
    ]);
    let mut total = Table::new([
        "latency since the start",
        "requests",
        "p50",
        "p99",
        "p99.9",
        "max",
    ]);
    // All together are only of interest if there are several.
    let all = (figures.devices.len() > 1).then_some(("all", &figures.all));
    let each = figures.devices.iter();
    let each = each.map(|device| (device.name.as_str(), &device.sums));
    for (name, sums) in all.into_iter().chain(each) {
        now.row(now_row(name, sums));
        total.row(total_row(name, sums));
    }
    // A third of the screen for each, so that operations and processes have room.
    let room = (rows / 3).saturating_sub(2).max(2);
    vec![(now, room), (total, room)]
}

fn now_row(name: &str, sums: &Sums) -> [String; 9] {
    let or_dash =
        |value: Option<f64>, shown: fn(f64) -> String| value.map_or("-".to_owned(), shown);
    let [p50, p99, p99_9] = percentiles(sums.latency_ns.as_ref());
    [
        fit(name, 16),
        or_dash(sums.throughput_mb_s, units::significant),
        or_dash(sums.iops, |iops| units::count(iops.round() as u64)),
        sums.in_flight.map_or("-".to_owned(), units::count),
        or_dash(sums.mean_depth, units::significant),
        or_dash(sums.mean_request_bytes, |bytes| {
            units::bytes(bytes.round() as u64)
        }),
        p50,
        p99,
        p99_9,
    ]
}

fn total_row(name: &str, sums: &Sums) -> [String; 6] {
    let latency = sums.latency_total_ns.as_ref();
    let [p50, p99, p99_9] = percentiles(latency);
    [
        fit(name, 16),
        latency.map_or("-".to_owned(), |latency| units::count(latency.count)),
        p50,
        p99,
        p99_9,
        latency.map_or("-".to_owned(), |latency| units::nanos(latency.max as f64)),
    ]
}

fn percentiles(latency: Option<&LatencyFigures>) -> [String; 3] {
    match latency {
        Some(latency) => {
            [latency.p50, latency.p99, latency.p99_9].map(|value| units::nanos(value as f64))
        }
        None => [(); 3].map(|()| "-".to_owned()),
    }
}

fn operations(figures: &Figures) -> Table {
    let mut table = Table::new(["operation", "requests", "share", "bytes"]);
    for (op, totals) in &figures.all.by_op {
        table.row([
            (*op).to_owned(),
            units::count(totals.requests),
            units::percent(totals.requests, figures.all.requests),
            units::bytes(totals.bytes),
        ]);
    }
    table
}

fn processes(figures: &Figures) -> Table {
    let mut table = Table::new(["process", "pid", "MB/s", "requests", "share"]);
    let seconds = figures.length_ns() as f64 / 1e9;
    for process in &figures.processes {
        let rate = process.bytes as f64 / 1e6 / seconds;
        table.row([
            fit(&process.name, 20),
            process.pid.to_string(),
            match figures.all.iops {
                Some(_) => units::significant(rate),
                None => "-".to_owned(),
            },
            units::count(process.requests),
            units::percent(process.bytes, figures.all.bytes),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::figures::History;
    use super::super::testing::{gathered, watched};
    use super::*;

    fn page(columns: usize, rows: usize, style: Style) -> Vec<String> {
        let figures = History::new(watched(&["sda", "sdb"])).take(&gathered(1_000));
        of("iotape record", &figures, Size { columns, rows }, style)
    }

    #[test]
    fn a_page_has_devices_operations_and_processes() {
        let text = page(80, 40, Style::Plain).join("\n");
        assert!(!text.contains('\x1b') && !text.contains('\u{9b}'), "{text}");
        let row = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(name)).unwrap();
            row.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            row("lost"),
            "lost 7 events, 3 requests; in this interval 7 events, 3 requests"
        );
        assert_eq!(row("all"), "all 0.02 5 5 0.50 5120 B 100 ms 200 ms 200 ms");
        assert_eq!(row("sda"), "sda 0.01 4 2 0.30 4096 B 100 ms 100 ms 100 ms");
        assert_eq!(row("read"), "read 3 60.0 % 12.0 KiB");
        assert_eq!(row("fi"), "fi\u{fffd}o\u{fffd} 7 0.02 5 100.0 %");
    }

    #[test]
    fn it_fits_the_screen() {
        for (columns, rows) in [(1, 1), (20, 5), (40, 10), (80, 24), (300, 100)] {
            let lines = page(columns, rows, Style::Plain);
            assert!(lines.len() <= rows);
            let longest = lines.iter().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{columns}: {lines:?}");
        }
        let colored = page(20, 5, Style::Colored);
        assert_eq!(colored[0], "\x1b[1miotape record   1.0…\x1b[0m");
        assert!(colored[2].starts_with("\x1b[31m"));
    }
}
