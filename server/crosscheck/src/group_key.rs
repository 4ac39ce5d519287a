//! The secret that the replicas of one group share: a process that has it belongs to the group, and a replica of
//! another group does not have it.

use std::fmt;
use std::io;
use std::path::Path;

use crate::hexadecimal::{bytes_of, digits_of};
use crate::{limits, private};

/// A group's name and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey {
    /// Distinguishes groups in messages; see [`GroupKey::parse`] for the valid names.
    pub cluster: String,
    /// The secret.
    pub key: [u8; 32],
}

impl GroupKey {
    /// A new key from the operating system's randomness, for the group `cluster`, or for one with a random name.
    ///
    /// # Errors
    /// The name is not valid, or the system gives no randomness.
    pub fn random(cluster: Option<&str>) -> Result<Self, String> {
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes)
                .map_err(|error| format!("the operating system gives no randomness: {error}"))
        };
        let (mut name, mut key) = ([0; 4], [0; 32]);
        random(&mut key)?;
        random(&mut name)?;
        let cluster = cluster.map_or_else(|| digits_of(&name), str::to_owned);
        check_name(&cluster)?;
        Ok(GroupKey { cluster, key })
    }

    /// Makes a key in the file `path`, of mode 0600, unless one is there.
    ///
    /// # Errors
    /// The file cannot be written, or the system gives no randomness.
    pub fn keep(path: &Path) -> io::Result<()> {
        let key = GroupKey::random(None).map_err(io::Error::other)?;
        match private::create(path, &key.to_text()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Reads what [`GroupKey::to_text`] writes, and nothing else: the name is 1 to
    /// [`limits::CLUSTER_NAME_BYTES`] letters, digits, `-`, `_` or `.`, and the key 64 lower-case hexadecimal
    /// digits.
    ///
    /// # Errors
    /// The number of the wrong line, without its content.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (first, second) = text.split_once('\n').unwrap_or((text, ""));
        let cluster = value(first, "cluster").ok_or("line 1 is not `cluster = \"NAME\"`")?;
        check_name(cluster)?;
        let key = value(second, "key").and_then(bytes_of).and_then(|key| key.try_into().ok());
        let key = key.ok_or("line 2 is not `key = \"64 lower-case hexadecimal digits\"`")?;
        Ok(GroupKey { cluster: cluster.to_owned(), key })
    }

    /// The file's text, two lines of TOML.
    pub fn to_text(&self) -> String {
        format!("cluster = \"{}\"\nkey = \"{}\"\n", self.cluster, digits_of(&self.key))
    }
}

/// Logs and panics print settings; the secret must not be in them.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupKey").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

fn check_name(cluster: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let most = limits::CLUSTER_NAME_BYTES;
    if cluster.is_empty() || cluster.len() > most || !cluster.bytes().all(is_plain) {
        return Err(format!("a cluster's name is 1 to {most} letters, digits, `-`, `_` or `.`"));
    }
    Ok(())
}

/// The text between the quotes of `name = "..."`.
fn value<'t>(line: &'t str, name: &str) -> Option<&'t str> {
    line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_no_two_are_equal() {
        let (one, other) = (GroupKey::random(None).expect("a key"), GroupKey::random(None).expect("a key"));
        assert_ne!((one.key, &one.cluster), (other.key, &other.cluster));
        assert_eq!(GroupKey::parse(&one.to_text()), Ok(one.clone()));
        assert_eq!(GroupKey::parse(one.to_text().trim_end()), Ok(one.clone()));
        assert_eq!(one.cluster.len(), 8);
        assert_eq!(GroupKey::random(Some("prod-1.eu")).expect("a key").cluster, "prod-1.eu");
        for name in ["", "a b", "a\"b", "a\nb", "\u{e9}", &"x".repeat(65)] {
            assert!(GroupKey::random(Some(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        let key = GroupKey { cluster: "c".into(), key: [0xAB; 32] };
        assert_eq!(format!("{key:?}"), "GroupKey { cluster: \"c\", .. }");
    }

    #[test]
    fn anything_else_is_refused_with_its_line_and_without_its_content() {
        let right = GroupKey { cluster: "c".into(), key: [0xAB; 32] }.to_text();
        for (wrong, line) in [
            (String::new(), "line 1"),
            (right.replace("cluster", "group"), "line 1"),
            (right.replace(" = ", "="), "line 1"),
            (right.replace("\"c\"", "c"), "line 1"),
            (right.replace("\"c\"", "\"\""), "name"),
            (right.replace("ab", "AB"), "line 2"),
            (right.replace("ababab", "abab"), "line 2"),
            (right.replacen("ab", "\u{e9}", 1), "line 2"),
            (format!("{right}\n"), "line 2"),
            (format!("{right}more = 1\n"), "line 2"),
            (format!("# a comment\n{right}"), "line 1"),
        ] {
            let reported = GroupKey::parse(&wrong).expect_err(&wrong);
            assert!(reported.contains(line) && !reported.contains("abab"), "{wrong:?}: {reported}");
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("group.key");
        GroupKey::keep(&path).expect("made");
        let first = private::read(&path).expect("read");
        assert!(GroupKey::parse(&first).is_ok());
        GroupKey::keep(&path).expect("kept");
        assert_eq!(private::read(&path).expect("read"), first);
    }
}
