//! The ways in for clients besides the plain port: their fields in the configuration file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crosscheck::admin::Endpoint;
use crosscheck::{ClientAccess, ClientTls, SocketPath};

use super::quoted;
use super::read::TableReader;

/// Permissions of a socket file unless the file gives others: its own user's.
pub const DEFAULT_SOCKET_MODE: u32 = 0o700;

/// Reads the fields. A socket file of clients may not be that of `admin` commands.
pub(super) fn read(reader: &mut TableReader<'_>, admin: Option<&Endpoint>) -> ClientAccess {
    let (socket, tls) = (read_socket(reader), read_tls(reader));
    if let (Some(Endpoint::Unix(admin)), Some(clients)) = (admin, &socket)
        && *admin == clients.path
    {
        let what = format!("{} is the admin socket", admin.display());
        reader.report(reader.offset("client_socket"), "client_socket", &what, "give each a path of its own");
    }
    ClientAccess { socket, tls }
}

/// TLS, with the files that it names.
fn read_tls(reader: &mut TableReader<'_>) -> Option<Arc<ClientTls>> {
    let (certificate, key) = (reader.text("tls_cert"), reader.text("tls_key"));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) if reader.offset("tls_key").is_none() => {
            let what = "is set, but the file of its key is missing";
            reader.report(reader.offset("tls_cert"), "tls_cert", what, "add `tls_key = \"PATH\"`");
            return None;
        }
        (None, Some(_)) if reader.offset("tls_cert").is_none() => {
            let what = "is set, but the file of the certificate is missing";
            reader.report(reader.offset("tls_key"), "tls_key", what, "add `tls_cert = \"PATH\"`");
            return None;
        }
        _ => return None,
    };
    match ClientTls::load(Path::new(certificate), Path::new(key)) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(problem) => {
            let field = if problem.is_of_key { "tls_key" } else { "tls_cert" };
            reader.report(reader.offset(field), field, &problem.what, &problem.remedy);
            None
        }
    }
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
    if let Some(tls) = &access.tls {
        let _ = writeln!(text, "tls_cert = {}", quoted(&tls.certificate().to_string_lossy()));
        let _ = writeln!(text, "tls_key = {}", quoted(&tls.key().to_string_lossy()));
    }
}

/// A certificate and its key, in files of this directory.
#[cfg(test)]
pub fn made_certificate(directory: &Path) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("changed");
    (certificate, key)
}
