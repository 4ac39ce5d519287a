//! Questions to a replica, asked on its own host, so that no trouble on the network comes between.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crosscheck::admin::{Command, Refused};
use serde::de::DeserializeOwned;

use crate::ground::Host;

/// A process on the same host that does not accept in this time is stopped or gone.
const CONNECT: Duration = Duration::from_millis(500);

/// Connects to `address` from `host`.
///
/// # Errors
/// Nobody accepts there.
pub fn connect(host: &Host, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = host.run(move || TcpStream::connect_timeout(&address, CONNECT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection that is made when first needed, and again after it broke.
#[derive(Debug, Default)]
pub struct Line(Option<BufReader<TcpStream>>);

impl Line {
    /// Asks and waits at most `patience`; an error drops the connection, so that no late answer is taken for the next one.
    ///
    /// # Errors
    /// No answer, a refusal, or an answer of another kind.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        (host, address): (&Host, SocketAddr),
        command: &Command,
        patience: Duration,
    ) -> io::Result<T> {
        let stream = match self.0.take() {
            Some(stream) => stream,
            None => BufReader::new(connect(host, address)?),
        };
        let (stream, line) = exchange(stream, command, patience)?;
        self.0 = Some(stream);
        if let Ok(Refused { error }) = serde_json::from_str(&line) {
            return Err(io::Error::other(error));
        }
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}

fn exchange(
    mut stream: BufReader<TcpStream>,
    command: &Command,
    patience: Duration,
) -> io::Result<(BufReader<TcpStream>, String)> {
    stream.get_ref().set_read_timeout(Some(patience))?;
    stream.get_ref().set_write_timeout(Some(patience))?;
    stream.get_mut().write_all(&line_of(command)?)?;
    let mut answer = String::new();
    stream.read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
    }
    Ok((stream, answer))
}

/// A command as it is sent.
///
/// # Errors
/// None for the commands there are.
pub fn line_of(command: &Command) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    Ok(line)
}
