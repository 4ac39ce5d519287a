//! The identity of a replica for its peers: its hello, and the secret by which it proves that it belongs to the group.

use super::Refusal;
use super::hello::{BUILD, Hello, PROTOCOL, Purpose};
use super::secure::Secret;
use super::whereabouts::{ConnectionEnd, Whereabouts};
use crate::group_settings::AT_FOUNDING;
use crate::outcome::ServeError;
use crate::pipeline_settings::pipeline_at_founding;
use crate::program;
use crate::settings::{Durability, Settings};

/// The identity of this replica for its peers.
#[derive(Clone)]
pub struct Identity {
    /// Its hello.
    pub hello: Hello,
    /// The group's secret.
    pub secret: Secret,
    /// Where it and its peers are.
    pub places: Whereabouts,
}

impl Identity {
    /// The identity of the replica with these settings. With a `seed`, the random numbers of its handshakes come from
    /// it.
    ///
    /// # Errors
    /// When the group has other replicas and no key is set.
    pub fn of(settings: &Settings, seed: Option<u64>) -> Result<Identity, ServeError> {
        let is_alone = settings.peers.len() < 2;
        let key = settings.group_key.as_ref();
        if key.is_none() && !is_alone {
            return Err(ServeError::NoKey);
        }
        let hello = Hello {
            protocol: PROTOCOL,
            purpose: Purpose::Link,
            replica: settings.me,
            replicas: settings.peers.len() as u8,
            cluster: key.map_or_else(String::new, |key| key.cluster.clone()),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            behaviors: settings.behaviors,
            acts_as: 0,
            here: None,
            yours: None,
            settings: in_common(settings).into_iter().chain(at_founding(settings)).collect(),
        };
        let places = Whereabouts::new(settings.me, settings.peers.clone());
        Ok(Identity { hello, secret: Secret { key: key.map_or([0; 32], |key| key.key), seed }, places })
    }

    /// The reason to refuse a replica with this hello, if there is one. It should be the replica `expected`, if that is
    /// known.
    pub(super) fn refusal_of(
        &self,
        theirs: &Hello,
        expected: Option<u8>,
        end: ConnectionEnd,
    ) -> Option<Refusal> {
        let ours = &self.hello;
        let is_other = theirs.replica != ours.replica
            && theirs.replica < ours.replicas
            && expected.is_none_or(|expected| theirs.replica == expected);
        match ours.differs_from(theirs) {
            Some(difference) => Some(Refusal::Differs(difference)),
            None if is_other => self.places.misplaced(theirs, end).map(Refusal::from),
            None => Some(Refusal::Number(theirs.replica)),
        }
    }
}

/// What has to be equal at replicas that may found a group together. One with data founds none; a witness has no part
/// in what is founded.
fn at_founding(settings: &Settings) -> impl Iterator<Item = (String, String)> + '_ {
    let founds = !settings.has_data && !settings.is_witness();
    let of_founding = settings.founding.iter().cloned().chain(pipeline_at_founding(settings));
    of_founding.filter(move |_| founds).map(|(name, value)| (format!("{AT_FOUNDING}{name}"), value))
}

/// What has to be equal at all replicas of a group: name and value, in the order of the configuration.
pub(crate) fn in_common(settings: &Settings) -> Vec<(String, String)> {
    let durability = match settings.durability {
        Durability::Memory => "memory",
        Durability::Disk(_) => "disk",
    };
    let own = [("mode", settings.mode.to_string()), ("durability", durability.to_owned())];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    // Last: any other difference says more.
    let build = (BUILD.to_owned(), program::build().to_owned());
    own.chain(settings.service.iter().cloned()).chain([build]).collect()
}
