//! Every single-bit flip of every member and of the header is found, in objects of several sizes.

use crate::common::{Leaf, PROTECTED, at, run};
use object::{Health, How, Injection, Region};

/// Damages a fresh object and returns whether a request finds it.
fn found(value: usize, injection: &Injection) -> Option<bool> {
    let mut leaf = object::genesis(0, || Leaf::new(b"some key", &vec![0xA5; value]));
    leaf.inject(leaf.root(), injection)?;
    let health = leaf.check(leaf.root());
    let request = run(&mut leaf, at(1, PROTECTED), |leaf| (leaf.flags(), leaf.value().len()));
    assert_eq!(request.is_err(), health != Health::Intact, "{injection:?}");
    Some(match request {
        Ok(_) => false,
        Err((corrupted, blamed)) => {
            assert!(corrupted.how == How::Checksum || blamed == [leaf.root()] || corrupted.how == How::Piece);
            true
        }
    })
}

#[test]
fn every_single_bit_flip_is_found() {
    for value in [0, 1, 40, 500] {
        let mut flips = 0;
        for member in 0..13 {
            for bit in 0..(value as u64 + 64) * 8 {
                let injection = Injection::Flip { member: Some(member), bit: Some(bit), seed: 0 };
                if let Some(found) = found(value, &injection) {
                    assert!(found, "member {member}, bit {bit}, value of {value} bytes");
                    flips += 1;
                }
            }
        }
        // Fewer than all: some flips make no valid value (a bool of 3), and members end.
        assert!(flips > 500 + value * 8, "{flips} flips");
    }
}

#[test]
fn every_flip_of_a_header_is_found() {
    for bit in 0..64 {
        assert_eq!(found(40, &Injection::Sum { bit }), Some(true));
    }
    for bit in 0..64 {
        let mut leaf = object::genesis(0, || Leaf::new(b"some key", b"value"));
        leaf.inject(leaf.root(), &Injection::Id { bit }).unwrap();
        run(&mut leaf, at(1, PROTECTED), |leaf| leaf.flags()).unwrap_err();
    }
}

#[test]
fn flips_in_pieces_and_their_sums_are_found() {
    // 10,000 bytes: three pieces and their sums; every 97th bit, and all bits of the sums.
    let bits = (32..32 + 80_000).step_by(97).chain(32 + 80_000..32 + 80_000 + 3 * 64);
    for bit in bits {
        let injection = Injection::Flip { member: Some(1), bit: Some(bit), seed: 0 };
        assert_eq!(found(10_000, &injection), Some(true), "bit {bit}");
    }
}

#[test]
fn several_bits_bytes_and_lengths_are_found() {
    for seed in 0..2000 {
        for injection in [
            Injection::Bits { count: 2 + seed as u32 % 9, seed },
            Injection::Byte { seed },
            Injection::Length { seed },
        ] {
            assert_eq!(found(100 + seed as usize, &injection), Some(true), "{injection:?}");
        }
    }
}
