//! Every figure in tiny, and each check seen to fail where what it guards is taken away.

use node::signals::Ending;

use memcached::{Config, Memcached};

use super::*;
use crate::executor::judge::{check_roots, with_executors};
use crate::executor::log::RequestLog;
use crate::executor::measure::ExecutorCase;
use crate::executor::mixing::MixerErrors;
use crate::executor::replica::tree_of;

const SPAN: ExecutorSpan = ExecutorSpan { seconds: 0.0, batches: 6, rollbacks: 5 };
const SCALE: FigureScale = FigureScale { batch: 40, less_work: 100, any_order: true };

fn measured(figure: ExecutorFigure) -> ExecutorRun {
    let mut run = ExecutorRun::begin(1, SPAN, SCALE);
    let ending = Ending::catch().expect("a handler of signals");
    measure_round(&mut run, figure, 1, &ending, &mut |_, _| Ok(())).expect("every check holds");
    let sides = figure.plan(SCALE).sides;
    assert_eq!(run.measurements.len(), sides.len());
    for one in &run.measurements {
        let is_counted = one.figures.batches >= SPAN.batches.min(u64::from(SPAN.rollbacks));
        assert!(is_counted && one.figures.seconds > 0.0, "{one:?}");
    }
    run
}

/// The case of a side.
fn case(figure: ExecutorFigure, name: &str) -> ExecutorCase {
    let sides = figure.plan(SCALE).sides;
    sides.into_iter().find(|side| side.name == name).unwrap_or_else(|| panic!("no side {name}")).case
}

#[test]
fn speed_ups_are_measured_and_their_results_are_those_of_one_at_a_time() {
    for figure in [ExecutorFigure::Fig4, ExecutorFigure::Fig5] {
        let run = measured(figure);
        for ratio in figure.plan(SCALE).ratios {
            assert!(run.ratio(figure, &ratio.of, &ratio.to).is_some(), "{ratio:?}");
        }
        assert!(run.measurements.iter().all(|one| one.figures.rollbacks == 0));
    }
}

#[test]
fn overlooked_conflicts_make_executors_differ_and_only_they_do() {
    let run = measured(ExecutorFigure::Fig6);
    for one in run.measurements.iter().filter(|one| one.side.contains(" 0 % overlooked")) {
        assert_eq!((one.figures.rollbacks, one.figures.foreseen), (0, 0), "{one:?}");
    }
    let mut case = case(ExecutorFigure::Fig6, "10 % conflicts, 5 % overlooked");
    case.setup.errors = MixerErrors { overlooks: 0.5, imagines: 0.0 };
    let span = ExecutorSpan { batches: 20, ..SPAN };
    let found = case.measure(span, 1).expect("sequential runs agree").figures;
    assert!(
        found.rollbacks >= 15,
        "only {} of 20 batches differ: the figure measures nothing",
        found.rollbacks
    );
    assert!(found.foreseen >= 15 && found.rollbacks.abs_diff(found.foreseen) <= 5, "{found:?}");
}

#[test]
fn imagined_conflicts_cost_parallel_batches_and_no_result() {
    let run = measured(ExecutorFigure::Fig7);
    let parallel = |side: &str| {
        let each = |one: &measure::ExecutorFigures| Some(one.parallel_batches as f64 / one.batches as f64);
        run.spread(ExecutorFigure::Fig7, side, each).expect("it was measured").median
    };
    assert_eq!(parallel("0 % conflicts, 0 % imagined"), 1.0);
    assert!(parallel("0 % conflicts, 5 % imagined") > 2.0);
}

#[test]
fn a_batch_that_is_rolled_back_has_the_same_token_again() {
    let run = measured(ExecutorFigure::Rollback);
    for one in &run.measurements {
        let timed = one.figures.timed.expect("rollbacks were timed");
        assert_eq!(timed.count, SPAN.rollbacks);
        assert!(timed.taken_back_p50_us > 0.0 && timed.again_p50_us > 0.0);
    }
}

#[test]
fn the_parts_of_a_batch_are_measured_with_and_without_keeping() {
    // What is not kept is in no token: the root says so.
    let run = measured(ExecutorFigure::Fold);
    assert!(run.measurements.iter().all(|one| one.figures.folding_us > 0.0 && one.figures.handling_us > 0.0));
}

#[test]
fn a_plan_that_overlooks_conflicts_fails_the_comparison_with_a_sequential_run() {
    let mut case = case(ExecutorFigure::Fig7, "10 % conflicts, 0 % imagined");
    case.setup.any_order = true;
    let side = |case| ExecutorSide { name: "side".into(), case };
    let accurate = side(case);
    let results = [(&accurate, case.measure(SPAN, 3).expect("it is sound"))];
    compare_with_sequential(&results, 3).expect("nothing was overlooked");
    case.setup.errors = MixerErrors { overlooks: 1.0, imagines: 0.0 };
    // Judged as if it were accurate.
    let results = [(&accurate, case.measure(SPAN, 3).expect("it is sound"))];
    let error = compare_with_sequential(&results, 3).expect_err("it ran in another order");
    assert!(error.to_string().contains("one at a time"), "{error:#}");
}

#[test]
fn a_root_that_lacks_what_requests_did_is_found() {
    let mut case = case(ExecutorFigure::Fig4, "1 ms, 2 waiting");
    case.setup.keeps = false;
    let mut services = [Memcached::new(case.shape.service()).expect("settings that work")];
    let mut before = [tree_of(&mut services[0])];
    let log = RequestLog::new(case.shape, &services[0], 5).expect("a log");
    with_executors(case.setup, &log, &mut services, 5, |drive| drive.run_until(|number, _| number == 4))
        .expect("it runs");
    let error = check_roots(&mut services, &mut before).expect_err("the tree is that of the empty service");
    assert!(error.to_string().contains("the root is"), "{error:#}");
    let mut after = [tree_of(&mut services[0])];
    check_roots(&mut services, &mut after).expect("the tree is that of the objects");
}

/// Settings are part of a shard's state: the executors differ about everything, and no rollback helps.
#[test]
fn executors_that_differ_after_a_sequential_run_are_an_error() {
    let mut case = case(ExecutorFigure::Fig4, "1 ms, 2 waiting");
    case.setup.executors = 2;
    let config = case.shape.service();
    let other = Config { memory: 2 * config.memory, ..config };
    let mut services = [config, other].map(|config| Memcached::new(config).expect("settings that work"));
    let log = RequestLog::new(case.shape, &services[0], 6).expect("a log");
    let ran = with_executors(case.setup, &log, &mut services, 6, |drive| drive.run_until(|_, _| true));
    let error = ran.expect_err("they differ").to_string();
    assert!(error.contains("batch 1 after a sequential run"), "{error}");
}

#[test]
fn bytes_to_a_backup_are_compared_and_reported() {
    let figure = ExecutorFigure::Fig11;
    let mut run = ExecutorRun::begin(1, SPAN, SCALE);
    run.settings.left_out.push((ExecutorFigure::Fig10, "no such kernel".into()));
    let sides = ["append to 1 page, page shipper", "append to 1 page, Eve pair"];
    if let Some(why) = figure.unavailable() {
        eprintln!("skipped: {why}");
        return;
    }
    for side in sides {
        let figures = case(figure, side).measure(SPAN, 8).expect("every check holds").figures;
        assert!(figures.batches >= SPAN.batches, "{figures:?}");
        run.measurements.push(ExecutorMeasurement { figure, side: side.into(), repetition: 1, figures });
    }
    let pair = run.spread(figure, sides[1], measure::ExecutorFigures::bytes_per_request).expect("counted");
    assert!((20.0..200.0).contains(&pair.median), "{pair:?}");
    // A value of one page is written at another place, on one page or two.
    let ratio = run.ratio(figure, sides[0], sides[1]).expect("both were measured");
    assert!(ratio.median > 20.0, "{ratio:?}");
    for text in crate::report::texts_of_executor(&run) {
        for part in ["bytes to and from the backup", "shipped pages", "was left out: no such kernel"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}

#[test]
fn results_are_read_back_and_reported() {
    let run = measured(ExecutorFigure::Rollback);
    let dir = tempfile::tempdir().expect("a folder");
    let path = run.write(dir.path()).expect("it is written");
    let file = report::results::ResultFile::of_kind(&path, KIND).expect("it is read");
    assert_eq!(ExecutorRun::of_file(file).expect("a run"), run);
    let [markdown, html] = crate::report::texts_of_executor(&run);
    for text in [markdown, html] {
        assert!(text.contains("taken back") && text.contains("executor: rollback"), "{text}");
    }
}
