//! Finds what a page of a SQLite file is for: which table or index, which row, which column; for evidence.
//!
//! The file is read page by page through a function that may know some pages only. A page is not trusted, and no more
//! pages are read than the file has, twice: what cannot be found is not told.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use crate::btree::{
    FILE_HEADER, PageKind, PagePart, RecordPart, RowRecord, TreeCell, TreePage, Value, u32_at,
};
use crate::columns::TableColumns;
use crate::database::{MAX_PAGES, PAGE_BYTES};

/// Where the header of a file has how many bytes at the end of each page are not used.
const RESERVED: usize = 20;
/// Where it has the first page of the list of free ones.
const FREE: usize = 32;
/// Entries of the schema that are read.
const MAX_TREES: usize = 10_000;
/// Bytes of a record that are read from other pages than its own.
const MAX_RECORD: usize = 1 << 20;

/// A table or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaTree {
    /// Whether it is an index.
    pub is_index: bool,
    /// Its name.
    pub name: String,
    /// The name of its table.
    pub table: String,
    /// The page at its top, from 1.
    pub root: u32,
    /// The columns, of a table.
    pub columns: Option<TableColumns>,
}

/// A SQLite file, to look into.
pub struct Catalog<'a> {
    page: &'a dyn Fn(u32) -> Option<Vec<u8>>,
    usable: usize,
    /// Pages that may still be read.
    left: Cell<u32>,
    trees: OnceCell<Vec<SchemaTree>>,
}

/// Where a row is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// The page, from 1.
    pub number: u32,
    /// Its bytes there: of its values if they are in that page.
    pub bytes: Range<usize>,
}

impl<'a> Catalog<'a> {
    /// The file whose pages, from number 1 on, `page` returns. None if it has no first page.
    pub fn of(page: &'a dyn Fn(u32) -> Option<Vec<u8>>) -> Option<Self> {
        let first = page(1)?;
        let count = u32_at(&first, 28)?.min(MAX_PAGES);
        let usable = PAGE_BYTES.checked_sub(usize::from(*first.get(RESERVED)?))?;
        let left = Cell::new(2 * count + 16);
        Some(Catalog { page, usable, left, trees: OnceCell::new() })
    }

    fn read(&self, number: u32) -> Option<Vec<u8>> {
        self.left.set(self.left.get().checked_sub(1)?);
        (self.page)(number)
    }

    fn parse<'b>(&self, number: u32, bytes: &'b [u8]) -> Option<TreePage<'b>> {
        TreePage::parse(bytes, number, self.usable)
    }

    /// Shows every page of a tree that can be read, in the order of keys, until it returns false.
    fn walk(&self, root: u32, see: &mut dyn FnMut(u32, &TreePage<'_>) -> bool) {
        let mut waiting = vec![root];
        while let Some(number) = waiting.pop() {
            let Some(bytes) = self.read(number) else { continue };
            let Some(page) = self.parse(number, &bytes) else { continue };
            if !see(number, &page) {
                return;
            }
            waiting.extend(page.children().into_iter().rev());
        }
    }

    /// All of a record, as far as it can be read.
    fn whole(&self, cell: &TreeCell<'_>) -> Vec<u8> {
        let mut bytes = cell.local_bytes().to_vec();
        let length = usize::try_from(cell.length).map_or(MAX_RECORD, |length| length.min(MAX_RECORD));
        let mut next = cell.overflow.unwrap_or(0);
        while bytes.len() < length && next != 0 {
            let Some(page) = self.read(next) else { break };
            let Some(part) = page.get(4..self.usable) else { break };
            bytes.extend_from_slice(&part[..part.len().min(length - bytes.len())]);
            next = u32_at(&page, 0).unwrap_or(0);
        }
        bytes
    }

    /// The schema itself, and all tables and indexes that are in it.
    fn trees(&self) -> &[SchemaTree] {
        self.trees.get_or_init(|| {
            let mut trees = vec![SchemaTree {
                is_index: false,
                name: "sqlite_schema".to_owned(),
                table: "sqlite_schema".to_owned(),
                root: 1,
                columns: TableColumns::of("CREATE TABLE x(type, name, tbl_name, rootpage, sql)"),
            }];
            self.walk(1, &mut |_, page| {
                trees.extend(page.cells().filter_map(|cell| tree_of(&self.whole(&cell))));
                trees.len() < MAX_TREES
            });
            trees
        })
    }

    /// The table of that name.
    fn table(&self, name: &str) -> Option<&SchemaTree> {
        self.trees().iter().find(|tree| !tree.is_index && tree.name.eq_ignore_ascii_case(name))
    }

    /// Whether the way to a key leads through a page.
    fn leads_to(&self, root: u32, key: i64, number: u32) -> bool {
        let mut next = Some(root);
        while let Some(here) = next {
            if here == number {
                return true;
            }
            let Some(bytes) = self.read(here) else { return false };
            next = self
                .parse(here, &bytes)
                .filter(|page| !page.kind().is_leaf())
                .and_then(|page| page.child_of(key));
        }
        false
    }

    /// Whether a page is in a tree. Its leaves are not read: all of them are equally deep.
    fn has(&self, root: u32, number: u32, kind: PageKind) -> bool {
        let mut level = vec![root];
        while !level.is_empty() {
            if level.contains(&number) {
                return true;
            }
            let mut below = Vec::new();
            for here in level {
                let Some(bytes) = self.read(here) else { continue };
                let Some(page) = self.parse(here, &bytes) else { return false };
                if page.kind().is_leaf() || page.kind().is_of_table() != kind.is_of_table() {
                    return false;
                }
                below.extend(page.children());
            }
            level = below;
        }
        false
    }

    /// The tree that a page of a tree is in.
    fn owner(&self, number: u32, page: &TreePage<'_>) -> Option<&SchemaTree> {
        let trees = self.trees();
        if let Some(tree) = trees.iter().find(|tree| tree.root == number) {
            return Some(tree);
        }
        let key = page.cells().next().and_then(|cell| cell.rowid);
        trees.iter().find(|tree| match key {
            Some(key) => !tree.is_index && self.leads_to(tree.root, key, number),
            None => self.has(tree.root, number, page.kind()),
        })
    }

    /// What a page is that is not in use; none if it is.
    fn free(&self, number: u32) -> Option<&'static str> {
        let mut trunk = u32_at(&self.read(1)?, FREE)?;
        while trunk != 0 {
            if trunk == number {
                return Some("a page of the list of free pages");
            }
            let bytes = self.read(trunk)?;
            let count = u32_at(&bytes, 4)?.min(PAGE_BYTES as u32 / 4);
            if (0..count as usize).any(|place| u32_at(&bytes, 8 + 4 * place) == Some(number)) {
                return Some("a free page");
            }
            trunk = u32_at(&bytes, 0)?;
        }
        None
    }

    /// Whose long value a page has a part of.
    fn overflowing(&self, number: u32) -> Option<String> {
        let mut found = None;
        for tree in self.trees() {
            self.walk(tree.root, &mut |_, page| {
                let has = |cell: &TreeCell<'_>| {
                    let mut next = cell.overflow.unwrap_or(0);
                    while next != 0 && next != number {
                        next = self.read(next).and_then(|page| u32_at(&page, 0)).unwrap_or(0);
                    }
                    next == number
                };
                found = page
                    .cells()
                    .find(has)
                    .map(|cell| format!("{}, {}", named(tree), self.key_of(tree, &cell)));
                found.is_none()
            });
            if found.is_some() {
                break;
            }
        }
        found
    }

    /// What the byte at `offset` of a page means, of which these are the right bytes.
    pub fn meaning(&self, number: u32, bytes: &[u8], offset: usize) -> String {
        if number == 1 && offset < FILE_HEADER {
            return "the header of the file".to_owned();
        }
        if let Some(free) = self.free(number) {
            return free.to_owned();
        }
        let Some(page) = self.parse(number, bytes) else {
            let found = self.overflowing(number);
            return found
                .map_or("a page of unknown use".to_owned(), |row| format!("{row}, a part of a long value"));
        };
        let tree = self.owner(number, &page);
        let called = match tree {
            Some(tree) => named(tree),
            None if page.kind().is_of_table() => "an unknown table".to_owned(),
            None => "an unknown index".to_owned(),
        };
        let inner = if page.kind().is_leaf() { "" } else { "an inner page, " };
        let cell = |index| page.cell(index).map(|cell| self.entry(tree, &page, &cell));
        let what = match page.part_at(offset) {
            PagePart::FileHeader | PagePart::Header => "the header of the page".to_owned(),
            PagePart::Unused => "unused space of the page".to_owned(),
            PagePart::Pointer(index) => {
                format!("the place of {}", cell(index).unwrap_or_else(|| "an entry".to_owned()))
            }
            PagePart::Cell(index) => page.cell(index).map_or("an entry".to_owned(), |cell| {
                format!("{}{}", self.entry(tree, &page, &cell), self.part_of(tree, &page, &cell, offset))
            }),
        };
        format!("{called}, {inner}{what}")
    }

    /// A row, an entry of an index, or a way to rows.
    fn entry(&self, tree: Option<&SchemaTree>, page: &TreePage<'_>, cell: &TreeCell<'_>) -> String {
        match (page.kind(), tree) {
            (PageKind::InnerTable, _) => format!("the way to rows up to {}", cell.rowid.unwrap_or(0)),
            (_, Some(tree)) => self.key_of(tree, cell),
            (_, None) => match cell.rowid {
                Some(rowid) => format!("rowid {rowid}"),
                None => "an entry".to_owned(),
            },
        }
    }

    /// The key of a row or an entry.
    fn key_of(&self, tree: &SchemaTree, cell: &TreeCell<'_>) -> String {
        let record = RowRecord::parse(cell.local_bytes());
        if tree.is_index {
            let table = self.table(&tree.table).and_then(|table| table.columns.as_ref());
            let is_rowid = table.is_some_and(|columns| !columns.is_without_rowid && !columns.key_is_rowid);
            let key = record.as_ref().and_then(RowRecord::last);
            let key = key.map(|key| key.to_string()).or_else(|| {
                let whole = self.whole(cell);
                Some(RowRecord::parse(&whole)?.last()?.to_string())
            });
            let word = if is_rowid { "rowid" } else { "key" };
            return key.map_or("an entry".to_owned(), |key| format!("an entry of {word} {key}"));
        }
        if tree.root == 1 {
            let name = record.as_ref().and_then(|record| record.value(1)?.text());
            return name.map_or("an entry".to_owned(), |name| format!("the entry of {name}"));
        }
        let columns = tree.columns.as_ref();
        let is_alias = columns.is_some_and(|columns| columns.key_is_rowid);
        match (cell.rowid, columns.zip(record.as_ref())) {
            (Some(rowid), _) if is_alias => format!("key {rowid}"),
            (rowid, Some((columns, record))) if !columns.key.is_empty() => {
                let values: Option<Vec<String>> =
                    columns.key.iter().map(|column| Some(record.value(*column)?.to_string())).collect();
                match (values, rowid) {
                    (Some(values), _) => format!("key {}", values.join(", ")),
                    (None, Some(rowid)) => format!("rowid {rowid}"),
                    (None, None) => "a row".to_owned(),
                }
            }
            (Some(rowid), _) => format!("rowid {rowid}"),
            (None, _) => "a row".to_owned(),
        }
    }

    /// What of a cell the byte at `offset` of its page is.
    fn part_of(
        &self,
        tree: Option<&SchemaTree>,
        page: &TreePage<'_>,
        cell: &TreeCell<'_>,
        offset: usize,
    ) -> String {
        if page.kind() == PageKind::InnerTable || tree.is_some_and(|tree| tree.is_index) {
            return String::new();
        }
        if cell.rowid_at.contains(&offset) {
            return ", the key itself".to_owned();
        }
        if cell.child.is_some() && offset < cell.range.start + 4 {
            return ", the place of the page before it".to_owned();
        }
        if offset >= cell.local.end {
            return ", the place of the rest of the row".to_owned();
        }
        let part = offset
            .checked_sub(cell.local.start)
            .and_then(|offset| Some(RowRecord::parse(cell.local_bytes())?.part_at(offset)));
        let name = |column: usize| {
            let columns = tree.and_then(|tree| tree.columns.as_ref());
            let name = columns.and_then(|columns| columns.stored.get(column));
            name.map_or(format!("number {}", column + 1), Clone::clone)
        };
        match part {
            Some(RecordPart::ValueOf(column)) => format!(", column {}", name(column)),
            Some(RecordPart::TypeOf(column)) => format!(", the type of column {}", name(column)),
            Some(RecordPart::Header) | None => ", a length".to_owned(),
        }
    }

    /// Where the row of a table is: with that number as its key, or that text as the first column of its primary key
    /// or of its first index.
    pub fn find_row(&self, table: &str, key: &str) -> Option<RowPlace> {
        let tree = self.table(table)?;
        let columns = tree.columns.as_ref()?;
        if columns.is_without_rowid {
            return self.find_entry(tree.root, key).map(|(place, _)| place);
        }
        let is_text_key = !columns.key.is_empty() && !columns.key_is_rowid;
        if let Some(rowid) = key.parse().ok().filter(|_| !is_text_key) {
            return self.find_rowid(tree.root, rowid);
        }
        let index = self
            .trees()
            .iter()
            .find(|index| index.is_index && index.table.eq_ignore_ascii_case(&tree.name))?;
        let (_, rowid) = self.find_entry(index.root, key)?;
        self.find_rowid(tree.root, rowid?)
    }

    fn find_rowid(&self, root: u32, rowid: i64) -> Option<RowPlace> {
        let mut number = root;
        loop {
            let bytes = self.read(number)?;
            let page = self.parse(number, &bytes)?;
            if page.kind() == PageKind::LeafTable {
                let cell = page.cells().find(|cell| cell.rowid == Some(rowid))?;
                return Some(RowPlace { number, bytes: values_of(&cell) });
            }
            number = page.child_of(rowid)?;
        }
    }

    /// The entry of an index whose first column is `key`, and the row id that is its last one.
    fn find_entry(&self, root: u32, key: &str) -> Option<(RowPlace, Option<i64>)> {
        let mut found = None;
        self.walk(root, &mut |number, page| {
            for cell in page.cells() {
                let whole = self.whole(&cell);
                let Some(record) = RowRecord::parse(&whole) else { continue };
                let is_it = match record.value(0) {
                    Some(Value::Text(bytes)) => bytes == key.as_bytes(),
                    Some(Value::Integer(number)) => key.parse() == Ok(number),
                    _ => false,
                };
                if is_it {
                    let rowid = record.last().and_then(|value| value.integer());
                    found = Some((RowPlace { number, bytes: values_of(&cell) }, rowid));
                    return false;
                }
            }
            true
        });
        found
    }
}

/// The bytes of a row's values in its page; if there are none, of all of its cell.
fn values_of(cell: &TreeCell<'_>) -> Range<usize> {
    let start = RowRecord::parse(cell.local_bytes()).map(|record| cell.local.start + record.values_start());
    match start {
        Some(start) if start < cell.local.end => start..cell.local.end,
        _ => cell.range.clone(),
    }
}

fn named(tree: &SchemaTree) -> String {
    match tree {
        SchemaTree { root: 1, .. } => "the schema".to_owned(),
        SchemaTree { is_index: true, name, .. } => format!("index {name}"),
        SchemaTree { name, .. } => format!("table {name}"),
    }
}

/// A table or an index by its row in the schema. Views and triggers have no pages.
fn tree_of(record: &[u8]) -> Option<SchemaTree> {
    let record = RowRecord::parse(record)?;
    let text = |column| record.value(column).and_then(|value| value.text().map(str::to_owned));
    let is_index = match text(0)?.as_str() {
        "table" => false,
        "index" => true,
        _ => return None,
    };
    let root = u32::try_from(record.value(3)?.integer()?).ok().filter(|root| *root > 1)?;
    let columns = if is_index { None } else { text(4).as_deref().and_then(TableColumns::of) };
    Some(SchemaTree { is_index, name: text(1)?, table: text(2)?, root, columns })
}
