//! The address of a replica: a fixed one, or a host name that is resolved again at each use.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Most bytes of a host name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// Most bytes between two dots of a host name.
const LABEL_BYTES_MAX: usize = 63;

/// `host:port`, as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and a port.
    Fixed(SocketAddr),
    /// A host name, whose IP address may change, and a port.
    Named {
        /// The name.
        host: String,
        /// The port, never 0.
        port: u16,
    },
}

impl Address {
    /// The current IP addresses and the port. A host name is looked up, which may take seconds.
    ///
    /// # Errors
    /// The name does not resolve; the text has the name and the reason.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        match self {
            Address::Fixed(address) => Ok(vec![*address]),
            Address::Named { host, port } => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let found: Vec<SocketAddr> =
                    found.map_err(|error| format!("`{self}` does not resolve: {error}"))?.collect();
                if found.is_empty() { Err(format!("`{self}` resolves to no IP address")) } else { Ok(found) }
            }
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Fixed(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Fixed(address) => address.fmt(f),
            Address::Named { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| Err(format!("`{text}` is no address: {why}"));
        let port_0 = || Err(format!("`{text}` has port 0, which is none that others can connect to"));
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { port_0() } else { Ok(Address::Fixed(address)) };
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong("`:PORT` is missing".into());
        };
        let Ok(number) = port.parse::<u16>() else {
            return wrong(format!("`{port}` is no port"));
        };
        if !is_host_name(host) {
            return wrong(format!("`{host}` is neither an IP address nor a host name"));
        }
        if number == 0 {
            return port_0();
        }
        Ok(Address::Named { host: host.to_owned(), port: number })
    }
}

/// Whether a name server can resolve it: letters, digits, `-` and `_` between dots, and no misspelled IP address.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(is_label)
        // No top-level domain is a number: a text that ends in one was meant as an IPv4 address.
        && !last.bytes().all(|byte| byte.is_ascii_digit())
        && name.parse::<Ipv4Addr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_read_back_as_they_were_written() {
        for text in ["10.0.0.1:12211", "[::1]:80", "[fe80::1%3]:80"] {
            let address: Address = text.parse().expect(text);
            assert!(matches!(address, Address::Fixed(_)), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in
            ["db-1:12211", "cache_2.example.org:1", "node.example.org.:65535", "localhost:1", "3com.com:80"]
        {
            let address: Address = text.parse().expect(text);
            assert!(matches!(address, Address::Named { .. }), "{text}");
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_refused_with_the_reason() {
        let reported = |text: &str| text.parse::<Address>().expect_err(text);
        for text in ["11211", "localhost", ""] {
            assert!(reported(text).contains("is no address: `:PORT` is missing"), "{text}");
        }
        for text in ["db:", "db:70000", "db:x", "db:-1"] {
            assert!(reported(text).contains("is no port"), "{text}");
        }
        let long_label = format!("{}:1", "a".repeat(64));
        let long_name = format!("{}a:1", "abcdefg.".repeat(32));
        for text in [
            ":1",
            "a b:1",
            "-db:1",
            "db-:1",
            "a..b:1",
            "10.0.0.300:1",
            "10.0.0:1",
            "::1:1",
            "db/x:1",
            "ümlaut:1",
            &long_label,
            &long_name,
        ] {
            assert!(
                reported(text).contains("neither an IP address nor a host name"),
                "{text}: {}",
                reported(text)
            );
        }
        for text in ["10.0.0.1:0", "db:0"] {
            assert!(reported(text).contains("has port 0"), "{text}");
        }
    }

    #[test]
    fn a_name_resolves_to_addresses_with_its_port_or_says_why_not() {
        let address = Address::Named { host: "localhost".into(), port: 7 };
        let found = address.resolve().expect("every machine has this name");
        assert!(!found.is_empty() && found.iter().all(|one| one.ip().is_loopback() && one.port() == 7));
        // The top-level domain `invalid` is reserved and never resolves (RFC 2606).
        let address = Address::Named { host: "no-such-host.invalid".into(), port: 7 };
        let why = address.resolve().expect_err("it is reserved");
        assert!(why.starts_with("`no-such-host.invalid:7` does not resolve: "), "{why}");
    }
}
