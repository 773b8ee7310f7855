//! Choosing order, prediction and layout by what comes out smallest.

use std::io;

use super::super::encoder::Level;
use super::super::pause::Pause;
use super::classes;
use super::layout::Layout;
use super::number;
use super::order::{Keys, Order};
use super::sequence::{self, Values};
use super::stream::{Effort, Packer};
use super::transform::{Prediction, Signs};

/// A live encoder looks again whether another plan is better after so many times the rows that it
/// looked at before.
const TRIAL_EVERY: u64 = 64;
/// It looks again at once when a row takes more than before by one in so many bytes.
const GROWTH: u64 = 8;
/// Growth in bytes that is nothing.
const SLIGHT: u64 = 256;
/// Rows that a live encoder tries plans on.
const TRIAL_ROWS: usize = 8192;
/// Orders with predictions that are tried with every layout.
const SHORTLIST: usize = 3;
/// Plans that an archive encoder tries at its own level.
const FINALISTS: usize = 6;
/// One in how many bytes a plan may be behind the best one in the trial to be tried so.
const CLOSE: usize = 8;
/// For trials.
const TRIAL: Effort = Effort {
    zstd: 3,
    match_bytes: 0,
    pco: 8,
};
/// For live tapes.
const LIVE: Effort = Effort {
    zstd: 1,
    match_bytes: 6,
    pco: 9,
};
/// For archived tapes.
const ARCHIVE: Effort = Effort {
    zstd: 19,
    match_bytes: 0,
    pco: 12,
};
/// One in how many bytes pco must save in a live tape: it takes several times as long.
const PCO_SHARE: usize = 32;
/// One byte for so many rows is so little that pco is not tried.
const NOTHING_TO_SAVE: usize = 32;
/// One in how many bytes a core column must save to depend on the process column, which readers
/// could leave out otherwise.
const PROCESS_SHARE: usize = 32;

/// The choices for one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    order: Order,
    prediction: Prediction,
    layout: Layout,
}

/// The plan that a live encoder stays with.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    plan: Plan,
    /// Rows and bytes of the block that it was chosen for.
    rows: u64,
    bytes: u64,
    /// Rows encoded since.
    since: u64,
    /// It makes more of a row than it did.
    outgrown: bool,
}

impl Chosen {
    fn is_due(&self) -> bool {
        self.outgrown || self.since >= self.rows.saturating_mul(TRIAL_EVERY)
    }

    fn used(&mut self, rows: u64, bytes: u64) {
        self.since += rows;
        let expected = self.bytes.saturating_mul(rows) / self.rows.max(1);
        self.outgrown = bytes > expected + expected / GROWTH + SLIGHT;
    }
}

/// Encodes columns, each with the plan that makes it smallest.
pub struct Chooser {
    level: Level,
    trial: Packer,
    last: Packer,
    chosen: [Option<Chosen>; number::COUNT],
    numbers: Vec<u64>,
    tried: Vec<u8>,
    pub pause: Pause,
}

/// A column to be encoded.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Number of the column.
    pub column: u8,
    /// Its values.
    pub values: Values<'a>,
    /// Whether the block has requests of several devices.
    pub several_devices: bool,
    /// Whether the block has a process column, and this one may depend on it.
    pub processes: bool,
}

impl Chooser {
    /// A chooser for a level.
    pub fn new(level: Level) -> io::Result<Chooser> {
        let effort = match level {
            Level::Live => LIVE,
            Level::Archive => ARCHIVE,
        };
        Ok(Chooser {
            level,
            trial: Packer::new(TRIAL)?,
            last: Packer::new(effort)?,
            chosen: [None; number::COUNT],
            numbers: Vec::new(),
            tried: Vec::new(),
            pause: Pause::default(),
        })
    }

    /// Compresses streams that are not sequences.
    pub fn packer(&mut self) -> &mut Packer {
        &mut self.last
    }

    /// Appends the sequence of a column.
    pub fn put(&mut self, task: &Task<'_>, keys: &mut Keys, out: &mut Vec<u8>) -> io::Result<()> {
        if let [first, rest @ ..] = task.values.values
            && rest.iter().all(|value| value == first)
        {
            // A base and a stream of no bytes, whatever the plan and however many they are.
            let values = Values {
                values: std::slice::from_ref(first),
                lengths: &[],
                present: &[],
            };
            let task = Task { values, ..*task };
            let Chooser {
                numbers,
                last,
                pause,
                ..
            } = self;
            return Plan::PLAIN.put(&task, keys, numbers, last, pause, out);
        }
        match self.level {
            Level::Live => self.put_live(task, keys, out),
            Level::Archive => self.put_archive(task, keys, out),
        }
    }

    /// Tries plans on a part of a block now and then, and stays with the best.
    fn put_live(&mut self, task: &Task<'_>, keys: &mut Keys, out: &mut Vec<u8>) -> io::Result<()> {
        let column = usize::from(task.column);
        let (rows, start) = (task.values.values.len() as u64, out.len());
        let usable = |chosen: &Chosen| {
            !chosen.is_due() && (task.processes || !chosen.plan.order.needs_process())
        };
        if let Some(mut chosen) = self.chosen[column].filter(usable) {
            let Chooser {
                numbers,
                last,
                pause,
                ..
            } = self;
            chosen.plan.put(task, keys, numbers, last, pause, out)?;
            chosen.used(rows, (out.len() - start) as u64);
            self.chosen[column] = Some(chosen);
            return Ok(());
        }
        let plan = self.best_for_sample(task, keys)?;
        self.chosen[column] = Some(Chosen {
            plan: self.put_smaller(plan, task, keys, out)?,
            rows,
            bytes: (out.len() - start) as u64,
            since: 0,
            outgrown: false,
        });
        Ok(())
    }

    /// Appends what a plan makes, or what it makes with pco when that is notably smaller; returns
    /// which.
    ///
    /// Only a whole block tells: what pco says of its ranges weighs too much in a part.
    fn put_smaller(
        &mut self,
        plan: Plan,
        task: &Task<'_>,
        keys: &mut Keys,
        out: &mut Vec<u8>,
    ) -> io::Result<Plan> {
        let with_pco = Plan {
            layout: Layout::Pco,
            ..plan
        };
        let start = out.len();
        let Chooser {
            numbers,
            last,
            tried,
            pause,
            ..
        } = self;
        plan.put(task, keys, numbers, last, pause, out)?;
        let made = out.len() - start;
        if made < task.values.values.len() / NOTHING_TO_SAVE {
            return Ok(plan);
        }
        tried.clear();
        with_pco.put(task, keys, numbers, last, pause, tried)?;
        if tried.len() + made / PCO_SHARE >= made {
            return Ok(plan);
        }
        out.truncate(start);
        out.extend_from_slice(tried);
        Ok(with_pco)
    }

    /// Tries every plan with quick compression, and the most promising ones with thorough.
    fn put_archive(
        &mut self,
        task: &Task<'_>,
        keys: &mut Keys,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut best: Option<Vec<u8>> = None;
        let ranked = self.rank(task, keys, true)?;
        let close = |bytes: usize| {
            ranked
                .first()
                .is_some_and(|(least, _)| bytes - least <= least / CLOSE)
        };
        for (_, plan) in ranked
            .iter()
            .take(FINALISTS)
            .filter(|(bytes, _)| close(*bytes))
        {
            self.tried.clear();
            plan.put(
                task,
                keys,
                &mut self.numbers,
                &mut self.last,
                &mut self.pause,
                &mut self.tried,
            )?;
            if best
                .as_ref()
                .is_none_or(|best| self.tried.len() < best.len())
            {
                best = Some(std::mem::take(&mut self.tried));
            }
        }
        out.extend(best.unwrap_or_default());
        Ok(())
    }

    fn best_for_sample(&mut self, task: &Task<'_>, keys: &mut Keys) -> io::Result<Plan> {
        let Values {
            values,
            lengths,
            present,
        } = task.values;
        let rows = values.len().min(TRIAL_ROWS);
        let values = Values {
            values: &values[..rows],
            lengths: lengths.get(..rows).unwrap_or(&[]),
            present: present.get(..rows).unwrap_or(&[]),
        };
        let ranked = self.rank(&Task { values, ..*task }, &mut keys.front(rows), false)?;
        Ok(ranked.first().map_or(Plan::PLAIN, |(_, plan)| *plan))
    }

    /// Plans, of pco or not, with the size of what they make, smallest first.
    fn rank(
        &mut self,
        task: &Task<'_>,
        keys: &mut Keys,
        pco: bool,
    ) -> io::Result<Vec<(usize, Plan)>> {
        let mut shortlist = Vec::new();
        for (order, prediction) in candidates(task) {
            self.pause.offer();
            let mut made = Vec::new();
            let transform = task
                .values
                .numbers(order, prediction, Signs::Folded, keys, &mut made)
                .map_err(io::Error::other)?;
            let (cost, bits) = cheapest_classes(&made);
            shortlist.push((cost, order, transform, bits, made));
        }
        shortlist.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranked = Vec::new();
        for (_, order, transform, bits, made) in shortlist.iter().take(SHORTLIST) {
            let layouts = [
                Layout::Classes(*bits),
                Layout::Planes,
                Layout::Varint,
                Layout::Dictionary,
                Layout::Pco,
            ];
            for layout in layouts
                .into_iter()
                .filter(|layout| pco || *layout != Layout::Pco)
            {
                let plan = Plan {
                    order: *order,
                    prediction: transform.prediction,
                    layout,
                };
                self.tried.clear();
                if layout.signs() == Signs::Folded {
                    self.pause.offer();
                    let Chooser { trial, tried, .. } = self;
                    sequence::put(*order, transform, layout, made, trial, tried)?;
                } else {
                    plan.put(
                        task,
                        keys,
                        &mut self.numbers,
                        &mut self.trial,
                        &mut self.pause,
                        &mut self.tried,
                    )?;
                }
                let bytes = self.tried.len();
                ranked.push((bytes + handicap(task, *order, bytes), plan));
            }
        }
        ranked.sort_by_key(|(bytes, _)| *bytes);
        Ok(ranked)
    }
}

impl Plan {
    const PLAIN: Plan = Plan {
        order: Order::Tape,
        prediction: Prediction::None,
        layout: Layout::Planes,
    };

    /// Appends the column as planned.
    fn put(
        &self,
        task: &Task<'_>,
        keys: &mut Keys,
        numbers: &mut Vec<u64>,
        packer: &mut Packer,
        pause: &mut Pause,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        pause.offer();
        let signs = self.layout.signs();
        let transform = task
            .values
            .numbers(self.order, self.prediction, signs, keys, numbers)
            .map_err(io::Error::other)?;
        pause.offer();
        sequence::put(self.order, &transform, self.layout, numbers, packer, out)
    }
}

fn handicap(task: &Task<'_>, order: Order, bytes: usize) -> usize {
    let core = task.column <= number::LENGTH;
    if core && order.needs_process() {
        bytes / PROCESS_SHARE
    } else {
        0
    }
}

/// How many bits below the highest a class should tell, and what that costs.
fn cheapest_classes(numbers: &[u64]) -> (f64, u8) {
    let costs = (0..).zip(classes::costs(numbers));
    let costs = costs.filter_map(|(bits, cost)| Some((cost?, bits)));
    costs.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0))
}

/// Orders and predictions that may suit a column.
fn candidates(task: &Task<'_>) -> Vec<(Order, Prediction)> {
    use Prediction::{None, Previous, PreviousEnd};
    let orders: &[Order] = match task.column {
        number::TIME | number::DEVICE => &[Order::Tape],
        number::OP_FLAGS => &[Order::Tape, Order::Device],
        number::PROCESS => &[Order::Tape, Order::Op, Order::OpFlags, Order::DeviceOp],
        number::OFFSET | number::LENGTH => &Order::ALL,
        _ => &[Order::Tape, Order::OpFlags, Order::DeviceOp, Order::Process],
    };
    let predictions: &[Prediction] = match task.column {
        number::TIME => &[Previous],
        number::OFFSET => &[None, Previous, PreviousEnd],
        _ => &[None],
    };
    let possible = |order: &&Order| match order {
        Order::Device | Order::DeviceOp => task.several_devices,
        Order::Process | Order::ProcessOp => task.processes,
        _ => true,
    };
    let orders = orders.iter().filter(possible);
    orders
        .flat_map(|order| predictions.iter().map(|prediction| (*order, *prediction)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The more bits a class tells, the fewer are left open; but it is a byte, and in 255 there is
    /// room for 19 bits with 4 told, 34 with 3 and all 64 with 2.
    #[test]
    fn classes_tell_as_much_as_a_byte_holds() {
        let mut packer = Packer::new(TRIAL).unwrap();
        for (bits, told) in [(19, 4), (20, 3), (34, 3), (35, 2), (64, 2)] {
            let numbers = [u64::MAX >> (64 - bits); 100];
            assert_eq!(cheapest_classes(&numbers).1, told, "{bits} bits");
            let mut holds = |told| {
                let layout = Layout::Classes(told);
                layout.put(&numbers, &mut packer, &mut Vec::new()).unwrap()
            };
            assert!(holds(told), "{bits} bits");
            assert!(told == classes::MAX_BITS || !holds(told + 1), "{bits} bits");
        }
    }
}
