//! Where bios came from before they reached the traced device: partitions, dm, md.

use blktrace_parse::DeviceNumber;

use super::report::Remap;

/// How many pairs of devices are told apart; more are damage.
const MAX_PAIRS: usize = 256;
/// How deep a stack of devices is followed.
const MAX_DEPTH: usize = 16;

/// The remaps of a trace, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    remaps: Vec<Remap>,
    last: usize,
}

impl Origins {
    pub fn add(&mut self, from: DeviceNumber, to: DeviceNumber) {
        let is_it = |remap: &Remap| (remap.from, remap.to) == (from, to);
        if !self.remaps.get(self.last).is_some_and(is_it) {
            self.last = match self.remaps.iter().position(is_it) {
                Some(index) => index,
                None if self.remaps.len() < MAX_PAIRS => {
                    self.remaps.push(Remap { from, to, bios: 0 });
                    self.remaps.len() - 1
                }
                None => return,
            };
        }
        if let Some(remap) = self.remaps.get_mut(self.last) {
            remap.bios += 1;
        }
    }

    pub fn into_remaps(self) -> Vec<Remap> {
        self.remaps
    }

    /// Devices whose bios reach `device`, nearest first.
    pub fn above(&self, device: DeviceNumber) -> Vec<DeviceNumber> {
        self.reach(device, |remap| (remap.to, remap.from))
    }

    /// Devices that the bios of `device` reach, nearest first.
    pub fn below(&self, device: DeviceNumber) -> Vec<DeviceNumber> {
        self.reach(device, |remap| (remap.from, remap.to))
    }

    fn reach(
        &self,
        device: DeviceNumber,
        step: impl Fn(&Remap) -> (DeviceNumber, DeviceNumber),
    ) -> Vec<DeviceNumber> {
        let mut reached = vec![device];
        for depth in 0..MAX_DEPTH {
            let Some(at) = reached.get(depth).copied() else {
                break;
            };
            for (from, to) in self.remaps.iter().map(&step) {
                if from == at && !reached.contains(&to) {
                    reached.push(to);
                }
            }
        }
        reached.split_off(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_followed_both_ways() {
        let [disk, partition, mapped] = [8 << 20, 8 << 20 | 2, 253 << 20].map(DeviceNumber);
        let mut origins = Origins::default();
        for _ in 0..3 {
            origins.add(partition, disk);
            origins.add(mapped, partition);
        }
        assert_eq!(origins.above(disk), [partition, mapped]);
        assert_eq!(origins.below(mapped), [partition, disk]);
        assert_eq!(origins.below(disk), []);
        origins.add(disk, mapped); // a circle, which only damage can make
        assert_eq!(origins.below(disk), [mapped, partition]);
        let bios: Vec<u64> = origins
            .into_remaps()
            .iter()
            .map(|remap| remap.bios)
            .collect();
        assert_eq!(bios, [3, 3, 1]);
    }
}
