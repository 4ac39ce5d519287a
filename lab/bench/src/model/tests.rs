//! The model at its limits, where the result is known, and its validation seen to fail where a part is taken away.

use wire::derive;

use super::findings::{EveModel, TOLERANCE};
use super::inputs::ModelInputs;
use super::sample::MeasuredTimes;
use super::simulate::{ModelCase, ModelPart, ModelTimes};
use super::*;
use crate::executor::{
    ExecutorFigure, ExecutorFigures, ExecutorMeasurement, ExecutorSide, ExecutorSpan, FigureScale,
    StageTimes, TIME_POINTS,
};

const MS: u64 = 1_000_000;
const SCALE: FigureScale = FigureScale { batch: 100, less_work: 1, any_order: true };

/// Batches of 100 requests of 1 ms, without conflicts and without anything else.
fn case(workers: usize, cores: usize) -> ModelCase {
    let times = ModelTimes { request: MeasuredTimes::fixed(MS), ..ModelTimes::default() };
    ModelCase { workers, cores, plans: vec![vec![100]], times, ahead: 4, token_ns: 0, without: Vec::new() }
}

fn throughput(case: &ModelCase) -> f64 {
    case.throughput(1).expect("it runs")
}

fn assert_near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.002, "{found} instead of {expected}");
}

#[test]
fn one_worker_runs_one_request_after_the_other() {
    assert_near(throughput(&case(1, 1)), 1_000.0);
}

#[test]
fn without_overhead_workers_are_idle_only_at_the_end_of_a_batch() {
    for workers in [2, 4, 8, 12, 16, 100] {
        let rounds = 100usize.div_ceil(workers) as f64;
        assert_near(throughput(&case(workers, workers)), 100_000.0 / rounds);
    }
}

#[test]
fn conflicts_that_force_a_sequence_leave_one_worker_busy() {
    let conflicting = ModelCase { plans: vec![vec![1; 100]], ..case(16, 16) };
    assert_near(throughput(&conflicting), 1_000.0);
    // Amdahl: half of the requests run one at a time.
    let half = ModelCase { plans: vec![[vec![1; 50], vec![50]].concat()], ..case(50, 50) };
    assert_near(throughput(&half), 100_000.0 / 51.0);
}

#[test]
fn burning_workers_share_cores_and_waiting_ones_do_not() {
    let burning = throughput(&case(16, 2));
    assert!((1_900.0..=2_000.0).contains(&burning), "{burning}");
    let mut waiting = case(16, 2);
    waiting.times.busy = Some(MeasuredTimes::fixed(0));
    assert_near(throughput(&waiting), 100_000.0 / 7.0);
    // 0.25 ms of each request need a core.
    waiting.times.busy = Some(MeasuredTimes::fixed(MS / 4));
    let shared = throughput(&waiting);
    assert!((7_000.0..8_000.0).contains(&shared), "{shared}");
}

#[test]
fn what_one_thread_does_for_all_is_a_limit() {
    let mut slow = case(16, 16);
    slow.times.folding = MeasuredTimes::fixed(50 * MS);
    assert_near(throughput(&slow), 2_000.0);
    let mut slow = case(16, 16);
    slow.times.mixing = MeasuredTimes::fixed(50 * MS);
    assert_near(throughput(&slow), 2_000.0);
    let slow = ModelCase { ahead: 1, token_ns: 43 * MS, ..case(16, 16) };
    assert_near(throughput(&slow), 2_000.0);
    let covered = ModelCase { ahead: 8, ..slow };
    assert_near(throughput(&covered), 100_000.0 / 7.0);
}

#[test]
fn barriers_take_their_time_and_wake_workers_one_after_the_other() {
    let mut opened = ModelCase { plans: vec![vec![1; 100]], ..case(2, 2) };
    opened.times.opening = MeasuredTimes::fixed(MS / 4);
    // Who has folded a batch begins the next one at once.
    assert_near(throughput(&opened), 100_000.0 / (99.0 * 1.25 + 1.0));
    let mut woken = ModelCase { plans: vec![vec![16; 5]], ..case(16, 16) };
    woken.times.waking = MeasuredTimes::fixed(MS / 15);
    // The last worker begins when the first one ends; at a new batch, one of sixteen is awake.
    assert_near(throughput(&woken), 80_000.0 / (4.0 * 2.0 + 1.0 + 14.0 / 15.0));
}

#[test]
fn a_seed_decides_everything() {
    let mut drawn = case(16, 2);
    let points: Vec<f64> = (1..=TIME_POINTS.len()).map(|at| at as f64 * 300.0).collect();
    drawn.times.request = MeasuredTimes::of_rounds([points.as_slice()].into_iter());
    assert_eq!(drawn.throughput(7), drawn.throughput(7));
    assert_ne!(drawn.throughput(7), drawn.throughput(8));
}

#[test]
fn what_cannot_run_has_no_throughput() {
    for wrong in [
        ModelCase { workers: 0, ..case(1, 1) },
        ModelCase { cores: 0, ..case(1, 1) },
        ModelCase { ahead: 0, ..case(1, 1) },
        ModelCase { plans: Vec::new(), ..case(1, 1) },
        ModelCase { plans: vec![Vec::new()], ..case(1, 1) },
    ] {
        assert_eq!(wrong.throughput(1), None);
    }
}

/// A side as an ideal executor would be measured: nothing but requests, which all take as long as they should.
fn ideal(figure: ExecutorFigure, side: &ExecutorSide) -> ExecutorMeasurement {
    let setup = side.case.setup;
    let us = f64::from(setup.work.burn_us.max(setup.work.hold_us));
    let plans = side.case.parallel_batches(derive(1, figure as u64)).expect("a log");
    let rounds: usize = plans.iter().flatten().map(|length| (*length as usize).div_ceil(setup.workers)).sum();
    let points = |us: f64| vec![us; TIME_POINTS.len()];
    let times = StageTimes {
        request: points(us),
        busy: points(if setup.work.burn_us > 0 { us } else { 0.0 }),
        between: points(0.0),
        opening: points(0.0),
        waking: points(0.0),
        folding: points(1.0),
    };
    let figures = ExecutorFigures {
        seconds: rounds as f64 * us / 1e6,
        requests: (plans.len() * side.case.shape.batch) as u64,
        times: Some(times),
        ..ExecutorFigures::default()
    };
    ExecutorMeasurement { figure, side: side.name.clone(), repetition: 1, figures }
}

fn ideal_run() -> ExecutorRun {
    let span = ExecutorSpan { seconds: 1.0, batches: 1, rollbacks: 1 };
    let mut run = ExecutorRun::begin(1, span, SCALE);
    run.origin.machine.cores = 2;
    for figure in [ExecutorFigure::Fig4, ExecutorFigure::Fig7] {
        let sides = figure.plan(SCALE).sides;
        run.measurements.extend(sides.iter().map(|side| ideal(figure, side)));
    }
    run
}

#[test]
fn an_ideal_executor_is_modelled_as_it_is() {
    let model = EveModel::of(&ideal_run(), &[], 1).expect("it has all times");
    assert_eq!(model.validation.len(), 13, "six burning sides, three waiting ones, and four with conflicts");
    assert!(model.holds(), "{:?}", model.validation);
    let mut page = ::report::Page::new("");
    page.extend(pages::blocks(&model));
    let text = page.plain();
    assert!(text.contains("within 10 %") && !text.contains("MISSES"), "{text}");
}

#[test]
fn without_the_barrier_the_validation_fails_and_says_where() {
    let model = EveModel::of(&ideal_run(), &[ModelPart::Barrier], 1).expect("it has all times");
    assert!(!model.holds());
    let missed: Vec<&str> =
        model.validation.iter().filter(|one| !one.holds).map(|one| one.side.as_str()).collect();
    assert!(missed.contains(&"fig7: 10 % conflicts, 0 % imagined"), "{missed:?}");
    assert!(!missed.iter().any(|side| side.starts_with("fig4")), "nothing conflicts there: {missed:?}");
    let mut page = ::report::Page::new("");
    page.extend(pages::blocks(&model));
    let text = page.plain();
    assert!(text.contains("MISSES") && text.contains("FAILS") && text.contains("lacks: barrier"), "{text}");
}

#[test]
fn a_measured_side_that_differs_fails_the_validation() {
    let mut run = ideal_run();
    let side =
        run.measurements.iter_mut().find(|one| one.side == "1 ms, 2 burning").expect("it was measured");
    side.figures.seconds *= 1.0 + 2.0 * TOLERANCE;
    let model = EveModel::of(&run, &[], 1).expect("it has all times");
    assert_eq!(model.validation.iter().filter(|one| !one.holds).count(), 1);
    assert!(!model.holds());
}

/// What was measured on two cores before there were distributions: each mean is an input.
#[test]
fn a_measured_file_with_means_is_modelled_and_the_miss_is_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/bench/results");
    let run = read(&path.join("executor-20261126-133924.json.gz")).expect("the committed result");
    let model = EveModel::of(&run, &[], 1).expect("it has all sides");
    let mut page = ::report::Page::new("");
    page.extend(pages::blocks(&model));
    println!("{}", page.plain());
    assert!(!model.has_distributions && page.plain().contains("means only"));
    let missed: Vec<&str> =
        model.validation.iter().filter(|one| !one.holds).map(|one| one.side.as_str()).collect();
    assert_eq!(model.validation.len(), 13);
    // Sixteen threads that are woken every 0.1 ms on two cores cost more than four: 11 %.
    assert_eq!(missed, ["fig4: 0.1 ms, 16 waiting"]);
    let lacking = EveModel::of(&run, &[ModelPart::Barrier], 1).expect("it has all sides");
    assert!(lacking.validation.iter().filter(|one| !one.holds).count() >= 3, "{:?}", lacking.validation);
    let lacking = EveModel::of(&run, &[ModelPart::Cores], 1).expect("it has all sides");
    let far = |model: &EveModel| {
        let side = model.validation.iter().find(|one| one.side == "fig4: 0.1 ms, 16 waiting");
        side.map(|one| one.difference)
    };
    assert!(far(&lacking) > far(&model), "cores are what sixteen threads share");
}

#[test]
fn a_file_without_the_sides_that_give_times_is_misuse() {
    let mut run = ideal_run();
    run.measurements.retain(|one| one.side != "1 ms, 4 waiting");
    let error = ModelInputs::new(&run, &[]).judged().expect_err("a side is missing").to_string();
    assert!(error.contains("1 ms, 4 waiting"), "{error}");
}
