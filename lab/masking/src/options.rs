//! The settings of a replica of the experiment, and how it is built from them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use crosscheck::MakeProtocol;
use node::config::TableReader;
use node::{Application, ReplicaParts, ServiceOptions};

use crate::engine::{SeededRows, TursoRows};
use crate::protocol::LineConnection;
use crate::service::{MakeRows, Mix, RowService};
use crate::witnessed::Witnessed;

/// The variable with the path of the file for losses; each replica has its own.
pub const LOSSES: &str = "MASKING_LOSSES";

/// The program.
pub struct Masking;

impl Application for Masking {
    const NAME: &'static str = "masking";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str =
        "Counters in a database that loses updates, replicated: Fig. 9 of the Eve paper";
    const PORT: u16 = 7_400;
    const OBJECTS: &'static str = "  row:N   the counter with that number, 0 to 63";
    const OBJECT: &'static str = "row:1";
    type Service = RowService;
    type Protocol = LineConnection;
    type Options = MaskingOptions;

    fn build(options: &MaskingOptions) -> Result<ReplicaParts<Self>, String> {
        let seeded = options.seeded;
        let make: MakeRows = match options.bug {
            Bug::Turso => Box::new(|| Box::new(TursoRows::new().expect("turso makes a database"))),
            Bug::Seeded => Box::new(move || Box::new(SeededRows::new(seeded))),
        };
        let file = std::env::var_os(LOSSES).map(PathBuf::from);
        let witnessed = Witnessed::new(file.as_deref()).map_err(|error| format!("{LOSSES}: {error}"))?;
        let make_protocol: MakeProtocol<LineConnection> = Arc::new(|_accepted| LineConnection);
        Ok((RowService::new(make, witnessed, options.mix, options.plain), make_protocol))
    }
}

/// Whose bug it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Bug {
    /// That of the database turso 0.4.4, its issue 5421
    #[default]
    Turso,
    /// Ours: with a stated probability an addition is a load, a wait of 100 us, and a store
    Seeded,
}

/// Settings of the experiment, equal at all replicas.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct MaskingOptions {
    /// Whose bug it is
    #[arg(long, value_enum, default_value = "turso")]
    pub bug: Bug,
    /// With --bug seeded: so many of 100,000 additions are racy
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seeded: u64,
    /// Which additions the mixer keeps apart: none, or those to the same row
    #[arg(long, value_enum, default_value = "all")]
    pub mix: Mix,
    /// No objects and no locks: the database alone, for mode 0000
    #[arg(long)]
    pub plain: bool,
}

impl ServiceOptions for MaskingOptions {
    const FIELDS: &'static [&'static str] = &["bug", "seeded", "mix", "plain"];
    const EXAMPLE: &'static str = "# Whose bug it is: \"turso\", or \"seeded\".
bug = \"turso\"
# With seeded: so many of 100,000 additions are racy.
seeded = 0
# Which additions the mixer keeps apart: \"all\" runs all of a batch beside each other, \"rows\" keeps those apart that
# are to the same row.
mix = \"all\"
# 1: no objects and no locks, for mode 0000.
plain = 0
";

    fn read(file: &mut TableReader<'_>) -> Self {
        let bug = file.parsed("bug", "use \"turso\" or \"seeded\"", |text| Bug::from_str(text, true));
        let mix = file.parsed("mix", "use \"all\" or \"rows\"", |text| Mix::from_str(text, true));
        MaskingOptions {
            bug: bug.unwrap_or_default(),
            seeded: file.integer("seeded", 0..=100_000, "of 100,000").unwrap_or(0),
            mix: mix.unwrap_or_default(),
            plain: file.integer("plain", 0..=1, "(1 for yes)").unwrap_or(0) == 1,
        }
    }

    fn write(&self, file: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(file, "bug = \"{}\"", value_name(&self.bug));
        let _ = writeln!(file, "seeded = {}", self.seeded);
        let _ = writeln!(file, "mix = \"{}\"", value_name(&self.mix));
        let _ = writeln!(file, "plain = {}", u8::from(self.plain));
    }
}

/// A value as the command line has it.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
