//! Options set by hand on top of what the seed draws; part of the line that reproduces a run.

use crate::faults::FaultClass;
use crate::knobs::Knobs;
use crate::mutations::Mutation;
use crate::options::{MachineKind, Options};
use crate::time::{MILLISECOND, SECOND};

/// Applies `key=value`.
///
/// # Errors
///
/// An unknown key, or a value that does not fit.
pub fn apply(options: &mut Options, setting: &str) -> Result<(), String> {
    let (key, value) = setting
        .split_once('=')
        .ok_or(format!("{setting} is not key=value"))?;
    let number = || {
        value
            .parse::<u64>()
            .map_err(|_| format!("{value} is not a number"))
    };
    let small = || number().and_then(|it| u32::try_from(it).map_err(|error| error.to_string()));
    let truth = || {
        value
            .parse::<bool>()
            .map_err(|_| format!("{value} is not true or false"))
    };
    let mean = || number().map(|it| (it > 0).then_some(it * MILLISECOND));
    match key {
        "replicas" => {
            let count = small()?;
            if !(1..=6).contains(&count) {
                return Err("replicas is 1 to 6".to_owned());
            }
            options.replicas = count as u8;
        }
        "partitions" => options.partitions = small()?,
        "clients" => options.clients = small()?,
        "requests" => options.requests = number()?,
        "think" => options.think_mean = number()? * MILLISECOND,
        "safety" => options.safety_max = number()? * SECOND,
        "liveness" => options.liveness_max = number()? * SECOND,
        "tiny" => options.tiny_limits = truth()?,
        "churn" => options.churn = truth()?,
        "purge" => options.purge = truth()?,
        "upkeep" => options.upkeep = truth()?,
        "groups" => options.groups = truth()?,
        "users" => options.users = truth()?,
        "twins" => options.twins = truth()?,
        "correlated" => options.correlated = truth()?,
        "bare" => {
            options.machine = if truth()? {
                MachineKind::Bare
            } else {
                MachineKind::Planes
            };
        }
        "slow" => options.network.slow_parts = small()?,
        "replay" => options.network.replay_parts = small()?,
        "resets" => options.network.reset_parts = small()?,
        "diskslow" => options.disk.slow_parts = small()?,
        "diskerrors" => {
            options.disk.read_error_parts = small()?;
            options.disk.write_error_parts = small()?;
            options.disk.sync_error_parts = small()?;
        }
        "skip" => {
            let (class, number) = value.split_once('.').ok_or("skip is class.number")?;
            let class = FaultClass::from_name(class).ok_or(format!("no class {class}"))?;
            let number = number
                .parse()
                .map_err(|_| format!("{value} has no number"))?;
            options.skip.insert((class, number));
        }
        "mutation" => {
            let found = Mutation::from_name(value).ok_or(format!("no mutation {value}"))?;
            options.mutation = Some(found);
            if found == Mutation::NoElection {
                options.timers.heartbeat = u32::MAX;
                options.timers.request_start_view = u32::MAX;
            }
        }
        "silent" => {
            let known = value.strip_prefix('O').and_then(|it| it.parse::<u8>().ok());
            let known = known.is_some_and(|number| (1..=17).contains(&number));
            if !known {
                return Err(format!("no oracle {value}"));
            }
            options.silent = Some(value.to_owned());
        }
        "clock" => options.clock_severity = small()?,
        "loss" => options.network.loss_parts = small()?,
        "corrupt" => options.network.corrupt_parts = small()?,
        "datagram" => options.network.datagram = truth()?,
        "crash" => options.faults.crash = mean()?,
        "pause" => options.faults.pause = mean()?,
        "partition" => options.faults.partition = mean()?,
        "clog" => options.faults.clog = mean()?,
        "reset" => options.faults.reset = mean()?,
        "rot" => options.faults.rot = mean()?,
        "chunks" => options.chunk_parts = small()?,
        "across" => options.across_logs = truth()?,
        "scatter" => options.scattered = truth()?,
        "rotspares" => options.rot_spares = number()?,
        "absence" => options.absence_mean = number()? * MILLISECOND,
        "wipe" => options.faults.wipe = mean()?,
        "stop" => options.faults.stop = mean()?,
        "decay" => options.faults.decay = mean()?,
        "halfopen" => options.faults.half_open = mean()?,
        "swizzle" => options.faults.swizzle = mean()?,
        "flap" => options.faults.flap = mean()?,
        "cutoff" => options.faults.cutoff = mean()?,
        "slownode" => options.faults.slow_node = mean()?,
        "full" => options.faults.full = mean()?,
        "misdirect" => options.faults.misdirect = mean()?,
        "lostwrite" => options.faults.lost_write = mean()?,
        "knobs" => options.knobs = Knobs::from_names(value)?,
        _ => return Err(format!("unknown setting {key}")),
    }
    options.overrides.push(setting.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Profile;

    #[test]
    fn settings_are_applied_and_remembered_and_nonsense_is_refused() {
        let mut options = Options::drawn(1, Profile::All);
        apply(&mut options, "replicas=5").expect("valid");
        apply(&mut options, "crash=0").expect("valid");
        assert_eq!((options.replicas, options.faults.crash), (5, None));
        assert_eq!(options.overrides, ["replicas=5", "crash=0"]);
        for wrong in [
            "replicas=9",
            "replicas",
            "nope=1",
            "loss=x",
            "tiny=2",
            "silent=O18",
        ] {
            assert!(apply(&mut options, wrong).is_err(), "{wrong}");
        }
    }
}
