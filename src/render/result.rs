//! A result document as people read it: the runs side by side, a figure a line.

use iotape_replay::result::{Document, Latency, LoopKind, Run, Target};

use super::table::{Table, fit};
use super::text::wrapped;
use super::units;

/// The whole document.
pub fn to_text(document: &Document) -> String {
    let mut text = heading(document).to_string();
    text.push('\n');
    text.push_str(&figures(&document.runs).to_string());
    text.push('\n');
    text.push_str(&operations(&document.runs).to_string());
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
        table.row_left(["engine".to_owned(), run.engine.clone()]);
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

/// One line of the table: its name and the figure of a run.
type Line = (&'static str, fn(&Run) -> String);

fn figures(runs: &[Run]) -> Table {
    let lines: [Line; 16] = [
        ("depth cap", |run| run.depth_cap.to_string()),
        ("MB/s", |run| units::significant(run.throughput_mb_s)),
        ("IOPS", |run| units::count(run.iops.round() as u64)),
        ("response mean", |run| response(run, |latency| latency.mean)),
        ("response p50", |run| {
            response(run, |latency| latency.p50 as f64)
        }),
        ("response p99", |run| {
            response(run, |latency| latency.p99 as f64)
        }),
        ("response p99.9", |run| {
            response(run, |latency| latency.p99_9 as f64)
        }),
        ("response max", |run| {
            response(run, |latency| latency.max as f64)
        }),
        ("recorded mean", |run| {
            run.recorded_ns
                .as_ref()
                .map_or("-".to_owned(), |latency| units::nanos(latency.mean))
        }),
        ("outstanding mean", |run| {
            units::significant(run.outstanding.mean)
        }),
        ("outstanding max", |run| run.outstanding.max.to_string()),
        ("time at the cap", |run| share(run.outstanding.at_cap_share)),
        ("requests", |run| units::count(run.requests)),
        ("elapsed", |run| units::nanos(run.elapsed_ns as f64)),
        ("CPU a request", |run| {
            units::nanos(run.tool.cpu_per_request_ns)
        }),
        ("valid", |run| {
            if run.valid { "yes" } else { "NO" }.to_owned()
        }),
    ];
    let mut table = headed("", runs);
    for (name, figure) in lines {
        table.row(std::iter::once(name.to_owned()).chain(runs.iter().map(figure)));
    }
    table
}

fn headed(corner: &str, runs: &[Run]) -> Table {
    let labels = runs.iter().map(|run| fit(&run.label, 14));
    Table::new(std::iter::once(corner.to_owned()).chain(labels))
}

fn response(run: &Run, figure: fn(&Latency) -> f64) -> String {
    run.response_ns
        .as_ref()
        .map_or("-".to_owned(), |latency| units::nanos(figure(latency)))
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Mean service time of each operation that occurred in any run.
fn operations(runs: &[Run]) -> Table {
    let mut table = headed("mean service time", runs);
    let mut ops: Vec<&String> = runs.iter().flat_map(|run| run.by_op.keys()).collect();
    ops.sort();
    ops.dedup();
    for op in ops {
        let figure = |run: &Run| match run.by_op.get(op).and_then(|of| of.service_ns.as_ref()) {
            Some(latency) => units::nanos(latency.mean),
            None => "-".to_owned(),
        };
        table.row(std::iter::once(op.clone()).chain(runs.iter().map(figure)));
    }
    table
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
