//! What the author of a service provides so that it gets all commands of this crate.

use std::fmt::Debug;

use crosscheck::{MakeProtocol, Protocol, Service};

use crate::config::TableReader;

/// A program: a service, the protocol of its clients, and its settings.
pub trait Application: 'static {
    /// The program's name, as an operator types it; messages, help texts and paths have it.
    const NAME: &'static str;
    /// What `--version` says.
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    /// What it is, in one line, for `--help`.
    const ABOUT: &'static str;
    /// Client port of the first replica when nothing else is said; the others have the next ones.
    const PORT: u16;
    /// The names of objects that [`Service::find`] knows, one per line and each with its meaning, for
    /// `inject --help`.
    const OBJECTS: &'static str;
    /// One such name, for examples.
    const OBJECT: &'static str;

    /// The service.
    type Service: Service;
    /// The protocol that its clients speak.
    type Protocol: Protocol;
    /// Its settings in the configuration file; `()` if it has none.
    type Options: ServiceOptions;

    /// Builds what a replica runs.
    ///
    /// # Errors
    /// What is wrong with the options, and what to do about it.
    fn build(options: &Self::Options) -> Result<ReplicaParts<Self>, String>;
}

/// What a replica runs: the service, and what makes the protocol of each new connection.
pub type ReplicaParts<A> = (<A as Application>::Service, MakeProtocol<<A as Application>::Protocol>);

/// Settings of a service: fields of the configuration file, beside those that every replica has. As
/// [`clap::Args`] they are options of `up` too; a field with `#[arg(skip)]` is none.
pub trait ServiceOptions: clap::Args + Clone + Debug + Default + PartialEq + Send + Sync + 'static {
    /// Names of the fields in the file.
    const FIELDS: &'static [&'static str] = &[];
    /// The fields as `serve --example-config` prints them, each below a comment that explains it.
    const EXAMPLE: &'static str = "";

    /// Reads the fields; what is wrong with one is reported to `file`. A field that is not there has its default.
    fn read(file: &mut TableReader<'_>) -> Self {
        let _ = file;
        Self::default()
    }

    /// Appends the lines from which [`ServiceOptions::read`] reads this.
    fn write(&self, file: &mut String) {
        let _ = file;
    }

    /// Whether the service can work with these, taken together.
    ///
    /// # Errors
    /// What cannot be, and the remedy.
    fn check(&self) -> Result<(), Wrong> {
        Ok(())
    }

    /// Names and values of those that decide what is computed or compared: they must be equal on all replicas,
    /// which tell each other in their handshake.
    fn equal_on_all_replicas(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Longest request in bytes that a connection may buffer.
    fn request_bytes(&self) -> usize {
        1 << 20
    }
}

impl ServiceOptions for () {}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The field to change.
    pub field: &'static str,
    /// The option of `up` that sets it (`--memory`); empty if there is none.
    pub flag: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}
