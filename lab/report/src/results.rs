//! Result files, one JSON format for all of them: who made the file and how, what was counted, and its rows.
//!
//! Rows stand on a line each. Their fields are named once, in `columns`; the name of a field of a field has a dot, and
//! a field that is null everywhere has no column. A file whose name ends in `.gz` is compressed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Page;
use crate::machine::{Commit, Machine};

/// Incremented when old files can no longer be read.
const FORMAT: u32 = 1;
/// Ending of a compressed file.
const COMPRESSED: &str = ".gz";

/// What made a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The kind of result, which decides what settings, totals and rows are.
    pub kind: String,
    /// The command, without the program's name.
    pub command: String,
    /// When it began, in seconds since 1970; 0 where that is unknown.
    pub started_s: u64,
    /// The machine.
    pub machine: Machine,
    /// The commit that was measured.
    pub commit: Commit,
    /// Whether the binary was built with optimisation.
    pub optimised: bool,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct ResultFile {
    /// What made it.
    pub origin: Origin,
    settings: Value,
    totals: Value,
    rows: Value,
    path: PathBuf,
}

/// A file's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    format: u32,
    origin: Origin,
    #[serde(default)]
    settings: Value,
    #[serde(default)]
    totals: Value,
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Origin {
    /// Of this process, which begins now.
    pub fn now(kind: &str) -> Self {
        Origin {
            kind: kind.to_owned(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            commit: Commit::here(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// What made a result, as a paragraph: of some results the repository has the page alone.
    pub fn made_by(&self) -> String {
        let Origin { command, commit, machine, .. } = self;
        let changed = if commit.changed { " and changes" } else { "" };
        format!(
            "Made by `crosscheck-lab {command}`, commit {}{changed}; {} cores, {}, Linux {}.",
            commit.id, machine.cores, machine.model, machine.kernel
        )
    }

    /// The file of a result with this name: names end with the time, so that the last one is the newest.
    pub fn path(&self, folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}-{}.json", stamp(self.started_s)))
    }
}

/// Writes a result in place of the old file. `totals` is what was counted over everything, also over what no row has.
///
/// # Errors
/// The file cannot be written, or a value has no JSON.
pub fn write(
    path: &Path,
    origin: &Origin,
    settings: &impl Serialize,
    totals: &impl Serialize,
    rows: &[impl Serialize],
) -> anyhow::Result<()> {
    let (mut columns, mut lines) = (BTreeMap::new(), Vec::new());
    for row in rows {
        let mut line = Vec::new();
        flatten(String::new(), serde_json::to_value(row)?, &mut columns, &mut line);
        lines.push(format!("  {}", Value::from(line)));
    }
    let mut names: Vec<&String> = columns.keys().collect();
    names.sort_by_key(|name| columns[*name]);
    let part = |name: &str, value: Value| match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("  {}:{value}", json!(key))).collect();
            format!(" \"{name}\":{{\n{}\n }},\n", fields.join(",\n"))
        }
        Value::Null => String::new(),
        other => format!(" \"{name}\":{other},\n"),
    };
    let text = format!(
        "{{\n \"format\":{FORMAT},\n{}{}{} \"columns\":{},\n \"rows\":[\n{}\n ]\n}}\n",
        part("origin", serde_json::to_value(origin)?),
        part("settings", serde_json::to_value(settings)?),
        part("totals", serde_json::to_value(totals)?),
        json!(names),
        lines.join(",\n")
    );
    replace(path, text.as_bytes())
}

/// Writes `result.json` into `folder`, and its page beside it.
///
/// # Errors
/// As [`write()`].
pub fn write_with_page(
    folder: &Path,
    origin: &Origin,
    settings: &impl Serialize,
    totals: &impl Serialize,
    rows: &[impl Serialize],
    page: &Page,
) -> anyhow::Result<()> {
    write(&folder.join("result.json"), origin, settings, totals, rows)?;
    replace(&folder.join("result.md"), page.markdown().as_bytes())
}

impl ResultFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, its checksum is wrong, or it has another form.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let read = || -> anyhow::Result<Self> {
            let Form { format, origin, settings, totals, columns, rows } =
                serde_json::from_slice(&bytes(path)?)?;
            ensure!(format == FORMAT, "its format is {format}, not {FORMAT}");
            let row = |(number, values): (usize, Vec<Value>)| {
                ensure!(values.len() <= columns.len(), "row {number} has more values than there are columns");
                let mut row = Map::new();
                for (column, value) in columns.iter().zip(values).filter(|(_, value)| !value.is_null()) {
                    insert(&mut row, column, value);
                }
                Ok(Value::Object(row))
            };
            let rows = rows.into_iter().enumerate().map(row).collect::<anyhow::Result<_>>()?;
            Ok(ResultFile { origin, settings, totals, rows, path: path.to_owned() })
        };
        read().with_context(|| format!("{} is not a result of this program", path.display()))
    }

    /// Reads a file of this kind.
    ///
    /// # Errors
    /// As [`Self::read`], or it is of another kind.
    pub fn of_kind(path: &Path, kind: &str) -> anyhow::Result<Self> {
        let file = Self::read(path)?;
        let found = &file.origin.kind;
        ensure!(found == kind, "{} is a result of kind {found}, not {kind}", path.display());
        Ok(file)
    }

    /// Its origin, settings, totals and rows.
    ///
    /// # Errors
    /// They are not those of the file's kind.
    pub fn parts<S, T, R>(self) -> anyhow::Result<(Origin, S, T, Vec<R>)>
    where
        S: DeserializeOwned,
        T: DeserializeOwned,
        R: DeserializeOwned,
    {
        let of = |part: &str| format!("{}: its {part}", self.path.display());
        let settings = serde_json::from_value(self.settings).with_context(|| of("settings"))?;
        let totals = serde_json::from_value(self.totals).with_context(|| of("totals"))?;
        let rows = serde_json::from_value(self.rows).with_context(|| of("rows"))?;
        Ok((self.origin, settings, totals, rows))
    }
}

/// The values of a row in the order of the columns, which it adds to.
fn flatten(name: String, value: Value, columns: &mut BTreeMap<String, usize>, line: &mut Vec<Value>) {
    match value {
        Value::Null => {}
        // A name with a dot could not be told from a field of a field.
        Value::Object(fields) if !fields.is_empty() && !fields.keys().any(|key| key.contains('.')) => {
            for (key, value) in fields {
                let key = if name.is_empty() { key } else { format!("{name}.{key}") };
                flatten(key, value, columns, line);
            }
        }
        value => {
            let count = columns.len();
            let place = *columns.entry(name).or_insert(count);
            line.resize(line.len().max(place + 1), Value::Null);
            line[place] = value;
        }
    }
}

fn insert(row: &mut Map<String, Value>, column: &str, value: Value) {
    match column.split_once('.') {
        None => drop(row.insert(column.to_owned(), value)),
        Some((first, rest)) => {
            let fields = row.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(fields) = fields {
                insert(fields, rest, value);
            }
        }
    }
}

/// Writes `text` in place of the old file. If the command is interrupted, the file is either the old or the new one.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn replace(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension("new");
        if is_compressed(path) {
            let mut file = GzEncoder::new(fs::File::create(&draft)?, Compression::best());
            file.write_all(text)?;
            file.finish()?;
        } else {
            fs::write(&draft, text)?;
        }
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !is_compressed(path) {
        return fs::read(path);
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(fs::File::open(path)?).read_to_end(&mut text)?;
    Ok(text)
}

fn is_compressed(path: &Path) -> bool {
    path.to_string_lossy().ends_with(COMPRESSED)
}

/// The name of a result's file without its endings; none of another file.
pub fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    name.strip_suffix(COMPRESSED).unwrap_or(&name).strip_suffix(".json").map(str::to_owned)
}

/// Every result in the folders, by name. One in a later folder stands for that of the same name in an earlier one. A
/// folder that does not exist has none.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folders: &[PathBuf]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten() {
        let path = entry?.path();
        found.extend(name_of(&path).map(|name| (name, path)));
    }
    Ok(found)
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`, in UTC.
pub fn stamp(seconds: u64) -> String {
    instant(seconds).strftime("%Y%m%d-%H%M%S").to_string()
}

/// The day of a time, in UTC, as `YYYY-MM-DD`.
pub fn date(seconds: u64) -> String {
    instant(seconds).strftime("%Y-%m-%d").to_string()
}

/// Seconds since 1970 as an instant; if out of the calendar's range, its last instant.
fn instant(seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).ok();
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { kind: "weather".into(), command: "look --at sky".into(), ..Origin::default() }
    }

    #[test]
    fn rows_stand_on_lines_of_their_own_and_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/x-1.json");
        let rows = [
            json!({ "at": "a", "seen": { "rain": 1, "wind": { "speed": 0.1 } } }),
            json!({ "at": "b", "why": null, "by": { "a.b": 1 }, "empty": {}, "list": [null, { "c": 1 }] }),
        ];
        write(&path, &origin(), &json!({ "place": "x" }), &json!(null), &rows).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let end = " \"columns\":[\"at\",\"seen.rain\",\"seen.wind.speed\",\"by\",\"empty\",\"list\"],\n \"rows\":[\n  \
                   [\"a\",1,0.1],\n  [\"b\",null,null,{\"a.b\":1},{},[null,{\"c\":1}]]\n ]\n}\n";
        assert!(text.ends_with(end), "{text}");
        let (of, settings, totals, mut read) =
            ResultFile::of_kind(&path, "weather").unwrap().parts::<Value, (), Value>().unwrap();
        assert_eq!((of, settings, totals), (origin(), json!({ "place": "x" }), ()));
        read[1]["why"] = Value::Null;
        assert_eq!(read, rows);
        assert!(ResultFile::of_kind(&path, "tide").is_err(), "another kind");
    }

    #[test]
    fn files_are_compressed_by_name_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let rows = vec![json!({ "a": "b" }); 1_000];
        for (name, longest) in [("x.json", 20_000), ("x.json.gz", 400)] {
            let path = dir.path().join(name);
            write(&path, &origin(), &(), &(), &rows).unwrap();
            assert!(fs::read(&path).unwrap().len() <= longest, "{name}");
            assert_eq!(ResultFile::read(&path).unwrap().parts::<(), (), Value>().unwrap().3, rows);
            assert_eq!(name_of(&path).as_deref(), Some("x"));
        }
        let path = dir.path().join("x.json.gz");
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 6;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(ResultFile::read(&path).is_err(), "its checksum does not fit");
        let plain = dir.path().join("x.json");
        let text = fs::read_to_string(&plain).unwrap();
        for (from, to) in
            [("\"format\":1", "\"format\":9"), ("[\"b\"]", "[\"b\",1]"), ("\"kind\"", "\"kin\"")]
        {
            fs::write(&plain, text.replacen(from, to, 1)).unwrap();
            assert!(ResultFile::read(&plain).is_err(), "{from}");
        }
    }

    #[test]
    fn a_page_says_what_made_it() {
        let reported = Origin {
            commit: Commit { id: "abc".into(), changed: true },
            machine: Machine { cores: 2, model: "M".into(), kernel: "6.1".into(), ..Machine::default() },
            ..origin()
        };
        assert_eq!(
            reported.made_by(),
            "Made by `crosscheck-lab look --at sky`, commit abc and changes; 2 cores, M, Linux 6.1."
        );
    }

    #[test]
    fn a_later_folder_stands_for_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["kept", "kept/raw", "none"].map(|name| dir.path().join(name));
        fs::create_dir_all(&folders[1]).unwrap();
        assert!(files(&folders).unwrap().is_empty());
        for name in
            ["kept/a-1.json.gz", "kept/b-2.json", "kept/report.md", "kept/raw/a-1.json", "kept/raw/c-3.json"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = files(&folders).unwrap();
        let found: Vec<_> = found.values().map(|path| path.strip_prefix(dir.path()).unwrap()).collect();
        assert_eq!(found, ["kept/raw/a-1.json", "kept/b-2.json", "kept/raw/c-3.json"].map(Path::new));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(date(4_107_542_400), "2100-03-01");
        assert_eq!(date(u64::MAX), "9999-12-30");
    }
}
