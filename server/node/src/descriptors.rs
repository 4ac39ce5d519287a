//! Open files: raises this process's limit as far as permitted, and checks `max_connections` against it before anything
//! starts. Without that, idle clients take the descriptors that peers, admin commands and the log need, and a replica
//! ends when it opens its next log file.

use crosscheck::limits::{DESCRIPTORS_PER_CLIENT_THREAD, DESCRIPTORS_RESERVED};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::DEFAULT_CONNECTIONS;
use crate::outcome::misuse;

/// A replica with fewer client connections than this is not useful.
const FEWEST: usize = 16;

/// Raises the limit and decides the field `max_connections`, with so many threads for clients alone; returns a message
/// for the operator if it was lowered.
///
/// # Errors
/// An error of the operator: not even the hard limit is enough for the configuration.
pub fn fit(max_connections: &mut Option<usize>, client_threads: usize) -> anyhow::Result<Option<String>> {
    let reserved = DESCRIPTORS_RESERVED + DESCRIPTORS_PER_CLIENT_THREAD * client_threads;
    let (connections, lowered) = connections(*max_connections, raise(), reserved).map_err(misuse)?;
    *max_connections = Some(connections);
    Ok(lowered)
}

/// The number of files that this process may open, after raising the soft limit to the hard one.
pub fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If the kernel refuses, the limit that is read next is the valid one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// How many client connections fit below `limit` open files. A number that was `asked` for fits or is refused; the
/// default is lowered, with a message for the operator.
fn connections(
    asked: Option<usize>,
    limit: usize,
    reserved: usize,
) -> Result<(usize, Option<String>), String> {
    let wanted = asked.unwrap_or(DEFAULT_CONNECTIONS);
    let room = limit.saturating_sub(reserved);
    if wanted <= room {
        return Ok((wanted, None));
    }
    let files = wanted + reserved;
    let evidence = format!(
        "this process may open {limit} files, and {reserved} of them are reserved for peers, \
            admin commands and the log"
    );
    let raise = format!("raise the limit (`ulimit -n {files}`, or LimitNOFILE={files} in a systemd unit)");
    match asked {
        Some(asked) if room > 0 => Err(format!(
            "max_connections = {asked} needs {files} open files: {evidence}. Remedy: {raise}, or write \
                max_connections = {room}"
        )),
        None if room >= FEWEST => Ok((
            room,
            Some(format!("max_connections is lowered from {wanted} to {room}: {evidence}. Remedy: {raise}")),
        )),
        _ => Err(format!("no client can be served: {evidence}. Remedy: {raise}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without threads for clients alone.
    fn connections(asked: Option<usize>, limit: usize) -> Result<(usize, Option<String>), String> {
        super::connections(asked, limit, DESCRIPTORS_RESERVED)
    }

    #[test]
    fn what_was_asked_for_fits_or_is_refused_with_the_numbers() {
        assert_eq!(connections(Some(4096), 4096 + DESCRIPTORS_RESERVED), Ok((4096, None)));
        let reported = connections(Some(4096), 1024).unwrap_err();
        for part in
            ["max_connections = 4096 needs 4272", "may open 1024", "ulimit -n 4272", "max_connections = 848"]
        {
            assert!(reported.contains(part), "{part}: {reported}");
        }
        assert_eq!(connections(Some(1), 1 + DESCRIPTORS_RESERVED), Ok((1, None)));
        assert!(connections(Some(1), DESCRIPTORS_RESERVED).unwrap_err().contains("no client can be served"));
    }

    #[test]
    fn the_default_is_lowered_until_too_few_are_left() {
        assert_eq!(connections(None, usize::MAX), Ok((DEFAULT_CONNECTIONS, None)));
        let (room, reported) = connections(None, 1024).expect("enough");
        assert_eq!(room, 848);
        assert!(reported.is_some_and(|reported| reported.contains("lowered from 1024 to 848")));
        assert!(connections(None, DESCRIPTORS_RESERVED + FEWEST).is_ok());
        assert!(connections(None, DESCRIPTORS_RESERVED + FEWEST - 1).is_err());
        assert!(connections(None, 64).is_err());
        let more = DESCRIPTORS_RESERVED + 64 * DESCRIPTORS_PER_CLIENT_THREAD;
        assert_eq!(super::connections(None, 1024, more).expect("enough").0, 656);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise();
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(limit, hard.map_or(usize::MAX, |files| files as usize));
    }
}
