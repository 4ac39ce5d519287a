//! Runs Rust's client libraries of `table.toml`; `lab/clients/python/harness.py` tells the command line and the output.

mod checks;
mod libraries;
mod pairs;

use std::time::Duration;

/// What a call may say: whether it had an effect, or an error that says something else than "not there".
pub type Said<T> = Result<T, String>;

/// An adapter of a library. A call that the library lacks says `None`, and its check is not made.
pub trait Library {
    /// Stores for so many seconds; 0 is for ever.
    fn set(&mut self, key: &str, value: &[u8], seconds: u32) -> Said<bool>;
    /// The value; `None` where there is none.
    fn get(&mut self, key: &str) -> Said<Option<Vec<u8>>>;
    /// The values that are there, with their keys.
    fn get_many(&mut self, keys: &[&str]) -> Said<Vec<(String, Vec<u8>)>>;
    /// Whether the key was there.
    fn delete(&mut self, key: &str) -> Said<bool>;
    /// The counter after `delta`; `None` where there is none.
    fn count(&mut self, key: &str, delta: i64) -> Said<Option<u64>>;
    /// One of `add`, `replace`, `append`, `prepend`.
    fn store(&mut self, how: &str, key: &str, value: &[u8]) -> Option<Said<bool>>;
    /// Whether the key was there and lives so many seconds from now.
    fn touch(&mut self, key: &str, seconds: u32) -> Option<Said<bool>>;
    /// The unique number of the value.
    fn gets(&mut self, key: &str) -> Option<Said<u64>>;
    /// Stores if the value still has this unique number.
    fn cas(&mut self, key: &str, value: &[u8], unique: u64) -> Said<bool>;
    /// What the server says that it is.
    fn version(&mut self) -> Said<String>;
    /// Drops all items.
    fn flush(&mut self) -> Said<()>;
    /// Whether `store` tells "not stored" from "stored".
    fn distinguishes(&self) -> bool {
        true
    }
    /// What a counter that is not there has after it was counted.
    fn new_counter(&self) -> Option<u64> {
        None
    }
    /// Whether keys may have any bytes but white space and control characters.
    fn has_unicode_keys(&self) -> bool {
        true
    }
}

/// Makes an adapter for these servers.
pub type Make = fn(&[String]) -> Box<dyn Library>;

/// The key of this run for `name`.
pub fn key(name: &str) -> String {
    format!("rs-{}-{name}", std::process::id())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(name), Some(action), Some(servers)) = (arguments.first(), arguments.get(1), arguments.last())
    else {
        eprintln!("usage: run LIBRARY checks|loop SECONDS HOST:PORT,HOST:PORT,...");
        std::process::exit(2);
    };
    let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    let (version, make) = libraries::find(name);
    println!("version\t{version}");
    if action == "checks" {
        checks::run(make, &servers);
    } else {
        let seconds = arguments[2].parse().expect("a number of seconds");
        pairs::Pairs::new(make(&servers)).run(Duration::from_secs_f64(seconds));
    }
}
