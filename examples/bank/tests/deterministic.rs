//! The bank is a function of the log: what every service's tests should begin with.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use bank::{Bank, Request};
use crosscheck::testing::check_deterministic;
use wire::SplitMix64;

/// A log in which requests of all kinds touch the same objects.
fn log(seed: u64, length: usize) -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(seed);
    let mut requests: Vec<Request> = (1..=30)
        .map(|number| Request::Open {
            number,
            owner: format!("owner {number}"),
            amount: 100 * u64::from(number),
        })
        .collect();
    requests.push(Request::Interest { rate: 25, seconds: 3 });
    while requests.len() < length {
        let mut number = || rng.within(1, 32) as u32;
        let (from, to) = (number(), number());
        let amount = rng.within(1, 900);
        requests.push(match rng.below(12) {
            0 | 1 => Request::Deposit { number: to, amount },
            2 => Request::Withdraw { number: from, amount },
            3 | 4 => Request::Transfer { from, to, amount },
            5 => Request::Balance { number: to },
            6 => Request::Total,
            7 => Request::Link { from, to },
            8 => Request::Sweep { from },
            9 | 10 => Request::Pay { from, to, amount: 3 * amount, seconds: rng.within(1, 9) },
            _ => Request::Card { number: to },
        });
    }
    requests.iter().map(Request::encode).collect()
}

#[test]
fn the_bank_is_deterministic() {
    for seed in 0..3 {
        if let Err(difference) = check_deterministic(Bank::new, &log(seed, 400)) {
            panic!("seed {seed}: {difference}");
        }
    }
}
