//! The memory of an object: resident memory before and after storing many more of them in the same processes.

use std::time::Duration;

use anyhow::{Context, bail};

use super::PerObject;
use super::load::{Clients, Load};
use crate::definition::{Definition, Op, Side};
use crate::measure::resident_of;
use crate::servers::Running;
use node::signals::Ending;

/// Objects that are stored before the measurement: tables, buffers and the log of the last requests then have their
/// sizes. One request at a time makes one log entry each, and a replica keeps 16,384 of them.
const FIRST: u32 = 30_000;
/// In this time freed memory is returned to the system.
const SETTLE: Duration = Duration::from_secs(2);

/// Stores `objects` and divides the memory that they need by their number.
///
/// # Errors
/// The side does not come up, or refuses to store.
pub fn measure(
    side: &Side,
    objects: u32,
    definition: &Definition,
    ending: &Ending,
) -> anyhow::Result<PerObject> {
    let workload = &definition.workloads[0];
    let data = tempfile::Builder::new().prefix("crosscheck-cost-").tempdir()?;
    let mut running = Running::start(side, definition, workload, data.path(), ending)?;
    let taken = store(&running, objects, definition, ending);
    let trouble = running.trouble();
    running.stop();
    if let Some(trouble) = trouble {
        bail!(trouble);
    }
    Ok(PerObject {
        side: side.clone(),
        objects,
        payload: workload.key_bytes as u64 + workload.value_bytes.highest(),
        resident: taken? / f64::from(objects),
    })
}

/// Bytes by which the processes grow, on average.
fn store(running: &Running, objects: u32, definition: &Definition, ending: &Ending) -> anyhow::Result<f64> {
    let mut client = Clients::connect(Load::OneClient, running.addresses[0], &definition.workloads[0])?;
    let resident = || -> anyhow::Result<f64> {
        if ending.sleep(SETTLE) {
            bail!("ended by the operator");
        }
        let each = running
            .processes
            .iter()
            .map(|(name, pid)| resident_of(*pid).with_context(|| format!("{name} has gone")));
        let each: Vec<u64> = each.collect::<anyhow::Result<_>>()?;
        Ok(each.iter().sum::<u64>() as f64 / each.len().max(1) as f64)
    };
    client.ask(Op::Set, &(0..FIRST).collect::<Vec<_>>())?;
    let before = resident()?;
    client.ask(Op::Set, &(FIRST..FIRST + objects).collect::<Vec<_>>())?;
    Ok(resident()? - before)
}
