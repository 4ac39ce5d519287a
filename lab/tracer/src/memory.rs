//! The address space of a traced process: its bytes, its mappings, and the modules that contain its code.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// One process's memory, through the kernel's file of it: writes ignore page protection and stay private.
#[derive(Debug)]
pub struct Memory {
    process: i32,
    file: File,
}

/// A file, or a named region, that is mapped somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Path, or `[vdso]`.
    pub path: String,
    /// Where its first byte is mapped.
    pub base: u64,
    /// Behind its last mapping.
    pub end: u64,
}

#[derive(Debug)]
struct Mapping {
    begin: u64,
    end: u64,
    reads: bool,
    writes: bool,
    path: String,
}

impl Memory {
    /// Opens the memory of `process`, which the calling thread traces.
    ///
    /// # Errors
    /// When it has ended, or may not be traced by this process.
    pub fn open(process: i32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/mem"))?;
        Ok(Memory { process, file })
    }

    /// `length` bytes at `address`.
    ///
    /// # Errors
    /// When not all of them are mapped.
    pub fn read(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Reads as many mapped bytes as there are at `address`, up to the length of `bytes`; the rest of `bytes` is
    /// unchanged.
    pub fn read_some(&self, address: u64, bytes: &mut [u8]) {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], address + read as u64) {
                Ok(count @ 1..) => read += count,
                _ => break,
            }
        }
    }

    /// Overwrites the memory at `address`.
    ///
    /// # Errors
    /// When not all of it is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// Whether the process itself may read (or write) `length` bytes at `address`.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn allows(&self, address: u64, length: usize, to_write: bool) -> io::Result<bool> {
        let Some(end) = address.checked_add(length as u64) else { return Ok(false) };
        let mut reached = address;
        for mapping in self.mappings()? {
            let granted = if to_write { mapping.writes } else { mapping.reads };
            if granted && (mapping.begin..mapping.end).contains(&reached) {
                reached = mapping.end;
            }
        }
        Ok(reached >= end && reached > address)
    }

    /// The mappings, by file.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn modules(&self) -> io::Result<Vec<Module>> {
        let mut modules: Vec<Module> = Vec::new();
        for mapping in self.mappings()?.into_iter().filter(|mapping| !mapping.path.is_empty()) {
            match modules.iter_mut().find(|module| module.path == mapping.path) {
                Some(module) => module.end = mapping.end,
                None => modules.push(Module { path: mapping.path, base: mapping.begin, end: mapping.end }),
            }
        }
        Ok(modules)
    }

    /// An entry of the auxiliary vector that the kernel passed to the program (getauxval(3)).
    ///
    /// # Errors
    /// When the process has ended.
    pub fn auxiliary(&self, key: u64) -> io::Result<Option<u64>> {
        let bytes = fs::read(format!("/proc/{}/auxv", self.process))?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
        Ok(bytes.chunks_exact(16).find(|pair| word(&pair[..8]) == key).map(|pair| word(&pair[8..])))
    }

    fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let text = fs::read_to_string(format!("/proc/{}/maps", self.process))?;
        Ok(text.lines().filter_map(mapping).collect())
    }
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let path = words.nth(3).unwrap_or("").to_owned();
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        begin: number(begin)?,
        end: number(end)?,
        reads: rights.starts_with('r'),
        writes: rights.as_bytes().get(1) == Some(&b'w'),
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_mappings_say_what_is_allowed() {
        let memory = Memory::open(std::process::id() as i32).expect("our own memory");
        let local = 7_u64;
        let on_stack = std::ptr::from_ref(&local) as u64;
        assert!(memory.allows(on_stack, 8, true).unwrap());
        let in_code = our_own_mappings_say_what_is_allowed as fn() as usize as u64;
        assert!(memory.allows(in_code, 8, false).unwrap());
        assert!(!memory.allows(in_code, 8, true).unwrap());
        assert!(!memory.allows(0x40, 8, false).unwrap());
        assert!(!memory.allows(u64::MAX - 3, 8, false).unwrap());
        assert_eq!(memory.read(on_stack, 8).unwrap(), local.to_ne_bytes());
        let module = memory.modules().unwrap();
        assert!(module.iter().any(|module| (module.base..module.end).contains(&in_code)));
    }
}
