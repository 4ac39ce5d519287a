//! The description of a run: a named file of troubles, corruption and clients, so that it can be repeated; and the
//! order of the troubles, drawn from a seed.

use anyhow::{Context, bail};
use crosscheck::admin::Corruption;
use serde::{Deserialize, Serialize};
use wire::SplitMix64;

use crate::draw::stream;
use crate::service::TrialService;

/// The plans that come with the program: name and text.
const SHIPPED: [(&str, &str); 14] = [
    ("everything", include_str!("../plans/everything.toml")),
    ("verified", include_str!("../plans/verified.toml")),
    ("network", include_str!("../plans/network.toml")),
    ("disk", include_str!("../plans/disk.toml")),
    ("corruption", include_str!("../plans/corruption.toml")),
    ("upgrades", include_str!("../plans/upgrades.toml")),
    ("upgrades-disk", include_str!("../plans/upgrades-disk.toml")),
    ("upgrades-faults", include_str!("../plans/upgrades-faults.toml")),
    ("quick", include_str!("../plans/quick.toml")),
    ("control", include_str!("../plans/control.toml")),
    ("sql", include_str!("../plans/sql.toml")),
    ("sql-quick", include_str!("../plans/sql-quick.toml")),
    ("sql-kills", include_str!("../plans/sql-kills.toml")),
    ("sql-control", include_str!("../plans/sql-control.toml")),
];

/// Rows of transfers in one reply of the SQL service, which has 16 MiB at most.
const MOST_TRANSFERS: f64 = 150_000.0;

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The file's name without its ending.
    #[serde(skip_deserializing)]
    pub name: String,
    /// One line.
    pub title: String,
    /// The purpose of the run, in a few sentences.
    pub about: String,
    /// What the replicas serve.
    #[serde(default)]
    pub service: TrialService,
    /// SQL: the bank's accounts and clients; none: only rows are read and written.
    #[serde(default)]
    pub bank: Option<BankPlan>,
    /// The mode, in the paper's letters.
    #[serde(default = "mode")]
    pub mode: String,
    /// 3 or 5; 2 with the letter V.
    #[serde(default = "replicas")]
    pub replicas: usize,
    /// Whether the last of 3 replicas is a witness, with the letter V: it verifies, and has no clients.
    #[serde(default)]
    pub witness: bool,
    /// Threads of each replica that execute requests.
    #[serde(default = "one")]
    pub workers: usize,
    /// Memory for items per replica, in MiB.
    #[serde(default = "memory_mb")]
    pub memory_mb: u64,
    /// MiB of each replica's disk, on which its log is; none: the log is in memory.
    #[serde(default)]
    pub disk_mb: Option<u64>,
    /// The number of clients.
    #[serde(default = "clients")]
    pub clients: u16,
    /// How long troubles are brought.
    #[serde(default = "seconds")]
    pub seconds: f64,
    /// Lengths of stored values in bytes, one for each generation of keys in turn; none: short ones that differ.
    #[serde(default)]
    pub value_bytes: Vec<usize>,
    /// Requests per second of all clients together, approximately; fewer where values are long.
    #[serde(default = "rate")]
    pub requests_per_second: f64,
    /// How long a generation of keys is used.
    #[serde(default = "generation")]
    pub generation_seconds: f64,
    /// How long a client waits for an answer.
    #[serde(default = "patience")]
    pub patience_seconds: f64,
    /// How long everything may take to heal after a trouble.
    #[serde(default = "heal")]
    pub heal_seconds: f64,
    /// True for a system that is wrong on purpose: the run succeeds if the checker detects it.
    #[serde(default)]
    pub expect_wrong: bool,
    /// The corruption of the victim's state; none: no corruption.
    #[serde(default)]
    pub corruption: Option<CorruptionPlan>,
    /// The troubles; each comes once before any is repeated.
    #[serde(rename = "trouble")]
    pub troubles: Vec<Trouble>,
}

/// Corruption of the state, in the victim of the trouble only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorruptionPlan {
    /// Faults per second.
    pub per_second: f64,
    /// The kinds of faults, equally likely.
    pub kinds: Vec<Corruption>,
    /// Shortest and longest time of corruption alone before the trouble begins, in seconds.
    pub before_seconds: [f64; 2],
}

/// Accounts between which clients transfer amounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankPlan {
    /// How many there are; few, so that transactions conflict.
    pub accounts: u32,
    /// Clients that transfer; one more reads the sum.
    pub clients: u16,
    /// Transfers per second of all of them together, approximately.
    pub transfers_per_second: f64,
}

/// One trouble.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// Its kind.
    pub kind: TroubleKind,
    /// Its victim.
    #[serde(default)]
    pub victim: Victim,
    /// Its shortest and longest duration.
    pub seconds: [f64; 2],
    /// How long requests may fail after it has ended.
    #[serde(default = "grace")]
    pub grace_seconds: f64,
    /// Network: the affected packets of the victim.
    #[serde(default)]
    pub direction: Direction,
    /// Network: the affected links of the victim.
    #[serde(default)]
    pub links: Links,
    /// Loss: share of the packets.
    #[serde(default)]
    pub percent: f64,
    /// Delay: of every packet.
    #[serde(default)]
    pub delay_ms: f64,
    /// Delay: the most by which a packet takes longer.
    #[serde(default)]
    pub jitter_ms: f64,
    /// Memory: MiB that the process may still allocate.
    #[serde(default)]
    pub more_mb: u64,
    /// Upgrade: whether the old process is killed; otherwise SIGTERM ends it.
    #[serde(default)]
    pub killed: bool,
    /// Slow disk: the milliseconds by which the sync of a checkpoint takes longer.
    #[serde(default)]
    pub sync_ms: u64,
}

/// Kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// No trouble: corruption alone.
    Calm,
    /// No packet arrives.
    Partition,
    /// Some packets do not arrive.
    Loss,
    /// Packets come late.
    Delay,
    /// `kill -9`, and a start at the end.
    Kill,
    /// SIGSTOP, and SIGCONT at the end.
    Pause,
    /// Its process is ended, and at the end one of another release is started: the next one, or, while the group has
    /// both, sometimes the one before.
    Upgrade,
    /// No byte is free on its disk.
    DiskFull,
    /// Checkpoints take long to reach its disk.
    SlowDisk,
    /// The process cannot allocate memory.
    Memory,
}

/// The victim of a trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// Any replica.
    #[default]
    Any,
    /// The leader at that time.
    Leader,
    /// A replica that is not the leader.
    Follower,
}

/// The packets that a trouble of the network affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To and from the victim.
    #[default]
    Both,
    /// To the victim: it receives nothing.
    In,
    /// From the victim: it sends nothing.
    Out,
}

/// The links that a trouble of the network affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// To all other hosts, including the clients'.
    #[default]
    All,
    /// To the other replicas; clients still reach it.
    Replicas,
    /// To one other replica.
    One,
}

fn mode() -> String {
    "RDGX".to_owned()
}
fn replicas() -> usize {
    3
}
fn one() -> usize {
    1
}
fn memory_mb() -> u64 {
    64
}
fn clients() -> u16 {
    12
}
fn seconds() -> f64 {
    120.0
}
fn rate() -> f64 {
    1200.0
}
fn generation() -> f64 {
    4.0
}
fn patience() -> f64 {
    5.0
}
fn heal() -> f64 {
    60.0
}
fn grace() -> f64 {
    3.0
}

impl Plan {
    /// Reads a plan, by the name of one that comes with the program or by its file.
    ///
    /// # Errors
    /// No such plan, or everything that is wrong with it.
    pub fn load(name: &str) -> anyhow::Result<Self> {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Self::parse(name, text);
        }
        let path = std::path::Path::new(name);
        if path.extension().is_none_or(|ending| ending != "toml") {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            bail!("there is no plan {name}; there are {}, and files that end in .toml", names.join(", "));
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&stem, &text).with_context(|| format!("in {name}"))
    }

    /// The plans that come with the program.
    ///
    /// # Errors
    /// None: a test reads them all.
    pub fn shipped() -> anyhow::Result<Vec<Self>> {
        SHIPPED.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// A cluster of this mode without clients and troubles: for callers that bring their own.
    pub fn bare(mode: &str, replicas: usize) -> Self {
        Plan {
            name: String::new(),
            title: String::new(),
            about: String::new(),
            service: TrialService::default(),
            bank: None,
            mode: mode.to_owned(),
            replicas,
            witness: false,
            workers: one(),
            memory_mb: memory_mb(),
            disk_mb: None,
            clients: 0,
            value_bytes: Vec::new(),
            seconds: seconds(),
            requests_per_second: rate(),
            generation_seconds: generation(),
            patience_seconds: patience(),
            heal_seconds: heal(),
            expect_wrong: false,
            corruption: None,
            troubles: Vec::new(),
        }
    }

    /// All clients: those of keys first, then those of the bank.
    pub fn all_clients(&self) -> u16 {
        self.clients + self.bank.as_ref().map_or(0, |bank| bank.clients + 1)
    }

    /// The number of replicas that execute requests and have clients.
    pub fn executors(&self) -> usize {
        self.replicas - usize::from(self.witness)
    }

    /// Whether replicas become of other releases.
    pub fn upgrades(&self) -> bool {
        self.troubles.iter().any(|trouble| trouble.kind == TroubleKind::Upgrade)
    }

    /// Reads and checks a plan's text.
    ///
    /// # Errors
    /// What is wrong with it, with the line of a syntax error.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut plan: Plan = toml::from_str(text)?;
        plan.name = name.to_owned();
        plan.check()?;
        Ok(plan)
    }

    /// Checks rules that the syntax does not ensure.
    ///
    /// # Errors
    /// The first violation, and the remedy.
    pub fn check(&self) -> anyhow::Result<()> {
        let verifies = self.mode.ends_with('V');
        if !(matches!(self.replicas, 3 | 5) || self.replicas == 2 && verifies) {
            bail!("replicas = {}: use 3 or 5, or 2 with the letter V", self.replicas);
        }
        if self.witness && !(self.replicas == 3 && verifies) {
            bail!("a witness is the third of 3, with the letter V");
        }
        if let Some(bytes) = self.value_bytes.iter().find(|bytes| !(20..=500_000).contains(*bytes)) {
            bail!("value_bytes = {bytes}: use 20 to 500000");
        }
        self.check_service()?;
        if self.clients == 0 || self.troubles.is_empty() {
            bail!("a plan needs at least one client and one [[trouble]]");
        }
        for (what, value) in [
            ("seconds", self.seconds),
            ("requests_per_second", self.requests_per_second),
            ("generation_seconds", self.generation_seconds),
            ("patience_seconds", self.patience_seconds),
            ("heal_seconds", self.heal_seconds),
        ] {
            if !(value > 0.0 && value <= 1e6) {
                bail!("{what} = {value}: use a number above 0");
            }
        }
        if let Some(corruption) = &self.corruption {
            if corruption.kinds.is_empty() || !(0.1..=10_000.0).contains(&corruption.per_second) {
                bail!("[corruption] needs kinds, and per_second from 0.1 to 10000");
            }
            if corruption.kinds.contains(&Corruption::Repair) {
                bail!(
                    "corruption of `repair` packets needs another replica that is wrong: two at a time, beyond f = 1"
                );
            }
            range("before_seconds", corruption.before_seconds)?;
        }
        self.troubles.iter().try_for_each(|trouble| self.check_trouble(trouble))
    }

    fn check_service(&self) -> anyhow::Result<()> {
        if self.service == TrialService::Sql && !self.value_bytes.is_empty() {
            bail!("value_bytes are for memcached: rows have short values");
        }
        let Some(bank) = &self.bank else { return Ok(()) };
        if self.service != TrialService::Sql {
            bail!("[bank] needs service = \"sql\"");
        }
        if bank.accounts < 2 || bank.clients == 0 || bank.transfers_per_second <= 0.0 {
            bail!("[bank] needs at least 2 accounts, a client, and transfers_per_second above 0");
        }
        let transfers = bank.transfers_per_second * self.seconds;
        if transfers > MOST_TRANSFERS {
            bail!(
                "{transfers:.0} transfers do not fit into one reply, with which they are compared; lower \
                 transfers_per_second, to {:.1}",
                MOST_TRANSFERS / self.seconds
            );
        }
        Ok(())
    }

    fn check_trouble(&self, trouble: &Trouble) -> anyhow::Result<()> {
        range("seconds", trouble.seconds)?;
        match trouble.kind {
            TroubleKind::DiskFull | TroubleKind::SlowDisk if self.disk_mb.is_none() => {
                bail!("{} needs disk_mb, the size of the disks", trouble.kind.word())
            }
            TroubleKind::SlowDisk if !(1..=60_000).contains(&trouble.sync_ms) => {
                bail!("slow-disk needs sync_ms, from 1 to 60000")
            }
            TroubleKind::Upgrade if self.service != TrialService::Memcached => {
                bail!("upgrade needs service = \"memcached\": the laboratory has releases of it only")
            }
            TroubleKind::Loss if !(0.0..=100.0).contains(&trouble.percent) || trouble.percent == 0.0 => {
                bail!("loss needs percent, above 0 and up to 100")
            }
            TroubleKind::Delay if trouble.delay_ms + trouble.jitter_ms <= 0.0 => {
                bail!("delay needs delay_ms or jitter_ms")
            }
            _ => Ok(()),
        }
    }

    /// The troubles in the order of `seed`, without end.
    pub fn sequence(&self, seed: u64) -> Sequence<'_> {
        Sequence { plan: self, draw: stream(seed, 0x9_1A4), deck: Vec::new() }
    }
}

fn range(what: &str, [low, high]: [f64; 2]) -> anyhow::Result<()> {
    if !(low >= 0.0 && low <= high && high <= 3600.0) {
        bail!("{what} = [{low}, {high}]: use the lowest and the highest number of seconds");
    }
    Ok(())
}

/// One trouble of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Stroke {
    /// The trouble.
    pub trouble: Trouble,
    /// Seconds of corruption alone before it.
    pub before: f64,
    /// Seconds that it lasts.
    pub lasts: f64,
    /// Decides the victim, where the plan leaves it open.
    pub choice: u64,
}

/// Troubles in the order of a seed.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    plan: &'a Plan,
    draw: SplitMix64,
    deck: Vec<usize>,
}

impl Iterator for Sequence<'_> {
    type Item = Stroke;

    fn next(&mut self) -> Option<Stroke> {
        if self.deck.is_empty() {
            self.deck = (0..self.plan.troubles.len()).collect();
            self.draw.shuffle(&mut self.deck);
        }
        let trouble = self.plan.troubles[self.deck.pop()?].clone();
        let before = self.plan.corruption.as_ref().map_or([0.0; 2], |corruption| corruption.before_seconds);
        Some(Stroke {
            before: self.draw.between(before[0], before[1]),
            lasts: self.draw.between(trouble.seconds[0], trouble.seconds[1]),
            choice: self.draw.next_u64(),
            trouble,
        })
    }
}

impl TroubleKind {
    /// Its name in plans.
    pub fn word(self) -> &'static str {
        match self {
            TroubleKind::Calm => "calm",
            TroubleKind::Partition => "partition",
            TroubleKind::Loss => "loss",
            TroubleKind::Delay => "delay",
            TroubleKind::Kill => "kill",
            TroubleKind::Pause => "pause",
            TroubleKind::Upgrade => "upgrade",
            TroubleKind::DiskFull => "disk-full",
            TroubleKind::SlowDisk => "slow-disk",
            TroubleKind::Memory => "memory",
        }
    }

    /// Whether it needs a network between the hosts.
    pub fn needs_network(self) -> bool {
        matches!(self, TroubleKind::Partition | TroubleKind::Loss | TroubleKind::Delay)
    }
}

impl Trouble {
    /// A short description.
    pub fn description(&self) -> String {
        let links = match self.links {
            Links::All => "all links",
            Links::Replicas => "links to the other replicas",
            Links::One => "the link to one other replica",
        };
        let way = match self.direction {
            Direction::Both => "both ways",
            Direction::In => "one way, towards it",
            Direction::Out => "one way, from it",
        };
        match self.kind {
            TroubleKind::Calm => "no trouble but corruption".to_owned(),
            TroubleKind::Partition => format!("partition: {links} cut, {way}"),
            TroubleKind::Loss => format!("loss: {} % of the packets on {links}, {way}", self.percent),
            TroubleKind::Delay => {
                format!("delay: {} ms and up to {} more on {links}, {way}", self.delay_ms, self.jitter_ms)
            }
            TroubleKind::Kill => "kill -9, and a restart".to_owned(),
            TroubleKind::Pause => "pause (SIGSTOP, SIGCONT)".to_owned(),
            TroubleKind::Upgrade if self.killed => "kill -9, and a start of another release".to_owned(),
            TroubleKind::Upgrade => "SIGTERM, and a start of another release".to_owned(),
            TroubleKind::DiskFull => "disk full".to_owned(),
            TroubleKind::SlowDisk => format!("slow disk: {} ms more per checkpoint", self.sync_ms),
            TroubleKind::Memory => format!("memory limit, {} MiB above what it has", self.more_mb),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title = \"t\"\nabout = \"a\"\n[[trouble]]\nkind = \"kill\"\nseconds = [1, 2]\n";

    #[test]
    fn the_plans_that_ship_are_right() {
        let plans = Plan::shipped().expect("all of them");
        assert!(plans.iter().any(|plan| plan.expect_wrong), "one is wrong on purpose");
        let covered =
            |kind| plans.iter().any(|plan| plan.troubles.iter().any(|trouble| trouble.kind == kind));
        use TroubleKind::{Calm, Delay, DiskFull, Kill, Loss, Memory, Partition, Pause, Upgrade};
        for kind in [Calm, Partition, Loss, Delay, Kill, Pause, Upgrade, DiskFull, Memory] {
            assert!(covered(kind), "{kind:?} is in no plan");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(Plan::parse("small", SMALL).expect("right").replicas, 3);
        let error = |text: &str| format!("{:#}", Plan::parse("x", text).unwrap_err());
        assert!(error(&format!("replicas = 4\n{SMALL}")).contains("use 3 or 5"));
        assert!(error("title = \"t\"\nabout = \"a\"\ntrouble = []\n").contains("[[trouble]]"));
        assert!(error(&SMALL.replace("[1, 2]", "[3, 2]")).contains("lowest and the highest"));
        assert!(error(&SMALL.replace("kill", "disk-full")).contains("disk_mb"));
        assert!(error(&SMALL.replace("kill", "loss")).contains("percent"));
        assert!(error(&SMALL.replace("kill", "dance")).contains("dance"));
        assert!(error(&format!("{SMALL}colour = \"red\"\n")).contains("colour"));
        let bank = "[bank]\naccounts = 2\nclients = 1\ntransfers_per_second = 9\n";
        assert!(error(&format!("{SMALL}{bank}")).contains("service"));
        let sql = format!("service = \"sql\"\n{SMALL}{bank}");
        assert_eq!(Plan::parse("sql", &sql).expect("right").all_clients(), 12 + 2);
        assert!(error(&sql.replace("accounts = 2", "accounts = 1")).contains("2 accounts"));
        assert!(error(&sql.replace("second = 9", "second = 9000")).contains("lower"));
        assert!(error(&format!("value_bytes = [30]\n{sql}")).contains("memcached"));
        let corruption = "[corruption]\nper_second = 100\nkinds = [\"repair\"]\nbefore_seconds = [1, 2]\n";
        assert!(error(&format!("{SMALL}{corruption}")).contains("beyond f"));
        assert!(format!("{:#}", Plan::load("nothing").unwrap_err()).contains("everything"));
    }

    #[test]
    fn a_seed_repeats_its_sequence_and_every_trouble_comes_in_turn() {
        let plan = Plan::load("everything").expect("it ships");
        let strokes = |seed| plan.sequence(seed).take(60).collect::<Vec<_>>();
        assert_eq!(strokes(7), strokes(7));
        assert_ne!(strokes(7), strokes(8));
        let count = plan.troubles.len();
        for round in strokes(7).chunks_exact(count) {
            for trouble in &plan.troubles {
                assert_eq!(
                    round.iter().filter(|stroke| stroke.trouble == *trouble).count(),
                    plan.troubles.iter().filter(|other| *other == trouble).count()
                );
            }
        }
        for stroke in strokes(7) {
            assert!((stroke.trouble.seconds[0]..=stroke.trouble.seconds[1]).contains(&stroke.lasts));
        }
    }
}
