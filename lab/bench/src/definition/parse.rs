//! Checks a definition file and reports every mistake as `FILE:LINE: field: what. Remedy: do this`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use xxhash_rust::xxh3::xxh3_128;

use super::failure::ReplicaFailure;
use super::raw::{RawFigure, RawFile, RawWorkload};
use super::sweep::{Axis, Numbers, Sweep, SweepFaults, Words};
use super::{Amount, Connect, Definition, Figure, Measure, Op, Ratio, Side, SideStorage, Workload, mode_of};
use cli::service::DEFAULT_MEMORY_MB;
use crosscheck::admin::Corruption;
use node::config::{check_group, meant};

/// Every field of the file and its tables, for guesses at the intended one.
const FIELDS: [&str; 48] = [
    "title",
    "about",
    "source",
    "modes",
    "peers",
    "replicas",
    "workers",
    "durability",
    "memory_mb",
    "connect",
    "clients",
    "pipeline",
    "seconds",
    "warmup_seconds",
    "repetitions",
    "rate",
    "verify",
    "memaslap",
    "ratios",
    "workload",
    "figure",
    "name",
    "key_bytes",
    "value_bytes",
    "mix",
    "keys",
    "zipf",
    "ttl_seconds",
    "prefill_percent",
    "work_us",
    "faults_per_second",
    "fault",
    "victim",
    "failure",
    "kind",
    "replica",
    "at",
    "back",
    "guarded_classes",
    "before_images",
    "extra_protection",
    "measure",
    "of",
    "to",
    "paper",
    "target",
    "says",
    "from",
];
/// Longest key of memcached's protocol.
const LONGEST_KEY: usize = 250;
/// Longest value that the generator keeps a pattern for: memcached's longest item.
pub const LONGEST_VALUE: u64 = 1 << 20;
/// memcached interprets a longer lifetime as a date.
const LONGEST_TTL: u64 = 30 * 86_400;
/// Most keys: versions are kept per key when replies are verified.
const MOST_KEYS: usize = 50_000_000;
/// Most connections: a stock server's and ours allow about a thousand.
const MOST_CLIENTS: usize = 1000;
/// Longest additional execution time, in microseconds: a tenth of the time after which the watchdog ends a hung
/// handler.
const LONGEST_WORK_US: f64 = 100_000.0;
/// Most faults per second: each takes an ordered position of its own.
const MOST_FAULTS: f64 = 10_000.0;

/// Checks `text`; messages call the file `file`, and the benchmark is called `name`.
///
/// # Errors
/// Every mistake, one per line.
pub fn parse(name: &str, file: &str, text: &str) -> Result<Definition, String> {
    let raw: RawFile = toml::from_str(text).map_err(|error| syntax(file, text, &error))?;
    let mut check = TableCheck { file, text, reported: String::new() };
    let definition = check.definition(name, raw);
    if check.reported.is_empty() { Ok(definition) } else { Err(check.reported.trim_end().to_owned()) }
}

/// The error of the TOML reader, with a remedy where its text allows one.
fn syntax(file: &str, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(String::new(), |span| format!(":{}", line_of(text, span.start)));
    let message = error.message().replace('\n', " ");
    let word = message.split('`').nth(1).unwrap_or("");
    let remedy = if message.starts_with("unknown field") {
        match meant(word, &FIELDS) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "remove it".to_owned(),
        }
    } else if message.starts_with("missing field") {
        format!("add `{word} = ...`")
    } else {
        "write it as lab/bench/definitions/README.md shows, which documents every field".to_owned()
    };
    format!("{file}{line}: {message}. Remedy: {remedy}")
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The file that is checked, and its mistakes so far.
struct TableCheck<'t> {
    file: &'t str,
    text: &'t str,
    reported: String,
}

impl TableCheck<'_> {
    fn report(&mut self, at: Range<usize>, field: &str, what: &str, remedy: &str) {
        let line = line_of(self.text, at.start);
        // Writing to a string cannot fail.
        let _ = writeln!(self.reported, "{}:{line}: {field}: {what}. Remedy: {remedy}", self.file);
    }

    fn within<T: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        field: &str,
        value: &Spanned<T>,
        range: RangeInclusive<T>,
    ) -> T {
        let number = *value.get_ref();
        if !range.contains(&number) {
            let remedy = format!("write a number from {} to {}", range.start(), range.end());
            self.report(value.span(), field, &format!("{number} is out of range"), &remedy);
        }
        number
    }

    fn optional<T: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        field: &str,
        value: Option<&Spanned<T>>,
        range: RangeInclusive<T>,
        default: T,
    ) -> T {
        value.map_or(default, |value| self.within(field, value, range))
    }

    fn definition(&mut self, name: &str, raw: RawFile) -> Definition {
        let sides = self.sides(&raw);
        let replicas = self.replicas(&raw, &sides);
        let clients = self.clients(&raw.clients);
        if raw.workload.get_ref().is_empty() {
            self.report(raw.workload.span(), "workload", "there is none", "add a `[[workload]]` section");
        }
        raw.workload.get_ref().iter().for_each(|one| self.failure(one.get_ref(), &raw, &sides));
        let workloads: Vec<Workload> =
            raw.workload.get_ref().iter().flat_map(|one| self.workloads(one.get_ref(), &sides)).collect();
        let ratios = raw.ratios.iter().map(|pair| self.ratio(pair, &sides)).collect::<Vec<_>>();
        let figures = raw.figure.iter().map(|figure| self.figure(figure, &sides, &workloads, &clients));
        let figures: Vec<Option<Figure>> = figures.collect();
        Definition {
            name: name.to_owned(),
            hash: format!("{:032x}", xxh3_128(self.text.as_bytes())),
            title: raw.title.get_ref().clone(),
            about: raw.about.trim().to_owned(),
            source: raw.source.map(|source| source.trim().to_owned()),
            replicas,
            workers: self.optional("workers", raw.workers.as_ref(), 1..=64, 1),
            durability: raw.durability.unwrap_or(SideStorage::Memory),
            memory_mb: self.optional("memory_mb", raw.memory_mb.as_ref(), 8..=1 << 16, DEFAULT_MEMORY_MB),
            connect: raw.connect.unwrap_or(Connect::All),
            pipeline: self.optional("pipeline", raw.pipeline.as_ref(), 1..=1000, 1),
            seconds: self.within("seconds", &raw.seconds, 0.1..=3600.0),
            warmup_seconds: self.optional("warmup_seconds", raw.warmup_seconds.as_ref(), 0.0..=600.0, 1.0),
            repetitions: self.within("repetitions", &raw.repetitions, 1..=1000),
            rate: raw.rate.as_ref().map(|rate| self.within("rate", rate, 1.0..=10_000_000.0)),
            verify: raw.verify,
            memaslap: raw.memaslap,
            sides,
            clients,
            workloads,
            ratios: ratios.into_iter().flatten().collect(),
            figures: figures.into_iter().flatten().collect(),
        }
    }

    fn sides(&mut self, raw: &RawFile) -> Vec<Side> {
        let mut sides = Vec::new();
        for (field, words) in [("modes", &raw.modes), ("peers", &raw.peers)] {
            for word in words.iter().flatten() {
                match word.get_ref().parse::<Side>() {
                    Ok(side) if matches!(side, Side::Ours(_)) != (field == "modes") => {
                        let remedy = "name our modes under `modes` and other programs under `peers`";
                        self.report(word.span(), field, &format!("`{side}` does not belong here"), remedy);
                    }
                    Ok(side) if sides.contains(&side) => {
                        self.report(word.span(), field, &format!("`{side}` is named twice"), "name it once");
                    }
                    Ok(side) => sides.push(side),
                    Err(what) => {
                        let known = [&crosscheck::Mode::ALL[..], &Side::PEERS].concat();
                        let guess = meant(word.get_ref(), &known);
                        let remedy = guess
                            .map_or("use one of them".to_owned(), |guess| format!("did you mean `{guess}`?"));
                        self.report(word.span(), field, &what, &remedy);
                    }
                }
            }
        }
        if sides.is_empty() && self.reported.is_empty() {
            let remedy = "add `modes = [\"RD00\", \"RDGX\"]`, `peers = [\"memcached\"]` or both";
            self.report(raw.title.span(), "modes", "nothing is measured", remedy);
        }
        sides
    }

    fn replicas(&mut self, raw: &RawFile, sides: &[Side]) -> u8 {
        let Some(replicas) = &raw.replicas else { return 3 };
        let modes = sides.iter().filter_map(|side| match side {
            Side::Ours(name) => mode_of(name).ok().map(|(mode, _)| mode),
            _ => None,
        });
        for mode in modes.filter(|mode| mode.replicated) {
            if let Err((what, remedy)) = check_group(mode, usize::from(*replicas.get_ref()), false) {
                self.report(replicas.span(), "replicas", &what, &remedy);
            }
        }
        *replicas.get_ref()
    }

    fn clients(&mut self, clients: &Spanned<Vec<usize>>) -> Vec<usize> {
        let list = clients.get_ref().clone();
        if list.is_empty() || list.iter().any(|count| !(1..=MOST_CLIENTS).contains(count)) {
            let remedy =
                format!("write a list of numbers from 1 to {MOST_CLIENTS}, for example [1, 10, 100]");
            self.report(
                clients.span(),
                "clients",
                "a number of connections is missing or out of range",
                &remedy,
            );
        }
        list
    }

    /// One workload, or one for each value of the setting that has several.
    fn workloads(&mut self, raw: &RawWorkload, sides: &[Side]) -> Vec<Workload> {
        let plain = self.workload(raw);
        let fields = [
            (Axis::WorkUs, "work_us", &raw.work_us, LONGEST_WORK_US),
            (Axis::FaultsPerSecond, "faults_per_second", &raw.faults_per_second, MOST_FAULTS),
        ];
        let mut made = vec![plain];
        let mut swept = false;
        for (axis, field, values, highest) in fields {
            let Some(values) = values else { continue };
            self.numbers(field, values, highest);
            self.offered(axis, field, values, sides);
            let several = values.get_ref().list().len() > 1;
            if several && std::mem::replace(&mut swept, true) {
                let what = "only one setting can have several values";
                self.report(
                    values.span(),
                    field,
                    what,
                    "split the workload, one for each value of the other",
                );
            }
            let each = |one: &Workload| {
                let x_of = |&x: &f64| with(one, raw, axis, x, several);
                values.get_ref().list().iter().map(x_of).collect::<Vec<_>>()
            };
            made = made.iter().flat_map(each).collect();
        }
        if let Some(words) = &raw.guarded_classes {
            self.classes(words, sides, swept);
            made = made.iter().flat_map(|one| guarding(one, words.get_ref().list())).collect();
        }
        if let Some(images) = &raw.before_images {
            self.ours_only("before_images", images.span(), sides);
        }
        if let Some(waits) = &raw.extra_protection {
            self.ours_only("extra_protection", waits.span(), sides);
        }
        if raw.faults_per_second.is_none() && (raw.fault.is_some() || raw.victim.is_some()) {
            let remedy = "add `faults_per_second = 4`, or remove `fault` and `victim`";
            self.report(raw.keys.span(), "fault", "no fault is placed", remedy);
        }
        if let Some(fault) = &raw.fault
            && !matches!(fault.get_ref(), Corruption::Flip | Corruption::InRequest)
        {
            let what = format!("`{}` does not hit an item's value alone", fault.get_ref());
            self.report(fault.span(), "fault", &what, "use `flip` or `in-request`");
        }
        made
    }

    fn classes(&mut self, words: &Spanned<Words>, sides: &[Side], swept: bool) {
        let field = "guarded_classes";
        self.ours_only(field, words.span(), sides);
        let list = words.get_ref().list();
        if swept && list.len() > 1 {
            let remedy = "split the workload, one for each value of the other";
            self.report(words.span(), field, "only one setting can have several values", remedy);
        }
        let known = |name: &str| ["all", "none"].contains(&name) || memcached::CLASSES.contains(&name);
        let unknown = list.iter().flat_map(|word| word.split(',')).find(|name| !known(name));
        if list.is_empty() || unknown.is_some() {
            let what = format!("there is no class `{}`", unknown.unwrap_or_default());
            let remedy =
                format!("use all, none, or {} with commas between them", memcached::CLASSES.join(", "));
            self.report(words.span(), field, &what, &remedy);
        }
    }

    fn ours_only(&mut self, field: &str, at: Range<usize>, sides: &[Side]) {
        if let Some(side) = sides.iter().find(|side| !matches!(side, Side::Ours(_))) {
            let remedy = "leave it out of this file; only our modes have the setting";
            self.report(at, field, &format!("`{side}` has no such setting"), remedy);
        }
    }

    fn numbers(&mut self, field: &str, values: &Spanned<Numbers>, highest: f64) {
        let list = values.get_ref().list();
        let increases = list.windows(2).all(|pair| pair[0] < pair[1]);
        if list.is_empty() || !increases || list.iter().any(|number| !(0.0..=highest).contains(number)) {
            let remedy = format!("write a number from 0 to {highest}, or a list of such that increase");
            self.report(values.span(), field, "a number is missing, out of range or out of order", &remedy);
        }
    }

    /// Whether every side supports the setting.
    fn offered(&mut self, axis: Axis, field: &str, values: &Spanned<Numbers>, sides: &[Side]) {
        if values.get_ref().list().iter().all(|value| *value == 0.0) {
            return;
        }
        if axis != Axis::FaultsPerSecond {
            return self.ours_only(field, values.span(), sides);
        }
        let repairs = |name: &str| mode_of(name).is_ok_and(|(mode, _)| mode.crosschecked);
        let lacks = |side: &&Side| !matches!(side, Side::Ours(mode) if repairs(mode));
        if let Some(side) = sides.iter().find(lacks) {
            let what = format!("`{side}` does not repair what is damaged");
            self.report(values.span(), field, &what, "leave it out of this file; only RDGX repairs");
        }
    }

    /// Whether a replica can fail and come back within the measured time, while another one serves.
    fn failure(&mut self, raw: &RawWorkload, file: &RawFile, sides: &[Side]) {
        let Some(failure) = &raw.failure else { return };
        let ReplicaFailure { at, back, .. } = *failure.get_ref();
        let seconds = *file.seconds.get_ref();
        if !(0.0 < at && at < back && back < seconds) {
            let what = format!("from {at} s to {back} s of {seconds} s");
            let remedy = "write `at` above 0, `back` above `at`, and `seconds` above `back`";
            self.report(failure.span(), "failure", &what, remedy);
        }
        let goes_on = |name: &str| mode_of(name).is_ok_and(|(mode, _)| mode.replicated);
        if let Some(side) = sides.iter().find(|side| !matches!(side, Side::Ours(mode) if goes_on(mode))) {
            let what = format!("`{side}` has no other replica of ours");
            let remedy = "leave it out of this file; only replicas of our replicated modes can fail";
            self.report(failure.span(), "failure", &what, remedy);
        }
    }

    fn workload(&mut self, raw: &RawWorkload) -> Workload {
        let keys = self.within("keys", &raw.keys, 1..=MOST_KEYS);
        let shortest = shortest_key(keys);
        let forever = Amount::Fixed(0);
        let ttl_seconds = match &raw.ttl_seconds {
            Some(ttl) => self.amount("ttl_seconds", ttl, LONGEST_TTL),
            None => forever,
        };
        Workload {
            name: raw.name.clone(),
            key_bytes: self.within("key_bytes", &raw.key_bytes, shortest..=LONGEST_KEY),
            value_bytes: self.amount("value_bytes", &raw.value_bytes, LONGEST_VALUE),
            mix: self.mix(&raw.mix),
            keys,
            zipf: self.optional("zipf", raw.zipf.as_ref(), 0.0..=5.0, 0.0),
            ttl_seconds,
            prefill_percent: self.optional(
                "prefill_percent",
                raw.prefill_percent.as_ref(),
                0.0..=100.0,
                100.0,
            ),
            work_us: 0,
            faults: None,
            failure: raw.failure.as_ref().map(|failure| *failure.get_ref()),
            guarded_classes: None,
            before_images: raw.before_images.as_ref().map(|images| *images.get_ref()),
            extra_protection: raw.extra_protection.as_ref().map(|waits| *waits.get_ref()),
            sweep: None,
        }
    }

    fn mix(&mut self, mix: &Spanned<BTreeMap<Spanned<String>, f64>>) -> BTreeMap<Op, f64> {
        let names = Op::ALL.map(|(name, _)| name);
        let mut found = BTreeMap::new();
        for (name, share) in mix.get_ref() {
            match Op::ALL.iter().find(|(known, _)| known == name.get_ref()) {
                Some((_, op)) if share.is_finite() && *share >= 0.0 => drop(found.insert(*op, *share)),
                Some(_) => self.report(
                    mix.span(),
                    "mix",
                    &format!("{share} is no share"),
                    "write a number from 0 up",
                ),
                None => {
                    let what = format!("there is no operation `{}`", name.get_ref());
                    self.report(mix.span(), "mix", &what, &format!("use {}", names.join(", ")));
                }
            }
        }
        if found.values().sum::<f64>() <= 0.0 {
            self.report(
                mix.span(),
                "mix",
                "all shares are 0, so that no request is sent",
                "write for example `mix = { get = 75, set = 25 }`",
            );
        }
        found
    }

    fn amount(&mut self, field: &str, amount: &Spanned<Amount>, highest: u64) -> Amount {
        let found = amount.get_ref();
        let possible = match found {
            Amount::Fixed(_) => true,
            Amount::Between { from, to } => from <= to,
            Amount::Weighted(pairs) => {
                pairs.iter().all(|pair| pair.1.is_finite() && pair.1 >= 0.0)
                    && pairs.iter().map(|pair| pair.1).sum::<f64>() > 0.0
            }
        };
        if !possible || found.highest() > highest {
            let remedy = format!(
                "write a number up to {highest}, `{{ from = LOW, to = HIGH }}`, or pairs `[[NUMBER, SHARE], ...]`"
            );
            self.report(amount.span(), field, "no number can be drawn from this", &remedy);
        }
        found.clone()
    }

    fn side(&mut self, field: &str, at: Range<usize>, word: &str, sides: &[Side]) -> Option<Side> {
        let found = sides.iter().find(|side| side.to_string() == word);
        if found.is_none() {
            let what = format!("`{word}` is not measured here");
            self.report(at, field, &what, "add it to `modes` or `peers`, or name one that is there");
        }
        found.cloned()
    }

    fn ratio(&mut self, pair: &Spanned<(String, String)>, sides: &[Side]) -> Option<Ratio> {
        let (of, to) = pair.get_ref();
        let of = self.side("ratios", pair.span(), of, sides);
        let to = self.side("ratios", pair.span(), to, sides);
        Some(Ratio { of: of?, to: to? })
    }

    fn figure(
        &mut self,
        figure: &Spanned<RawFigure>,
        sides: &[Side],
        workloads: &[Workload],
        clients: &[usize],
    ) -> Option<Figure> {
        let raw = figure.get_ref();
        if !workloads.iter().any(|workload| workload.name == *raw.workload.get_ref()) {
            let what = format!("there is no workload `{}`", raw.workload.get_ref());
            self.report(
                raw.workload.span(),
                "workload",
                &what,
                "use the name of a `[[workload]]` of this file",
            );
        }
        if !clients.contains(raw.clients.get_ref()) {
            let what = format!("{} is not measured", raw.clients.get_ref());
            self.report(raw.clients.span(), "clients", &what, "add it to the file's `clients`");
        }
        let measure = raw.measure.unwrap_or(Measure::ThroughputRatio);
        let of = self.side("of", raw.of.span(), raw.of.get_ref(), sides);
        let to = raw.to.as_ref().map(|to| self.side("to", to.span(), to.get_ref(), sides));
        if to.is_some() != measure.compares() {
            let (what, remedy) = if measure.compares() {
                ("two sides are compared, and only one is named", "add `to = \"SIDE\"`")
            } else {
                ("this measure is about one side", "remove `to`")
            };
            self.report(figure.span(), "to", what, remedy);
        }
        if raw.paper.is_none() && raw.target.is_none() {
            let remedy = "give `paper = [LOW, HIGH]`, `target`, or both";
            self.report(
                figure.span(),
                "figure",
                "it gives neither a figure of the paper nor a target",
                remedy,
            );
        }
        self.measurable(measure, figure, workloads);
        Some(Figure {
            workload: raw.workload.get_ref().clone(),
            clients: *raw.clients.get_ref(),
            measure,
            of: of?,
            to: to.flatten(),
            paper: raw.paper,
            target: raw.target,
            says: raw.says.clone(),
        })
    }

    /// Whether the workload produces the figure.
    fn measurable(&mut self, measure: Measure, figure: &Spanned<RawFigure>, workloads: &[Workload]) {
        let raw = figure.get_ref();
        let Some(workload) = workloads.iter().find(|one| one.name == *raw.workload.get_ref()) else { return };
        if measure.is_of_repairs() && workload.faults.is_none_or(|faults| faults.per_second == 0.0) {
            let what = format!("nothing is repaired under `{}`", workload.name);
            self.report(figure.span(), "measure", &what, "name a workload with faults");
        }
        if measure.is_of_failures() && workload.failure.is_none() {
            let what = format!("no replica fails under `{}`", workload.name);
            self.report(figure.span(), "measure", &what, "name a workload with a `failure`");
        }
        if measure == Measure::ThroughputKept && workload.sweep.is_none() {
            let what = format!("`{}` has nothing to be compared with", workload.name);
            let remedy = "name one of a workload that gives several values for one setting";
            self.report(figure.span(), "measure", &what, remedy);
        }
    }
}

/// The workload with one value of a setting.
fn with(one: &Workload, raw: &RawWorkload, axis: Axis, x: f64, several: bool) -> Workload {
    let mut made = one.clone();
    if axis == Axis::WorkUs {
        made.work_us = x as u32;
    } else {
        let fault = raw.fault.as_ref().map_or(Corruption::Flip, |fault| *fault.get_ref());
        let victim = raw.victim.unwrap_or_default();
        made.faults = Some(SweepFaults { per_second: x, fault, victim });
    }
    if several {
        sweep(&mut made, axis, x, axis.value(x));
    }
    made
}

/// The workload once for each set of protected classes.
fn guarding(one: &Workload, sets: &[String]) -> Vec<Workload> {
    let with = |(number, set): (usize, &String)| {
        let mut made = one.clone();
        made.guarded_classes = (set != "all").then(|| set.clone());
        if sets.len() > 1 {
            sweep(&mut made, Axis::Classes, number as f64, set.clone());
        }
        made
    };
    sets.iter().enumerate().map(with).collect()
}

/// Makes a workload one of several that differ in one setting.
fn sweep(made: &mut Workload, axis: Axis, x: f64, label: String) {
    let family = made.name.clone();
    made.name = format!("{family}: {label}");
    made.sweep = Some(Sweep { family, axis, x, label });
}

/// A letter and enough digits for the last key.
fn shortest_key(keys: usize) -> usize {
    1 + keys.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1
}
