//! Only a method that could change something can change hot members, only words are hot, and none of an object with a
//! local copy.

use object::critical;

#[critical]
pub struct Page {
    #[hot]
    views: u32,
}

#[critical]
impl Page {
    #[hot]
    pub fn views(&self) -> u32 {
        *self.views
    }
}

#[critical]
pub struct Long {
    #[hot]
    views: u64,
}

#[critical(copy)]
pub struct Copied {
    #[hot]
    views: u32,
}

fn main() {}
