//! Names of functions: from a module's symbol table, or from its dynamic symbols where it is stripped.

use std::collections::BTreeMap;
use std::fs;

use elf::ElfBytes;
use elf::abi::{ET_EXEC, STT_FUNC};
use elf::endian::LittleEndian;

/// The functions of the modules that were looked up so far.
#[derive(Debug, Default)]
pub struct Symbols {
    modules: BTreeMap<String, Functions>,
}

/// End and name of each function, by its begin.
type Functions = BTreeMap<u64, (u64, String)>;

impl Symbols {
    /// The function at `offset` in the module of file `path`; empty where it is unknown.
    pub fn name(&mut self, path: &str, offset: u64) -> String {
        let functions = self.modules.entry(path.to_owned()).or_insert_with(|| read(path).unwrap_or_default());
        match functions.range(..=offset).next_back() {
            Some((_, (end, name))) if offset < *end => name.clone(),
            _ => String::new(),
        }
    }

    /// The offset at which function `name` of the module of file `path` begins.
    pub fn begin(&mut self, path: &str, name: &str) -> Option<u64> {
        let functions = self.modules.entry(path.to_owned()).or_insert_with(|| read(path).unwrap_or_default());
        functions.iter().find(|(_, (_, other))| other == name).map(|(begin, _)| *begin)
    }
}

fn read(path: &str) -> Option<Functions> {
    let bytes = fs::read(path).ok()?;
    let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).ok()?;
    let (symbols, names) = match file.symbol_table().ok().flatten() {
        Some(table) => table,
        None => file.dynamic_symbol_table().ok().flatten()?,
    };
    // A program that is not position independent has absolute addresses in its table.
    let base = if file.ehdr.e_type == ET_EXEC {
        file.segments()?
            .iter()
            .filter(|segment| segment.p_type == elf::abi::PT_LOAD)
            .map(|segment| segment.p_vaddr)
            .min()?
    } else {
        0
    };
    let function = |symbol: elf::symbol::Symbol| {
        let name = names.get(symbol.st_name as usize).ok()?;
        let begin = symbol.st_value.checked_sub(base)?;
        let is_function = symbol.st_symtype() == STT_FUNC && symbol.st_size > 0;
        is_function
            .then(|| (begin, (begin + symbol.st_size, format!("{:#}", rustc_demangle::demangle(name)))))
    };
    Some(symbols.iter().filter_map(function).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_functions_have_names() {
        let path = std::env::current_exe().expect("this program").display().to_string();
        let functions = read(&path).expect("its symbols");
        let begin = functions.iter().find(|(_, (_, name))| name.ends_with("symbols::read"));
        let (&begin, (end, name)) = begin.expect("this function");
        assert_eq!(&Symbols::default().name(&path, end - 1), name);
        assert_ne!(&Symbols::default().name(&path, begin.wrapping_sub(1)), name);
        assert_eq!(Symbols::default().begin(&path, name), Some(begin));
        assert_eq!(Symbols::default().name("/nowhere", 5), "");
        assert_eq!(Symbols::default().begin("/nowhere", name), None);
    }
}
