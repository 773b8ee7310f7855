//! What a simulated device is like, as the user writes it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const DEFAULT_SEED: u64 = 1;
/// Longest service time and stall: an hour.
const LONGEST_NS: f64 = 3.6e12;
/// Most stalls.
const MAX_STALLS: usize = 1_000;

/// A simulated device: servers that take requests in the order of their arrival. Its clock is
/// virtual: a run on it takes only as long as its computation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimSpec {
    /// Requests that are served at the same time, from 1 to 65,536.
    pub servers: u32,
    /// Service time, or its mean.
    pub service_ns: u64,
    /// How service times scatter.
    pub distribution: Distribution,
    /// When nothing is served, in order and without overlap.
    pub stalls: Vec<Stall>,
    /// Seed of the service times.
    pub seed: u64,
    /// Size of the device; `u64::MAX`: whatever the tape needs.
    pub size_bytes: u64,
}

/// How service times scatter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Not at all.
    #[default]
    Fixed,
    /// Exponentially, as of a server without memory.
    Exponential,
}

/// A time in which all servers rest. Requests in service go on afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stall {
    /// Since the start of the run.
    pub at_ns: u64,
    /// How long.
    pub length_ns: u64,
}

/// A text that describes no simulated device.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{problem} in {text:?}; expected {expected}, such as sim:servers=4,service=100us")]
pub struct SimSpecError {
    /// What is wrong.
    pub problem: String,
    /// The part in question.
    pub text: String,
    /// What would do.
    pub expected: &'static str,
}

const FIELDS: &str = "servers=N, service=TIME, dist=fixed or exp, stall=TIME@TIME, seed=N, size=SIZE, joined by commas";

impl FromStr for SimSpec {
    type Err = SimSpecError;

    /// Reads `servers=4,service=100us,dist=exp,stall=100ms@2s,seed=1,size=1GiB`, with or without
    /// `sim:` before it. Everything but `service` may be left out.
    fn from_str(text: &str) -> Result<Self, SimSpecError> {
        let fields = text.strip_prefix("sim:").unwrap_or(text);
        let mut spec = SimSpec {
            servers: 1,
            service_ns: 0,
            distribution: Distribution::Fixed,
            stalls: Vec::new(),
            seed: DEFAULT_SEED,
            size_bytes: u64::MAX,
        };
        for field in fields.split(',').filter(|field| !field.is_empty()) {
            let Some((name, value)) = field.split_once('=') else {
                return Err(error("no value", field, FIELDS));
            };
            spec.set(name, value, field)?;
        }
        if spec.service_ns == 0 {
            return Err(error("no service time", text, FIELDS));
        }
        spec.stalls.sort_unstable();
        let overlap = |pair: &[Stall]| pair[0].at_ns + pair[0].length_ns > pair[1].at_ns;
        if spec.stalls.windows(2).any(overlap) {
            return Err(error("stalls overlap", text, "stalls one after another"));
        }
        Ok(spec)
    }
}

impl SimSpec {
    fn set(&mut self, name: &str, value: &str, field: &str) -> Result<(), SimSpecError> {
        match name {
            "servers" => match value.parse() {
                Ok(servers @ 1..=65_536) => self.servers = servers,
                _ => return Err(error("bad number", field, "servers=N, N from 1 to 65,536")),
            },
            "service" => self.service_ns = time_ns(value, field)?,
            "dist" => {
                self.distribution = match value {
                    "fixed" => Distribution::Fixed,
                    "exp" => Distribution::Exponential,
                    _ => return Err(error("bad distribution", field, "dist=fixed or dist=exp")),
                }
            }
            "stall" => {
                let expected = "stall=TIME@TIME, at most 1,000 of them";
                let (length, at) = value
                    .split_once('@')
                    .filter(|_| self.stalls.len() < MAX_STALLS)
                    .ok_or_else(|| error("bad stall", field, expected))?;
                self.stalls.push(Stall {
                    at_ns: time_ns(at, field)?,
                    length_ns: time_ns(length, field)?,
                });
            }
            "seed" => {
                self.seed = value
                    .parse()
                    .map_err(|_| error("bad number", field, "seed=N"))?;
            }
            "size" => self.size_bytes = size_bytes(value, field)?,
            _ => return Err(error("unknown property", field, FIELDS)),
        }
        Ok(())
    }
}

fn error(problem: &str, text: &str, expected: &'static str) -> SimSpecError {
    SimSpecError {
        problem: problem.to_owned(),
        text: text.to_owned(),
        expected,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to lie within the range"
)]
fn time_ns(text: &str, field: &str) -> Result<u64, SimSpecError> {
    let expected = "a time with a unit (ns, us, ms or s), up to an hour";
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let ns = units.into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some((number * factor).round())
    });
    match ns {
        Some(ns) if (1.0..=LONGEST_NS).contains(&ns) => Ok(ns as u64),
        _ => Err(error("bad time", field, expected)),
    }
}

fn size_bytes(text: &str, field: &str) -> Result<u64, SimSpecError> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let bytes = units.into_iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
    });
    let expected = "size= a whole number of bytes, KiB, MiB, GiB or TiB";
    bytes.ok_or_else(|| error("bad size", field, expected))
}

impl fmt::Display for SimSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distribution = match self.distribution {
            Distribution::Fixed => "fixed",
            Distribution::Exponential => "exp",
        };
        write!(
            f,
            "sim:servers={},service={}ns,dist={distribution}",
            self.servers, self.service_ns
        )?;
        for stall in &self.stalls {
            write!(f, ",stall={}ns@{}ns", stall.length_ns, stall.at_ns)?;
        }
        write!(f, ",seed={}", self.seed)?;
        if self.size_bytes != u64::MAX {
            write!(f, ",size={}", self.size_bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_description_is_read_and_written() {
        let text =
            "sim:servers=4,service=100us,dist=exp,stall=100ms@2s,stall=1ms@1.5s,seed=9,size=1GiB";
        let spec: SimSpec = text.parse().unwrap();
        let stall = |at_ns, length_ns| Stall { at_ns, length_ns };
        let expected = SimSpec {
            servers: 4,
            service_ns: 100_000,
            distribution: Distribution::Exponential,
            stalls: vec![
                stall(1_500_000_000, 1_000_000),
                stall(2_000_000_000, 100_000_000),
            ],
            seed: 9,
            size_bytes: 1 << 30,
        };
        assert_eq!(spec, expected);
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let spec: SimSpec = "service=20us".parse().unwrap();
        assert_eq!((spec.servers, spec.seed, spec.size_bytes), (1, 1, u64::MAX));
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for (text, problem) in [
            ("sim:", "no service time"),
            ("service", "no value"),
            ("service=0ns", "bad time"),
            ("service=2h", "bad time"),
            ("service=-1s", "bad time"),
            ("service=NaNs", "bad time"),
            ("servers=0,service=1us", "bad number"),
            ("service=1us,dist=normal", "bad distribution"),
            ("service=1us,stall=5ms", "bad stall"),
            ("service=1us,stall=5ms@1ms,stall=1ms@3ms", "stalls overlap"),
            ("service=1us,size=99999999999TiB", "bad size"),
            ("service=1us,colour=red", "unknown property"),
        ] {
            let error = text.parse::<SimSpec>().unwrap_err();
            assert_eq!(error.problem, problem, "{text}");
        }
    }
}
