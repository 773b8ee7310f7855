//! `iotape top`: what goes on at devices, without a tape.

use std::sync::Arc;

use iotape_capture::{Report, Session, User};

use crate::cli::TopArgs;
use crate::commands::recording::{
    End, is_lossy, source_options, start, warn_of_new, warn_of_unpaired,
};
use crate::commands::{print, print_json_line};
use crate::exit::{Failure, Outcome, warn};
use crate::live::{Form, View, Watched};
use crate::render::units;
use crate::signals::Signals;

pub fn run(args: &TopArgs) -> Result<Outcome, Failure> {
    let form = Form::choose(args.json);
    let signals = Signals::catch(form == Form::Screen)?;
    let user = User::choose(args.source.user.as_deref()).map_err(Failure::usage)?;
    let session = start(&source_options(&args.source)?)?;
    user.take_over(None).map_err(Failure::new)?;
    let known = session.warnings().to_vec();
    for warning in &known {
        warn(warning);
    }
    signals.guard()?;
    let report = watch(args, session, &signals, form)?;
    warn_of_new(&report, &known);
    warn_of_unpaired(&report, args.source.backend);
    match form {
        Form::Json => print_json_line(&End::of(&report, false))?,
        Form::Lines | Form::Screen => print(&last_line(&report))?,
    }
    Ok(Outcome::flawed_if(is_lossy(&report)))
}

fn watch(
    args: &TopArgs,
    session: Session,
    signals: &Signals,
    form: Form,
) -> Result<Report, Failure> {
    let watched = Watched {
        title: "iotape top".to_owned(),
        devices: session.devices(),
        interval: args.interval,
        tape: false,
    };
    // There is nothing else to do than to show: without a reader it ends.
    let gone = Arc::clone(signals.stop());
    let mut view = View::start(watched, form, Some(gone))
        .map_err(|error| Failure::at("cannot start the live view", error))?;
    let report = session.watch(signals.stop(), view.observer());
    let shown = view.finish(report.as_ref().ok());
    let report = report.map_err(Failure::new)?;
    shown.map(|()| report)
}

fn last_line(report: &Report) -> String {
    format!(
        "{} requests in {}, {} events lost\n",
        units::count(report.summary.requests),
        units::span(report.elapsed),
        units::count(report.summary.counters.lost_events),
    )
}
