//! A method that changes hot members cannot change others.

use object::critical;

#[critical]
pub struct Page {
    text: Vec<u8>,
    #[hot]
    views: u32,
}

#[critical]
impl Page {
    #[hot]
    pub fn edit(&mut self) {
        *self.views += 1;
        self.text.push(7);
    }
}

fn main() {}
