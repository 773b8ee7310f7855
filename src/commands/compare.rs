//! `iotape compare`: results side by side, with the ratios that a buyer asks for.
//!
//! Runs of the same result under the same cap are repetitions of one *arm*; an arm's figure is the
//! mean over its runs. Ratios are given within a result (heavy over light) and between results
//! under the same cap (device over device).

use std::path::{Path, PathBuf};

use iotape_replay::result::{Document, Run};
use serde::Serialize;

use crate::cli::CompareArgs;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::render::table::{Table, fit};
use crate::render::units;

/// What `compare --json` prints.
#[derive(Debug, Serialize)]
struct Comparison {
    arms: Vec<Arm>,
    ratios: Vec<Ratio>,
    /// Things that make the comparison doubtful.
    warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Arm {
    result: String,
    profile: String,
    depth_cap: u32,
    target: String,
    engine: String,
    runs: usize,
    throughput_mb_s: f64,
    iops: f64,
    response_mean_ns: Option<f64>,
    response_p99_ns: Option<f64>,
    outstanding_mean: f64,
    valid: bool,
}

/// `of` divided by `to`.
#[derive(Debug, Serialize)]
struct Ratio {
    of: String,
    to: String,
    throughput: Option<f64>,
    iops: Option<f64>,
    response_mean: Option<f64>,
    response_p99: Option<f64>,
}

pub fn run(args: &CompareArgs) -> Result<Outcome, Failure> {
    let results = read_results(&args.results)?;
    let comparison = Comparison::of(&results);
    if args.json {
        print_json(&comparison)?;
    } else {
        print(&comparison.to_text())?;
    }
    for warning in &comparison.warnings {
        warn(warning);
    }
    Ok(Outcome::flawed_if(!comparison.warnings.is_empty()))
}

/// A document and the name it goes by.
struct Named {
    name: String,
    document: Document,
}

fn read_results(paths: &[PathBuf]) -> Result<Vec<Named>, Failure> {
    let mut results: Vec<Named> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::at(path.display(), e))?;
        let document = Document::from_json(&text).map_err(|e| Failure::at(path.display(), e))?;
        if document.runs.is_empty() {
            return Err(Failure::at(path.display(), "holds no run"));
        }
        let name = unique_name(path, &results);
        results.push(Named { name, document });
    }
    Ok(results)
}

/// The file's name without its ending; the whole path where that is taken.
fn unique_name(path: &Path, taken: &[Named]) -> String {
    let stem = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    if taken.iter().any(|named| named.name == stem) {
        path.display().to_string()
    } else {
        stem
    }
}

impl Comparison {
    fn of(results: &[Named]) -> Comparison {
        let arms: Vec<Arm> = results.iter().flat_map(arms).collect();
        let ratios = ratios(&arms);
        Comparison {
            arms,
            ratios,
            warnings: warnings(results),
        }
    }

    fn to_text(&self) -> String {
        let mut text = self.target_table().to_string();
        text.push('\n');
        text.push_str(&self.arm_table().to_string());
        if !self.ratios.is_empty() {
            text.push('\n');
            text.push_str(&self.ratio_table().to_string());
        }
        text
    }

    /// What each result was measured on.
    fn target_table(&self) -> Table {
        let mut table = Table::default();
        let mut last = None;
        for arm in &self.arms {
            if last != Some(&arm.result) {
                table.row_left([fit(&arm.result, 14), fit(&arm.target, 62)]);
            }
            last = Some(&arm.result);
        }
        table
    }

    fn arm_table(&self) -> Table {
        let mut table = Table::new([
            "run",
            "cap",
            "MB/s",
            "IOPS",
            "mean",
            "p99",
            "outstanding",
            "valid",
        ]);
        for arm in &self.arms {
            table.row([
                arm.label(),
                arm.depth_cap.to_string(),
                units::significant(arm.throughput_mb_s),
                units::count(arm.iops.round() as u64),
                arm.response_mean_ns.map_or("-".to_owned(), units::nanos),
                arm.response_p99_ns.map_or("-".to_owned(), units::nanos),
                units::significant(arm.outstanding_mean),
                if arm.valid { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table
    }

    fn ratio_table(&self) -> Table {
        let mut table = Table::new(["ratio", "MB/s", "IOPS", "mean", "p99"]);
        let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |r| format!("{r:.3}"));
        for ratio in &self.ratios {
            table.row([
                format!("{} / {}", ratio.of, ratio.to),
                shown(ratio.throughput),
                shown(ratio.iops),
                shown(ratio.response_mean),
                shown(ratio.response_p99),
            ]);
        }
        table
    }
}

impl Arm {
    fn label(&self) -> String {
        format!("{} {}", fit(&self.result, 14), self.profile)
    }
}

fn arms(named: &Named) -> Vec<Arm> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in &named.document.runs {
        let same = |group: &&mut Vec<&Run>| {
            group[0].depth_cap == run.depth_cap
                && group[0].profile == run.profile
                && group[0].timing == run.timing
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups.iter().map(|runs| arm(&named.name, runs)).collect()
}

fn arm(result: &str, runs: &[&Run]) -> Arm {
    let first = runs[0];
    let response = |of: fn(&iotape_replay::result::Latency) -> f64| {
        let values: Option<Vec<f64>> = runs
            .iter()
            .map(|run| run.response_ns.as_ref().map(of))
            .collect();
        values.map(|values| mean(&values))
    };
    let targets: Vec<&str> = first
        .targets
        .iter()
        .filter_map(|target| target.path.as_deref())
        .collect();
    Arm {
        result: result.to_owned(),
        profile: first
            .profile
            .clone()
            .unwrap_or_else(|| format!("depth {}", first.depth_cap)),
        depth_cap: first.depth_cap,
        target: targets.join(" "),
        engine: first.engine.clone(),
        runs: runs.len(),
        throughput_mb_s: mean_of(runs, |run| run.throughput_mb_s),
        iops: mean_of(runs, |run| run.iops),
        response_mean_ns: response(|latency| latency.mean),
        response_p99_ns: response(|latency| latency.p99 as f64),
        outstanding_mean: mean_of(runs, |run| run.outstanding.mean),
        valid: runs.iter().all(|run| run.valid),
    }
}

fn mean_of(runs: &[&Run], figure: fn(&Run) -> f64) -> f64 {
    mean(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Within each result every arm over the first; between results every arm over the first result's
/// arm of the same cap.
fn ratios(arms: &[Arm]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (place, arm) in arms.iter().enumerate() {
        let base = arms.iter().position(|other| other.result == arm.result);
        ratios.extend(
            base.filter(|base| *base < place)
                .map(|base| ratio(arm, &arms[base])),
        );
    }
    for arm in arms {
        let base = arms.iter().find(|other| other.depth_cap == arm.depth_cap);
        ratios.extend(
            base.filter(|base| base.result != arm.result)
                .map(|base| ratio(arm, base)),
        );
    }
    ratios
}

fn ratio(of: &Arm, to: &Arm) -> Ratio {
    let divide = |of: f64, to: f64| Some(of / to).filter(|ratio| ratio.is_finite());
    let both = |of: Option<f64>, to: Option<f64>| divide(of?, to?);
    Ratio {
        of: of.label(),
        to: to.label(),
        throughput: divide(of.throughput_mb_s, to.throughput_mb_s),
        iops: divide(of.iops, to.iops),
        response_mean: both(of.response_mean_ns, to.response_mean_ns),
        response_p99: both(of.response_p99_ns, to.response_p99_ns),
    }
}

fn warnings(results: &[Named]) -> Vec<String> {
    let mut warnings = Vec::new();
    let first = &results[0];
    for other in &results[1..] {
        let (a, b) = (
            &first.document.experiment.tape.id,
            &other.document.experiment.tape.id,
        );
        if a != b {
            warnings.push(format!(
                "{} and {} replayed different tapes ({a} and {b}): their ratios say nothing about \
                 the devices",
                first.name, other.name
            ));
        }
    }
    for named in results {
        for run in named.document.runs.iter().filter(|run| !run.valid) {
            let reasons = run.reasons.join("; ");
            warnings.push(format!(
                "{} {}: not valid: {reasons}",
                named.name, run.label
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotape_replay::result::{Experiment, Latency};

    fn run_of(profile: &str, depth_cap: u32, throughput_mb_s: f64, mean: f64) -> Run {
        let latency = Latency {
            mean,
            p99: 2 * mean as u64,
            ..Latency::default()
        };
        Run {
            label: profile.to_owned(),
            profile: Some(profile.to_owned()),
            depth_cap,
            throughput_mb_s,
            iops: throughput_mb_s * 100.0,
            response_ns: Some(latency),
            valid: true,
            ..Run::default()
        }
    }

    fn named(name: &str, tape: &str, runs: Vec<Run>) -> Named {
        let mut experiment = Experiment::default();
        experiment.tape.id = tape.to_owned();
        Named {
            name: name.to_owned(),
            document: Document::new(experiment, runs),
        }
    }

    #[test]
    fn ratios_are_within_and_between_results() {
        let old = named(
            "old",
            "t",
            vec![
                run_of("light", 8, 100.0, 60.0),
                run_of("heavy", 48, 150.0, 210.0),
            ],
        );
        let new = named(
            "new",
            "t",
            vec![
                run_of("light", 8, 200.0, 30.0),
                run_of("heavy", 48, 600.0, 70.0),
            ],
        );
        let comparison = Comparison::of(&[old, new]);
        let shown: Vec<_> = comparison
            .ratios
            .iter()
            .map(|r| (r.of.as_str(), r.to.as_str(), r.throughput, r.response_mean))
            .collect();
        let expected = [
            ("old heavy", "old light", Some(1.5), Some(3.5)),
            ("new heavy", "new light", Some(3.0), Some(70.0 / 30.0)),
            ("new light", "old light", Some(2.0), Some(0.5)),
            ("new heavy", "old heavy", Some(4.0), Some(70.0 / 210.0)),
        ];
        assert_eq!(shown, expected);
        assert!(comparison.warnings.is_empty());
    }

    #[test]
    fn repetitions_are_averaged() {
        let runs = vec![
            run_of("light", 8, 100.0, 10.0),
            run_of("light", 8, 300.0, 20.0),
        ];
        let comparison = Comparison::of(&[named("r", "t", runs)]);
        assert_eq!(comparison.arms.len(), 1);
        assert_eq!(comparison.arms[0].runs, 2);
        assert_eq!(comparison.arms[0].throughput_mb_s, 200.0);
        assert_eq!(comparison.arms[0].response_mean_ns, Some(15.0));
    }

    #[test]
    fn different_tapes_and_invalid_runs_are_warned_of() {
        let mut bad = run_of("light", 8, 100.0, 10.0);
        bad.valid = false;
        bad.reasons = vec!["5 errors".to_owned()];
        let good = run_of("light", 8, 100.0, 10.0);
        let warnings =
            Comparison::of(&[named("a", "t", vec![good]), named("b", "u", vec![bad])]).warnings;
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("different tapes"));
        assert_eq!(warnings[1], "b light: not valid: 5 errors");
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        let zero = run_of("light", 8, 0.0, 10.0);
        let some = run_of("heavy", 48, 1.0, 10.0);
        let comparison = Comparison::of(&[named("a", "t", vec![zero, some])]);
        assert_eq!(comparison.ratios[0].throughput, None);
        assert!(comparison.to_text().contains('-'));
    }

    #[test]
    fn the_tables_fit_80_columns() {
        let long = "a-rather-long-name-of-a-result-file";
        let runs = || {
            vec![
                run_of("light", 8, 99_999.0, 1e9),
                run_of("heavy", 48, 99_999.0, 1e9),
            ]
        };
        let text = Comparison::of(&[named(long, "t", runs()), named("b", "t", runs())]).to_text();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
