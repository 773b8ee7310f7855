//! The unsafe part: blktrace's ioctls, and the process that ends what they began.
//!
//! Numbers and layouts are those of Linux `include/uapi/linux/fs.h` and
//! `include/uapi/linux/blktrace_api.h`; the second form of the set-up came with Linux 6.19.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::{fs, ptr};

use rustix::pipe::{PipeFlags, pipe_with};

use super::check;
use super::process::{Janitor, await_end, errno, keep_only};

const SETUP: libc::Ioctl = 0xc048_1273_u32 as libc::Ioctl;
const SETUP_2: libc::Ioctl = 0xc0c0_128e_u32 as libc::Ioctl;
const START: libc::Ioctl = 0x1274;
const STOP: libc::Ioctl = 0x1275;
const TEARDOWN: libc::Ioctl = 0x1276;

const NAME_BYTES: usize = 64;
/// What the process answers for each device: an errno and the name of the trace's folder.
const ANSWER_BYTES: usize = size_of::<i32>() + NAME_BYTES;

/// `struct blk_user_trace_setup`.
#[repr(C)]
#[derive(Default)]
struct Setup {
    name: [u8; 32],
    act_mask: u16,
    buf_size: u32,
    buf_nr: u32,
    start_lba: u64,
    end_lba: u64,
    pid: u32,
}

/// `struct blk_user_trace_setup2`.
#[repr(C)]
struct Setup2 {
    name: [u8; NAME_BYTES],
    act_mask: u64,
    buf_size: u32,
    buf_nr: u32,
    start_lba: u64,
    end_lba: u64,
    pid: u32,
    flags: u32,
    reserved: [u64; 11],
}

const _: () = assert!(size_of::<Setup>() == 72 && size_of::<Setup2>() == 192);

/// A trace to set up.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct TraceWanted<'a> {
    pub device: BorrowedFd<'a>,
    /// Categories of which an event needs one to be recorded, by their bits in an action.
    pub categories: u64,
    pub sub_buffer_bytes: u32,
    pub sub_buffers: u32,
}

/// Sets up these traces, in a process that stops and removes them once this one ends, however it ends.
/// Nothing is recorded yet.
///
/// It is that process that sets them up, so that there is no moment at which a trace has nobody
/// who removes it. The answers are the names of their folders in debugfs, or why the kernel
/// refused; it stops at the first refusal. Dropping the janitor removes those that were made.
pub(in crate::linux) fn set_up_traces(
    wanted: &[TraceWanted<'_>],
) -> io::Result<(Janitor, Vec<io::Result<String>>)> {
    let (answers, answering) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut kept: Vec<libc::c_int> = wanted.iter().map(|one| one.device.as_raw_fd()).collect();
    kept.push(answering.as_raw_fd());
    // A place for the one that the janitor adds.
    kept.push(-1);
    // SAFETY: the child runs `keep_traces`, which calls only what is async-signal-safe on memory
    // that was made before.
    let janitor =
        unsafe { Janitor::spawn(|end| keep_traces(end, answering.as_fd(), wanted, &mut kept))? };
    drop(answering);
    let mut answers = fs::File::from(answers);
    let mut told = Vec::with_capacity(wanted.len());
    while told.len() < wanted.len() {
        let mut answer = [0; ANSWER_BYTES];
        answers.read_exact(&mut answer)?;
        let refused = decoded(&answer);
        let is_last = refused.is_err();
        told.push(refused);
        if is_last {
            break;
        }
    }
    Ok((janitor, told))
}

fn decoded(answer: &[u8; ANSWER_BYTES]) -> io::Result<String> {
    let (code, name) = answer.split_first_chunk().unwrap_or((&[0; 4], &[]));
    match i32::from_ne_bytes(*code) {
        0 => {
            let length = name.iter().position(|byte| *byte == 0);
            let name = name.get(..length.unwrap_or(name.len())).unwrap_or_default();
            Ok(String::from_utf8_lossy(name).into_owned())
        }
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Begins to record into a trace that was set up.
pub(in crate::linux) fn start_trace(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes an open descriptor and no memory.
    check(unsafe { libc::ioctl(device.as_raw_fd(), START) })
}

/// The process. Only async-signal-safe calls.
fn keep_traces(
    end: BorrowedFd<'_>,
    answering: BorrowedFd<'_>,
    wanted: &[TraceWanted<'_>],
    kept: &mut [libc::c_int],
) {
    if let Some(place) = kept.last_mut() {
        *place = end.as_raw_fd();
    }
    keep_only(kept);
    let mut made = 0;
    for one in wanted {
        let mut answer = [0; ANSWER_BYTES];
        let (code, name) = answer.split_at_mut(size_of::<i32>());
        let refusal = set_up(one, name);
        code.copy_from_slice(&refusal.to_ne_bytes());
        // SAFETY: `answer` has as many bytes as are written. If nobody reads, the end follows.
        unsafe { libc::write(answering.as_raw_fd(), answer.as_ptr().cast(), ANSWER_BYTES) };
        if refusal != 0 {
            break;
        }
        made += 1;
    }
    // SAFETY: nobody uses this descriptor any more.
    unsafe { libc::close(answering.as_raw_fd()) };
    await_end(end);
    for one in wanted.iter().take(made) {
        let device = one.device.as_raw_fd();
        // SAFETY: the calls take an open descriptor and no memory. Old kernels do not free a
        // trace that is removed while it runs.
        unsafe {
            libc::ioctl(device, STOP);
            libc::ioctl(device, TEARDOWN);
        }
    }
}

/// Sets up one trace in the newest form that the kernel takes; returns an errno, 0 for success.
fn set_up(wanted: &TraceWanted<'_>, name: &mut [u8]) -> i32 {
    let mut new = Setup2 {
        name: [0; NAME_BYTES],
        act_mask: wanted.categories,
        buf_size: wanted.sub_buffer_bytes,
        buf_nr: wanted.sub_buffers,
        start_lba: 0,
        end_lba: 0,
        pid: 0,
        flags: 0,
        reserved: [0; 11],
    };
    let device = wanted.device.as_raw_fd();
    // SAFETY: the kernel reads and writes a `blk_user_trace_setup2`, which `new` is.
    if unsafe { libc::ioctl(device, SETUP_2, ptr::from_mut(&mut new)) } >= 0 {
        name.copy_from_slice(&new.name);
        return 0;
    }
    let mut old = Setup {
        act_mask: wanted.categories as u16,
        buf_size: wanted.sub_buffer_bytes,
        buf_nr: wanted.sub_buffers,
        ..Setup::default()
    };
    // SAFETY: the kernel reads and writes a `blk_user_trace_setup`, which `old` is.
    if unsafe { libc::ioctl(device, SETUP, ptr::from_mut(&mut old)) } < 0 {
        return errno();
    }
    if let Some(place) = name.get_mut(..old.name.len()) {
        place.copy_from_slice(&old.name);
    }
    0
}
