//! The inverse of decoding a binary packet, as a check of it: the packet that a client sends to mean an ordered
//! request. See `rendering`, which does it for lines; this shares nothing with the decoder but the format of ordered
//! requests.

use smallvec::SmallVec;
use wire::Reader;

use crate::command::{ARITHMETIC, BINARY, DELETE, GET, STORE, TOUCH};
use crate::limits::{KEY_BYTES, stock_overhead};

/// The bytes at the beginning of `input` that a client sends to mean `ordered`, where items have at most `item_bytes`.
/// None for `flush`, which has two forms, for values beyond the item limit, and for what no client sends.
pub(super) fn rendered(input: &[u8], ordered: &[u8], item_bytes: usize) -> Option<usize> {
    let mut ordered = Reader::new(ordered);
    if ordered.u8().ok()? != BINARY {
        return None;
    }
    let (opcode, opaque, compare) = (ordered.u8().ok()?, ordered.u32().ok()?, ordered.u64().ok()?);
    let initial = match ordered.u8().ok()? {
        0 => None,
        1 => Some((ordered.u64().ok()?, ordered.u32().ok()?)),
        _ => return None,
    };
    let parts = parts(&mut ordered, opcode, initial, item_bytes)?;
    ordered.end().ok()?;
    let extras = parts.extras();
    let body = extras.len() + parts.key.len() + parts.value.len();
    let rest = input.strip_prefix(&[0x80, opcode])?;
    let rest = rest.strip_prefix(&u16::try_from(parts.key.len()).ok()?.to_be_bytes())?;
    // The data type and the partition, which nothing looks at, are whatever the client sends.
    let rest = rest.strip_prefix(&[u8::try_from(extras.len()).ok()?])?.get(3..)?;
    let rest = rest.strip_prefix(&u32::try_from(body).ok()?.to_be_bytes())?;
    let rest = rest.strip_prefix(&opaque.to_be_bytes())?.strip_prefix(&compare.to_be_bytes())?;
    let rest = rest.strip_prefix(&extras[..])?.strip_prefix(parts.key)?.strip_prefix(parts.value)?;
    Some(input.len() - rest.len())
}

/// The numbers before a key.
enum ExtrasParts {
    None,
    Expiry(u32),
    FlagsAndExpiry(u32, u32),
    Step { delta: u64, initial: u64, expiry: u32 },
}

/// What follows a packet's header.
struct Parts<'o> {
    numbers: ExtrasParts,
    key: &'o [u8],
    value: &'o [u8],
}

impl Parts<'_> {
    fn extras(&self) -> SmallVec<[u8; 20]> {
        let mut extras = SmallVec::new();
        match self.numbers {
            ExtrasParts::None => {}
            ExtrasParts::Expiry(expiry) => extras.extend_from_slice(&expiry.to_be_bytes()),
            ExtrasParts::FlagsAndExpiry(flags, expiry) => {
                extras.extend_from_slice(&flags.to_be_bytes());
                extras.extend_from_slice(&expiry.to_be_bytes());
            }
            ExtrasParts::Step { delta, initial, expiry } => {
                extras.extend_from_slice(&delta.to_be_bytes());
                extras.extend_from_slice(&initial.to_be_bytes());
                extras.extend_from_slice(&expiry.to_be_bytes());
            }
        }
        extras
    }
}

fn parts<'o>(
    ordered: &mut Reader<'o>,
    opcode: u8,
    initial: Option<(u64, u32)>,
    item_bytes: usize,
) -> Option<Parts<'o>> {
    let (kind, flags) = (ordered.u8().ok()?, ordered.u8().ok()?);
    if initial.is_some() && kind != ARITHMETIC {
        return None;
    }
    let parts = match (kind, flags, opcode) {
        // Without a new expiry time and with one; the unique is always wanted.
        (GET, 1, 0x00 | 0x09 | 0x0c | 0x0d) => {
            Parts { numbers: ExtrasParts::None, key: key(ordered)?, value: &[] }
        }
        (GET, 3, 0x1d | 0x1e | 0x23 | 0x24) => {
            let expiry = u32::try_from(ordered.i64().ok()?).ok()?;
            Parts { numbers: ExtrasParts::Expiry(expiry), key: key(ordered)?, value: &[] }
        }
        (STORE, 0, _) => return store(ordered, opcode, item_bytes),
        (DELETE, 0, 0x04 | 0x14) => Parts { numbers: ExtrasParts::None, key: key(ordered)?, value: &[] },
        (ARITHMETIC, 2, 0x05 | 0x15) | (ARITHMETIC, 0, 0x06 | 0x16) => {
            let key = key(ordered)?;
            // Without an initial value its bytes are whatever the client sends: such a request is decoded twice.
            let (initial, expiry) = initial.filter(|(_, expiry)| *expiry != u32::MAX)?;
            let numbers = ExtrasParts::Step { delta: ordered.u64().ok()?, initial, expiry };
            Parts { numbers, key, value: &[] }
        }
        (TOUCH, 0, 0x1c) => {
            let key = key(ordered)?;
            let expiry = u32::try_from(ordered.i64().ok()?).ok()?;
            Parts { numbers: ExtrasParts::Expiry(expiry), key, value: &[] }
        }
        _ => return None,
    };
    Some(parts)
}

fn key<'o>(ordered: &mut Reader<'o>) -> Option<&'o [u8]> {
    let length = ordered.u8().ok()?;
    let key = ordered.take(usize::from(length)).ok()?;
    (1..=KEY_BYTES).contains(&key.len()).then_some(key)
}

fn store<'o>(ordered: &mut Reader<'o>, opcode: u8, item_bytes: usize) -> Option<Parts<'o>> {
    let mode = ordered.u8().ok()?;
    let (flags, expiry) = (ordered.u32().ok()?, u32::try_from(ordered.i64().ok()?).ok()?);
    let (key, value) = (key(ordered)?, ordered.rest());
    let numbers = match (mode, opcode) {
        (0, 0x01 | 0x11) | (1, 0x02 | 0x12) | (2, 0x03 | 0x13) => ExtrasParts::FlagsAndExpiry(flags, expiry),
        (3, 0x0e | 0x19) | (4, 0x0f | 0x1a) if (flags, expiry) == (0, 0) => ExtrasParts::None,
        _ => return None,
    };
    let fits = stock_overhead(flags) + key.len() + value.len() <= item_bytes;
    fits.then_some(Parts { numbers, key, value })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crosscheck::{Action, Progress, Protocol};

    use super::rendered;
    use crate::config::Config;
    use crate::protocol::Connection;
    use crate::stats::Stats;

    fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let body = (extras.len() + key.len() + value.len()) as u32;
        let lengths =
            [&[0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0][..], &body.to_be_bytes()];
        let numbers = [&7u32.to_be_bytes()[..], &9u64.to_be_bytes()];
        [&lengths.concat()[..], &numbers.concat(), extras, key, value].concat()
    }

    fn ordered(input: &[u8]) -> Vec<u8> {
        let mut connection = Connection::new(Arc::new(Stats::new(Config::default())), Arc::default());
        match connection.next(input) {
            Progress::Done { used, action: Action::Order(request) } if used == input.len() => request,
            other => panic!("{input:?}: {other:?}"),
        }
    }

    fn common() -> Vec<Vec<u8>> {
        let number = 300u32.to_be_bytes();
        let step = [&1u64.to_be_bytes()[..], &5u64.to_be_bytes(), &number].concat();
        let mut packets = Vec::new();
        for opcode in [0x00, 0x09, 0x0c, 0x0d, 0x04, 0x14] {
            packets.push(packet(opcode, b"", b"a key", b""));
        }
        for opcode in [0x01, 0x02, 0x03, 0x11, 0x12, 0x13] {
            packets.push(packet(opcode, &[number, number].concat(), b"key", b"any\0value\r\n"));
        }
        for opcode in [0x0e, 0x0f, 0x19, 0x1a] {
            packets.push(packet(opcode, b"", b"key", b"more"));
        }
        for opcode in [0x05, 0x06, 0x15, 0x16] {
            packets.push(packet(opcode, &step, b"key", b""));
        }
        for opcode in [0x1c, 0x1d, 0x1e, 0x23, 0x24] {
            packets.push(packet(opcode, &number, b"key", b""));
        }
        packets
    }

    #[test]
    fn packets_are_rendered_and_no_flipped_bit_fits() {
        for input in common() {
            let ordered = ordered(&input);
            assert_eq!(rendered(&input, &ordered, 1 << 20), Some(input.len()), "{input:?}");
            for bit in 0..ordered.len() * 8 {
                let mut wrong = ordered.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    rendered(&input, &wrong, 1 << 20),
                    None,
                    "{input:?}: bit {bit} of what is ordered"
                );
            }
            for bit in (0..input.len() * 8).filter(|bit| !(5..8).contains(&(bit / 8))) {
                let mut wrong = input.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(rendered(&wrong, &ordered, 1 << 20), None, "{input:?}: bit {bit} of the input");
            }
            for length in 0..input.len() {
                assert_eq!(rendered(&input[..length], &ordered, 1 << 20), None, "{input:?}: {length} bytes");
            }
        }
    }

    #[test]
    fn other_forms_are_left_to_a_second_decoding() {
        let nothing = [&1u64.to_be_bytes()[..], &5u64.to_be_bytes(), &[0xff; 4]].concat();
        for input in [packet(0x08, b"", b"", b""), packet(0x05, &nothing, b"key", b"")] {
            assert_eq!(rendered(&input, &ordered(&input), 1 << 20), None, "{input:?}");
        }
        let input = packet(0x01, &[0; 8], b"key", b"value");
        let least = super::stock_overhead(0) + 3 + 5;
        assert_eq!(rendered(&input, &ordered(&input), least), Some(input.len()));
        assert_eq!(rendered(&input, &ordered(&input), least - 1), None);
    }
}
