//! The queue is a function of the log: what every service's tests should begin with.

use crosscheck::object::to_bytes;
use crosscheck::testing::check_deterministic;
use crosscheck::{ConnectionId, ConnectionsOfReplica};
use queue::{QueueCommand, QueueRequest, REGIONS, Sender, Setting, WorkQueue, region_of_tube};
use wire::SplitMix64;

/// Tubes of two regions, two of them of one.
const TUBES: [&str; 3] = ["default", "mail", "tube-13"];

/// A log in which requests of all kinds touch the same tubes and jobs.
fn log(seed: u64, length: u64) -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(seed);
    (0..length).map(|at| to_bytes(&request(&mut rng, at))).collect()
}

fn request(rng: &mut SplitMix64, at: u64) -> QueueRequest {
    let tube = TUBES[rng.below(3) as usize].to_owned();
    let tubes: Vec<String> = TUBES[..rng.within(1, 3) as usize].iter().map(|&tube| tube.to_owned()).collect();
    // The id of some job, if there is one of that position in this region.
    let id = rng.within(1, at.max(1)) * u64::from(REGIONS) + u64::from(region_of_tube(&tube));
    let (pri, delay, ttr) = (rng.below(3) as u32, (rng.below(4) / 3 * 2) as u32, rng.within(1, 3) as u32);
    let command = match rng.below(41) {
        0..10 => QueueCommand::Put { tube, pri, delay, ttr, body: format!("job {at}").into_bytes() },
        10..14 => QueueCommand::Reserve { tubes },
        14..18 => QueueCommand::ReserveWithTimeout { tubes, seconds: delay },
        18 => QueueCommand::ReserveJob { id },
        19 | 20 => QueueCommand::Delete { id },
        21 => QueueCommand::Release { id, pri, delay },
        22 => QueueCommand::Bury { id, pri },
        23 => QueueCommand::Touch { id },
        24 => QueueCommand::Kick { tube, bound: 2 },
        25 => QueueCommand::KickJob { id },
        26 => QueueCommand::Peek { id },
        27 => QueueCommand::PeekReady { tube },
        28 => QueueCommand::PeekDelayed { tube },
        29 => QueueCommand::PeekBuried { tube },
        30 => QueueCommand::Use { from: tube, tube: TUBES[1].to_owned() },
        31 => QueueCommand::Watch { tube, is_new: true, watched: 2 },
        32 => QueueCommand::Ignore { tube, is_old: true, watched: 1 },
        33 => QueueCommand::Stats,
        34 => QueueCommand::StatsJob { id },
        35 => QueueCommand::StatsTube { tube },
        36 => QueueCommand::ListTubes,
        37 => QueueCommand::PauseTube { tube, seconds: 1 },
        38 => QueueCommand::Closed { regions: u16::MAX },
        39 => QueueCommand::ReplicaClosed { connections: ConnectionsOfReplica::new(1, 2) },
        _ => QueueCommand::Settings { change: Some(Setting::Draining(at.is_multiple_of(2) && at < 20)) },
    };
    let connection = ConnectionId::new(rng.within(1, 2) as u8, rng.within(1, 2), rng.within(1, 2));
    let sender = Sender { connection, news: (rng.below(8) / 4) as u8, holding: u16::MAX };
    QueueRequest { command, sender }
}

#[test]
fn the_queue_is_deterministic() {
    for seed in 0..3 {
        if let Err(difference) = check_deterministic(WorkQueue::new, &log(seed, 400)) {
            panic!("seed {seed}: {difference}");
        }
    }
}
