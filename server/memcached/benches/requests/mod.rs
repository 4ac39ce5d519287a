//! The requests of the benchmarks: keys of 100 bytes, as in the paper.
#![allow(dead_code, reason = "a benchmark uses a part of this")]

use memcached::command::{Command, Key, StoreMode, encode};

/// Length of every key, in bytes.
pub const KEY: usize = 100;

fn key(number: usize) -> Key {
    Key::new(format!("{number:0>KEY$}").as_bytes()).expect("a valid key")
}

pub fn set(number: usize, value: usize) -> Vec<u8> {
    encode(&Command::Store {
        mode: StoreMode::Set,
        key: key(number),
        flags: 0,
        expiry: 0,
        unique: 0,
        value: vec![b'v'; value].into(),
        quiet: false,
    })
}

pub fn get(number: usize) -> Vec<u8> {
    encode(&Command::Get { keys: [key(number)].into(), with_unique: false, touch: None })
}
