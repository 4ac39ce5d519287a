//! Shared code of the cluster tests: clusters of real processes, a load that checks every byte, and external programs.

pub mod cluster;
mod free_port;
pub mod stock;

/// A size of a long test: the number in the environment variable `name`, else `long` with `CROSSCHECK_LONG`,
/// else `short`.
pub fn size(name: &str, short: u64, long: u64) -> u64 {
    let given = std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    given.unwrap_or(if std::env::var_os("CROSSCHECK_LONG").is_some() { long } else { short })
}
