//! Repeated checks of the program's own code and constants.
//!
//! A bit that changes in a jump table, a constant or an instruction makes its replica wrong in the same way from then
//! on: it is outvoted, repaired, and wrong again. No object is wrong, so no repair of objects ends this. A new process
//! does, because it begins with the bytes of the file.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::limits::IMAGE_PIECE;

/// The kernel's map of this process's memory, and the memory itself.
const MAPS: &str = "/proc/self/maps";
const MEMORY: &str = "/proc/self/mem";

/// All memory of this process that is mapped from a file and not writable: its code, its constants, and those of the
/// libraries it was started with, in pieces with their digests.
#[derive(Debug)]
pub(crate) struct Image {
    memory: File,
    pieces: Vec<(Range<u64>, u128)>,
    next: usize,
    scratch: Vec<u8>,
}

impl Image {
    /// This process's image as it is now.
    ///
    /// # Errors
    /// When the kernel does not let a process read its own memory.
    pub fn of_this_process() -> io::Result<Self> {
        let maps = fs::read_to_string(MAPS)?;
        let mut image =
            Image { memory: File::open(MEMORY)?, pieces: Vec::new(), next: 0, scratch: vec![0; IMAGE_PIECE] };
        for range in maps.lines().filter_map(constant) {
            for start in range.clone().step_by(IMAGE_PIECE) {
                let piece = start..range.end.min(start + IMAGE_PIECE as u64);
                // Some pages cannot be read: those beyond the end of their file.
                if let Ok(digest) = image.digest(piece.clone()) {
                    image.pieces.push((piece, digest));
                }
            }
        }
        Ok(image)
    }

    /// Whether the next piece is unchanged; the calls go through all pieces in turn.
    pub fn next_is_intact(&mut self) -> bool {
        let Some((piece, digest)) = self.pieces.get(self.next).cloned() else {
            self.next = 0;
            return true;
        };
        self.next += 1;
        // A piece that cannot be read any more counts as unchanged.
        self.digest(piece).map_or(true, |now| now == digest)
    }

    fn digest(&mut self, piece: Range<u64>) -> io::Result<u128> {
        let bytes = &mut self.scratch[..(piece.end - piece.start) as usize];
        self.memory.read_exact_at(bytes, piece.start)?;
        Ok(vote::digest::content(bytes))
    }
}

/// The range of a line of the map, if it is mapped from a file, readable, not writable and private: another process may
/// write to shared memory.
fn constant(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let path = words.nth(3)?;
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let is_constant = matches!(rights, "r--p" | "r-xp") && path.starts_with('/');
    is_constant.then_some(address(start)?..address(end)?).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_from_a_file_and_cannot_be_written_to_is_looked_at() {
        let line = "555555554000-5555555f2000 r--p 00000000 fe:00 131 /usr/bin/crosscheck";
        assert_eq!(constant(line), Some(0x5555_5555_4000..0x5555_555f_2000));
        assert!(constant(&line.replace("r--p", "r-xp")).is_some());
        for other in ["rw-p", "---p", "r--s"] {
            assert_eq!(constant(&line.replace("r--p", other)), None);
        }
        assert_eq!(constant("7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0 [vdso]"), None);
        assert_eq!(constant("7ffff7fc1000-7ffff7fc3000 r--p 00000000 00:00 0"), None);
        assert_eq!(constant("nonsense"), None);
    }

    #[test]
    fn a_process_is_what_it_was_until_a_byte_of_it_changes() {
        let mut image = Image::of_this_process().expect("Linux shows a process its memory");
        let code = constant as *const () as u64;
        assert!(
            image.pieces.iter().any(|(piece, _)| piece.contains(&code)),
            "the code of this test is in it"
        );
        assert!((0..=image.pieces.len()).all(|_| image.next_is_intact()));
        let last = image.pieces.len() - 1;
        image.pieces[last].1 ^= 1;
        assert_eq!((0..=last).filter(|_| !image.next_is_intact()).count(), 1);
    }
}
