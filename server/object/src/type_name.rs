//! The name of a type, when the program is compiled: a collection's objects are a class for each type of entries, and
//! a class has its name and its tag before the program runs.

/// The name of a type, and a number that stands for it with its module.
#[derive(Clone, Copy, Debug)]
pub struct TypeName {
    /// The last part of the path; what is in angle brackets likewise.
    text: [u8; TypeName::LONGEST],
    length: usize,
    /// Of the whole path, and of the numbers of what is in angle brackets.
    hash: u32,
}

impl TypeName {
    /// Longer names are cut off; their numbers still differ.
    const LONGEST: usize = 120;
    /// The name of a type that has given none.
    pub const UNKNOWN: TypeName = TypeName::new("_");

    /// The name of the type with this path.
    pub const fn new(path: &str) -> Self {
        let path = path.as_bytes();
        let (mut start, mut at) = (0, 0);
        while at < path.len() {
            if path[at] == b':' {
                start = at + 1;
            }
            at += 1;
        }
        let name = TypeName { text: [0; Self::LONGEST], length: 0, hash: fnv(0x811C_9DC5, path) };
        name.with(path.split_at(start).1)
    }

    /// The name of a generic type with these arguments.
    pub const fn of(self, arguments: &[TypeName]) -> Self {
        self.enclosed(arguments, (b"<", b">"))
    }

    /// The name of a tuple of these.
    pub(crate) const fn tuple(parts: &[TypeName]) -> Self {
        TypeName::new("").enclosed(parts, (b"(", b")"))
    }

    /// The name of a slice or an array of these.
    pub(crate) const fn slice(of: TypeName) -> Self {
        TypeName::new("").enclosed(&[of], (b"[", b"]"))
    }

    const fn enclosed(mut self, parts: &[TypeName], (open, close): (&[u8], &[u8])) -> Self {
        self = self.with(open);
        let mut index = 0;
        while index < parts.len() {
            if index > 0 {
                self = self.with(b", ");
            }
            let part = &parts[index];
            self = self.with(part.text.split_at(part.length).0);
            self.hash = fnv(self.hash, &part.hash.to_le_bytes());
            index += 1;
        }
        self.with(close)
    }

    const fn with(mut self, more: &[u8]) -> Self {
        let mut at = 0;
        while at < more.len() && self.length < Self::LONGEST {
            self.text[self.length] = more[at];
            self.length += 1;
            at += 1;
        }
        self
    }

    /// The name as a text.
    pub(crate) const fn as_str(&self) -> &str {
        let bytes = self.text.split_at(self.length).0;
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // Cut off within a letter.
            Err(error) => match std::str::from_utf8(bytes.split_at(error.valid_up_to()).0) {
                Ok(text) => text,
                Err(_) => "",
            },
        }
    }

    /// The number that stands for the type.
    pub(crate) const fn hash(&self) -> u32 {
        self.hash
    }
}

/// FNV-1a: usable at compile time, and sufficient to distinguish a handful of names.
pub(crate) const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summed::Summed;
    use crate::{ObjectId, Ref};
    use std::collections::BTreeSet;

    mod other {
        #[derive(object_macros::Summed)]
        #[allow(dead_code)]
        pub struct Job(u32);
    }

    #[derive(object_macros::Summed)]
    #[allow(dead_code)]
    struct Job(u32);

    #[derive(object_macros::Summed)]
    #[allow(dead_code)]
    struct Pair<A, B>(A, B);

    #[test]
    fn names_are_as_an_author_writes_them() {
        let name = |name: TypeName| name.as_str().to_owned();
        assert_eq!(name(<(u32, String)>::NAME), "(u32, String)");
        assert_eq!(name(<Vec<Option<Job>>>::NAME), "Vec<Option<Job>>");
        assert_eq!(name(<Pair<ObjectId, Box<[u8]>>>::NAME), "Pair<ObjectId, Box<[u8]>>");
        assert_eq!(name(<[u16; 3]>::NAME), "[u16]");
        assert_eq!(name(<Ref<Job>>::NAME), "Ref");
        assert_eq!(name(<()>::NAME), "()");
    }

    #[test]
    fn long_names_are_cut_off_and_still_differ() {
        type Long<T> = (T, T, T, T, T, T, T, T, T, T);
        let all = [<Long<Long<u64>>>::NAME, <Long<Long<u32>>>::NAME, <Long<(Long<u64>, u8)>>::NAME];
        assert_eq!(all.iter().map(TypeName::hash).collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|name| name.as_str().len() == TypeName::LONGEST));
        let accented = TypeName::new("\u{e9}").of(&[TypeName::new(&"\u{e9}".repeat(70))]);
        assert_eq!(accented.as_str().len(), TypeName::LONGEST - 1, "cut off within a letter");
    }

    #[test]
    fn types_of_one_name_in_two_modules_differ() {
        assert_eq!(Job::NAME.as_str(), other::Job::NAME.as_str());
        assert_ne!(Job::NAME.hash(), other::Job::NAME.hash());
        assert_ne!(<Pair<u8, u16>>::NAME.hash(), <Pair<u16, u8>>::NAME.hash());
    }
}
