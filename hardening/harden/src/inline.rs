//! Reads in line: a handler's reads as loads, where the library's functions for them would only do the load.
//!
//! GCC calls `_ITM_RU8` and its like for each word that a handler reads. Where the state has one copy, such a function
//! is one load, and the call costs more than the load. So the text of the unit's assembly is changed between compiler
//! and assembler. Writes stay calls: they keep the old value. What is not known here stays a call, which is as right.

use crate::compile;

/// A call's suffix behind `_ITM_R`, `_ITM_RaR`, `_ITM_RaW` or `_ITM_RfW`, and the load that does the same. The address
/// is in `rdi`, and the word is expected where a function returns its type. Unaligned addresses are allowed.
const LOADS: [(&str, &str); 8] = [
    ("U1", "movzbl\t(%rdi), %eax"),
    ("U2", "movzwl\t(%rdi), %eax"),
    ("U4", "movl\t(%rdi), %eax"),
    ("U8", "movq\t(%rdi), %rax"),
    ("F", "movss\t(%rdi), %xmm0"),
    ("D", "movsd\t(%rdi), %xmm0"),
    ("M64", "movq\t(%rdi), %xmm0"),
    ("M128", "movups\t(%rdi), %xmm0"),
];

/// The assembly with its reads in line.
pub fn reads(assembly: &str) -> String {
    let mut text = String::with_capacity(assembly.len());
    for line in assembly.split_inclusive('\n') {
        match load_for(line) {
            Some(load) => {
                text.push('\t');
                text.push_str(load);
                text.push('\n');
            }
            None => text.push_str(line),
        }
    }
    text
}

/// The load that stands for a line, if that calls a read. A jump to one at the end of a function stays.
fn load_for(line: &str) -> Option<&'static str> {
    let called = line.trim().strip_prefix("call")?.trim_start();
    let (kind, of) = compile::access(called.strip_suffix("@PLT").unwrap_or(called))?;
    let load = LOADS.iter().find(|(name, _)| *name == of).map(|(_, load)| *load);
    load.filter(|_| kind.starts_with('R'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_becomes_the_load_of_its_type() {
        let text = "\tmovq\t%rbx, %rdi\n\tcall\t_ITM_RU8@PLT\n\tcall _ITM_RaWU1\n\tcall\t_ITM_RfWM128@PLT\n";
        let loads =
            "\tmovq\t%rbx, %rdi\n\tmovq\t(%rdi), %rax\n\tmovzbl\t(%rdi), %eax\n\tmovups\t(%rdi), %xmm0\n";
        assert_eq!(reads(text), loads);
    }

    #[test]
    fn other_lines_stay() {
        let lines = [
            ".LFB0:",
            "\tcall\t_ITM_WaRU8@PLT",
            "\tcall\t_ITM_LU8",
            "\tcall\t_ITM_RE",
            "\tcall\t_ITM_RM256@PLT",
            "\tjmp\t_ITM_RU8",
            "\tcall\t*_ITM_RU8@GOTPCREL(%rip)",
            "\tcall\t_ITM_memcpyRtWt@PLT",
            "\t.string\t\"call _ITM_RU8\"",
            "\tcall\t_ITM_RU",
        ];
        let text = lines.join("\n");
        assert_eq!(reads(&text), text);
    }
}
