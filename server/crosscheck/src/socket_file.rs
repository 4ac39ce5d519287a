//! Socket files: no process can connect before the mode of a file is set, and no socket of another process is removed.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::ServeError;

/// A socket file for clients of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath {
    /// Where it is; its directory has to be there.
    pub path: PathBuf,
    /// Its permissions: who may write to it may connect.
    pub mode: u32,
}

impl SocketPath {
    /// What messages call it.
    const WHAT: &str = "client_socket";

    /// Removes the socket file of a process that ended without doing so.
    ///
    /// # Errors
    /// The path is another kind of file, or the socket of a process that runs; the message names both.
    pub fn make_way(&self) -> Result<(), ServeError> {
        make_way(&self.path, Self::WHAT)
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

/// Removes the socket file of a process that was killed; any other file at this path must not be removed. `what` is
/// what the operator calls the socket.
///
/// # Errors
/// The path is another kind of file, or the socket of a process that runs; the message names both.
pub fn make_way(path: &Path, what: &str) -> Result<(), ServeError> {
    let name = path.display();
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let error = format!("{name}, for {what}, cannot be looked at: {error}");
            return Err(ServeError::Operator(format!("{error}; choose another path for {what}")));
        }
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::Operator(format!(
            "{name} is there and is no socket; move it away, or choose another path for {what}"
        )));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener whose queue is full is alive as well: do not wait until it accepts.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(ServeError::Operator(format!(
            "{name} is another user's socket ({error}); choose another path for {what}"
        ))),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another process listens on {name}; stop it, or choose another path for {what}"),
        )
        .into()),
    }
}

/// Listens on a new socket file of this mode, with a queue of so many connections. No process can connect before the
/// socket listens, and by then its mode is set.
///
/// # Errors
/// The kernel's.
pub fn bind(path: &Path, mode: u32, backlog: i32) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok((UnixListener::from(OwnedFd::from(socket)), file))
}
