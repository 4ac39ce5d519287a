//! Only a method that could change something can change hot members, and only words are hot.

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

fn main() {}
