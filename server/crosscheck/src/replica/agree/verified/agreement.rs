//! Verified mode as the pipeline sees it: what each of its calls means for verifier, executor and unstable batches.

use bytes::Bytes;
use execute::Speculation;
use order::{Delivered, FrameKind};
use verify::{ExecutorEvent, VerifierEvent};

use super::{Speculator, Verified, fold};
use crate::ReplaceReason;
use crate::admin::Status;
use crate::admin_server::Call;
use crate::packed_state::PackedState;
#[cfg(feature = "inject")]
use crate::replica::agree::AgreementFault;
use crate::replica::agree::{Agreement, AgreementMarks, NotProven, PeerNews, Progress, Watched};
use crate::replica::core::Core;
use crate::replica::execution::Execution;
use crate::replica::order_stage::{ReadOrder, SortsReads};
use crate::replica::waits::Wait;
use crate::service::Service;
use crate::state::{self, Base, CheckpointHead, StateProof};
use crate::transfer::Message;
use crate::worker::Report;
use crate::world::{Observation, World};

impl Verified {
    /// The agreement, acting on these stages.
    fn on<'r, S: Service, W: World>(&'r mut self, core: &'r mut Core<S, W>) -> Speculator<'r, S, W> {
        Speculator { stage: self, core }
    }
}

impl<S: Service, W: World> Agreement<S, W> for Verified {
    fn may_deliver(&self) -> bool {
        Verified::may_deliver(self)
    }

    fn plan(&mut self, delivered: Delivered, core: &mut Core<S, W>) {
        self.on(core).deliver_part(delivered);
    }

    fn sorts<'r>(&'r mut self, execution: &'r Execution<S>, order: ReadOrder) -> Option<SortsReads<'r>> {
        self.reads.as_mut()?.sorts(execution, order)
    }

    fn run_reads(&mut self, core: &mut Core<S, W>) -> bool {
        self.on(core).reads().advance()
    }

    fn on_report(&mut self, report: Report, core: &mut Core<S, W>) {
        match report {
            Report::Executed(mut executed) if !self.is_rolling_back() => {
                core.on_executed(&mut executed);
                self.on_executed(executed.batch, executed.results);
            }
            Report::StartedReply { batch, reply, digest } if !self.is_rolling_back() => {
                if let Some(batch) = super::unstable(&mut self.unstable, batch) {
                    batch.started_replies.push((reply, digest));
                }
            }
            Report::BatchEnded(ended) => self.on(core).on_batch_ended(ended),
            Report::Damaged { batch, objects } => self.on(core).on_damaged(batch, objects),
            Report::Boundary(done) => self.on(core).on_boundary(done),
            Report::Checkpoint { head, state } => self.on(core).checkpoint().on_packed_at_once(&head, state),
            Report::Cut { session, head, rest, end } => {
                // The copy is whole once this batch is stable.
                core.on_cut((session, &head), &rest, Some(end).filter(|_| !self.is_rolling_back()));
            }
            _ => {}
        }
    }

    fn on_message(&mut self, from: u8, kind: FrameKind, body: &Bytes, core: &mut Core<S, W>) {
        if kind == FrameKind::Verify {
            self.on(core).on_verify_message(from, body);
        }
    }

    fn on_transfer(&mut self, from: u8, message: Message, core: &mut Core<S, W>) -> Option<Message> {
        self.on(core).repair().on_message(from, message)
    }

    fn on_peer(&mut self, event: PeerNews, core: &mut Core<S, W>) {
        let mut speculator = self.on(core);
        match event {
            PeerNews::Connected(peer) => speculator.on_verifier_event(VerifierEvent::Connected(peer)),
            PeerNews::Disconnected(peer) => speculator.on_verifier_event(VerifierEvent::Disconnected(peer)),
            PeerNews::Ended(peer) => speculator.on_process_gone(peer),
            PeerNews::LeaderFails => speculator.suspect_primary(),
            PeerNews::Garbled(_) | PeerNews::Heartbeat(_) => {}
        }
    }

    fn tick(&mut self, core: &mut Core<S, W>) {
        // A state that was proven and on which this replica did not begin: the engine wanted a later one.
        self.proven = None;
        core.order_due_timer();
        self.on(core).tick_verify();
    }

    fn flush(&mut self, core: &mut Core<S, W>) {
        Verified::flush(self, &mut core.env);
    }

    fn progress(&self, core: &Core<S, W>) -> Progress {
        let (env, now_us) = (&core.env, core.env.world.now_us());
        Progress {
            validated: self.stable(),
            last_batch: self.stable(),
            leader: match env.settings.is_witness() {
                true => self.record().map(|record| record.lineup.primary),
                false => core.order.orderer.engine_status().leader,
            },
            tolerance: self.tolerance(&env.settings, now_us, |copies| core.group.of_view(copies, now_us)),
            verifying: self.verifying(),
        }
    }

    fn status(&self, core: &Core<S, W>, status: &mut Status) {
        status.verification = Some(self.verification_status(&core.env.tally));
    }

    fn waits_for_operator(&self, core: &Core<S, W>) -> Option<Wait> {
        Verified::waits_for_operator(self, &core.group, &core.env)
    }

    fn decide(&mut self, call: Call, core: &mut Core<S, W>) {
        self.on(core).decide(call);
    }

    fn watch(&mut self, _: &mut Core<S, W>) -> Watched {
        match self.is_taking_state() {
            true => Watched::Waits,
            false => Watched::Runs(Some(self.executed())),
        }
    }

    fn open_below(&self, batch: u64) -> Option<String> {
        let stable = self.stable();
        (stable < batch).then(|| format!("batches after {stable} may be taken back"))
    }

    fn marks(&self) -> AgreementMarks {
        let record = self.record();
        AgreementMarks {
            executors: record
                .as_ref()
                .map_or(0, |record| record.lineup.executors.iter().fold(0, |set, slot| set | 1 << slot)),
            has_promised: record.is_some_and(|record| Some(record.view) > self.view()),
        }
    }

    #[cfg(feature = "inject")]
    fn inject(&mut self, fault: AgreementFault, core: &mut Core<S, W>) -> bool {
        match fault {
            AgreementFault::Tally { seed } => return self.verifier.corrupt_tally(seed),
            AgreementFault::Tree { of_leaves, seed } => {
                return self.tree_mut().is_some_and(|tree| tree.damage(of_leaves, seed));
            }
            AgreementFault::ForgetVerifier { incarnation } => {
                self.forget_verifier(&core.env.settings, incarnation);
            }
            AgreementFault::Weaken(rules) => self.weaken(rules),
        }
        true
    }

    fn proves_states(&self) -> bool {
        true
    }

    fn takes_state(&self) -> bool {
        self.is_taking_state()
    }

    fn gives_up_state(&mut self, core: &mut Core<S, W>) -> bool {
        let gives_up = core.executor.running.is_some() && !self.is_taking_state();
        if gives_up {
            self.on(core).whole_state().take(ReplaceReason::TooFarBehind);
        }
        gives_up
    }

    fn take_in_place(
        &mut self,
        index: u64,
        state: PackedState,
        core: &mut Core<S, W>,
    ) -> Result<(), NotProven> {
        let Some(execution) = &core.executor.running else { return Ok(()) };
        let (proof, packed) = state::split_proof(state.clone()).map_err(NotProven::Wrong)?;
        let (base, _) = state::open(&*execution.service, packed).map_err(NotProven::Wrong)?;
        let mut speculator = self.on(core);
        speculator.whole_state().check(index, &base, &proof)?;
        speculator.whole_state().on_arrived(state);
        Ok(())
    }

    fn prove(
        &mut self,
        index: u64,
        base: &Base<S>,
        proof: Option<StateProof>,
        core: &mut Core<S, W>,
    ) -> Result<(), NotProven> {
        self.proven = None;
        let proof = proof.ok_or_else(|| NotProven::Wrong("it has no proof".into()))?;
        self.on(core).whole_state().check(index, base, &proof)?;
        let service = core.executor.service.as_mut();
        let service = service.ok_or_else(|| NotProven::Wrong("there is no service".into()))?;
        self.proven = Some(fold::begin(service, base.0.batch, proof).map_err(NotProven::Wrong)?);
        Ok(())
    }

    fn begin(&mut self, head: &CheckpointHead, core: &mut Core<S, W>) -> Result<(), String> {
        let speculation = match (self.proven.take(), &mut core.executor.service) {
            (Some(proven), _) => proven,
            // The first state has no token that its objects have to fit.
            (None, Some(service)) => fold::begin(service, head.batch, StateProof::default())?,
            (None, None) => return Ok(()),
        };
        let (version, parts) = (speculation.version(), speculation.parts());
        core.env.world.see(Observation::Installed { version, order: &head.order, in_place: false });
        self.start(speculation, head.order.clone(), parts);
        Ok(())
    }

    fn started(&mut self, _: u64, from_others: bool, core: &mut Core<S, W>) {
        let stable = self.speculation.as_ref().map(Speculation::stable);
        if let (Some(stable), true) = (stable, from_others) {
            self.on(core).on_executor_event(ExecutorEvent::Installed(stable));
        }
    }

    fn pack_unordered(&mut self, core: &mut Core<S, W>) {
        self.on(core).checkpoint().pack_stable();
    }
}
