//! Any bytes are an admin command or a refusal; a command can be read back from its line; and only the secret is
//! accepted as the secret.
#![no_main]

use crosscheck::admin::{Token, line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(command) = line::command(data) {
        assert_eq!(line::command(line::of_command(&command).as_bytes()), Ok(command));
    }
    let token = Token::parse("0123456789abcdef0123456789abcdef").expect("a secret");
    if line::presents(data, &token).is_ok() {
        let text = std::str::from_utf8(data).expect("JSON is UTF-8");
        assert!(text.contains("token"), "{text}");
        assert!(line::command(data).is_err(), "a secret is no command: {text}");
    }
    if let Ok(token) = std::str::from_utf8(data).map_err(|_| String::new()).and_then(Token::parse) {
        let secret = data.strip_suffix(b"\n").unwrap_or(data);
        assert!(token.is(std::str::from_utf8(secret).expect("it was text")));
    }
});
