//! Another module cannot even name the members.
mod bank {
    use object::critical;
    #[critical]
    pub struct Account {
        balance: u64,
    }
    #[critical]
    impl Account {
        pub fn new() -> Self {
            Self { balance: 0 }
        }
    }
}

fn main() {
    let account = bank::Account::new();
    let _ = account.balance;
    let _ = account.__needs_critical_on_the_impl;
    let members = object::Critical::protected(&account).read();
    let _ = members.balance;
}
