//! `run`: a closed loop of clients against running servers, and what they have seen.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::audit::{self, Books};
use crate::catalogue::Catalogue;
use crate::mix::{Mix, RequestType};
use crate::populate::connect;
use crate::population::Scale;
use crate::process_time;
use crate::shopper::{Answered, SeenByShopper, Shop, Shopper};

/// Errors and breaches that are listed.
const LISTED: usize = 5;

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where servers listen, as HOST:PORT; several share the clients
    #[arg(long, value_name = "HOST:PORT", required = true, num_args = 1..)]
    pub address: Vec<String>,
    /// Clients, each with a connection and one request at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub clients: u64,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 20)]
    pub seconds: u64,
    /// How long to run before that
    #[arg(long, value_name = "S", default_value_t = 2)]
    pub warm_up: u64,
    /// How often each interaction comes
    #[arg(long, value_enum, default_value = "browsing")]
    pub mix: Mix,
    /// Processes of the servers: their processor time, with that of all their descendants, is divided by interactions
    #[arg(long, value_name = "PID", num_args = 1.., value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// What the choices of the clients begin with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub choices: u64,
    /// Of which size the population is.
    #[command(flatten)]
    pub scale: Scale,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// How long was measured.
    pub seconds: f64,
    /// Interactions that ended in that time.
    pub interactions: u64,
    /// Times of the requests, in microseconds, sorted, by type.
    pub times: Vec<Vec<u32>>,
    /// Processor time of the servers in it, in seconds, if their processes were given.
    pub processor_seconds: Option<f64>,
    /// Transactions that were run again, from the first interaction to the last.
    pub retries: u64,
    /// Errors, likewise.
    pub failures: Vec<String>,
    /// Answers that cannot be right, and what the audit found.
    pub wrong: Vec<String>,
}

impl RunReport {
    /// Interactions per second.
    pub fn rate(&self) -> f64 {
        self.interactions as f64 / self.seconds
    }

    /// Processor time of the servers per interaction, in microseconds.
    pub fn cost_us(&self) -> Option<f64> {
        Some(self.processor_seconds? * 1e6 / self.interactions.max(1) as f64)
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:.0} interactions/s ({} in {:.1} s), {} retries, {} failures, {} wrong\n",
            self.rate(),
            self.interactions,
            self.seconds,
            self.retries,
            self.failures.len(),
            self.wrong.len()
        );
        if let (Some(cost), Some(seconds)) = (self.cost_us(), self.processor_seconds) {
            let share = seconds / self.seconds;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{cost:.0} us of the servers' processor time per interaction ({share:.2} cores)"
            );
        }
        let _ = writeln!(text, "{:<24} {:>9} {:>11} {:>11}", "request", "count", "median us", "99 % us");
        for (request, times) in RequestType::ALL.iter().zip(&self.times) {
            let (half, most) = (percentile(times, 50), percentile(times, 99));
            let _ = writeln!(text, "{:<24} {:>9} {half:>11} {most:>11}", request.name(), times.len());
        }
        for (kind, list) in [("failure", &self.failures), ("WRONG", &self.wrong)] {
            for what in list.iter().take(LISTED) {
                let _ = writeln!(text, "{kind}: {what}");
            }
        }
        text
    }
}

/// That of sorted times; 0 of none.
pub fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

/// Runs the load, and fails if an answer was wrong or a request failed.
///
/// # Errors
/// Servers cannot be reached, or something was wrong.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(args)?;
    print!("{}", report.text());
    anyhow::ensure!(report.wrong.is_empty(), "{} answers were wrong", report.wrong.len());
    anyhow::ensure!(report.failures.is_empty(), "{} requests failed", report.failures.len());
    Ok(())
}

/// Runs the load and the audit after it.
///
/// # Errors
/// Servers cannot be reached.
pub fn measure(args: &Args) -> anyhow::Result<RunReport> {
    let (shop, before) = open_shop(args)?;
    let shop = Arc::new(shop);
    let clients = args.clients as usize;
    let shoppers = (0..clients).map(|number| Shopper::new(Arc::clone(&shop), number, args.choices));
    let shoppers = shoppers.collect::<anyhow::Result<Vec<Shopper>>>()?;
    let (ready, is_over) = (Barrier::new(clients + 1), AtomicBool::new(false));
    let (window, results) = thread::scope(|scope| {
        let (ready, is_over) = (&ready, &is_over);
        let threads: Vec<_> = shoppers
            .into_iter()
            .map(|shopper| scope.spawn(move || one_client(shopper, ready, is_over)))
            .collect();
        ready.wait();
        thread::sleep(Duration::from_secs(args.warm_up));
        let window = MeasuredWindow::measure(args);
        is_over.store(true, Ordering::Relaxed);
        let results: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
        (window, results)
    });
    let mut report = window?.report(&results);
    let seen: Vec<SeenByShopper> = results.into_iter().map(|result| result.seen).collect();
    report.retries = seen.iter().map(|seen| seen.retries).sum();
    report.failures = seen.iter().flat_map(|seen| seen.failures.clone()).collect();
    report.wrong = seen.iter().flat_map(|seen| seen.wrong.clone()).collect();
    for address in &args.address {
        let breaches = audit::audit(&mut connect(address)?, args.scale, &shop.catalogue, &before, &seen);
        report
            .wrong
            .extend(breaches.context("the audit")?.into_iter().map(|what| format!("{address}: {what}")));
    }
    Ok(report)
}

/// What the database has before the run.
fn open_shop(args: &Args) -> anyhow::Result<(Shop, Books)> {
    let scale = args.scale;
    let mut client = connect(&args.address[0])?;
    let before =
        Books::read(&mut client, scale.orders() + 1).context("reading the orders of earlier runs")?;
    let mut last_orders = scale.last_orders();
    let mut earlier: Vec<_> = before.orders().cloned().collect();
    earlier.sort_by(|a, b| (&a.date, a.id).cmp(&(&b.date, b.id)));
    last_orders.extend(earlier.into_iter().map(|order| (order.customer, order)));
    let carts: i64 =
        client.query_one("SELECT COALESCE(MAX(sc_id), 0) FROM shopping_cart", &[])?.try_get(0)?;
    let shop = Shop {
        addresses: args.address.clone(),
        scale,
        catalogue: Catalogue::new(scale),
        last_orders,
        next_order: AtomicI64::new(before.last_number().max(scale.orders()) + 1),
        next_cart: AtomicI64::new(carts + 1),
        clients: args.clients as usize,
        mix: args.mix,
    };
    Ok((shop, before))
}

/// The time that is measured.
struct MeasuredWindow {
    begun: Instant,
    ended: Instant,
    processor_seconds: Option<f64>,
}

/// What a client has done, with the time of the end of each interaction.
struct ClientResult {
    interactions: Vec<(Instant, Vec<Answered>)>,
    seen: SeenByShopper,
}

impl MeasuredWindow {
    fn measure(args: &Args) -> anyhow::Result<Self> {
        let processor = || match args.pids.is_empty() {
            true => Ok(None),
            false => process_time::seconds(&args.pids).map(Some),
        };
        let (begun, before) = (Instant::now(), processor()?);
        thread::sleep(Duration::from_secs(args.seconds));
        let (ended, after) = (Instant::now(), processor()?);
        Ok(MeasuredWindow {
            begun,
            ended,
            processor_seconds: after.zip(before).map(|(after, before)| after - before),
        })
    }

    fn report(&self, results: &[ClientResult]) -> RunReport {
        let mut times = vec![Vec::new(); RequestType::ALL.len()];
        let mut interactions = 0;
        let all = results.iter().flat_map(|result| &result.interactions);
        for (_, answered) in all.filter(|(ended, _)| (self.begun..self.ended).contains(ended)) {
            interactions += 1;
            for answered in answered {
                let micros = u32::try_from(answered.took.as_micros()).unwrap_or(u32::MAX);
                times[answered.request as usize].push(micros);
            }
        }
        times.iter_mut().for_each(|times| times.sort_unstable());
        RunReport {
            seconds: (self.ended - self.begun).as_secs_f64(),
            interactions,
            times,
            processor_seconds: self.processor_seconds,
            retries: 0,
            failures: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

fn one_client(mut shopper: Shopper, ready: &Barrier, is_over: &AtomicBool) -> ClientResult {
    let mut interactions = Vec::new();
    ready.wait();
    while !is_over.load(Ordering::Relaxed) {
        let mut answered = Vec::new();
        let before = shopper.seen.failures.len() + shopper.seen.wrong.len();
        shopper.interact(&mut answered);
        if shopper.seen.failures.len() + shopper.seen.wrong.len() == before {
            interactions.push((Instant::now(), answered));
        }
    }
    ClientResult { interactions, seen: shopper.seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_times_and_0_of_none() {
        let times: Vec<u32> = (1..=200).collect();
        assert_eq!(
            (percentile(&times, 50), percentile(&times, 99), percentile(&times, 100)),
            (100, 198, 200)
        );
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn only_interactions_that_end_in_the_window_count() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let answered =
            |micros| vec![Answered { request: RequestType::Init, took: Duration::from_micros(micros) }];
        let result = ClientResult {
            interactions: vec![
                (at(1), answered(10)),
                (at(3), answered(30)),
                (at(4), answered(20)),
                (at(9), answered(1)),
            ],
            seen: SeenByShopper::default(),
        };
        let window = MeasuredWindow { begun: at(2), ended: at(6), processor_seconds: Some(0.001) };
        let report = window.report(&[result]);
        assert_eq!((report.interactions, &report.times[0]), (2, &vec![20, 30]));
        assert_eq!((report.rate(), report.cost_us()), (0.5, Some(500.0)));
    }
}
