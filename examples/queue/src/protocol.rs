//! beanstalkd's protocol: lines, and the bodies of jobs.
//!
//! The parser is total and bounded: for any bytes it returns a request, an error, or the number of bytes that it needs.

use std::sync::Arc;

use crosscheck::object::to_bytes;
use crosscheck::{Action, ConnectionId, Progress, Protocol};

use crate::request::{QueueCommand, QueueRequest, Sender};
use crate::{DEFAULT_TUBE, MAX_JOB_BYTES, MAX_NAME_BYTES, MAX_WATCHED, region_of_job, region_of_tube};

/// Longest line, with its end.
const MAX_LINE: usize = 224;
/// Words of a line at most.
const MAX_WORDS: usize = 5;

/// What the client sends that is not looked into any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Nothing,
    /// So many bytes of a body that is too long.
    Body(u64),
    /// A line that is too long.
    Line,
}

/// One client's connection: the tubes that it uses and watches, so that its requests can name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeanstalkConnection {
    connection: ConnectionId,
    used: Arc<str>,
    watched: Arc<Vec<String>>,
    /// Roles that the service knows of.
    roles: u8,
    /// Regions in which it may have reserved jobs, and those in which it may hold anything.
    holding: u16,
    touched: u16,
    skipped: Unread,
}

/// Why a line is no request.
enum NoCommand {
    BadFormat,
    Answer(&'static str),
}

impl BeanstalkConnection {
    /// The connection of this id.
    pub fn new(connection: ConnectionId) -> Self {
        BeanstalkConnection {
            connection,
            used: DEFAULT_TUBE.into(),
            watched: Arc::new(vec![DEFAULT_TUBE.to_owned()]),
            roles: 0,
            holding: 0,
            touched: 0,
            skipped: Unread::Nothing,
        }
    }

    /// The request for a command of this connection.
    fn request(&mut self, command: QueueCommand) -> Vec<u8> {
        let role = match &command {
            QueueCommand::Put { .. } => Sender::PRODUCER,
            QueueCommand::Reserve { .. }
            | QueueCommand::ReserveWithTimeout { .. }
            | QueueCommand::ReserveJob { .. } => Sender::WORKER,
            _ => 0,
        };
        let news = (Sender::CLIENT | role) & !self.roles;
        self.roles |= news;
        match &command {
            QueueCommand::Reserve { tubes } | QueueCommand::ReserveWithTimeout { tubes, .. } => {
                tubes.iter().for_each(|tube| self.holding |= 1 << region_of_tube(tube));
            }
            QueueCommand::ReserveJob { id } => self.holding |= 1 << region_of_job(*id),
            QueueCommand::Use { tube, .. } | QueueCommand::Watch { tube, .. } => {
                self.touched |= 1 << region_of_tube(tube)
            }
            _ => {}
        }
        let sender = Sender { connection: self.connection, news, holding: self.holding };
        to_bytes(&QueueRequest { command, sender })
    }

    /// What a line means, and how many bytes of a body follow it.
    fn line(&mut self, words: &[&[u8]]) -> Result<(QueueCommand, Option<u32>), NoCommand> {
        let used = || self.used.as_ref().to_owned();
        Ok((
            match words {
                [b"put", pri, delay, ttr, bytes] => {
                    let (pri, delay, ttr) = (number(pri)?, number(delay)?, number(ttr)?);
                    let command = QueueCommand::Put { tube: used(), pri, delay, ttr, body: Vec::new() };
                    return Ok((command, Some(number(bytes)?)));
                }
                [b"use", tube] => {
                    let (from, tube) = (used(), name(tube)?);
                    self.used = tube.as_str().into();
                    QueueCommand::Use { from, tube }
                }
                [b"watch", tube] => {
                    let tube = name(tube)?;
                    let is_new = !self.watched.contains(&tube);
                    if is_new && self.watched.len() >= MAX_WATCHED {
                        return Err(NoCommand::Answer("OUT_OF_MEMORY\r\n"));
                    }
                    if is_new {
                        Arc::make_mut(&mut self.watched).push(tube.clone());
                    }
                    QueueCommand::Watch { tube, is_new, watched: self.watched.len() as u32 }
                }
                [b"ignore", tube] => {
                    let tube = name(tube)?;
                    let is_old = self.watched.contains(&tube);
                    let is_last = is_old && self.watched.len() == 1;
                    if is_old && !is_last {
                        Arc::make_mut(&mut self.watched).retain(|other| *other != tube);
                    }
                    let watched = if is_last { 0 } else { self.watched.len() as u32 };
                    QueueCommand::Ignore { tube, is_old, watched }
                }
                [b"reserve"] => QueueCommand::Reserve { tubes: self.watched.to_vec() },
                [b"reserve-with-timeout", seconds] => QueueCommand::ReserveWithTimeout {
                    tubes: self.watched.to_vec(),
                    seconds: number(seconds)?,
                },
                [b"reserve-job", id] => QueueCommand::ReserveJob { id: number(id)? },
                [b"delete", id] => QueueCommand::Delete { id: number(id)? },
                [b"release", id, pri, delay] => {
                    QueueCommand::Release { id: number(id)?, pri: number(pri)?, delay: number(delay)? }
                }
                [b"bury", id, pri] => QueueCommand::Bury { id: number(id)?, pri: number(pri)? },
                [b"touch", id] => QueueCommand::Touch { id: number(id)? },
                [b"kick", bound] => QueueCommand::Kick { tube: used(), bound: number(bound)? },
                [b"kick-job", id] => QueueCommand::KickJob { id: number(id)? },
                [b"peek", id] => QueueCommand::Peek { id: number(id)? },
                [b"peek-ready"] => QueueCommand::PeekReady { tube: used() },
                [b"peek-delayed"] => QueueCommand::PeekDelayed { tube: used() },
                [b"peek-buried"] => QueueCommand::PeekBuried { tube: used() },
                [b"stats"] => QueueCommand::Stats,
                [b"stats-job", id] => QueueCommand::StatsJob { id: number(id)? },
                [b"stats-tube", tube] => QueueCommand::StatsTube { tube: name(tube)? },
                [b"list-tubes"] => QueueCommand::ListTubes,
                [b"list-tube-used"] => QueueCommand::ListTubeUsed { tube: used() },
                [b"list-tubes-watched"] => QueueCommand::ListTubesWatched { tubes: self.watched.to_vec() },
                [b"pause-tube", tube, seconds] => {
                    QueueCommand::PauseTube { tube: name(tube)?, seconds: number(seconds)? }
                }
                [b"quit"] => QueueCommand::Quit,
                [command, ..] if is_command(command) => return Err(NoCommand::BadFormat),
                _ => return Err(NoCommand::Answer("UNKNOWN_COMMAND\r\n")),
            },
            None,
        ))
    }

    /// Consumes what is not looked into any more.
    fn skip(&mut self, input: &[u8]) -> Progress {
        let (used, reply) = match self.skipped {
            Unread::Body(left) => {
                let used = left.min(input.len() as u64);
                self.skipped = Unread::Body(left - used);
                (used as usize, (used == left).then_some("JOB_TOO_BIG\r\n"))
            }
            _ => match input.windows(2).position(|two| two == b"\r\n") {
                Some(end) => (end + 2, Some("BAD_FORMAT\r\n")),
                // The line's end may be divided.
                None => (input.len() - usize::from(input.ends_with(b"\r")), None),
            },
        };
        if used == 0 {
            return Progress::NeedMore(input.len() + 1);
        }
        let Some(reply) = reply else { return Progress::Done { used, action: Action::Nothing } };
        self.skipped = Unread::Nothing;
        answered(used, reply)
    }

    /// The `put` whose line has `start` bytes.
    fn put(&mut self, input: &[u8], start: usize, command: QueueCommand, bytes: u32) -> Progress {
        if bytes > MAX_JOB_BYTES {
            self.skipped = Unread::Body(u64::from(bytes) + 2);
            return Progress::Done { used: start, action: Action::Nothing };
        }
        let (end, QueueCommand::Put { tube, pri, delay, ttr, .. }) = (start + bytes as usize, command) else {
            return answered(start, "INTERNAL_ERROR\r\n");
        };
        let Some(body) = input.get(start..end + 2) else { return Progress::NeedMore(end + 2) };
        let Some(body) = body.strip_suffix(b"\r\n") else { return answered(end + 2, "EXPECTED_CRLF\r\n") };
        let request = self.request(QueueCommand::Put { tube, pri, delay, ttr, body: body.to_vec() });
        Progress::Done { used: end + 2, action: Action::Order(request) }
    }
}

impl Protocol for BeanstalkConnection {
    fn next(&mut self, input: &[u8]) -> Progress {
        if self.skipped != Unread::Nothing {
            return self.skip(input);
        }
        let Some(end) = input.windows(2).take(MAX_LINE - 1).position(|two| two == b"\r\n") else {
            if input.len() >= MAX_LINE {
                self.skipped = Unread::Line;
                return self.skip(input);
            }
            return Progress::NeedMore(input.len() + 1);
        };
        let (line, used) = (&input[..end], end + 2);
        let words: Vec<&[u8]> =
            line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(MAX_WORDS + 1).collect();
        let action = match self.line(&words) {
            Ok((command, Some(bytes))) => return self.put(input, used, command, bytes),
            Ok((QueueCommand::Quit, _)) => Action::Close(Vec::new()),
            Ok((command, None)) => Action::Order(self.request(command)),
            Err(NoCommand::BadFormat) => Action::Reply(b"BAD_FORMAT\r\n".to_vec()),
            Err(NoCommand::Answer(reply)) => Action::Reply(reply.into()),
        };
        Progress::Done { used, action }
    }

    fn closed(&mut self) -> Option<Vec<u8>> {
        let regions = self.holding | self.touched | 1 << region_of_tube(DEFAULT_TUBE);
        (self.roles != 0).then(|| self.request(QueueCommand::Closed { regions }))
    }
}

fn answered(used: usize, reply: &str) -> Progress {
    Progress::Done { used, action: Action::Reply(reply.into()) }
}

/// A number in digits; no sign.
fn number<T: std::str::FromStr>(digits: &[u8]) -> Result<T, NoCommand> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).ok_or(NoCommand::BadFormat)
}

/// The name of a tube.
fn name(word: &[u8]) -> Result<String, NoCommand> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(byte);
    let is_name = word.iter().all(is_allowed) && word.len() <= MAX_NAME_BYTES && word.first() != Some(&b'-');
    String::from_utf8(word.to_vec()).ok().filter(|_| is_name).ok_or(NoCommand::BadFormat)
}

/// Whether clients have a command of this name.
fn is_command(word: &[u8]) -> bool {
    let kinds = 1..=QueueCommand::OF_CLIENTS as u16;
    kinds.filter_map(QueueCommand::kind_name).any(|name| name.replace('_', "-").as_bytes() == word)
}
