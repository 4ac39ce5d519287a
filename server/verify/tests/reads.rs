//! Reads that one replica answers: from which version on they may run, and what a stale one looks like.

use verify::{
    Config, CrashVector, Executor, ExecutorCommand, ExecutorEvent, Layout, Rules, Slot, StateToken, Verifier,
    VerifierEvent, VerifyMessage,
};

use crate::support::cluster::{Cluster, as_is};

const THREE: Layout = Layout::Crash { failures: 1 };
const ALL: [u8; 3] = [0, 1, 2];

/// Replica 2 is cut off while the others make a batch stable, and reads when it is back.
fn read_after_a_write_elsewhere(with: fn(Config) -> Config) -> Cluster {
    let mut group = Cluster::founded(THREE, with);
    group.batch(&ALL, 'a');
    group.cut = vec![(0, 2), (1, 2)];
    group.batch(&[0, 1], 'b');
    assert_eq!((group.stable_at(0), group.stable_at(2)), ("ab".to_owned(), "a".to_owned()));
    group.cut.clear();
    group.reported.clear();
    group.executor(2, ExecutorEvent::Read);
    group.deliver();
    group
}

#[test]
fn a_read_waits_for_what_was_acknowledged_at_another_replica() {
    let mut group = read_after_a_write_elsewhere(as_is);
    group.tells("executor 2 may read from batch 2 on");
}

#[test]
fn a_read_that_believes_its_own_verifier_is_stale() {
    let by_one = |config: Config| config.with_rules(Rules { read_quorum: false, ..Rules::ALL });
    let mut group = read_after_a_write_elsewhere(by_one);
    group.tells("executor 2 may read from batch 1 on");
}

#[test]
fn a_read_gets_no_bound_without_a_quorum() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    group.reported.clear();
    group.cut = vec![(0, 2), (1, 2)];
    group.executor(2, ExecutorEvent::Read);
    group.deliver();
    group.tells("");
    // It asks again when it hears others.
    group.cut.clear();
    group.executor(2, ExecutorEvent::Read);
    group.deliver();
    group.tells("executor 2 may read from batch 1 on");
}

#[test]
fn a_record_that_a_later_view_has_dropped_is_not_waited_for() {
    let mut group = Cluster::founded(THREE, as_is);
    group.batch(&ALL, 'a');
    // Verifier 0 alone records batch 2, and hears nothing of the next view.
    group.cut = vec![(0, 1), (0, 2)];
    group.run(&[0], 'x');
    let token = StateToken(u128::from(b'a') | u128::from(b'x') << 8);
    let version = verify::Version { number: 2, token };
    let parent = StateToken(u128::from(b'a'));
    let message = VerifyMessage::Verify { view: 0, version, parent, incarnation: 1 };
    group.verifier(0, VerifierEvent::Message { from: 1, message });
    group.lose();
    [1, 2].into_iter().for_each(|slot| group.verifier(slot, VerifierEvent::Suspect(verify::Reason::Late)));
    group.deliver();
    group.reported.clear();
    // Verifier 0 answers without having heard of that view.
    group.cut.clear();
    group.executor(1, ExecutorEvent::Read);
    group.deliver();
    group.tells("executor 1 may read from batch 1 on");
}

#[test]
fn a_verifier_without_memory_does_not_answer() {
    let config = Config::new(THREE, 1, 9, StateToken(0));
    let answers = |mut verifier: Verifier| {
        let mut commands = Vec::new();
        let message = VerifyMessage::ReadWhere { incarnation: 1, round: 1 };
        verifier.handle(VerifierEvent::Message { from: 0, message }, 0, &mut commands);
        commands.len()
    };
    assert_eq!(answers(Verifier::new(config.clone())), 0);
    assert_eq!(answers(Verifier::founded(config, &[1, 2, 3])), 1);
}

/// What an executor in its first incarnation, at slot 0, does with these answers to its second question: sender,
/// incarnation and round that they name, number, and incarnation of verifier 1 that the sender knows.
fn bound_by(layout: Layout, answers: &[(Slot, u64, u64, u64, u16)]) -> Option<u64> {
    let mut executor = Executor::founded(Config::new(layout, 0, 7, StateToken(0)));
    let mut commands = Vec::new();
    executor.handle(ExecutorEvent::Read, 0, &mut commands);
    executor.handle(ExecutorEvent::Read, 0, &mut commands);
    for &(from, incarnation, round, number, known) in answers {
        let mut crashes = vec![0; layout.verifiers() as usize];
        crashes[1] = known;
        let crashes = CrashVector::of(&crashes).expect("few verifiers");
        let message = VerifyMessage::ReadHere { incarnation, round, view: 0, number, crashes };
        executor.handle(ExecutorEvent::Message { from, message }, 0, &mut commands);
    }
    commands.into_iter().find_map(|command| match command {
        ExecutorCommand::ReadFrom { number } => Some(number),
        _ => None,
    })
}

#[test]
fn only_answers_to_the_last_question_of_this_incarnation_count() {
    assert_eq!(bound_by(THREE, &[(0, 7, 2, 5, 0), (1, 7, 2, 6, 0)]), Some(6));
    assert_eq!(bound_by(THREE, &[(0, 7, 2, 5, 0), (0, 7, 2, 6, 0)]), None, "one verifier twice");
    assert_eq!(bound_by(THREE, &[(0, 7, 2, 5, 0), (1, 7, 1, 6, 0)]), None, "an earlier question");
    assert_eq!(bound_by(THREE, &[(0, 7, 2, 5, 0), (1, 6, 2, 6, 0)]), None, "an earlier incarnation");
    assert_eq!(bound_by(THREE, &[(0, 7, 2, 5, 0), (3, 7, 2, 6, 0)]), None, "no verifier");
}

#[test]
fn an_answer_of_an_incarnation_that_is_known_to_be_over_does_not_count() {
    let over = [(1, 7, 2, 6, 0), (2, 7, 2, 5, 1)];
    assert_eq!(bound_by(THREE, &over), None);
    assert_eq!(bound_by(THREE, &[over[0], over[1], (0, 7, 2, 4, 1)]), Some(5));
}

#[test]
fn more_verifiers_need_more_answers() {
    let five = Layout::Crash { failures: 2 };
    let answers = [(0, 7, 2, 5, 0), (1, 7, 2, 6, 0), (4, 7, 2, 4, 0)];
    assert_eq!(bound_by(five, &answers[..2]), None);
    assert_eq!(bound_by(five, &answers), Some(6));
    assert_eq!(bound_by(Layout::PairWithWitness, &[(0, 7, 2, 5, 0), (2, 7, 2, 6, 0)]), Some(6));
}

#[test]
fn a_pair_has_no_such_reads() {
    assert!(!Layout::Pair.reads_locally());
    let mut pair = Cluster::founded(Layout::Pair, as_is);
    pair.batch(&[0, 1], 'a');
    pair.reported.clear();
    [0, 1].into_iter().for_each(|slot| pair.executor(slot, ExecutorEvent::Read));
    pair.deliver();
    pair.tells("");
}
