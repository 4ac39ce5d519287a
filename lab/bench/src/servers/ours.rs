//! CrossCheck as a side: the same cluster of processes that `crosscheck up` runs.

use std::path::Path;

use anyhow::Context;

use super::{Keep, Running, START};
use crate::definition::{Connect, Definition, SideStorage, Workload, mode_of};
use crate::wire::Dialect;
use cli::service::{ClusterOptions, ClusterPlan, MemcachedOptions};
use node::cluster::Keeper;
use node::signals::Ending;

/// Starts a cluster in the mode of this name.
pub fn start(
    name: &str,
    definition: &Definition,
    workload: &Workload,
    data: &Path,
    ending: &Ending,
) -> anyhow::Result<Running> {
    let (mode, reads) = mode_of(name).map_err(anyhow::Error::msg)?;
    let on_disk = definition.durability == SideStorage::Disk && mode.replicated;
    #[cfg(not(feature = "lab"))]
    anyhow::ensure!(
        workload.before_images.is_none() && workload.guarded_classes.is_none() && workload.work_us == 0,
        "the definition has before_images, guarded_classes or work_us, and this build has all protections; build \
         crosscheck-lab with the feature `lab`, which is on by default"
    );
    let wish = ClusterOptions {
        replicas: mode.replicated.then_some(definition.replicas),
        port: Some(0),
        mode,
        reads,
        workers: Some(definition.workers),
        on_disk,
        data: on_disk.then(|| data.to_path_buf()),
        #[cfg(feature = "lab")]
        left_out: node::config::LeftOut {
            before_images: workload.before_images.is_some_and(|kept| !(kept && mode.guarded)),
            reply_gate: false,
        },
        extra_protection: workload.extra_protection.filter(|_| mode.verified),
        service: MemcachedOptions {
            memory_limit_mb: definition.memory_mb,
            #[cfg(feature = "lab")]
            experiment: experiment(workload),
            ..MemcachedOptions::default()
        },
        // Injected faults say nothing about this machine.
        faults_per_10s: Some(0),
        ..ClusterOptions::default()
    };
    let keeper = Keeper::start(&ClusterPlan::new(&wish)?, node::up::STOP_PATIENCE)?;
    let rows = keeper.until_ready(START, ending)?;
    // Events of a process after this point are errors.
    keeper.events.take();
    let leader = rows.iter().find_map(|row| row.serving()?.leader).context("no replica knows a leader")?;
    let wanted = |number: u8| definition.connect == Connect::All || number == leader;
    let meant = keeper.replicas.iter().filter(|replica| wanted(replica.number));
    let addresses = meant.filter_map(|replica| replica.clients).collect();
    let process = |row: &node::cluster::ReplicaRow| {
        let role = if row.replica.number == leader { "leader" } else { "follower" };
        row.serving().map(|status| (format!("replica {} ({role})", row.replica.number), status.pid))
    };
    let processes = rows.iter().filter_map(process).collect();
    Ok(Running {
        addresses,
        dialect: Dialect::Memcached,
        processes,
        keep: Keep::Ours { keeper, leader, failing: None },
    })
}

/// What the workload changes in the service.
#[cfg(feature = "lab")]
fn experiment(workload: &Workload) -> cli::service::lab::Experiment {
    let guarded_classes = workload.guarded_classes.as_ref().map(|classes| match classes.as_str() {
        "none" => Vec::new(),
        names => names.split(',').map(str::to_owned).collect(),
    });
    cli::service::lab::Experiment { work_us: workload.work_us, guarded_classes }
}
