//! The ends of replicas' processes, with the connections of their clients, as events of the order: what the service
//! keeps for a client is given up at one position at all replicas ([`Service::closed`]).
//!
//! A new process of a replica says by its first batch that the one before is over. A replica that does not come back
//! is held for gone once f+1 others have received nothing from it for [`limits::GONE`]. It may be cut off, and its
//! clients with it:
//! then it ends as soon as it sees what was decided, so that no client goes on whose connection has ended for the
//! service. It comes back as the next incarnation.

use order::{Delivered, ReplicaProcess};
use schedule::Footprint;

use super::core::Core;
use super::environment::Environment;
use super::execution::Execution;
use super::group::Group;
use super::order_stage::OrderStage;
use crate::connections::ConnectionsOfReplica;
use crate::job::Job;
#[cfg(doc)]
use crate::limits;
use crate::ordered::Control;
use crate::service::{Service, declared};
use crate::world::World;
use crate::{ReplaceReason, Stop};

/// Says which processes are gone; and by a first batch, that this one has begun.
pub(super) fn tend<S: Service, W: World>(core: &mut Core<S, W>) {
    let Some(execution) = &core.executor.running else { return };
    // Many services keep nothing for connections.
    let keeps_some = execution.service.closed(ConnectionsOfReplica::new(0, 0)).is_some();
    if !keeps_some || !core.order.orderer.can_accept() {
        return;
    }
    let (me, now_us) = (core.env.settings.me, core.env.world.now_us());
    let state = core.order.orderer.state();
    let begun = |replica: u8| {
        let session = state.sessions.get(&replica)?;
        Some(ReplicaProcess { replica, incarnation: session.incarnation })
    };
    let own = core.order.orderer.engine_status().incarnation;
    let has_begun = begun(me).map(|process| process.incarnation) == own;
    let is_gone = |process: &ReplicaProcess| {
        let said = state.gone.wished(state.time_us).any(|said| said == (me, process));
        !said && core.group.is_gone(process.replica, now_us)
    };
    let is_due = |process: &ReplicaProcess| !core.departures.is_submitted(process, now_us);
    let others = (0..core.group.replicas()).filter(|replica| *replica != me).filter_map(begun);
    let mut gone = others.filter(|process| !core.group.has_departed(*process)).filter(is_gone);
    let begins = ReplicaProcess { replica: me, incarnation: own.unwrap_or_default() };
    let (control, process) = if !has_begun && is_due(&begins) {
        (Control::PASS_TIME, begins)
    } else {
        let Some(process) = gone.find(is_due) else { return };
        (Control::Gone { replica: process.replica, incarnation: process.incarnation }, process)
    };
    core.order.submit_control(&control);
    core.departures.submit(process, now_us);
}

/// A delivered batch: processes have ended if it is the first one of a later process, or with its requests `gone`, the
/// numbers of which are these, once `needed` replicas have said so. Returns what the service does then, behind the
/// batch.
pub(super) fn delivered<S: Service, W: World>(
    (delivered, gone): (&Delivered, &[usize]),
    needed: usize,
    execution: &Execution<S>,
    (order, group, env): (&mut OrderStage, &mut Group, &mut Environment<W>),
) -> Vec<(Job<S::Request>, Footprint)> {
    let batch = &delivered.batch;
    // As nearly all batches.
    if batch.number > 1 && gone.is_empty() {
        return Vec::new();
    }
    let mut ended = Vec::new();
    if batch.number == 1 {
        group.has_come(batch.origin);
        ended.push(ConnectionsOfReplica::new(batch.origin, batch.incarnation));
    }
    for at in gone {
        let again = batch.requests().nth(*at).filter(order::Request::is_intact);
        let Some(Control::Gone { replica, incarnation }) =
            again.and_then(|request| Control::decode(&request.bytes))
        else {
            continue;
        };
        let process = ReplicaProcess { replica, incarnation };
        if !order.orderer.want_gone(batch.origin, process, needed) {
            continue;
        }
        group.departs(process);
        ended.push(ConnectionsOfReplica::new(replica, incarnation.saturating_add(1)));
        let is_own = order.orderer.engine_status().incarnation == Some(incarnation);
        if replica == env.settings.me && is_own {
            env.stop_with(Ok(Stop::Replace(ReplaceReason::HeldForGone)));
        }
    }
    ended.into_iter().filter_map(|connections| job(connections, execution)).collect()
}

/// What the service does when these connections have ended.
fn job<S: Service>(
    connections: ConnectionsOfReplica,
    execution: &Execution<S>,
) -> Option<(Job<S::Request>, Footprint)> {
    let request = execution.service.closed(connections)?;
    let footprint = declared(&*execution.service, &request);
    let ordered = execution.service.encode(&request).into();
    Some((Job::internal(request, ordered), footprint))
}
