//! Numbers that differ between kernels, read from the running kernel's type information (BTF).
//!
//! The format: `Documentation/bpf/btf.rst` of the kernel.

use std::collections::HashMap;
use std::fs;
use std::io;

use iotape_formats::request::{Flags, Op};

/// Where the kernel has its type information.
pub(in crate::linux) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_ENUM: u32 = 6;

/// How to read what the programs hand over as the kernel has it.
#[derive(Debug)]
pub(super) struct KernelValues {
    ops: [Op; 256],
    /// Which of our flags a bit of the kernel's flags is.
    flags: [Flags; 32],
    /// Zones have a plug for writes: there is one number of an outcome less.
    plugs_zones: bool,
}

impl KernelValues {
    /// Those of the running kernel.
    pub fn read() -> io::Result<KernelValues> {
        KernelValues::parse(&fs::read(VMLINUX)?).ok_or_else(|| {
            io::Error::other(format!("{VMLINUX} is not understood: no type information"))
        })
    }

    fn parse(btf: &[u8]) -> Option<KernelValues> {
        let found = enumerators(btf)?;
        let mut ops = [Op::Other; 256];
        for (name, op) in [
            ("REQ_OP_READ", Op::Read),
            ("REQ_OP_WRITE", Op::Write),
            ("REQ_OP_FLUSH", Op::Flush),
            ("REQ_OP_DISCARD", Op::Discard),
            ("REQ_OP_SECURE_ERASE", Op::Discard),
            ("REQ_OP_WRITE_ZEROES", Op::WriteZeroes),
            ("REQ_OP_ZONE_APPEND", Op::ZoneAppend),
            ("REQ_OP_ZONE_RESET", Op::ZoneReset),
            ("REQ_OP_ZONE_RESET_ALL", Op::ZoneReset),
        ] {
            let place = found
                .get(name)
                .and_then(|number| ops.get_mut(*number as usize));
            if let Some(place) = place {
                *place = op;
            }
        }
        let mut flags = [Flags::NONE; 32];
        for (name, flag) in [
            ("__REQ_SYNC", Flags::SYNC),
            ("__REQ_META", Flags::META),
            ("__REQ_FUA", Flags::FUA),
            ("__REQ_PREFLUSH", Flags::PREFLUSH),
            ("__REQ_RAHEAD", Flags::READAHEAD),
            ("__REQ_BACKGROUND", Flags::BACKGROUND),
            ("__REQ_NOWAIT", Flags::NOWAIT),
            ("__REQ_SWAP", Flags::PAGING),
            ("__REQ_ATOMIC", Flags::ATOMIC),
        ] {
            let place = found.get(name).and_then(|bit| flags.get_mut(*bit as usize));
            if let Some(place) = place {
                *place = flag;
            }
        }
        let secure = found.get("REQ_OP_SECURE_ERASE").copied();
        // No kernel has been without these.
        found.get("__REQ_SYNC").filter(|_| secure.is_some())?;
        Some(KernelValues {
            ops,
            flags,
            plugs_zones: found.contains_key("BIO_ZONE_WRITE_PLUGGING"),
        })
    }

    /// Operation and flags of the kernel's `cmd_flags` of a request, or `bi_opf` of a bio.
    pub fn op_and_flags(&self, opf: u32, length_bytes: u64) -> (Op, Flags) {
        let op = self.ops[(opf & 0xff) as usize];
        let mut flags = Flags::NONE;
        let mut bits = opf & !0xff;
        while bits != 0 {
            flags |= self.flags[bits.trailing_zeros() as usize];
            bits &= bits - 1;
        }
        // PREFLUSH without data is a flush, and a flush has nothing before it.
        let empty_preflush = flags.contains(Flags::PREFLUSH) && length_bytes == 0;
        match op {
            Op::Write | Op::Flush if empty_preflush || op == Op::Flush => (
                Op::Flush,
                Flags::from_bits(flags.bits() & !Flags::PREFLUSH.bits()),
            ),
            op => (op, flags),
        }
    }

    /// The errno of an outcome: the kernel's table `blk_errors`.
    pub fn errno(&self, status: u8) -> u32 {
        let status = match status {
            // The number of a resource of zones went, those behind it moved up.
            14..=17 if self.plugs_zones => status + 1,
            status => status,
        };
        let errno = match status {
            0 => 0,
            1 => libc::EOPNOTSUPP,
            2 => libc::ETIMEDOUT,
            3 => libc::ENOSPC,
            4 => libc::ENOLINK,
            5 => libc::EREMOTEIO,
            6 => libc::EBADE,
            7 => libc::ENODATA,
            8 => libc::EILSEQ,
            9 => libc::ENOMEM,
            11 => libc::EREMCHG,
            12 => libc::EAGAIN,
            13 => libc::EBUSY,
            15 => libc::ETOOMANYREFS,
            16 => libc::EOVERFLOW,
            17 => libc::ENODEV,
            18 => libc::ETIME,
            19 => libc::EINVAL,
            _ => libc::EIO,
        };
        errno.unsigned_abs()
    }
}

/// All named numbers of the kernel's enumerations that the block layer may have.
fn enumerators(btf: &[u8]) -> Option<HashMap<&str, u32>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*btf.get(at..)?.first_chunk()?));
    let magic = u16::from_ne_bytes(*btf.first_chunk()?);
    let header = word(4)? as usize;
    let section = |at: usize| Some((word(at)? as usize, word(at + 4)? as usize));
    let ((types, types_bytes), (names, names_bytes)) = (section(8)?, section(16)?);
    let part = |from: usize, bytes: usize| btf.get(header.checked_add(from)?..)?.get(..bytes);
    let (mut types, names) = (part(types, types_bytes)?, part(names, names_bytes)?);
    let name = |at: u32| {
        let rest = names.get(at as usize..)?;
        let end = memchr::memchr(0, rest)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    let mut found = HashMap::new();
    while magic == MAGIC && !types.is_empty() {
        let word = |at: usize| Some(u32::from_ne_bytes(*types.get(at..)?.first_chunk()?));
        let info = word(4)?;
        let (kind, members) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        let extra = match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * members,
            KIND_ENUM | 13 => 8 * members,
            0 | 2 | 7..=12 | 16 | 18 => 0,
            // What comes behind a kind of later kernels cannot be found.
            _ => return None,
        };
        for member in 0..if kind == KIND_ENUM { members } else { 0 } {
            let name = name(word(12 + 8 * member)?)?;
            if name.starts_with("REQ_OP_") || name.starts_with("__REQ_") || name.starts_with("BIO_")
            {
                found.insert(name, word(16 + 8 * member)?);
            }
        }
        types = types.get(12 + extra..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information of some enumerations, as the kernel's documentation describes it.
    fn btf(enumerations: &[&[(&str, u32)]]) -> Vec<u8> {
        let (mut types, mut names) = (Vec::new(), vec![0]);
        // An integer first, to be skipped.
        types.extend([0u32, 1 << 24, 4, 32].map(u32::to_ne_bytes).concat());
        for members in enumerations {
            let info = KIND_ENUM << 24 | members.len() as u32;
            types.extend([0, info, 4].map(u32::to_ne_bytes).concat());
            for (name, value) in *members {
                types.extend([names.len() as u32, *value].map(u32::to_ne_bytes).concat());
                names.extend(name.bytes().chain([0]));
            }
        }
        let (types_bytes, names_bytes) = (types.len() as u32, names.len() as u32);
        let mut btf = MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        let header = [24, 0, types_bytes, types_bytes, names_bytes];
        btf.extend(header.map(u32::to_ne_bytes).concat());
        btf.extend(types);
        btf.extend(names);
        btf
    }

    fn values(more: &[(&str, u32)]) -> KernelValues {
        let ops = [
            ("REQ_OP_READ", 0),
            ("REQ_OP_WRITE", 1),
            ("REQ_OP_FLUSH", 2),
            ("REQ_OP_SECURE_ERASE", 5),
        ];
        let flags = [
            ("__REQ_SYNC", 11),
            ("__REQ_FUA", 17),
            ("__REQ_PREFLUSH", 18),
        ];
        KernelValues::parse(&btf(&[&ops, &flags, more])).unwrap()
    }

    #[test]
    fn operations_and_flags_are_those_of_the_kernel_at_hand() {
        let values = values(&[("REQ_OP_WRITE_ZEROES", 9)]);
        let seen = |opf, length| {
            let (op, flags) = values.op_and_flags(opf, length);
            (op, flags.to_string())
        };
        assert_eq!(seen(0, 4096), (Op::Read, String::new()));
        assert_eq!(
            seen(1 | 1 << 11 | 1 << 17, 4096),
            (Op::Write, "sync+fua".into())
        );
        assert_eq!(
            seen(1 | 1 << 18 | 1 << 11, 4096),
            (Op::Write, "sync+preflush".into())
        );
        assert_eq!(seen(1 | 1 << 18 | 1 << 11, 0), (Op::Flush, "sync".into()));
        assert_eq!(seen(2 | 1 << 18, 0), (Op::Flush, String::new()));
        assert_eq!(seen(9, 4096), (Op::WriteZeroes, String::new()));
        assert_eq!(seen(34, 0), (Op::Other, String::new()));
    }

    #[test]
    fn outcomes_are_those_of_the_kernel_at_hand() {
        let older = values(&[]);
        let newer = values(&[("BIO_ZONE_WRITE_PLUGGING", 12)]);
        for values in [&older, &newer] {
            assert_eq!(values.errno(0), 0);
            assert_eq!(values.errno(10), 5, "EIO");
            assert_eq!(values.errno(3), 28, "ENOSPC");
        }
        assert_eq!((older.errno(17), newer.errno(16)), (19, 19), "ENODEV");
        assert_eq!((older.errno(18), newer.errno(17)), (62, 62), "ETIME");
    }

    #[test]
    fn what_is_no_type_information_is_refused() {
        assert!(KernelValues::parse(b"").is_none());
        let whole = btf(&[&[("__REQ_SYNC", 11)], &[("REQ_OP_SECURE_ERASE", 5)]]);
        assert!(KernelValues::parse(&whole).is_some());
        for end in 0..whole.len() {
            assert!(KernelValues::parse(&whole[..end]).is_none(), "{end}");
        }
        if let Ok(vmlinux) = fs::read(VMLINUX) {
            let values = KernelValues::parse(&vmlinux).unwrap();
            assert_eq!(values.op_and_flags(0, 512).0, Op::Read);
            assert_eq!(values.op_and_flags(1, 512).0, Op::Write);
        } else {
            eprintln!("skipped: the kernel at hand: {VMLINUX} cannot be read");
        }
    }
}
