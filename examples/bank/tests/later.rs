//! Payments that wait for money, and their clients with them: replies that come later than their requests, in every
//! mode.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::group::{Group, PATIENCE, wait_until};
use super::resp_client::Client;

const BANK: &str = env!("CARGO_BIN_EXE_bank");

/// Payments wait at every replica, and are paid or given up; replies of one connection keep their order.
fn clients_wait(group: &Group) {
    let mut clients = group.clients();
    assert_eq!(clients[0].ask("OPEN 1 alice 1"), "+OK");
    assert_eq!(clients[0].ask("OPEN 2 bob 1"), "+OK");
    assert_eq!(clients[0].ask("OPEN 9 carol 1"), "+OK");
    for round in 0..5 {
        let replicas = clients.len();
        let mut waiting: Vec<Client> = (1..=replicas).map(|replica| group.client(replica)).collect();
        for client in &mut waiting {
            client.send("PAY 1 2 100 3600").expect("it is connected");
            // Another branch, and behind the payment.
            client.send("BALANCE 9").expect("it is connected");
        }
        let count = replicas.to_string();
        wait_until("all wait", || clients[0].ask("WAITING 1")[1..] == count);
        assert_eq!(clients[round % replicas].ask("PAY 1 2 1000000 1"), "+NOT_PAID");
        for _ in 0..replicas {
            clients[round % replicas].ask("DEPOSIT 1 100");
        }
        for client in &mut waiting {
            assert_eq!(client.receive().as_deref(), Some("+PAID"));
            assert_eq!(client.receive().as_deref(), Some(":1"));
        }
    }
    assert_eq!(clients[0].ask("BALANCE 1"), ":1");
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}

#[test]
fn clients_wait_for_money_in_every_mode() {
    for mode in ["RDGX", "RD00", "R0GV"] {
        let group = Group::up_of(BANK, &["--mode", mode]);
        clients_wait(&group);
        group.wait_until_equal();
    }
    for mode in ["00GT", "0000"] {
        clients_wait(&Group::up_of(BANK, &["--mode", mode, "--replicas", "1"]));
    }
}

#[test]
fn clients_wait_over_the_death_of_any_replica() {
    for mode in ["RDGX", "R0GV"] {
        let group = Group::up_of(BANK, &["--mode", mode]);
        let mut first = group.client(1);
        assert_eq!(first.ask("OPEN 1 alice 1"), "+OK");
        assert_eq!(first.ask("OPEN 2 bob 1"), "+OK");
        drop(first);
        for killed in [1, 2, 3, 1, 2, 3] {
            let others: Vec<usize> = (1..=3).filter(|replica| *replica != killed).collect();
            let mut waiting: Vec<Client> = (1..=3).map(|replica| group.client(replica)).collect();
            let mut payer = group.client(others[0]);
            for client in &mut waiting {
                client.send("PAY 1 2 100 3600").expect("it is connected");
            }
            wait_until("all wait", || payer.ask("WAITING 1") == ":3");
            group.signal(killed, Signal::KILL);
            assert_eq!(waiting[killed - 1].receive(), None, "its replica is gone");
            for _ in 0..3 {
                payer.ask("DEPOSIT 1 100");
            }
            for replica in &others {
                assert_eq!(
                    waiting[replica - 1].receive().as_deref(),
                    Some("+PAID"),
                    "{mode}, {killed} killed"
                );
            }
            group.wait_until_equal();
            assert_eq!(payer.ask("WAITING 1"), ":0", "the payment does not depend on its client");
        }
    }
}

#[test]
fn a_client_that_goes_away_is_forgotten_and_a_replica_stops_although_clients_wait() {
    let mut group = Group::up_of(BANK, &[]);
    let mut first = group.client(1);
    assert_eq!(first.ask("OPEN 1 alice 1"), "+OK");
    assert_eq!(first.ask("OPEN 2 bob 1"), "+OK");
    let mut waits = group.client(2);
    waits.send("PAY 1 2 100 3600").expect("it is connected");
    wait_until("it waits", || first.ask("WAITING 1") == ":1");
    drop(waits);
    let mut second = group.client(2);
    second.send("PAY 1 2 100 3600").expect("it is connected");
    wait_until("both wait", || first.ask("WAITING 1") == ":2");
    assert_eq!(first.ask("DEPOSIT 1 100"), ":101");
    assert_eq!(first.ask("DEPOSIT 1 100"), ":101", "the first payment was made, and its client is gone");
    assert_eq!(second.receive().as_deref(), Some("+PAID"));
    second.send("PAY 1 2 100 3600").expect("it is connected");
    wait_until("it waits", || first.ask("WAITING 1") == ":1");
    thread::sleep(Duration::from_millis(50));
    assert!(group.up.stop(Signal::TERM).is_some_and(|status| status.success()), "within {PATIENCE:?}");
    assert_eq!(second.receive(), None);
}

/// A flipped bit in an account for which a client waits: payments are made once, and no client gets a wrong reply. A
/// replica that has failed at a request which started others has lost them: it is replaced, and its clients with it.
#[test]
fn flips_in_accounts_for_which_clients_wait_reach_no_client() {
    for mode in ["RDGX", "R0GV"] {
        let group = Group::up_of(BANK, &["--mode", mode]);
        let address = |replica: usize| group.address(replica);
        let ask = |replica: usize, command: &str| -> Option<String> {
            Client::try_connect(address(replica)).and_then(|mut client| client.try_ask(command))
        };
        let balance = |of: &str| (1..=3).find_map(|replica| ask(replica, &format!("BALANCE {of}")));
        assert_eq!(ask(1, "OPEN 1 alice 1").as_deref(), Some("+OK"));
        assert_eq!(ask(1, "OPEN 2 bob 1").as_deref(), Some("+OK"));
        let (mut paid, mut replies) = (0, 0);
        for round in 0..12 {
            let waiting: Vec<Client> = (1..=3)
                .filter_map(|replica| {
                    let mut waits = Client::try_connect(address(replica))?;
                    waits.send("PAY 1 2 100 3600")?;
                    Some(waits)
                })
                .collect();
            paid += waiting.len();
            let count = format!(":{}", waiting.len());
            wait_until("they wait", || ask(1 + round % 3, "WAITING 1").as_ref() == Some(&count));
            let (number, seed) = ((1 + (round / 3) % 3).to_string(), round.to_string());
            let flip = ["inject", "flip", "--replica", &number, "--object", "account:1", "--seed", &seed];
            group.command(&flip);
            // One deposit for all; a client whose reply is lost sees by the payments whether it was made.
            let money = format!("DEPOSIT 1 {}", 100 * waiting.len());
            let total = format!(":{}", 1 + 100 * paid);
            let deposited = ask(1 + (round + 1) % 3, &money);
            if deposited.is_none() && balance("2").as_ref() != Some(&total) {
                thread::sleep(Duration::from_secs(1));
                if balance("2").as_ref() != Some(&total) {
                    wait_until("it is deposited", || ask(1 + (round + 2) % 3, &money).is_some());
                }
            }
            wait_until("all are paid", || balance("2").as_ref() == Some(&total));
            for mut client in waiting {
                let reply = client.receive();
                assert!(reply.is_none() || reply.as_deref() == Some("+PAID"), "{mode}, {round}: {reply:?}");
                replies += usize::from(reply.is_some());
            }
            let all_serve = || (1..=3).all(|replica| ask(replica, "BALANCE 1").as_deref() == Some(":1"));
            wait_until("all replicas serve", all_serve);
        }
        assert!(2 * paid <= 3 * replies, "{mode}: {replies} replies to {paid} payments");
        group.wait_until_equal();
    }
}
