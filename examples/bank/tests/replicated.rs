//! The program as an operator runs it: three replicas, a flipped bit in an account, and right replies to clients.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use super::group::{Group, wait_until};

const BANK: &str = env!("CARGO_BIN_EXE_bank");

#[test]
fn a_flipped_bit_in_an_account_is_outvoted_named_and_repaired() {
    let group = Group::up_of(BANK, &[]);
    let mut clients = group.clients();
    assert_eq!(clients.len(), 3);
    assert_eq!(clients[0].ask("OPEN 1 alice 100"), "+OK");
    assert_eq!(clients[1].ask("OPEN 2 bob 50"), "+OK");
    assert_eq!(clients[2].ask("TRANSFER 1 2 30"), "+OK");
    let card = clients[0].ask("CARD 1");
    assert_eq!(clients[1].ask("CARD 1"), card, "every replica has drawn the same");

    let injected =
        group.command(&["inject", "flip", "--replica", "2", "--object", "account:1", "--member", "2"]);
    assert!(injected.contains("balance"), "{injected}");
    for client in &mut clients {
        assert_eq!(client.ask("BALANCE 1"), ":70");
        assert_eq!(client.ask("TOTAL"), ":150");
    }
    let evidence = || group.command(&["evidence"]);
    wait_until("the account is repaired", || evidence().contains("repaired"));
    assert!(evidence().contains("account 1"), "{}", evidence());
    group.wait_until_equal();

    // A value that is wrong on one of three replicas reaches no client by a write either.
    group.command(&["inject", "flip", "--replica", "3", "--object", "account:2", "--member", "2"]);
    assert_eq!(clients[2].ask("TRANSFER 2 1 5"), "+OK");
    assert_eq!(clients[0].ask("BALANCE 2"), ":75");
    group.wait_until_equal();
}

#[test]
fn timers_and_requests_that_wait_run_at_every_replica() {
    let group = Group::up_of(BANK, &[]);
    let mut clients = group.clients();
    assert_eq!(clients[0].ask("OPEN 1 alice 1000"), "+OK");
    assert_eq!(clients[1].ask("OPEN 2 bob 1"), "+OK");
    let mut waits = group.client(1);
    waits.send("PAY 2 1 200 3600");
    assert_eq!(clients[2].ask("PAY 2 1 100 1"), "+NOT_PAID");
    assert_eq!(clients[1].ask("WAITING 2"), ":1");
    assert_eq!(clients[0].ask("DEPOSIT 2 500"), ":501");
    assert_eq!(waits.receive().as_deref(), Some("+PAID"));
    assert_eq!(clients[1].ask("BALANCE 1"), ":1200");
    assert_eq!(clients[0].ask("LINK 1 2"), "+OK");
    assert_eq!(clients[2].ask("SWEEP 1"), ":1200");
    assert_eq!(clients[1].ask("BALANCE 2"), ":1501");
    assert_eq!(clients[1].ask("INTEREST 1000 1"), "+OK");
    wait_until("interest is paid", || clients[1].ask("BALANCE 2") != ":1501");
    assert_eq!(clients[0].ask("INTEREST 0 1"), "+OK");
    group.wait_until_equal();
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}
