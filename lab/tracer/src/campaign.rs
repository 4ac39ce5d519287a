//! Many injections, on several processors, each reported as soon as it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use anyhow::Context;

use crate::fault::TracerFault;
use crate::record::InjectionRecord;
use crate::single::SingleInjection;
use crate::symbols::Symbols;

/// The number of runs, and their faults.
#[derive(Clone, Debug)]
pub struct Campaign<'a> {
    /// The settings that all runs share.
    pub plan: SingleInjection<'a>,
    /// The types of the faults.
    pub faults: &'a [TracerFault],
    /// Runs of each type.
    pub runs: u64,
    /// Runs at the same time.
    pub jobs: usize,
}

impl Campaign<'_> {
    /// Runs all injections. `on_record` receives each record, and ends the campaign by returning `false`. The records
    /// are returned in the order of faults and numbers.
    ///
    /// # Errors
    /// When the target does not run, or `on_record` fails.
    pub fn run(
        &self,
        mut on_record: impl FnMut(&InjectionRecord) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Vec<InjectionRecord>> {
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut records = Vec::new();
        std::thread::scope(|scope| {
            let (done, finished) = mpsc::channel();
            for _ in 0..self.jobs.max(1) {
                let (done, next, stop) = (done.clone(), &next, &stop);
                scope.spawn(move || self.job(next, stop, &done));
            }
            drop(done);
            for record in finished {
                let result = record.and_then(|record| Ok((on_record(&record)?, record)));
                stop.fetch_or(!result.as_ref().is_ok_and(|(goes_on, _)| *goes_on), Ordering::Relaxed);
                let (_, record) = result?;
                records.push(record);
            }
            anyhow::Ok(())
        })?;
        records.sort_by_key(|record| (record.fault, record.id));
        Ok(records)
    }

    fn job(&self, next: &AtomicU64, stop: &AtomicBool, done: &mpsc::Sender<anyhow::Result<InjectionRecord>>) {
        let mut symbols = Symbols::default();
        let all = self.runs * self.faults.len() as u64;
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= all {
                break;
            }
            // Types take turns, so that a campaign that is cut short has as many of each.
            let fault = self.faults[(number % self.faults.len() as u64) as usize];
            let id = number / self.faults.len() as u64;
            let record = tempfile::tempdir()
                .context("a directory for the run")
                .and_then(|dir| self.plan.inject(fault, id, dir.path(), number, &mut symbols));
            if done.send(record).is_err() {
                break;
            }
        }
    }
}
