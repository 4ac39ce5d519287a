//! Pages in the words of those who wrote rows into them: for the evidence of a repair, and to damage a row on purpose.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crosscheck::object::{Members, ObjectId, Reader};
use crosscheck::{ObjectPart, RepairedObject};

use crate::database::Database;
use crate::trees::{Catalog, RowPlace};

/// Number of the member of a page that has its bytes, and the bits of their number in front of them.
const BYTES: u8 = 1;
const COUNT_BITS: u64 = 32;

/// What the first byte that was wrong in a page means; none for another object.
pub fn page(repaired: &RepairedObject<'_>) -> Option<String> {
    if repaired.right.class != "Page" {
        return None;
    }
    let (wrong, right) = (bytes_of(&repaired.wrong)?, bytes_of(&repaired.right)?);
    let offset = wrong.iter().zip(right).position(|(wrong, right)| wrong != right)?;
    let number = Reader::new(repaired.right.get("number")?).u32().ok()?;
    let page = |number: u32| {
        let id = ObjectId::numbered(repaired.root(), number.checked_sub(1)?);
        repaired.look_at(id, |members| bytes_of(members).map(<[u8]>::to_vec))?
    };
    Some(Catalog::of(&page)?.meaning(number.checked_add(1)?, right, offset))
}

fn bytes_of<'a>(page: &Members<'a>) -> Option<&'a [u8]> {
    page.byte_string("bytes")
}

/// Where a row is, by `TABLE:KEY`; none if a page on the way to it is lost.
pub fn row(database: &Database, name: &str) -> Option<RowPlace> {
    let (table, key) = name.split_once(':')?;
    let page = |number: u32| database.page(number.checked_sub(1)?).map(<[u8]>::to_vec);
    // A page that is missing unwinds, and outside of a request nothing would catch it.
    let found = catch_unwind(AssertUnwindSafe(|| Catalog::of(&page)?.find_row(table, key)));
    found.ok().flatten()
}

/// The part of its page that a row is.
pub fn part_of_row(database: &Database, name: &str) -> Option<ObjectPart> {
    let bytes = row(database, name)?.bytes;
    let bit = |byte: usize| COUNT_BITS + 8 * byte as u64;
    Some(ObjectPart { member: BYTES, bits: bit(bytes.start)..bit(bytes.end) })
}
