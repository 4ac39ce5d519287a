//! Reads one line of the admin protocol. A line that is no command is refused, and its connection ends: so the body of
//! an HTTP request, which follows lines that are no commands, is never read as one.

use serde::{Deserialize, Serialize};

use super::{AdminCommand, Refused, Token};
use crate::limits;

/// The first line of a connection to an admin port.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Presented<'a> {
    #[serde(borrow)]
    token: std::borrow::Cow<'a, str>,
}

/// The command on one line, with or without its line end.
///
/// # Errors
/// The line is none: not UTF-8, not JSON, unknown, or longer than [`limits::ADMIN_LINE`].
pub fn command(line: &[u8]) -> Result<AdminCommand, Refused> {
    within_bound(line)?;
    serde_json::from_slice(line).map_err(|error| refused(&format!("not an admin command: {error}")))
}

/// Whether the first line of a connection presents `token`.
///
/// # Errors
/// It does not; the answer is the same for every other line.
pub fn presents(line: &[u8], token: &Token) -> Result<(), Refused> {
    within_bound(line)?;
    match serde_json::from_slice::<Presented<'_>>(line) {
        Ok(presented) if token.is(&presented.token) => Ok(()),
        _ => Err(refused(
            "the first line must be {\"token\":\"SECRET\"} with the secret of this replica's \
                admin_token_file; give the command line --admin-token FILE",
        )),
    }
}

/// The line that carries a command.
pub fn of_command(command: &AdminCommand) -> String {
    written(command)
}

/// The line that presents a secret.
pub(super) fn of_token(token: &Token) -> String {
    written(&Presented { token: token.secret().into() })
}

fn written(value: &impl Serialize) -> String {
    // panics: a command is a plain struct, which always has a text
    let mut line = serde_json::to_string(value).expect("commands have no maps with odd keys");
    line.push('\n');
    line
}

fn within_bound(line: &[u8]) -> Result<(), Refused> {
    if line.len() > limits::ADMIN_LINE {
        return Err(refused(&format!("a line is longer than {} bytes", limits::ADMIN_LINE)));
    }
    Ok(())
}

fn refused(why: &str) -> Refused {
    Refused { error: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_command_is_refused_with_the_reason() {
        let error = command(br#"{"cmd":"dance"}"#).unwrap_err().error;
        assert!(error.contains("not an admin command") && error.contains("dance"), "{error}");
        for line in
            [&b""[..], b"POST / HTTP/1.1\r\n", b"{\"cmd\":\"status\"} {}", b"\xff\n", b"{\"cmd\":\"\xff\"}"]
        {
            assert!(command(line).is_err(), "{line:?}");
        }
        let long = format!("{{\"cmd\":\"status\",\"more\":\"{}\"}}", "x".repeat(limits::ADMIN_LINE));
        assert!(command(long.as_bytes()).unwrap_err().error.contains("longer than"));
    }

    #[test]
    fn commands_read_back() {
        for asked in
            [AdminCommand::Status, AdminCommand::Digest { at: None }, AdminCommand::Evidence { after: 7 }]
        {
            assert_eq!(command(of_command(&asked).as_bytes()), Ok(asked));
        }
    }

    #[test]
    fn only_the_secret_opens() {
        let token = Token::parse(&"s\"\\".repeat(16)).expect("a secret");
        let line = of_token(&token);
        assert_eq!(presents(line.as_bytes(), &token), Ok(()));
        let other = Token::parse(&"o".repeat(48)).expect("a secret");
        let refusal = presents(line.as_bytes(), &other).unwrap_err();
        for line in ["", "{}", "{\"cmd\":\"shutdown\"}", "{\"token\":7}", "GET / HTTP/1.1\r\n"] {
            assert_eq!(presents(line.as_bytes(), &token), Err(refusal.clone()), "{line}");
        }
    }
}
