//! Bit-fields in handlers, which GCC 12 instruments wrongly without a word: it passes the address of the field to the
//! library, as if it were a whole byte, and the neighbours in it are overwritten.
//!
//! No C program can take the address of a bit-field. So where the compiler's own text of a handler does, the field is
//! one, and the program must not be built as it is.

use std::collections::BTreeSet;

use crate::inspect::Obstacle;

/// Bit-fields that instrumented functions read or write: `text` is the preprocessed unit, `dump` what GCC's pass
/// `tmmark` wrote.
pub fn accesses(text: &str, dump: &str) -> BTreeSet<Obstacle> {
    let fields = declared(text);
    let mut found = BTreeSet::new();
    let mut function = "";
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix(";; Function ") {
            function = rest.split([' ', '.']).next().unwrap_or(rest);
        }
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

/// Names of the bit-fields that the program's own files declare, but not headers of the system.
fn declared(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_system = false;
    for line in text.lines() {
        if let Some(marker) = line.strip_prefix("# ") {
            // `# 1 "file" 1 3`: the flag 3 is that of a header of the system.
            let flags = marker.rsplit_once('"').map_or("", |(_, flags)| flags);
            is_system = flags.split_whitespace().any(|flag| flag == "3");
            continue;
        }
        if is_system {
            continue;
        }
        for declarator in line.split([',', ';', '{', '}']) {
            if let Some((name, width)) = declarator.split_once(':')
                && let Some(name) = name.split_whitespace().next_back()
                && width.trim().parse::<u32>().is_ok()
            {
                found.insert(name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_bit_fields_are_found() {
        let text = "# 1 \"/usr/include/x.h\" 1 3\nstruct s { int syn:1; };\n# 2 \"a.c\"\nstruct t {\n\
                    unsigned int has_error :1, other : 3;\nint plain;\n};\n";
        assert_eq!(declared(text), ["has_error", "other"].into());
        let dump = ";; Function low (low, funcdef_no=1)\n  _1 = &of_14(D)->plain;\n;; Function mid.isra (x)\n\
                    _158 = &of_14(D)->has_error;\n  _ITM_WU1 (&of.other, 1);\n  _2 = &x->syn;\n";
        let found = accesses(text, dump);
        let names: Vec<(&str, &str)> =
            found.iter().map(|obstacle| (obstacle.symbol.as_str(), obstacle.function.as_str())).collect();
        assert_eq!(names, [("bit-field has_error", "mid"), ("bit-field other", "mid")]);
        assert!(found.iter().all(|obstacle| obstacle.explained().contains("plain member")), "{found:?}");
    }
}
