//! A verifier without memory: it recovers from a group that lives, or takes part in the beginning of one.
//!
//! **Recovery.** To adopt the newest state of a quorum is unsafe: a verifier promises view 1, forgets it, recovers from
//! answers that were given before, and completes a quorum of view 0 (`tests/explore.rs`). So lives are counted (Michael
//! et al., DISC 2017). The verifier asks WHERE (`AskRound::Lives`); a quorum of crash-consistent answers tells how many
//! lives it has had, and it takes the next number. It asks again with that number (`AskRound::Adopt`). Whoever answers
//! knows of the new life from then on, and its later messages form no quorum with messages of the old one. From a
//! quorum of these answers the verifier adopts the highest promise, and the record that rule 1 prefers. Its earlier
//! life may have led views up to that promise, so it leads none of them again.
//!
//! Two lives may take the same number, but not if the first one ended its recovery: then a quorum knew of it, and the
//! next life has asked one of that quorum.
//!
//! **Founding.** A verifier that lost its memory looks like a new one. It becomes a first verifier only in one of two
//! ways; each is safe as long as no more than u verifiers of a living group are without memory at one time.
//!
//! 1. It has the operator's permission ([`Config::that_begins`](crate::Config::that_begins)), and *all* others have
//!    answered this life that they have no memory (`AskRound::Lives`), and then, after the last of these answers, once
//!    more and with the same lives (`AskRound::Found`). A life that was without memory in both answers was so all the
//!    time between, and so was the asker. Thus at one instant no verifier had a memory: no group lived. One round
//!    would not be enough: five verifiers may lose their memories one after the other and recover, each being asked
//!    while it has none. Two verifiers may found at the same time; they found the same.
//! 2. A founder tells it that this very life of it took part in the founding, without memory. It has said nothing
//!    since but that it has no memory. So it is a first verifier that was slow, whatever the others have done since.
//!
//! The executor of a life that took part in the founding is in its first life by the same argument: it need not abstain
//! ([`Executor`](crate::Executor)).

use std::collections::BTreeMap;

use crate::message::{AskRound, Here, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot, Slots};

use super::{Out, Recipients, Verifier, VerifierCommand, VerifierPhase};

/// The questions of a verifier without memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    round: AskRound,
    /// Answers of this round, the newest of each verifier.
    answers: BTreeMap<Slot, RecoveryAnswer>,
    /// Those that had no memory in the first round, by their lives.
    blank: BTreeMap<Slot, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecoveryAnswer {
    life: u64,
    memory: Option<(u64, TokenRecord)>,
    crashes: CrashVector,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery { round: AskRound::Lives, answers: BTreeMap::new(), blank: BTreeMap::new() }
    }
}

impl Verifier {
    /// Asks the question of the present round (again), of all or of one.
    pub(super) fn ask(&self, to: Recipients, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &self.phase else { return };
        let (life, round, crashes) = (self.config.life, recovery.round, self.crashes);
        out.send(to, VerifyMessage::Where { life, round, crashes });
    }

    /// An answer, while this verifier has no memory.
    pub(super) fn on_answer(&mut self, from: Slot, here: Here, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &mut self.phase else { return };
        let verifiers = self.config.layout.verifiers();
        let fits = here.crashes.counts().len() == self.crashes.counts().len();
        if from >= verifiers || here.life != self.config.life || !fits {
            return;
        }
        if here.memory.is_some() && here.founding == self.config.life {
            let own = (self.config.me, self.config.life);
            return self.found([own].into(), out);
        }
        if here.round != recovery.round {
            return;
        }
        let answer = RecoveryAnswer { life: here.own_life, memory: here.memory, crashes: here.crashes };
        recovery.answers.insert(from, answer);
        match recovery.round {
            AskRound::Lives => self.count_lives(out),
            AskRound::Adopt => self.adopt(out),
            AskRound::Found => self.try_to_found(out),
            AskRound::CatchUp | AskRound::Alive => {}
        }
    }

    fn count_lives(&mut self, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &mut self.phase else { return };
        let (consistent, known) = consistent_memories(&recovery.answers, &self.crashes);
        if consistent.len() >= self.config.layout.quorum() {
            if !self.config.rules.crash_vectors {
                return self.adopt(out);
            }
            self.crashes.join(&known);
            let life = known.of_slot(self.config.me).saturating_add(1);
            self.crashes.set(self.config.me, life);
            return self.begin_round(AskRound::Adopt, out);
        }
        let others = Slots::first(self.config.layout.verifiers()).without(self.config.me);
        let VerifierPhase::Blank(recovery) = &mut self.phase else { return };
        recovery.blank = (recovery.answers.iter())
            .filter(|(_, answer)| answer.memory.is_none())
            .map(|(slot, answer)| (*slot, answer.life))
            .collect();
        if !self.config.begins || recovery.blank.len() < others.len() as usize {
            return;
        }
        if self.config.rules.found_twice {
            self.begin_round(AskRound::Found, out);
        } else {
            self.try_to_found(out);
        }
    }

    fn begin_round(&mut self, round: AskRound, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &mut self.phase else { return };
        recovery.round = round;
        recovery.answers.clear();
        self.ask(Recipients::Verifiers, out);
    }

    fn adopt(&mut self, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &self.phase else { return };
        let (consistent, known) = consistent_memories(&recovery.answers, &self.crashes);
        if self.config.rules.crash_vectors
            && known.of_slot(self.config.me) > self.crashes.of_slot(self.config.me)
        {
            // Someone knows of a later life than those who were asked first.
            self.crashes.join(&known);
            self.crashes.set(self.config.me, known.of_slot(self.config.me).saturating_add(1));
            return self.begin_round(AskRound::Adopt, out);
        }
        if consistent.len() < self.config.layout.quorum() {
            return;
        }
        let promised = consistent.iter().map(|memory| memory.0).max();
        let record = consistent.iter().map(|memory| memory.1).max_by_key(|record| self.rank(record));
        let (Some(promised), Some(record)) = (promised, record) else { return };
        if self.config.rules.crash_vectors {
            self.crashes.join(&known);
            self.leads_after = Some(promised);
        }
        (self.promised, self.record) = (promised, record);
        let is_normal = record.view == promised;
        self.phase = if is_normal { VerifierPhase::Normal } else { VerifierPhase::Changing };
        self.times.promised(out.now_us);
        out.commands.push(VerifierCommand::Recovered);
        if is_normal {
            self.announce(out);
        } else {
            self.persist(out);
        }
    }

    fn try_to_found(&mut self, out: &mut Out<'_>) {
        let VerifierPhase::Blank(recovery) = &self.phase else { return };
        let changed = recovery
            .answers
            .iter()
            .any(|(slot, answer)| answer.memory.is_some() || recovery.blank.get(slot) != Some(&answer.life));
        if changed {
            return self.begin_round(AskRound::Lives, out);
        }
        if recovery.answers.len() == recovery.blank.len() {
            let mut lives = recovery.blank.clone();
            lives.insert(self.config.me, self.config.life);
            self.found(lives, out);
        }
    }

    /// Becomes a verifier of a group that begins. `lives` took part.
    fn found(&mut self, lives: BTreeMap<Slot, u64>, out: &mut Out<'_>) {
        self.founding = lives;
        self.pair_begins(0);
        self.phase = VerifierPhase::Normal;
        out.commands.push(VerifierCommand::Founded);
        out.commands.push(VerifierCommand::ViewBegan { record: self.record });
        self.times.installed(false, false, out.now_us);
        self.announce(out);
    }
}

/// The memories among answers that are crash-consistent with all others and with what is known, and what all know.
fn consistent_memories(
    answers: &BTreeMap<Slot, RecoveryAnswer>,
    own: &CrashVector,
) -> (Vec<(u64, TokenRecord)>, CrashVector) {
    let mut known = *own;
    let with_memory = || answers.iter().filter(|(_, answer)| answer.memory.is_some());
    with_memory().for_each(|(_, answer)| known.join(&answer.crashes));
    let consistent = with_memory()
        .filter(|(slot, answer)| answer.crashes.of_slot(**slot) >= known.of_slot(**slot))
        .filter_map(|(_, answer)| answer.memory);
    (consistent.collect(), known)
}
