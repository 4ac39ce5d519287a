//! A page shipper on a real primary: its copy is equal, and is seen to differ where pages are protected too late.

use super::*;
use crate::executor::figures::{ExecutorFigure, FigureScale};

const SCALE: FigureScale = FigureScale { batch: 20, less_work: 20, any_order: true };

/// The side of SETs, small; none where this machine cannot do it.
fn case() -> Option<ExecutorCase> {
    if let Some(why) = unavailable() {
        eprintln!("skipped: {why}");
        return None;
    }
    let sides = ExecutorFigure::Fig10.plan(SCALE).sides;
    let side = sides.into_iter().find(|side| side.name == "SET of 1 KB, page shipper").expect("the side");
    let mut case = side.case;
    case.shape.lone_items = 400;
    Some(case)
}

#[test]
fn the_backup_has_all_of_the_primarys_memory() {
    let Some(case) = case() else { return };
    let span = ExecutorSpan { seconds: 0.0, batches: 1, rollbacks: 1 };
    let figures = measure(&case, span, 1).expect("the copy is equal").figures;
    let shipped = figures.shipped.expect("pages were shipped");
    assert!(figures.requests > 0 && shipped.pages > 0 && shipped.epochs as usize >= EPOCHS, "{figures:?}");
    // At least its items: 400 of 1 KB.
    assert!(shipped.compared_pages > 100 && figures.backup_bytes > Some(shipped.pages * backup::PAGE));
}

#[test]
fn pages_that_are_protected_too_late_are_missing_in_the_backup() {
    let Some(case) = case() else { return };
    let mut shipper = PageShipper::start(&case, 2, Protecting::AfterGoingOn).expect("it starts");
    for _ in 0..3 {
        shipper.ship().expect("it ships");
    }
    let error = shipper.end().expect_err("what was written in between is lost");
    assert!(error.to_string().contains("the backup's copy differs"), "{error:#}");
}

#[test]
fn pages_that_are_never_protected_again_are_shipped_again_and_again() {
    let Some(case) = case() else { return };
    let pages = |protecting| {
        let mut shipper = PageShipper::start(&case, 3, protecting).expect("it starts");
        let last = (0..3).map(|_| shipper.ship().expect("it ships").pages).last();
        shipper.end().expect("the copy is equal either way");
        last.expect("three epochs")
    };
    let (once, again) = (pages(Protecting::WhileStopped), pages(Protecting::Never));
    assert!(again > 2 * once, "{again} pages in an epoch, and {once} with protection");
}

#[test]
fn no_reply_leaves_before_the_backup_has_its_epoch() {
    let Some(case) = case() else { return };
    let mut shipper = PageShipper::start(&case, 4, Protecting::WhileStopped).expect("it starts");
    let released = shipper.executed.number;
    // Nothing is shipped: the primary runs as far as its clients let it, and waits.
    let mut executed = released;
    while executed < released + AHEAD {
        std::thread::sleep(Duration::from_millis(5));
        executed = shipper.primary.executed().expect("it lives").map_or(executed, |last| last.number);
    }
    std::thread::sleep(EPOCH);
    assert_eq!(shipper.primary.executed().expect("it lives"), None);
    // The number was taken from the socket above.
    shipper.executed.number = executed;
    shipper.ship().expect("it ships");
    while shipper.primary.executed().expect("it lives").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    shipper.end().expect("the copy is equal");
}
