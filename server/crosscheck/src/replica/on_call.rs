//! The order thread answers admin commands.

use object::{RegionDigest, RegionId};

use super::Replica;
use super::core::Core;
use super::digests::DigestProgress;
use super::execution::Execution;
use crate::Stop;
use crate::admin::{AdminCommand, EvidenceList, Position};
use crate::admin_server::Call;
use crate::ordered::Control;
use crate::service::Service;
use crate::world::{Observation, World};

impl<S: Service, W: World> Core<S, W> {
    /// A region was digested here, as part of a digest of the whole state.
    pub(super) fn on_region_digest(&mut self, position: Position, region_id: RegionId, digest: RegionDigest) {
        let regions = self.executor.running.as_ref().map_or(0, Execution::locks);
        match self.calls.on_region_digest(position, (region_id, regions), digest) {
            DigestProgress::Next(control) => self.order.submit_control(&control),
            DigestProgress::Done { digest: Some(digest), .. } => {
                self.env.world.see(Observation::Digest { position, digest });
            }
            DigestProgress::Done { digest: None, .. } | DigestProgress::Waits => {}
        }
    }
}

impl<S: Service, W: World> Replica<S, W> {
    pub(super) fn on_call(&mut self, call: Call) {
        let env = &mut self.core.env;
        match &call.command {
            AdminCommand::Status => call.reply(&self.status()),
            AdminCommand::Evidence { after } => {
                let records = env.evidence.after(*after);
                call.reply(&EvidenceList { records });
            }
            AdminCommand::Digest { .. } if env.settings.is_witness() => call.refuse("a witness has no state"),
            AdminCommand::Digest { .. } if self.core.executor.running.is_none() => {
                call.refuse("this replica has no state yet; try again")
            }
            AdminCommand::Digest { at: Some(position) } => {
                let first = self.core.executor.first_batch();
                self.core.calls.expect_digest(*position, first, env.world.now_us(), call);
            }
            AdminCommand::Digest { at: None } => {
                let Some(ticket) = self.core.calls.wait(env.settings.me, env.world.now_us(), call) else {
                    return;
                };
                self.core.order.submit_control(&Control::Digest { ticket, begun: 0, region_id: 0 });
            }
            AdminCommand::Inject(_) => {
                self.core.calls.on_inject(
                    call,
                    self.core.executor.running.as_ref(),
                    &mut self.core.order,
                    env,
                );
            }
            AdminCommand::BeginGroup | AdminCommand::KeepState { .. } | AdminCommand::TakeState { .. } => {
                self.agreement.decide(call, &mut self.core);
                self.perform_outputs();
            }
            AdminCommand::ReplaceMachine { replica, address } => {
                let (replica, address) = (*replica, address.clone());
                self.core.on_replace(replica, &address, call);
            }
            AdminCommand::GrowGroup { addresses } => {
                let addresses = addresses.clone();
                self.core.on_grow(&addresses, call);
            }
            AdminCommand::ShrinkGroup => self.core.on_shrink(call),
            AdminCommand::Backup { .. } | AdminCommand::Transfer { .. } => self.core.on_backup(call),
            AdminCommand::Settings { change } => {
                let change = change.clone();
                self.core.on_settings(call, change.as_ref());
            }
            AdminCommand::Shutdown => {
                call.reply(&());
                self.begin_stop(Stop::Asked);
            }
        }
    }
}
