//! Files that hold a secret: read only if no other user can read them, and never overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Largest such file that is read.
const LONGEST: u64 = 4096;

/// Reads a secret.
///
/// # Errors
/// The problem with the file, and the remedy.
pub fn read(path: &Path) -> Result<String, (String, String)> {
    let name = path.display();
    let unreadable = |error: io::Error| {
        (format!("{name} cannot be read: {error}"), "give a file that this user can read".to_owned())
    };
    let file = File::open(path).map_err(unreadable)?;
    // The metadata of the open file: its name may refer to another file a moment later.
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err((format!("{name} is no file"), "give the path of a file".to_owned()));
    }
    if found.mode() & 0o077 != 0 {
        return Err((
            format!("{name} can be read or changed by other users (mode {:04o})", found.mode() & 0o7777),
            format!("chmod 600 {name}; if others have read it, make a new secret"),
        ));
    }
    let mut text = String::new();
    match file.take(LONGEST + 1).read_to_string(&mut text) {
        Ok(count) if count as u64 > LONGEST => {
            Err((format!("{name} is longer than {LONGEST} bytes"), "give the file of the secret".to_owned()))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(unreadable(error)),
    }
}

/// Writes a secret into a new file of mode 0600.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_written_once_and_read_back() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("secret");
        create(&path, "hush\n").expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).expect("read"), "hush\n");
        assert_eq!(create(&path, "other\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read(&path).expect("read"), "hush\n");
    }

    #[test]
    fn a_file_that_others_can_read_or_write_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("secret");
        create(&path, "hush\n").expect("written");
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
            let (what, remedy) = read(&path).unwrap_err();
            assert!(
                what.contains(&format!("mode {mode:04o}")) && remedy.contains("chmod 600"),
                "{what} {remedy}"
            );
            assert!(!what.contains("hush"), "{what}");
        }
    }

    #[test]
    fn what_is_no_short_text_file_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        assert!(read(folder.path()).unwrap_err().0.contains("is no file"));
        assert!(read(&folder.path().join("missing")).unwrap_err().0.contains("cannot be read"));
        let long = folder.path().join("long");
        create(&long, &"x".repeat(LONGEST as usize + 1)).expect("written");
        assert!(read(&long).unwrap_err().0.contains("longer than"));
    }
}
