//! The interface that the author of a service implements to get all commands of this crate.

use std::fmt::Debug;

use crosscheck::{Behaviors, MakeProtocol, Protocol, Service};

use crate::config::TableReader;

/// A program: a service, the protocol of its clients, and its settings.
pub trait Application: 'static {
    /// The program's name, as an operator types it; messages, help texts and paths contain it.
    const NAME: &'static str;
    /// The text that `--version` prints; `env!("CARGO_PKG_VERSION")` is that of the manifest. Replicas of two versions
    /// serve together, as a [behavior](Service::BEHAVIORS) that both have. Two builds of one version do not: one of
    /// them may compute something else.
    const VERSION: &'static str;
    /// The behaviors that this program can act as: all of its service's. Another value is for tests of an upgrade, as
    /// the program of the release before.
    const BEHAVIORS: Behaviors = <Self::Service as Service>::BEHAVIORS;
    /// A description in one line, for `--help`.
    const ABOUT: &'static str;
    /// Client port of the first replica unless the operator gives another one; the other replicas have the next ones.
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

    /// Builds the service and the constructor of its protocol.
    ///
    /// # Errors
    /// A problem with the options, and its remedy.
    fn build(options: &Self::Options) -> Result<ReplicaParts<Self>, String>;
}

/// The service of a replica, and the constructor of the protocol of each new connection.
pub type ReplicaParts<A> = (<A as Application>::Service, MakeProtocol<<A as Application>::Protocol>);

/// Settings of a service: fields of the configuration file, in addition to those that every replica has. As
/// [`clap::Args`] they are options of `up` too, except fields with `#[arg(skip)]`.
pub trait ServiceOptions: clap::Args + Clone + Debug + Default + PartialEq + Send + Sync + 'static {
    /// Names of the fields in the file.
    const FIELDS: &'static [&'static str] = &[];
    /// Names of further fields, which only builds of the laboratory have.
    const LAB_FIELDS: &'static [&'static str] = &[];
    /// The fields as `serve --example-config` prints them, each below a comment that explains it.
    const EXAMPLE: &'static str = "";

    /// Reads the fields, and reports problems to `file`. A missing field has its default.
    fn read(file: &mut TableReader<'_>) -> Self {
        let _ = file;
        Self::default()
    }

    /// Appends the lines from which [`ServiceOptions::read`] reads this.
    fn write(&self, file: &mut String) {
        let _ = file;
    }

    /// Checks that the settings can be used together.
    ///
    /// # Errors
    /// A contradiction, and its remedy.
    fn check(&self) -> Result<(), Wrong> {
        Ok(())
    }

    /// Checks what the settings need of this machine, such as files, before the replica starts.
    ///
    /// # Errors
    /// What is wrong there, and its remedy.
    fn examine(&self) -> Result<(), Wrong> {
        Ok(())
    }

    /// The memory that the service will use, in MiB, and the field that says so; none: nobody has said. One that is
    /// more than the machine has is reported.
    fn memory_mb(&self) -> Option<(&'static str, u64)> {
        None
    }

    /// Names and values of the settings that affect what is computed or compared: they must be equal on all replicas,
    /// which compare them in their handshake.
    fn equal_on_all_replicas(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Names and values of the settings that the group has once it is founded ([`Service::settings_request`]): those of
    /// the file count at the founding only, and have to be equal on the replicas that found it.
    fn at_founding(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Longest request in bytes that a connection may buffer.
    fn request_bytes(&self) -> usize {
        1 << 20
    }
}

impl ServiceOptions for () {}

/// Settings that contradict each other, or do not fit the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The field to change.
    pub field: &'static str,
    /// The option of `up` that sets it (`--memory`); empty if there is none.
    pub flag: &'static str,
    /// The contradiction, or what is wrong on the machine.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}
