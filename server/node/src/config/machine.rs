//! What a configuration needs of this machine (addresses, directories, memory), found before a replica starts.
//! Otherwise a wrong address would be found only when the replica has joined, again at each start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crosscheck::admin::Endpoint;
use crosscheck::{Address, Durability};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::geteuid;
use toml::de::{DeTable, DeValue};

use super::memory::{self, MemoryBound};
use super::problem::{Problem, Problems, line_of};
use super::{NodeConfig, Unresolved};
use crate::outcome::misuse;
use crate::{ServiceOptions, Wrong};

/// What a user of the command wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExaminedFor {
    /// The replica starts now.
    Start,
    /// `--check`: the replica may run already, and names that do not resolve may do so when it starts.
    Check,
}

/// What was found, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    file: String,
    /// Problems that the operator has to correct, or a host name that does not lead here yet.
    wrong: Vec<Problem>,
    /// Addresses on which another process listens: it may end.
    in_use: Vec<Problem>,
    /// What does not keep the replica from starting.
    warnings: Vec<Problem>,
    /// The address to which this replica's own one resolves now.
    pub own: Option<SocketAddr>,
}

impl Findings {
    /// Compares a configuration, read from this file, with the machine.
    pub fn of<O: ServiceOptions>(path: &Path, config: &NodeConfig<O>, purpose: ExaminedFor) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut examined = Examined::new(path, &text, purpose);
        examined.addresses(config);
        examined.directories(config);
        examined.service(config);
        let mut found = examined.found;
        for list in [&mut found.wrong, &mut found.in_use, &mut found.warnings] {
            list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        }
        found
    }

    /// Only resolves the names of the other replicas, which may take seconds.
    pub fn of_names<O: ServiceOptions>(path: &Path, config: &NodeConfig<O>) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut examined = Examined::new(path, &text, ExaminedFor::Start);
        examined.names(config);
        examined.found
    }

    /// What the operator should know, each as a line.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.warnings.iter().map(|warning| format!("warning: {}", self.shown(vec![warning.clone()])))
    }

    /// Whether the replica can start.
    ///
    /// # Errors
    /// [`Unresolved`] if only names have to lead here. An error of the operator if there is anything else to correct.
    /// Otherwise one that the end of another process mends.
    pub fn verdict(&self) -> anyhow::Result<()> {
        let wrong = self.shown(self.wrong.clone());
        match (wrong.list.is_empty(), self.in_use.is_empty()) {
            (false, _) if wrong.may_pass() => Err(Unresolved(wrong.to_string()).into()),
            (false, _) => Err(misuse(wrong.to_string())),
            (true, false) => Err(anyhow::anyhow!("{}", self.shown(self.in_use.clone()))),
            (true, true) => Ok(()),
        }
    }

    fn shown(&self, list: Vec<Problem>) -> Problems {
        Problems { file: self.file.clone(), list }
    }
}

/// A configuration while it is examined.
struct Examined<'t> {
    text: &'t str,
    purpose: ExaminedFor,
    found: Findings,
}

impl<'t> Examined<'t> {
    fn new(path: &Path, text: &'t str, purpose: ExaminedFor) -> Self {
        let file = path.display().to_string();
        Examined { text, purpose, found: Findings { file, ..Findings::default() } }
    }

    /// The addresses on which this replica will listen; for a check also the names of the others, which may take long.
    fn addresses<O: ServiceOptions>(&mut self, config: &NodeConfig<O>) {
        if let Some(address) = config.replicas.get(usize::from(config.this_replica).wrapping_sub(1)) {
            self.own_address(config.this_replica, address);
        }
        if self.purpose == ExaminedFor::Check {
            self.names(config);
        }
        if !config.settings().is_witness() {
            let place = FieldPlace::of_field(self.text, "listen");
            let remedy = "write 0.0.0.0 and the port for every address of this machine, or one that `ip address` lists";
            self.listens(&place, config.listen, remedy);
        }
        if let Endpoint::Tcp { address, .. } = &config.admin {
            let place = FieldPlace::of_field(self.text, "admin");
            self.listens(&place, *address, "write 127.0.0.1 and the port");
        }
    }

    /// The names of the other replicas.
    fn names<O: ServiceOptions>(&mut self, config: &NodeConfig<O>) {
        for (number, address) in
            (1..).zip(&config.replicas).filter(|(number, _)| *number != config.this_replica)
        {
            if let Err(what) = address.resolve() {
                let remedy = "see the name server, or correct the name; until it resolves, no connection is made to it";
                self.warn(self.of_replica(number, &what, remedy));
            }
        }
    }

    /// The address on which this replica listens for its peers.
    fn own_address(&mut self, number: u8, address: &Address) {
        let place = FieldPlace {
            is_name: matches!(address, Address::Named { .. }),
            ..FieldPlace::of_replica(self.text, number)
        };
        let found = match address.resolve() {
            Ok(found) => found,
            Err(what) => {
                let problem = Problem {
                    may_pass: true,
                    ..self.of_replica(number, &what, "see the name server, or write an IP address")
                };
                match self.purpose {
                    ExaminedFor::Start => self.found.wrong.push(problem),
                    ExaminedFor::Check => self.warn(problem),
                }
                return;
            }
        };
        self.found.own = found.first().copied();
        let remedy = "correct it, or this_replica if this is the machine of another one; `ip address` lists what this \
                      machine has";
        if let Some(first) = self.found.own {
            self.listens(&place, first, remedy);
        }
    }

    fn of_replica(&self, number: u8, what: &str, remedy: &str) -> Problem {
        FieldPlace::of_replica(self.text, number).problem(what, remedy)
    }

    fn warn(&mut self, problem: Problem) {
        self.found.warnings.push(problem);
    }

    /// Tries whether this process may listen on an address; `remedy` is for one that is not here.
    fn listens(&mut self, place: &FieldPlace, address: SocketAddr, remedy: &str) {
        let Err(error) = try_to_bind(address) else { return };
        match error {
            Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT => {
                let leads = if place.is_name {
                    format!("the name leads to {address} now, which")
                } else {
                    address.to_string()
                };
                let what = format!("{leads} is no address of this machine");
                // A name may be given to this machine later.
                self.found.wrong.push(Problem { may_pass: place.is_name, ..place.problem(&what, remedy) });
            }
            Errno::ACCESS | Errno::PERM => {
                let what = format!("this user may not listen on {address}");
                let remedy =
                    "use a port from 1024 on, or give the process the capability CAP_NET_BIND_SERVICE";
                self.found.wrong.push(place.problem(&what, remedy));
            }
            Errno::ADDRINUSE => {
                let problem = place.problem(
                    &format!("another process listens on {address}"),
                    "if that is this replica, it runs already; otherwise stop that process (`ss -ltnp` names it), or \
                     use another port",
                );
                match self.purpose {
                    ExaminedFor::Start => self.found.in_use.push(problem),
                    ExaminedFor::Check => self.warn(problem),
                }
            }
            Errno::INVAL => {
                let what = format!("the system cannot listen on {address} ({error})");
                self.found.wrong.push(place.problem(&what, remedy));
            }
            // No more files, for example: that is no property of the address.
            _ => {}
        }
    }

    fn directories<O: ServiceOptions>(&mut self, config: &NodeConfig<O>) {
        if let Durability::Disk(directory) = &config.durability {
            let found = in_parent_that_is_there(directory).and_then(|()| readable(directory));
            self.refuse("data_dir", found);
        }
        if let Endpoint::Unix(path) = &config.admin {
            self.refuse("admin", no_other_file(path).and_then(|()| of_this_user(parent(path))));
        }
        if let Some(socket) = config.access.socket.as_ref().filter(|_| !config.settings().is_witness()) {
            let directory = parent(&socket.path);
            let there = match directory.is_dir() {
                true => writable(directory, directory),
                false => Err((
                    format!("{} is no directory that is there", directory.display()),
                    "make it, or choose another path".to_owned(),
                )),
            };
            self.refuse("client_socket", no_other_file(&socket.path).and(there));
        }
    }

    fn service<O: ServiceOptions>(&mut self, config: &NodeConfig<O>) {
        if let Err(Wrong { field, what, remedy, .. }) = config.service.examine() {
            self.refuse(field, Err((what, remedy)));
        }
        let Some(bound) = memory::bound() else { return };
        let buffers = ("buffer_limit_mb", config.buffer_limit_mb);
        for (field, asked) in config.service.memory_mb().into_iter().chain([buffers]) {
            if let Some((what, remedy)) = too_much(asked, &bound) {
                self.warn(FieldPlace::of_field(self.text, field).problem(&what, &remedy));
            }
        }
    }

    fn refuse(&mut self, field: &str, found: Result<(), (String, String)>) {
        if let Err((what, remedy)) = found {
            self.found.wrong.push(FieldPlace::of_field(self.text, field).problem(&what, &remedy));
        }
    }
}

/// Where a value is in the file.
#[derive(Clone, Debug)]
struct FieldPlace {
    field: String,
    line: Option<usize>,
    /// Whether it is a host name and a port.
    is_name: bool,
}

impl FieldPlace {
    /// A field of the top level.
    fn of_field(text: &str, field: &str) -> Self {
        let table = DeTable::parse(text).ok();
        let value = table.as_ref().and_then(|table| table.get_ref().get(field));
        let is_name = value.is_some_and(|value| match value.get_ref() {
            DeValue::String(written) => matches!(written.parse(), Ok(Address::Named { .. })),
            _ => false,
        });
        let line = value.map(|value| line_of(text, value.span().start));
        FieldPlace { field: field.to_owned(), line, is_name }
    }

    /// The address of the replica with this number.
    fn of_replica(text: &str, number: u8) -> Self {
        let found = DeTable::parse(text).ok().and_then(|table| {
            let DeValue::Array(sections) = table.get_ref().get("replica")?.get_ref() else { return None };
            let address = |section: &DeValue<'_>| {
                let DeValue::Table(section) = section else { return None };
                let DeValue::Integer(found) = section.get("number")?.get_ref() else { return None };
                let is_it = u8::from_str_radix(found.as_str(), found.radix()) == Ok(number);
                is_it.then_some(line_of(text, section.get("address")?.span().start))
            };
            sections.iter().zip(1..).find_map(|(section, index)| Some((index, address(section.get_ref())?)))
        });
        let (index, line) = found.unzip();
        let index: u8 = index.unwrap_or(number);
        FieldPlace { field: format!("replica[{index}].address"), line, is_name: false }
    }

    fn problem(&self, what: &str, remedy: &str) -> Problem {
        let (what, remedy) = (what.to_owned(), remedy.to_owned());
        Problem { line: self.line, field: self.field.clone(), what, remedy, may_pass: false }
    }
}

/// Binds a socket as the replica will, but does not listen: no client and no peer can connect meanwhile.
fn try_to_bind(address: SocketAddr) -> Result<(), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A socket may be there: the start replaces that of a process that was killed.
fn no_other_file(path: &Path) -> Result<(), (String, String)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err((
            format!("{} is there and is no socket", path.display()),
            "move it away, or choose another path".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Whether a directory is there, or can be made in the nearest one above it that is.
fn in_parent_that_is_there(directory: &Path) -> Result<(), (String, String)> {
    for above in directory.ancestors() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match fs::metadata(above) {
            Ok(found) if found.is_dir() => return writable(directory, above),
            Ok(_) => {
                let what = format!("{} is no directory", above.display());
                return Err((what, "use another directory, or move that file away".to_owned()));
            }
            // A file is above it, which is found next.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(refused(directory, &error)),
        }
    }
    Ok(())
}

/// Makes a file in the directory `there`, which is `directory` or the one in which that will be made. Only an attempt
/// tells: permissions say nothing about file systems that are read-only, or in which nothing can be made.
fn writable(directory: &Path, there: &Path) -> Result<(), (String, String)> {
    let probe = there.join(format!(".check-{}", std::process::id()));
    let made: io::Result<File> = OpenOptions::new().write(true).create_new(true).open(&probe);
    match made {
        Ok(_) => {
            let _ = fs::remove_file(&probe);
            Ok(())
        }
        // Another thread of this process checks the same directory.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // A disk without room is one that the log tells of: it may have room for that in files it has already.
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Ok(()),
        Err(error) => Err(refused(directory, &error)),
    }
}

/// Whether this user can list a directory, if it is there.
fn readable(directory: &Path) -> Result<(), (String, String)> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(refused(directory, &error)),
        _ => Ok(()),
    }
}

/// The system refuses to make or use a directory.
fn refused(directory: &Path, error: &io::Error) -> (String, String) {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => {
            "let the user of this process own it, read it and write it, or use another one"
        }
        ErrorKind::ReadOnlyFilesystem => "mount it writable, or use another directory",
        _ => "use a directory that is there, or can be made",
    };
    (format!("nothing can be written to {} ({error})", directory.display()), remedy.to_owned())
}

/// The directory of the admin socket: a user who may write to it could put another socket in place of this replica's.
/// The start makes it if it is missing, but none above it.
fn of_this_user(directory: &Path) -> Result<(), (String, String)> {
    let name = directory.display();
    let remedy = "give the admin socket a directory of its own that only this user may write to (mode 0700)"
        .to_owned();
    let found = match fs::metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above: PathBuf = parent(directory).to_owned();
            return match above.is_dir() {
                true => writable(directory, &above),
                false => Err((format!("{} is no directory that is there", above.display()), remedy)),
            };
        }
        Err(error) => return Err(refused(directory, &error)),
    };
    if !found.is_dir() {
        return Err((format!("{name} is no directory"), remedy));
    }
    let is_ours = found.uid() == geteuid().as_raw() || found.uid() == 0;
    if !is_ours || found.mode() & 0o022 != 0 {
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        return Err((
            format!("{name}, for the admin socket, is open to others (mode {mode:04o}, owner {owner})"),
            remedy,
        ));
    }
    writable(directory, directory)
}

/// What is wrong with so much memory for the service, if it is more than there is.
pub fn more_than_there_is(asked_mib: u64) -> Option<String> {
    too_much(asked_mib, &memory::bound()?).map(|(what, remedy)| format!("{what}; {remedy}"))
}

/// Whether more memory is asked for than there is.
fn too_much(asked_mib: u64, bound: &MemoryBound) -> Option<(String, String)> {
    let MemoryBound { mib, of } = bound;
    let what = format!("{asked_mib} MiB are more than the {mib} MiB of {of}");
    let remedy = format!(
        "write less than {mib}, because other memory is needed besides, or give this process more memory; the kernel \
         would end it when it has used what there is"
    );
    (asked_mib > *mib).then_some((what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "listen = \"cache.example:1\"\n[[replica]]\nnumber = 2\naddress = \"10.0.0.2:1\"\n\
        [[replica]]\nnumber = 1\naddress = \"10.0.0.1:1\"\n";
    /// An address of no machine (RFC 5737).
    const ELSEWHERE: ([u8; 4], u16) = ([192, 0, 2, 1], 1);

    fn found(place: &FieldPlace, purpose: ExaminedFor, address: SocketAddr) -> Findings {
        let mut examined = Examined::new(Path::new("node.toml"), TEXT, purpose);
        examined.listens(place, address, "write another one");
        examined.found
    }

    #[test]
    fn a_place_is_that_of_the_value_whatever_the_order_of_the_sections() {
        let of = |place: FieldPlace| (place.field, place.line, place.is_name);
        assert_eq!(of(FieldPlace::of_field(TEXT, "listen")), ("listen".to_owned(), Some(1), true));
        assert_eq!(of(FieldPlace::of_field(TEXT, "mode")), ("mode".to_owned(), None, false));
        assert_eq!(of(FieldPlace::of_replica(TEXT, 1)), ("replica[2].address".to_owned(), Some(7), false));
        assert_eq!(of(FieldPlace::of_replica("", 3)), ("replica[3].address".to_owned(), None, false));
    }

    #[test]
    fn a_name_that_leads_elsewhere_may_lead_here_later_and_an_address_may_not() {
        let name = FieldPlace::of_field(TEXT, "listen");
        let error =
            found(&name, ExaminedFor::Start, ELSEWHERE.into()).verdict().expect_err("it leads elsewhere");
        assert!(error.is::<Unresolved>(), "{error}");
        let shown =
            "node.toml:1: listen: the name leads to 192.0.2.1:1 now, which is no address of this machine";
        assert!(error.to_string().starts_with(shown), "{error}");
        let address = FieldPlace { is_name: false, ..name };
        let error =
            found(&address, ExaminedFor::Start, ELSEWHERE.into()).verdict().expect_err("it is not here");
        assert!(error.is::<crate::outcome::Misuse>(), "{error}");
    }

    #[test]
    fn an_address_in_use_is_no_mistake() {
        let held = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let place = FieldPlace::of_replica(TEXT, 2);
        let address = held.local_addr().expect("bound");
        let error = found(&place, ExaminedFor::Start, address).verdict().expect_err("in use");
        assert!(!error.is::<Unresolved>() && !error.is::<crate::outcome::Misuse>(), "{error}");
        let checked = found(&place, ExaminedFor::Check, address);
        assert!(checked.verdict().is_ok() && checked.warnings().count() == 1, "{checked:?}");
    }

    #[test]
    fn more_memory_than_there_is_is_too_much() {
        let bound = MemoryBound { mib: 512, of: "this machine".to_owned() };
        assert_eq!(too_much(512, &bound), None);
        let (what, remedy) = too_much(513, &bound).expect("too much");
        assert_eq!(what, "513 MiB are more than the 512 MiB of this machine");
        assert!(remedy.starts_with("write less than 512"), "{remedy}");
    }
}
