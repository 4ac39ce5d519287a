//! The bounded little-endian reader and writer of every codec, their checksum, and the one seeded generator.
//!
//! Bytes of a peer, of a file and of a client are read by a [`Reader`]. It never panics, and it never reserves memory
//! for a length that the bytes only claim. It refuses bytes with [`Malformed`], the one error of all decoders. Encoders
//! append to a `Vec<u8>` by [`Put`], in the order in which the decoder reads.
//!
//! ```
//! use wire::{Malformed, Put, Reader};
//!
//! fn encode(number: u64, names: &[u8]) -> Vec<u8> {
//!     let mut out = Vec::new();
//!     out.put64(number).put32(names.len() as u32).put(names);
//!     out
//! }
//!
//! fn decode(bytes: &[u8]) -> Result<(u64, Vec<u8>), Malformed> {
//!     let mut reader = Reader::new(bytes);
//!     let number = reader.u64()?;
//!     let length = reader.length32()?;
//!     let names = reader.take(length)?.to_vec();
//!     reader.end()?;
//!     Ok((number, names))
//! }
//!
//! let bytes = encode(7, b"ab");
//! assert_eq!(decode(&bytes), Ok((7, b"ab".to_vec())));
//! assert!(decode(&bytes[..13]).is_err());
//! ```
//!
//! Every random choice is drawn from a [`SplitMix64`], so that its seed repeats it on every replica and in every run.
//! Seeds are recorded: in the ordered log, in the records of campaigns, in tests. A change to a derivation here changes
//! their meaning.

mod random;
mod reader;
mod replica_id;
mod sum;
mod writer;

pub use random::{SplitMix64, derive, mix, scramble, unit};
pub use reader::{Malformed, Reader, SharedReader};
pub use replica_id::ReplicaId;
pub use sum::{crc32c, crc32c_append};
pub use writer::Put;
