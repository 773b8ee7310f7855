//! Signatures of what somebody may want to keep: partition tables, filesystems, RAID and volume
//! managers, encryption. Offsets and bytes are those of the formats' own documentation, as
//! libblkid and file(1) know them too.

/// Bytes read at either end of a target: ZFS labels are the largest.
pub const REGION_BYTES: u64 = 256 << 10;

/// The beginning and the end of a target.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    /// From byte 0.
    pub head: Vec<u8>,
    /// Up to the last byte.
    pub tail: Vec<u8>,
    /// Size of the target.
    pub size_bytes: u64,
}

/// What was found, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// With its article.
    pub what: &'static str,
    /// From the start of the target.
    pub offset_bytes: u64,
}

/// Bytes that identify a format by themselves, at an offset from the start.
const AT_START: &[(&str, u64, &[u8])] = &[
    ("an iotape tape", 0, b"\x89IOTAPE\n"),
    ("an XFS filesystem", 0, b"XFSB"),
    ("a SquashFS filesystem", 0, b"hsqs"),
    ("a ROM filesystem", 0, b"-rom1fs-"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a BlueStore (Ceph) volume", 0, b"bluestore block device"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a dm-integrity volume", 0, b"integrt\0"),
    ("a dm-verity volume", 0, b"verity\0\0"),
    ("an md RAID member", 0, &0xa92b_4efcu32.to_le_bytes()),
    ("an md RAID member", 4096, &0xa92b_4efcu32.to_le_bytes()),
    ("an NTFS filesystem", 3, b"NTFS    "),
    ("an exFAT filesystem", 3, b"EXFAT   "),
    ("a ReFS filesystem", 3, b"ReFS\0\0\0\0"),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a FAT filesystem", 54, b"FAT12   "),
    ("a FAT filesystem", 54, b"FAT16   "),
    ("a FAT filesystem", 82, b"FAT32   "),
    ("an Oracle ASM disk", 32, b"ORCLDISK"),
    ("an APFS container", 32, b"NXSB"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an LVM2 physical volume", 0, b"LABELONE"),
    ("an LVM2 physical volume", 512, b"LABELONE"),
    ("an LVM2 physical volume", 1024, b"LABELONE"),
    ("an LVM2 physical volume", 1536, b"LABELONE"),
    ("an F2FS filesystem", 1024, &0xf2f5_2010u32.to_le_bytes()),
    ("an EROFS filesystem", 1024, &0xe0f5_e1e2u32.to_le_bytes()),
    ("an OCFS2 filesystem", 1024, b"OCFSV2"),
    ("an OCFS2 filesystem", 2048, b"OCFSV2"),
    ("an OCFS2 filesystem", 4096, b"OCFSV2"),
    ("a Windows Storage Spaces member", 4096, b"SPACEDB "),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 4096 - 10, b"SWAP-SPACE"),
    ("swap space", 8192 - 10, b"SWAPSPACE2"),
    ("swap space", 16_384 - 10, b"SWAPSPACE2"),
    ("swap space", 65_536 - 10, b"SWAPSPACE2"),
    ("a suspended system", 4096 - 10, b"S1SUSPEND"),
    ("a bcache device", 4096 + 24, BCACHE),
    ("a bcachefs filesystem", 4096 + 24, BCACHEFS),
    ("a JFS filesystem", 32 << 10, b"JFS1"),
    ("an ISO 9660 filesystem", (32 << 10) + 1, b"CD001"),
    ("a UDF filesystem", (32 << 10) + 1, b"BEA01"),
    ("a ReiserFS filesystem", (64 << 10) + 52, b"ReIsEr"),
    ("a btrfs filesystem", (64 << 10) + 64, b"_BHRfS_M"),
    ("a GFS2 filesystem", 64 << 10, &0x0116_1970u32.to_be_bytes()),
    ("a LUKS2 volume", 16 << 10, b"SKUL\xba\xbe"),
    ("a LUKS2 volume", 32 << 10, b"SKUL\xba\xbe"),
    ("a LUKS2 volume", 64 << 10, b"SKUL\xba\xbe"),
    ("a LUKS2 volume", 128 << 10, b"SKUL\xba\xbe"),
];

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

/// The same, at a distance from the end.
const AT_END: &[(&str, u64, &[u8])] = &[
    ("a GPT partition table (backup)", 512, b"EFI PART"),
    ("a GPT partition table (backup)", 4096, b"EFI PART"),
    ("an Intel RAID member", 1024, b"Intel Raid ISM Cfg Sig. "),
    ("a DDF RAID member", 512, &0xde11_de11u32.to_be_bytes()),
];

/// Finds the first signature.
pub fn find(regions: &Regions) -> Option<Signature> {
    let at_start = AT_START
        .iter()
        .find(|&&(_, offset, bytes)| regions.at(offset, bytes.len()) == Some(bytes))
        .map(|&(what, offset_bytes, _)| Signature { what, offset_bytes });
    let at_end = || {
        AT_END.iter().find_map(|&(what, distance, bytes)| {
            let offset_bytes = regions.size_bytes.checked_sub(distance)?;
            let found = regions.at(offset_bytes, bytes.len())? == bytes;
            found.then_some(Signature { what, offset_bytes })
        })
    };
    at_start
        .or_else(|| ext(regions))
        .or_else(|| nilfs(regions))
        .or_else(|| hfs_plus(regions))
        .or_else(at_end)
        .or_else(|| md_at_end(regions))
        .or_else(|| zfs(regions))
        .or_else(|| mbr(regions))
}

impl Regions {
    fn at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let tail_start = self.size_bytes.checked_sub(self.tail.len() as u64)?;
        let within = |region: &'_ Vec<u8>, start: u64| -> Option<std::ops::Range<usize>> {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            let range = from..from.checked_add(len)?;
            (range.end <= region.len()).then_some(range)
        };
        if let Some(range) = within(&self.head, 0) {
            return self.head.get(range);
        }
        self.tail.get(within(&self.tail, tail_start)?)
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.at(offset, 2)?.try_into().ok()?))
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.at(offset, 4)?.try_into().ok()?))
    }
}

/// Two bytes are too few by themselves: block size and revision must make sense too.
fn ext(regions: &Regions) -> Option<Signature> {
    let magic = regions.u16(1024 + 56)? == 0xef53;
    let plausible = regions.u32(1024 + 24)? <= 6 && regions.u32(1024 + 76)? <= 1;
    (magic && plausible).then_some(Signature {
        what: "an ext2, ext3 or ext4 filesystem",
        offset_bytes: 1024 + 56,
    })
}

fn nilfs(regions: &Regions) -> Option<Signature> {
    let found = regions.u16(1024 + 6)? == 0x3434 && regions.u32(1024)? == 2;
    found.then_some(Signature {
        what: "a NILFS2 filesystem",
        offset_bytes: 1024 + 6,
    })
}

fn hfs_plus(regions: &Regions) -> Option<Signature> {
    let found = [b"H+\0\x04", b"HX\0\x05"]
        .into_iter()
        .any(|m| regions.at(1024, 4) == Some(&m[..]));
    found.then_some(Signature {
        what: "an HFS+ filesystem",
        offset_bytes: 1024,
    })
}

/// Superblock 0.90: in the last whole 64 KiB but one. Superblock 1.0: 8 KiB before the end, on a
/// multiple of 4 KiB.
fn md_at_end(regions: &Regions) -> Option<Signature> {
    let size = regions.size_bytes;
    let places = [
        (size - size % 65_536).checked_sub(65_536),
        size.checked_sub(8_192)
            .map(|offset| offset - offset % 4_096),
    ];
    places
        .into_iter()
        .flatten()
        .find(|&offset| regions.u32(offset) == Some(0xa92b_4efc))
        .map(|offset_bytes| Signature {
            what: "an md RAID member",
            offset_bytes,
        })
}

/// An uberblock in the array of a label: two labels at the start, two at the end.
fn zfs(regions: &Regions) -> Option<Signature> {
    const MAGIC: u64 = 0x00ba_b10c;
    let size = regions.size_bytes - regions.size_bytes % (256 << 10);
    let labels = [Some(0), size.checked_sub(256 << 10)];
    labels
        .into_iter()
        .flatten()
        .flat_map(|label| (128..256).map(move |kib| label + kib * 1024))
        .find(|&offset| {
            let number = regions
                .at(offset, 8)
                .and_then(|bytes| bytes.try_into().ok());
            number.is_some_and(|bytes| {
                u64::from_le_bytes(bytes) == MAGIC || u64::from_be_bytes(bytes) == MAGIC
            })
        })
        .map(|offset_bytes| Signature {
            what: "a ZFS pool member",
            offset_bytes,
        })
}

/// `55 aa` also ends other boot sectors: four entries must make sense, and one be in use.
fn mbr(regions: &Regions) -> Option<Signature> {
    if regions.at(510, 2)? != [0x55, 0xaa] {
        return None;
    }
    let mut used = false;
    for entry in 0..4 {
        let bytes = regions.at(446 + entry * 16, 16)?;
        let sectors = regions.u32(446 + entry * 16 + 12)?;
        if bytes[0] & 0x7f != 0 {
            return None;
        }
        used |= bytes[4] != 0 && sectors != 0;
    }
    used.then_some(Signature {
        what: "an MBR partition table",
        offset_bytes: 510,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    fn empty() -> Regions {
        Regions {
            head: vec![0; REGION_BYTES as usize],
            tail: vec![0; REGION_BYTES as usize],
            size_bytes: SIZE,
        }
    }

    fn put(regions: &mut Regions, offset: u64, bytes: &[u8]) {
        let tail_start = SIZE - REGION_BYTES;
        let (region, at) = if offset >= tail_start {
            (&mut regions.tail, offset - tail_start)
        } else {
            (&mut regions.head, offset)
        };
        region[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn zeros_and_noise_carry_nothing() {
        assert_eq!(find(&empty()), None);
        let mut random = fastrand::Rng::with_seed(3);
        let mut regions = empty();
        random.fill(&mut regions.head);
        random.fill(&mut regions.tail);
        assert_eq!(find(&regions), None);
        assert_eq!(find(&Regions::default()), None);
    }

    #[test]
    fn every_listed_signature_is_found_where_it_stands() {
        for &(what, offset, bytes) in AT_START {
            let mut regions = empty();
            put(&mut regions, offset, bytes);
            assert_eq!(
                find(&regions),
                Some(Signature {
                    what,
                    offset_bytes: offset
                })
            );
        }
        for &(what, distance, bytes) in AT_END {
            let mut regions = empty();
            put(&mut regions, SIZE - distance, bytes);
            assert_eq!(
                find(&regions),
                Some(Signature {
                    what,
                    offset_bytes: SIZE - distance
                })
            );
        }
    }

    #[test]
    fn weak_magics_need_a_plausible_neighbourhood() {
        let mut regions = empty();
        put(&mut regions, 1024 + 56, &[0x53, 0xef]);
        assert!(find(&regions).unwrap().what.contains("ext4"));
        put(&mut regions, 1024 + 24, &[7]);
        assert_eq!(find(&regions), None);

        let mut regions = empty();
        put(&mut regions, 510, &[0x55, 0xaa]);
        assert_eq!(find(&regions), None);
        put(&mut regions, 446 + 4, &[0x83]);
        put(&mut regions, 446 + 12, &[1]);
        assert_eq!(find(&regions).unwrap().what, "an MBR partition table");
        put(&mut regions, 446 + 16, &[0x31]);
        assert_eq!(find(&regions), None);
    }

    #[test]
    fn superblocks_at_the_end_are_found() {
        let magic = 0xa92b_4efcu32.to_le_bytes();
        for offset in [SIZE - 65_536, SIZE - 8_192] {
            let mut regions = empty();
            put(&mut regions, offset, &magic);
            let found = Signature {
                what: "an md RAID member",
                offset_bytes: offset,
            };
            assert_eq!(find(&regions), Some(found));
        }
        for (offset, bytes) in [
            (130 << 10, 0x00ba_b10cu64.to_le_bytes()),
            (SIZE - (64 << 10), 0x00ba_b10cu64.to_be_bytes()),
        ] {
            let mut regions = empty();
            put(&mut regions, offset, &bytes);
            assert_eq!(find(&regions).unwrap().what, "a ZFS pool member");
        }
    }

    #[test]
    fn a_target_smaller_than_a_region_is_searched_whole() {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(b"XFSB");
        let regions = Regions {
            tail: head.clone(),
            head,
            size_bytes: 4096,
        };
        assert_eq!(find(&regions).unwrap().what, "an XFS filesystem");
    }
}
