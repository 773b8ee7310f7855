//! `iotape doctor`: what this machine can record and replay, and how to enable the rest.

use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome};
use crate::render::text::wrapped;

/// What `doctor --json` prints.
#[derive(Debug, Serialize)]
struct Diagnosis {
    record: Vec<Finding>,
    replay: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    subject: String,
    /// `ready`, `limited`, `missing` or `unknown`.
    status: &'static str,
    detail: String,
    /// The command that provides what is missing.
    remedy: Option<String>,
}

pub fn run(args: &DoctorArgs) -> Result<Outcome, Failure> {
    let diagnosis = Diagnosis {
        record: iotape_capture::doctor()
            .into_iter()
            .map(Finding::from)
            .collect(),
        replay: iotape_replay::doctor()
            .into_iter()
            .map(Finding::from)
            .collect(),
    };
    if args.json {
        print_json(&diagnosis)?;
    } else {
        print(&diagnosis.to_text())?;
    }
    Ok(Outcome::Done)
}

impl From<iotape_capture::Finding> for Finding {
    fn from(finding: iotape_capture::Finding) -> Finding {
        use iotape_capture::Status;
        Finding {
            subject: finding.subject.to_owned(),
            status: match finding.status {
                Status::Ready => "ready",
                Status::Limited => "limited",
                Status::Missing => "missing",
                Status::Unknown => "unknown",
            },
            detail: finding.detail,
            remedy: finding.remedy,
        }
    }
}

impl From<iotape_replay::Finding> for Finding {
    fn from(finding: iotape_replay::Finding) -> Finding {
        Finding {
            subject: finding.subject.to_owned(),
            status: if finding.ready { "ready" } else { "limited" },
            detail: finding.detail,
            remedy: finding.remedy,
        }
    }
}

impl Diagnosis {
    fn to_text(&self) -> String {
        let mut text = String::new();
        for (title, findings) in [("record", &self.record), ("replay", &self.replay)] {
            text.push_str(&format!("{title}\n"));
            for finding in findings {
                let lead = format!("  {:<8} {}: ", finding.status, finding.subject);
                text.push_str(&wrapped(&lead, &finding.detail));
                if let Some(remedy) = &finding.remedy {
                    text.push_str(&wrapped("           to enable: ", remedy));
                }
            }
        }
        text
    }
}
