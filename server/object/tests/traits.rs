//! Impls of traits compile without a warning, whatever the names of their methods.
#![deny(warnings)]
use object::critical;

/// An object that prints itself.
#[critical]
pub struct Account {
    balance: u64,
}

#[critical]
impl Default for Account {
    fn default() -> Self {
        Self { balance: 0 }
    }
}

#[critical]
impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.balance)
    }
}

#[test]
fn a_critical_impl_of_a_trait_is_used_as_any_other() {
    assert_eq!(Account::default().to_string(), "0");
}
