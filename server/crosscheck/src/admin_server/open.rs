//! Opens the admin endpoint. No other user can connect to a socket file, not even for a moment while it is made, and no
//! endpoint of another process is removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::geteuid;

use crate::admin::{AdminStream, Endpoint};
use crate::socket_file::{self, SocketFile};
use crate::{ServeError, limits};

/// What messages call it.
const WHAT: &str = "the admin socket";
/// Only its own user may open it.
const MODE: u32 = 0o600;

/// The listener for connections.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn accept(&self) -> io::Result<AdminStream> {
        match self {
            Listener::Unix(listener) => Ok(AdminStream::Unix(listener.accept()?.0)),
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Ok(AdminStream::Tcp(stream))
            }
        }
    }
}

/// Opens the endpoint; for a socket file, also returns the guard that removes it.
///
/// # Errors
/// See [`super::listen`].
pub(super) fn open(endpoint: &Endpoint) -> Result<(Listener, Option<SocketFile>), ServeError> {
    match endpoint {
        Endpoint::Unix(path) => {
            check_directory(path)?;
            socket_file::make_way(path, WHAT)?;
            let backlog = limits::ADMIN_CONNECTIONS as i32;
            let bound = socket_file::bind(path, MODE, backlog);
            let (listener, file) = bound.map_err(|error| refusal(endpoint, &error))?;
            Ok((Listener::Unix(listener), Some(file)))
        }
        Endpoint::Tcp { address, .. } => {
            let listener = TcpListener::bind(address).map_err(|error| refusal(endpoint, &error))?;
            Ok((Listener::Tcp(listener), None))
        }
    }
}

fn refusal(endpoint: &Endpoint, error: &io::Error) -> ServeError {
    io::Error::new(error.kind(), format!("the admin socket {endpoint} cannot be opened: {error}")).into()
}

/// Checks the directory: a user who may write to it could put another socket in place of this replica's. It is created
/// if it is missing.
fn check_directory(path: &Path) -> Result<(), ServeError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = parent.display();
    let remedy = "give the admin socket a directory of its own that only this user may write to (mode 0700)";
    match DirBuilder::new().mode(0o700).create(parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(ServeError::Operator(format!(
                "{name}, for the admin socket, cannot be made: {error}; {remedy}"
            )));
        }
        _ => {}
    }
    let found = fs::metadata(parent)?;
    let is_ours = found.uid() == geteuid().as_raw() || found.uid() == 0;
    if !found.is_dir() || !is_ours || found.mode() & 0o022 != 0 {
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        return Err(ServeError::Operator(format!(
            "{name}, for the admin socket, is open to others (mode {mode:04o}, owner {owner}); {remedy}"
        )));
    }
    Ok(())
}
