//! Impls of traits compile without a warning, whatever the names of their methods.
#![deny(warnings)]
use object::{Kinds, critical};

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

/// Requests of all shapes.
#[derive(Kinds)]
#[allow(dead_code, reason = "only their kinds count")]
enum Request {
    Open { number: u32 },
    SetInterest(u32),
    Total,
}

#[test]
fn requests_have_numbers_from_one_and_the_names_of_their_variants() {
    let requests = [Request::Open { number: 7 }, Request::SetInterest(3), Request::Total];
    let named = requests.map(|request| (request.kind(), Request::kind_name(request.kind())));
    assert_eq!(named, [(1, Some("open")), (2, Some("set_interest")), (3, Some("total"))]);
    assert_eq!((Request::kind_name(0), Request::kind_name(4)), (None, None));
}
