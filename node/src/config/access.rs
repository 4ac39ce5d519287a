//! The ways in for clients besides the plain port: their fields in the configuration file.

use std::fmt::Write as _;
use std::path::PathBuf;

use crosscheck::admin::Endpoint;
use crosscheck::{ClientAccess, SocketPath};

use super::quoted;
use super::read::TableReader;

/// Permissions of a socket file unless the file gives others: its own user's.
pub const DEFAULT_SOCKET_MODE: u32 = 0o700;

/// Reads the fields.
pub(super) fn read(reader: &mut TableReader<'_>) -> ClientAccess {
    ClientAccess { socket: read_socket(reader) }
}

fn read_socket(reader: &mut TableReader<'_>) -> Option<SocketPath> {
    let path = reader.text("client_socket");
    let remedy = "write the digits of chmod, for example \"0770\" for this user and its group";
    let mode = reader.parsed("client_socket_mode", remedy, |text| match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(mode),
        Ok(_) => Err(format!("{text} is no mode with which this user can connect")),
        Err(_) => Err(format!("`{text}` is no octal number")),
    });
    let Some(path) = path else {
        if reader.offset("client_socket_mode").is_some() && reader.offset("client_socket").is_none() {
            let what = "is set, but there is no client_socket";
            reader.report(reader.offset("client_socket_mode"), "client_socket_mode", what, "remove it");
        }
        return None;
    };
    let at = reader.offset("client_socket");
    if !Endpoint::is_path(path) {
        let what =
            format!("`{path}` has no slash, and would be in the directory where this process is started");
        reader.report(
            at,
            "client_socket",
            &what,
            "write the whole path, for example \"/run/crosscheck/clients.sock\"",
        );
        return None;
    }
    // The kernel's bound is that of the admin socket.
    if let Err((what, remedy)) = Endpoint::unix(path) {
        reader.report(at, "client_socket", &what, &remedy);
        return None;
    }
    Some(SocketPath { path: PathBuf::from(path), mode: mode.unwrap_or(DEFAULT_SOCKET_MODE) })
}

/// Writes the fields.
pub(super) fn write(access: &ClientAccess, text: &mut String) {
    // Writing to a string cannot fail.
    if let Some(SocketPath { path, mode }) = &access.socket {
        let _ = writeln!(text, "client_socket = {}", quoted(&path.to_string_lossy()));
        let _ = writeln!(text, "client_socket_mode = \"{mode:04o}\"");
    }
}
