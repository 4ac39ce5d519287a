//! A batch of client requests, the unit that gets a position: immutable bytes, shared from socket to executor.
//!
//! A batch is two byte strings, so that the leader can stamp it without copying or re-summing the requests:
//!
//! ```text
//! head (56 bytes): crc u32 | version u8 | origin u8 | flags u8 | 0 u8 | incarnation u64 | number u64 | time_us u64
//!                  | seed u64
//!                  | count u32 | body_len u32 | body_crc u32 | mark u32
//! body           : count x { len u32, checksum u32 } | the requests' bytes, one after the other
//! ```
//!
//! With the flag for streams a row of the table has a third word: `stream u32`.
//!
//! `crc` covers the rest of the head (and through `body_crc` the whole batch), `body_crc` the body.

use bytes::Bytes;
use wire::{Malformed, Put};

use crate::body::{BodyWriter, FrameBody};
use crate::limits;

/// Bytes of a batch's head.
pub const HEAD: usize = 56;
const VERSION: u8 = 1;
const FLAG_DRAIN: u8 = 1;
const FLAG_STREAMS: u8 = 2;
/// Where the head names the origin.
const ORIGIN: usize = 5;
/// Where the head has the flags.
const FLAGS: usize = 6;
/// Where the head has the incarnation.
const INCARNATION: usize = 8;
/// Where the head has the leader's stamp.
const TIME: usize = 24;
/// Where the head has the number of requests, and behind it the length of the body, its checksum, and the mark.
const COUNT: usize = 40;
/// Bytes a request takes in the table before the bytes of the requests, without and with its stream.
const ROW: usize = 8;
const ROW_WITH_STREAM: usize = 12;

/// CRC-32C of a request, taken when it is decoded from the client and verified when it is executed (end to end).
pub fn checksum(request: &[u8]) -> u32 {
    wire::crc32c(request)
}

/// One client request within a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The result of [`checksum`] when the client's bytes were decoded.
    pub checksum: u32,
    /// The connection that it came over, counted by its replica; 0 for none, and in batches without streams.
    pub stream: u32,
    /// The request; shares the batch's buffer.
    pub bytes: Bytes,
}

impl Request {
    /// Whether the bytes are still those that the client sent.
    pub fn is_intact(&self) -> bool {
        checksum(&self.bytes) == self.checksum
    }
}

/// Requests of one origin that were given one position together.
///
/// The fields are those of its head; the requests stay in shared bytes ([`Batch::requests`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Slot of the replica whose clients sent the requests.
    pub origin: u8,
    /// The incarnation of that replica; greater for each later one.
    pub incarnation: u64,
    /// Counts the origin's batches within an incarnation, from 1.
    pub number: u64,
    /// Which process formed it: two of one incarnation are a process and the older copy of a disk. 0 where no mark was
    /// drawn.
    pub mark: u32,
    /// Ordered time in microseconds of the UNIX epoch, stamped by the leader; grows strictly from batch to
    /// batch on delivery.
    pub time_us: u64,
    /// Ordered randomness, stamped by the leader.
    pub seed: u64,
    /// The leader had nothing more to propose: no entry follows at once.
    pub drain: bool,
    /// Whether the table of requests has their streams.
    streams: bool,
    count: u32,
    body: Bytes,
    /// Checksum of the body when its requests were joined.
    body_crc: u32,
}

impl Batch {
    /// Joins requests into a batch that the leader has yet to stamp. Their streams are left out.
    ///
    /// # Panics
    /// When the requests are none, more than [`limits::BATCH_REQUESTS`], or longer than [`limits::REQUEST_BYTES`] each.
    pub fn new(origin: u8, incarnation: u64, number: u64, requests: &[Request]) -> Self {
        match Batch::of(origin, incarnation, number, requests, false) {
            Some(batch) => batch,
            // panics: tests and tools make batches by it; a replica uses `Batch::of`
            None => panic!("no batch has {} such requests", requests.len()),
        }
    }

    /// As [`Batch::new`], with their streams if `streams`; none where that panics, since the requests may have been
    /// corrupted.
    pub fn of(
        origin: u8,
        incarnation: u64,
        number: u64,
        requests: &[Request],
        streams: bool,
    ) -> Option<Self> {
        let is_short = |request: &Request| request.bytes.len() <= limits::REQUEST_BYTES;
        let is_within = (1..=limits::BATCH_REQUESTS).contains(&requests.len());
        if !is_within || !requests.iter().all(is_short) {
            return None;
        }
        let bytes: usize = requests.iter().map(|request| request.bytes.len()).sum();
        let row = if streams { ROW_WITH_STREAM } else { ROW };
        let mut body = Vec::with_capacity(requests.len() * row + bytes);
        for request in requests {
            body.put32(request.bytes.len() as u32).put32(request.checksum);
            if streams {
                body.put32(request.stream);
            }
        }
        requests.iter().for_each(|request| body.extend_from_slice(&request.bytes));
        let count = requests.len() as u32;
        let body_crc = wire::crc32c(&body);
        let body = body.into();
        Some(Batch {
            origin,
            incarnation,
            number,
            mark: 0,
            time_us: 0,
            seed: 0,
            drain: false,
            streams,
            count,
            body,
            body_crc,
        })
    }

    /// The same batch, of the process with this mark.
    pub fn marked(self, mark: u32) -> Self {
        Batch { mark, ..self }
    }

    /// The same batch without its requests, which another batch brought before.
    pub(crate) fn emptied(self) -> Self {
        Batch { count: 0, body_crc: wire::crc32c(&[]), body: Bytes::new(), ..self }
    }

    /// The batch as a log entry: head and body. The body is shared, not copied.
    pub fn encode(&self) -> Encoded {
        Encoded { head: self.encode_head(), body: self.body.clone() }
    }

    /// Reads and verifies a batch.
    ///
    /// # Errors
    /// [`Malformed`] when a checksum does not match or a field is out of range; nothing of it may then be used.
    pub fn decode(encoded: &Encoded) -> Result<Self, Malformed> {
        Self::decode_body(Self::decode_head(encoded)?, true)
    }

    /// Reads a batch that is executed here and not passed on: its head is verified, and that its requests fill the
    /// body. Each request is compared with its own checksum before it is used; with a damaged table these are other
    /// bytes, or another checksum. Only where one does not fit is the body summed ([`Batch::is_intact`]), to tell what
    /// changed here from what was ordered like this. No request's checksum covers its stream, so a body with streams is
    /// summed.
    ///
    /// # Errors
    /// Those of [`Batch::decode`], without the body's checksum.
    pub(crate) fn decode_to_execute(encoded: &Encoded) -> Result<Self, Malformed> {
        let batch = Self::decode_head(encoded)?;
        let is_summed = batch.streams;
        Self::decode_body(batch, is_summed)
    }

    fn decode_body(self, is_summed: bool) -> Result<Self, Malformed> {
        if is_summed && !self.is_intact() {
            return Err(Malformed("batch body does not match its checksum"));
        }
        self.check_rows()?;
        Ok(self)
    }

    /// Number of requests: at least one, unless the exactly-once rule has left none ([`crate::Delivered`]).
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the exactly-once rule has left no request.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the requests and their table.
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Whether the body is unchanged since its requests were joined. Then a request in it that does not fit its own
    /// checksum did not fit it before it was ordered either, and fits it at no replica.
    pub fn is_intact(&self) -> bool {
        wire::crc32c(&self.body) == self.body_crc
    }

    /// The requests in order, sharing the batch's buffer.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request> + '_ {
        let mut at = self.table();
        (0..self.len()).map(move |row| {
            let (len, checksum, stream) = self.row(row);
            let bytes = self.body.slice(at..at + len);
            at += len;
            Request { checksum, stream, bytes }
        })
    }

    fn encode_head(&self) -> Bytes {
        let mut head = Vec::with_capacity(HEAD);
        let drain = if self.drain { FLAG_DRAIN } else { 0 };
        let flags = drain | if self.streams { FLAG_STREAMS } else { 0 };
        head.put32(0).put(&[VERSION, self.origin, flags, 0]);
        head.put64(self.incarnation).put64(self.number).put64(self.time_us).put64(self.seed);
        head.put32(self.count).put32(self.body.len() as u32).put32(self.body_crc).put32(self.mark);
        debug_assert_eq!(head.len(), HEAD);
        let crc = wire::crc32c(&head[4..]);
        head[..4].copy_from_slice(&crc.to_le_bytes());
        head.into()
    }

    /// The fields of an intact head, with a body that may not be the one that it describes ([`Batch::is_intact`]).
    pub(crate) fn decode_head(encoded: &Encoded) -> Result<Self, Malformed> {
        let head: &[u8; HEAD] =
            encoded.head.as_ref().try_into().map_err(|_| Malformed("batch head has a wrong length"))?;
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if wire::crc32c(&head[4..]) != u32_at(0) {
            return Err(Malformed("batch head does not match its checksum"));
        }
        let flags = head[FLAGS];
        if head[4] != VERSION || flags & !(FLAG_DRAIN | FLAG_STREAMS) != 0 || head[7] != 0 {
            return Err(Malformed("batch head of another version"));
        }
        let batch = Batch {
            origin: head[ORIGIN],
            incarnation: u64_at(8),
            number: u64_at(16),
            mark: u32_at(52),
            time_us: u64_at(24),
            seed: u64_at(32),
            drain: flags & FLAG_DRAIN != 0,
            streams: flags & FLAG_STREAMS != 0,
            count: u32_at(40),
            body: encoded.body.clone(),
            body_crc: u32_at(48),
        };
        if batch.count == 0
            || batch.len() > limits::BATCH_REQUESTS
            || u32_at(44) as usize != encoded.body.len()
        {
            return Err(Malformed("batch has a wrong size"));
        }
        Ok(batch)
    }

    /// Every row's length is in range and together they fill the body exactly; [`Batch::requests`] relies on it.
    fn check_rows(&self) -> Result<(), Malformed> {
        let table = self.table();
        if self.body.len() < table {
            return Err(Malformed("batch is shorter than its table"));
        }
        let mut end = table;
        for row in 0..self.len() {
            let (len, ..) = self.row(row);
            if len > limits::REQUEST_BYTES {
                return Err(Malformed("request is too long"));
            }
            end += len;
        }
        if end == self.body.len() { Ok(()) } else { Err(Malformed("requests do not fill their batch")) }
    }

    /// Bytes of the table.
    fn table(&self) -> usize {
        self.len() * self.row_len()
    }

    fn row_len(&self) -> usize {
        if self.streams { ROW_WITH_STREAM } else { ROW }
    }

    /// Length, checksum and stream of a request.
    fn row(&self, row: usize) -> (usize, u32, u32) {
        let row = &self.body[row * self.row_len()..][..self.row_len()];
        let word = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        (word(0) as usize, word(4), if self.streams { word(8) } else { 0 })
    }
}

/// A batch in messages and in the log: two byte strings that are only copied by reference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// Exactly [`HEAD`] bytes when intact; rewritten by the leader's stamp.
    pub head: Bytes,
    /// The requests; never rewritten.
    pub body: Bytes,
}

impl Encoded {
    /// The replica whose requests they are; not reliable before the checksum is verified.
    pub(crate) fn claimed_origin(head: &[u8]) -> Option<u8> {
        head.get(ORIGIN).copied()
    }

    /// The replica whose requests they are and its incarnation; not reliable before the checksum is verified.
    pub(crate) fn claimed_incarnation(head: &[u8]) -> Option<(u8, u64)> {
        let incarnation = head.get(INCARNATION..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        Some((*head.get(ORIGIN)?, incarnation))
    }

    /// The number of requests, and whether the leader had nothing more to propose; not reliable before the checksum is
    /// verified.
    pub(crate) fn claimed_size(head: &[u8]) -> Option<(usize, bool)> {
        let count = head.get(COUNT..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        Some((count as usize, head.get(FLAGS)? & FLAG_DRAIN != 0))
    }

    /// What of a head no leader rewrites and tells a batch from all others: the incarnation and the number; and the
    /// number of requests, the body's length and checksum, and the mark of the process. Not reliable before the
    /// checksum is verified.
    pub(crate) fn claimed_identity(head: &[u8]) -> Option<([u8; 16], [u8; 16])> {
        Some((*head.get(INCARNATION..)?.first_chunk()?, *head.get(COUNT..)?.first_chunk()?))
    }

    /// The incarnation and the number of the batch; not reliable before the checksum is verified.
    pub(crate) fn claimed_number(head: &[u8]) -> Option<(u64, u64)> {
        let word = |at: usize| head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Some((word(INCARNATION)?, word(INCARNATION + 8)?))
    }

    /// The leader's stamp in microseconds since 1970; not reliable before the checksum is verified.
    pub(crate) fn claimed_time(head: &[u8]) -> Option<u64> {
        head.get(TIME..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Splits a contiguous encoding (the body of a FORWARD frame).
    ///
    /// # Errors
    /// [`Malformed`] when there are fewer bytes than a head.
    pub fn split(mut bytes: Bytes) -> Result<Self, Malformed> {
        if bytes.len() < HEAD {
            return Err(Malformed("batch is shorter than its head"));
        }
        let head = bytes.split_to(HEAD);
        Ok(Encoded { head, body: bytes })
    }

    /// The body of a FORWARD frame, which [`Encoded::split`] reads.
    pub(crate) fn into_frame(self) -> FrameBody {
        let mut body = BodyWriter::with_capacity(0, 2);
        body.share(&self.head);
        body.share(&self.body);
        body.finish()
    }

    /// Total bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether there are no bytes at all (the engine's own empty entries).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The leader's stamp: rewrites time, seed and drain bit in a new head; the body is shared and its checksum kept.
    ///
    /// # Errors
    /// [`Malformed`] when the head is not intact.
    pub fn stamped(&self, time_us: u64, seed: u64, drain: bool) -> Result<Self, Malformed> {
        let stamped = Batch { time_us, seed, drain, ..Batch::decode_head(self)? };
        Ok(Encoded { head: stamped.encode_head(), body: self.body.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &'static [u8]) -> Request {
        Request { checksum: checksum(bytes), stream: 0, bytes: Bytes::from_static(bytes) }
    }

    fn sample() -> Batch {
        Batch::new(2, 7, 1, &[request(b"get a"), request(b""), request(b"set b 0 0 1")])
    }

    /// The same requests, of three connections.
    fn with_streams() -> Batch {
        let requests: Vec<Request> = sample()
            .requests()
            .zip([9, 0, u32::MAX])
            .map(|(request, stream)| Request { stream, ..request })
            .collect();
        Batch::of(2, 7, 1, &requests, true).unwrap()
    }

    #[test]
    fn a_batch_survives_the_trip_and_the_stamp() {
        let batch = sample();
        let stamped = batch.encode().stamped(99, 5, true).unwrap();
        let back = Batch::decode(&stamped).unwrap();
        assert_eq!(back, Batch { time_us: 99, seed: 5, drain: true, ..batch.clone() });
        assert_eq!(back.requests().collect::<Vec<_>>(), batch.requests().collect::<Vec<_>>());
        assert!(back.requests().all(|request| request.is_intact()));
        assert_eq!(stamped.body.as_ptr(), back.body.as_ptr(), "no copy of the requests");
    }

    #[test]
    fn streams_travel_with_their_requests_and_cost_the_others_nothing() {
        let back = Batch::decode(&with_streams().encode().stamped(99, 5, true).unwrap()).unwrap();
        let streams: Vec<u32> = back.requests().map(|request| request.stream).collect();
        assert_eq!(streams, [9, 0, u32::MAX]);
        let bytes = |batch: &Batch| batch.requests().map(|request| request.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&back), bytes(&sample()));
        assert_eq!(back.body_len(), sample().body_len() + 3 * 4);
        // A batch without streams has the bytes that it always had, whatever the requests' streams are.
        let requests: Vec<Request> = with_streams().requests().collect();
        assert_eq!(Batch::new(2, 7, 1, &requests).encode(), sample().encode());
        assert_eq!(size_of::<Request>(), size_of::<(u32, Bytes)>());
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        for sample in [sample(), with_streams()] {
            let encoded = sample.encode().stamped(1, 2, false).unwrap();
            let bytes = [encoded.head.as_ref(), encoded.body.as_ref()].concat();
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                let split = Encoded::split(broken.into()).unwrap();
                assert!(Batch::decode(&split).is_err(), "bit {bit} passed");
            }
        }
    }

    /// A head whose checksum fits, with the other flag: the rows are not those of the body.
    #[test]
    fn a_table_that_is_read_with_rows_of_the_other_size_does_not_fill_the_body() {
        for sample in [sample(), with_streams()] {
            let other = Batch { streams: !sample.streams, ..sample };
            assert!(Batch::decode(&other.encode()).is_err());
        }
    }

    #[test]
    fn a_stamp_does_not_launder_a_corrupt_body() {
        let encoded = sample().encode();
        let mut body = encoded.body.to_vec();
        *body.last_mut().unwrap() ^= 1;
        let broken = Encoded { head: encoded.head, body: body.into() };
        let stamped = broken.stamped(1, 2, false).unwrap();
        assert!(Batch::decode(&stamped).is_err());
    }

    #[test]
    fn a_request_corrupted_before_it_was_batched_is_noticed_at_execution() {
        let mut bad = request(b"incr a 1");
        bad.bytes = Bytes::from_static(b"incr a 9");
        let batch = Batch::decode(&Batch::new(0, 1, 1, &[bad]).encode()).unwrap();
        assert!(!batch.requests().next().unwrap().is_intact());
        assert!(batch.is_intact(), "it was ordered like this: it is the same at every replica");
        let mut body = batch.body.to_vec();
        *body.last_mut().unwrap() ^= 1;
        assert!(!Batch { body: body.into(), ..batch }.is_intact(), "it is wrong here alone");
    }
}
