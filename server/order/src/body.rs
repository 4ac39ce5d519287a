//! The body of a frame as parts that share memory: a batch goes from the log into the frames of all followers without
//! a copy in between.

use bytes::Bytes;

/// The bytes of a frame's body, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameBody {
    first: Bytes,
    /// Empty for most kinds of frames, which then cost no memory of their own.
    others: Vec<Bytes>,
}

impl FrameBody {
    /// The parts, of which some may be empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first).chain(&self.others).map(|part| &part[..])
    }

    /// The body as one string of bytes; a copy where it has several parts.
    pub fn joined(&self) -> Bytes {
        if self.others.is_empty() {
            return self.first.clone();
        }
        self.parts().collect::<Vec<&[u8]>>().concat().into()
    }
}

impl From<Bytes> for FrameBody {
    fn from(first: Bytes) -> Self {
        FrameBody { first, others: Vec::new() }
    }
}

/// Writes a body: fields are written one behind the other, and shared bytes are added in between.
#[derive(Debug)]
pub struct BodyWriter {
    /// All fields.
    fields: Vec<u8>,
    /// How many bytes of the fields come before each of the shared parts.
    shared: Vec<(usize, Bytes)>,
}

impl BodyWriter {
    /// For so many bytes of fields, and parts.
    pub fn with_capacity(fields: usize, parts: usize) -> Self {
        BodyWriter { fields: Vec::with_capacity(fields), shared: Vec::with_capacity(parts) }
    }

    /// Where fields are written.
    pub fn fields(&mut self) -> &mut Vec<u8> {
        &mut self.fields
    }

    /// Adds bytes that the body shares.
    pub fn share(&mut self, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.shared.push((self.fields.len(), bytes.clone()));
        }
    }

    /// The body.
    pub fn finish(self) -> FrameBody {
        let mut fields = Bytes::from(self.fields);
        let Some((until, _)) = self.shared.first() else { return fields.into() };
        let first = fields.split_to(*until);
        let mut others = Vec::with_capacity(2 * self.shared.len());
        let mut at = first.len();
        for (until, bytes) in self.shared {
            if until > at {
                others.push(fields.split_to(until - at));
                at = until;
            }
            others.push(bytes);
        }
        if !fields.is_empty() {
            others.push(fields);
        }
        FrameBody { first, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_in_which_they_were_written() {
        let shared = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (script, joined, count) in [
            ("", "", 1),
            ("f", "f", 1),
            ("s", "S", 2),
            ("fsf", "fSf", 3),
            ("ffssfs", "ffSSfS", 5),
            ("sff", "Sff", 3),
            ("ese", "S", 2),
        ] {
            let mut writer = BodyWriter::with_capacity(0, 0);
            for step in script.chars() {
                match step {
                    'f' => writer.fields().push(b'f'),
                    's' => writer.share(&shared("S")),
                    _ => writer.share(&Bytes::new()),
                }
            }
            let body = writer.finish();
            let parts = body.parts().count();
            assert_eq!((&body.joined()[..], parts), (joined.as_bytes(), count), "{script}");
            assert_eq!(body.parts().collect::<Vec<_>>().concat(), joined.as_bytes());
        }
    }

    #[test]
    fn shared_parts_are_not_copied() {
        let entry = Bytes::from(vec![7; 1_000]);
        let mut writer = BodyWriter::with_capacity(8, 1);
        writer.fields().extend_from_slice(b"head");
        writer.share(&entry);
        let body = writer.finish();
        assert!(body.parts().any(|part| part.as_ptr() == entry.as_ptr()));
    }
}
