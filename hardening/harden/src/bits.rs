//! Bit-fields in handlers, which GCC 12 instruments wrongly without a word: it passes the address of the field to the
//! library, as if it were a whole byte, and the neighbours in it are overwritten.
//!
//! No C program can take the address of a bit-field. So where the compiler's own text of a handler does, the field is
//! one, and the program must not be built as it is. Which members are bit-fields is what the object's debug information
//! says: a program can write a width in any way, and also in headers of the system. A read that GCC makes of the whole
//! byte itself, as for a comparison, is right, and passes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::abi::{R_X86_64_32, R_X86_64_64, SHF_COMPRESSED, SHT_RELA};
use elf::endian::LittleEndian;
use elf::section::SectionHeader;
use gimli::{Dwarf, EndianSlice, SectionId};

use crate::inspect::Obstacle;

/// Bit-fields that instrumented functions read or write: `object` is the unit's with its debug information, `dump` what
/// GCC's pass `tmmark` wrote.
///
/// # Errors
/// If the object has no debug information, or none that can be read.
pub fn accesses(object: &[u8], dump: &str) -> Result<BTreeSet<Obstacle>> {
    Ok(addressed(&declared(object)?, dump))
}

/// The same where the compiler did not instrument these functions, because they cannot be: bit-fields that their text
/// names in any way.
///
/// # Errors
/// As of [`accesses`].
pub fn mentions(object: &[u8], dump: &str, functions: &BTreeSet<&str>) -> Result<BTreeSet<Obstacle>> {
    Ok(mentioned(&declared(object)?, dump, functions))
}

fn mentioned(fields: &BTreeSet<String>, dump: &str, functions: &BTreeSet<&str>) -> BTreeSet<Obstacle> {
    let mut found = BTreeSet::new();
    let mut function = "";
    for line in dump.lines().map(str::trim_start) {
        function = function_of(line).unwrap_or(function);
        if !functions.contains(function) || line.starts_with("# DEBUG") {
            continue;
        }
        for (at, _) in line.match_indices('.').chain(line.match_indices("->")) {
            let rest = line[at..].trim_start_matches(['.', '-', '>']);
            let is_outside = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
            let name = &rest[..rest.find(is_outside).unwrap_or(rest.len())];
            if fields.contains(name) {
                found.insert(Obstacle { symbol: format!("bit-field {name}"), function: function.to_owned() });
            }
        }
    }
    found
}

/// The function whose text begins with this line.
fn function_of(line: &str) -> Option<&str> {
    line.strip_prefix(";; Function ").map(|rest| rest.split([' ', '.']).next().unwrap_or(rest))
}

/// The fields of which the compiler's text of an instrumented function has an address.
fn addressed(fields: &BTreeSet<String>, dump: &str) -> BTreeSet<Obstacle> {
    let mut found = BTreeSet::new();
    let mut function = "";
    for line in dump.lines() {
        function = function_of(line).unwrap_or(function);
        for part in line.split('&').skip(1) {
            let end = part.find([',', ';', ' ']).unwrap_or(part.len());
            // `of_14(D)->has_error`, `of.has_error`
            let path = &part[..end];
            let Some((_, name)) = path.rsplit_once(['>', '.']) else { continue };
            let name = name.trim_end_matches(')');
            if fields.contains(name) {
                let symbol = format!("bit-field {name}");
                found.insert(Obstacle { symbol, function: function.to_owned() });
            }
        }
    }
    found
}

/// Names of all bit-fields in the object's types.
fn declared(object: &[u8]) -> Result<BTreeSet<String>> {
    let file =
        ElfBytes::<LittleEndian>::minimal_parse(object).context("the compiler's output is no ELF object")?;
    let load = |id: SectionId| section(&file, id.name());
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, gimli::LittleEndian));
    let found = members(&dwarf).context("the compiler's debug information cannot be read")?;
    found.context(
        "the compiler wrote no debug information, in which bit-fields are looked for: take options that leave it out \
         (-g0) away from the recipe",
    )
}

/// Names of the members that have a size in bits; `None` without any unit.
fn members(dwarf: &Dwarf<EndianSlice<'_, gimli::LittleEndian>>) -> gimli::Result<Option<BTreeSet<String>>> {
    let mut found = None;
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let names = found.get_or_insert_with(BTreeSet::new);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() == gimli::DW_TAG_member
                && entry.attr_value(gimli::DW_AT_bit_size).is_some()
                && let Some(name) = entry.attr_value(gimli::DW_AT_name)
            {
                names.insert(dwarf.attr_string(&unit, name)?.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// The bytes of a section with its relocations done, as a linker does them for an object at address 0; nothing where
/// there is none.
fn section<'a>(file: &ElfBytes<'a, LittleEndian>, wanted: &str) -> Result<Cow<'a, [u8]>> {
    let (Some(headers), Some(names)) = file.section_headers_with_strtab()? else {
        bail!("the compiler's output has no sections");
    };
    let is_wanted =
        |header: &SectionHeader| names.get(header.sh_name as usize).is_ok_and(|name| name == wanted);
    let Some((index, header)) = headers.iter().enumerate().find(|(_, header)| is_wanted(header)) else {
        return Ok(Cow::Borrowed(&[]));
    };
    if header.sh_flags & u64::from(SHF_COMPRESSED) != 0 {
        bail!("the compiler's {wanted} is compressed: take -gz away from the recipe");
    }
    let mut bytes = Cow::Borrowed(file.section_data(&header)?.0);
    let (symbols, _) = file.symbol_table()?.context("the compiler's output has no symbol table")?;
    for table in headers.iter().filter(|table| table.sh_type == SHT_RELA && table.sh_info as usize == index) {
        for relocation in file.section_data_as_relas(&table)? {
            let length = match relocation.r_type {
                R_X86_64_32 => 4,
                R_X86_64_64 => 8,
                // The place of a variable of a thread.
                _ => continue,
            };
            let symbol = symbols.get(relocation.r_sym as usize)?;
            let value = symbol.st_value.wrapping_add_signed(relocation.r_addend).to_le_bytes();
            let begin = usize::try_from(relocation.r_offset)?;
            let place = begin.checked_add(length).and_then(|end| bytes.to_mut().get_mut(begin..end));
            place.context("a relocation lies outside of its section")?.copy_from_slice(&value[..length]);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_bit_fields_are_found() {
        let fields = ["has_error", "other"].map(str::to_owned).into();
        let dump = ";; Function low (low, funcdef_no=1)\n  _1 = &of_14(D)->plain;\n;; Function mid.isra (x)\n\
                    _158 = &of_14(D)->has_error;\n  _ITM_WU1 (&of.other, 1);\n  _2 = &x->syn;\n";
        let found = addressed(&fields, dump);
        let names: Vec<(&str, &str)> =
            found.iter().map(|obstacle| (obstacle.symbol.as_str(), obstacle.function.as_str())).collect();
        assert_eq!(names, [("bit-field has_error", "mid"), ("bit-field other", "mid")]);
        assert!(found.iter().all(|obstacle| obstacle.explained().contains("plain member")), "{found:?}");
    }

    #[test]
    fn bit_fields_that_are_named_are_found() {
        let fields = ["busy", "other"].map(str::to_owned).into();
        let dump = ";; Function low (low)\n  flags.busy = 1;\n;; Function mid.isra (x)\n  # DEBUG x => flags.other\n\
                    _1 = of->busy;\n  _2 = flags.busy_not;\n";
        let found = mentioned(&fields, dump, &BTreeSet::from(["mid"]));
        let names: Vec<(&str, &str)> =
            found.iter().map(|obstacle| (obstacle.symbol.as_str(), obstacle.function.as_str())).collect();
        assert_eq!(names, [("bit-field busy", "mid")]);
    }

    #[test]
    fn what_is_no_object_is_reported() {
        assert!(declared(b"int x : 1;").is_err());
    }
}
