//! A machine is replaced: a replica at another address takes its number, without a restart of the others.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use memcached_client::load::RunningLoad;
use rustix::process::Signal;
use serde_json::Value;

use crate::failover::load;
use crate::support::cluster::{Cluster, Wish};

/// A machine that runs a replica from a configuration of its own, besides what `up` supervises.
struct Machine {
    process: Child,
    log: PathBuf,
}

impl Machine {
    /// Starts `serve` with this configuration.
    fn start(configuration: &str, name: &str, directory: &std::path::Path) -> Machine {
        let (file, log) = (directory.join(format!("{name}.toml")), directory.join(format!("{name}.log")));
        fs::write(&file, configuration).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.args(["serve", "--config"]).arg(&file).stdout(Stdio::null());
        command.stderr(File::options().create(true).append(true).open(&log).expect("a log"));
        Machine { process: command.spawn().expect("it starts"), log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster one of whose replicas moves. `up` does not start again what ends.
struct Group {
    cluster: Cluster,
    directory: tempfile::TempDir,
    /// The configurations that `up` has written.
    configurations: Vec<String>,
}

impl Group {
    fn up(wish: &Wish) -> Group {
        let cluster = Cluster::up(&Wish { restart_after: Some(3_600_000), ..wish.clone() });
        let configuration = |replica| {
            let arguments =
                fs::read_to_string(format!("/proc/{}/cmdline", cluster.pid(replica))).expect("it runs");
            let mut words = arguments.split('\0').skip_while(|word| *word != "--config");
            fs::read_to_string(words.nth(1).expect("`up` names it")).expect("a configuration")
        };
        let configurations = (0..wish.replicas).map(configuration).collect();
        Group { cluster, directory: tempfile::tempdir().expect("a directory"), configurations }
    }

    /// The address of a replica for its peers, as the configurations have it.
    fn address(&self, replica: usize) -> String {
        let text = &self.configurations[0];
        let addresses = text.lines().filter_map(|line| line.strip_prefix("address = "));
        addresses.map(|address| address.trim_matches('"').to_owned()).nth(replica).expect("an address")
    }

    /// The configuration of a replica on a machine with this address, and an empty data directory.
    fn moved(&self, replica: usize, address: &str) -> String {
        let text = self.configurations[replica].replace(&self.address(replica), address);
        let data = self.directory.path().join(format!("data-{}", address.replace(':', "-")));
        let line = |line: &str| match line.starts_with("data_dir") {
            true => format!("data_dir = \"{}\"\n", data.display()),
            false => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    }

    fn start(&self, configuration: &str, name: &str) -> Machine {
        Machine::start(configuration, name, self.directory.path())
    }

    /// Ends the process of a replica that `up` has started.
    fn kill(&self, replica: usize) {
        self.cluster.signal(replica, Signal::KILL);
        let pid = self.cluster.pid(replica);
        self.cluster.wait_until("it has ended", |_| !fs::exists(format!("/proc/{pid}")).unwrap_or(true));
    }

    fn replace(&self, replica: usize, address: &str, asked: usize) -> (i32, String) {
        let number = (replica + 1).to_string();
        let admin = self.cluster.admin_of(asked);
        self.cluster.command(&["group", "replace", &number, "--address", address, "--admin", &admin])
    }

    /// Waits until all replicas serve, and the group tolerates another failure.
    fn wait_whole(&self, machines: &[&Machine]) {
        let said = || machines.iter().map(|machine| machine.said()).collect::<Vec<_>>().join("---\n");
        let is_whole = |status: Value| status["phase"] == "serving" && status["tolerates"] == 1;
        let deadline = std::time::Instant::now() + crate::support::cluster::PATIENCE;
        let count = self.configurations.len();
        while !(0..count).all(|replica| self.cluster.status(replica).is_some_and(is_whole)) {
            assert!(std::time::Instant::now() < deadline, "{}\n{}", self.cluster.seen(), said());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Ends the load: every acknowledged write is there, all replicas have the same state, and none is accused of anything.
fn end_right(group: Group, running: RunningLoad) {
    let report = running.stop_and_audit(group.cluster.clients());
    println!("{report}");
    report.assert_right();
    group.cluster.assert_equal_state();
    for replica in 0..group.configurations.len() {
        assert_eq!(group.cluster.evidence(replica, 0), Vec::<Value>::new(), "at replica {}", replica + 1);
    }
    group.cluster.finish();
}

/// The address of another machine: one on loopback that no other test uses.
fn another_machine() -> String {
    static MACHINES: AtomicU8 = AtomicU8::new(1);
    format!("127.77.{}.{}:12211", std::process::id() % 256, MACHINES.fetch_add(1, Ordering::Relaxed))
}

/// Each number once: the lowest is dialled by all, and the highest dials all.
fn replace_under_load(wish: &Wish, replica: usize, machine_first: bool) {
    let group = Group::up(wish);
    let running = load(&group.cluster).start();
    running.must_go_on(1_000, "before a machine is lost");
    group.kill(replica);
    running.must_go_on(300, "while a replica is away");
    let address = another_machine();
    let asked = (replica + 1) % 3;
    let machine = machine_first.then(|| {
        let machine = group.start(&group.moved(replica, &address), "new");
        group.cluster.wait_until("it says what it waits for", |_| {
            machine
                .said()
                .contains(&format!("`crosscheck group replace {} --address {address}`", replica + 1))
        });
        machine
    });
    let (machine, (code, reported)) = match machine {
        Some(machine) => (machine, group.replace(replica, &address, asked)),
        None => std::thread::scope(|scope| {
            let command = scope.spawn(|| group.replace(replica, &address, asked));
            group.cluster.wait_until("the replica says what it waits for", |cluster| {
                let waits = cluster.status(asked).map(|status| status["replacing"].to_string());
                waits.is_some_and(|waits| waits.contains("start it there"))
            });
            let machine = group.start(&group.moved(replica, &address), "new");
            (machine, command.join().expect("the command ends"))
        }),
    };
    assert!(
        code == 0 && reported.contains(&format!("is at {address} from now on")),
        "{code} {reported}\n{}",
        machine.said()
    );
    group.wait_whole(&[&machine]);
    running.must_go_on(1_000, "with the new machine");
    end_right(group, running);
    drop(machine);
}

#[test]
fn a_machine_is_replaced_under_load() {
    replace_under_load(&Wish::default(), 0, true);
    replace_under_load(&Wish { workers: 1, ..Wish::default() }, 2, false);
}

#[test]
fn a_machine_is_replaced_under_load_with_logs_on_disk() {
    replace_under_load(&Wish { disk: true, ..Wish::default() }, 1, false);
}

#[test]
fn a_machine_is_replaced_under_load_in_verified_mode() {
    replace_under_load(&Wish { mode: "R0GV", ..Wish::default() }, 0, false);
}
