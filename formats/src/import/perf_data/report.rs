//! What an import met, for the user.

use super::records::Damage;
use crate::import::warn_of_counts;
use crate::tape::Summary;

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The tape's totals.
    pub summary: Summary,
    /// Records read, of all kinds.
    pub records: u64,
    /// Block events among them.
    pub events: u64,
    /// Submissions among these: `block_bio_queue`.
    pub queued: u64,
    /// Issues among these: `block_rq_issue`.
    pub issued: u64,
    /// Samples of other tracepoints and counters, which are left out.
    pub other_samples: u64,
    /// Records that contradict their layout. They are left out.
    pub malformed: u64,
    /// Events that are older than ones that had left for the tape.
    pub late_events: u64,
    /// Block tracepoints that were described without what is needed, and what that is. Their events are
    /// left out.
    pub unusable: Vec<String>,
    /// What was no record.
    pub damage: Damage,
}

impl Report {
    /// Whether something is missing from the tape that the traced system did.
    pub fn is_flawed(&self) -> bool {
        self.summary.counters.lost_events > 0
            || self.malformed > 0
            || !self.unusable.is_empty()
            || !self.damage.is_none()
    }

    /// What the user should know besides the totals; a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let damage = &self.damage;
        let mut warnings: Vec<String> = self
            .unusable
            .iter()
            .map(|what| format!("tracepoint {what}; its events are left out"))
            .collect();
        if self.summary.requests == 0 {
            let (queued, issued) = (self.queued, self.issued);
            warnings.push(format!(
                "no request at this layer: --layer device needs block_rq_issue, of which there are {issued}, \
                 --layer queue needs block_bio_queue, of which there are {queued}"
            ));
        }
        if let Some(offset) = damage.first_offset {
            warnings.push(format!(
                "{} bytes are no records, the first at byte {offset}",
                damage.skipped_bytes
            ));
        }
        let counts = [
            (
                self.summary.counters.lost_events,
                "events were lost by the recorder",
            ),
            (
                self.malformed,
                "records contradict their layout and are left out",
            ),
            (
                self.late_events,
                "events are older than the ones before them",
            ),
            (damage.torn_bytes, "bytes of a record that the file ends in"),
            (
                damage.missing_bytes,
                "bytes of records are missing at the end of the file",
            ),
            (
                damage.bad_pieces,
                "compressed records cannot be decompressed and are left out",
            ),
        ];
        warn_of_counts(&mut warnings, &counts);
        warnings
    }
}
