//! Targets on Windows: `\\.\PhysicalDriveN` and files. What needs no system call is compiled and
//! tested on other systems too.

mod in_use;
mod names;

#[cfg(windows)]
mod identity;
#[cfg(windows)]
mod open;
#[cfg(windows)]
mod scratch;

#[cfg(windows)]
pub use identity::{Identity, identity};
#[cfg(windows)]
pub use in_use::Volume;
#[cfg(windows)]
pub use open::open;
#[cfg(windows)]
pub use scratch::{default_directory, make_scratch};
