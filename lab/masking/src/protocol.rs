//! The protocol of the experiment's clients: `ADD n` and `GET n`, a line each; `OK` or a number comes back.

use crosscheck::object::to_bytes;
use crosscheck::{Action, Progress, Protocol};

use crate::engine::ROWS;
use crate::service::RowRequest;

/// Longest line, in bytes.
const MAX_LINE: usize = 32;

/// One client's connection. It keeps nothing from one line to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineConnection;

impl Protocol for LineConnection {
    fn next(&mut self, input: &[u8]) -> Progress {
        let Some(end) = input.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            if input.len() < MAX_LINE {
                return Progress::NeedMore(input.len() + 1);
            }
            let used = input.len();
            return Progress::Done { used, action: Action::Close(b"ERROR\n".to_vec()) };
        };
        let action = match request(&input[..end]) {
            Some(request) => Action::Order(to_bytes(&request)),
            None => Action::Reply(b"ERROR\n".to_vec()),
        };
        Progress::Done { used: end + 1, action }
    }

    fn reply_bytes(&self) -> usize {
        24
    }
}

fn request(line: &[u8]) -> Option<RowRequest> {
    let (name, row) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let row = row.parse().ok().filter(|row| *row < ROWS)?;
    match name {
        "ADD" => Some(RowRequest::Add(row)),
        "GET" => Some(RowRequest::Get(row)),
        _ => None,
    }
}
