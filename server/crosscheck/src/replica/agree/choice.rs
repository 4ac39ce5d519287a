//! Which way to agree a replica has: chosen once, from the letters of its mode.

use super::Agreement;
use super::alone::Alone;
use super::verified::Verified;
use super::voted::Voted;
use crate::service::Service;
use crate::settings::Settings;
use crate::world::World;

/// The agreement of a replica with these settings; `incarnation` distinguishes this process from all others.
pub(in crate::replica) fn of<S: Service, W: World>(
    settings: &Settings,
    incarnation: u64,
) -> Box<dyn Agreement<S, W>> {
    let mode = settings.mode;
    match (mode.verified, mode.crosschecked) {
        (true, _) => Box::new(Verified::new(settings, incarnation)),
        (false, true) => Box::new(Voted::new(settings)),
        (false, false) => Box::new(Alone::default()),
    }
}
