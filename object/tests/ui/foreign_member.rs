//! A type of another crate gets its way in: a struct of one's own, and `Summed` by hand.
use object::critical;

#[critical]
struct Peer {
    address: std::net::IpAddr,
    names: Vec<std::path::PathBuf>,
}

fn main() {}
