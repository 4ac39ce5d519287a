//! The data that two replicas exchange in their handshake: their identities, and the settings that must be equal in one
//! group.

use std::fmt;

use wire::{Malformed, Put, Reader};

use crate::shapes;

/// Version of the protocol between peers, and of all that they compare: with another checksum of objects, equal objects
/// would differ.
pub const PROTOCOL: u8 = 10;
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
    /// Replicas in its group.
    pub replicas: u8,
    /// Name of its group.
    pub cluster: String,
    /// Its release.
    pub release: String,
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

/// The name of the service, and its version, in a hello.
pub const SERVICE: &str = "service";

impl Difference {
    /// Whether the two are different builds of the program, and not the same one with other settings.
    pub fn is_of_build(&self) -> bool {
        let field = self.field.as_str();
        [SERVICE, RELEASE, BUILD, PROTOCOL_NAME, shapes::FURTHER, shapes::REQUESTS].contains(&field)
            || field.starts_with(shapes::CLASS)
    }
}

/// The name of the program's build ([`crate::program`]) in a hello.
pub const BUILD: &str = "build";
/// The names of the framework's version, and of that of its protocol.
const RELEASE: &str = "release";
const PROTOCOL_NAME: &str = "protocol";

impl Hello {
    /// The hello as bytes. A value that is too long for its field is cut: it then still differs from the other end's,
    /// or both are cut to the same value.
    pub fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Link => 1,
            Purpose::Progress => 2,
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
            _ => return Err(Malformed("unknown purpose")),
        };
        let mut text = || {
            let length = reader.u8()?;
            let text = reader.take(usize::from(length))?;
            Ok(String::from_utf8_lossy(text).into_owned())
        };
        let (cluster, release) = (text()?, text()?);
        let mut settings = Vec::new();
        if protocol == PROTOCOL {
            for _ in 0..usize::from(count).min(SETTINGS) {
                settings.push((text()?, text()?));
            }
            reader.end()?;
        }
        Ok(Hello { protocol, purpose, replica, replicas, cluster, release, settings })
    }

    /// The first difference for which the two cannot be replicas of one group.
    pub fn differs_from(&self, other: &Hello) -> Option<Difference> {
        let difference = |field: &str, here: &dyn fmt::Display, there: &dyn fmt::Display| {
            let (here, there) = (here.to_string(), there.to_string());
            (here != there).then(|| Difference { field: field.to_owned(), here, there })
        };
        let value_of = |hello: &Hello, name: &str| {
            let found = hello.settings.iter().find(|(one, _)| one == name);
            found.map_or_else(|| "not known".to_owned(), |(_, value)| value.clone())
        };
        let names = self.settings.iter().chain(&other.settings).map(|(name, _)| name);
        let of_setting = |name: &String| difference(name, &value_of(self, name), &value_of(other, name));
        difference("cluster", &self.cluster, &other.cluster)
            .or_else(|| difference(RELEASE, &self.release, &other.release))
            .or_else(|| difference(PROTOCOL_NAME, &self.protocol, &other.protocol))
            .or_else(|| difference("number of replicas", &self.replicas, &other.replicas))
            .or_else(|| names.into_iter().find_map(of_setting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Hello {
            protocol: PROTOCOL,
            purpose: Purpose::Link,
            replica: 2,
            replicas: 3,
            cluster: "one".into(),
            release: "0.1.0".into(),
            settings: vec![setting("mode", "RDGX"), setting("memory_limit_mb", "64")],
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
            (Hello { release: "0.2.0".into(), ..hello() }, "release"),
            (Hello { protocol: PROTOCOL + 1, ..hello() }, "protocol"),
            (Hello { replicas: 5, ..hello() }, "number of replicas"),
        ] {
            assert_eq!(hello().differs_from(&other).unwrap().field, field);
        }
    }
}
