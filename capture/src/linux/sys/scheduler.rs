//! The scheduler.

/// `struct sched_attr` of `include/uapi/linux/sched/types.h`, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the ordinary policies: the slice, from Linux 6.12 on.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;
const NORMAL: u32 = 0;
const BATCH: u32 = 3;

/// More than the kernel's own slice, which is 3 ms or less, and little against what the rings hold.
const LONG_SLICE_NS: u64 = 20_000_000;

/// Makes the slice of the calling thread a long one, and that of threads which it starts from then on.
///
/// The share of the processor stays what it is. But from Linux 6.12 on, whoever has a shorter slice
/// (everybody has) need not wait for the end of a longer one once it wakes up. Earlier kernels ignore it,
/// and so does this where it is forbidden.
pub(in crate::linux) fn lengthen_slice() {
    let Some(attributes) = attributes() else {
        return;
    };
    // The other policies mean a limit by it.
    if !matches!(attributes.policy, NORMAL | BATCH) {
        return;
    }
    let longer = Attributes {
        size: SIZE,
        runtime_ns: LONG_SLICE_NS,
        ..attributes
    };
    // SAFETY: the attributes are as large as they say, and outlive the call, which only reads them.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const longer, 0) };
}

/// Those of the calling thread.
fn attributes() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the call writes no more than the size it is given.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    (result == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Whether the kernel knows slices is told by what it says before.
    #[test]
    fn nothing_but_the_slice_changes_and_threads_inherit_it() {
        let of_child = || thread::spawn(attributes).join().unwrap();
        let seen = thread::spawn(move || {
            let before = attributes().unwrap();
            lengthen_slice();
            (before, attributes().unwrap(), of_child().unwrap())
        });
        let (before, after, inherited) = seen.join().unwrap();
        let runtime_ns = match before.runtime_ns {
            0 => 0,
            _ => 20_000_000,
        };
        let expected = Attributes {
            runtime_ns,
            ..before
        };
        assert_eq!((after, inherited), (expected, expected));
    }
}
