//! The callers of the function into which a fault was injected: return addresses on the stack, found without unwind
//! tables.

use std::io;

use crate::memory::{Memory, Module};
use crate::profile::module_of;
use crate::symbols::Symbols;
use crate::sys;

/// Bytes of the stack that are searched.
const DEPTH: usize = 4096;
/// The most names that are kept.
const NAMES: usize = 8;

/// Words of a stopped thread's stack that point behind a call instruction: its callers, the nearest first, and
/// sometimes an address that an earlier call left on the stack.
///
/// # Errors
/// When the thread is gone.
pub fn callers(thread: i32, memory: &Memory, modules: &[Module]) -> io::Result<Vec<u64>> {
    let stack = sys::registers(thread)?.rsp;
    let mut bytes = vec![0; DEPTH];
    memory.read_some(stack, &mut bytes);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let in_a_file = |address: &u64| module_of(modules, *address).0.starts_with('/');
    Ok(bytes
        .chunks_exact(8)
        .map(word)
        .filter(in_a_file)
        .filter(|address| is_behind_call(memory, *address))
        .collect())
}

/// The forms of `call` that compilers write: relative, through a register, through memory.
fn is_behind_call(memory: &Memory, address: u64) -> bool {
    let Ok(before) = memory.read(address.wrapping_sub(6), 6) else { return false };
    let through = |at: usize| before[at] == 0xff && (before[at + 1] >> 3) & 7 == 2;
    before[1] == 0xe8 || through(0) || through(3) || through(4)
}

/// Their names, without repetition.
pub fn names(addresses: &[u64], modules: &[Module], symbols: &mut Symbols) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for &address in addresses {
        let (path, offset) = module_of(modules, address);
        let name = symbols.name(path, offset);
        if !name.is_empty() && names.last() != Some(&name) && names.len() < NAMES {
            names.push(name);
        }
    }
    names
}
