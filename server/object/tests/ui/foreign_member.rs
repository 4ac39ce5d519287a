//! A type of another crate becomes a member by a wrapper struct with a hand-written `Summed`.
use object::critical;

#[critical]
struct Peer {
    address: std::net::IpAddr,
    names: Vec<std::path::PathBuf>,
}

fn main() {}
