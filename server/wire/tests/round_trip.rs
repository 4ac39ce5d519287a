//! The reader reads what the writer appends, and no bytes make it panic or return more than there is.

use bytes::Bytes;
use proptest::prelude::*;
use wire::{Malformed, Put, Reader, SharedReader};

/// One field of a layout.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Byte(u8),
    Short(u16),
    Word(u32),
    Long(u64),
    Wide(u128),
    Signed(i64),
    Flag(bool),
    Sized(Vec<u8>),
    Items16(Vec<u64>),
    Items32(Vec<u64>),
}

/// The most items that a counted field may have.
const MOST: usize = 5;

fn field() -> impl Strategy<Value = Field> {
    let items = || prop::collection::vec(any::<u64>(), 0..=MOST);
    prop_oneof![
        any::<u8>().prop_map(Field::Byte),
        any::<u16>().prop_map(Field::Short),
        any::<u32>().prop_map(Field::Word),
        any::<u64>().prop_map(Field::Long),
        any::<u128>().prop_map(Field::Wide),
        any::<i64>().prop_map(Field::Signed),
        any::<bool>().prop_map(Field::Flag),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Field::Sized),
        items().prop_map(Field::Items16),
        items().prop_map(Field::Items32),
    ]
}

fn put(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Byte(value) => out.put8(*value),
        Field::Short(value) => out.put16(*value),
        Field::Word(value) => out.put32(*value),
        Field::Long(value) => out.put64(*value),
        Field::Wide(value) => out.put128(*value),
        Field::Signed(value) => out.put(&value.to_le_bytes()),
        Field::Flag(value) => out.put8(u8::from(*value)),
        Field::Sized(bytes) => out.put_sized(|out| _ = out.put(bytes)),
        Field::Items16(items) => {
            items.iter().fold(out.put16(items.len() as u16), |out, item| out.put64(*item))
        }
        Field::Items32(items) => {
            items.iter().fold(out.put32(items.len() as u32), |out, item| out.put64(*item))
        }
    };
}

/// Reads a field of the same kind as `like`.
fn read(reader: &mut SharedReader<'_>, like: &Field) -> Result<Field, Malformed> {
    let many = |reader: &mut SharedReader<'_>, count: usize| {
        assert!(count <= MOST && count * 8 <= reader.remaining());
        (0..count).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()
    };
    Ok(match like {
        Field::Byte(_) => Field::Byte(reader.u8()?),
        Field::Short(_) => Field::Short(reader.u16()?),
        Field::Word(_) => Field::Word(reader.u32()?),
        Field::Long(_) => Field::Long(reader.u64()?),
        Field::Wide(_) => Field::Wide(reader.u128()?),
        Field::Signed(_) => Field::Signed(reader.i64()?),
        Field::Flag(_) => Field::Flag(reader.flag()?),
        Field::Sized(_) => {
            let length = reader.length32()?;
            assert!(length <= reader.remaining());
            Field::Sized(reader.bytes(length)?.to_vec())
        }
        Field::Items16(_) => {
            let count = reader.count16(MOST, 8)?;
            Field::Items16(many(reader, count)?)
        }
        Field::Items32(_) => {
            let count = reader.count32(MOST, 8)?;
            Field::Items32(many(reader, count)?)
        }
    })
}

fn read_all(bytes: &Bytes, like: &[Field]) -> Result<Vec<Field>, Malformed> {
    let mut reader = Reader::shared(bytes);
    let fields = like.iter().map(|field| read(&mut reader, field)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(fields)
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_nothing_shorter_or_longer(fields in prop::collection::vec(field(), 1..12)) {
        let mut out = Vec::new();
        fields.iter().for_each(|field| put(&mut out, field));
        let bytes = Bytes::from(out);
        for length in 0..bytes.len() {
            prop_assert!(read_all(&bytes.slice(..length), &fields).is_err(), "{} bytes are enough", length);
        }
        let longer = Bytes::from([&bytes, &[0][..]].concat());
        prop_assert_eq!(read_all(&longer, &fields), Err(Malformed("bytes follow the last field")));
        prop_assert_eq!(read_all(&bytes, &fields), Ok(fields));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        fields in prop::collection::vec(field(), 1..12),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = read_all(&bytes.into(), &fields);
    }

    #[test]
    fn parts_are_those_of_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), length in 0..50usize) {
        let whole = Bytes::from(bytes);
        let (mut plain, mut shared) = (Reader::new(&whole), Reader::shared(&whole));
        match shared.bytes(length) {
            Err(error) => {
                prop_assert!(length > whole.len());
                prop_assert_eq!(plain.take(length), Err(error));
                prop_assert_eq!(shared.remaining(), whole.len(), "a refusal takes nothing");
            }
            Ok(part) => {
                prop_assert_eq!(plain.take(length), Ok(&part[..]));
                prop_assert_eq!(&part, &whole.slice(..length));
                prop_assert!(part.is_empty() || part.as_ptr() == whole.as_ptr(), "it is not a copy");
            }
        }
        prop_assert_eq!(shared.whole(), &whole);
        let rest = shared.rest_bytes();
        prop_assert_eq!(plain.rest(), &rest[..]);
        prop_assert!(shared.is_empty() && plain.end().is_ok());
    }
}

#[test]
fn every_flag_byte_but_two_is_refused() {
    for byte in 0..=u8::MAX {
        let read = Reader::new(&[byte]).flag();
        assert_eq!(read.ok(), [false, true].get(usize::from(byte)).copied());
    }
}

#[test]
fn a_length_is_checked_against_the_bytes_that_are_there() {
    let beyond = Err(Malformed("a length exceeds the bytes present"));
    let mut bytes = Vec::new();
    bytes.put32(u32::MAX).put(&[0; 16]);
    assert_eq!(Reader::new(&bytes).length32(), beyond);
    assert_eq!(Reader::new(&bytes).count32(usize::MAX, usize::MAX), beyond, "the product does not overflow");
    assert_eq!(Reader::new(&bytes).count32(16, 1), Err(Malformed("a count is beyond its bound")));
    assert_eq!(Reader::new(&bytes).count16(usize::MAX, 1), beyond);
    bytes[..4].copy_from_slice(&16u32.to_le_bytes());
    assert_eq!(Reader::new(&bytes).length32(), Ok(16));
    assert_eq!(Reader::new(&bytes).count32(16, 1), Ok(16));
    assert_eq!(Reader::new(&bytes).count32(16, 2), beyond);
    assert_eq!(Reader::new(&[]).u8(), Err(Malformed("they end early")));
}
