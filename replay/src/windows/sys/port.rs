//! A completion port with the targets' handles, and reads and writes in flight on it.

use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    ERROR_IO_PENDING, HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT,
};
use windows_sys::Win32::Media::{timeBeginPeriod, timeEndPeriod};
use windows_sys::Win32::Storage::FileSystem::{
    ReadFile, SetFileCompletionNotificationModes, WriteFile,
};
use windows_sys::Win32::System::IO::{
    CancelIoEx, CreateIoCompletionPort, GetOverlappedResult, GetQueuedCompletionStatusEx,
    OVERLAPPED, OVERLAPPED_ENTRY, PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::WindowsProgramming::{
    FILE_SKIP_COMPLETION_PORT_ON_SUCCESS, FILE_SKIP_SET_EVENT_ON_HANDLE,
};

use super::file::{File, end_of_file, overlapped_at};
use super::memory::{Buffers, Piece};
use super::{code, last_error};

/// Key of the packets of [`Signal::raise`]; those of operations have 0.
const SIGNAL: usize = 1;
/// Most completions that are fetched at once.
const MOST_ENTRIES: usize = 1_024;
/// How long a cancelled operation may take to come back before its memory is left to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The system's clock ticks this often while a port exists, for waits to end in time.
const TIMER_MS: u32 = 1;

/// What of the system is used. Tests take it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// An operation that is done at once sends no packet.
    pub skip_on_success: bool,
}

impl PortOptions {
    /// Everything.
    pub const ALL: PortOptions = PortOptions {
        skip_on_success: true,
    };
}

/// A read or a write.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Whose structure and, for a read, buffer it uses.
    pub slot: u32,
    /// Which target, by its index.
    pub target: u8,
    /// First byte on the target.
    pub offset: u64,
    /// How long.
    pub length: u64,
}

/// See the module.
pub struct Port {
    port: OwnedHandle,
    targets: Vec<Target>,
    /// One a slot; the system writes to it while its operation is in flight.
    operations: ManuallyDrop<Box<[UnsafeCell<Operation>]>>,
    buffers: ManuallyDrop<Arc<Buffers>>,
    entries: Vec<OVERLAPPED_ENTRY>,
    in_flight: usize,
    _timer: Timer,
}

/// The port's own handles of a target.
#[derive(Debug)]
struct Target {
    handle: OwnedHandle,
    durable: Option<OwnedHandle>,
    /// Whether an operation that is done at once sends no packet.
    skips: bool,
}

#[repr(C)]
struct Operation {
    /// First, so that its address is that of the operation.
    overlapped: OVERLAPPED,
    /// On which handle.
    handle: HANDLE,
    in_flight: bool,
}

impl Port {
    /// A port with `slots` operations on these targets, which it opens once more for itself.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        slots: u32,
        targets: &[Arc<File>],
        buffers: Arc<Buffers>,
        options: PortOptions,
    ) -> io::Result<Self> {
        // SAFETY: without a file, a new port is made; one thread at a time uses it.
        let port =
            unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, std::ptr::null_mut(), 0, 1) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle is new and nobody else's.
        let port = unsafe { OwnedHandle::from_raw_handle(port) };
        let targets: io::Result<Vec<Target>> = targets
            .iter()
            .map(|file| Target::of(file, &port, options))
            .collect();
        let slots = usize::try_from(slots).unwrap_or(0);
        let operation = || {
            UnsafeCell::new(Operation {
                overlapped: OVERLAPPED::default(),
                handle: INVALID_HANDLE_VALUE,
                in_flight: false,
            })
        };
        let operations: Vec<_> = std::iter::repeat_with(operation).take(slots).collect();
        Ok(Port {
            port,
            targets: targets?,
            operations: ManuallyDrop::new(operations.into_boxed_slice()),
            buffers: ManuallyDrop::new(buffers),
            entries: vec![OVERLAPPED_ENTRY::default(); slots.clamp(1, MOST_ENTRIES)],
            in_flight: 0,
            _timer: Timer::start(),
        })
    }

    /// Starts a read into the slot's buffer. Its outcome, if it is done at once.
    pub fn read(&mut self, transfer: &Transfer) -> Option<i64> {
        let piece = usize::try_from(transfer.length)
            .ok()
            .and_then(|length| self.buffers.slot(transfer.slot, length));
        let (pointer, length) = match outside(piece) {
            Ok(place) => place,
            Err(error) => return Some(failed(error)),
        };
        self.start(transfer, false, |handle, overlapped| {
            // SAFETY: the piece is that many writable bytes of the buffers, which are not freed
            // while an operation is in flight; the slot has no other one, so nobody else uses it.
            unsafe { ReadFile(handle, pointer, length, std::ptr::null_mut(), overlapped) }
        })
    }

    /// Starts a write of the payload from `payload` on, durable on completion if asked. Its
    /// outcome, if it is done at once.
    pub fn write(&mut self, transfer: &Transfer, payload: u32, durable: bool) -> Option<i64> {
        let piece = usize::try_from(transfer.length)
            .ok()
            .and_then(|length| self.buffers.payload(payload, length));
        let (pointer, length) = match outside(piece) {
            Ok(place) => place,
            Err(error) => return Some(failed(error)),
        };
        self.start(transfer, durable, |handle, overlapped| {
            // SAFETY: as above; the system only reads.
            unsafe { WriteFile(handle, pointer, length, std::ptr::null_mut(), overlapped) }
        })
    }

    fn start(
        &mut self,
        transfer: &Transfer,
        durable: bool,
        call: impl FnOnce(HANDLE, *mut OVERLAPPED) -> i32,
    ) -> Option<i64> {
        let Some(target) = self.targets.get(usize::from(transfer.target)) else {
            return Some(failed(code::NO_DEVICE));
        };
        let index = usize::try_from(transfer.slot).unwrap_or(usize::MAX);
        let Some(cell) = self.operations.get(index) else {
            return Some(failed(code::BAD_BUFFER));
        };
        let overlapped = match overlapped_at(transfer.offset) {
            Ok(overlapped) => overlapped,
            Err(error) => return Some(failed(error)),
        };
        let through = target.durable.as_ref().filter(|_| durable);
        let handle = through.unwrap_or(&target.handle).as_raw_handle();
        let operation = cell.get();
        // SAFETY: the caller has nothing in flight in this slot, so the system does not use it.
        unsafe {
            *operation = Operation {
                overlapped,
                handle,
                in_flight: true,
            };
        }
        // SAFETY: the pointer is to the first field of a live operation.
        let started = call(handle, unsafe { &raw mut (*operation).overlapped });
        let at_once = match started {
            0 => match last_error() {
                error if error.cast_unsigned() == ERROR_IO_PENDING => None,
                error => Some(outcome(end_of_file(error))),
            },
            // SAFETY: the system is done with it, by the call's answer.
            _ if target.skips => Some(unsafe { result_of(operation) }),
            _ => None,
        };
        match at_once {
            // SAFETY: as above; an operation that failed to start is not in flight either.
            Some(_) => unsafe { (*operation).in_flight = false },
            None => self.in_flight += 1,
        }
        at_once
    }

    /// Waits for packets for up to so many milliseconds, and hands each completion on with its
    /// slot. Whether a signal was among them.
    ///
    /// # Errors
    /// When the port fails.
    pub fn wait(&mut self, timeout_ms: u32, mut each: impl FnMut(u32, i64)) -> io::Result<bool> {
        let mut count = 0;
        let room = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        // SAFETY: there is room for as many entries as said.
        let got = unsafe {
            GetQueuedCompletionStatusEx(
                self.port.as_raw_handle(),
                self.entries.as_mut_ptr(),
                room,
                &raw mut count,
                timeout_ms,
                0,
            )
        };
        if got == 0 {
            let error = last_error();
            return match error.cast_unsigned() {
                WAIT_TIMEOUT => Ok(false),
                _ => Err(io::Error::from_raw_os_error(error)),
            };
        }
        let count = usize::try_from(count).unwrap_or(0).min(self.entries.len());
        let mut signalled = false;
        for entry in 0..count {
            let entry = self.entries[entry];
            signalled |= entry.lpCompletionKey == SIGNAL;
            if entry.lpCompletionKey == 0
                && let Some((slot, outcome)) = self.take(entry.lpOverlapped)
            {
                each(slot, outcome);
            }
        }
        Ok(signalled)
    }

    /// The slot and outcome of a completed operation; `None` when it is none of ours.
    fn take(&mut self, overlapped: *const OVERLAPPED) -> Option<(u32, i64)> {
        let distance = overlapped
            .addr()
            .checked_sub(self.operations.as_ptr().addr())?;
        if distance % size_of::<UnsafeCell<Operation>>() != 0 {
            return None;
        }
        let index = distance / size_of::<UnsafeCell<Operation>>();
        let operation = self.operations.get(index)?.get();
        // SAFETY: a packet has come for it, so the system is done with it.
        unsafe {
            if !std::mem::take(&mut (*operation).in_flight) {
                return None;
            }
            self.in_flight -= 1;
            Some((u32::try_from(index).ok()?, result_of(operation)))
        }
    }

    /// Waits until nothing is in flight any more, but not for ever.
    fn drain(&mut self) {
        for target in &self.targets {
            for handle in [Some(&target.handle), target.durable.as_ref()]
                .into_iter()
                .flatten()
            {
                // SAFETY: the handle is open. Without an operation, all of it are cancelled.
                unsafe { CancelIoEx(handle.as_raw_handle(), std::ptr::null()) };
            }
        }
        let end = Instant::now() + PATIENCE;
        while self.in_flight > 0 && Instant::now() < end {
            if self.wait(100, |_, _| {}).is_err() {
                break;
            }
        }
    }
}

impl Drop for Port {
    /// Frees the memory that operations use only when there are none.
    fn drop(&mut self) {
        self.drain();
        if self.in_flight == 0 {
            // SAFETY: nothing is in flight, and neither is used again.
            unsafe {
                ManuallyDrop::drop(&mut self.operations);
                ManuallyDrop::drop(&mut self.buffers);
            }
        }
    }
}

impl Target {
    fn of(file: &File, port: &OwnedHandle, options: PortOptions) -> io::Result<Self> {
        let handle = file.reopen(false)?;
        let durable = file.writable().then(|| file.reopen(true)).transpose()?;
        let mut skips = options.skip_on_success;
        for handle in [Some(&handle), durable.as_ref()].into_iter().flatten() {
            // SAFETY: both handles are open; completions of this one get key 0.
            let joined = unsafe {
                CreateIoCompletionPort(handle.as_raw_handle(), port.as_raw_handle(), 0, 0)
            };
            if joined.is_null() {
                return Err(io::Error::last_os_error());
            }
            skips = skips && skip_on_success(handle);
        }
        Ok(Target {
            handle,
            durable,
            skips,
        })
    }
}

/// Asks for no packet after success at once. Where that is refused they come.
fn skip_on_success(handle: &OwnedHandle) -> bool {
    let modes = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE;
    let Ok(modes) = u8::try_from(modes) else {
        return false;
    };
    // SAFETY: the handle is open.
    unsafe { SetFileCompletionNotificationModes(handle.as_raw_handle(), modes) != 0 }
}

/// Address and length of a piece, as the system wants them.
fn outside(piece: Option<Piece<'_>>) -> Result<(*mut u8, u32), i32> {
    let piece = piece.ok_or(code::BAD_BUFFER)?;
    let length = u32::try_from(piece.len()).map_err(|_| code::INVALID)?;
    Ok((piece.pointer(), length))
}

/// The outcome of an operation that is done.
///
/// # Safety
/// The system must be done with it.
unsafe fn result_of(operation: *mut Operation) -> i64 {
    let mut bytes = 0;
    // SAFETY: by the caller; the operation's handle is open as long as the port.
    let done = unsafe {
        GetOverlappedResult(
            (*operation).handle,
            &raw const (*operation).overlapped,
            &raw mut bytes,
            0,
        )
    };
    match done {
        0 => outcome(end_of_file(last_error())),
        _ => i64::from(bytes),
    }
}

fn outcome(transferred: Result<usize, i32>) -> i64 {
    match transferred {
        Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        Err(error) => failed(error),
    }
}

fn failed(error: i32) -> i64 {
    -i64::from(error)
}

/// Tells an engine that waits for its port that something else is done.
#[derive(Debug)]
pub struct Signal(OwnedHandle);

impl Signal {
    /// The signal of a port, which it outlives.
    ///
    /// # Errors
    /// The system's.
    pub fn of(port: &Port) -> io::Result<Self> {
        port.port.try_clone().map(Signal)
    }

    /// Fails only for want of memory; the engine looks again after a tick in any case.
    pub fn raise(&self) {
        // SAFETY: the port is open; a packet without an operation is only a key.
        unsafe { PostQueuedCompletionStatus(self.0.as_raw_handle(), 0, SIGNAL, std::ptr::null()) };
    }
}

/// The finer tick of the system's clock, which lasts as long as this.
#[derive(Debug)]
struct Timer(bool);

impl Timer {
    fn start() -> Self {
        // SAFETY: no pointers; 0 is success.
        Timer(unsafe { timeBeginPeriod(TIMER_MS) } == 0)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: pairs with the one that succeeded.
            unsafe { timeEndPeriod(TIMER_MS) };
        }
    }
}
