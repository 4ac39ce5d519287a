//! How the words of a command become the arguments of a method.

/// A type of arguments.
pub trait Word: Sized {
    /// The argument that this word says.
    ///
    /// # Errors
    /// What it should be, to be put behind the word.
    fn of(word: &[u8]) -> Result<Self, String>;
}

impl Word for Vec<u8> {
    fn of(word: &[u8]) -> Result<Self, String> {
        Ok(word.to_vec())
    }
}

impl Word for String {
    fn of(word: &[u8]) -> Result<Self, String> {
        String::from_utf8(word.to_vec()).map_err(|_| "is no text in UTF-8".to_owned())
    }
}

impl Word for bool {
    fn of(word: &[u8]) -> Result<Self, String> {
        match word {
            b"1" | b"true" | b"yes" => Ok(true),
            b"0" | b"false" | b"no" => Ok(false),
            _ => Err("is neither true nor false".to_owned()),
        }
    }
}

macro_rules! of_numbers {
    ($($number:ty),*) => {
        $(impl Word for $number {
            fn of(word: &[u8]) -> Result<Self, String> {
                let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
                let range = || format!("is no number from {} to {}", <$number>::MIN, <$number>::MAX);
                number.ok_or_else(range)
            }
        })*
    };
}
of_numbers!(u8, u16, u32, u64, i8, i16, i32, i64);

/// The argument with this name that a command has in this place.
///
/// # Errors
/// What is wrong with the word.
pub fn argument<T: Word>(name: &str, word: &[u8]) -> Result<T, String> {
    T::of(word).map_err(|why| format!("{name}: '{}' {why}", word.escape_ascii()))
}
