//! What an import met, for the user.

use etl_parse::{Damage, Losses};

use super::storports::StorPortCounts;
use crate::import::warn_of_counts;
use crate::tape::Summary;

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tape's totals.
    pub summary: Summary,
    /// Events read, of all kinds.
    pub events: u64,
    /// What was no event.
    pub damage: Damage,
    /// What the session lost.
    pub losses: Losses,
    /// Events whose header contradicts their length, and disk events that contradict themselves.
    /// They are left out.
    pub malformed: u64,
    /// Requests that do not say, or not believably, how long they took.
    pub without_latency: u64,
    /// Requests that were issued before the tape's zero.
    pub before_zero: u64,
    /// Requests that began and were not seen to end: an Init event does not say where they went,
    /// so that they are left out.
    pub unfinished: u64,
    /// Init events that agree with the time of issue of their completions.
    pub inits_agreed: u64,
    /// Init events that do not, by more than a millisecond: they were not used.
    pub inits_contradicted: u64,
    /// Disk events of a second source, which tells of the same requests. They are left out.
    pub other_source: u64,
    /// Requests whose file has a name in the tape, if names were asked for.
    pub named_files: u64,
    /// Reads and writes whose file the trace does not name, if names were asked for.
    pub unnamed_files: u64,
    /// Requests of more disks than are believed. They are left out.
    pub refused: u64,
    /// What was met in the events of the port driver, if these were read.
    pub storport: StorPortCounts,
}

impl Report {
    /// Whether something is missing from the tape that the traced system did.
    pub fn is_flawed(&self) -> bool {
        self.summary.counters.lost_events > 0
            || !self.damage.is_none()
            || self.malformed > 0
            || self.storport.other_version > 0
    }

    /// What the user should know besides the totals: losses, damage, surprises; a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        self.warn_of_losses(&mut warnings);
        self.warn_of_damage(&mut warnings);
        let counts = [
            (
                self.malformed,
                "events contradict themselves and are left out",
            ),
            (self.refused, "requests of too many disks are left out"),
            (
                self.without_latency,
                "requests do not say how long they took",
            ),
            (
                self.before_zero,
                "requests were issued before the tape begins: their latency is left empty",
            ),
            (
                self.unfinished,
                "requests began and were not seen to end: where they went is not known",
            ),
            (
                self.inits_contradicted,
                "Init events contradict the times of their completions and were not used",
            ),
            (
                self.other_source,
                "disk events of a second provider tell of the same requests and are left out",
            ),
            (
                self.storport.without_place,
                "StorPort completions have no dispatch: where they went is not known, they are left out",
            ),
            (
                self.storport.other_commands,
                "StorPort commands neither read, write nor flush and are left out",
            ),
            (
                self.storport.failed,
                "requests failed at the device; the trace does not tell an error of Windows",
            ),
            (
                self.storport.other_version,
                "StorPort events are of a version whose layout is not known (2 is) and are left out",
            ),
        ];
        warn_of_counts(&mut warnings, &counts);
        warnings
    }

    fn warn_of_losses(&self, warnings: &mut Vec<String>) {
        let Losses {
            events,
            buffers,
            missing_numbers,
            flagged_buffers,
            ..
        } = self.losses;
        if events > 0 {
            warnings.push(format!("the session lost {events} events"));
        }
        if buffers > 0 {
            warnings.push(format!("the session lost {buffers} buffers"));
        }
        if missing_numbers > 0 {
            warnings.push(format!(
                "{missing_numbers} buffers are missing by their numbers; how many events they held is \
                 not known"
            ));
        }
        if flagged_buffers > 0 && events == 0 && buffers == 0 {
            warnings.push(format!(
                "{flagged_buffers} buffers say that events were lost before them; the trace's header \
                 does not: the session may not have ended"
            ));
        }
    }

    fn warn_of_damage(&self, warnings: &mut Vec<String>) {
        let damage = &self.damage;
        if damage.skipped_bytes > 0 {
            let first = damage.regions.first().map_or(0, |region| region.offset);
            warnings.push(format!(
                "{} bytes are no buffers, the first at byte {first}",
                damage.skipped_bytes
            ));
        }
        if let Some(torn) = damage.torn_tail {
            warnings.push(format!(
                "the file ends inside the buffer at byte {}, after {} bytes of it",
                torn.offset, torn.bytes
            ));
        }
        if damage.bad_events > 0 {
            warnings.push(format!(
                "{} bytes in {} buffers are no events",
                damage.bad_event_bytes, damage.bad_events
            ));
        }
        let counts = [
            (damage.wrong_sizes, "buffers have a wrong size"),
            (
                damage.wrong_offsets,
                "buffers have an impossible end of used bytes",
            ),
            (
                damage.bad_compression,
                "compressed buffers are damaged; what could be decoded of them is kept",
            ),
            (
                damage.refused_buffers,
                "buffers are of too many processors or too large at once, and are left out",
            ),
            (
                damage.out_of_order,
                "events are older than the one before them",
            ),
        ];
        warn_of_counts(warnings, &counts);
    }
}
