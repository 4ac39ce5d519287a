//! The endpoint for a replica's admin commands: a socket file that only its own user can open, or on request a loopback
//! port with a secret.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::limits;

/// The address at which a replica receives admin commands, and to which the command line sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix stream socket of mode 0600. The kernel refuses other users, and no web page can open a file.
    Unix(PathBuf),
    /// A TCP port, for callers that cannot reach a socket file. Every local process and every web page can connect to
    /// it, so a connection has to present the secret before its first command.
    Tcp {
        /// Loopback, at the replica's end.
        address: SocketAddr,
        /// The secret that a connection presents.
        token: Token,
    },
}

impl Endpoint {
    /// Whether an operator who wrote `text` meant a socket file: only paths have a slash.
    pub fn is_path(text: &str) -> bool {
        text.contains('/')
    }

    /// The endpoint of a socket file.
    ///
    /// # Errors
    /// The problem with the path, and the remedy: the kernel accepts no more than [`limits::SOCKET_PATH_BYTES`].
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, (String, String)> {
        let path = path.into();
        let bytes = path.as_os_str().len();
        if bytes > limits::SOCKET_PATH_BYTES {
            let most = limits::SOCKET_PATH_BYTES;
            return Err((
                format!("{} has {bytes} bytes; the kernel takes {most} for a socket", path.display()),
                "choose a directory with a shorter path, for example /run/crosscheck".to_owned(),
            ));
        }
        Ok(Endpoint::Unix(path))
    }
}

/// The form that an operator writes, without the secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tcp { address, .. } => address.fmt(f),
        }
    }
}

/// The secret of an admin port.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Reads a secret from a file's text: one line of [`limits::TOKEN_BYTES`] printable ASCII characters without a
    /// space.
    ///
    /// # Errors
    /// The rule that the text breaks, without the text itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let secret = text.strip_suffix('\n').unwrap_or(text);
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the secret is not one line of printable ASCII characters without spaces".to_owned());
        }
        let (least, most) = (limits::TOKEN_BYTES.start(), limits::TOKEN_BYTES.end());
        if !limits::TOKEN_BYTES.contains(&secret.len()) {
            return Err(format!("the secret has {} characters; use {least} to {most}", secret.len()));
        }
        Ok(Token(secret.to_owned()))
    }

    /// Whether `presented` is the secret. How long this takes depends on the length of `presented`, not on
    /// where it differs.
    pub fn is(&self, presented: &str) -> bool {
        let own = self.0.as_bytes();
        let mut difference = u8::from(own.len() != presented.len());
        for (at, byte) in presented.bytes().enumerate() {
            difference |= byte ^ own[at % own.len()];
        }
        // Without `black_box` a compiler may leave the loop at the first difference.
        std::hint::black_box(difference) == 0
    }

    /// The secret, for the line that presents it.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

/// Logs and panics print settings; the secret must not be in them.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_path_that_the_kernel_would_refuse_is_refused_with_a_remedy() {
        let longest = format!("/{}", "a".repeat(limits::SOCKET_PATH_BYTES - 1));
        assert!(Endpoint::unix(&longest).is_ok());
        assert!(std::os::unix::net::SocketAddr::from_pathname(&longest).is_ok());
        let longer = format!("{longest}a");
        let (what, remedy) = Endpoint::unix(&longer).unwrap_err();
        assert!(std::os::unix::net::SocketAddr::from_pathname(&longer).is_err());
        assert!(what.contains("108 bytes") && remedy.contains("shorter"), "{what}; {remedy}");
    }

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let token = Token::parse(&format!("{SECRET}\n")).expect("a secret");
        assert!(token.is(SECRET));
        let changed = SECRET.replace('f', "e");
        for other in ["", "0", &SECRET[1..], &SECRET[..31], &SECRET.repeat(2), &changed] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn weak_or_garbled_secrets_are_refused_without_being_printed() {
        for text in ["", "short", &SECRET[1..], &format!("{SECRET}\n\n"), &format!("{SECRET} x"), "\u{e9}"] {
            let reported = Token::parse(text).unwrap_err();
            assert!(text.is_empty() || !reported.contains(text), "{reported}");
        }
        assert!(Token::parse(&"x".repeat(limits::TOKEN_BYTES.end() + 1)).is_err());
    }
}
