//! Opens the admin endpoint. No other user can connect to a socket file, not even for a moment while it is made, and no
//! endpoint of another process is removed.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::admin::{AdminStream, Endpoint};
use crate::{ServeError, limits};

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

/// The socket file of a running replica; removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file: another process's socket may have replaced it.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Opens the endpoint; for a socket file, also returns the guard that removes it.
///
/// # Errors
/// See [`super::listen`].
pub(super) fn open(endpoint: &Endpoint) -> Result<(Listener, Option<SocketFile>), ServeError> {
    match endpoint {
        Endpoint::Unix(path) => {
            check_directory(path)?;
            make_way(path)?;
            let (listener, file) = bind(path).map_err(|error| refusal(endpoint, &error))?;
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

/// Removes the socket file of a replica that was killed; any other file at this path must not be removed.
fn make_way(path: &Path) -> Result<(), ServeError> {
    let name = path.display();
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::Operator(format!(
            "{name} is there and is no socket; move it away, or choose another path for the admin socket"
        )));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener whose queue is full is alive as well: do not wait until it accepts.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(ServeError::Operator(format!(
            "{name} is another user's socket ({error}); choose another path for the admin socket"
        ))),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "another process listens on {name}; stop it, or choose another path for the admin socket"
            ),
        )
        .into()),
    }
}

/// No process can connect before the socket listens, and by then its mode is set.
fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(limits::ADMIN_CONNECTIONS as i32)?;
    Ok((UnixListener::from(OwnedFd::from(socket)), file))
}
