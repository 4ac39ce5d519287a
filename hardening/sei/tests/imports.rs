//! The list of the C library's functions that 16 servers import says truly which of them `wrap.h` has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The compiler redirects these itself, or puts them in line.
const BUILT_IN: [&str; 6] = ["malloc", "calloc", "free", "memcpy", "memmove", "memset"];

/// Of all uses of a function by a server.
const COVERED_PERCENT: u64 = 90;

#[test]
fn the_list_says_what_the_header_has() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(folder.join("include/sei/wrap.h")).unwrap();
    let wrapped = wrapped(&header);
    assert!(wrapped.len() > 200 && wrapped.contains("open") && wrapped.contains("exit"), "{wrapped:?}");
    let list = fs::read_to_string(folder.join("tests/imports/functions.txt")).unwrap();
    let (mut uses, mut met) = (0, 0);
    for line in list.lines() {
        let [mark, name, count] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let has = wrapped.contains(name) || BUILT_IN.contains(&name);
        assert_eq!(mark == "+", has, "{name}: make the list again with tests/imports/imports.py");
        let count: u64 = count.parse().unwrap();
        uses += count;
        met += if has { count } else { 0 };
    }
    assert!(uses > 1000 && met * 100 >= uses * COVERED_PERCENT, "{met} of {uses}");
}

/// Names that the header declares pure, or wraps.
fn wrapped(header: &str) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> =
        header.lines().filter_map(|line| word_before(line, " SEI_PURE;")).collect();
    names.extend(header.split("SEI_WRAP(").skip(2).filter_map(|rest| rest.split(", ").nth(1)));
    let direct = header.split("transaction_wrap(").skip(1).filter_map(|rest| rest.split(')').next());
    names.extend(direct.filter(|name| *name != "name"));
    names
}

/// The function of a declaration that ends in this: the name in front of its last list of arguments.
fn word_before<'a>(line: &'a str, ending: &str) -> Option<&'a str> {
    let declaration = line.strip_suffix(ending)?;
    let front = &declaration[..declaration.rfind('(')?];
    front.trim_end_matches(')').rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()
}
