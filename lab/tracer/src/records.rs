//! Files of raw records: a line on the campaign, then one JSON line per injection.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use flate2::read::MultiGzDecoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hooks;
use crate::record::{InjectionClass, InjectionRecord};

/// The description of a campaign, for every reader of its figures and for repetitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Origin {
    /// The target, by the name of its file.
    pub target: String,
    /// The command, with every option that differs from its default.
    pub command: String,
    /// The campaign's seed.
    pub seed: u64,
    /// Records, lost runs included.
    pub records: u64,
    /// The source that the target was built from.
    pub commit: String,
    /// The machine.
    pub machine: String,
    /// When it began, in seconds since 1970; 0 when that is unknown.
    pub started_s: u64,
    /// Further information for readers.
    pub remark: String,
}

/// The first line of a file of raw records. Files from before it existed have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heading {
    campaign: Origin,
}

/// Records of one kind. Flips in instructions and hooks measure different things: no table contains both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Records {
    /// Of flipped bits in single instructions.
    Native(Vec<InjectionRecord>),
    /// Of faults that a replica placed in itself.
    Hooks(Vec<hooks::HookRecord>),
}

impl Records {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Records::Native(records) => records.len(),
            Records::Hooks(records) => records.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How each ended.
    pub fn classes(&self) -> Vec<InjectionClass> {
        match self {
            Records::Native(records) => records.iter().map(|record| record.class).collect(),
            Records::Hooks(records) => records.iter().map(|record| record.class).collect(),
        }
    }

    fn seed(&self) -> Option<u64> {
        match self {
            Records::Native(records) => records.first().map(|record| record.seed),
            Records::Hooks(records) => records.first().map(|record| record.seed),
        }
    }
}

impl Origin {
    /// Completes the description from the records themselves.
    #[must_use]
    pub fn of(self, records: &Records) -> Self {
        Origin { seed: records.seed().unwrap_or(self.seed), records: records.len() as u64, ..self }
    }
}

/// Creates a file of raw records, and writes the description of the campaign.
///
/// # Errors
/// When it cannot be created or written.
pub fn create(path: &Path, campaign: &Origin) -> anyhow::Result<fs::File> {
    let open = || -> anyhow::Result<fs::File> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::File::create(path)?;
        append(&mut file, &Heading { campaign: campaign.clone() })?;
        Ok(file)
    };
    open().with_context(|| format!("records {}", path.display()))
}

/// Appends a line to a file of raw records, as soon as its run has ended.
///
/// # Errors
/// When it cannot be written.
pub fn append(file: &mut impl io::Write, record: &impl Serialize) -> anyhow::Result<()> {
    writeln!(file, "{}", serde_json::to_string(record)?)?;
    Ok(file.flush()?)
}

/// The text of a file; one whose name ends in `.gz` is compressed.
///
/// # Errors
/// When it cannot be read, or its checksum does not fit.
pub fn text(path: &Path) -> anyhow::Result<String> {
    let read = || {
        if path.extension().is_none_or(|extension| extension != "gz") {
            return fs::read_to_string(path);
        }
        let mut text = String::new();
        MultiGzDecoder::new(fs::File::open(path)?).read_to_string(&mut text)?;
        Ok(text)
    };
    read().with_context(|| format!("records {}", path.display()))
}

/// Reads a file of raw records.
///
/// # Errors
/// When it is not such a file.
pub fn read(path: &Path) -> anyhow::Result<(Origin, Records)> {
    parse(path, &text(path)?)
}

/// The records in `text`, which is the content of `path`.
///
/// # Errors
/// When a line is no record.
pub fn parse(path: &Path, text: &str) -> anyhow::Result<(Origin, Records)> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty()).peekable();
    let mut origin = Origin::default();
    if let Some((_, line)) = lines.peek()
        && let Ok(heading) = serde_json::from_str::<Heading>(line)
    {
        origin = heading.campaign;
        lines.next();
    }
    let is_hook =
        lines.peek().is_some_and(|(_, line)| serde_json::from_str::<hooks::HookRecord>(line).is_ok());
    let records = if is_hook {
        Records::Hooks(records_of(path, lines)?)
    } else {
        Records::Native(records_of(path, lines)?)
    };
    let origin = origin.of(&records);
    Ok((origin, records))
}

fn records_of<'a, R: DeserializeOwned>(
    path: &Path,
    lines: impl Iterator<Item = (usize, &'a str)>,
) -> anyhow::Result<Vec<R>> {
    let record = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}: not a record", path.display(), number + 1))
    };
    lines.map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = concat!(
        r#"{"id":3,"seed":9,"kind":"multi-flip","hit":"an item","class":"repaired","subclass":"noticed by 1","#,
        r#""told":"","states_equal":true,"noticed":[1],"struck_us":1,"total_us":2}"#
    );

    #[test]
    fn a_campaign_is_written_before_its_records_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not/yet/there/hooks.jsonl");
        let told = Origin { target: "alone-0000".into(), commit: "abc".into(), ..Origin::default() };
        let mut file = create(&path, &told).unwrap();
        let record: hooks::HookRecord = serde_json::from_str(LINE).unwrap();
        append(&mut file, &record).unwrap();
        append(&mut file, &record).unwrap();
        let (origin, records) = read(&path).unwrap();
        assert_eq!(origin, Origin { seed: 9, records: 2, ..told });
        assert_eq!(records, Records::Hooks(vec![record.clone(), record]));
    }

    #[test]
    fn records_without_a_heading_are_read() {
        let (origin, records) = parse(Path::new("old.jsonl"), LINE).unwrap();
        assert_eq!(origin, Origin { seed: 9, records: 1, ..Origin::default() });
        assert_eq!(records.classes(), [InjectionClass::Repaired]);
        let error = parse(Path::new("old.jsonl"), &format!("{LINE}\n{{}}\n")).unwrap_err();
        assert!(error.to_string().starts_with("old.jsonl:2: not a record"), "{error}");
        assert!(parse(Path::new("empty.jsonl"), "").unwrap().1.is_empty());
    }

    #[test]
    fn compressed_records_are_read_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records.jsonl.gz");
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        io::Write::write_all(&mut file, format!("{LINE}\n{LINE}\n").as_bytes()).unwrap();
        let mut bytes = file.finish().unwrap();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap().1.len(), 2);
        let last = bytes.len() - 6;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err(), "its checksum does not fit");
    }
}
