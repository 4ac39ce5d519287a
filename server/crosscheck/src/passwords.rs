//! Who may use a service: names and passwords in a file of stock memcached's form (option `-Y`), a line `NAME:PASSWORD`
//! each.
//!
//! Each replica has its own file, and answers for its own connections: nothing here reaches state or an ordered
//! request. The file is read again when a client logs in and it has changed since.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use subtle::{Choice, ConstantTimeEq};

use crate::limits::{PASSWORD_FILE_BYTES, PASSWORD_LINES};

/// The names and passwords of a file.
#[derive(Debug)]
pub struct Passwords {
    path: PathBuf,
    read: Mutex<PasswordLines>,
}

/// What was read, and the state of the file when it was.
#[derive(Debug)]
struct PasswordLines {
    version: FileVersion,
    pairs: Vec<NameAndPassword>,
    /// Whether the error of a file that can no longer be used was reported.
    reported: bool,
}

/// A name and its password.
type NameAndPassword = (Vec<u8>, Vec<u8>);

/// Changes with the file: its number, its time of change and its length. Only compared.
type FileVersion = (u64, i64, i64, u64);

/// A password file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// It cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// It is too long.
    #[error("{}: more than {PASSWORD_LINES} lines or {PASSWORD_FILE_BYTES} bytes", .0.display())]
    TooLong(PathBuf),
    /// A line has no colon; lines count from 1.
    #[error("{}: line {} is not of the form NAME:PASSWORD", .0.display(), .1)]
    Line(PathBuf, usize),
    /// There is no line.
    #[error("{}: there is no line NAME:PASSWORD in it, so nobody could log in", .0.display())]
    Empty(PathBuf),
}

impl Passwords {
    /// Reads the file.
    ///
    /// # Errors
    /// [`PasswordError`] if it cannot be read or has another form.
    pub fn open(path: &Path) -> Result<Self, PasswordError> {
        let version = version(path).map_err(|error| PasswordError::Unreadable(path.to_owned(), error))?;
        let read = Mutex::new(PasswordLines { version, pairs: read(path)?, reported: false });
        Ok(Passwords { path: path.to_owned(), read })
    }

    /// Whether this is the name and the password of a line. It takes as long for a wrong pair as for a right one of the
    /// same lengths.
    pub fn accepts(&self, name: &[u8], password: &[u8]) -> bool {
        let mut content = self.read.lock();
        self.refresh(&mut content);
        let is_pair = |(one, other): &NameAndPassword| one.ct_eq(name) & other.ct_eq(password);
        bool::from(content.pairs.iter().map(is_pair).fold(Choice::from(0), |found, this| found | this))
    }

    /// What is behind the colon of this name's line, for protocols that send no passwords.
    pub fn password_of(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut content = self.read.lock();
        self.refresh(&mut content);
        content.pairs.iter().find(|(known, _)| known == name).map(|(_, password)| password.clone())
    }

    /// Reads the file again if it has changed. A file that cannot be used any more leaves everything as it was.
    fn refresh(&self, content: &mut PasswordLines) {
        let unreadable = |error| PasswordError::Unreadable(self.path.clone(), error);
        let result = version(&self.path).map_err(unreadable).and_then(|version| {
            if version != content.version {
                (content.pairs, content.version) = (read(&self.path)?, version);
            }
            Ok(())
        });
        match result {
            Ok(()) => content.reported = false,
            Err(error) if !content.reported => {
                content.reported = true;
                crate::message(format_args!(
                    "the changed password file is not used, and the former names and passwords hold: {error}. \
                     Mend the file; it is read again at the next login"
                ));
            }
            Err(_) => {}
        }
    }
}

fn version(path: &Path) -> io::Result<FileVersion> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
}

fn read(path: &Path) -> Result<Vec<NameAndPassword>, PasswordError> {
    let mut bytes = Vec::new();
    let limited = File::open(path).map(|file| file.take(PASSWORD_FILE_BYTES as u64 + 1));
    limited
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| PasswordError::Unreadable(path.to_owned(), error))?;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut pairs = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(PasswordError::Line(path.to_owned(), number + 1));
        };
        pairs.push((line[..colon].to_vec(), line[colon + 1..].to_vec()));
    }
    if bytes.len() > PASSWORD_FILE_BYTES || pairs.len() > PASSWORD_LINES {
        return Err(PasswordError::TooLong(path.to_owned()));
    }
    if pairs.is_empty() { Err(PasswordError::Empty(path.to_owned())) } else { Ok(pairs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("passwords");
        fs::write(&path, content).expect("a file");
        (folder, path)
    }

    #[test]
    fn a_name_needs_its_own_password() {
        let (_folder, path) = with("ann:one\r\nbob:two:three\n\n");
        let passwords = Passwords::open(&path).expect("two lines");
        for (name, password, accepted) in [
            ("ann", "one", true),
            ("bob", "two:three", true),
            ("ann", "two:three", false),
            ("ann", "", false),
            ("", "one", false),
            ("ann", "one\r", false),
        ] {
            assert_eq!(
                passwords.accepts(name.as_bytes(), password.as_bytes()),
                accepted,
                "{name} {password}"
            );
        }
        assert_eq!(passwords.password_of(b"bob").as_deref(), Some(&b"two:three"[..]));
        assert_eq!(passwords.password_of(b"carl"), None);
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let (_folder, path) = with("ann:one\n");
        let passwords = Passwords::open(&path).expect("a line");
        fs::write(&path, "bob:another\n").expect("a file");
        assert!(passwords.accepts(b"bob", b"another") && !passwords.accepts(b"ann", b"one"));
        fs::write(&path, "without a colon\n").expect("a file");
        assert!(passwords.accepts(b"bob", b"another"));
        fs::remove_file(&path).expect("it is there");
        assert!(passwords.accepts(b"bob", b"another"));
        fs::write(&path, "carl:x\n").expect("a file");
        assert!(passwords.accepts(b"carl", b"x"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let reported = |content: &str| {
            let (_folder, path) = with(content);
            Passwords::open(&path).expect_err(content).to_string()
        };
        assert!(reported("ann:one\nbob\n").contains("line 2 is not of the form"));
        assert!(reported("\n\n").contains("nobody could log in"));
        assert!(reported(&"a:b\n".repeat(PASSWORD_LINES + 1)).contains("more than"));
        assert!(reported(&format!("a:{}\n", "b".repeat(PASSWORD_FILE_BYTES))).contains("more than"));
        let missing = Passwords::open(Path::new("/nowhere/passwords")).expect_err("no file").to_string();
        assert!(missing.starts_with("/nowhere/passwords: "), "{missing}");
    }
}
