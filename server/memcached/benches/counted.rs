//! Instructions of one request from decoded command to sealed objects, to be counted by valgrind: time on a machine
//! with other load says little about a change of some hundred instructions.
//!
//! ```text
//! cargo bench -p memcached --bench counted --no-run
//! valgrind --tool=callgrind --toggle-collect='*counted::run_all*' target/release/deps/counted-* get 400 checked 2000
//! ```
//!
//! Arguments: `get` or `set`, the length of the values, `checked`, `kept` (checked, and kept beyond its end) or
//! `plain`, and the number of requests. The instructions that are counted, divided by this number, are those of one.

mod requests;
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use crosscheck::object::Kept;
use memcached::Config;
use requests::{get, set};
use support::Replica;

/// Items in the cache.
const ITEMS: usize = 2_000;

#[inline(never)]
fn run_all(replica: &mut Replica, requests: &[Vec<u8>]) {
    for request in requests {
        black_box(replica.run(request));
        // One that is kept is kept until the next one has ended.
        replica.kept.iter_mut().for_each(Vec::clear);
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [what, value, protect, count] = arguments.as_slice() else {
        println!("get|set LENGTH checked|kept|plain COUNT: nothing is counted without them");
        return;
    };
    let (value, count) = (value.parse().expect("a length"), count.parse::<usize>().expect("a number"));
    let mut replica = Replica::new(Config { shards: 1, ..Config::default() });
    replica.protect = protect != "plain";
    replica.kept = (protect == "kept").then(Vec::<Kept>::new);
    (0..ITEMS).for_each(|number| drop(replica.run(&set(number, value))));
    // Far apart, and each of them twice before it counts.
    let numbers = (0..count).map(|number| number * 7_919 % ITEMS);
    let all: Vec<Vec<u8>> =
        numbers.map(|number| if what == "set" { set(number, value) } else { get(number) }).collect();
    (0..2).for_each(|_| all.iter().for_each(|request| drop(replica.run(request))));
    run_all(&mut replica, &all);
}
