//! What an instrumented object references: the names that the library leaves undefined on purpose, and the function
//! that does it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use elf::ElfBytes;
use elf::abi::{SHN_UNDEF, SHT_RELA, STT_FUNC};
use elf::endian::LittleEndian;

/// Names of GCC's transactional memory that the library does not define, with what references them.
const REFUSED: [(&str, &str, &str); 7] = [
    (
        "_ITM_getTMCloneOrIrrevocable",
        "calls through a pointer to a function of which no instrumented copy need exist",
        "declare the type of the pointer SEI_SAFE where all functions behind it are in the unit, or SEI_LOCAL where \
         they write nothing but their own locals",
    ),
    (
        "_ITM_changeTransactionMode",
        "does something that cannot run twice (inline assembly, a volatile or atomic access, or a call of a function \
         outside of the unit)",
        "take that out of the handler, or declare the function SEI_LOCAL where it writes nothing but its own locals",
    ),
    ("_ITM_abortTransaction", "aborts a transaction by itself", "remove __transaction_cancel"),
    ("_ITM_commitTransactionEH", "uses exceptions of C++", "harden C only"),
    (
        "bit-field ",
        "reads or writes a bit-field, which GCC instruments wrongly: it overwrites the fields beside it",
        "make it a plain member: remove the width behind the colon",
    ),
    (
        "SEI_LOCAL",
        "is declared so and writes more than its own locals: both runs do, and nothing is undone or compared",
        "take SEI_LOCAL away from it, so that it is instrumented, or have it return what it writes",
    ),
    ("_ITM_cxa_", "uses exceptions of C++", "harden C only"),
];

/// Something in an object that keeps the program from being hardened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Obstacle {
    /// The symbol.
    pub symbol: String,
    /// The function that references it; empty where the object does not say.
    pub function: String,
}

impl Obstacle {
    /// What the function does, in words, and the remedy.
    pub fn reported(&self) -> (&'static str, &'static str) {
        let known = REFUSED.iter().find(|(name, ..)| self.symbol.starts_with(name));
        known.map_or(("uses it", "remove that"), |(_, what, remedy)| (what, remedy))
    }

    /// The same with the function's name, in one line.
    pub fn explained(&self) -> String {
        let (what, remedy) = self.reported();
        let function = if self.function.is_empty() { "a handler" } else { &self.function };
        format!("`{function}` {what} ({}); {remedy}", self.symbol)
    }
}

/// What the object references.
#[derive(Debug, Default)]
pub struct Inspection {
    /// All symbols that it does not define.
    pub undefined: BTreeSet<String>,
    /// Those that must not be there.
    pub obstacles: BTreeSet<Obstacle>,
    /// Functions of which it has an instrumented copy.
    pub clones: BTreeSet<String>,
}

/// Reads an object file.
///
/// # Errors
/// If it is no ELF object.
pub fn object(bytes: &[u8]) -> Result<Inspection> {
    let file =
        ElfBytes::<LittleEndian>::minimal_parse(bytes).context("the compiler's output is no ELF object")?;
    let (symbols, names) = file.symbol_table()?.context("the compiler's output has no symbol table")?;
    let mut found = Inspection::default();
    let mut functions = Vec::new();
    for symbol in symbols.iter() {
        let name = names.get(symbol.st_name as usize)?;
        if symbol.st_shndx == SHN_UNDEF && !name.is_empty() {
            found.undefined.insert(name.to_owned());
        } else if symbol.st_symtype() == STT_FUNC {
            functions.push((symbol.st_shndx, symbol.st_value, symbol.st_size, plain_name(name).to_owned()));
            if name.starts_with(CLONE) {
                found.clones.insert(plain_name(name).to_owned());
            }
        }
    }
    let refused: Vec<&String> = found.undefined.iter().filter(|name| is_refused(name)).collect();
    for section in file.section_headers().into_iter().flatten() {
        if section.sh_type != SHT_RELA || refused.is_empty() {
            continue;
        }
        for relocation in file.section_data_as_relas(&section)? {
            let symbol = names.get(symbols.get(relocation.r_sym as usize)?.st_name as usize)?;
            let is_here = |(index, begin, size, _): &&(u16, u64, u64, String)| {
                u32::from(*index) == section.sh_info
                    && (*begin..*begin + *size).contains(&relocation.r_offset)
            };
            if is_refused(symbol)
                && let Some((.., function)) = functions.iter().find(is_here)
            {
                found.obstacles.insert(Obstacle { symbol: symbol.to_owned(), function: function.clone() });
            }
        }
    }
    for symbol in refused {
        if !found.obstacles.iter().any(|obstacle| &obstacle.symbol == symbol) {
            found.obstacles.insert(Obstacle { symbol: symbol.clone(), function: String::new() });
        }
    }
    Ok(found)
}

/// Whether a linked program needs GCC's own library, which would do what ours leaves out on purpose.
///
/// # Errors
/// If it is no ELF program.
pub fn needs_libitm(bytes: &[u8]) -> Result<bool> {
    let file =
        ElfBytes::<LittleEndian>::minimal_parse(bytes).context("the linker's output is no ELF program")?;
    let common = file.find_common_data()?;
    let (Some(entries), Some(names)) = (common.dynamic, common.dynsyms_strs) else { return Ok(false) };
    let needed = entries.iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED);
    let mut libraries = needed.filter_map(|entry| names.get(entry.d_val() as usize).ok());
    Ok(libraries.any(|library| library.starts_with("libitm")))
}

/// Prefix of an instrumented copy: `_ZGTt3mid` is that of `mid`.
const CLONE: &str = "_ZGTt";

fn is_refused(symbol: &str) -> bool {
    REFUSED.iter().any(|(name, ..)| symbol.starts_with(name))
}

/// The name in the source: without the prefix of a copy and the suffix of a part (`.part.0`, `.constprop.0`).
fn plain_name(symbol: &str) -> &str {
    let name = match symbol.strip_prefix(CLONE) {
        Some(rest) => rest.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => symbol,
    };
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_those_of_the_source() {
        assert_eq!(plain_name("_ZGTt3mid"), "mid");
        assert_eq!(plain_name("_ZGTt12do_item_link.part.0"), "do_item_link");
        assert_eq!(plain_name("mid.constprop.0"), "mid");
    }

    #[test]
    fn other_files_are_no_objects() {
        assert!(object(b"int main;").is_err());
        assert!(needs_libitm(&[0x7f]).is_err());
    }

    #[test]
    fn an_obstacle_names_function_and_remedy() {
        let obstacle = Obstacle { symbol: "_ITM_getTMCloneOrIrrevocable".into(), function: "mid".into() };
        let text = obstacle.explained();
        assert!(text.contains("`mid`") && text.contains("SEI_LOCAL"), "{text}");
    }
}
