//! The committed table of what a request may cost (`lab/bench/cost.toml`): a change that makes one dearer fails in CI,
//! where a measurement of time would only make noise.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::load::{Kind, Load};
use super::{PerRequest, Role};
use crate::definition::Side;

/// Instructions per request, and how much more is tolerated.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceilings {
    /// Per cent above the table at which a measurement of a process without peers, with one connection, fails. Between
    /// machines a set has differed by 4 %: under valgrind a slow one does more of its periodic work within a request,
    /// and subtracting what an idle process does takes that away only in the mean.
    fixed_percent: f64,
    /// The same for replicas of a group and for many connections: how many messages meet in one turn of a loop is not
    /// the same twice.
    varying_percent: f64,
    rows: Vec<Row>,
}

/// One process under one load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    side: Side,
    role: Role,
    load: Load,
    get: f64,
    hot_get: f64,
    set: f64,
}

impl Ceilings {
    /// The percentages of a new table.
    const FIXED_PERCENT: f64 = 6.0;
    const VARYING_PERCENT: f64 = 25.0;

    /// Reads a table.
    ///
    /// # Errors
    /// It is missing or malformed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is no table of costs", path.display()))
    }

    /// A table of these measurements; programs of others, which no change of ours makes dearer, are not in it.
    pub fn of(measured: &[PerRequest]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for one in measured.iter().filter(|one| matches!(one.side, Side::Ours(_))) {
            let at = rows.iter().position(|row| row.process() == one.process()).unwrap_or_else(|| {
                let (side, role, load) = (one.side.clone(), one.role, one.load);
                rows.push(Row { side, role, load, get: 0.0, hot_get: 0.0, set: 0.0 });
                rows.len() - 1
            });
            *rows[at].place(one.kind) = one.instructions.round();
        }
        Ceilings { fixed_percent: Self::FIXED_PERCENT, varying_percent: Self::VARYING_PERCENT, rows }
    }

    /// Writes it, one process and load per line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = format!(
            "# Instructions per request, in user mode, less those of the idle process. `fixed_percent` is tolerated \
             for a server\n# without peers that has one connection, `varying_percent` for all else.\n\
             fixed_percent = {:.1}\nvarying_percent = {:.1}\nrows = [\n",
            self.fixed_percent, self.varying_percent
        );
        for row in &self.rows {
            let (side, role, load) = (word(&row.side)?, word(&row.role)?, word(&row.load)?);
            let Row { get, hot_get, set, .. } = row;
            let _ = writeln!(
                text,
                "    {{ side = {side}, role = {role}, load = {load}, get = {get:.1}, hot_get = {hot_get:.1}, \
                 set = {set:.1} }},"
            );
        }
        text.push_str("]\n");
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// What is dearer than the table allows, one sentence each.
    ///
    /// # Errors
    /// A measurement is not in the table: nothing guards it.
    pub fn exceeded(&self, measured: &[PerRequest]) -> anyhow::Result<Vec<String>> {
        let reported = measured.iter().map(|one| self.why_dearer(one));
        reported.filter_map(Result::transpose).collect()
    }

    /// Why this measurement is dearer than the table allows, if it is.
    ///
    /// # Errors
    /// It is not in the table: nothing guards it.
    pub fn why_dearer(&self, one: &PerRequest) -> anyhow::Result<Option<String>> {
        if !matches!(one.side, Side::Ours(_)) {
            return Ok(None);
        }
        let Some(row) = self.rows.iter().find(|row| row.process() == one.process()) else {
            bail!("the table has no row for {}, {}, {}", one.side, one.role.name(), one.load.name());
        };
        let ceiling = *row.clone().place(one.kind);
        let is_fixed = one.role == Role::Server && one.load != Load::Clients50;
        let percent = if is_fixed { self.fixed_percent } else { self.varying_percent };
        let is_dearer = one.instructions > ceiling * (1.0 + percent / 100.0);
        Ok(is_dearer.then(|| {
            format!(
                "{}, {}, {}: a {} takes {:.0} instructions, {:.1} % more than the {ceiling:.0} of the table, which \
                 tolerates {percent:.0} %",
                one.side,
                one.role.name(),
                one.load.name(),
                one.kind.name(),
                one.instructions,
                (one.instructions / ceiling - 1.0) * 100.0,
            )
        }))
    }
}

impl Row {
    fn process(&self) -> (&Side, Role, Load) {
        (&self.side, self.role, self.load)
    }

    fn place(&mut self, kind: Kind) -> &mut f64 {
        match kind {
            Kind::Get => &mut self.get,
            Kind::HotGet => &mut self.hot_get,
            Kind::Set => &mut self.set,
        }
    }
}

/// A name as the file has it, in quotes.
fn word(name: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(role: Role, kind: Kind, instructions: f64) -> PerRequest {
        let (side, load) = (Side::Ours("RDGX".into()), Load::Together16);
        PerRequest { side, role, load, kind, requests: 100, instructions, allocations: None }
    }

    #[test]
    fn a_table_is_read_as_it_was_written_and_names_what_is_dearer() {
        let all = |factor: f64| {
            let roles = [Role::Server, Role::Contacted];
            let of = |role| Kind::ALL.map(|kind| measured(role, kind, 1000.0 * factor));
            roles.into_iter().flat_map(of).collect::<Vec<_>>()
        };
        let file = tempfile::NamedTempFile::new().expect("a file");
        let table = Ceilings::of(&all(1.0));
        table.write(file.path()).expect("written");
        assert_eq!(Ceilings::read(file.path()).expect("read"), table);
        assert_eq!(table.exceeded(&all(1.05)).expect("known"), Vec::<String>::new());
        let dearer = table.exceeded(&all(1.08)).expect("known");
        assert_eq!(dearer.len(), 3, "a group may differ by more: {dearer:?}");
        assert!(dearer[0].contains("a get takes 1080 instructions, 8.0 % more"), "{dearer:?}");
        assert_eq!(table.exceeded(&all(1.26)).expect("known").len(), 6);
        let other = [measured(Role::Leader, Kind::Get, 1.0)];
        assert!(table.exceeded(&other).is_err(), "nothing guards it");
    }
}
