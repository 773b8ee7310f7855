//! Memory that the kernel reads and fills while no reference to it exists.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::pages;

/// Size and alignment of a huge page. Contiguous memory keeps a long request one bio.
const HUGE_PAGE: usize = 2 << 20;

/// Anonymous memory, aligned to huge pages.
#[derive(Debug)]
struct Region {
    mapping: NonNull<u8>,
    mapping_len: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is an address range of the process. Its bytes are reached through `&mut self`
// (`bytes`) or by the kernel through pieces, never through a shared reference.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out addresses only.
unsafe impl Sync for Region {}

impl Region {
    fn new(len: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mapping_len = len.checked_add(HUGE_PAGE).ok_or_else(too_large)?;
        let mapping = pages::map(mapping_len)?;
        // SAFETY: the first multiple of HUGE_PAGE lies at most HUGE_PAGE - 1 bytes ahead, and the
        // mapping is HUGE_PAGE bytes longer than `len`.
        let start = unsafe { mapping.add(mapping.align_offset(HUGE_PAGE)) };
        // SAFETY: the range lies within the mapping.
        unsafe { pages::prefer_huge(start, len) };
        Ok(Region {
            mapping,
            mapping_len,
            start,
            len,
        })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised (zeroed) bytes at `start`; `&mut self` excludes pieces, whose
        // lifetimes borrow the region.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn piece(&self, start: usize, len: usize) -> Option<Piece<'_>> {
        let end = start.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `start <= self.len`, so the result is within the mapping or one past it.
        let pointer = unsafe { self.start.add(start) };
        Some(Piece {
            pointer,
            len,
            region: PhantomData,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever holds a piece borrows the region. Operations in
        // flight hold the buffers through the engine or a worker, which leak rather than free them.
        unsafe { pages::unmap(self.mapping, self.mapping_len) };
    }
}

/// Part of a buffer, for one transfer.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pointer: NonNull<u8>,
    len: usize,
    region: PhantomData<&'a Region>,
}

impl Piece<'_> {
    /// Its first byte.
    pub fn pointer(self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its length in bytes.
    pub fn len(self) -> usize {
        self.len
    }
}

/// The buffers of a run: one per slot to read into, and the payload that writes are cut from.
#[derive(Debug)]
pub struct Buffers {
    slots: Option<Region>,
    stride: usize,
    payload: Option<Region>,
}

impl Buffers {
    /// Buffers for `slots` reads of up to `read_bytes`, and a payload of `payload_bytes`. Either
    /// may be 0.
    ///
    /// # Errors
    /// When the address space or memory does not suffice.
    pub fn new(slots: usize, read_bytes: usize, payload_bytes: usize) -> io::Result<Self> {
        let total = slots
            .checked_mul(read_bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let region = |len| {
            if len == 0 {
                Ok(None)
            } else {
                Region::new(len).map(Some)
            }
        };
        Ok(Buffers {
            slots: region(total)?,
            stride: read_bytes,
            payload: region(payload_bytes)?,
        })
    }

    /// The payload, to be filled before the first write.
    pub fn payload_bytes(&mut self) -> &mut [u8] {
        self.payload.as_mut().map_or(&mut [], Region::bytes)
    }

    /// The first `len` bytes of a slot's buffer.
    pub fn slot(&self, slot: u32, len: usize) -> Option<Piece<'_>> {
        let start = usize::try_from(slot).ok()?.checked_mul(self.stride)?;
        if len > self.stride {
            return None;
        }
        self.slots.as_ref()?.piece(start, len)
    }

    /// `len` bytes of payload.
    pub fn payload(&self, start: u32, len: usize) -> Option<Piece<'_>> {
        self.payload
            .as_ref()?
            .piece(usize::try_from(start).ok()?, len)
    }

    /// Copies bytes into the payload, where no write in flight takes its data; `false` beyond it.
    pub fn copy_to_payload(&self, start: u32, bytes: &[u8]) -> bool {
        let Some(piece) = self.payload(start, bytes.len()) else {
            return false;
        };
        // SAFETY: a piece points to that many bytes of the mapping, `bytes` is none of it, and no
        // reference to the mapping exists. The part of a slot has one owner, who holds the run.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), piece.pointer(), bytes.len());
        }
        true
    }

    /// Copies bytes out of the payload, as above.
    pub fn copy_from_payload(&self, start: u32, bytes: &mut [u8]) -> bool {
        self.payload(start, bytes.len())
            .is_some_and(|piece| copy_from(piece, bytes))
    }

    /// Copies out what was read into a slot's buffer, while nothing is in flight there; `false`
    /// beyond it.
    pub fn copy_from_slot(&self, slot: u32, bytes: &mut [u8]) -> bool {
        self.slot(slot, bytes.len())
            .is_some_and(|piece| copy_from(piece, bytes))
    }

    /// What a slot's buffer holds, while nothing is in flight there.
    #[cfg(test)]
    pub fn copy_of_slot(&self, slot: u32, len: usize) -> Vec<u8> {
        let piece = self.slot(slot, len).unwrap();
        // SAFETY: a piece points to that many bytes; the tests call this between operations.
        unsafe { std::slice::from_raw_parts(piece.pointer(), len) }.to_vec()
    }

    /// Both regions whole, slots first; `None` where there is none.
    #[cfg(target_os = "linux")]
    pub fn regions(&self) -> [Option<Piece<'_>>; 2] {
        [&self.slots, &self.payload].map(|region| {
            region
                .as_ref()
                .and_then(|region| region.piece(0, region.len))
        })
    }
}

fn copy_from(piece: Piece<'_>, bytes: &mut [u8]) -> bool {
    if piece.len() != bytes.len() {
        return false;
    }
    // SAFETY: a piece points to that many bytes of the mapping, all initialised (zeroed at first),
    // and `bytes` is none of it.
    unsafe {
        std::ptr::copy_nonoverlapping(piece.pointer(), bytes.as_mut_ptr(), bytes.len());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stay_within_their_buffers() {
        let buffers = Buffers::new(3, 8192, 4096).unwrap();
        let base = buffers.slot(0, 1).unwrap().pointer() as usize;
        assert_eq!(base % HUGE_PAGE, 0);
        assert_eq!(
            buffers.slot(2, 8192).unwrap().pointer() as usize,
            base + 16384
        );
        assert!(buffers.slot(2, 8193).is_none());
        assert!(buffers.slot(3, 1).is_none());
        assert!(buffers.payload(0, 4096).is_some());
        assert!(buffers.payload(4095, 2).is_none());
        assert!(buffers.payload(u32::MAX, usize::MAX).is_none());
    }

    #[test]
    fn absent_buffers_have_no_pieces() {
        let mut buffers = Buffers::new(8, 0, 0).unwrap();
        assert!(buffers.slot(0, 0).is_none());
        assert!(buffers.payload(0, 0).is_none());
        assert!(buffers.payload_bytes().is_empty());
    }
}
