//! The certificate and key of the replica's TLS port: read from two PEM files, and read again while clients are served.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig, version};

use crate::limits;

/// What is wrong with one of the two files, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsProblem {
    /// Whether it is the file of the key.
    pub is_of_key: bool,
    /// The problem; it names the file.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// TLS for clients: the port of the clients speaks nothing else.
///
/// Random numbers are used for TLS alone: they are in no request, no reply and no state.
pub struct ClientTls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// The certificate that new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl ClientTls {
    /// TLS with the certificate (its chain, if there is one, behind it) and the private key in these PEM files.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsProblem> {
        let provider = Arc::new(ring::default_provider());
        let current = Arc::new(Current(RwLock::new(Arc::new(read(certificate, key, &provider)?))));
        let versions = [&version::TLS13, &version::TLS12];
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions);
        let builder = builder.map_err(|error| TlsProblem {
            is_of_key: false,
            what: format!("this build has no ciphers for TLS: {error}"),
            remedy: "build the program again".to_owned(),
        })?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        // Connections to a cache are long: nothing is kept for a client that comes back, and a new certificate holds
        // for every later handshake.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(ClientTls { certificate, key, current, config: Arc::new(config) })
    }

    /// Reads both files again. Later handshakes use what they have now; open connections go on as they are.
    ///
    /// # Errors
    /// What is wrong with which of them: then the certificate from before stays.
    pub fn reload(&self) -> Result<(), TlsProblem> {
        let read = read(&self.certificate, &self.key, self.config.crypto_provider())?;
        *self.current.0.write() = Arc::new(read);
        Ok(())
    }

    /// The file of the certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The file of the private key.
    pub fn key(&self) -> &Path {
        &self.key
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }
}

/// Logs and panics print settings; the key must not be in them.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({}, {})", self.certificate.display(), self.key.display())
    }
}

/// By the names of the files.
impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        (&self.certificate, &self.key) == (&other.certificate, &other.key)
    }
}

impl Eq for ClientTls {}

fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsProblem> {
    let chain = read_chain(certificate)?;
    let of_key = |what: String, remedy: &str| {
        Err(TlsProblem {
            is_of_key: true,
            what: format!("{} {what}", key.display()),
            remedy: remedy.to_owned(),
        })
    };
    let name = certificate.display();
    let give = format!("give the private key of {name}, in PEM");
    let text = match read_file(key, true) {
        Ok(text) => text,
        Err((what, remedy)) => return of_key(what, &remedy),
    };
    let found = match PrivateKeyDer::from_pem_slice(&text) {
        Ok(found) => found,
        Err(pem::Error::NoItemsFound) if text.windows(9).any(|word| word == b"ENCRYPTED") => {
            let remedy = "write it without a pass phrase, mode 0600: openssl pkey -in FILE -out NEW";
            return of_key("is encrypted, and a server has nobody to ask".to_owned(), remedy);
        }
        Err(pem::Error::NoItemsFound) => return of_key("holds no private key in PEM".to_owned(), &give),
        Err(error) => return of_key(format!("is not PEM: {error}"), &give),
    };
    let signing = match provider.key_provider.load_private_key(found) {
        Ok(signing) => signing,
        Err(error) => {
            let remedy = "use an ECDSA key (P-256 or P-384), Ed25519, or RSA of 2048 bits or more";
            return of_key(format!("holds a key that cannot be used: {error}"), remedy);
        }
    };
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            let what = format!("is not the key of {name}: that is another one's certificate");
            of_key(what, "give the two files that were made together, the server's own certificate first")
        }
        Err(error) => Err(TlsProblem {
            is_of_key: false,
            what: format!("{name} holds no certificate of a server: {error}"),
            remedy: "give the server's certificate, in PEM".to_owned(),
        }),
    }
}

fn read_chain(certificate: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let name = certificate.display();
    let problem = |what: String, remedy: String| TlsProblem { is_of_key: false, what, remedy };
    let give =
        || "give the server's certificate in PEM, with those that lead to its authority behind it".to_owned();
    let text =
        read_file(certificate, false).map_err(|(what, remedy)| problem(format!("{name} {what}"), remedy))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| problem(format!("{name} is not PEM: {error}"), give()))?;
    if chain.is_empty() {
        return Err(problem(format!("{name} holds no certificate in PEM"), give()));
    }
    Ok(chain)
}

/// A short file. One of a secret may not be readable by everybody.
fn read_file(path: &Path, is_secret: bool) -> Result<Vec<u8>, (String, String)> {
    let unreadable = |error: std::io::Error| {
        (format!("cannot be read: {error}"), "give a file that this user can read".to_owned())
    };
    let file = File::open(path).map_err(unreadable)?;
    // The metadata of the open file: its name may refer to another file a moment later.
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(("is no file".to_owned(), "give the path of a file".to_owned()));
    }
    if is_secret && found.mode() & 0o007 != 0 {
        let what = format!("can be read or changed by every user (mode {:04o})", found.mode() & 0o7777);
        return Err((what, format!("chmod o= {}; if others have read it, make a new key", path.display())));
    }
    let mut text = Vec::new();
    file.take(limits::PEM_FILE + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > limits::PEM_FILE {
        return Err((format!("is longer than {} bytes", limits::PEM_FILE), "give the right file".to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tls_tests::Made;
    use super::*;

    fn refusal(certificate: &Path, key: &Path) -> TlsProblem {
        ClientTls::load(certificate, key).expect_err("it is refused")
    }

    #[test]
    fn each_problem_names_its_file_and_what_is_wrong_with_it() {
        let (ours, other) = (Made::new(), Made::new());
        assert!(ClientTls::load(&ours.certificate, &ours.key).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let text = std::fs::read_to_string(&ours.key).unwrap();
        let cut = text.replace("-----END", "-----");
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (certificate, key, is_of_key, why) in [
            (ours.certificate.clone(), other.key.clone(), true, "is not the key of"),
            (
                ours.certificate.clone(),
                ours.certificate.clone(),
                true,
                "can be read or changed by every user",
            ),
            (ours.certificate.clone(), file("empty", ""), true, "holds no private key"),
            (ours.certificate.clone(), file("cut", &cut), true, "is not PEM"),
            (ours.certificate.clone(), file("encrypted", encrypted), true, "is encrypted"),
            (ours.certificate.clone(), folder.path().join("none"), true, "cannot be read"),
            (ours.key.clone(), ours.key.clone(), false, "holds no certificate in PEM"),
            (file("garbled", garbled), ours.key.clone(), false, "holds no certificate of a server"),
            (file("long", &"x".repeat(1 << 20)), ours.key.clone(), false, "is longer than"),
            (folder.path().join("none"), ours.key.clone(), false, "cannot be read"),
            (folder.path().to_owned(), ours.key.clone(), false, "is no file"),
        ] {
            let problem = refusal(&certificate, &key);
            let blamed = if is_of_key { &key } else { &certificate };
            assert!(problem.what.contains(why), "{why}: {problem}");
            assert_eq!(problem.is_of_key, is_of_key, "{problem}");
            assert!(problem.what.contains(blamed.to_str().unwrap()), "{problem}");
        }
    }
}
