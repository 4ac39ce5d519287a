//! One connection to the SQL service through a client that others wrote. It has a runtime of its own, by which each
//! reply has a time limit: a replica that is paused never closes its connections.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use memcached_client::Failure;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row, SimpleQueryMessage};

/// Codes of errors that a correct server may give to what clients of a trial send: the rest is a wrong reply. 40001: of
/// two transactions at a time; 25P02, 25P03: of one that is over; 53, 57: no room, or not now; XX000: nothing was
/// changed.
const EXPECTED: [&str; 6] = ["40001", "25P02", "25P03", "53", "57", "XX000"];

/// A connection.
#[derive(Debug)]
pub struct SqlClient {
    runtime: Runtime,
    client: Client,
    /// Why the connection ended; its requests learn only that it did.
    ended: Arc<Mutex<Option<Failure>>>,
    reply: Duration,
}

impl SqlClient {
    /// Connects, and waits at most so long for each reply.
    ///
    /// # Errors
    /// The replica does not accept, or greets with something else.
    pub fn connect_within(address: SocketAddr, connect: Duration, reply: Duration) -> Result<Self, Failure> {
        // Sockets are made on the calling thread, which may have a network of its own.
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let mut config = Config::new();
        config.user("trial").dbname("trial");
        let greeted = runtime.block_on(async {
            timeout(connect, async {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                config.connect_raw(stream, NoTls).await.map_err(|error| failure(&error))
            })
            .await
        });
        let (client, connection) = greeted.map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
        let ended = Arc::new(Mutex::new(None));
        let why = Arc::clone(&ended);
        runtime.spawn(async move {
            if let Err(error) = connection.await {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure(&error));
            }
        });
        Ok(SqlClient { runtime, client, ended, reply })
    }

    /// Rows of a statement with parameters: the extended protocol.
    ///
    /// # Errors
    /// There is no reply in time, it is an error, or it is none.
    pub fn query(
        &mut self,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        self.wait(self.client.query_typed(text, parameters))
    }

    /// The number of rows that a statement with parameters changed: the extended protocol.
    ///
    /// # Errors
    /// As for [`SqlClient::query`].
    pub fn execute(
        &mut self,
        text: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64, Failure> {
        self.wait(self.client.execute_typed(text, parameters))
    }

    /// Statements without parameters, of which the service makes one transaction: the simple protocol.
    ///
    /// # Errors
    /// As for [`SqlClient::query`].
    pub fn simple(&mut self, text: &str) -> Result<Vec<SimpleQueryMessage>, Failure> {
        self.wait(self.client.simple_query(text))
    }

    fn wait<T>(&self, reply: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let Ok(reply) = self.runtime.block_on(async { timeout(self.reply, reply).await }) else {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        };
        reply.map_err(|error| {
            if !error.is_closed() {
                return failure(&error);
            }
            // The task of the connection may not have noted yet why it ended.
            self.runtime.block_on(tokio::task::yield_now());
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
            ended.unwrap_or_else(|| failure(&error))
        })
    }
}

/// Whether an error has this code, by which the service undid the transaction.
pub fn has_code(failure: &Failure, code: &str) -> bool {
    matches!(failure, Failure::Refused(line) if line.starts_with(code))
}

/// The value of a column.
///
/// # Errors
/// The server sent another type.
pub fn column<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Failure> {
    row.try_get(at).map_err(|error| failure(&error))
}

/// An error as the trial classifies it: the connection's, one that a server may give, or a wrong reply.
fn failure(error: &Error) -> Failure {
    if let Some(refused) = error.as_db_error() {
        let code = refused.code().code();
        let line = format!("{code} {}", refused.message());
        return match EXPECTED.iter().any(|expected| code.starts_with(expected)) {
            true => Failure::Refused(line),
            false => Failure::Malformed(format!("error {line}")),
        };
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let is_malformed = |kind| matches!(kind, ErrorKind::InvalidData | ErrorKind::InvalidInput);
    match source {
        // The client reports bytes that are no message by these kinds.
        Some(source) if !is_malformed(source.kind()) => {
            Failure::Connection(io::Error::new(source.kind(), error.to_string()))
        }
        None if error.is_closed() => {
            Failure::Connection(io::Error::new(ErrorKind::BrokenPipe, error.to_string()))
        }
        _ => Failure::Malformed(match source {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// AuthenticationOk and ReadyForQuery.
    const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

    /// What a client makes of a server that answers its first query with these bytes, and then stays silent or closes.
    fn answer_to(reply: &'static [u8], closes: bool) -> Failure {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(AUTHENTICATED);
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(reply);
            // Until the client has gone, unless the server closes first.
            while !closes && stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        let mut client =
            SqlClient::connect_within(address, Duration::from_secs(5), Duration::from_millis(300))
                .expect("greeted");
        let failure = client.simple("SELECT 1").expect_err("no answer");
        drop(client);
        server.join().expect("it ended");
        failure
    }

    #[test]
    fn silence_and_closed_connections_are_no_wrong_replies_but_garbage_is() {
        assert!(
            matches!(answer_to(b"", false), Failure::Connection(error) if error.kind() == ErrorKind::TimedOut)
        );
        assert!(matches!(answer_to(b"", true), Failure::Connection(_)));
        let garbage = answer_to(b"\xEE\xEE\xEE\xEE\xEE\xEE\xEE\xEE", false);
        assert!(matches!(garbage, Failure::Malformed(_)), "{garbage:?}");
    }

    #[test]
    fn an_error_is_judged_by_its_code() {
        let again = answer_to(b"E\0\0\0\x1CSERROR\0C40001\0Mchanged\0\0Z\0\0\0\x05T", false);
        assert!(has_code(&again, "40001") && !has_code(&again, "40002"), "{again:?}");
        let syntax = answer_to(b"E\0\0\0\x1CSERROR\0C42601\0Mchanged\0\0Z\0\0\0\x05I", false);
        assert!(matches!(syntax, Failure::Malformed(_)), "{syntax:?}");
    }
}
