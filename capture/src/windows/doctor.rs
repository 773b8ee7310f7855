//! What of a recording would work here.

use super::sys;
use crate::{Finding, Status};

/// Looks at what a recording needs, without starting one.
pub fn doctor() -> Vec<Finding> {
    let elevated = sys::is_elevated();
    let rights = match elevated {
        Ok(true) => (Status::Ready, "this process is elevated".to_owned()),
        Ok(false) => (Status::Missing, "this process is not elevated".to_owned()),
        Err(error) => (Status::Unknown, error.to_string()),
    };
    let remedy = "open a prompt with \"Run as administrator\"".to_owned();
    let sessions = match sys::sessions() {
        Ok(names) => {
            let named = names.iter().any(|name| name == "iotape recorder");
            let detail = match named {
                true => format!("{} run, a recording of iotape among them", names.len()),
                false => format!("{} run", names.len()),
            };
            Finding {
                subject: "event sessions",
                status: if named {
                    Status::Limited
                } else {
                    Status::Ready
                },
                detail,
                remedy: named.then(|| "logman stop \"iotape recorder\" -ets".to_owned()),
            }
        }
        Err(error) => Finding {
            subject: "event sessions",
            status: Status::Unknown,
            detail: error.to_string(),
            remedy: None,
        },
    };
    vec![
        Finding {
            subject: "administrator rights",
            remedy: (rights.0 == Status::Missing).then_some(remedy),
            status: rights.0,
            detail: rights.1,
        },
        sessions,
    ]
}
