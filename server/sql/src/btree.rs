//! SQLite's file format, as far as it takes to say what a byte of a page means; for evidence, not for answers.
//!
//! It is total: any bytes may be a page, and whatever does not fit is None.

use std::fmt;
use std::ops::Range;

/// Bytes of the file's header, in front of the header of page 1.
pub const FILE_HEADER: usize = 100;
/// Characters of a value that are shown.
const SHOWN: usize = 40;

/// The bytes from `at` on, as many as the number has.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// A number of two bytes.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    array(bytes, at).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
}

/// A number of four bytes: mostly that of a page, from 1.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

/// A number of one to nine bytes, seven bits in each but the ninth, and how many bytes it has.
pub fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for length in 1..=9 {
        let byte = *bytes.get(at + length - 1)?;
        if length == 9 {
            return Some((value << 8 | u64::from(byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, length));
        }
    }
    None
}

/// What the cells of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Entries of an index, with pages between them.
    InnerIndex,
    /// Pages, and the keys up to which their rows are.
    InnerTable,
    /// Entries of an index.
    LeafIndex,
    /// Rows.
    LeafTable,
}

impl PageKind {
    /// Whether no page is below.
    pub fn is_leaf(self) -> bool {
        matches!(self, PageKind::LeafIndex | PageKind::LeafTable)
    }

    /// Whether it is of a table with row ids.
    pub fn is_of_table(self) -> bool {
        matches!(self, PageKind::InnerTable | PageKind::LeafTable)
    }
}

/// A page of a b-tree.
#[derive(Clone, Copy, Debug)]
pub struct TreePage<'a> {
    bytes: &'a [u8],
    /// Where its header is.
    header: usize,
    usable: usize,
    kind: PageKind,
}

/// What a byte of a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// The header of the file, in page 1.
    FileHeader,
    /// The header of the page.
    Header,
    /// Where the cell with this number is.
    Pointer(usize),
    /// The cell with this number.
    Cell(usize),
    /// Nothing.
    Unused,
}

impl<'a> TreePage<'a> {
    /// The page with this number, from 1, in a file that uses so many bytes of each.
    pub fn parse(bytes: &'a [u8], number: u32, usable: usize) -> Option<Self> {
        let header = if number == 1 { FILE_HEADER } else { 0 };
        let kind = match bytes.get(header)? {
            2 => PageKind::InnerIndex,
            5 => PageKind::InnerTable,
            10 => PageKind::LeafIndex,
            13 => PageKind::LeafTable,
            _ => return None,
        };
        (bytes.len() >= usable).then_some(TreePage { bytes, header, usable, kind })
    }

    /// What its cells are.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    fn pointers(&self) -> usize {
        self.header + if self.kind.is_leaf() { 8 } else { 12 }
    }

    /// How many cells it has; not more than have room.
    pub fn count(&self) -> usize {
        u16_at(self.bytes, self.header + 3).unwrap_or(0).min(self.bytes.len() / 2)
    }

    /// A cell, by its place in the order of keys.
    pub fn cell(&self, index: usize) -> Option<TreeCell<'a>> {
        if index >= self.count() {
            return None;
        }
        TreeCell::parse(self, u16_at(self.bytes, self.pointers() + 2 * index)?)
    }

    /// All cells that can be read.
    pub fn cells(&self) -> impl Iterator<Item = TreeCell<'a>> {
        (0..self.count()).filter_map(|index| self.cell(index))
    }

    /// The pages below, in the order of keys.
    pub fn children(&self) -> Vec<u32> {
        if self.kind.is_leaf() {
            return Vec::new();
        }
        self.cells().filter_map(|cell| cell.child).chain(u32_at(self.bytes, self.header + 8)).collect()
    }

    /// The page below that has a key, in a table.
    pub fn child_of(&self, key: i64) -> Option<u32> {
        let cell = self.cells().find(|cell| cell.rowid.is_some_and(|last| key <= last));
        cell.and_then(|cell| cell.child).or_else(|| u32_at(self.bytes, self.header + 8))
    }

    /// What a byte belongs to.
    pub fn part_at(&self, offset: usize) -> PagePart {
        let pointers = self.pointers();
        if offset < self.header {
            return PagePart::FileHeader;
        }
        if offset < pointers {
            return PagePart::Header;
        }
        if offset < pointers + 2 * self.count() {
            return PagePart::Pointer((offset - pointers) / 2);
        }
        let holds = |index: &usize| self.cell(*index).is_some_and(|cell| cell.range.contains(&offset));
        (0..self.count()).find(holds).map_or(PagePart::Unused, PagePart::Cell)
    }
}

/// A cell: a row, an entry of an index, or a page below with its last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeCell<'a> {
    /// Its bytes in the page.
    pub range: Range<usize>,
    /// The page with the keys before it.
    pub child: Option<u32>,
    /// The key of a row.
    pub rowid: Option<i64>,
    /// Where in the page the key of a row is.
    pub rowid_at: Range<usize>,
    /// Where in the page the first bytes of its record are.
    pub local: Range<usize>,
    /// The first page of those that have the other ones.
    pub overflow: Option<u32>,
    /// Bytes of the whole record.
    pub length: u64,
    bytes: &'a [u8],
}

impl<'a> TreeCell<'a> {
    fn parse(page: &TreePage<'a>, start: usize) -> Option<Self> {
        let (bytes, kind) = (page.bytes, page.kind);
        let mut at = start;
        let child = if kind.is_leaf() { None } else { Some(u32_at(bytes, at)?) };
        at += if kind.is_leaf() { 0 } else { 4 };
        let mut length = 0;
        if kind != PageKind::InnerTable {
            let (number, bytes) = varint(bytes, at)?;
            length = number;
            at += bytes;
        }
        let (mut rowid, mut rowid_at) = (None, at..at);
        if kind.is_of_table() {
            let (number, bytes) = varint(bytes, at)?;
            (rowid, rowid_at) = (Some(number as i64), at..at + bytes);
            at += bytes;
        }
        let here = local_bytes(length, page.usable, kind)?;
        let local = at..at + here;
        let is_whole = here as u64 == length;
        let overflow = if is_whole { None } else { Some(u32_at(bytes, local.end)?) };
        // SQLite gives no cell less than four bytes.
        let end = (local.end + if is_whole { 0 } else { 4 }).max(start + 4);
        (end <= page.usable).then_some(TreeCell {
            range: start..end,
            child,
            rowid,
            rowid_at,
            local,
            overflow,
            length,
            bytes,
        })
    }

    /// The first bytes of its record.
    pub fn local_bytes(&self) -> &'a [u8] {
        self.bytes.get(self.local.clone()).unwrap_or_default()
    }
}

/// How many bytes of a record are in its page.
fn local_bytes(length: u64, usable: usize, kind: PageKind) -> Option<usize> {
    let usable = usable as u64;
    let share = |part: u64| (usable.checked_sub(12)? * part / 255).checked_sub(23);
    let most = if kind == PageKind::LeafTable { usable.checked_sub(35)? } else { share(64)? };
    if length <= most {
        return usize::try_from(length).ok();
    }
    let least = share(32)?;
    let some = least + (length - least) % usable.checked_sub(4)?;
    usize::try_from(if some <= most { some } else { least }).ok()
}

/// A record: the columns of a row, or of an entry of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRecord<'a> {
    bytes: &'a [u8],
    columns: Vec<RecordColumn>,
    /// Bytes of its header.
    header: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordColumn {
    serial: u64,
    /// Where its type is in the record.
    type_at: Range<usize>,
    /// Where its value is in the record.
    value_at: Range<u64>,
}

/// What a byte of a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart {
    /// The number of bytes of its header.
    Header,
    /// The type of a column.
    TypeOf(usize),
    /// The value of a column.
    ValueOf(usize),
}

impl<'a> RowRecord<'a> {
    /// Reads a record of which these are the first bytes.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, mut at) = varint(bytes, 0)?;
        let header = usize::try_from(header).ok()?;
        let mut value = header as u64;
        let mut columns = Vec::new();
        while at < header.min(bytes.len()) {
            let Some((serial, length)) = varint(bytes, at) else { break };
            let end = value.checked_add(value_bytes(serial))?;
            columns.push(RecordColumn { serial, type_at: at..at + length, value_at: value..end });
            at += length;
            value = end;
        }
        Some(RowRecord { bytes, columns, header })
    }

    /// How many columns it has.
    pub fn count(&self) -> usize {
        self.columns.len()
    }

    /// Where its values begin.
    pub fn values_start(&self) -> usize {
        self.header
    }

    /// The value of a column, if all of it is here.
    pub fn value(&self, column: usize) -> Option<Value<'a>> {
        let RecordColumn { serial, value_at, .. } = self.columns.get(column)?;
        let bytes =
            self.bytes.get(usize::try_from(value_at.start).ok()?..usize::try_from(value_at.end).ok()?)?;
        Value::parse(*serial, bytes)
    }

    /// The value of the last column.
    pub fn last(&self) -> Option<Value<'a>> {
        self.value(self.count().checked_sub(1)?)
    }

    /// What a byte belongs to.
    pub fn part_at(&self, offset: usize) -> RecordPart {
        for (number, column) in self.columns.iter().enumerate() {
            if column.type_at.contains(&offset) {
                return RecordPart::TypeOf(number);
            }
            if column.value_at.contains(&(offset as u64)) {
                return RecordPart::ValueOf(number);
            }
        }
        RecordPart::Header
    }
}

/// Bytes of a value of this type.
fn value_bytes(serial: u64) -> u64 {
    match serial {
        0 | 8..=11 => 0,
        1..=4 => serial,
        5 => 6,
        6 | 7 => 8,
        _ => (serial - 12) / 2,
    }
}

/// A value in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text, as the file encodes it.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    fn parse(serial: u64, bytes: &'a [u8]) -> Option<Self> {
        Some(match serial {
            0 => Value::Null,
            1..=6 => {
                let negative = bytes.first()? & 0x80 != 0;
                let start = if negative { -1 } else { 0 };
                Value::Integer(bytes.iter().fold(start, |number, byte| number << 8 | i64::from(*byte)))
            }
            7 => Value::Real(f64::from_be_bytes(array(bytes, 0)?)),
            8 | 9 => Value::Integer(serial as i64 - 8),
            10 | 11 => return None,
            _ if serial.is_multiple_of(2) => Value::Blob(bytes),
            _ => Value::Text(bytes),
        })
    }

    /// The text, if it is one in UTF-8.
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Value<'_> {
    /// As in SQL, shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => write!(f, "NULL"),
            Value::Integer(number) => write!(f, "{number}"),
            Value::Real(number) => write!(f, "{number:?}"),
            Value::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let shown: String = text.chars().take(SHOWN).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                write!(f, "'{shown}'{more}")
            }
            Value::Blob(bytes) => {
                let shown = bytes.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}"));
                let more = if bytes.len() > SHOWN / 2 { "..." } else { "" };
                write!(f, "x'{}'{more}", shown.collect::<String>())
            }
        }
    }
}
