//! Conversations that need the unique of an earlier answer; with this service and with stock memcached.

/// Sends one request and waits for the answer.
pub type Talk<'a> = dyn FnMut(&str) -> String + 'a;

/// Every conversation.
pub fn all(talk: &mut Talk<'_>) {
    cas_follows_the_unique(talk);
    every_change_has_a_unique_of_its_own(talk);
    meta_commands_compare(talk);
    stale_items_are_recached_once(talk);
}

fn unique_of(talk: &mut Talk<'_>, key: &str) -> u64 {
    let answer = talk(&format!("mg {key} c u\r\n"));
    let number = answer.split_whitespace().find_map(|token| token.strip_prefix('c')?.parse().ok());
    number.unwrap_or_else(|| panic!("no unique in {answer:?}"))
}

fn cas_follows_the_unique(talk: &mut Talk<'_>) {
    talk("set u 0 0 1\r\na\r\n");
    let first = unique_of(talk, "u");
    assert_eq!(talk("gets u\r\n"), format!("VALUE u 0 1 {first}\r\na\r\nEND\r\n"));
    assert_eq!(talk(&format!("cas u 0 0 1 {first}\r\nb\r\n")), "STORED\r\n");
    assert_eq!(talk(&format!("cas u 0 0 1 {first}\r\nc\r\n")), "EXISTS\r\n");
    assert_eq!(talk("get u\r\n"), "VALUE u 0 1\r\nb\r\nEND\r\n");
    let second = unique_of(talk, "u");
    assert_ne!(first, second);
    talk("delete u\r\n");
    assert_eq!(talk(&format!("cas u 0 0 1 {second}\r\nc\r\n")), "NOT_FOUND\r\n");
    // An item that comes back is another one.
    talk("set u 0 0 1\r\na\r\n");
    assert_eq!(talk(&format!("cas u 0 0 1 {second}\r\nc\r\n")), "EXISTS\r\n");
}

fn every_change_has_a_unique_of_its_own(talk: &mut Talk<'_>) {
    let changes = [
        "set n 0 0 1\r\n8\r\n",
        "incr n 1\r\n",
        "incr n 1\r\n",
        "append n 0 0 1\r\n1\r\n",
        "replace n 0 0 1\r\n5\r\n",
        "decr n 1\r\n",
        "ms n 1\r\n7\r\n",
        "ma n\r\n",
        "md n I\r\n",
    ];
    let mut seen = Vec::new();
    for change in changes {
        talk(change);
        let unique = unique_of(talk, "n");
        assert!(seen.iter().all(|earlier| *earlier < unique), "{change:?}: {unique} after {seen:?}");
        seen.push(unique);
    }
    for look in ["get n\r\n", "touch n 100\r\n", "gat 100 n\r\n", "mg n v t T30\r\n", "add n 0 0 1\r\nx\r\n"]
    {
        talk(look);
        assert_eq!(unique_of(talk, "n"), seen[seen.len() - 1], "{look:?}");
    }
}

fn meta_commands_compare(talk: &mut Talk<'_>) {
    talk("set m 0 0 1\r\n5\r\n");
    let first = unique_of(talk, "m");
    assert_eq!(talk(&format!("ma m C{first} v\r\n")), "VA 1\r\n6\r\n");
    assert_eq!(talk(&format!("ma m C{first} v\r\n")), "EX\r\n");
    let second = unique_of(talk, "m");
    assert_eq!(talk(&format!("ms m 1 MA C{second}\r\n0\r\n")), "HD\r\n");
    assert_eq!(talk(&format!("ms m 1 C{second}\r\n9\r\n")), "EX\r\n");
    let third = unique_of(talk, "m");
    let answer = talk(&format!("ms m 1 C{third} c\r\n9\r\n"));
    let fourth = unique_of(talk, "m");
    assert_eq!(answer, format!("HD c{fourth}\r\n"));
    assert_eq!(talk(&format!("md m C{third}\r\n")), "EX\r\n");
    assert_eq!(talk(&format!("md m C{fourth}\r\n")), "HD\r\n");
    assert_eq!(talk("mg m\r\n"), "EN\r\n");
}

fn stale_items_are_recached_once(talk: &mut Talk<'_>) {
    talk("set s 0 0 3\r\nold\r\n");
    assert_eq!(talk("md s I T30\r\n"), "HD\r\n");
    let answer = talk("mg s v c\r\n");
    assert!(answer.ends_with(" X W\r\nold\r\n"), "{answer:?}");
    let token = unique_of(talk, "s");
    assert_eq!(talk("mg s v\r\n"), "VA 3 Z X\r\nold\r\n");
    assert_eq!(talk(&format!("ms s 3 C{token} T90\r\nnew\r\n")), "HD\r\n");
    assert_eq!(talk("mg s v t\r\n"), "VA 3 t90\r\nnew\r\n");
}
