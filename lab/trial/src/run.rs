//! One run of one plan: makes the hosts, starts everything, brings troubles, waits until they heal, collects results.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::report::results::Origin;
use anyhow::{Context, bail};
use crosscheck::admin::EvidenceRecord;
use memcached_client::history::check::{Checked, Checker, KeyFinding};
use memcached_client::history::{HistoryEvent, Key, Operation, OperationRecord};
use serde::Serialize;
use serde_json::json;

use crate::announce::Announcer;
use crate::client::{SharedRun, TrialClient, fold};
use crate::corrupt::{Corrupter, Placed};
use crate::keeper::Keeper;
use crate::plan::{Plan, Stroke, TroubleKind};
use crate::report::{self, Report};
use crate::service::{KeyStore, TrialService};
use crate::sql::{self, Bank, BankReport};
use crate::testbed::Testbed;
use crate::trouble::{Active, victim};

/// How long the replicas may take until all of them serve.
const START: Duration = Duration::from_secs(60);
/// Pause between two checks of the replicas.
const LOOK: Duration = Duration::from_millis(50);
/// Last lines of a replica that does not come up.
const LAST_LINES: usize = 6;
/// Pause between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long the last digests are retried.
const FINAL_DIGEST: Duration = Duration::from_secs(10);
/// Armed faults take effect at the next requests: requests continue this long before the cluster counts as healed.
const STRIKE_OUT: Duration = Duration::from_millis(500);
/// Generations that stay open for a late read.
const LINGER: u32 = 2;
/// Records of an episode that blame a replica other than the victim, and are kept.
const MOST_BLAMES: usize = 20;
/// Client number of the late reads.
const LATE_READER: u16 = u16::MAX;
/// How long a late read may take.
const LATE_PATIENCE: Duration = Duration::from_secs(2);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The plan.
    pub plan: Plan,
    /// The program that replicas are; none: this one.
    pub server: Option<PathBuf>,
    /// Decides order, victims, faults, requests and lost packets.
    pub seed: u64,
    /// Where results are written.
    pub out: PathBuf,
    /// Whether all hosts are this one even where namespaces are allowed.
    pub loopback: bool,
    /// What the results name as their origin.
    pub origin: Origin,
}

/// One trouble, and how it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Episode {
    /// From 1.
    pub number: usize,
    /// Its kind, as plans name it.
    pub kind: String,
    /// A short description.
    pub trouble: String,
    /// The victim, from 1.
    pub victim: u8,
    /// Whether the victim led the group then.
    pub led: bool,
    /// Seconds of the run at which corruption began.
    pub begin: f64,
    /// The second at which the trouble began.
    #[serde(rename = "struck")]
    pub trouble_at: f64,
    /// The second at which it ended.
    pub ended: f64,
    /// Seconds until everything had healed; none at a timeout.
    pub healed_after: Option<f64>,
    /// Why it had not healed.
    pub unwell: Option<String>,
    /// Objects that were equal at all replicas then.
    pub objects: u64,
    /// Faults that were due.
    pub faults_due: u64,
    /// Faults that were placed.
    pub faults: u64,
    /// Requests that were answered from begin to heal.
    pub answered: u64,
    /// Records of evidence, by how they ended.
    pub evidence: std::collections::BTreeMap<String, u64>,
    /// Records that blame the victim of the previous episode: an error of that episode was detected after everything
    /// had healed.
    pub blamed_late: u64,
    /// Records that blame any other replica, as text.
    pub blamed_others: Vec<String>,
    /// The effect of the trouble, where its name does not show it.
    pub note: Option<String>,
}

/// The replica that a record blames, compared with the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blamed {
    /// No replica, or the victim.
    Rightly,
    /// The victim of the previous episode.
    Late,
    /// Another replica.
    Wrongly,
}

/// Runs a plan. `ending` ends it early; `progress` receives lines of progress.
///
/// # Errors
/// When the cluster does not come up, or results cannot be written. Broken promises are not an error, but a result of
/// the report.
pub fn run(options: &Options, ending: &AtomicBool, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut cluster = TrialCluster::start(options, progress)?;
    cluster.until_well(START, ending)?;
    let load = TrialLoad::start(&cluster, options)?;
    let begun = Instant::now();
    let mut reported_at = Instant::now();
    let mut episodes = Vec::new();
    for stroke in cluster.plan.clone().sequence(options.seed) {
        if ending.load(Ordering::Relaxed) || begun.elapsed().as_secs_f64() >= cluster.plan.seconds {
            break;
        }
        let episode = cluster.episode(episodes.len() + 1, &stroke, &load, ending)?;
        let is_over = episode.healed_after.is_none() && !cluster.plan.expect_wrong;
        cluster.report_progress(&report::episode_line(&episode));
        cluster.record("episode", &episode)?;
        if stroke.trouble.kind == TroubleKind::Kill && episode.healed_after.is_some() {
            load.compare(&cluster, usize::from(episode.victim - 1), &episode.trouble, true)?;
        }
        episodes.push(episode);
        if reported_at.elapsed() > PROGRESS {
            reported_at = Instant::now();
            cluster.report_progress(&load.line(begun.elapsed()));
        }
        if is_over {
            cluster.report_progress(
                "not healed: the run ends here, since a second faulty replica would be one too many",
            );
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let final_digest = cluster.final_digest();
    let shared = Arc::clone(&load.shared);
    let (checked, findings, bank) = load.stop(&cluster, progress)?;
    for finding in &findings {
        cluster.record("finding", finding)?;
    }
    let report = Report::new(
        options,
        &cluster,
        &shared,
        seconds,
        episodes,
        final_digest,
        (checked, findings.len()),
        bank,
    );
    cluster.stop();
    report.write(&options.out)?;
    Ok(report)
}

/// The hosts and replicas of a run.
pub struct TrialCluster<'a> {
    /// The plan, without the troubles that this machine does not allow.
    pub plan: Plan,
    /// The hosts.
    pub testbed: Arc<Testbed>,
    /// The replicas.
    pub keeper: Arc<Keeper>,
    /// The windows, and the run's clock.
    pub announcer: Arc<Announcer>,
    timeline: Mutex<File>,
    seed: u64,
    /// Number of the last evidence record read, by replica: process and number.
    seen: Vec<(u32, u64)>,
    /// By episode: the first batch that it may concern, and its victim.
    victims: Vec<(u64, u8)>,
    progress: &'a dyn Fn(&str),
    _dir: tempfile::TempDir,
}

impl<'a> TrialCluster<'a> {
    pub(crate) fn start(options: &Options, progress: &'a dyn Fn(&str)) -> anyhow::Result<Self> {
        let mut plan = options.plan.clone();
        fs::create_dir_all(&options.out).with_context(|| format!("making {}", options.out.display()))?;
        let timeline = options.out.join("timeline.jsonl");
        let timeline = File::create(&timeline).with_context(|| format!("making {}", timeline.display()))?;
        let dir = tempfile::tempdir().context("a directory for the run")?;
        let disk = plan.disk_mb.map(|mb| mb << 20);
        let testbed = if options.loopback {
            Testbed::loopback(plan.replicas, dir.path(), disk, "as asked for".to_owned())?
        } else {
            Testbed::make(plan.replicas, dir.path(), disk, options.seed)?
        };
        if let Some(why) = &testbed.confined {
            progress(&format!("no namespaces here ({why}): all on loopback"));
            let left_out = |trouble: &crate::plan::Trouble| {
                trouble.kind.needs_network() || trouble.kind == crate::plan::TroubleKind::DiskFull
            };
            for trouble in plan.troubles.extract_if(.., |trouble| left_out(trouble)) {
                progress(&format!("left out: {}", trouble.description()));
            }
            if plan.troubles.is_empty() {
                bail!("nothing of this plan can be done without namespaces");
            }
        }
        let testbed = Arc::new(testbed);
        let announcer = Arc::new(Announcer::new(Instant::now()));
        let log = |number: usize| options.out.join(format!("replica-{}.log", number + 1));
        let keeper = Keeper::start(&testbed, &plan, options.server.clone(), dir.path(), log, &announcer)?;
        Ok(TrialCluster {
            seen: vec![(0, 0); plan.replicas],
            victims: Vec::new(),
            plan,
            testbed,
            keeper,
            announcer,
            timeline: Mutex::new(timeline),
            seed: options.seed,
            progress,
            _dir: dir,
        })
    }

    pub(crate) fn until_well(&self, patience: Duration, ending: &AtomicBool) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while let Some(why) = self.keeper.unwell() {
            if ending.load(Ordering::Relaxed) {
                bail!("ended before the cluster was ready");
            }
            if Instant::now() > deadline {
                let words: Vec<String> = (0..self.keeper.size())
                    .map(|number| self.keeper.last_lines(number, LAST_LINES).join("\n"))
                    .collect();
                bail!("the cluster is not ready after {} s: {why}\n{}", patience.as_secs(), words.join("\n"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Corruption, the trouble during it, its end, and the time until everything has healed.
    fn episode(
        &mut self,
        number: usize,
        stroke: &Stroke,
        load: &TrialLoad,
        ending: &AtomicBool,
    ) -> anyhow::Result<Episode> {
        let victim = victim(stroke, &self.keeper, None);
        let replica = victim as u8 + 1;
        let led = self.keeper.leader() == Some(victim);
        let answered = load.shared.answered.load(Ordering::Relaxed);
        let begin = self.seconds();
        let executed =
            (0..self.keeper.size()).filter_map(|number| Some(self.keeper.status(number)?.executed));
        self.victims.push((executed.min().unwrap_or(0), replica));
        let corrupter = match &self.plan.corruption {
            Some(corruption) => {
                let seed = self.seed ^ (number as u64) << 40;
                Some(Corrupter::start(&self.keeper.replicas()[victim], corruption, &load.shared, seed)?)
            }
            None => None,
        };
        sleep(stroke.before, ending);
        let what = stroke.trouble.description();
        let is_calm = stroke.trouble.kind == crate::plan::TroubleKind::Calm;
        let window = (!is_calm).then(|| self.announcer.open(replica, &what));
        self.record(
            "strike",
            &json!({ "number": number, "victim": replica, "led": led, "trouble": stroke.trouble }),
        )?;
        let trouble_at = self.seconds();
        let mut active = Active::strike(&self.testbed, &self.keeper, stroke, victim);
        sleep(stroke.lasts, ending);
        active.end();
        let ended = self.seconds();
        if let Some(window) = window {
            self.announcer.close(window, Duration::from_secs_f64(stroke.trouble.grace_seconds));
        }
        self.record("end", &json!({ "number": number }))?;
        let placed = corrupter.map_or_else(Placed::default, Corrupter::finish);
        let healed = self.heal(ended, victim);
        let mut episode = Episode {
            number,
            kind: stroke.trouble.kind.word().to_owned(),
            trouble: what,
            victim: replica,
            led,
            begin,
            trouble_at,
            ended,
            healed_after: healed.as_ref().ok().map(|(after, _)| *after),
            objects: healed.as_ref().map_or(0, |(_, objects)| *objects),
            unwell: healed.err(),
            faults_due: placed.due,
            faults: placed.placed,
            answered: load.shared.answered.load(Ordering::Relaxed) - answered,
            evidence: Default::default(),
            blamed_late: 0,
            blamed_others: Vec::new(),
            note: active.note.take(),
        };
        self.read_evidence(&mut episode);
        Ok(episode)
    }

    /// Waits until the group is well and all states are equal; returns the seconds since `ended`, and the number of
    /// objects.
    fn heal(&self, ended: f64, victim: usize) -> Result<(f64, u64), String> {
        let patience = if self.plan.expect_wrong { 1.0 } else { self.plan.heal_seconds };
        let deadline = ended + patience;
        thread::sleep(STRIKE_OUT);
        let digest = loop {
            // A healthy replica computes the digest first.
            let found = match self.keeper.unwell() {
                Some(why) => Err(why),
                None => self.keeper.digests((victim + 1) % self.keeper.executors().len()),
            };
            match found {
                Ok(digest) => break digest,
                Err(why) if self.seconds() > deadline => return Err(why),
                Err(_) => thread::sleep(LOOK),
            }
        };
        // Until the vote up to this batch is closed, an error of this episode may still be detected.
        while self.keeper.validated().is_none_or(|batch| batch < digest.position.index) {
            if self.seconds() > deadline {
                return Err(format!("the vote is not closed up to batch {}", digest.position.index));
            }
            thread::sleep(LOOK);
        }
        Ok((self.seconds() - ended, digest.objects))
    }

    /// Reads the replicas' records of this episode: how it ended, and which replica they blame.
    fn read_evidence(&mut self, episode: &mut Episode) {
        for number in 0..self.keeper.size() {
            let before = self.seen[number];
            let (pid, records) = self.keeper.evidence(number, before);
            let last = if pid == before.0 { before.1 } else { 0 };
            self.seen[number] = (pid, records.last().map_or(last, |record| record.number));
            for record in records {
                let _ = self.record("evidence", &json!({ "by": number + 1, "record": record }));
                // The text after the colon names the object.
                let ended = record.outcome.split(':').next().unwrap_or_default().to_owned();
                *episode.evidence.entry(ended).or_default() += 1;
                let blamed = self.blamed(&record, pid != before.0);
                episode.blamed_late += u64::from(blamed == Blamed::Late);
                if blamed == Blamed::Wrongly && episode.blamed_others.len() < MOST_BLAMES {
                    let line = serde_json::to_string(&record).unwrap_or_default();
                    episode.blamed_others.push(format!("replica {}: {line}", number + 1));
                }
            }
        }
    }

    /// Classifies the replica that a record blames. A process that was restarted executes the entries of earlier
    /// episodes in its log on disk again, and detects their errors again.
    fn blamed(&self, record: &EvidenceRecord, begins_anew: bool) -> Blamed {
        let Some(blamed) = record.replica else { return Blamed::Rightly };
        let about = |(from, _): &&(u64, u8)| record.request.is_none_or(|(batch, _)| *from <= batch);
        let mut victims = self.victims.iter().rev().filter(about).map(|(_, victim)| *victim);
        match victims.position(|victim| victim == blamed) {
            Some(0) => Blamed::Rightly,
            Some(_) if begins_anew && record.request.is_none() => Blamed::Rightly,
            Some(1) => Blamed::Late,
            _ => Blamed::Wrongly,
        }
    }

    /// Whether all states are equal in the end: the digest, or why not.
    pub(crate) fn final_digest(&self) -> Result<String, String> {
        let mut found = Err(String::new());
        let deadline = Instant::now() + FINAL_DIGEST;
        while found.is_err() {
            found = self.keeper.digests(0).map(|digest| digest.digest);
            if self.plan.expect_wrong || Instant::now() > deadline {
                break;
            }
            thread::sleep(LOOK);
        }
        found
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.announcer.now() as f64 / 1e9
    }

    pub(crate) fn report_progress(&self, line: &str) {
        (self.progress)(&format!("{:8.1} s  {line}", self.seconds()));
    }

    /// A line of the timeline.
    pub(crate) fn record(&self, kind: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let line = json!({ "at_s": self.seconds(), kind: value });
        let mut file = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{line}").context("writing the timeline")
    }

    pub(crate) fn stop(&self) {
        self.keeper.stop();
    }
}

/// Sleeps, unless the end of the run is requested.
fn sleep(seconds: f64, ending: &AtomicBool) {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until && !ending.load(Ordering::Relaxed) {
        thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}

/// The results of the checker so far, for the lines of progress.
type Sight = Arc<Mutex<Checked>>;

/// The clients and the checker.
pub struct TrialLoad {
    pub(crate) shared: Arc<SharedRun>,
    clients: Vec<JoinHandle<()>>,
    bank: Option<Arc<Bank>>,
    checker: Option<JoinHandle<(Checked, Vec<KeyFinding>)>>,
    sight: Sight,
}

impl TrialLoad {
    pub(crate) fn start(cluster: &TrialCluster<'_>, options: &Options) -> anyhow::Result<Self> {
        let plan = &cluster.plan;
        let shared = Arc::new(SharedRun {
            run: options.seed,
            seed: options.seed,
            service: plan.service,
            accounts: plan.bank.as_ref().map_or(0, |bank| bank.accounts),
            replicas: cluster.keeper.replicas().iter().filter_map(|replica| replica.clients).collect(),
            generation: Duration::from_secs_f64(plan.generation_seconds),
            patience: Duration::from_secs_f64(plan.patience_seconds),
            interval: Duration::from_secs_f64(f64::from(plan.clients) / plan.requests_per_second),
            value_bytes: plan.value_bytes.clone(),
            answered_at: (0..plan.all_clients()).map(|_| AtomicU64::new(0)).collect(),
            answered_by: (0..plan.executors()).map(|_| AtomicU64::new(0)).collect(),
            hopeless: AtomicBool::new(false),
            behavior: plan.upgrades().then(AtomicU16::default),
            announcer: Arc::clone(&cluster.announcer),
            over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            failures: Mutex::default(),
            gaps: Mutex::default(),
        });
        let (history, inbox) = mpsc::channel();
        let sight = Sight::default();
        let mut clients = Vec::new();
        let host = cluster.testbed.clients();
        if plan.service == TrialService::Sql {
            let (address, accounts, patience) = (shared.replicas[0], shared.accounts, shared.patience);
            host.run(move || sql::prepare(address, accounts, patience))?;
        }
        for number in 0..plan.clients {
            let client = TrialClient::new(number, Arc::clone(&shared), history.clone());
            let thread = thread::Builder::new().name(format!("client-{number}"));
            // A thread that is started there runs there.
            clients.push(host.run(move || thread.spawn(move || client.run()))?);
        }
        let bank = plan.bank.as_ref().map(|bank| Bank::new(bank.accounts));
        if let (Some(bank), Some(of)) = (&bank, &plan.bank) {
            let interval = Duration::from_secs_f64(f64::from(of.clients) / of.transfers_per_second);
            for number in plan.clients..plan.all_clients() {
                let (bank, shared) = (Arc::clone(bank), Arc::clone(&shared));
                let thread = thread::Builder::new().name(format!("bank-{number}"));
                let reads = number + 1 == plan.all_clients();
                let client = move || match reads {
                    true => bank.audit(number, shared, interval),
                    false => bank.transfer(number, shared, interval),
                };
                clients.push(host.run(move || thread.spawn(client))?);
            }
        }
        let judge = Judge {
            checker: Checker::new(usize::from(plan.clients), LINGER),
            late: LateReader { shared: Arc::clone(&shared), connection: None, at: 0 },
            sight: Arc::clone(&sight),
        };
        let thread = thread::Builder::new().name("checker".into());
        let checker = host.run(move || thread.spawn(move || judge.run(&inbox)))?;
        Ok(TrialLoad { shared, clients, bank, checker: Some(checker), sight })
    }

    fn line(&self, elapsed: Duration) -> String {
        let shared = &self.shared;
        let checked = self.sight.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answered = shared.answered.load(Ordering::Relaxed);
        format!(
            "         {answered} requests answered ({:.0}/s), {} without an answer; {} keys checked, {} \
                wrong, {} undecided",
            answered as f64 / elapsed.as_secs_f64(),
            shared.failures.lock().unwrap_or_else(PoisonError::into_inner).len(),
            checked.keys,
            checked.wrong_keys + checked.impossible,
            checked.undecided
        )
    }

    /// Compares the bank's rows, if there is a bank, as a replica has them.
    fn compare(
        &self,
        cluster: &TrialCluster<'_>,
        replica: usize,
        after: &str,
        is_kill: bool,
    ) -> anyhow::Result<()> {
        let Some(bank) = self.bank.clone() else { return Ok(()) };
        let (shared, what) = (Arc::clone(&self.shared), after.to_owned());
        let comparison =
            cluster.testbed.clients().run(move || bank.compare(&shared, replica, (&what, is_kill)));
        cluster.report_progress(&comparison.line());
        cluster.record("compared", &comparison)
    }

    /// Ends the requests, and waits for the last verdict.
    pub(crate) fn stop(
        mut self,
        cluster: &TrialCluster<'_>,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<(Checked, Vec<KeyFinding>, Option<BankReport>)> {
        self.shared.over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // A client that panics is a bug of this program; its message is on stderr.
            let _ = client.join();
        }
        progress("checking the last histories");
        let found = self.checker.take().map(JoinHandle::join);
        let (checked, findings) = found.map_or_else(Default::default, |found| {
            found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let is_hopeless = self.shared.hopeless.load(Ordering::Relaxed);
        for replica in (0..self.shared.replicas.len()).filter(|_| !is_hopeless) {
            self.compare(cluster, replica, "the end", false)?;
        }
        Ok((checked, findings, self.bank.as_ref().map(|bank| bank.report())))
    }
}

impl Drop for TrialLoad {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

struct Judge {
    checker: Checker,
    late: LateReader,
    sight: Sight,
}

impl Judge {
    fn run(mut self, inbox: &Receiver<HistoryEvent>) -> (Checked, Vec<KeyFinding>) {
        let late = &mut self.late;
        loop {
            match inbox.recv_timeout(10 * LOOK) {
                Ok(event) => {
                    let is_mark = matches!(event, HistoryEvent::Left { .. });
                    self.checker.take(event);
                    if !is_mark {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.checker.judge_complete(|key| late.read(key));
            *self.sight.lock().unwrap_or_else(PoisonError::into_inner) = self.checker.checked.clone();
        }
        self.checker.finish(|key| late.read(key));
        (self.checker.checked, self.checker.findings)
    }
}

/// Reads keys some generations after the last write: acknowledged writes must have survived all troubles since.
struct LateReader {
    shared: Arc<SharedRun>,
    connection: Option<Box<dyn KeyStore>>,
    at: usize,
}

impl LateReader {
    fn read(&mut self, key: Key) -> Option<OperationRecord> {
        let replicas = &self.shared.replicas;
        if self.shared.hopeless.load(Ordering::Relaxed) {
            return None;
        }
        if self.connection.is_none() {
            self.at = (self.at + 1) % replicas.len();
            let service = self.shared.service;
            self.connection = service.connect(replicas[self.at], LATE_PATIENCE / 4, LATE_PATIENCE).ok();
        }
        let sent = self.shared.announcer.now();
        let found = self.connection.as_mut()?.gets(&[key.name(self.shared.run)]);
        let answered = self.shared.announcer.now();
        let Ok(found) = found else {
            self.connection = None;
            return None;
        };
        let found = found.into_iter().next().flatten();
        let found = found.map(|found| memcached_client::Value { bytes: fold(&found.bytes), ..found });
        if !self.shared.value_bytes.is_empty() && found.is_some() {
            // Long values would fill the memory, and be evicted.
            let _ = self.connection.as_mut()?.delete(&key.name(self.shared.run));
        }
        let unique = found.as_ref().map(|found| found.unique).filter(|unique| *unique != 0);
        let event = Operation::Read(found.map(|found| found.bytes.into()));
        Some(OperationRecord {
            client: LATE_READER,
            replica: self.at as u8 + 1,
            key,
            sent,
            answered,
            event,
            unique,
        })
    }
}
