//! The field `password_file` of services whose clients log in.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crosscheck::Passwords;

use super::{TableReader, quoted};
use crate::Wrong;

/// The file with the names and passwords of clients, or none: then everybody who reaches the port may use the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct PasswordFile {
    /// Clients must log in with a line NAME:PASSWORD of this file
    #[arg(id = "password_file", long = "password-file", value_name = "FILE", value_parser = absolute)]
    pub path: Option<PathBuf>,
}

impl PasswordFile {
    /// The field's name.
    pub const FIELD: &'static str = "password_file";

    /// Reads the field.
    pub fn read(file: &mut TableReader<'_>) -> Self {
        let path = file.parsed(Self::FIELD, "give the path of a file, or nothing", |text| {
            Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
        });
        PasswordFile { path: path.unwrap_or_default() }
    }

    /// Appends the line that is read.
    pub fn write(&self, file: &mut String) {
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        // Writing to a string cannot fail.
        let _ = writeln!(file, "{} = {}", Self::FIELD, quoted(&path.to_string_lossy()));
    }

    /// Who may use the service.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn open(&self) -> Result<Option<Passwords>, String> {
        self.opened().map_err(|what| format!("{}: {what}", Self::FIELD))
    }

    /// Whether the file can be used.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn examine(&self) -> Result<(), Wrong> {
        let remedy = "give a file that this user can read, with lines NAME:PASSWORD".to_owned();
        let wrong = |what| Wrong { field: Self::FIELD, flag: "--password-file", what, remedy };
        self.opened().map(drop).map_err(wrong)
    }

    fn opened(&self) -> Result<Option<Passwords>, String> {
        self.path.as_deref().map(Passwords::open).transpose().map_err(|error| error.to_string())
    }
}

/// The replicas that `up` starts may have another working directory.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| error.to_string())
}
