//! Requests of Windows that have begun: what their Init events told.

use foldhash::{HashMap, HashMapExt};

/// Most requests that are remembered.
const MAX_OPEN: usize = 1 << 16;
/// How far an Init may be from the issue that its completion tells. Real traces have 0.03 ms at
/// most; a clock in steps of 15.6 ms needs more.
const TOLERANCE_NS: i64 = 1_000_000;
const COARSE_TOLERANCE_NS: i64 = 40_000_000;

/// What an Init event told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// When, since the start of the trace.
    pub time_ns: i64,
    pub process_id: Option<u32>,
    pub processor: Option<u16>,
}

/// Open requests by the address of their packet.
#[derive(Debug)]
pub(super) struct Inits {
    open: HashMap<u64, Init>,
    tolerance_ns: i64,
    /// Inits whose completion never came: their packet was used again, or the trace ended.
    pub unfinished: u64,
    /// Inits that contradict their completions' times.
    pub contradicted: u64,
    /// Inits that were not remembered.
    pub forgotten: u64,
    /// Inits that agreed.
    pub agreed: u64,
}

impl Inits {
    pub fn new(is_coarse: bool) -> Inits {
        Inits {
            open: HashMap::new(),
            tolerance_ns: match is_coarse {
                true => COARSE_TOLERANCE_NS,
                false => TOLERANCE_NS,
            },
            unfinished: 0,
            contradicted: 0,
            forgotten: 0,
            agreed: 0,
        }
    }

    /// A request begins.
    pub fn begin(&mut self, irp: u64, init: Init) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&irp) {
            self.forgotten += 1;
            return;
        }
        if self.open.insert(irp, init).is_some() {
            self.unfinished += 1;
        }
    }

    /// A request is done that was issued at `issue_ns`, if that is known.
    pub fn end(&mut self, irp: u64, issue_ns: Option<i64>) -> Option<Init> {
        let init = self.open.remove(&irp)?;
        if let Some(issue_ns) = issue_ns
            && issue_ns.saturating_sub(init.time_ns).saturating_abs() > self.tolerance_ns
        {
            // Of a request whose completion is missing.
            self.contradicted += 1;
            return None;
        }
        self.agreed += 1;
        Some(init)
    }

    /// The trace is over.
    pub fn finish(&mut self) {
        self.unfinished += self.open.len() as u64;
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(time_ns: i64) -> Init {
        Init {
            time_ns,
            process_id: Some(7),
            processor: Some(0),
        }
    }

    #[test]
    fn an_init_belongs_to_the_completion_that_it_agrees_with() {
        let mut inits = Inits::new(false);
        inits.begin(1, init(1000));
        assert_eq!(inits.end(1, Some(1_001_000)), Some(init(1000)));
        assert_eq!(inits.end(1, Some(1000)), None, "it is done");
        inits.begin(1, init(1000));
        inits.begin(1, init(5_000_000));
        assert_eq!(
            inits.end(1, Some(1000)),
            None,
            "that one is not open any more"
        );
        inits.begin(2, init(0));
        inits.finish();
        assert_eq!(
            (inits.agreed, inits.contradicted, inits.unfinished),
            (1, 1, 2)
        );
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut inits = Inits::new(false);
        for irp in 0..MAX_OPEN as u64 + 5 {
            inits.begin(irp, init(0));
        }
        assert_eq!((inits.open.len(), inits.forgotten), (MAX_OPEN, 5));
    }
}
