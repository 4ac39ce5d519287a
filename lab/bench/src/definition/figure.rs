//! A figure of the paper, or a target, that the report shows next to the measured one.

use serde::{Deserialize, Serialize};

use super::Side;

/// A published figure, a target, or both, about one side or two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The workload's name.
    pub workload: String,
    /// Connections.
    pub clients: usize,
    /// The figure that is compared.
    pub measure: Measure,
    /// The side that it describes.
    pub of: Side,
    /// The side with which it is compared, where the measure compares two.
    pub to: Option<Side>,
    /// Lowest and highest value that the paper gives.
    pub paper: Option<(f64, f64)>,
    /// Our target: at least this for shares of throughput, at most this for everything else.
    pub target: Option<f64>,
    /// Where the figure comes from.
    pub says: String,
}

/// The measures that a [`Figure`] can describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Requests per second of one side divided by the other's.
    ThroughputRatio,
    /// Processor time per request of one side divided by the other's.
    CpuRatio,
    /// Cycles per request before and after handlers, one side's divided by the other's.
    DispatchingRatio,
    /// Cycles per request in handlers.
    HandlingRatio,
    /// Cycles per request in sending replies.
    SendingRatio,
    /// Cycles per request in all three parts.
    CyclesRatio,
    /// Requests per second of a side divided by its own under the first workload of the same sweep.
    ThroughputKept,
    /// Microseconds by which one side's median latency is above the other's.
    P50AddedUs,
    /// Microseconds from verdict to installed object: half of the repairs take at most this.
    RepairP50Us,
    /// The same for 99 of 100 repairs.
    RepairP99Us,
    /// The same, on average.
    RepairMeanUs,
    /// The longest that any client waited around a repair, in microseconds; the median over the repairs.
    WaitP50Us,
    /// The same, over all repairs.
    WaitMaxUs,
    /// Bytes of the replicas' CHECK messages per request, all replicas together.
    CheckBytes,
    /// The longest time without a reply from a replica's failure until it comes back, in milliseconds.
    FailureGapMs,
    /// The same from then on.
    RejoinGapMs,
    /// From the start of the new process, or SIGCONT, until all replicas execute together again, in milliseconds.
    RejoinMs,
}

impl Measure {
    /// Every kind, in the order of the report.
    pub const ALL: [Measure; 17] = [
        Measure::ThroughputRatio,
        Measure::CpuRatio,
        Measure::DispatchingRatio,
        Measure::HandlingRatio,
        Measure::SendingRatio,
        Measure::CyclesRatio,
        Measure::ThroughputKept,
        Measure::P50AddedUs,
        Measure::RepairP50Us,
        Measure::RepairP99Us,
        Measure::RepairMeanUs,
        Measure::WaitP50Us,
        Measure::WaitMaxUs,
        Measure::CheckBytes,
        Measure::FailureGapMs,
        Measure::RejoinGapMs,
        Measure::RejoinMs,
    ];

    /// Whether two sides are compared.
    pub fn compares(self) -> bool {
        matches!(self, Measure::ThroughputRatio | Measure::CpuRatio | Measure::P50AddedUs)
            || self.is_of_cycles()
    }

    /// Whether it is a ratio of cycles, which only programs built to count them report.
    pub fn is_of_cycles(self) -> bool {
        use Measure::{CyclesRatio, DispatchingRatio, HandlingRatio, SendingRatio};
        matches!(self, DispatchingRatio | HandlingRatio | SendingRatio | CyclesRatio)
    }

    /// Whether a higher value is better.
    pub fn wants_more(self) -> bool {
        matches!(self, Measure::ThroughputRatio | Measure::ThroughputKept)
    }

    /// Whether it describes repairs, which need faults.
    pub fn is_of_repairs(self) -> bool {
        use Measure::{RepairMeanUs, RepairP50Us, RepairP99Us, WaitMaxUs, WaitP50Us};
        matches!(self, RepairP50Us | RepairP99Us | RepairMeanUs | WaitP50Us | WaitMaxUs)
    }

    /// Whether it describes a replica's failure and return.
    pub fn is_of_failures(self) -> bool {
        matches!(self, Measure::FailureGapMs | Measure::RejoinGapMs | Measure::RejoinMs)
    }

    /// A description.
    pub fn title(self) -> &'static str {
        match self {
            Measure::ThroughputRatio => "Ratios of throughput",
            Measure::CpuRatio => "Ratios of processor time per request",
            Measure::DispatchingRatio => "Ratios of cycles around handlers",
            Measure::HandlingRatio => "Ratios of cycles in handlers",
            Measure::SendingRatio => "Ratios of cycles in sending",
            Measure::CyclesRatio => "Ratios of all cycles of the event loop",
            Measure::ThroughputKept => "Throughput kept",
            Measure::P50AddedUs => "Added median latency",
            Measure::RepairP50Us => "Repair time, median",
            Measure::RepairP99Us => "Repair time, 99th percentile",
            Measure::RepairMeanUs => "Repair time, mean",
            Measure::WaitP50Us => "Longest wait around a repair, median",
            Measure::WaitMaxUs => "Longest wait around any repair",
            Measure::CheckBytes => "CHECK bytes per request",
            Measure::FailureGapMs => "Longest time without a reply after a failure",
            Measure::RejoinGapMs => "Longest time without a reply after a return",
            Measure::RejoinMs => "Time until all execute together again",
        }
    }

    /// Its unit, for an axis.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::ThroughputRatio | Measure::CpuRatio | Measure::ThroughputKept => "ratio",
            measure if measure.is_of_cycles() => "ratio",
            Measure::CheckBytes => "B",
            measure if measure.is_of_failures() => "ms",
            _ => "µs",
        }
    }
}
