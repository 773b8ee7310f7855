//! Which processor a thread runs on.

use std::io;

use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, SetThreadAffinityMask,
};

/// Binds the calling thread to one of the processors that it may use: to the one of this number,
/// counted from 0 and around. Of more than 64 processors, those of the process's group.
///
/// # Errors
/// The system's.
pub fn pin_to_processor(number: u32) -> io::Result<()> {
    let (mut allowed, mut present) = (0, 0);
    // SAFETY: both pointers are to integers that live through the call.
    let known =
        unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut allowed, &raw mut present) };
    let one = nth_bit(allowed, number).filter(|_| known != 0);
    let one = one.ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: the thread is the calling one.
    match unsafe { SetThreadAffinityMask(GetCurrentThread(), one) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The bit of this number among those that are set, counted from 0 and around.
fn nth_bit(mask: usize, number: u32) -> Option<usize> {
    let skip = number.checked_rem(mask.count_ones())?;
    let bits = (0..usize::BITS).map(|bit| 1 << bit);
    bits.filter(|bit| mask & bit != 0)
        .nth(usize::try_from(skip).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_among_those_allowed_and_around() {
        let chosen: Vec<_> = (0..4).map(|number| nth_bit(0b1010_0100, number)).collect();
        assert_eq!(chosen, [Some(4), Some(32), Some(128), Some(4)]);
        assert_eq!(nth_bit(0, 0), None);
    }
}
