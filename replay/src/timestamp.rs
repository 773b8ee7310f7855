//! The wall clock, in words.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time as `YYYY-MM-DDThh:mm:ssZ`, for [`crate::result::Experiment::started`]; `None` before
/// 1970.
pub fn timestamp(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
    ))
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar. Years are counted
/// from March, so that the leap day is the last of a year.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970_FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let day = day + DAYS_TO_1970_FROM_MARCH_OF_YEAR_0;
    let (era, day) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March have 153 days, and so on.
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + carry, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timestamps_are_those_of_date_1() {
        // `date -u -d @N +%FT%TZ`
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_791_900_245, "2026-10-13T14:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(timestamp(time).as_deref(), Some(expected));
        }
    }
}
