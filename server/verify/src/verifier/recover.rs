//! A verifier without memory: it recovers from a group that lives, or takes part in the beginning of one.
//!
//! **Recovery.** To adopt the newest state of a quorum is unsafe: a verifier promises view 1, forgets it, recovers from
//! answers that were given before, and completes a quorum of view 0 (`tests/explore.rs`). So incarnations are counted
//! (Michael et al., DISC 2017). The verifier asks WHERE (`AskRound::Incarnations`); a quorum of crash-consistent
//! answers tells how many incarnations it has had, and it takes the next number. It asks again with that number
//! (`AskRound::Adopt`). Whoever answers knows of the new incarnation from then on, and its later messages form no
//! quorum with messages of the old one. From a quorum of these answers the verifier adopts the highest promise, and the
//! record that rule 1 prefers. Its earlier incarnation may have led views up to that promise, so it leads none of them
//! again.
//!
//! Two incarnations may take the same number, but not if the first one ended its recovery: then a quorum knew of it,
//! and the next incarnation has asked one of that quorum.
//!
//! **Founding.** A verifier that lost its memory looks like a new one. It becomes a first verifier only in one of two
//! ways; each is safe as long as no more than u verifiers of a living group are without memory at one time.
//!
//! 1. It has the operator's permission ([`Config::that_begins`](crate::Config::that_begins)), and *all* others have
//!    answered this incarnation that they have no memory (`AskRound::Incarnations`), and then, after the last of these
//!    answers, once more and with the same incarnations (`AskRound::Found`). An incarnation that was without memory in
//!    both answers was so all the time between, and so was the asker. Thus at one instant no verifier had a memory: no
//!    group lived. One round would not be enough: five verifiers may lose their memories one after the other and
//!    recover, each being asked while it has none. Two verifiers may found at the same time; they found the same.
//! 2. A founder tells it that this incarnation of it took part in the founding, without memory. It has said nothing
//!    since but that it has no memory. So it is a first verifier that was slow, whatever the others have done since.
//!
//! The executor of an incarnation that took part in the founding is in its first one by the same argument: it need not
//! abstain ([`Executor`](crate::Executor)).

use std::collections::BTreeMap;

use crate::message::{AskRound, Here, TokenRecord, VerifyMessage};
use crate::slots::{CrashVector, Slot};

use super::events::{Out, Recipients, VerifierCommand};
use super::recorder::{Recorder, VerifierPhase};

/// The questions of a verifier without memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    round: AskRound,
    /// Answers of this round, the newest of each verifier.
    answers: BTreeMap<Slot, RecoveryAnswer>,
    /// Those that had no memory in the first round, by their incarnations.
    blank: BTreeMap<Slot, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecoveryAnswer {
    incarnation: u64,
    memory: Option<(u64, TokenRecord)>,
    crashes: CrashVector,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery { round: AskRound::Incarnations, answers: BTreeMap::new(), blank: BTreeMap::new() }
    }
}

impl Recovery {
    /// Asks the question of the present round (again), of all or of one.
    pub(super) fn ask(&self, recorder: &Recorder, to: Recipients, out: &mut Out<'_>) {
        let (incarnation, round, crashes) = (recorder.config.incarnation, self.round, recorder.crashes);
        out.send(to, VerifyMessage::Where { incarnation, round, crashes });
    }

    /// An answer, while the verifier has no memory. Returns the incarnations that take part if a group begins.
    pub(super) fn on_answer(
        &mut self,
        recorder: &mut Recorder,
        from: Slot,
        here: Here,
        out: &mut Out<'_>,
    ) -> Option<BTreeMap<Slot, u64>> {
        let (me, own_incarnation) = (recorder.config.me, recorder.config.incarnation);
        let fits = here.crashes.counts().len() == recorder.crashes.counts().len();
        if from >= recorder.config.layout.verifiers() || here.incarnation != own_incarnation || !fits {
            return None;
        }
        if here.memory.is_some() && here.founding == own_incarnation {
            *self = Recovery::default();
            return Some([(me, own_incarnation)].into());
        }
        if here.round != self.round {
            return None;
        }
        let answer =
            RecoveryAnswer { incarnation: here.own_incarnation, memory: here.memory, crashes: here.crashes };
        self.answers.insert(from, answer);
        let incarnations = match self.round {
            AskRound::Incarnations => self.count_incarnations(recorder, out),
            AskRound::Adopt => self.adopt(recorder, out),
            AskRound::Found => self.try_to_found(recorder, out),
            AskRound::CatchUp | AskRound::Alive | AskRound::Stalled => None,
        };
        if incarnations.is_some() || recorder.phase != VerifierPhase::Blank {
            *self = Recovery::default();
        }
        incarnations
    }

    fn count_incarnations(
        &mut self,
        recorder: &mut Recorder,
        out: &mut Out<'_>,
    ) -> Option<BTreeMap<Slot, u64>> {
        let me = recorder.config.me;
        let (consistent, known) = consistent_memories(&self.answers, &recorder.crashes);
        if consistent.len() >= recorder.config.layout.quorum() {
            if !recorder.config.rules.crash_vectors {
                return self.adopt(recorder, out);
            }
            recorder.crashes.join(&known);
            recorder.crashes.set(me, known.of_slot(me).saturating_add(1));
            return self.begin_round(AskRound::Adopt, recorder, out);
        }
        let blank = self.answers.iter().filter(|(_, answer)| answer.memory.is_none());
        self.blank = blank.map(|(slot, answer)| (*slot, answer.incarnation)).collect();
        let others = recorder.config.layout.verifiers() as usize - 1;
        if !recorder.config.begins || self.blank.len() < others {
            None
        } else if recorder.config.rules.found_twice {
            self.begin_round(AskRound::Found, recorder, out)
        } else {
            self.try_to_found(recorder, out)
        }
    }

    fn begin_round(
        &mut self,
        round: AskRound,
        recorder: &Recorder,
        out: &mut Out<'_>,
    ) -> Option<BTreeMap<Slot, u64>> {
        self.round = round;
        self.answers.clear();
        self.ask(recorder, Recipients::Verifiers, out);
        None
    }

    fn adopt(&mut self, recorder: &mut Recorder, out: &mut Out<'_>) -> Option<BTreeMap<Slot, u64>> {
        let me = recorder.config.me;
        let (consistent, known) = consistent_memories(&self.answers, &recorder.crashes);
        let is_distinguished = recorder.config.rules.crash_vectors;
        if is_distinguished && known.of_slot(me) > recorder.crashes.of_slot(me) {
            // Someone knows of a later incarnation than those who were asked first.
            recorder.crashes.join(&known);
            recorder.crashes.set(me, known.of_slot(me).saturating_add(1));
            return self.begin_round(AskRound::Adopt, recorder, out);
        }
        if consistent.len() < recorder.config.layout.quorum() {
            return None;
        }
        let promised = consistent.iter().map(|memory| memory.0).max()?;
        let record = consistent.iter().map(|memory| memory.1).max_by_key(|record| recorder.rank(record))?;
        if is_distinguished {
            recorder.crashes.join(&known);
            recorder.leads_after = Some(promised);
        }
        recorder.remember(promised, record);
        recorder.times.promised(out.now_us);
        out.commands.push(VerifierCommand::Recovered);
        if recorder.phase == VerifierPhase::Normal {
            recorder.announce(out);
        } else {
            recorder.persist(out);
        }
        None
    }

    fn try_to_found(&mut self, recorder: &Recorder, out: &mut Out<'_>) -> Option<BTreeMap<Slot, u64>> {
        let has_changed = |(slot, answer): (&Slot, &RecoveryAnswer)| {
            answer.memory.is_some() || self.blank.get(slot) != Some(&answer.incarnation)
        };
        if self.answers.iter().any(has_changed) {
            return self.begin_round(AskRound::Incarnations, recorder, out);
        }
        let all = self.answers.len() == self.blank.len();
        all.then(|| {
            let mut incarnations = self.blank.clone();
            incarnations.insert(recorder.config.me, recorder.config.incarnation);
            incarnations
        })
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
