//! An io_uring over the files and the buffers of a run.
//!
//! What can be pushed is limited to operations on those buffers, which the ring keeps alive: so no
//! caller can hand the kernel a bad address.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use thiserror::Error;

use super::memory::{Buffers, Piece};

/// Set in the tags of [`Ring::tick`] and [`Ring::watch`], which touch no buffer; clear in those of
/// all other operations.
pub const AUXILIARY: u64 = 1 << 63;
/// `BLOCK_URING_CMD_DISCARD` of linux/blkdev.h: `_IO(0x12, 0)`, since Linux 6.12.
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// Which features of newer kernels to use where they exist. All, but in tests.
#[derive(Clone, Copy, Debug)]
pub struct RingOptions {
    /// Single issuer, deferred or cooperative task work (5.19 to 6.1).
    pub task_work: bool,
    /// Registered files, registered ring.
    pub fixed_files: bool,
    /// Registered buffers.
    pub fixed_buffers: bool,
    /// Discards through the ring (6.12).
    pub discard_command: bool,
}

impl RingOptions {
    /// Everything that the kernel offers.
    pub const ALL: RingOptions = RingOptions {
        task_work: true,
        fixed_files: true,
        fixed_buffers: true,
        discard_command: true,
    };
}

/// Why there is no ring.
#[derive(Debug, Error)]
pub enum RingError {
    /// The kernel lacks io_uring or an operation, or somebody forbids it.
    #[error("{0}")]
    Unavailable(String),
    /// Something else.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A read into a slot's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Index of the file.
    pub file: u8,
    /// Whose buffer.
    pub slot: u32,
    /// How long.
    pub length: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Whether submitting it may block, see [`Ring::read`].
    pub may_block: bool,
}

/// A write of payload.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Index of the file.
    pub file: u8,
    /// Where its data begins in the payload.
    pub payload: u32,
    /// How long.
    pub length: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Whether it is durable on completion.
    pub durable: bool,
    /// Whether submitting it may block, see [`Ring::read`].
    pub may_block: bool,
}

/// See the module.
pub struct Ring {
    // Dropped before the buffers are.
    ring: IoUring,
    buffers: Arc<Buffers>,
    files: Vec<Arc<OwnedFd>>,
    fixed_files: bool,
    fixed_slots: Option<u16>,
    fixed_payload: Option<u16>,
    discards: Vec<bool>,
    tick_time: Box<types::Timespec>,
    transfers: u64,
    notes: Vec<String>,
}

impl Ring {
    /// A ring with room for `entries` operations. To be created on the thread that uses it.
    ///
    /// # Errors
    /// [`RingError::Unavailable`] where another engine should be used instead.
    pub fn new(
        entries: u32,
        files: Vec<Arc<OwnedFd>>,
        buffers: Arc<Buffers>,
        options: RingOptions,
    ) -> Result<Self, RingError> {
        let ring = set_up(entries, options.task_work).map_err(unavailable_if_forbidden)?;
        require_operations(&ring)?;
        let mut ring = Ring {
            ring,
            buffers,
            files,
            fixed_files: false,
            fixed_slots: None,
            fixed_payload: None,
            discards: Vec::new(),
            tick_time: Box::new(types::Timespec::new()),
            transfers: 0,
            notes: Vec::new(),
        };
        if options.fixed_files {
            ring.register_files();
        }
        if options.fixed_buffers {
            ring.register_buffers();
        }
        ring.discards = vec![false; ring.files.len()];
        if options.discard_command {
            ring.probe_discards()?;
        }
        Ok(ring)
    }

    /// Lets as many operations block at once, in threads of the kernel: flushes, and what
    /// [`Ring::read`] sends there. Since 5.15; else there are four for each processor.
    pub fn allow_blocking(&self, threads: u32) {
        let mut limits = [threads, 0];
        let _ = self.ring.submitter().register_iowq_max_workers(&mut limits);
    }

    /// What could not be had, in words.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Whether [`Ring::discard`] works on a file.
    pub fn discards(&self, file: u8) -> bool {
        self.discards.get(usize::from(file)) == Some(&true)
    }

    fn register_files(&mut self) {
        let submitter = self.ring.submitter();
        let files: Vec<RawFd> = self.files.iter().map(|file| file.as_raw_fd()).collect();
        match submitter.register_files(&files) {
            Ok(()) => self.fixed_files = true,
            Err(error) => self
                .notes
                .push(format!("io_uring: files not registered: {error}")),
        }
        // Only saves a look-up per system call; since 5.18.
        let _ = self.ring.submitter().register_ring_fd();
    }

    /// Registers as much as may be locked: all, or the slots, or the payload.
    fn register_buffers(&mut self) {
        let [slots, payload] = self.buffers.regions();
        let attempts = [(slots, payload), (slots, None), (None, payload)];
        let mut refused = None;
        for (slots, payload) in attempts {
            let pieces: Vec<Piece<'_>> = [slots, payload].into_iter().flatten().collect();
            if pieces.is_empty() {
                continue;
            }
            match register(&self.ring, &pieces) {
                Ok(()) => {
                    self.fixed_slots = slots.map(|_| 0);
                    self.fixed_payload = payload.map(|_| u16::from(slots.is_some()));
                    break;
                }
                Err(error) => refused = Some(error),
            }
        }
        let wanted = [(slots, self.fixed_slots), (payload, self.fixed_payload)];
        let left = wanted.into_iter().filter(|(_, index)| index.is_none());
        let bytes: usize = left.filter_map(|(piece, _)| piece).map(Piece::len).sum();
        if let Some(error) = refused
            && bytes > 0
        {
            self.notes.push(format!(
                "io_uring: {bytes} bytes of buffers are used unregistered, since they cannot be locked ({error}; see ulimit -l)"
            ));
        }
    }

    /// A discard of no bytes is refused as invalid where discards are known, as not supported
    /// elsewhere.
    fn probe_discards(&mut self) -> Result<(), RingError> {
        for file in 0..self.files.len() {
            let Ok(number) = u8::try_from(file) else {
                break;
            };
            if !self.discard(number, 0, 0, false, 0) {
                continue;
            }
            self.ring.submitter().submit_and_wait(1)?;
            let mut result = -libc::EOPNOTSUPP;
            self.reap(|_, outcome| result = outcome);
            self.discards[file] = result == -libc::EINVAL;
        }
        Ok(())
    }

    /// Queues a read into a slot's buffer. `false`: no such buffer, or the queue is full.
    ///
    /// The kernel first tries not to block, and fails where it would have to split a request, only
    /// to submit it once more from a thread of its own. An operation that `may_block` goes to such
    /// a thread at once, so that the device is asked once.
    pub fn read(&mut self, read: &Read, tag: u64) -> bool {
        let &Read {
            file,
            slot,
            length,
            offset,
            may_block,
        } = read;
        let Some(piece) = usize::try_from(length)
            .ok()
            .and_then(|len| self.buffers.slot(slot, len))
        else {
            return false;
        };
        let Some(fd) = self.fd(file) else {
            return false;
        };
        let pointer = piece.pointer();
        let entry = match self.fixed_slots {
            Some(index) => opcode::ReadFixed::new(fd, pointer, length, index)
                .offset(offset)
                .build(),
            None => opcode::Read::new(fd, pointer, length)
                .offset(offset)
                .build(),
        };
        self.push(entry.user_data(tag), blocking(may_block))
    }

    /// Queues a write of payload, durable on completion if asked. `false` as for a read.
    pub fn write(&mut self, write: &Write, tag: u64) -> bool {
        match self.write_entry(write) {
            Some(entry) => self.push(entry.user_data(tag), blocking(write.may_block)),
            None => false,
        }
    }

    /// Queues a flush and a write that starts when the flush has succeeded. Both complete.
    pub fn flush_and_write(&mut self, write: &Write, flush_tag: u64, tag: u64) -> bool {
        let (Some(flush), Some(entry)) = (self.flush_entry(write.file), self.write_entry(write))
        else {
            return false;
        };
        self.push(flush.user_data(flush_tag), squeue::Flags::IO_LINK)
            && self.push(entry.user_data(tag), blocking(write.may_block))
    }

    fn write_entry(&self, write: &Write) -> Option<squeue::Entry> {
        let &Write {
            file,
            payload,
            length,
            offset,
            durable,
            may_block: _,
        } = write;
        let piece = self
            .buffers
            .payload(payload, usize::try_from(length).ok()?)?;
        let pointer = piece.pointer().cast_const();
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let fd = self.fd(file)?;
        Some(match self.fixed_payload {
            Some(index) => opcode::WriteFixed::new(fd, pointer, length, index)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            None => opcode::Write::new(fd, pointer, length)
                .offset(offset)
                .rw_flags(flags)
                .build(),
        })
    }

    /// Queues a flush of a file's data.
    pub fn flush(&mut self, file: u8, tag: u64) -> bool {
        let Some(entry) = self.flush_entry(file) else {
            return false;
        };
        self.push(entry.user_data(tag), squeue::Flags::empty())
    }

    fn flush_entry(&self, file: u8) -> Option<squeue::Entry> {
        let flags = types::FsyncFlags::DATASYNC;
        Some(opcode::Fsync::new(self.fd(file)?).flags(flags).build())
    }

    /// Queues `fallocate` with the mode given.
    pub fn allocate(&mut self, file: u8, mode: i32, offset: u64, length: u64, tag: u64) -> bool {
        let Some(fd) = self.fd(file) else {
            return false;
        };
        let entry = opcode::Fallocate::new(fd, length)
            .offset(offset)
            .mode(mode)
            .build();
        self.push(entry.user_data(tag), squeue::Flags::empty())
    }

    /// Queues a discard of a block device, where [`Ring::discards`].
    pub fn discard(
        &mut self,
        file: u8,
        offset: u64,
        length: u64,
        may_block: bool,
        tag: u64,
    ) -> bool {
        let Some(fd) = self.fd(file) else {
            return false;
        };
        // The kernel takes the offset from `addr` and the length from `addr3`, which is where the
        // command's own bytes begin.
        let mut command = [0; 16];
        command[..8].copy_from_slice(&length.to_ne_bytes());
        let entry = opcode::UringCmd16::new(fd, BLOCK_URING_CMD_DISCARD)
            .cmd(command)
            .addr(Some(offset))
            .build();
        self.push(entry.user_data(tag), blocking(may_block))
    }

    /// Queues a wait until an eventfd is signalled.
    pub fn watch(&mut self, event: RawFd, tag: u64) -> bool {
        let readable = u32::from(libc::POLLIN.cast_unsigned());
        self.push_as_is(
            &opcode::PollAdd::new(types::Fd(event), readable)
                .build()
                .user_data(tag | AUXILIARY),
        )
    }

    /// Queues a completion after some time.
    pub fn tick(&mut self, after: Duration, tag: u64) -> bool {
        *self.tick_time = types::Timespec::from(after);
        let time: *const types::Timespec = &raw const *self.tick_time;
        self.push_as_is(
            &opcode::Timeout::new(time)
                .build()
                .user_data(tag | AUXILIARY),
        )
    }

    /// A file as an entry names it: its place in the table of registered files, or its
    /// descriptor. Which of them is said by the entry's flags, see [`Ring::push`].
    #[inline]
    fn fd(&self, file: u8) -> Option<types::Fd> {
        let open = self.files.get(usize::from(file))?;
        Some(types::Fd(if self.fixed_files {
            i32::from(file)
        } else {
            open.as_raw_fd()
        }))
    }

    /// Queues an operation on a file of the ring.
    #[inline]
    fn push(&mut self, entry: squeue::Entry, flags: squeue::Flags) -> bool {
        let fixed = if self.fixed_files {
            squeue::Flags::FIXED_FILE
        } else {
            squeue::Flags::empty()
        };
        self.push_as_is(&entry.flags(flags | fixed))
    }

    #[inline]
    fn push_as_is(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: addresses in an entry are of the buffers, which outlive the ring or are leaked
        // with operations in flight, or of the tick's time, which is read at submission or, being
        // boxed, lives as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.transfers += u64::from(pushed && entry.get_user_data() & AUXILIARY == 0);
        pushed
    }

    /// Submits what is queued, and waits for a completion if asked. One system call, and none when
    /// there is nothing to be done by the kernel.
    ///
    /// # Errors
    /// Only such as make the ring useless; a shortage that passes is left to the next call.
    pub fn submit(&mut self, wait: bool) -> io::Result<()> {
        if !wait && !self.kernel_has_work() {
            return Ok(());
        }
        passing(self.ring.submitter().submit_and_wait(usize::from(wait)))
    }

    /// Submits what is queued, and waits some time for a completion. Before Linux 5.11 it does not
    /// wait.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn submit_and_wait_for(&mut self, up_to: Duration) -> io::Result<()> {
        if up_to.is_zero() || !self.ring.params().is_feature_ext_arg() {
            return self.submit(false);
        }
        let time = types::Timespec::from(up_to);
        let arguments = types::SubmitArgs::new().timespec(&time);
        passing(self.ring.submitter().submit_with_args(1, &arguments))
    }

    /// Whether something is queued, or completions wait to be fetched by a system call.
    fn kernel_has_work(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Hands over every completion that is there: its tag, and bytes or a negative error.
    pub fn reap(&mut self, mut each: impl FnMut(u64, i32)) {
        for entry in self.ring.completion() {
            self.transfers -= u64::from(entry.user_data() & AUXILIARY == 0);
            each(entry.user_data(), entry.result());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.transfers > 0 {
            std::mem::forget(Arc::clone(&self.buffers));
            return;
        }
        // Closing the ring would do both too, but some time after this process has gone on or
        // ended: the next run would then find its memory still locked and the device in use.
        let submitter = self.ring.submitter();
        if self.fixed_slots.is_some() || self.fixed_payload.is_some() {
            let _ = submitter.unregister_buffers();
        }
        if self.fixed_files {
            let _ = submitter.unregister_files();
        }
    }
}

/// Not an error: a time-out, and what the next call may not meet.
fn passing(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(error),
        },
    }
}

fn register(ring: &IoUring, pieces: &[Piece<'_>]) -> io::Result<()> {
    let vectors: Vec<libc::iovec> = pieces
        .iter()
        .map(|piece| libc::iovec {
            iov_base: piece.pointer().cast(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the pieces are of the buffers that the ring owns and drops after itself.
    unsafe { ring.submitter().register_buffers(&vectors) }
}

fn blocking(may_block: bool) -> squeue::Flags {
    if may_block {
        squeue::Flags::ASYNC
    } else {
        squeue::Flags::empty()
    }
}

/// Tries the newest set-up first: each flag is refused as invalid by kernels that lack it.
fn set_up(entries: u32, task_work: bool) -> io::Result<IoUring> {
    let attempts: &[fn(&mut io_uring::Builder)] = &[
        |builder| {
            builder
                .setup_submit_all()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag();
        },
        |builder| {
            builder
                .setup_submit_all()
                .setup_coop_taskrun()
                .setup_taskrun_flag();
        },
        |_| {},
    ];
    let first = if task_work { 0 } else { attempts.len() - 1 };
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for configure in &attempts[first..] {
        let mut builder = IoUring::builder();
        builder.dontfork();
        configure(&mut builder);
        match builder.build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            other => return other,
        }
    }
    Err(refused)
}

fn unavailable_if_forbidden(error: io::Error) -> RingError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            RingError::Unavailable("io_uring is not in this kernel, or filtered".to_owned())
        }
        Some(libc::EPERM | libc::EACCES) => RingError::Unavailable(
            "io_uring is forbidden here (seccomp filter or kernel.io_uring_disabled)".to_owned(),
        ),
        Some(libc::ENOMEM) => {
            RingError::Unavailable("io_uring cannot lock memory for its ring".to_owned())
        }
        _ => RingError::Io(error),
    }
}

/// READ, WRITE and FALLOCATE are as young as 5.6; the rest is older.
fn require_operations(ring: &IoUring) -> Result<(), RingError> {
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fallocate::CODE,
    ];
    if known && needed.into_iter().all(|code| probe.is_supported(code)) {
        return Ok(());
    }
    Err(RingError::Unavailable(
        "io_uring of this kernel lacks operations that are in Linux 5.6".to_owned(),
    ))
}
