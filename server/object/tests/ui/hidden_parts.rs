//! Parts that the macro hides cannot be reached by their names either.
use object::critical;
use object::hidden::Header;

#[critical]
pub struct Account {
    balance: u64,
}

#[critical]
impl Account {
    pub fn new() -> Self {
        Self { balance: 0 }
    }
    /// Another account is another object: it has its own check, and only its methods run it.
    pub fn more_than(&self, other: &Account) -> bool {
        self.balance > other.balance
    }
    pub fn disguise(&mut self) {
        self.__header.sum = 0;
    }
}

fn main() {
    let account = Account::new();
    let _ = account.__needs_critical_on_the_impl.members.balance;
    let _ = Header { id: account.object_id(), sum: 0 };
    let _ = account.__needs_critical_on_the_impl.header();
}
