//! What a method of a service in short form answers.

/// The answer to a request. Strings, numbers, and nothing become one by `into()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A word that says what was done.
    Word(&'static str),
    /// A number.
    Number(i128),
    /// A text, or other bytes.
    Bytes(Vec<u8>),
    /// There is none.
    Nothing,
    /// Several.
    List(Vec<Answer>),
    /// The request cannot be executed: why, in one line. The method has changed nothing.
    Error(String),
    /// The reply comes later: the method has called [`Cx::owe_reply`](crate::Cx::owe_reply).
    Later,
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Answer::Done
    }
}

impl From<&'static str> for Answer {
    fn from(word: &'static str) -> Self {
        Answer::Word(word)
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Answer::Bytes(text.into_bytes())
    }
}

impl From<Vec<u8>> for Answer {
    fn from(bytes: Vec<u8>) -> Self {
        Answer::Bytes(bytes)
    }
}

impl From<bool> for Answer {
    fn from(is_so: bool) -> Self {
        Answer::Number(i128::from(is_so))
    }
}

impl<T: Into<Answer>> From<Option<T>> for Answer {
    fn from(answer: Option<T>) -> Self {
        answer.map_or(Answer::Nothing, Into::into)
    }
}

impl<T: Into<Answer>> From<Result<T, String>> for Answer {
    fn from(answer: Result<T, String>) -> Self {
        answer.map_or_else(Answer::Error, Into::into)
    }
}

macro_rules! of_numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for Answer {
            fn from(number: $number) -> Self {
                Answer::Number(number.into())
            }
        })*
    };
}
of_numbers!(u8, u16, u32, u64, i8, i16, i32, i64);
