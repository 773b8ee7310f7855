//! Limits laid on a child before it starts, as containers and login limits do.

use std::io;

/// Answers io_uring's system calls with EPERM, as the seccomp profiles of container runtimes do.
pub fn forbid_io_uring() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const FIRST: u32 = libc::SYS_io_uring_setup as u32;
    const BEHIND_LAST: u32 = libc::SYS_io_uring_register as u32 + 1;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, 0), // seccomp_data.nr
        step(JUMP_AT_LEAST, 0, 2, FIRST),
        step(JUMP_AT_LEAST, 1, 0, BEHIND_LAST),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: plain integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the program and its steps live until the call returns; the kernel copies them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) })
}

/// 8 MiB of lockable memory, the usual limit of a login. Root is not bound by it.
pub fn lock_little_memory() -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: 8 << 20,
        rlim_max: 8 << 20,
    };
    // SAFETY: the structure lives until the call returns.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) })
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
