//! What an operator sets of this service, in the configuration file and for `up`.

use node::clap;
use node::config::{PasswordFile, TableReader};

/// The service's fields of the configuration file, and its options of `up`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct SqlOptions {
    /// Who may use the database.
    #[command(flatten)]
    pub password_file: PasswordFile,
}

impl node::ServiceOptions for SqlOptions {
    const FIELDS: &'static [&'static str] = &[PasswordFile::FIELD];
    const EXAMPLE: &'static str = include_str!("options.toml");

    fn read(file: &mut TableReader<'_>) -> Self {
        SqlOptions { password_file: PasswordFile::read(file) }
    }

    fn write(&self, file: &mut String) {
        self.password_file.write(file);
    }

    fn examine(&self) -> Result<(), node::Wrong> {
        self.password_file.examine()
    }
}
