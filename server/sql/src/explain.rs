//! Pages in the words of those who wrote rows into them: for the evidence of a repair.

use crosscheck::object::{Members, ObjectId, Reader};
use crosscheck::RepairedObject;

use crate::catalog::Catalog;

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
