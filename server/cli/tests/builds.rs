//! A replica that runs another build of the program is kept out of the group, although the version is the same.

use crate::support::cluster::{Cluster, PATIENCE, Wish};
use memcached_client::{Client, KeyCommand};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A replica that is not started by `up`.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program with another text in one of its replies, at a path of its own.
fn another_build(folder: &Path) -> PathBuf {
    let mut bytes = fs::read(env!("CARGO_BIN_EXE_crosscheck")).expect("the program");
    let text = b"TOUCHED\r\n";
    let places: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty(), "the reply is in the program");
    places.into_iter().for_each(|at| bytes[at + 6] = b'd');
    let path = folder.join("crosscheck-other");
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

/// The configuration with which a replica was started.
fn configuration_of(pid: u32) -> String {
    let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
    let mut words = arguments.split('\0').skip_while(|word| *word != "--config");
    words.nth(1).expect("`up` names it").to_owned()
}

#[test]
fn a_replica_with_one_changed_reply_is_refused_by_name_and_accused_of_nothing() {
    let cluster = Cluster::up(&Wish { workers: 1, restart_after: Some(60_000), ..Wish::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let (program, log) = (another_build(folder.path()), folder.path().join("log"));
    let configuration = configuration_of(cluster.pid(2));
    cluster.signal(2, Signal::KILL);
    let mut command = Command::new(program);
    command.args(["serve", "--config", &configuration]).stdout(Stdio::null());
    let started = command.stderr(File::create(&log).expect("a log")).spawn();
    let _other = Other(started.expect("it starts"));
    // Both ends say so, and what to do.
    let said = || fs::read_to_string(&log).unwrap_or_default();
    cluster.wait_until("the other build is refused at both ends", |cluster| {
        let here = [0, 1].iter().flat_map(|replica| cluster.lines(*replica)).collect::<Vec<_>>().concat();
        here.contains("replica 3 is refused: build is ")
            && [here, said()].iter().all(|said| said.contains("run the same build on all replicas"))
    });
    assert!(said().contains("build is "), "{}", said());
    // The two others serve, also what it would answer otherwise.
    let mut client = Client::connect(cluster.clients()[0], PATIENCE).expect("it accepts clients");
    client.set("kept", 0, b"x").expect("stored");
    client.queue("kept", KeyCommand::Touch { expiry: 0 });
    client.flush().expect("sent");
    client.take(|reply| Ok(reply.is("TOUCHED").then_some(()))).expect("the reply of the others");
    for replica in [0, 1] {
        assert_eq!(cluster.evidence(replica, 0), Vec::<serde_json::Value>::new());
    }
    cluster.finish();
}
