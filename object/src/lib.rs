//! Protected objects: each carries its checksum, is checked when a request first enters it, sealed again when the
//! request leaves it, and notes itself in the request's state delta.
//!
//! A service author writes plain structs and methods:
//!
//! ```
//! use object::{critical, Pieces, Ref, Store};
//!
//! #[critical]
//! pub struct Note { title: String, text: Pieces, #[uncritical] shown: u64 }
//!
//! #[critical]
//! impl Note {
//!     pub fn new(title: &str, text: &[u8]) -> Self {
//!         Self { title: title.to_owned(), text: text.into(), shown: 0 }
//!     }
//!     pub fn text(&self) -> &[u8] { self.text.whole() }
//!     pub fn amend(&mut self, more: &[u8]) { self.text.append(more) }
//! }
//!
//! #[critical]
//! pub struct Board { notes: Store<Note>, newest: Ref<Note> }
//!
//! #[critical]
//! impl Board {
//!     pub fn new() -> Self { Self { notes: Store::new(), newest: Ref::NONE } }
//!     pub fn pin(&mut self, note: Note) { self.newest = self.notes.insert(note); }
//!     pub fn newest(&self) -> Option<&Note> { self.newest.some().map(|newest| self.notes.expect(newest)) }
//! }
//!
//! use object::{request, Region};
//! let mut board = object::genesis(0, Board::new);
//! request::begin(request::Terms { position: 1, protect: true, keep_before_images: false });
//! board.pin(Note::new("shopping", b"bread"));
//! board.seal(0);
//! let delta = request::finish();
//! assert_eq!(delta.pairs().len(), 2); // the board and the note
//! ```

// The macro writes `::object`, also in this crate's own tests and examples.
#[allow(unused_extern_crates)]
extern crate self as object;

mod any;
mod checksum;
mod containers;
mod copy;
mod corrupted;
mod critical;
mod delta;
mod difference;
pub mod exempt;
mod header;
mod id;
#[cfg(feature = "inject")]
mod inject;
mod ledger;
mod member;
mod of;
mod pack;
mod package;
mod pieces;
mod place;
mod protected;
mod reference;
mod region;
pub mod request;
mod sealed;
mod sealed_queue;
mod standard;
mod store;
mod strays;
mod summed;
pub mod testing;
mod walk;

pub use checksum::{Summer, is_sound as checksums_are_sound};
pub use corrupted::{Corrupted, How};
pub use critical::Critical;
pub use delta::{Pair, Touched};
pub use difference::{MemberDifference, Members};
pub use id::{Home, ObjectId};
#[cfg(feature = "inject")]
pub use inject::{Injected, Injection};
pub use pieces::Pieces;
pub use reference::Ref;
pub use region::{Health, Large, Listed, Region, ScrubFinding, corrupted};
pub use request::{Terms, genesis};
pub use sealed::{Code, SealBroken, Sealable, Sealed};
pub use sealed_queue::SealedQueue;
pub use store::Store;
pub use summed::{Summed, from_bytes, to_bytes};
pub use weave::{Summed, critical};
pub use wire::{Malformed, Reader};

/// What the code written by `#[critical]` needs; nothing for service authors.
#[doc(hidden)]
pub mod hidden {
    pub use crate::any::{AnyObject, AnyStore, Class, Population};
    pub use crate::copy::LocalCopy;
    pub use crate::critical::{Members, blank, child_id, rename_child};
    pub use crate::header::Header;
    #[cfg(feature = "inject")]
    pub use crate::inject::Damage;
    pub use crate::member::{Child, ChildMut, Member};
    pub use crate::of::{Neither, Of};
    pub use crate::pack::Packer;
    pub use crate::protected::{NoCopy, Protected, Redundancy};
}
