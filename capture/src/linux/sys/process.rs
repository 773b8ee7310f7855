//! Processes: one that tidies up after this one, and becoming another user.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};

use super::check;

/// How often and how long it is tried to remove what is still in use.
const ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// A process that removes a folder once this one ends, however it ends: killed too.
///
/// It is a child that waits for the end of a pipe, with nothing else open but the folder above the one
/// to remove. It keeps the rights that this process had when it was made.
#[derive(Debug)]
pub(in crate::linux) struct Janitor {
    /// Open as long as the folder is needed.
    pipe: Option<OwnedFd>,
    child: libc::pid_t,
}

impl Janitor {
    /// Starts the process: it will remove the folder `name` of `parent`.
    pub fn of_folder(parent: BorrowedFd<'_>, name: &str) -> io::Result<Janitor> {
        let name = CString::new(name)?;
        // SAFETY: `wait_and_remove` makes system calls only, on memory that was made before.
        unsafe { Janitor::spawn(|end| wait_and_remove(end, parent, &name)) }
    }

    /// Starts the process: it leads this life, and knows by the end of the pipe that its parent is gone.
    ///
    /// # Safety
    /// `life` calls only what is async-signal-safe, on memory that was made before: other threads' locks
    /// do not matter to it then.
    pub(super) unsafe fn spawn(life: impl FnOnce(BorrowedFd<'_>)) -> io::Result<Janitor> {
        let (end, pipe) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child runs `life` alone, which keeps to what is allowed there.
        let child = unsafe { libc::fork() };
        if child == 0 {
            life(end.as_fd());
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(0) };
        }
        check(child)?;
        Ok(Janitor {
            pipe: Some(pipe),
            child,
        })
    }
}

impl Drop for Janitor {
    /// The folder is removed now.
    fn drop(&mut self) {
        self.pipe = None;
        let mut status = 0;
        // SAFETY: the child is ours and nobody else waits for it; `status` outlives the call.
        while unsafe { libc::waitpid(self.child, &mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// The child. Only async-signal-safe calls.
fn wait_and_remove(end: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) {
    keep_only(&mut [end.as_raw_fd(), parent.as_raw_fd()]);
    await_end(end);
    let parent = parent.as_raw_fd();
    // SAFETY: all calls take numbers, or memory that outlives them.
    unsafe {
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: BETWEEN_ATTEMPTS.as_nanos() as libc::c_long,
        };
        for _ in 0..ATTEMPTS {
            let removed = libc::unlinkat(parent, name.as_ptr(), libc::AT_REMOVEDIR);
            // The files of a process that is just being killed are still open.
            if removed == 0 || *libc::__errno_location() != libc::EBUSY {
                break;
            }
            libc::nanosleep(&pause, std::ptr::null_mut());
        }
    }
}

/// Makes a new process independent of its parent: signals, session, folder, descriptors but these.
/// Only async-signal-safe calls.
pub(super) fn keep_only(kept: &mut [libc::c_int]) {
    kept.sort_unstable();
    // SAFETY: all calls take numbers, or memory that outlives them; `sigset_t` may be all zeros.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::setsid();
        libc::chdir(c"/".as_ptr());
    }
    let mut first = 0;
    for fd in kept.iter().copied() {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, libc::c_int::MAX);
}

/// Waits for the end of a pipe.
pub(super) fn await_end(end: BorrowedFd<'_>) {
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte is read into one that outlives the call.
        let got = unsafe { libc::read(end.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1) };
        if got == 0 || (got < 0 && errno() != libc::EINTR) {
            return;
        }
    }
}

/// Why the last call failed, for a process that may not use more than system calls.
pub(super) fn errno() -> i32 {
    // SAFETY: the C library's number of this thread.
    unsafe { *libc::__errno_location() }
}

/// Closes the descriptors of a range: of a process that does not use them any more.
fn close_range(first: libc::c_int, last: libc::c_int) {
    if first > last {
        return;
    }
    // SAFETY: takes numbers; what is closed is not used any more.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Before Linux 5.9 there is no such call.
    for fd in first..=last.min(4096) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Makes all threads of this process run as this user.
pub(in crate::linux) fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: an empty list of groups is passed with its length, the other arguments are numbers. The
    // C library applies each to all threads.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(group, group, group))?;
        check(libc::setresuid(user, user, user))
    }
}
