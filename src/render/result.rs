//! A result document as people read it: the runs side by side, a figure a line.

use std::collections::BTreeSet;

use iotape_replay::result::{Document, Latency, LoopKind, Run, Target};

use super::table::{Table, fit};
use super::text::wrapped;
use super::units;

/// The whole document.
pub fn to_text(document: &Document) -> String {
    let mut text = heading(document).to_string();
    text.push('\n');
    let arms = arms(&document.runs);
    text.push_str(&figures(&arms).to_string());
    text.push('\n');
    text.push_str(&operations(&arms).to_string());
    if document.runs.iter().any(|run| run.targets.len() > 1) {
        text.push('\n');
        text.push_str(&targets(&document.runs).to_string());
    }
    let remarks = remarks(&document.runs);
    if !remarks.is_empty() {
        text.push('\n');
        text.push_str(&remarks);
    }
    text
}

fn heading(document: &Document) -> Table {
    let mut table = Table::default();
    let tape = &document.experiment.tape;
    let path = tape.path.as_deref().unwrap_or("-");
    let size = format!(
        "{} requests, {}",
        units::count(tape.requests),
        units::bytes(tape.bytes)
    );
    table.row_left(["tape".to_owned(), fit(path, 68)]);
    table.row_left(["".to_owned(), size]);
    if let Some(run) = document.runs.first() {
        for target in &run.targets {
            table.row_left(["target".to_owned(), fit(&target_line(target), 68)]);
        }
        let mapping = &run.mapping;
        let share = mapping.remapped_share * 100.0;
        table.row_left([
            "mapping".to_owned(),
            format!("{}, {share:.1} % of the requests moved", mapping.mode),
        ]);
        let engine = match run.workers {
            0 | 1 => run.engine.clone(),
            workers => format!("{}, {workers} workers", run.engine),
        };
        table.row_left(["engine".to_owned(), engine]);
    }
    table
}

fn target_line(target: &Target) -> String {
    let path = target.path.as_deref().unwrap_or("none");
    let size = target.size_bytes.map(units::bytes).unwrap_or_default();
    let model = target.model.as_deref().unwrap_or_default();
    [path, &size, model]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// What went to each of several targets.
fn targets(runs: &[Run]) -> Table {
    let mut table = Table::new(["run", "target", "operations", "bytes", "offsets added up"]);
    for run in runs {
        for target in &run.targets {
            let path = target.path.as_deref().unwrap_or("none");
            table.row([
                fit(&run.label, 14),
                fit(path, 20),
                units::count(target.operations),
                units::bytes(target.bytes),
                target.offset_sum.to_string(),
            ]);
        }
    }
    table
}

/// Runs under the same label: repetitions, of which the mean is shown.
struct Arm<'a> {
    label: &'a str,
    runs: Vec<&'a Run>,
}

fn arms(runs: &[Run]) -> Vec<Arm<'_>> {
    let mut arms: Vec<Arm<'_>> = Vec::new();
    for run in runs {
        match arms.iter_mut().find(|arm| arm.label == run.label) {
            Some(arm) => arm.runs.push(run),
            None => arms.push(Arm {
                label: &run.label,
                runs: vec![run],
            }),
        }
    }
    arms
}

impl Arm<'_> {
    /// The mean of a figure over the runs that have it.
    fn mean(&self, figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| figure(run)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn least(&self, figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        self.runs
            .iter()
            .filter_map(|run| figure(run))
            .reduce(f64::min)
    }

    fn most(&self, figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        self.runs
            .iter()
            .filter_map(|run| figure(run))
            .reduce(f64::max)
    }
}

/// One line of the table: its name, the figure of an arm, and how to write it.
type Line = (&'static str, fn(&Arm<'_>) -> Option<f64>, fn(f64) -> String);

fn figures(arms: &[Arm<'_>]) -> Table {
    let repeated = arms.iter().any(|arm| arm.runs.len() > 1);
    let timed = arms.iter().any(|arm| arm.runs[0].schedule.is_some());
    let mut lines: Vec<Line> = vec![(
        "depth cap",
        |arm| arm.mean(|run| Some(f64::from(run.depth_cap))),
        count,
    )];
    if repeated {
        lines.extend(REPEATED);
    }
    lines.extend(RATES);
    if timed {
        lines.extend(TIMED);
    }
    lines.extend(REST);
    let mut table = headed("", arms);
    for (name, figure, shown) in lines {
        let cells = arms
            .iter()
            .map(|arm| figure(arm).map_or("-".to_owned(), shown));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    let valid = |arm: &Arm<'_>| {
        if arm.runs.iter().all(|run| run.valid) {
            "yes"
        } else {
            "NO"
        }
    };
    table.row(std::iter::once("valid").chain(arms.iter().map(valid)));
    table
}

const REPEATED: [Line; 3] = [
    ("runs", |arm| Some(arm.runs.len() as f64), count),
    (
        "MB/s, least",
        |arm| arm.least(|run| Some(run.throughput_mb_s)),
        units::significant,
    ),
    (
        "MB/s, most",
        |arm| arm.most(|run| Some(run.throughput_mb_s)),
        units::significant,
    ),
];

const RATES: [Line; 8] = [
    (
        "MB/s",
        |arm| arm.mean(|run| Some(run.throughput_mb_s)),
        units::significant,
    ),
    ("IOPS", |arm| arm.mean(|run| Some(run.iops)), count),
    (
        "response mean",
        |arm| arm.mean(|run| run.response_ns.map(|latency| latency.mean)),
        units::nanos,
    ),
    (
        "response p50",
        |arm| arm.mean(|run| run.response_ns.map(|latency| latency.p50 as f64)),
        units::nanos,
    ),
    (
        "response p99",
        |arm| arm.mean(|run| run.response_ns.map(|latency| latency.p99 as f64)),
        units::nanos,
    ),
    (
        "response p99.9",
        |arm| arm.mean(|run| run.response_ns.map(|latency| latency.p99_9 as f64)),
        units::nanos,
    ),
    (
        "response max",
        |arm| arm.most(|run| run.response_ns.map(|latency| latency.max as f64)),
        units::nanos,
    ),
    (
        "recorded mean",
        |arm| arm.mean(|run| run.recorded_ns.map(|latency| latency.mean)),
        units::nanos,
    ),
];

const TIMED: [Line; 5] = [
    (
        "service mean",
        |arm| arm.mean(|run| run.service_ns.map(|latency| latency.mean)),
        units::nanos,
    ),
    (
        "lag p50",
        |arm| arm.mean(|run| run.lag_ns.map(|latency| latency.p50 as f64)),
        units::nanos,
    ),
    (
        "lag p99",
        |arm| arm.mean(|run| run.lag_ns.map(|latency| latency.p99 as f64)),
        units::nanos,
    ),
    (
        "lag max",
        |arm| arm.most(|run| run.lag_ns.map(|latency| latency.max as f64)),
        units::nanos,
    ),
    (
        "delayed by the cap",
        |arm| arm.mean(|run| run.schedule.map(|schedule| schedule.delayed_by_cap_share)),
        share,
    ),
];

const REST: [Line; 6] = [
    (
        "outstanding mean",
        |arm| arm.mean(|run| Some(run.outstanding.mean)),
        units::significant,
    ),
    (
        "outstanding max",
        |arm| arm.most(|run| Some(f64::from(run.outstanding.max))),
        count,
    ),
    (
        "time at the cap",
        |arm| arm.mean(|run| Some(run.outstanding.at_cap_share)),
        share,
    ),
    (
        "requests",
        |arm| arm.mean(|run| Some(run.requests as f64)),
        count,
    ),
    (
        "elapsed",
        |arm| arm.mean(|run| Some(run.elapsed_ns as f64)),
        units::nanos,
    ),
    (
        "CPU a request",
        |arm| arm.mean(|run| Some(run.tool.cpu_per_request_ns)),
        units::nanos,
    ),
];

fn count(figure: f64) -> String {
    units::count(figure.round() as u64)
}

fn headed(corner: &str, arms: &[Arm<'_>]) -> Table {
    let labels = arms.iter().map(|arm| fit(arm.label, 14));
    Table::new(std::iter::once(corner.to_owned()).chain(labels))
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Mean service time of each operation that occurred in any run, and of its sizes where there are
/// several, beside what was recorded.
fn operations(arms: &[Arm<'_>]) -> Table {
    let labels = arms.iter().map(|arm| fit(arm.label, 14));
    let head = ["mean service time", "recorded"].map(str::to_owned);
    let mut table = Table::new(head.into_iter().chain(labels));
    let runs = || arms.iter().flat_map(|arm| &arm.runs);
    let ops: BTreeSet<&String> = runs().flat_map(|run| run.by_op.keys()).collect();
    for op in ops {
        row_of(&mut table, op.clone(), arms, |run| {
            let figures = run.by_op.get(op)?;
            Some((figures.service_ns, figures.recorded_ns))
        });
        let sizes: BTreeSet<Option<u64>> = runs()
            .filter_map(|run| run.by_op.get(op))
            .flat_map(|figures| figures.sizes.iter().map(|size| size.up_to_bytes))
            .collect();
        // None, the longest, would come first.
        let (open, closed): (Vec<_>, Vec<_>) = sizes.into_iter().partition(Option::is_none);
        for size in closed
            .into_iter()
            .chain(open)
            .filter(|_| several_sizes(arms, op))
        {
            let name = match size {
                Some(bytes) => format!("  to {}", units::bytes(bytes)),
                None => "  longer".to_owned(),
            };
            row_of(&mut table, name, arms, |run| {
                let mut sizes = run.by_op.get(op)?.sizes.iter();
                let figures = sizes.find(|figures| figures.up_to_bytes == size)?;
                Some((figures.service_ns, figures.recorded_ns))
            });
        }
    }
    table
}

fn several_sizes(arms: &[Arm<'_>], op: &str) -> bool {
    let mut runs = arms.iter().flat_map(|arm| &arm.runs);
    runs.any(|run| {
        run.by_op
            .get(op)
            .is_some_and(|figures| figures.sizes.len() > 1)
    })
}

/// Service times and what was recorded, of one run.
type Both = Option<(Option<Latency>, Option<Latency>)>;

fn row_of(table: &mut Table, name: String, arms: &[Arm<'_>], both: impl Fn(&Run) -> Both) {
    let shown = |mean: Option<f64>| mean.map_or("-".to_owned(), units::nanos);
    let of_recorded = |run: &Run| both(run)?.1.map(|latency| latency.mean);
    let recorded = arms.iter().find_map(|arm| arm.mean(of_recorded));
    let of_service = |run: &Run| both(run)?.0.map(|latency| latency.mean);
    let cells = arms.iter().map(|arm| shown(arm.mean(of_service)));
    table.row([name, shown(recorded)].into_iter().chain(cells));
}

/// Reasons and notes; what holds for every run is said once.
fn remarks(runs: &[Run]) -> String {
    let mut text = String::new();
    if runs.iter().any(|run| run.loop_kind == LoopKind::Closed) {
        text.push_str(&wrapped(
            "note: ",
            "closed loop: a request is issued when a slot frees, so response time is service time",
        ));
    }
    let mut said: Vec<&String> = Vec::new();
    let lists = runs.iter().flat_map(|run| {
        let reasons = run
            .reasons
            .iter()
            .map(move |reason| (run, "not valid: ", reason));
        reasons.chain(run.notes.iter().map(move |note| (run, "note: ", note)))
    });
    for (run, kind, remark) in lists {
        if said.contains(&remark) {
            continue;
        }
        said.push(remark);
        let everywhere = runs
            .iter()
            .all(|r| r.reasons.contains(remark) || r.notes.contains(remark));
        let lead = if everywhere {
            kind.to_owned()
        } else {
            format!("{}: {kind}", run.label)
        };
        text.push_str(&wrapped(&lead, remark));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotape_replay::result::Experiment;

    fn run(label: &str, notes: &[&str]) -> Run {
        let notes = notes.iter().map(|note| (*note).to_owned()).collect();
        Run {
            label: label.to_owned(),
            notes,
            valid: true,
            ..Run::default()
        }
    }

    #[test]
    fn a_remark_of_every_run_is_said_once() {
        let runs = [run("light", &["short", "both"]), run("heavy", &["both"])];
        let text = remarks(&runs);
        assert_eq!(text.matches("both").count(), 1);
        assert!(
            text.contains("note: both\n") && text.contains("light: note: short\n"),
            "{text}"
        );
    }

    #[test]
    fn repetitions_share_a_column_that_shows_their_mean() {
        let of = |label: &str, throughput_mb_s| Run {
            throughput_mb_s,
            ..run(label, &[])
        };
        let runs = [of("light", 100.0), of("heavy", 5.0), of("light", 300.0)];
        let text = figures(&arms(&runs)).to_string();
        let line = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.unwrap()
                .split_whitespace()
                .rev()
                .take(2)
                .collect::<Vec<_>>()
        };
        assert_eq!(line("runs"), ["1", "2"]);
        assert_eq!(line("MB/s, least"), ["5.00", "100"]);
        assert_eq!(line("MB/s, most"), ["5.00", "300"]);
        assert_eq!(line("MB/s  "), ["5.00", "200"]);
    }

    #[test]
    fn the_text_fits_80_columns() {
        let note = "word ".repeat(60);
        let runs = vec![
            run("a-label-longer-than-most", &[&note]),
            run("heavy", &[]),
            run("c", &[]),
        ];
        let mut experiment = Experiment::default();
        experiment.tape.path = Some("/a/long/path".repeat(20));
        let text = to_text(&Document::new(experiment, runs));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
