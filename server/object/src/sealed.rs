//! Plain values outside of objects that must not change by themselves: a code over each shows that one has.

/// A sealed value has changed since it was written. Found by a code, a number or a count; it is handled, never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealBroken;

impl std::fmt::Display for SealBroken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory that is no object was corrupted")
    }
}

impl std::error::Error for SealBroken {}

/// A code over words and bytes, 64 bits, for memory of this process only: it is never sent or stored.
///
/// A word is mixed in by exclusive or, multiplication with an odd number, and rotation. Each of them can be undone, so
/// two values that differ in one word never have one code. Values that differ in more have it once in 2^64.
///
/// Instructions of one check, as valgrind counts them on x86-64 (a loop over each kind less the empty loop):
///
/// | words | this code | a complemented copy | CRC-64 of objects |
/// |---:|---:|---:|---:|
/// | 1 | 21 | 25 | 172 |
/// | 4 | 30 | 49 | 189 |
/// | 16 | 75 | 145 | 177 |
/// | 64 | 255 | 529 | 331 |
///
/// So words have this code. It takes 8 bytes however many words there are, and memory that was filled with one byte has
/// no valid code. Bytes have the CRC-64 of objects, which gives stronger guarantees for errors of several bits
/// (docs/design.md, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(u64);

impl Code {
    /// The code of nothing. Neither zeroed nor erased memory is the code of zeros or ones.
    #[inline]
    pub const fn new() -> Self {
        Code(0x6A09_E667_F3BC_C909)
    }

    /// The code of `value` alone.
    #[inline]
    pub fn of<T: Sealable + ?Sized>(value: &T) -> Self {
        let mut code = Code::new();
        value.mix(&mut code);
        code
    }

    /// Adds one word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Adds bytes and their number.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.word(crate::checksum::of(bytes));
    }
}

impl Default for Code {
    fn default() -> Self {
        Code::new()
    }
}

/// A plain value that [`Sealed`] can hold.
///
/// All of it must be mixed in: a part that is left out can change unnoticed. An implementation for a struct takes
/// it apart by name (`let Self { a, b } = self`), so that a new member is not forgotten.
pub trait Sealable {
    /// Mixes the whole value into `code`.
    fn mix(&self, code: &mut Code);
}

macro_rules! words {
    ($($integer:ty)*) => { $(
        impl Sealable for $integer {
            #[inline]
            fn mix(&self, code: &mut Code) {
                code.word(*self as u64);
            }
        }
    )* };
}
words!(bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

impl Sealable for [u8] {
    #[inline]
    fn mix(&self, code: &mut Code) {
        code.bytes(self);
    }
}

impl Sealable for Box<[u8]> {
    #[inline]
    fn mix(&self, code: &mut Code) {
        code.bytes(self);
    }
}

impl<const N: usize> Sealable for [u8; N] {
    #[inline]
    fn mix(&self, code: &mut Code) {
        code.bytes(self);
    }
}

impl<T: Sealable> Sealable for Option<T> {
    #[inline]
    fn mix(&self, code: &mut Code) {
        code.word(u64::from(self.is_some()));
        self.iter().for_each(|value| value.mix(code));
    }
}

impl<A: Sealable, B: Sealable> Sealable for (A, B) {
    #[inline]
    fn mix(&self, code: &mut Code) {
        self.0.mix(code);
        self.1.mix(code);
    }
}

/// A value with the [`Code`] that it had when it was written. Reading compares them; writing computes the code again.
///
/// A value that is read far more often than checked, such as settings, is read by [`Sealed::as_is`], and its owner
/// asks [`Sealed::is_intact`] at every tick.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<T> {
    value: T,
    code: Code,
}

impl<T: Sealable> Sealed<T> {
    /// Seals a value.
    #[inline]
    pub fn new(value: T) -> Self {
        Sealed { code: Code::of(&value), value }
    }

    /// The value.
    ///
    /// # Errors
    /// [`SealBroken`] when it or its code has changed.
    #[inline]
    pub fn get(&self) -> Result<&T, SealBroken> {
        if self.is_intact() { Ok(&self.value) } else { Err(SealBroken) }
    }

    /// Writes another value; the previous one does not matter.
    #[inline]
    pub fn set(&mut self, value: T) {
        *self = Sealed::new(value);
    }

    /// Changes the value, and seals it again.
    ///
    /// # Errors
    /// [`SealBroken`] when it or its code had changed before; it is then left as it is, so that it stays known.
    #[inline]
    pub fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Result<R, SealBroken> {
        self.get()?;
        let result = change(&mut self.value);
        self.code = Code::of(&self.value);
        Ok(result)
    }

    /// Whether value and code are those that were written.
    #[inline]
    pub fn is_intact(&self) -> bool {
        Code::of(&self.value) == self.code
    }

    /// The value without a check.
    #[inline]
    pub fn as_is(&self) -> &T {
        &self.value
    }

    /// Changes the value and not its code, as a fault does: for tests of its owner.
    #[cfg(any(test, feature = "inject"))]
    pub fn corrupt(&mut self, change: impl FnOnce(&mut T)) {
        change(&mut self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values whose bits can be flipped one at a time, in safe Rust.
    trait Flip {
        const BITS: usize;
        fn flip(&mut self, bit: usize);
    }

    macro_rules! flip {
        ($($integer:ty)*) => { $(
            impl Flip for $integer {
                const BITS: usize = <$integer>::BITS as usize;
                fn flip(&mut self, bit: usize) {
                    *self ^= 1 << bit;
                }
            }
        )* };
    }
    flip!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

    impl Flip for bool {
        const BITS: usize = 1;
        fn flip(&mut self, _bit: usize) {
            *self = !*self;
        }
    }

    impl<const N: usize> Flip for [u8; N] {
        const BITS: usize = 8 * N;
        fn flip(&mut self, bit: usize) {
            self[bit / 8].flip(bit % 8);
        }
    }

    impl<A: Flip, B: Flip> Flip for (A, B) {
        const BITS: usize = A::BITS + B::BITS;
        fn flip(&mut self, bit: usize) {
            if bit < A::BITS { self.0.flip(bit) } else { self.1.flip(bit - A::BITS) }
        }
    }

    /// Flips every bit of the value and of its code, one at a time.
    fn finds_every_flip<T: Flip + Sealable + Copy + PartialEq + std::fmt::Debug>(value: T) {
        let mut sealed = Sealed::new(value);
        for bit in 0..T::BITS {
            sealed.value.flip(bit);
            assert_eq!(sealed.get(), Err(SealBroken), "bit {bit} of {value:?}");
            assert_eq!(sealed.update(|_| ()), Err(SealBroken), "a change does not seal what is wrong");
            assert!(!sealed.is_intact());
            // Without the code, the wrong value is accepted as the right one.
            assert_ne!(*sealed.as_is(), value);
            sealed.value.flip(bit);
        }
        for bit in 0..u64::BITS as usize {
            sealed.code.0.flip(bit);
            assert_eq!(sealed.get(), Err(SealBroken), "bit {bit} of the code of {value:?}");
            sealed.code.0.flip(bit);
        }
        assert_eq!(sealed.get(), Ok(&value));
    }

    #[test]
    fn every_flipped_bit_of_a_value_or_of_its_code_is_found() {
        for word in [0, 1, 0x0123_4567_89AB_CDEF, u64::MAX] {
            finds_every_flip(word);
            finds_every_flip(word as u8);
            finds_every_flip(word as u16);
            finds_every_flip(word as u32);
            finds_every_flip(word as usize);
            finds_every_flip(word as i8);
            finds_every_flip(word as i16);
            finds_every_flip(word as i32);
            finds_every_flip(word as i64);
            finds_every_flip(word as isize);
            finds_every_flip((word as u32, (word, word as i32)));
        }
        [false, true].into_iter().for_each(finds_every_flip);
        finds_every_flip([0u8; 32]);
        finds_every_flip([0xA5u8; 259]);
    }

    #[test]
    fn an_option_that_appears_or_is_lost_is_found() {
        for (value, wrong) in [(Some(0u32), None), (None, Some(0)), (Some(7), Some(6))] {
            let mut sealed = Sealed::new(value);
            sealed.corrupt(|value| *value = wrong);
            assert!(!sealed.is_intact(), "{value:?} became {wrong:?}");
        }
    }

    #[test]
    fn memory_that_was_filled_with_one_byte_is_no_sealed_value() {
        for byte in 0..=u8::MAX {
            let word = u64::from_le_bytes([byte; 8]);
            assert!(!Sealed { value: word, code: Code(word) }.is_intact(), "{byte:#x}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut sealed = Sealed::new(1u64);
        assert_eq!(sealed.update(|value| *value += 1), Ok(()));
        assert_eq!(sealed.get(), Ok(&2));
        sealed.corrupt(|value| *value = 9);
        sealed.set(3);
        assert_eq!(sealed.get(), Ok(&3), "another value takes the place of a wrong one");
    }

    proptest! {
        #[test]
        fn a_change_of_one_word_is_always_found(
            words in proptest::collection::vec(any::<u64>(), 1..8), at in any::<usize>(), other in any::<u64>()
        ) {
            let code = |words: &[u64]| {
                let mut code = Code::new();
                words.iter().for_each(|word| code.word(*word));
                code
            };
            let mut changed = words.clone();
            let at = at % words.len();
            changed[at] = other;
            prop_assert_eq!(code(&changed) == code(&words), words[at] == other);
        }
    }
}
