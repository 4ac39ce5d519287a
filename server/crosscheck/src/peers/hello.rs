//! The data that two replicas exchange in their handshake: their identities, and the settings that must be equal in one
//! group.

use std::fmt;

use wire::{Malformed, Put, Reader};

use crate::behavior::Behaviors;
use crate::group_settings::AT_FOUNDING;
use crate::shapes;

/// Version of the protocol between peers, and of all that they compare: with another checksum of objects, equal objects
/// would differ.
pub const PROTOCOL: u8 = 15;
/// Most settings in a hello.
const SETTINGS: usize = 96;
/// Most bytes of a hello: a decoder reads no more.
pub const HELLO_BYTES: usize = 4096;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// All frames between two replicas; each pair has one such connection.
    Link,
    /// One request for the other replica's progress, by a watchdog, separate from the link.
    Progress,
    /// The handshake alone, by a replica that has no connection to any other: the other end may not find it.
    Announcement,
}

/// An address, and the number of the move since which a replica is there; 0 if it has not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPlace {
    /// The number.
    pub number: u32,
    /// The address, as the configuration or the group has it.
    pub address: String,
}

/// The size of a group, as one replica knows it: the one with more changes knows more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownSize {
    /// How often it has changed.
    pub changes: u32,
    /// How many replicas vote.
    pub voting: u8,
}

/// The message of one end in a handshake. The order of the settings is that of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol that follows.
    pub protocol: u8,
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The sender, from 0.
    pub replica: u8,
    /// Replicas in its group, those that are being added included.
    pub replicas: u8,
    /// How many of them vote, and how often the size of the group has changed, as it knows.
    pub size: KnownSize,
    /// Name of its group.
    pub cluster: String,
    /// Its release.
    pub release: String,
    /// The behaviors of the service that it can act as.
    pub behaviors: Behaviors,
    /// What its group acts as; 0 before it knows.
    pub acts_as: u16,
    /// Where the sender is.
    pub here: Option<KnownPlace>,
    /// Where the receiver is, as the sender knows.
    pub yours: Option<KnownPlace>,
    /// Settings that affect what replicas compute or compare: name and value.
    pub settings: Vec<(String, String)>,
}

/// Something that has to be equal at both ends, and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name in the configuration.
    pub field: String,
    /// Its value here.
    pub here: String,
    /// Its value at the other end.
    pub there: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} here and {} there", self.field, self.here, self.there)
    }
}

/// The name of the service, a space, and its version, in a hello.
pub const SERVICE: &str = "service";
/// What the group acts as.
const BEHAVIOR: &str = "behavior";

impl Difference {
    /// Whether one of the two cannot act as the group of the other does.
    pub fn is_of_behavior(&self) -> bool {
        self.field == BEHAVIOR
    }

    /// Whether the two are different builds of the program, and not the same one with other settings.
    pub fn is_of_build(&self) -> bool {
        let field = self.field.as_str();
        [SERVICE, BUILD, PROTOCOL_NAME, shapes::FURTHER, shapes::REQUESTS].contains(&field)
            || field.starts_with(shapes::CLASS)
            || shapes::version_of(field).is_some()
    }
}

/// The name of the program's build ([`crate::program`]) in a hello.
pub const BUILD: &str = "build";
/// The name of the version of the protocol.
const PROTOCOL_NAME: &str = "protocol";

impl Hello {
    /// The hello as bytes. A value that is too long for its field is cut: it then still differs from the other end's,
    /// or both are cut to the same value.
    pub fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Link => 1,
            Purpose::Progress => 2,
            Purpose::Announcement => 3,
        };
        let settings = &self.settings[..self.settings.len().min(SETTINGS)];
        let mut bytes = vec![self.protocol, purpose, self.replica, self.replicas, settings.len() as u8];
        let mut put = |text: &str| {
            let text = &text.as_bytes()[..text.len().min(usize::from(u8::MAX))];
            bytes.put8(text.len() as u8).put(text);
        };
        put(&self.cluster);
        put(&self.release);
        for (name, value) in settings {
            put(name);
            put(value);
        }
        let Behaviors { oldest, newest } = self.behaviors;
        bytes.put16(oldest).put16(newest).put16(self.acts_as);
        bytes.put32(self.size.changes).put8(self.size.voting);
        for place in [&self.here, &self.yours] {
            // An address has fewer bytes; one that is left out says nothing.
            let known = place.as_ref().filter(|place| place.address.len() <= order::limits::ADDRESS_BYTES);
            let (number, address) = known.map_or((0, ""), |place| (place.number, place.address.as_str()));
            bytes.put32(number).put16(address.len() as u16).put(address.as_bytes());
        }
        bytes
    }

    /// Decodes the bytes of [`Hello::encode`]. From another version only the fields of all versions are decoded: the
    /// rest is empty.
    ///
    /// # Errors
    /// When the bytes are no hello.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let [protocol, purpose, replica, replicas, count] = reader.array()?;
        let purpose = match purpose {
            1 => Purpose::Link,
            2 => Purpose::Progress,
            3 => Purpose::Announcement,
            _ => return Err(Malformed("unknown purpose")),
        };
        let mut text = || {
            let length = reader.u8()?;
            let text = reader.take(usize::from(length))?;
            Ok(String::from_utf8_lossy(text).into_owned())
        };
        let (cluster, release) = (text()?, text()?);
        let mut settings = Vec::new();
        let (mut behaviors, mut acts_as) = (Behaviors::FIRST, 0);
        let (mut here, mut yours, mut size) = (None, None, KnownSize::default());
        if protocol == PROTOCOL {
            for _ in 0..usize::from(count).min(SETTINGS) {
                settings.push((text()?, text()?));
            }
            behaviors = Behaviors { oldest: reader.u16()?, newest: reader.u16()? };
            acts_as = reader.u16()?;
            size = KnownSize { changes: reader.u32()?, voting: reader.u8()? };
            (here, yours) = (take_place(&mut reader)?, take_place(&mut reader)?);
            reader.end()?;
        }
        Ok(Hello {
            protocol,
            purpose,
            replica,
            replicas,
            size,
            cluster,
            release,
            behaviors,
            acts_as,
            here,
            yours,
            settings,
        })
    }

    /// One for tests and the fuzz target: of a replica in a group of three that has no settings.
    pub(super) fn sample(replica: u8) -> Hello {
        Hello {
            protocol: PROTOCOL,
            purpose: Purpose::Link,
            replica,
            replicas: 3,
            size: KnownSize { changes: 0, voting: 3 },
            cluster: "one".into(),
            release: "1".into(),
            behaviors: Behaviors::FIRST,
            acts_as: 1,
            here: None,
            yours: None,
            settings: Vec::new(),
        }
    }

    /// The value of a setting.
    fn value_of(&self, name: &str) -> &str {
        let found = self.settings.iter().find(|(one, _)| one == name);
        found.map_or("not known", |(_, value)| value)
    }

    /// Whether the two have to know equally many replicas: nothing has changed that since their configurations, and
    /// neither waits to be added to the group of the other.
    fn must_be_as_many(&self, other: &Hello) -> bool {
        let is_new = |one: &Hello, group: &Hello| {
            one.acts_as == 0 && group.acts_as != 0 && one.replica >= group.replicas
        };
        self.size.changes == other.size.changes && !is_new(self, other) && !is_new(other, self)
    }

    /// Whether the other one knows of a later change of the group's size.
    pub fn knows_less_than(&self, other: &Hello) -> bool {
        self.size.changes < other.size.changes
    }

    /// Whether the two are of one release, and so have to be one build.
    fn is_of_release(&self, other: &Hello) -> bool {
        self.release == other.release && self.value_of(SERVICE) == other.value_of(SERVICE)
    }

    /// What the group of one acts as, and the other cannot; or that there is nothing that both can act as.
    fn differs_in_behavior(&self, other: &Hello) -> Option<Difference> {
        let cannot = |acts_as: u16, other: &Hello| acts_as > other.behaviors.newest;
        let differs = !self.behaviors.meet(other.behaviors)
            || cannot(self.acts_as, other)
            || cannot(other.acts_as, self);
        let known = |hello: &Hello| match hello.acts_as {
            0 => format!("{}", hello.behaviors),
            acts_as => format!("{acts_as} (of {})", hello.behaviors),
        };
        differs.then(|| Difference { field: BEHAVIOR.to_owned(), here: known(self), there: known(other) })
    }

    /// The first difference for which the two cannot be replicas of one group. Two releases can: they act as a behavior
    /// that both have. Two builds of one release cannot.
    pub fn differs_from(&self, other: &Hello) -> Option<Difference> {
        let difference = |field: &str, here: &dyn fmt::Display, there: &dyn fmt::Display| {
            let (here, there) = (here.to_string(), there.to_string());
            (here != there).then(|| Difference { field: field.to_owned(), here, there })
        };
        let are_of_release = self.is_of_release(other);
        let is_compared = |name: &&String| **name != SERVICE && (are_of_release || **name != BUILD);
        let names = self.settings.iter().chain(&other.settings).map(|(name, _)| name).filter(is_compared);
        let names = names.filter(|name| !name.starts_with(AT_FOUNDING));
        // What only one of them can act as is not written while both serve.
        let newest = self.behaviors.newest.min(other.behaviors.newest);
        let names = names.filter(|name| shapes::version_of(name).is_none_or(|version| version <= newest));
        let of_setting = |name: &String| difference(name, &self.value_of(name), &other.value_of(name));
        let service =
            |hello: &Hello| hello.value_of(SERVICE).split(' ').next().unwrap_or_default().to_owned();
        difference("cluster", &self.cluster, &other.cluster)
            .or_else(|| difference(PROTOCOL_NAME, &self.protocol, &other.protocol))
            .or_else(|| difference(SERVICE, &service(self), &service(other)))
            .or_else(|| {
                difference("number of replicas", &self.replicas, &other.replicas)
                    .filter(|_| self.must_be_as_many(other))
            })
            .or_else(|| self.differs_in_behavior(other))
            .or_else(|| names.into_iter().find_map(of_setting))
            .or_else(|| self.differs_at_founding(other))
    }

    /// A setting whose value counts at the founding of a group, where these two may found one: neither has a state.
    fn differs_at_founding(&self, other: &Hello) -> Option<Difference> {
        if self.acts_as != 0 || other.acts_as != 0 {
            return None;
        }
        self.settings.iter().find_map(|(name, here)| {
            let field = name.strip_prefix(AT_FOUNDING)?;
            let (_, there) = other.settings.iter().find(|(one, there)| one == name && there != here)?;
            Some(Difference { field: field.to_owned(), here: here.clone(), there: there.clone() })
        })
    }
}

fn take_place(reader: &mut Reader<'_>) -> Result<Option<KnownPlace>, Malformed> {
    let (number, length) = (reader.u32()?, reader.u16()?);
    let address = String::from_utf8_lossy(reader.take(usize::from(length))?).into_owned();
    Ok((!address.is_empty()).then_some(KnownPlace { number, address }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Hello {
            release: "0.1.0".into(),
            behaviors: Behaviors::up_to(2),
            here: Some(KnownPlace { number: 0, address: "10.0.0.3:7".into() }),
            settings: vec![setting("mode", "RDGX"), setting("memory_limit_mb", "64")],
            ..Hello::sample(2)
        }
    }

    #[test]
    fn hellos_survive_their_bytes_and_other_bytes_are_none() {
        let bytes = hello().encode();
        assert_eq!(Hello::decode(&bytes), Ok(hello()));
        assert!((0..bytes.len()).all(|end| Hello::decode(&bytes[..end]).is_err()));
        assert_eq!(
            Hello::decode(&[&bytes[..], b"x"].concat()),
            Err(Malformed("bytes follow the last field"))
        );
        let other = Hello { protocol: PROTOCOL + 1, ..hello() };
        let read = Hello::decode(&[&other.encode()[..], b"whatever that version says"].concat()).unwrap();
        assert_eq!((read.protocol, read.release.as_str(), read.settings.len()), (PROTOCOL + 1, "0.1.0", 0));
        let long = Hello { cluster: "x".repeat(1000), ..hello() };
        assert_eq!(Hello::decode(&long.encode()).unwrap().cluster.len(), 255);
        assert!(long.encode().len() <= HELLO_BYTES);
    }

    #[test]
    fn the_field_that_differs_is_named_with_both_values() {
        assert_eq!(hello().differs_from(&Hello { replica: 0, purpose: Purpose::Progress, ..hello() }), None);
        let mut other = hello();
        other.settings[1].1 = "32".into();
        let reported = hello().differs_from(&other).unwrap().to_string();
        assert_eq!(reported, "memory_limit_mb is 64 here and 32 there");
        other.settings.pop();
        let reported = hello().differs_from(&other).unwrap().to_string();
        assert_eq!(reported, "memory_limit_mb is 64 here and not known there");
        let reported = other.differs_from(&hello()).unwrap().to_string();
        assert_eq!(reported, "memory_limit_mb is not known here and 64 there");
        for (other, field) in [
            (Hello { cluster: "two".into(), ..hello() }, "cluster"),
            (Hello { protocol: PROTOCOL + 1, ..hello() }, "protocol"),
            (Hello { replicas: 5, ..hello() }, "number of replicas"),
        ] {
            assert_eq!(hello().differs_from(&other).unwrap().field, field);
        }
    }

    #[test]
    fn what_counts_at_the_founding_is_compared_only_by_replicas_that_may_found_a_group() {
        let of = |value: Option<&str>, acts_as| {
            let name = format!("{AT_FOUNDING}memory_limit_mb");
            let founding = value.map(|value| (name, value.to_owned()));
            let settings = hello().settings.into_iter().take(1).chain(founding).collect();
            Hello { acts_as, settings, ..hello() }
        };
        let (here, there) = (of(Some("64"), 0), of(Some("32"), 0));
        let reported = here.differs_from(&there).unwrap().to_string();
        assert_eq!(reported, "memory_limit_mb is 64 here and 32 there");
        assert_eq!(here.differs_from(&of(Some("64"), 0)), None);
        assert_eq!(here.differs_from(&of(Some("32"), 1)), None, "the other one has a state of its group");
        assert_eq!(of(Some("64"), 1).differs_from(&there), None, "this one has");
        assert_eq!(here.differs_from(&of(None, 0)), None, "the other one has data, or is a witness");
        assert_eq!(of(None, 0).differs_from(&there), None);
    }

    #[test]
    fn two_releases_meet_where_the_other_can_act_as_the_group_and_two_builds_of_one_do_not() {
        let of = |release: &str, build: &str, behaviors, acts_as| {
            let mut hello = Hello { release: release.into(), behaviors, acts_as, ..hello() };
            hello.settings.push((SERVICE.into(), format!("memcached {release}")));
            hello.settings.push((BUILD.into(), build.into()));
            hello
        };
        let both = |one: &Hello, other: &Hello| {
            let fields =
                [one.differs_from(other), other.differs_from(one)].map(|one| one.map(|one| one.field));
            assert_eq!(fields[0], fields[1]);
            fields[0].clone()
        };
        let before = of("0.1.0", "aa", Behaviors::FIRST, 1);
        let next = of("0.2.0", "bb", Behaviors::up_to(2), 1);
        assert_eq!(both(&before, &next), None);
        assert_eq!(both(&before, &of("0.1.0", "cc", Behaviors::FIRST, 1)), Some("build".into()));
        let changed = Hello { acts_as: 2, ..next.clone() };
        assert_eq!(both(&before, &changed), Some("behavior".into()), "the group acts as the new one");
        assert_eq!(both(&next, &changed), None, "one that has not come so far");
        assert_eq!(both(&Hello { acts_as: 0, ..next }, &changed), None, "one without a state");
        let with = |mut hello: Hello, version: u16, made_of: &str| {
            hello.settings.push((format!("{}{version}", shapes::CHANGED), made_of.into()));
            hello
        };
        let types = with(of("0.2.0", "bb", Behaviors::up_to(2), 1), 2, "(aa) Job");
        assert_eq!(
            both(&before, &types),
            None,
            "no object of version 2 is written while the earlier one serves"
        );
        let both_know = of("0.1.1", "ee", Behaviors::up_to(2), 1);
        let field = Some("classes of version 2".to_owned());
        assert_eq!(both(&both_know, &types), field, "the other one would not read them");
        assert_eq!(both(&with(both_know.clone(), 2, "(bb) Job"), &types), field);
        assert_eq!(both(&with(with(both_know, 2, "(aa) Job"), 3, "(cc) Job"), &types), None);
        let difference = types.differs_from(&of("0.1.1", "ee", Behaviors::up_to(2), 1)).unwrap();
        assert!(difference.is_of_build(), "{difference}");
        let later = of("0.3.0", "dd", Behaviors { oldest: 2, newest: 3 }, 0);
        let reported = before.differs_from(&later).unwrap().to_string();
        assert_eq!(reported, "behavior is 1 (of 1) here and 2 to 3 there");
    }
}
