//! The identity of a replica for its peers: its hello, and the secret by which it proves that it belongs to the group.

use super::Refusal;
use super::hello::{BUILD, Hello, KnownSize, PROTOCOL, Purpose};
use super::refusal::Outsider;
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
            size: KnownSize { changes: 0, voting: settings.peers.len() as u8 },
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

    /// How often the size has changed, how many replicas one with this hello knows, and how many of them vote, if it
    /// knows of a later size.
    pub(super) fn learns_from(&self, theirs: &Hello) -> Option<(u32, u8, u8)> {
        let ours = &self.hello;
        let knows_more = ours.knows_less_than(theirs) && ours.differs_from(theirs).is_none();
        let is_fit = theirs.replicas <= order::limits::MOST_REPLICAS && theirs.size.voting <= theirs.replicas;
        let (known, voting) = (theirs.replicas, theirs.size.voting);
        (knows_more && is_fit && voting > 0).then_some((theirs.size.changes, known, voting))
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
            && theirs.replica < order::limits::MOST_REPLICAS.max(ours.replicas)
            && expected.is_none_or(|expected| theirs.replica == expected);
        match ours.differs_from(theirs) {
            Some(difference) => Some(Refusal::Differs(difference)),
            None if is_other && !are_of_one_size(ours, theirs) => Some(outsider(ours, theirs)),
            None if is_other => self.places.misplaced(theirs, end).map(Refusal::from),
            None => Some(Refusal::Number(theirs.replica)),
        }
    }
}

/// Whether each of the two is in the group as the other one knows it. One that knows less learns more.
fn are_of_one_size(ours: &Hello, theirs: &Hello) -> bool {
    let is_in = |one: &Hello, of: &Hello| one.replica < of.replicas || of.knows_less_than(one);
    is_in(theirs, ours) && is_in(ours, theirs) && theirs.replica < ours.replicas
}

/// Why they are not connected: one of them is not in the group, or this one has to learn first that the other one is.
fn outsider(ours: &Hello, theirs: &Hello) -> Refusal {
    let at = theirs.here.as_ref().map_or_else(String::new, |here| here.address.clone());
    let (theirs_is_in, is_own) =
        (theirs.replica < ours.replicas || ours.knows_less_than(theirs), ours.replica >= theirs.replicas);
    if theirs_is_in && !is_own {
        return Refusal::KnowsMore;
    }
    let (replica, of) = if is_own { (ours.replica, theirs) } else { (theirs.replica, ours) };
    let was_in = if is_own { ours.acts_as != 0 } else { theirs.acts_as != 0 };
    Refusal::Outside(Box::new(Outsider { replica, at, is_own, was_in, replicas: of.replicas }))
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
