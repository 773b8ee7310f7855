//! Whether the figures of a run say something about the target, and what else a reader should know.

use iotape_formats::Op;

use super::{Circumstances, share};
use crate::options::MappingMode;
use crate::plan::Tally;
use crate::result::{LoopKind, Mapping, Run, Schedule, TargetKind, WriteMode};
use crate::run::{Ending, Outcome};
use crate::target::Target;

/// A run below this is noted as short.
const SHORT_NS: u64 = 10_000_000_000;
/// What limits a run can be judged from this length on; before, starting up sets the rate.
const JUDGEABLE_NS: u64 = 1_000_000_000;
/// Above this share of its time on the processor, the submitting thread sets the rate.
const CPU_LIMITED: f64 = 0.95;
const CPU_SUSPECT: f64 = 0.8;
/// Above this share of time without a decoded request, the tape's decoding sets the rate.
const STARVED: f64 = 0.01;
/// Above this share of requests that came late by the tool's fault, the schedule was not kept.
const LATE: f64 = 0.01;
/// The last request is too late by more than both: this, and this part of the run.
const LEAST_DRIFT_NS: u64 = 10_000_000;
const DRIFT_PART: u64 = 200;
/// Little's law holds up to rounding, or the bookkeeping is wrong.
const LITTLES_LAW: f64 = 1e-3;

/// Why the run is not valid; none when it is.
pub fn reasons(
    run: &Run,
    outcome: &Outcome,
    tally: &Tally,
    circumstances: &Circumstances<'_>,
) -> Vec<String> {
    let mut reasons = endings(outcome);
    of_the_tape(circumstances, &mut reasons);
    of_the_target(circumstances, &mut reasons);
    if run.requests == 0 {
        reasons.push(if outcome.completed > 0 {
            "the tape ended within the warm-up: nothing was measured".to_owned()
        } else {
            "no request completed".to_owned()
        });
    }
    let failed: u64 = run.errors.iter().map(|error| error.count).sum();
    if failed > 0 {
        let first = run.errors.first();
        let example = first.map_or(String::new(), |e| {
            format!(", such as {}: {}", e.op, e.message)
        });
        reasons.push(format!(
            "{failed} of {} requests failed{example}",
            outcome.completed
        ));
    }
    if !circumstances.targets.is_empty() && run.elapsed_ns >= JUDGEABLE_NS {
        of_the_tool(run, outcome, &mut reasons);
    }
    of_the_schedule(run, outcome, &mut reasons);
    reasons.extend(of_the_requests(outcome, tally, circumstances));
    if let Some(verified) = run.verified.as_ref().filter(|v| v.wrong > 0) {
        reasons.push(format!(
            "{} blocks are not what was written, such as {}",
            verified.wrong,
            verified.first_wrong.as_deref().unwrap_or("one")
        ));
    }
    if outcome.strays > 0 || run.tool.littles_law_error > LITTLES_LAW {
        reasons.push(format!(
            "the bookkeeping is wrong, please report it: {} stray completions, Little's law off by {:.2e}",
            outcome.strays, run.tool.littles_law_error
        ));
    }
    reasons
}

/// Whether the tool, rather than the target, set the rate.
fn of_the_tool(run: &Run, outcome: &Outcome, reasons: &mut Vec<String>) {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let used_ns = run.tool.cpu_user_ns.saturating_add(run.tool.cpu_system_ns);
    let used_share = share(used_ns, outcome.run_ns) / processors as f64;
    if used_share >= CPU_LIMITED {
        reasons.push(format!(
            "limited by the processors, not by the target: the replay used {:.0} % of {processors}",
            used_share * 100.0
        ));
    }
    if run.tool.submitter_busy_share >= CPU_LIMITED {
        reasons.push(format!(
            "limited by the processor, not by the target: the submitting thread was busy {:.0} % of the time",
            run.tool.submitter_busy_share * 100.0
        ));
    }
    if run.tool.starved_share > STARVED {
        reasons.push(format!(
            "limited by the decoding of the tape: {:.1} % of the time a request was due and none was decoded",
            run.tool.starved_share * 100.0
        ));
    }
}

/// Whether requests came late for want of anything but a token.
fn of_the_schedule(run: &Run, outcome: &Outcome, reasons: &mut Vec<String>) {
    let Some(schedule) = &run.schedule else {
        return;
    };
    if schedule.late_share > LATE {
        reasons.push(format!(
            "the schedule was not kept: {:.1} % of the requests were submitted more than 1 ms late, besides their wait for a token",
            schedule.late_share * 100.0
        ));
    }
    let drift_ns = outcome.delays.last_own_ns;
    let much_ns = LEAST_DRIFT_NS.max(run.elapsed_ns / DRIFT_PART);
    if drift_ns > much_ns {
        reasons.push(format!(
            "drift: the last request was {:.1} ms late, besides its wait for a token",
            drift_ns as f64 / 1e6
        ));
    }
}

/// Operations that a replay may turn into each other: a write without data may be a flush.
const KINDS: [&[Op]; 5] = [
    &[Op::Read],
    &[Op::Write, Op::Flush],
    &[Op::Discard],
    &[Op::WriteZeroes],
    &[Op::ZoneAppend, Op::ZoneReset, Op::Other],
];

/// A whole pass has submitted each request of the tape that was not left out, and no other.
fn of_the_requests(
    outcome: &Outcome,
    tally: &Tally,
    circumstances: &Circumstances<'_>,
) -> Option<String> {
    let whole = outcome.ending == Ending::Done
        && circumstances.options.repeat_for.is_none()
        && circumstances.unread.is_none()
        && circumstances.damage.is_none();
    if !whole {
        return None;
    }
    let by_op = &circumstances.summary.by_op;
    let of = |op: Op| by_op[usize::from(op.number())];
    for ops in KINDS {
        let requests: u64 = ops.iter().map(|op| of(*op).requests).sum();
        let found = tally.accounted(ops);
        let with_bytes = &ops[..1];
        let moved = tally.accounted(with_bytes).1;
        if found.0 != requests || moved != of(ops[0]).bytes {
            return Some(format!(
                "{} {} of {moved} bytes were submitted or left out, the tape's summary says {requests} of {} bytes",
                found.0,
                ops[0],
                of(ops[0]).bytes
            ));
        }
    }
    (outcome.completed != tally.submitted).then(|| {
        format!(
            "the bookkeeping is wrong, please report it: {} requests were handed out, {} came back",
            tally.submitted, outcome.completed
        )
    })
}

fn endings(outcome: &Outcome) -> Vec<String> {
    let mut reasons = Vec::new();
    match outcome.ending {
        Ending::Done => {}
        Ending::Stopped => reasons.push("interrupted before the end".to_owned()),
        Ending::Hopeless => {
            reasons.push("given up after 1,000 failed requests in a row".to_owned());
        }
        Ending::Stalled => reasons.push("given up: the target stopped answering".to_owned()),
    }
    if outcome.abandoned > 0 {
        reasons.push(format!("{} requests never completed", outcome.abandoned));
    }
    reasons
}

fn of_the_tape(circumstances: &Circumstances<'_>, reasons: &mut Vec<String>) {
    let lost = circumstances.summary.counters.lost_events;
    if lost > 0 {
        reasons.push(format!(
            "the tape is incomplete: {lost} events were lost when it was recorded"
        ));
    }
    reasons.extend(circumstances.damage.clone());
    if let Some(unread) = &circumstances.unread {
        reasons.push(format!("the tape could not be read to its end: {unread}"));
    }
}

fn of_the_target(circumstances: &Circumstances<'_>, reasons: &mut Vec<String>) {
    for target in circumstances.targets {
        reasons.extend(target.cached.as_ref().map(|why| {
            let why = format!("page cache: {why}; no device was measured");
            match circumstances.targets.len() {
                1 => why,
                _ => format!("{}: {why}", target.name()),
            }
        }));
    }
}

/// What becomes of discards where the target is a file.
const DISCARDS_IN_A_FILE: &str = if cfg!(windows) {
    "discards tell the device below the file that the ranges are unused (FSCTL_FILE_LEVEL_TRIM); the \
     file keeps its room, and what later reads of them return is not defined"
} else {
    "discards punch holes into the file; later reads of them reach no device"
};

fn of_one_target(run: &Run, target: &Target) -> Vec<String> {
    let mut notes = target.notes.clone();
    if let Some(room) = target.queue_requests.filter(|&room| room < run.depth_cap) {
        notes.push(format!(
            "the device's queue holds {room} requests, fewer than the depth of {}: the rest waits in the kernel",
            run.depth_cap
        ));
    }
    if !target.block_device && run.by_op.contains_key(Op::Discard.name()) {
        notes.push(DISCARDS_IN_A_FILE.to_owned());
    }
    notes
}

/// What does not make the run invalid.
pub fn notes(run: &Run, outcome: &Outcome, circumstances: Circumstances<'_>) -> Vec<String> {
    let mut notes = circumstances.notes;
    if circumstances.simulated.is_some() {
        notes.push("simulated target: times are of a virtual clock".to_owned());
    } else if circumstances.targets.is_empty() {
        notes.push(
            "null target: these figures are the tool's own ceiling, not a device's".to_owned(),
        );
    }
    for target in circumstances.targets {
        let name = match circumstances.targets.len() {
            1 => String::new(),
            _ => format!("{}: ", target.name()),
        };
        let of_target = of_one_target(run, target);
        notes.extend(of_target.into_iter().map(|note| format!("{name}{note}")));
    }
    if !circumstances.finished {
        notes.push("the recording was cut off: the tape has no footer".to_owned());
    }
    if circumstances.devices > 1 {
        notes.push(format!(
            "the tape's {} devices were laid one behind the other on one target",
            circumstances.devices
        ));
    }
    of_the_mapping(&run.mapping, &mut notes);
    of_the_content(run, &mut notes);
    if let Some(schedule) = &run.schedule {
        of_the_timing(run, schedule, &mut notes);
    }
    for skipped in &run.skipped {
        notes.push(format!(
            "left out: {} {} of {} bytes: {}",
            skipped.requests, skipped.op, skipped.bytes, skipped.reason
        ));
    }
    if run
        .targets
        .iter()
        .any(|target| !matches!(target.kind, TargetKind::Null | TargetKind::Sim))
    {
        of_the_figures(run, outcome, &mut notes);
    }
    notes
}

/// What the timing assumes, and what became of it.
fn of_the_timing(run: &Run, schedule: &Schedule, notes: &mut Vec<String>) {
    if run.loop_kind == LoopKind::Dependent {
        notes.push(format!(
            "dependent: {:.1} % of the requests waited for the request of the same submitter that had completed last before them on the tape, and as long after it; whether they really depended on it the tape does not say",
            schedule.dependent_share * 100.0
        ));
    }
    if schedule.delayed_by_cap_share > 0.0 {
        notes.push(format!(
            "the cap delayed {:.1} % of the requests, by {:.3} s in all: to that extent the loop was closed",
            schedule.delayed_by_cap_share * 100.0,
            schedule.delayed_by_cap_ns as f64 / 1e9
        ));
    }
    if schedule.out_of_order > 0 {
        notes.push(format!(
            "{} requests stood behind later ones on the tape and were put in the order of their times; {} were too far from their place and were due at once",
            schedule.out_of_order, schedule.out_of_place
        ));
    }
}

fn of_the_content(run: &Run, notes: &mut Vec<String>) {
    if let Some(overlapping) = run.overlapping.filter(|&count| count > 0) {
        notes.push(format!(
            "{overlapping} requests overlapped one in flight, of which one changes data"
        ));
    }
    let Some(verified) = &run.verified else {
        return;
    };
    notes.push(format!(
        "verified: {} bytes were looked at, which takes processor time: the figures are not the target's alone",
        verified.bytes
    ));
    for (bytes, why) in [
        (verified.unread_bytes, "could not be read back"),
        (
            verified.untracked_bytes,
            "were not remembered, for want of memory",
        ),
    ] {
        if bytes > 0 {
            notes.push(format!("not verified: {bytes} bytes {why}"));
        }
    }
}

fn of_the_mapping(mapping: &Mapping, notes: &mut Vec<String>) {
    let share = mapping.remapped_share * 100.0;
    match mapping.mode {
        MappingMode::Wrap if share > 0.0 => notes.push(format!(
            "{share:.1} % of the requests were wrapped onto the target: distances and reuse differ from the tape"
        )),
        MappingMode::Scale | MappingMode::Hash if share > 0.0 => notes.push(format!(
            "{share:.1} % of the requests were moved in regions of {} bytes: distances between regions differ from the tape",
            mapping.region_bytes.unwrap_or(0)
        )),
        _ => {}
    }
    if mapping.widened_requests > 0 {
        notes.push(format!(
            "{} requests were widened to whole sectors of the target, by {} bytes together",
            mapping.widened_requests, mapping.widened_bytes
        ));
    }
}

fn of_the_figures(run: &Run, outcome: &Outcome, notes: &mut Vec<String>) {
    if run.elapsed_ns < SHORT_NS && outcome.ending == Ending::Done {
        notes.push(format!(
            "short: {:.2} s were measured, less than 10 s; --for repeats the tape",
            run.elapsed_ns as f64 / 1e9
        ));
    }
    let busy = run.tool.submitter_busy_share;
    if run.elapsed_ns >= JUDGEABLE_NS && (CPU_SUSPECT..CPU_LIMITED).contains(&busy) {
        notes.push(format!(
            "the submitting thread was busy {:.0} % of the time: the processor may limit the figures",
            busy * 100.0
        ));
    }
    if run.write_mode == WriteMode::None || run.write_mode == WriteMode::SkipWrites {
        return;
    }
    let kinds = run.targets.iter().map(|target| target.kind);
    if kinds.into_iter().any(|kind| kind == TargetKind::Block) {
        notes.push("the target was not preconditioned by this tool".to_owned());
    }
}
