//! What checksums would cost if they ran over the memory of an object as it lies: instructions, counted by valgrind, of
//! one check and one seal of an item of the cache.
//!
//! ```text
//! cargo bench -p object --bench flat --no-run
//! valgrind --tool=callgrind --toggle-collect='*flat::run_all*' target/release/deps/flat-* flat 400 1000
//! ```
//!
//! Arguments: `today`, `flat` or `none`, the length of the values (keys have 100 bytes), and how often. The
//! instructions that are counted, less those of `none`, divided by this number, are those of one check and one seal.
//!
//! Nothing but this benchmark has the flat layout. docs/performance.md says what it would take.

use std::hint::black_box;

use object::hidden::AnyObject;
use object::{Critical, Pieces, Summed, critical};

/// Length of a key.
const KEY: usize = 100;

#[derive(Clone, Copy, Summed)]
struct Place {
    page: u32,
    index: u8,
    main: bool,
}

/// The members of an item of the cache, in the same order.
#[critical]
struct Item {
    content: Pieces,
    unique: u64,
    expires_us: u64,
    flags: u32,
    epoch: u32,
    key_len: u8,
    #[hot]
    accessed_s: u32,
    #[hot]
    marks: u32,
    place: Place,
}

#[critical]
impl Item {
    fn new(value: usize) -> Self {
        Self {
            content: Pieces::joined(&[b'k'; KEY], &vec![b'v'; value]),
            unique: 1,
            expires_us: 0,
            flags: 0,
            epoch: 0,
            key_len: KEY as u8,
            accessed_s: 1,
            marks: 0,
            place: Place { page: 1, index: 1, main: false },
        }
    }
}

type Block = [u8; 16];

/// The same members, key and value in one stretch of memory of whole blocks.
///
/// The first block has the checksum, and is not summed. Then come id, class and length, the other members that are not
/// hot, key and value, and zeros up to a whole block; in the last block the hot words, so that their changes can be
/// summed alone, as today.
struct Flat {
    blocks: Box<[Block]>,
}

impl Flat {
    /// Blocks of members of fixed length, in bytes: id 8, class 4, length 4, unique 8, expires 8, flags 4, epoch 4,
    /// place 6, key 1.
    const FIXED: usize = 3;

    fn new(value: usize) -> Self {
        let content = KEY + value;
        let mut blocks = vec![[0; 16]; 1 + Self::FIXED + content.div_ceil(16) + 1].into_boxed_slice();
        let bytes = blocks.as_flattened_mut();
        bytes[16..24].copy_from_slice(&7u64.to_le_bytes());
        bytes[24..28].copy_from_slice(&0xC1A5_5000u32.to_le_bytes());
        bytes[28..32].copy_from_slice(&(content as u32).to_le_bytes());
        let at = 16 * (1 + Self::FIXED);
        bytes[at..at + KEY].fill(b'k');
        bytes[at + KEY..at + content].fill(b'v');
        let mut flat = Flat { blocks };
        flat.seal();
        flat
    }

    fn sum(&self) -> u64 {
        object::sum_of_blocks(&self.blocks[1..])
    }

    fn is_right(&self) -> bool {
        self.blocks[0][..8] == self.sum().to_le_bytes()
    }

    fn set_unique(&mut self, unique: u64) {
        self.blocks[2][..8].copy_from_slice(&unique.to_le_bytes());
    }

    fn seal(&mut self) {
        let sum = self.sum();
        self.blocks[0][..8].copy_from_slice(&sum.to_le_bytes());
    }
}

enum Kind {
    None,
    Today(Item),
    Flat(Flat),
}

#[inline(never)]
fn run_all(kind: &mut Kind, count: u64) {
    for number in 0..count {
        match kind {
            Kind::None => _ = black_box(number),
            Kind::Today(item) => {
                // The check, with that of the pieces that a request makes which reads the value; and the seal.
                black_box(item.protected().recompute());
                assert!(black_box(&*item).protected().is_intact());
                black_box(item.protected().recompute());
            }
            Kind::Flat(flat) => {
                assert!(black_box(&*flat).is_right());
                flat.set_unique(number);
                black_box(&mut *flat).seal();
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [what, value, count] = arguments.as_slice() else {
        println!("today|flat|none LENGTH COUNT: nothing is counted without them");
        return;
    };
    let (value, count) = (value.parse().expect("a length"), count.parse::<u64>().expect("a number"));
    let mut kind = match what.as_str() {
        "today" => Kind::Today(Item::new(value)),
        "flat" => Kind::Flat(Flat::new(value)),
        _ => Kind::None,
    };
    // Buffers that are kept from request to request are there before it counts.
    let flat = Flat::new(value);
    assert!(flat.is_right(), "the layout has a place for every byte");
    if let Kind::Today(item) = &mut kind {
        black_box(item.protected().recompute());
    }
    run_all(&mut kind, count);
}
