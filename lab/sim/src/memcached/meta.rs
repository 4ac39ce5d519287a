//! Meta commands: the same commands in memcached's other syntax. The model answers the classic command, and this file
//! converts request and reply to the meta form (memcached 1.6, doc/protocol.txt, "Meta Commands").

use super::model::{ModelCommand, StoringMode};

/// The bytes a client sends for `command`, if it has a meta form.
pub fn text(command: &ModelCommand) -> Option<Vec<u8>> {
    let line = |line: String| Some(line.into_bytes());
    match command {
        ModelCommand::Get { keys, unique: false } if keys.len() == 1 => {
            line(format!("mg {} f v\r\n", keys[0]))
        }
        ModelCommand::Store { mode, key, flags, expiry, value } => {
            let mode = match mode {
                StoringMode::Set => "S",
                StoringMode::Add => "E",
                StoringMode::Replace => "R",
                StoringMode::Append => "A",
                StoringMode::Prepend => "P",
            };
            let head = format!("ms {key} {} F{flags} T{expiry} M{mode}\r\n", value.len());
            Some([head.as_bytes(), value, b"\r\n"].concat())
        }
        ModelCommand::Cas { key, flags, unique, value } => {
            let head = format!("ms {key} {} F{flags} C{unique}\r\n", value.len());
            Some([head.as_bytes(), value, b"\r\n"].concat())
        }
        ModelCommand::Delete(key) => line(format!("md {key}\r\n")),
        ModelCommand::Step { key, up, delta } => {
            line(format!("ma {key} D{delta} M{} v\r\n", if *up { "I" } else { "D" }))
        }
        ModelCommand::Touch { key, expiry } => line(format!("mg {key} T{expiry}\r\n")),
        ModelCommand::Get { .. } | ModelCommand::Flush | ModelCommand::Meta(_) => None,
    }
}

/// The meta form of the answer to the classic `command`.
pub fn reply(command: &ModelCommand, classic: &[u8]) -> Vec<u8> {
    match (command, classic) {
        (ModelCommand::Get { .. }, b"END\r\n") | (ModelCommand::Touch { .. }, b"NOT_FOUND\r\n") => {
            b"EN\r\n".to_vec()
        }
        (ModelCommand::Get { .. }, item) => value(item).unwrap_or_else(|| item.to_vec()),
        (_, b"STORED\r\n" | b"DELETED\r\n" | b"TOUCHED\r\n") => b"HD\r\n".to_vec(),
        (_, b"NOT_STORED\r\n") => b"NS\r\n".to_vec(),
        (_, b"EXISTS\r\n") => b"EX\r\n".to_vec(),
        (_, b"NOT_FOUND\r\n") => b"NF\r\n".to_vec(),
        (ModelCommand::Step { .. }, number) if number[0].is_ascii_digit() => {
            [format!("VA {}\r\n", number.len() - 2).as_bytes(), number].concat()
        }
        (_, other) => other.to_vec(),
    }
}

/// `VA <size> f<flags>` and the data of `VALUE <key> <flags> <size>` and the data.
fn value(item: &[u8]) -> Option<Vec<u8>> {
    let head = item.split(|byte| *byte == b'\r').next()?;
    let words: Vec<&str> = std::str::from_utf8(head).ok()?.split(' ').collect();
    let (flags, size) = (words.get(2)?, words.get(3)?);
    let data = item.get(head.len() + 2..)?.strip_suffix(b"END\r\n")?;
    Some([format!("VA {size} f{flags}\r\n").as_bytes(), data].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_put_into_other_words() {
        let get = ModelCommand::Get { keys: vec!["k".into()], unique: false };
        assert_eq!(text(&get).unwrap(), b"mg k f v\r\n");
        assert_eq!(reply(&get, b"VALUE k 7 3\r\na\r\n\r\nEND\r\n"), b"VA 3 f7\r\na\r\n\r\n");
        assert_eq!(reply(&get, b"END\r\n"), b"EN\r\n");
        let step = ModelCommand::Step { key: "k".into(), up: true, delta: 2 };
        assert_eq!(text(&step).unwrap(), b"ma k D2 MI v\r\n");
        assert_eq!(reply(&step, b"12\r\n"), b"VA 2\r\n12\r\n");
        assert_eq!(reply(&step, b"NOT_FOUND\r\n"), b"NF\r\n");
        let (key, unique, value) = ("k".into(), 9, b"ab".to_vec());
        let cas = ModelCommand::Cas { key, flags: 1, unique, value };
        assert_eq!(text(&cas).unwrap(), b"ms k 2 F1 C9\r\nab\r\n");
        assert_eq!(reply(&cas, b"EXISTS\r\n"), b"EX\r\n");
    }
}
