//! The authoritative DNS servers beside targets that are resolvers: two for all runs of this process. They keep no
//! state, so that no run can change what another one sees.

use std::net::Ipv4Addr;
use std::sync::OnceLock;

use anyhow::bail;

/// Addresses of the two servers; no run has either of them (see `RunPlace::new`).
pub fn addresses() -> [Ipv4Addr; 2] {
    let process = std::process::id();
    [251, 252].map(|low| Ipv4Addr::new(127, (64 + process % 128) as u8, (process / 128 % 250) as u8, low))
}

/// Starts them, if they do not run yet.
///
/// # Errors
/// When port 53 is not permitted, or taken.
pub fn start() -> anyhow::Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let [first, second] = addresses();
    let started = STARTED.get_or_init(|| zone::serve(first, second).map_err(|error| error.to_string()));
    if let Err(error) = started {
        bail!("the zone's servers need port 53 of {first} and {second}, as root or in a namespace: {error}");
    }
    Ok(())
}
