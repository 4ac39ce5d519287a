//! The format of files in `lab/bench/results`: JSON with a row per line, compressed if the name ends in `.gz`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::Context;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Ending of a compressed file.
pub const COMPRESSED: &str = ".gz";

/// The value as JSON. Values that are nested deeper than `depth` are on one line.
///
/// # Errors
/// When the value cannot be represented in JSON.
pub fn layout(value: &impl Serialize, depth: usize) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Rows { depth, open: 0, is_filled: false }))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes `text` in place of the old file. If the command is interrupted, the file is either the old or the new one.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
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

/// Reads a file.
///
/// # Errors
/// When it cannot be read, or its checksum is wrong.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        if !is_compressed(path) {
            return fs::read(path);
        }
        let mut text = Vec::new();
        MultiGzDecoder::new(fs::File::open(path)?).read_to_end(&mut text)?;
        Ok(text)
    };
    read().with_context(|| format!("reading {}", path.display()))
}

/// The name of a file of results without its endings.
pub fn stem(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let name = name.strip_suffix(COMPRESSED).unwrap_or(&name);
    name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json")).unwrap_or(name).to_owned()
}

fn is_compressed(path: &Path) -> bool {
    path.to_string_lossy().ends_with(COMPRESSED)
}

/// Breaks lines between values that are nested no deeper than `depth`.
struct Rows {
    depth: usize,
    open: usize,
    is_filled: bool,
}

impl Rows {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.open += 1;
        self.is_filled = false;
        writer.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&self, writer: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            writer.write_all(b",")?;
        }
        if self.open <= self.depth { self.new_line(writer, self.open) } else { Ok(()) }
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.is_filled && self.open <= self.depth {
            self.new_line(writer, self.open - 1)?;
        }
        self.open -= 1;
        writer.write_all(bracket)
    }

    fn new_line<W: ?Sized + Write>(&self, writer: &mut W, indent: usize) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..indent).try_for_each(|_| writer.write_all(b" "))
    }
}

impl Formatter for Rows {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_on_lines_of_their_own() {
        let value = json!({ "a": [[1, 2], [3, {"b": []}]], "c": {}, "d": "x" });
        let text = layout(&value, 2).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&text),
            "{\n \"a\":[\n  [1,2],\n  [3,{\"b\":[]}]\n ],\n \"c\":{},\n \"d\":\"x\"\n}\n"
        );
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(layout(&value, 0).unwrap(), (value.to_string() + "\n").into_bytes());
    }

    #[test]
    fn files_are_compressed_by_name_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = "row\n".repeat(1_000).into_bytes();
        for (name, longest) in [("new/x.json", 4_000), ("new/x.json.gz", 100)] {
            let path = dir.path().join(name);
            write(&path, &text).unwrap();
            assert!(fs::read(&path).unwrap().len() <= longest, "{name}");
            assert_eq!(read(&path).unwrap(), text);
            assert_eq!(stem(&path), "x");
        }
        let path = dir.path().join("new/x.json.gz");
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 6;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(read(&path).is_err(), "its checksum does not fit");
        assert_eq!(stem(Path::new("raw/mc.jsonl.gz")), "mc");
    }
}
