//! The digests that replicas compare, defined once: workers compute a request's, this crate folds them into a batch's.

use object::Pair;
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// Digest of one request: of the objects it touched and of its reply.
pub type RequestDigest = u128;
/// Digest of one batch: the digests of its requests, in order, and its index.
pub type BatchDigest = u128;

/// Version of the definitions below. It seeds every digest, so that replicas of different versions never agree by
/// accident.
pub const VERSION: u64 = 6;

const SEED_REPLY: u64 = 0x5245_504c_5900_0000 | VERSION;
const SEED_CONTENT: u64 = 0x434f_4e54_4e54_0000 | VERSION;
const SEED_REQUEST: u64 = 0x5245_5155_4553_0000 | VERSION;
const SEED_RUN: u64 = 0x5255_4e00_0000_0000 | VERSION;
const SEED_STARTED: u64 = 0x5354_4152_5400_0000 | VERSION;
const SEED_BATCH: u64 = 0x4241_5443_4800_0000 | VERSION;
const SEED_REPAIR: u64 = 0x5245_5041_4952_0000 | VERSION;

/// Bytes of one pair in a digest and in a message.
pub(crate) const PAIR_BYTES: usize = 20;
/// Pairs whose digest is computed on the stack; nearly every request of a key-value store.
const PAIRS_ON_STACK: usize = 24;
/// Pairs of a request that touches one item: its shard, its bucket, itself.
const FEW_PAIRS: usize = 4;
/// The sum of a reply's blocks of 16 bytes, its length, and at most 15 bytes behind the blocks.
const REPLY_SUMMED: usize = 32;
/// An [`Answer`] of a request that started no other.
const TAIL_BYTES: usize = 44;
/// Any other. No number of pairs of [`PAIR_BYTES`] makes up the difference, so that the length shows which one it is.
const STARTED_TAIL_BYTES: usize = TAIL_BYTES + 16;
const _: () = assert!(!(STARTED_TAIL_BYTES - TAIL_BYTES).is_multiple_of(PAIR_BYTES));

/// The answer of a request, as replicas compare and exchange it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Answer {
    /// Position of the request in the schedule. Ids of new objects are made from it: a replica with a wrong position
    /// would create other objects than its peers from then on, although every handler is right.
    pub position: u64,
    /// Ordered time at which it ran, in microseconds. A scheduler never goes back in time: if its time is once too far
    /// ahead, objects expire too early at its replica from then on, although every handler is right.
    pub time_us: u64,
    /// Checksum of the ordered request that is answered: if it differs at the same position, the replica has exchanged
    /// one request for another.
    pub request_checksum: u32,
    /// Length of the reply in bytes.
    pub bytes: u64,
    /// Digest of the reply, by [`reply`].
    pub digest: u128,
    /// Digest of the requests and timers that the request started, by [`started`]; 0 if there are none. They are in no
    /// object: if a replica starts others, or loses them, it executes other requests than its peers later.
    pub started: u128,
}

impl Answer {
    /// The answer whose bytes are `reply`, to the ordered request whose checksum is `request_checksum`, run at this
    /// position and time. It starts nothing.
    pub fn new(position: u64, time_us: u64, request_checksum: u32, reply: &[u8]) -> Self {
        let digest = self::reply(request_checksum, reply);
        Answer { position, time_us, request_checksum, bytes: reply.len() as u64, digest, started: 0 }
    }
}

/// Digest of a reply's bytes as the answer to the ordered request whose checksum is `request_checksum`: replicas that
/// agree on it also agree on the request, and right bytes for another request do not fit.
///
/// The bytes are summed by the code that protects objects (docs/design.md, section 3), which takes a third of the time
/// of a hash of 128 bits; their sum, their length and what does not fill a block are hashed.
pub fn reply(request_checksum: u32, bytes: &[u8]) -> u128 {
    let (blocks, rest) = bytes.as_chunks();
    let mut summed = [0; REPLY_SUMMED];
    summed[..8].copy_from_slice(&object::sum_of_blocks(blocks).to_le_bytes());
    summed[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    summed[16..][..rest.len()].copy_from_slice(rest);
    xxh3_128_with_seed(&summed, SEED_REPLY ^ u64::from(request_checksum) << 8)
}

/// The checksum that stands for a request's own one in the answer of a result whose reply has parts for the clients of
/// other requests: no reply is taken for one of the other sort.
pub fn with_parts(request_checksum: u32) -> u32 {
    request_checksum ^ 0x4c41_5445
}

/// Whether both are checksums of the same request, with or without parts.
pub(crate) fn are_of_one_request(one: u32, other: u32) -> bool {
    one == other || one == with_parts(other)
}

/// Lengths that [`is_valid`] tries: they cover all four cases in which XXH3 treats its input.
const TRIED: usize = 300;
/// The expected result of [`is_valid`].
const FOLDED: u128 = 0x358f_46d3_40af_a7e4_3bac_ba3d_5425_a11a;

/// Whether digests are still computed correctly, checked by known answers: with one wrong constant a replica
/// disagrees with its peers about every request.
pub fn is_valid() -> bool {
    folded() == FOLDED
}

fn folded() -> u128 {
    let bytes: [u8; TRIED] = std::array::from_fn(|at| (at as u8).wrapping_mul(167) ^ 0x5A);
    (0..=TRIED).fold(0, |folded: u128, length| {
        let bytes = &bytes[..length];
        folded.rotate_left(7) ^ reply(length as u32, bytes) ^ content(bytes)
    })
}

/// Digest of bytes that are no reply: packed objects, digests of regions.
pub fn content(bytes: &[u8]) -> u128 {
    xxh3_128_with_seed(bytes, SEED_CONTENT)
}

/// Digest of a request from its state delta and its answer (docs/design.md, section 6). `pairs` are sorted by (region,
/// id).
pub fn request(pairs: &[Pair], answer: &Answer) -> RequestDigest {
    debug_assert!(pairs.is_sorted(), "a state delta is sorted by region and id");
    if pairs.len() <= FEW_PAIRS {
        return few::<{ FEW_PAIRS * PAIR_BYTES + STARTED_TAIL_BYTES }>(pairs, answer);
    }
    if pairs.len() <= PAIRS_ON_STACK {
        return few::<{ PAIRS_ON_STACK * PAIR_BYTES + STARTED_TAIL_BYTES }>(pairs, answer);
    }
    let mut hasher = Xxh3::with_seed(SEED_REQUEST);
    for pair in pairs {
        hasher.update(&pair_bytes(pair));
    }
    let (tail, length) = tail_bytes(answer);
    hasher.update(&tail[..length]);
    hasher.digest128()
}

/// The digest of pairs that fit a buffer of `N` bytes together with the answer: to clear a larger one costs as much as
/// the digest.
#[inline]
fn few<const N: usize>(pairs: &[Pair], answer: &Answer) -> RequestDigest {
    let mut buffer = [0u8; N];
    for (pair, chunk) in pairs.iter().zip(buffer.chunks_exact_mut(PAIR_BYTES)) {
        chunk.copy_from_slice(&pair_bytes(pair));
    }
    let end = pairs.len() * PAIR_BYTES;
    let (tail, length) = tail_bytes(answer);
    buffer[end..end + STARTED_TAIL_BYTES].copy_from_slice(&tail);
    xxh3_128_with_seed(&buffer[..end + length], SEED_REQUEST)
}

/// Digest of one run of a request that a replica runs more than once: `run` numbers its runs from 1, and `result` is
/// the digest of this run's result, by [`request`]. Runs with equal results have different digests, so that none can
/// stand for another.
pub fn run(run: u8, result: RequestDigest) -> u128 {
    xxh3_128_with_seed(&result.to_le_bytes(), SEED_RUN ^ u64::from(run) << 8)
}

/// Digest of the requests that a request has started, in order: `before` is that of the earlier ones, or 0, and `bytes`
/// is the next one, which runs soon or at a time in microseconds.
pub fn started(before: u128, time_us: Option<u64>, bytes: &[u8]) -> u128 {
    let mut hasher = Xxh3::with_seed(SEED_STARTED);
    hasher.update(&before.to_le_bytes());
    hasher.update(&[u8::from(time_us.is_some())]);
    hasher.update(&time_us.unwrap_or_default().to_le_bytes());
    hasher.update(bytes);
    hasher.digest128()
}

/// The contribution of an abandoned request to the batch digest of `replica`: never equal to a result, and never equal
/// to another replica's abandonment, so that replicas cannot agree on having no result.
pub fn abandoned(batch: u64, request: u16, replica: u8) -> RequestDigest {
    let mut bytes = [0xff; 11];
    bytes[..8].copy_from_slice(&batch.to_le_bytes());
    bytes[8..10].copy_from_slice(&request.to_le_bytes());
    bytes[10] = replica;
    xxh3_128_with_seed(&bytes, SEED_BATCH ^ SEED_REQUEST)
}

/// Folds request digests in order with the batch's index. `scratch` is the caller's and only saves an allocation.
pub fn batch(
    batch: u64,
    requests: impl Iterator<Item = RequestDigest>,
    scratch: &mut Vec<u8>,
) -> BatchDigest {
    scratch.clear();
    scratch.extend_from_slice(&batch.to_le_bytes());
    for digest in requests {
        scratch.extend_from_slice(&digest.to_le_bytes());
    }
    xxh3_128_with_seed(scratch, SEED_BATCH)
}

/// Digest of one piece of a packed object. It covers all data that the faulty replica will use: the turn, the object,
/// the number of the piece and of all pieces, whether the object is present, and the bytes.
pub fn repair_piece(header: &RepairHeader, bytes: &[u8]) -> u128 {
    let mut head = [0u8; 40];
    head[..8].copy_from_slice(&header.batch.to_le_bytes());
    head[8..10].copy_from_slice(&header.request.to_le_bytes());
    head[10] = header.present as u8;
    head[12..16].copy_from_slice(&header.region_id.to_le_bytes());
    head[16..24].copy_from_slice(&header.id.to_le_bytes());
    head[24..28].copy_from_slice(&header.piece.to_le_bytes());
    head[28..32].copy_from_slice(&header.pieces.to_le_bytes());
    head[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    let mut hasher = Xxh3::with_seed(SEED_REPAIR);
    hasher.update(&head);
    hasher.update(bytes);
    hasher.digest128()
}

/// The claims of a piece of a packed object; input of [`repair_piece`].
#[derive(Clone, Copy, Debug)]
pub struct RepairHeader {
    /// Batch of the RECOVER's turn.
    pub batch: u64,
    /// Index of the RECOVER in its batch.
    pub request: u16,
    /// Region of the object.
    pub region_id: u32,
    /// Bits of the object's id.
    pub id: u64,
    /// This piece, from 0.
    pub piece: u32,
    /// Pieces in all, at least 1.
    pub pieces: u32,
    /// Whether the object exists at all.
    pub present: bool,
}

pub(crate) fn pair_bytes(pair: &Pair) -> [u8; PAIR_BYTES] {
    let mut bytes = [0u8; PAIR_BYTES];
    bytes[..4].copy_from_slice(&pair.region_id.to_le_bytes());
    bytes[4..12].copy_from_slice(&pair.id.to_bits().to_le_bytes());
    bytes[12..].copy_from_slice(&pair.sum.to_le_bytes());
    bytes
}

/// An answer in a digest, and its length there: a request that started nothing is not charged for that.
fn tail_bytes(answer: &Answer) -> ([u8; STARTED_TAIL_BYTES], usize) {
    let mut bytes = [0u8; STARTED_TAIL_BYTES];
    bytes[..8].copy_from_slice(&answer.bytes.to_le_bytes());
    bytes[8..24].copy_from_slice(&answer.digest.to_le_bytes());
    bytes[24..28].copy_from_slice(&answer.request_checksum.to_le_bytes());
    bytes[28..36].copy_from_slice(&answer.position.to_le_bytes());
    bytes[36..44].copy_from_slice(&answer.time_us.to_le_bytes());
    bytes[44..].copy_from_slice(&answer.started.to_le_bytes());
    (bytes, if answer.started == 0 { TAIL_BYTES } else { STARTED_TAIL_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_computed_as_ever() {
        assert_eq!(
            folded(),
            FOLDED,
            "other versions of the crates, or of the definition, need another VERSION"
        );
    }

    #[test]
    fn what_a_request_started_changes_its_digest() {
        for pairs in [0, 1, 4, PAIRS_ON_STACK, PAIRS_ON_STACK + 1] {
            let pairs = vec![Pair { region_id: 1, id: object::ObjectId::new(2, 3), sum: 4 }; pairs];
            let digest = |started| request(&pairs, &Answer { started, ..Answer::new(1, 2, 3, b"OK") });
            let one = started(0, Some(7), b"a");
            let starts =
                [0, one, started(one, Some(7), b"a"), started(0, Some(8), b"a"), started(0, None, b"a")];
            let digests: std::collections::BTreeSet<u128> = starts.into_iter().map(digest).collect();
            assert_eq!(digests.len(), starts.len(), "{} pairs", pairs.len());
        }
    }

    #[test]
    fn every_flipped_bit_of_a_reply_and_every_other_length_has_another_digest() {
        for length in [1, 15, 16, 17, 40, 300] {
            let right: Vec<u8> = (0..length).map(|at: u16| at as u8 ^ 0x5A).collect();
            let digest = reply(7, &right);
            for bit in 0..8 * right.len() {
                let mut wrong = right.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(reply(7, &wrong), digest, "bit {bit} of {length} bytes");
            }
            let longer = [&right[..], &[0]].concat();
            assert_ne!(reply(7, &longer), digest);
            assert_ne!(reply(7, &right[1..]), digest);
            assert_ne!(reply(8, &right), digest);
        }
    }
}
