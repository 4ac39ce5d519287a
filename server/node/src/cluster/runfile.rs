//! The small file by which `status`, `inject` and the others find a cluster that `up` started, named by its
//! first client port.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::program;

/// One running cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Process that supervises the replicas.
    pub supervisor: u32,
    /// When it started, in the kernel's ticks: another process that received the same id later has another start.
    pub started: u64,
    /// The protections that are on, in the paper's letters.
    pub mode: String,
    /// The replicas; index = number - 1.
    pub replicas: Vec<ReplicaAddresses>,
}

/// The addresses of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaAddresses {
    /// From 1.
    pub number: u8,
    /// Where clients connect.
    pub clients: SocketAddr,
    /// Where the other replicas connect.
    pub peers: SocketAddr,
    /// The socket file that the command line connects to.
    pub admin: PathBuf,
    /// Whether it is a witness: then no client can connect.
    #[serde(default)]
    pub witness: bool,
}

impl RunFile {
    /// The port that names the cluster: the first replica's for clients.
    pub fn port(&self) -> u16 {
        self.replicas.first().map_or(0, |place| place.clients.port())
    }

    /// The cluster that this process supervises.
    pub fn of_this_process(mode: String, replicas: Vec<ReplicaAddresses>) -> Self {
        let supervisor = std::process::id();
        RunFile { supervisor, started: start_of(supervisor).unwrap_or(0), mode, replicas }
    }

    /// Whether its supervisor still runs; a supervisor that was killed leaves its file behind.
    pub fn is_alive(&self) -> bool {
        start_of(self.supervisor) == Some(self.started)
    }

    /// Writes the file; the directory must be from [`directory`].
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = path_of(directory, self.port());
        let draft = path.with_extension("new");
        // Written under another name and renamed, so that no command reads an incomplete file.
        fs::write(&draft, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Reads the cluster of `port`, if there is one.
    ///
    /// # Errors
    /// The file exists but cannot be read, or is not a run file.
    pub fn read(directory: &Path, port: u16) -> anyhow::Result<Option<Self>> {
        let path = path_of(directory, port);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let file = serde_json::from_slice(&bytes);
        file.map(Some).with_context(|| format!("{} is damaged; remove it", path.display()))
    }

    /// Every cluster that is recorded and alive.
    pub fn all_alive(directory: &Path) -> Vec<Self> {
        Self::all(directory).filter(RunFile::is_alive).collect()
    }

    /// Removes the files that killed supervisors left behind.
    pub fn sweep(directory: &Path) {
        for dead in Self::all(directory).filter(|file| !file.is_alive()) {
            Self::remove(directory, dead.port());
        }
    }

    fn all(directory: &Path) -> impl Iterator<Item = Self> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let ports = entries.filter_map(|entry| entry.path().file_stem()?.to_str()?.parse().ok());
        let mut ports: Vec<u16> = ports.collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().filter_map(|port| Self::read(directory, port).ok()?)
    }

    /// Removes the files of this cluster; missing files are no error.
    pub fn remove(directory: &Path, port: u16) {
        let _ = fs::remove_file(path_of(directory, port));
        let _ = fs::remove_dir_all(config_directory(directory, port));
    }
}

/// When a process started, in ticks since the machine booted; none when there is no such process.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses, and may itself contain spaces and parentheses; this is the 22nd.
    let after_command = stat.rsplit_once(')')?.1;
    after_command.split_whitespace().nth(19)?.parse().ok()
}

/// Where this cluster's configuration files are kept while it runs.
pub fn config_directory(directory: &Path, port: u16) -> PathBuf {
    directory.join(port.to_string())
}

fn path_of(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!("{port}.json"))
}

/// This user's directory of run files, made private when it is missing.
///
/// # Errors
/// It cannot be made, or belongs to another user: its files decide which process a command talks to, so it must be the
/// user's own.
pub fn directory() -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|base| !base.is_empty());
    let base = base.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    private(&base.join(format!("{}-{}", program::name(), rustix::process::getuid().as_raw())))
}

fn private(path: &Path) -> anyhow::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("making {} (set XDG_RUNTIME_DIR?)", path.display()));
        }
        _ => {}
    }
    let found =
        fs::symlink_metadata(path).with_context(|| format!("reading the owner of {}", path.display()))?;
    let ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if !ours || found.permissions().mode() & 0o022 != 0 {
        bail!("{} is not this user's private directory; remove it or set XDG_RUNTIME_DIR", path.display());
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::ports::loopback;
    use super::*;

    /// A directory for this test alone, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("crosscheck-test-{name}-{}", std::process::id()));
            Scratch(private(&path).expect("a private directory"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn cluster(port: u16) -> RunFile {
        let place = ReplicaAddresses {
            number: 1,
            clients: loopback(port),
            peers: loopback(port + 1),
            admin: PathBuf::from("admin-1.sock"),
            witness: false,
        };
        RunFile::of_this_process("RDGX".into(), vec![place])
    }

    #[test]
    fn a_cluster_is_found_by_its_port_until_it_is_removed() {
        let scratch = Scratch::new("found");
        let ours = cluster(4000);
        ours.write(&scratch.0).expect("written");
        assert_eq!(RunFile::read(&scratch.0, 4000).expect("read"), Some(ours.clone()));
        assert_eq!(RunFile::all_alive(&scratch.0), [ours]);
        RunFile::remove(&scratch.0, 4000);
        assert_eq!(RunFile::read(&scratch.0, 4000).expect("read"), None);
    }

    #[test]
    fn a_killed_supervisors_file_does_not_count() {
        let scratch = Scratch::new("stale");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        let dead = RunFile { supervisor: child.id(), ..cluster(4000) };
        let reused = RunFile { started: 1, ..cluster(4001) };
        let ours = cluster(4002);
        for file in [&dead, &reused, &ours] {
            file.write(&scratch.0).expect("written");
        }
        assert_eq!(RunFile::all_alive(&scratch.0), [ours]);
        RunFile::sweep(&scratch.0);
        let kept = |port| RunFile::read(&scratch.0, port).expect("read").is_some();
        assert_eq!([kept(4000), kept(4001), kept(4002)], [false, false, true]);
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let scratch = Scratch::new("open");
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(private(&scratch.0).is_err());
    }
}
