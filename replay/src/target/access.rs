//! What a replay may do to a target.

/// What will be done to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads, by the user's choice: the target may be in use and carry anything.
    SkipWrites,
    /// Only reads, since the tape changes nothing.
    Read,
    /// Writes, which the user has allowed.
    Overwrite,
    /// The tape changes this much, which the user has not allowed.
    Forbidden {
        /// Writes in the tape.
        writes: u64,
        /// Discards in the tape.
        discards: u64,
        /// Write-zeroes in the tape.
        write_zeroes: u64,
    },
}

impl Access {
    /// Whether it is opened for writing.
    pub fn writes(self) -> bool {
        self == Access::Overwrite
    }

    /// Whether it may be in use and carry anything.
    pub fn lenient(self) -> bool {
        self == Access::SkipWrites
    }
}
