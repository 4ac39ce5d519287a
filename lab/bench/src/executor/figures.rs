//! What can be measured: each figure as its sides, the comparisons between them, and what the paper says.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::judge::ExecutorSetup;
use super::log::LogShape;
use super::measure::{ExecutorCase, Measuring};
use super::mixing::MixerErrors;
use super::replica::RequestWork;
#[cfg(target_os = "linux")]
use super::shipper::unavailable;

/// Workers of a side that waits; the paper's threads.
const WAITING: usize = 16;
/// Workers of a side that burns processor time: as many as the cores of the machine that this is made for.
const BURNING: usize = 2;
/// Length of a value unless the figure says otherwise: the paper's object.
const VALUE_BYTES: usize = 1_024;
/// Work of a request unless the figure says otherwise: the paper's, in microseconds.
const WORK_US: u32 = 1_000;
/// Items where pages are shipped: more than requests are under way, so that each request of an epoch writes pages of
/// its own. Each has a lock of its own, of which there are twice as many at most.
const MANY_ITEMS: usize = 2_000;
/// Bytes of a page.
const PAGE_BYTES: usize = 4_096;
/// What a short request adds to a long value.
const APPENDED_BYTES: usize = 8;
/// What sides with a backup are called.
const SHIPPER: &str = "page shipper";
const PAIR: &str = "Eve pair";
/// What the sides of one worker are called.
const ALONE: &str = "1 worker";

/// A figure of the paper, or a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutorFigure {
    /// Speed-up by work per request
    Fig4,
    /// Speed-up by length of a value
    Fig5,
    /// Conflicts that the mixer overlooks: rollbacks of two executors
    Fig6,
    /// Conflicts that the mixer imagines
    Fig7,
    /// Throughput beside a backup that gets pages
    Fig10,
    /// Bytes to the backup per request
    Fig11,
    /// Taking back a batch of 100 requests
    Rollback,
    /// Mixing, keeping and folding a batch
    Fold,
}

/// A side of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorSide {
    /// Its name, unique in the figure.
    pub name: String,
    /// What it is.
    pub case: ExecutorCase,
}

/// A side's throughput divided by another's, within a round.
#[derive(Clone, Debug, PartialEq)]
pub struct SideRatio {
    /// The side above.
    pub of: String,
    /// The side below.
    pub to: String,
    /// What the paper has, in its words.
    pub paper: &'static str,
}

/// All that a figure consists of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigurePlan {
    /// Its sides, in the order in which a round measures them.
    pub sides: Vec<ExecutorSide>,
    /// What is compared.
    pub ratios: Vec<SideRatio>,
}

/// What a run can change about all sides, for a try or a test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureScale {
    /// Requests of a batch.
    pub batch: usize,
    /// The work of requests is divided by this.
    pub less_work: u32,
    /// Whether each executor of two starts requests in an order of its own.
    pub any_order: bool,
}

impl ExecutorFigure {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExecutorFigure::Fig4 => "fig4",
            ExecutorFigure::Fig5 => "fig5",
            ExecutorFigure::Fig6 => "fig6",
            ExecutorFigure::Fig7 => "fig7",
            ExecutorFigure::Fig10 => "fig10",
            ExecutorFigure::Fig11 => "fig11",
            ExecutorFigure::Rollback => "rollback",
            ExecutorFigure::Fold => "fold",
        }
    }

    /// What it shows, and what the paper has, in a few sentences.
    pub fn about(self) -> &'static str {
        match self {
            ExecutorFigure::Fig4 => {
                "Throughput of several workers divided by that of one, with 10, 1 and 0.1 ms of work per request. The \
                 paper's Fig. 4 has 12.5, 10 and 3.3 times with 16 threads that burn processor time on 16 cores; ours \
                 burn with 2 workers, and wait with up to 16."
            }
            ExecutorFigure::Fig5 => {
                "The same with values of 10 B, 1 KB and 10 KB and 1 ms of work. The paper's Fig. 5 has 10.0, 10.0 and \
                 5.6 thousand requests per second, since its hash library copies objects."
            }
            ExecutorFigure::Fig6 => {
                "Two executors run the same batches beside each other, with a mixer that overlooks a share of the \
                 conflicts. Where their tokens differ, both take the batch back and run it one request at a time. The \
                 paper's Fig. 6: with 1 % of conflicts and 1 % overlooked, a rollback in 7 parallel batches, and 2.6 \
                 times the throughput of one thread."
            }
            ExecutorFigure::Fig7 => {
                "One executor with a mixer that imagines conflicts in a share of the pairs that have none. The paper's \
                 Fig. 7: throughput falls, and less than by overlooked conflicts."
            }
            ExecutorFigure::Fig10 => {
                "Unreplicated; unreplicated with a page shipper, like Remus; and the executors of an Eve pair. Every \
                 25 ms the page shipper stops the primary, a process, copies the pages that it has written, and ships \
                 them to a backup over loopback, throttled to 1 Gb/s; replies leave when the backup has them. It is \
                 kinder than Remus, which ships a virtual machine. Requests wait 1 ms. Each writes another item, by a \
                 SET of its value or by 8 bytes that are appended. Both executors of the pair run here, on the same \
                 cores, and its messages are not sent. The processor time of the pair is that of both replicas; that \
                 of the page shipper includes the backup. The paper's Fig. 10: at most 235 requests per second with \
                 Remus, 1,225 with Eve, about 1,470 unreplicated."
            }
            ExecutorFigure::Fig11 => {
                "Bytes to and from the backup for a request, by the pages of the value that it writes: short requests \
                 that append 8 bytes, and SETs, which contain the whole value. The page shipper's are those that it \
                 sends; those of the Eve pair are the encoded frames EXECUTE-BATCH, VERIFY and RECORDED of its \
                 batches, in both directions. The paper's Fig. 11: two orders of magnitude."
            }
            ExecutorFigure::Rollback => {
                "A batch of SETs of 1 KB without work is executed, taken back, and executed again one request at a \
                 time. Taking back is the work of the boundary alone; running again ends when the token is known."
            }
            ExecutorFigure::Fold => {
                "The parts of the cost of a batch without work, with one worker: keys and plan; handlers, with and \
                 without keeping what takes them back; changes of the tree with root and token."
            }
        }
    }

    /// Why it cannot be measured on this machine, if it cannot.
    pub fn unavailable(self) -> Option<String> {
        match self {
            ExecutorFigure::Fig10 | ExecutorFigure::Fig11 => unavailable(),
            _ => None,
        }
    }

    /// Whether its ratios are those of bytes per request, and not of throughput.
    pub fn compares_bytes(self) -> bool {
        self == ExecutorFigure::Fig11
    }

    /// Its sides and ratios.
    pub fn plan(self, scale: FigureScale) -> FigurePlan {
        let figure = FigureBuilder { scale, plan: FigurePlan::default() };
        match self {
            ExecutorFigure::Fig4 => figure.by_work(),
            ExecutorFigure::Fig5 => figure.by_value(),
            ExecutorFigure::Fig6 => figure.by_overlooked(),
            ExecutorFigure::Fig7 => figure.by_imagined(),
            ExecutorFigure::Fig10 => figure.by_backup(),
            ExecutorFigure::Fig11 => figure.by_pages(),
            ExecutorFigure::Rollback => figure.rollback(),
            ExecutorFigure::Fold => figure.fold(),
        }
    }
}

struct FigureBuilder {
    scale: FigureScale,
    plan: FigurePlan,
}

impl FigureBuilder {
    /// One executor with one worker, without conflicts, work and errors.
    fn case(&self) -> ExecutorCase {
        ExecutorCase {
            shape: LogShape {
                batch: self.scale.batch,
                value_bytes: VALUE_BYTES,
                conflicts: 0.0,
                lone_items: 2 * self.scale.batch,
                appended_bytes: 0,
            },
            setup: ExecutorSetup {
                executors: 1,
                workers: 1,
                work: RequestWork::default(),
                errors: MixerErrors::NONE,
                any_order: false,
                sequential: false,
                keeps: true,
            },
            measuring: Measuring::Throughput,
        }
    }

    fn side(&mut self, name: impl Into<String>, case: ExecutorCase) {
        self.plan.sides.push(ExecutorSide { name: name.into(), case });
    }

    fn ratio(&mut self, of: impl Into<String>, to: impl Into<String>, paper: &'static str) {
        self.plan.ratios.push(SideRatio { of: of.into(), to: to.into(), paper });
    }

    fn burning(&self, us: u32) -> RequestWork {
        RequestWork { burn_us: (us / self.scale.less_work).max(1), hold_us: 0 }
    }

    fn waiting(&self, us: u32) -> RequestWork {
        RequestWork { burn_us: 0, hold_us: (us / self.scale.less_work).max(1) }
    }

    /// Sides with these numbers of workers, of which the first is 1, and each divided by the first.
    fn workers(
        &mut self,
        name: &str,
        work: (&str, RequestWork),
        shape: LogShape,
        workers: &[usize],
        paper: &'static str,
    ) {
        let (kind, work) = work;
        let named = |workers: usize| format!("{name}, {workers} {kind}");
        for &count in workers {
            let mut case = self.case();
            case.shape = shape;
            case.setup = ExecutorSetup { workers: count, work, ..case.setup };
            self.side(named(count), case);
            if count > 1 {
                let paper = if count == WAITING { paper } else { "" };
                self.ratio(named(count), named(1), paper);
            }
        }
    }

    fn by_work(mut self) -> FigurePlan {
        let shape = self.case().shape;
        for (name, us, paper) in [("10 ms", 10_000, "12.5"), ("1 ms", 1_000, "10"), ("0.1 ms", 100, "3.3")] {
            let (burning, waiting) = (self.burning(us), self.waiting(us));
            self.workers(name, ("burning", burning), shape, &[1, BURNING], "");
            self.workers(name, ("waiting", waiting), shape, &[1, 2, 4, 8, WAITING], paper);
        }
        self.plan
    }

    fn by_value(mut self) -> FigurePlan {
        let lengths = [("10 B", 10, "10.0 k/s"), ("1 KB", 1_024, "10.0 k/s"), ("10 KB", 10_240, "5.6 k/s")];
        for (name, value_bytes, paper) in lengths {
            let shape = LogShape { value_bytes, ..self.case().shape };
            let (burning, waiting) = (self.burning(WORK_US), self.waiting(WORK_US));
            self.workers(name, ("burning", burning), shape, &[1, BURNING], "");
            self.workers(name, ("waiting", waiting), shape, &[1, WAITING], paper);
        }
        for (length, paper) in [("1 KB", "1.0"), ("10 KB", "0.56")] {
            self.ratio(format!("{length}, {BURNING} burning"), format!("10 B, {BURNING} burning"), "");
            self.ratio(format!("{length}, {WAITING} waiting"), format!("10 B, {WAITING} waiting"), paper);
        }
        self.plan
    }

    fn by_overlooked(self) -> FigurePlan {
        let any_order = self.scale.any_order;
        self.by_errors("overlooked", |case, overlooks| {
            case.setup.executors = 2;
            case.setup.any_order = any_order;
            case.setup.errors = MixerErrors { overlooks, imagines: 0.0 };
        })
    }

    fn by_imagined(self) -> FigurePlan {
        self.by_errors("imagined", |case, imagines| {
            case.setup.errors = MixerErrors { overlooks: 0.0, imagines };
        })
    }

    /// The grid of both figures: conflicts by errors, and one worker to compare with.
    fn by_errors(mut self, kind: &str, set: impl Fn(&mut ExecutorCase, f64)) -> FigurePlan {
        let work = self.waiting(WORK_US);
        let mut alone = self.case();
        alone.setup.work = work;
        self.side(ALONE, alone);
        for conflicts in [0.0, 0.001, 0.01, 0.1] {
            for errors in [0.0, 0.001, 0.01, 0.05] {
                if kind == "overlooked" && conflicts == 0.0 && errors > 0.0 {
                    // There is nothing to overlook.
                    continue;
                }
                let mut case = self.case();
                case.shape.conflicts = conflicts;
                case.setup.workers = WAITING;
                case.setup.work = work;
                set(&mut case, errors);
                let name = format!("{} % conflicts, {} % {kind}", percent(conflicts), percent(errors));
                let is_quoted = kind == "overlooked" && (conflicts, errors) == (0.01, 0.01);
                self.side(name.clone(), case);
                self.ratio(name, ALONE, if is_quoted { "2.6; 1 rollback in 7 parallel batches" } else { "" });
            }
        }
        self.plan
    }

    /// What waits and writes another item each time, with values of this length. It has no conflicts.
    fn replicated(&self, value_bytes: usize, appended_bytes: usize) -> ExecutorCase {
        let mut case = self.case();
        case.shape.value_bytes = value_bytes;
        case.shape.appended_bytes = appended_bytes;
        case.shape.lone_items = MANY_ITEMS;
        case.setup.workers = WAITING;
        case.setup.work = self.waiting(WORK_US);
        case
    }

    /// The sides of a primary whose pages are shipped, and of a pair.
    fn backups(&mut self, name: &str, case: ExecutorCase, pair: Measuring) {
        let mut shipped = case;
        shipped.setup.keeps = false;
        shipped.measuring = Measuring::Shipped;
        self.side(format!("{name}, {SHIPPER}"), shipped);
        let mut both = case;
        both.setup.executors = 2;
        both.setup.any_order = self.scale.any_order;
        both.measuring = pair;
        self.side(format!("{name}, {PAIR}"), both);
    }

    fn by_backup(mut self) -> FigurePlan {
        let requests = [("SET of 1 KB", VALUE_BYTES, 0), ("append to 20 KB", 5 * PAGE_BYTES, APPENDED_BYTES)];
        for (name, value_bytes, appended_bytes) in requests {
            let case = self.replicated(value_bytes, appended_bytes);
            let mut alone = case;
            alone.setup.keeps = false;
            self.side(format!("{name}, unreplicated"), alone);
            self.side(format!("{name}, one executor of a pair"), case);
            self.backups(name, case, Measuring::Throughput);
            let named = |side: &str| format!("{name}, {side}");
            self.ratio(named(SHIPPER), named("unreplicated"), "0.16");
            self.ratio(named("one executor of a pair"), named("unreplicated"), "");
            self.ratio(named(PAIR), named("unreplicated"), "0.83");
            self.ratio(named(PAIR), named(SHIPPER), "5.2; its text says 4.7");
        }
        self.plan
    }

    fn by_pages(mut self) -> FigurePlan {
        let appends = (1..=5)
            .map(|pages| (format!("append to {}", pages_text(pages)), pages, APPENDED_BYTES, "about 100"));
        let sets = [1, 5].map(|pages| (format!("SET of {}", pages_text(pages)), pages, 0, ""));
        for (name, pages, appended_bytes, paper) in appends.chain(sets) {
            let case = self.replicated(pages * PAGE_BYTES, appended_bytes);
            self.backups(&name, case, Measuring::Traffic);
            self.ratio(format!("{name}, {SHIPPER}"), format!("{name}, {PAIR}"), paper);
        }
        self.plan
    }

    fn rollback(mut self) -> FigurePlan {
        let mut case = self.case();
        case.measuring = Measuring::Rollbacks;
        self.side(ALONE, case);
        case.setup.workers = BURNING;
        self.side(format!("{BURNING} workers"), case);
        self.plan
    }

    fn fold(mut self) -> FigurePlan {
        let mut case = self.case();
        self.side("keeping", case);
        case.setup.keeps = false;
        self.side("not keeping", case);
        self.ratio("keeping", "not keeping", "");
        self.plan
    }
}

fn pages_text(pages: usize) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

/// There is no way to find written pages.
#[cfg(not(target_os = "linux"))]
fn unavailable() -> Option<String> {
    Some("shipping pages takes Linux".to_owned())
}

/// Of a share, without digits that say nothing.
fn percent(share: f64) -> f64 {
    (share * 1_000.0).round() / 10.0
}
