//! Where no rights are given up: the process goes on as it is.

use crate::{CaptureError, TapeFiles, Warning};

/// The user as whom a recording goes on: here always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(());

impl User {
    /// The user of this process; no other can be named.
    ///
    /// # Errors
    /// When one is named.
    pub fn choose(name: Option<&str>) -> Result<User, CaptureError> {
        match name {
            None => Ok(User(())),
            Some(name) => Err(CaptureError::NotRoot {
                user: name.to_owned(),
            }),
        }
    }

    /// Changes nothing.
    ///
    /// # Errors
    /// None here.
    pub fn take_over(&self, _files: Option<&TapeFiles>) -> Result<Option<Warning>, CaptureError> {
        Ok(None)
    }
}
