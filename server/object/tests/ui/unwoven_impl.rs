//! Methods without the check do not reach the members, not even in the same module.
use object::critical;

#[critical]
pub struct Account {
    balance: u64,
}

impl Account {
    pub fn peek(&self) -> u64 {
        self.balance
    }
    pub fn forge(balance: u64) -> Self {
        Self { balance }
    }
}

fn peek(account: &Account) -> u64 {
    let Account { balance } = account;
    *balance
}

fn main() {}
