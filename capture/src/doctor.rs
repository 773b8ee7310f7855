//! What this machine can record: findings of [`crate::doctor`].

/// Whether something that recording needs is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is.
    Ready,
    /// Recording works without it, with a restriction.
    Limited,
    /// It is missing: recording does not work.
    Missing,
    /// It could not be found out.
    Unknown,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `perf events`.
    pub subject: &'static str,
    /// Whether it is there.
    pub status: Status,
    /// What was found, with the numbers.
    pub detail: String,
    /// The command that provides what is missing.
    pub remedy: Option<String>,
}
