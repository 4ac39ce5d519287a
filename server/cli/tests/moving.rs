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
pub(crate) struct Machine {
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

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for its end; returns its exit code.
    pub(crate) fn wait_for_end(&mut self, cluster: &Cluster) -> Option<i32> {
        let mut ended = None;
        cluster.wait_until("it ends", |_| {
            ended = self.process.try_wait().expect("its end");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    pub(crate) fn kill(&mut self) {
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
pub(crate) struct Group {
    pub(crate) cluster: Cluster,
    pub(crate) directory: tempfile::TempDir,
    /// The configurations that `up` has written.
    pub(crate) configurations: Vec<String>,
}

impl Group {
    pub(crate) fn up(wish: &Wish) -> Group {
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
    pub(crate) fn address(&self, replica: usize) -> String {
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

    pub(crate) fn start(&self, configuration: &str, name: &str) -> Machine {
        Machine::start(configuration, name, self.directory.path())
    }

    /// Ends the process of a replica that `up` has started.
    pub(crate) fn kill(&self, replica: usize) {
        self.cluster.signal(replica, Signal::KILL);
        let pid = self.cluster.pid(replica);
        self.cluster.wait_until("it has ended", |_| !fs::exists(format!("/proc/{pid}")).unwrap_or(true));
    }

    fn replace(&self, replica: usize, address: &str, asked: usize) -> (i32, String) {
        let number = (replica + 1).to_string();
        let admin = self.cluster.admin_of(asked);
        self.cluster.command(&["group", "replace", &number, "--address", address, "--admin", &admin])
    }

    /// The machine that was replaced comes back, with what it had: it ends, and says why.
    fn old_machine_is_refused(&self, replica: usize, address: &str) {
        let own = |line: &str| match line {
            line if line.starts_with("listen =") => format!("listen = \"{}\"\n", another_machine()),
            line if line.starts_with("admin =") => {
                format!("admin = \"{}\"\n", self.directory.path().join("old.sock").display())
            }
            line => format!("{line}\n"),
        };
        let configuration: String = self.configurations[replica].lines().map(own).collect();
        let mut old = self.start(&configuration, "old");
        let code = old.wait_for_end(&self.cluster);
        let said = old.said();
        let reported =
            format!("the group has replaced this machine: its replica {} is at {address}", replica + 1);
        assert!(code == Some(2) && said.contains(&reported), "{code:?} {said}");
    }

    /// The other replicas are started again, one after the other, with the files from before; with logs on disk then
    /// all at once, with the machine that has moved. Returns what runs now.
    fn restart_with_old_files(&self, replica: usize, address: &str, machine: Machine) -> Vec<Machine> {
        let others: Vec<usize> = (0..self.configurations.len()).filter(|other| *other != replica).collect();
        let start = |other: usize| self.start(&self.configurations[other], &format!("other-{other}"));
        let mut machines = vec![machine];
        for &other in &others {
            self.kill(other);
            machines.push(start(other));
            self.wait_whole(&machines.iter().collect::<Vec<_>>());
            let said = machines.last().expect("it was started").said();
            assert!(
                said.contains(&format!("is at {address}, as the group has agreed, and not at")),
                "{said}"
            );
        }
        if self.configurations[0].contains("durability = \"disk\"") {
            machines.clear();
            machines.push(self.start(&self.moved(replica, address), "new"));
            // One of the others is away: the group has the other one and the one that has moved.
            machines.push(start(others[1]));
            let serves = |other: usize| self.cluster.status(other).is_some_and(|of| of["leader"].is_number());
            self.cluster.wait_until("two of them find each other", |_| serves(others[1]) && serves(replica));
            machines.push(start(others[0]));
            self.wait_whole(&machines.iter().collect::<Vec<_>>());
        }
        machines
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
pub(crate) fn another_machine() -> String {
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
    group.old_machine_is_refused(replica, &address);
    running.must_go_on(300, "after the old machine came back");
    let machines = group.restart_with_old_files(replica, &address, machine);
    running.must_go_on(1_000, "after others were restarted");
    end_right(group, running);
    drop(machines);
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

/// With a witness, which orders nothing and has no state that says where replicas are.
#[test]
fn a_machine_is_replaced_beside_a_witness() {
    let group = Group::up(&Wish { mode: "R0GV", replicas: 2, workers: 1, witness: true, ..Wish::default() });
    let running = load(&group.cluster).start();
    running.must_go_on(1_000, "before a machine is lost");
    group.kill(0);
    let address = another_machine();
    let machine = group.start(&group.moved(0, &address), "new");
    let (code, reported) = group.replace(0, &address, 1);
    assert!(code == 0, "{code} {reported}\n{}", machine.said());
    group.wait_whole(&[&machine]);
    running.must_go_on(1_000, "with the new machine");
    end_right(group, running);
    drop(machine);
}

/// A backup has the addresses of the group that it is of; the group that begins with it has its own.
#[test]
fn a_group_that_begins_with_a_backup_has_the_addresses_of_its_configurations() {
    let group = Group::up(&Wish::default());
    group.kill(1);
    let address = another_machine();
    let machine = group.start(&group.moved(1, &address), "new");
    let (code, reported) = group.replace(1, &address, 2);
    assert!(code == 0, "{code} {reported}\n{}", machine.said());
    group.wait_whole(&[&machine]);
    let backup = group.directory.path().join("moved.backup");
    let (code, reported) = group.cluster.command(&["backup", "--to", backup.to_str().expect("a path")]);
    assert_eq!(code, 0, "{reported}");
    let Group { cluster, directory: _directory, .. } = group;
    cluster.finish();
    drop(machine);
    for disk in [false, true] {
        let cluster = Cluster::up(&Wish { disk, restore: Some(backup.clone()), ..Wish::default() });
        let is_own = |moved: &Value| moved["replica"] == 2 && moved["address"] == moved["configured"];
        cluster.wait_until("its own addresses count", |cluster| {
            (0..3).all(|replica| cluster.status(replica).is_some_and(|status| is_own(&status["moved"][0])))
        });
        (0..3).for_each(|victim| crate::failover::kill_while(&cluster, victim, || ()));
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// What an operator may get wrong: nothing is changed, and the answer says what to do.
#[test]
fn wrong_uses_are_refused_with_a_remedy() {
    let group = Group::up(&Wish { workers: 1, ..Wish::default() });
    let admin = |replica| group.cluster.admin_of(replica);
    let replace = |number: &str, address: &str, asked: &str| {
        group.cluster.command(&["group", "replace", number, "--address", address, "--admin", asked])
    };
    let (here, elsewhere) = (group.address(1), another_machine());
    for (number, address, code, words) in [
        ("3", elsewhere.as_str(), 1, "replica 3 is connected, at 127.0.0.1:"),
        ("3", elsewhere.as_str(), 1, "end it there (SIGTERM), and repeat the command; nothing was changed"),
        ("3", here.as_str(), 1, "is the address of replica 2; nothing was changed"),
        ("4", elsewhere.as_str(), 1, "there is no replica 4; they are 1 to 3; nothing was changed"),
        ("0", elsewhere.as_str(), 1, "there is no replica 0"),
        ("3", "somewhere", 2, "`somewhere` is no address: `:PORT` is missing"),
        ("3", "10.0.0.300:7", 2, "neither an IP address nor a host name"),
        ("1", elsewhere.as_str(), 2, "no other replica than 1 is among the given ones"),
    ] {
        let (ended, reported) = replace(number, address, &admin(0));
        assert!(ended == code && reported.contains(words), "{number} {address}: {ended} {reported}");
    }
    for replica in 0..3 {
        assert!(group.cluster.status(replica).is_some_and(|status| status["moved"].is_null()));
    }
    group.cluster.finish();
}
