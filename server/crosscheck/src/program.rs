//! Which build of the program runs: replicas of two builds may answer differently although their versions are equal,
//! and the one that differs would be called faulty hardware.
//!
//! The identity of a build is a digest of all that is loaded from its executable: code, constants and initial data. It
//! has no symbols and no debug information, so that a stripped copy is the same build. Libraries that the program is
//! linked to at start are not in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use elf::abi::PT_LOAD;
use elf::endian::AnyEndian;

/// The executable of this process: the file that it was started from, even if another one has its name now.
const EXECUTABLE: &str = "/proc/self/exe";
/// Bytes that are read at once.
const STEP: usize = 1 << 20;

/// The build of this process, as text; says so where it cannot be read.
pub(crate) fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let digest = File::open(EXECUTABLE).and_then(|file| digest_of(&file));
        digest.map_or_else(|_| "not known".to_owned(), |digest| format!("{:016x}", digest as u64))
    })
}

/// The digest of the loaded parts of an executable, with their addresses.
fn digest_of(executable: &File) -> io::Result<u128> {
    let parsed = elf::ElfStream::<AnyEndian, _>::open_stream(executable.try_clone()?);
    let parsed = parsed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    let mut digests = Vec::new();
    let mut buffer = vec![0; STEP];
    for segment in parsed.segments().iter().filter(|segment| segment.p_type == PT_LOAD) {
        digests.push(u128::from(segment.p_vaddr) << 64 | u128::from(segment.p_memsz));
        let end = segment.p_offset.saturating_add(segment.p_filesz);
        for start in (segment.p_offset..end).step_by(STEP) {
            let piece = &mut buffer[..STEP.min((end - start) as usize)];
            executable.read_exact_at(piece, start)?;
            digests.push(vote::digest::content(piece));
        }
    }
    let words: Vec<u8> = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
    Ok(vote::digest::content(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_that_is_loaded_is_another_build_and_symbols_are_none() {
        let own = std::fs::read(EXECUTABLE).expect("Linux shows a process its executable");
        let folder = tempfile::tempdir().expect("a folder");
        let of = |bytes: &[u8]| {
            let path = folder.path().join("program");
            std::fs::write(&path, bytes).expect("written");
            digest_of(&File::open(path).expect("there")).expect("an executable")
        };
        assert_eq!(format!("{:016x}", of(&own) as u64), build());
        let constant = b"a constant of this test that is loaded";
        let loaded = own.windows(constant.len()).position(|bytes| bytes == constant).expect("this constant");
        let mut other = own.clone();
        other[loaded] ^= 1;
        assert_ne!(of(&other), of(&own));
        let behind = [own.as_slice(), b"symbols"].concat();
        assert_eq!(of(&behind), of(&own));
    }

    #[test]
    fn no_executable_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").expect("written");
        assert!(digest_of(&File::open(path).expect("there")).is_err());
    }
}
