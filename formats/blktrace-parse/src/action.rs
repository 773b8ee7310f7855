//! What a record reports: its action, and the categories of the I/O.
//!
//! Source: `enum blktrace_act`, `enum blktrace_notify` and `enum blktrace_cat` in Linux
//! `include/uapi/linux/blktrace_api.h`. The numbers of version 7 and version 8 are the same;
//! version 8 has room for more categories.

/// First bit of the categories.
const CATEGORY_SHIFT: u32 = 16;
/// The bits that hold the action's number and the control-group mark.
const NUMBER_MASK: u64 = (1 << CATEGORY_SHIFT) - 1;
/// The payload begins with the id of a control group.
const CGROUP: u64 = 1 << 8;

/// The action field as it stands in the record, widened to version 8's 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action(pub u64);

impl Action {
    /// An action of these parts.
    ///
    /// `kind` and `categories` must agree: a note needs [`Categories::NOTE`].
    pub fn new(kind: Kind, categories: Categories, has_cgroup: bool) -> Action {
        let cgroup = if has_cgroup { CGROUP } else { 0 };
        Action(u64::from(kind.number()) | cgroup | categories.0 << CATEGORY_SHIFT)
    }

    /// What happened.
    #[inline]
    pub fn kind(self) -> Kind {
        let number = (self.0 & NUMBER_MASK & !CGROUP) as u16;
        if self.is_note() {
            Kind::of_note(number)
        } else {
            Kind::of_event(number)
        }
    }

    /// What the I/O is.
    #[inline]
    pub fn categories(self) -> Categories {
        Categories(self.0 >> CATEGORY_SHIFT)
    }

    /// Whether the record is a note beside the I/O: it has no sequence number of its own.
    #[inline]
    pub fn is_note(self) -> bool {
        self.categories().contains(Categories::NOTE)
    }

    /// Whether the payload begins with the id of a control group.
    #[inline]
    pub fn has_cgroup(self) -> bool {
        self.0 & CGROUP != 0
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Q: a bio was queued.
    Queue,
    /// M: a bio was merged to the end of a request.
    BackMerge,
    /// F: a bio was merged to the front of a request.
    FrontMerge,
    /// G: a request was allocated.
    GetRequest,
    /// S: waiting for a request.
    SleepRequest,
    /// R: the driver gave a request back.
    Requeue,
    /// D: a request was issued to the driver.
    Issue,
    /// C: a request, or part of it, completed.
    Complete,
    /// P: the queue was plugged.
    Plug,
    /// U: the queue was unplugged.
    Unplug,
    /// UT: the queue was unplugged by a timer (old kernels), or at a schedule.
    UnplugTimer,
    /// I: a request was inserted in the scheduler.
    Insert,
    /// X: a bio was split.
    Split,
    /// B: a bio was bounced (old kernels).
    Bounce,
    /// A: a bio came from another device.
    Remap,
    /// A request was aborted (old kernels).
    Abort,
    /// Data of the driver.
    DriverData,
    /// A zone's writes are held back (version 8).
    ZonePlug,
    /// A zone's writes go on (version 8).
    ZoneUnplug,
    /// Note: the name of a process.
    Process,
    /// Note: the wall clock at this moment.
    WallClock,
    /// Note: a message of a scheduler, a driver or the user.
    Message,
    /// An action that this crate does not know.
    Unknown(u16),
    /// A note that this crate does not know.
    UnknownNote(u16),
}

/// Events by number; 0 is unassigned.
const EVENTS: [Kind; 20] = [
    Kind::Unknown(0),
    Kind::Queue,
    Kind::BackMerge,
    Kind::FrontMerge,
    Kind::GetRequest,
    Kind::SleepRequest,
    Kind::Requeue,
    Kind::Issue,
    Kind::Complete,
    Kind::Plug,
    Kind::Unplug,
    Kind::UnplugTimer,
    Kind::Insert,
    Kind::Split,
    Kind::Bounce,
    Kind::Remap,
    Kind::Abort,
    Kind::DriverData,
    Kind::ZonePlug,
    Kind::ZoneUnplug,
];

/// Notes by number.
const NOTES: [Kind; 3] = [Kind::Process, Kind::WallClock, Kind::Message];

impl Kind {
    fn of_event(number: u16) -> Kind {
        let known = EVENTS.get(usize::from(number)).copied();
        known.unwrap_or(Kind::Unknown(number))
    }

    fn of_note(number: u16) -> Kind {
        let known = NOTES.get(usize::from(number)).copied();
        known.unwrap_or(Kind::UnknownNote(number))
    }

    /// The number in the record.
    pub fn number(self) -> u16 {
        if let Kind::Unknown(number) | Kind::UnknownNote(number) = self {
            return number;
        }
        let position = |kinds: &[Kind]| kinds.iter().position(|kind| *kind == self);
        position(&EVENTS)
            .or_else(|| position(&NOTES))
            .unwrap_or_default() as u16
    }

    /// Whether this crate knows the number.
    pub fn is_known(self) -> bool {
        !matches!(self, Kind::Unknown(_) | Kind::UnknownNote(_))
    }
}

/// What an I/O is: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Categories(pub u64);

impl Categories {
    /// No category.
    pub const NONE: Categories = Categories(0);
    /// Not a write: reads, but also flushes without data.
    pub const READ: Categories = Categories(1 << 0);
    /// Changes the medium: writes, but also discards and write-zeroes.
    pub const WRITE: Categories = Categories(1 << 1);
    /// A flush, alone or before a write.
    pub const FLUSH: Categories = Categories(1 << 2);
    /// Somebody waits for it.
    pub const SYNC: Categories = Categories(1 << 3);
    /// Event of the queue.
    pub const QUEUE: Categories = Categories(1 << 4);
    /// Event of a requeue.
    pub const REQUEUE: Categories = Categories(1 << 5);
    /// Event of an issue.
    pub const ISSUE: Categories = Categories(1 << 6);
    /// Event of a completion.
    pub const COMPLETE: Categories = Categories(1 << 7);
    /// A request of a filesystem or a plain read or write of the device.
    pub const FS: Categories = Categories(1 << 8);
    /// A pass-through command.
    pub const PASS_THROUGH: Categories = Categories(1 << 9);
    /// A note beside the I/O.
    pub const NOTE: Categories = Categories(1 << 10);
    /// Read ahead of demand.
    pub const READAHEAD: Categories = Categories(1 << 11);
    /// Filesystem metadata.
    pub const META: Categories = Categories(1 << 12);
    /// A discard or a secure erase.
    pub const DISCARD: Categories = Categories(1 << 13);
    /// Data of the driver.
    pub const DRIVER_DATA: Categories = Categories(1 << 14);
    /// Durable on completion (force unit access).
    pub const FUA: Categories = Categories(1 << 15);
    /// Zone append (version 8, like all that follow).
    pub const ZONE_APPEND: Categories = Categories(1 << 16);
    /// Reset of a zone.
    pub const ZONE_RESET: Categories = Categories(1 << 17);
    /// Reset of all zones.
    pub const ZONE_RESET_ALL: Categories = Categories(1 << 18);
    /// Finish of a zone.
    pub const ZONE_FINISH: Categories = Categories(1 << 19);
    /// Open of a zone.
    pub const ZONE_OPEN: Categories = Categories(1 << 20);
    /// Close of a zone.
    pub const ZONE_CLOSE: Categories = Categories(1 << 21);
    /// Write-zeroes. Version 7 cannot tell it from a write.
    pub const WRITE_ZEROES: Categories = Categories(1 << 22);

    /// Whether all of `other` is set.
    #[inline]
    pub fn contains(self, other: Categories) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    #[inline]
    pub fn intersects(self, other: Categories) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Categories {
    type Output = Categories;

    fn bitor(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_of_real_records_decode() {
        // Seen in files of a 5.x kernel; blkparse prints them A RA, D WM, U, and a process note.
        let cases = [
            (
                0x0811_000f,
                Kind::Remap,
                Categories::READ | Categories::QUEUE | Categories::READAHEAD,
            ),
            (
                0x1142_0007,
                Kind::Issue,
                Categories::WRITE | Categories::ISSUE | Categories::FS | Categories::META,
            ),
            (
                0x0011_000a,
                Kind::Unplug,
                Categories::READ | Categories::QUEUE,
            ),
            (0x0400_0000, Kind::Process, Categories::NOTE),
            (0x0400_0001, Kind::WallClock, Categories::NOTE),
        ];
        for (raw, kind, categories) in cases {
            let action = Action(raw);
            assert_eq!(
                (action.kind(), action.categories()),
                (kind, categories),
                "{raw:#x}"
            );
            assert_eq!(Action::new(kind, categories, false), action);
        }
    }

    #[test]
    fn the_cgroup_mark_is_no_part_of_the_number() {
        let action = Action(0x0142_0107);
        assert_eq!(action.kind(), Kind::Issue);
        assert!(action.has_cgroup());
        assert_eq!(Action(0x0400_0102).kind(), Kind::Message);
    }

    #[test]
    fn unassigned_numbers_are_kept() {
        assert_eq!(Action(0).kind(), Kind::Unknown(0));
        assert_eq!(Action(20).kind(), Kind::Unknown(20));
        assert_eq!(Action(0xfeff).kind(), Kind::Unknown(0xfeff));
        assert_eq!(Action(0x0400_0003).kind(), Kind::UnknownNote(3));
        assert!(!Kind::Unknown(20).is_known() && Kind::ZoneUnplug.is_known());
        for number in 1..20 {
            assert_eq!(Kind::of_event(number).number(), number);
        }
    }
}
