//! Numbers with their units, as people read them. MB/s is 10^6 bytes a second.

use std::time::Duration;

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `4096 B`, `64.0 KiB`, `1.50 GiB`: binary units, three significant digits.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 10_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", significant(value), UNITS[unit])
}

/// `850 ns`, `12.3 µs`, `4.56 ms`, `78.9 s`: three significant digits.
pub fn nanos(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 999.5 => return format!("{n:.0} ns"),
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", significant(value))
}

/// `12.3 s`, `4 m 05 s`, `2 h 13 m`: for how long something lasted.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => nanos(duration.as_nanos() as f64),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// `95.3 %`; an empty whole gives `-`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", part as f64 / whole as f64 * 100.0)
    }
}

/// Three significant digits, no exponent.
pub fn significant(value: f64) -> String {
    match value.abs() {
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        let shown = [0, 999, 1000, 1_234_567].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn bytes_are_binary_with_three_digits() {
        let shown = [4096, 65_536, 1_610_612_736, u64::MAX].map(bytes);
        assert_eq!(shown, ["4096 B", "64.0 KiB", "1.50 GiB", "16.0 EiB"]);
    }

    #[test]
    fn times_keep_three_digits_across_units() {
        let shown = [0.0, 999.0, 999.6, 12_345.0, 999_600.0, 4_560_000.0, 78.9e9].map(nanos);
        assert_eq!(
            shown,
            [
                "0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.00 ms", "4.56 ms", "78.9 s"
            ]
        );
    }

    #[test]
    fn spans_grow_from_nanoseconds_to_days() {
        let shown = [12.3, 245.0, 7980.0, 200_000.0].map(|s| span(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["12.3 s", "4 m 05 s", "2 h 13 m", "2 d 07 h"]);
    }
}
