//! A group is upgraded from the release before to this one, one replica after the other, while clients use it; and
//! back, as long as not all have the new one. Accounts and the office have members that the release before did not
//! have: they come with the first change behind the position at which the group begins to act as the new release.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crosscheck::admin::{ReplicaPhase, Status};
use rustix::process::{Pid, Signal, kill_process};

use crate::group::{Group, PATIENCE, wait_until};
use crate::resp_client::Client;

const RELEASE_2: &str = env!("CARGO_BIN_EXE_bank");
/// Times that replicas are killed while a group has both releases.
const KILLS: usize = 3;

/// The program of release 1, `tests/release_1`.
fn release_1() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let program = Path::new(RELEASE_2).with_file_name("examples").join("bank");
        assert!(
            program.exists(),
            "{}: `cargo test -p bank` builds it, or add `--examples`",
            program.display()
        );
        program.to_str().expect("a name").to_owned()
    });
    &PROGRAM
}

/// A process of a replica that `up` does not supervise.
struct Replica {
    configuration: String,
    log: PathBuf,
    process: Option<Child>,
}

impl Replica {
    /// Ends the process that `up` has started, and takes its place.
    fn of(group: &Group, number: u8) -> Self {
        let pid = *group.up.events.pids(number).last().expect("`up` says whom it starts");
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
        let mut words = arguments.split('\0').skip_while(|word| *word != "--config");
        let configuration = words.nth(1).expect("`up` names it").to_owned();
        kill_process(Pid::from_raw(pid as i32).expect("a process"), Signal::KILL).expect("killed");
        // Until its last thread has ended, it has its addresses.
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let is_running = || fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        wait_until("it has ended", || !is_running() && threads() <= 1);
        let log = group.directory.path().join(format!("log-{number}"));
        Replica { configuration, log, process: None }
    }

    /// Ends its process by `signal`, if there is one, and starts one of `program`.
    fn restart(&mut self, program: &str, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            let _ = kill_process(Pid::from_child(&process), signal);
            process.wait().expect("it ends");
        }
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = Command::new(program);
        command.args(["serve", "--config", &self.configuration]).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("it starts"));
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A client that uses a replica until it is stopped, and connects again when that is gone.
struct Load {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What a client has seen.
#[derive(Debug, Default)]
struct Seen {
    answered: u64,
    /// Sweeps of an empty account that were answered as release 1 does, and as release 2 does.
    swept: u64,
    refused: u64,
    /// How often the account was swept without money, by the last reply: a member that release 1 did not have.
    times: u64,
    /// Requests that may have been executed, and whose replies did not come.
    lost: u64,
}

impl Load {
    /// Uses account `number`, which is empty, and a linked one.
    fn start(address: SocketAddr, number: u32) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let stop = stops.clone();
        let thread = std::thread::spawn(move || {
            let (mut seen, mut client) = (Seen::default(), None);
            while !stop.load(Ordering::Relaxed) {
                let Some(connected) = &mut client else {
                    client = Client::try_connect(address);
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                match connected.try_ask(&format!("SWEEP {number}")).as_deref() {
                    Some(":0") => {
                        assert_eq!(seen.refused, 0, "the group has acted as release 2 before");
                        seen.swept += 1;
                    }
                    Some(text) => {
                        let times = times_of(text, number).expect("release 2 counts");
                        let counted = seen.times + 1..=seen.times + 1 + seen.lost;
                        assert!(counted.contains(&times), "{times} is none of {counted:?}");
                        (seen.times, seen.lost) = (times, 0);
                        seen.refused += 1;
                    }
                    None => {
                        client = None;
                        seen.lost += 1;
                    }
                }
                seen.answered += u64::from(client.is_some());
            }
            seen
        });
        Load { stops, thread }
    }

    fn stop(self) -> Seen {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().expect("no reply was wrong")
    }
}

/// Waits until all replicas serve, and the group tolerates another failure.
fn wait_whole(group: &Group, replicas: &[Replica]) {
    let statuses = || group.up.replicas.iter().filter_map(|replica| replica.status()).collect::<Vec<_>>();
    let is_whole = |status: &Status| status.tolerates == 1 && status.phase == ReplicaPhase::Serving;
    let deadline = Instant::now() + PATIENCE;
    while statuses().len() < 3 || !statuses().iter().all(is_whole) {
        let said = || replicas.iter().map(Replica::said).collect::<Vec<_>>().join("---\n");
        assert!(Instant::now() < deadline, "not whole after {PATIENCE:?}: {:#?}\n{}", statuses(), said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often account `number` was swept without money, by the refusal of release 2.
fn times_of(reply: &str, number: u32) -> Option<u64> {
    let times = reply.strip_prefix(&format!("-ERR account {number} has no money to sweep (asked "))?;
    times.strip_suffix(" times)")?.parse().ok()
}

/// The account that clients under load do not use.
const UNUSED: u32 = ACCOUNTS;
const ACCOUNTS: u32 = 40;
/// The account that has money, for which the office pays interest.
const SAVER: u32 = ACCOUNTS + 1;

fn is_refused(client: &mut Client) -> bool {
    times_of(&client.ask(&format!("SWEEP {UNUSED}")), UNUSED).is_some()
}

/// Opens the accounts, without money and each linked to the next one, and lets the office pay interest.
fn fill(group: &Group) {
    let mut first = Client::connect(group.up.replicas[0].clients.expect("it has clients"));
    for number in 1..=ACCOUNTS {
        assert_eq!(first.ask(&format!("OPEN {number} somebody 1")), "+OK");
        assert_eq!(first.ask(&format!("WITHDRAW {number} 1")), ":0");
    }
    for number in 1..=ACCOUNTS {
        assert_eq!(first.ask(&format!("LINK {number} {}", number % ACCOUNTS + 1)), "+OK");
    }
    assert_eq!(first.ask(&format!("OPEN {SAVER} saver 1000000")), "+OK");
    assert_eq!(first.ask("INTEREST 100 5"), "+OK");
}

/// Waits until the office has paid interest so many times: each time, a request writes it.
fn wait_for_interest(address: SocketAddr, times: usize) {
    let mut client = Client::connect(address);
    let mut balance = || client.ask(&format!("BALANCE {SAVER}"));
    for _ in 0..times {
        let before = balance();
        wait_until("the office has paid interest", || balance() != before);
    }
}

fn upgrade(options: &[&str]) {
    let group = Group::up_of(release_1(), &[options, &["--restart-after", "3600000"]].concat());
    fill(&group);
    let clients: Vec<SocketAddr> = group.up.replicas.iter().filter_map(|replica| replica.clients).collect();
    let load: Vec<Load> =
        (1..).zip(&clients).map(|(number, address)| Load::start(*address, number)).collect();
    // Two have the new release, and one of them goes back to the one before.
    let mut replicas = Vec::new();
    for (number, program) in [(1, RELEASE_2), (2, RELEASE_2), (3, release_1())] {
        let mut replica = Replica::of(&group, number);
        replica.restart(program, Signal::TERM);
        replicas.push(replica);
        wait_whole(&group, &replicas);
    }
    replicas[1].restart(release_1(), Signal::TERM);
    wait_whole(&group, &replicas);
    for kill in 0..KILLS {
        replicas[kill % 3].restart([RELEASE_2, release_1(), release_1()][kill % 3], Signal::KILL);
        wait_whole(&group, &replicas);
    }
    let mut client = Client::connect(clients[1]);
    assert!(!is_refused(&mut client), "the group acts as the release that all have");
    // A replica of release 2 has this in a member that release 1 has, and goes on with another one.
    assert_eq!(client.ask("INTEREST 100 2"), "+OK");
    drop(client);
    for number in [1, 2] {
        replicas[number].restart(RELEASE_2, Signal::TERM);
        wait_whole(&group, &replicas);
    }
    wait_until("the group acts as the new release", || is_refused(&mut Client::connect(clients[2])));
    // The release before cannot follow any more. The two others serve.
    replicas[2].restart(release_1(), Signal::TERM);
    wait_until("the earlier release is kept out, and says why", || {
        let is_refused = replicas[2].said().contains("the earlier release cannot act as the group does")
            && replicas[0].said().contains("replica 3 is refused: behavior is 2");
        // One that has a log finds there what the group acts as.
        let ends = "the group acts as behavior 2 of its service, and this build of the program can act as 1";
        is_refused || replicas[2].said().contains(ends)
    });
    assert!(is_refused(&mut Client::connect(clients[1])));
    replicas[2].restart(RELEASE_2, Signal::KILL);
    wait_whole(&group, &replicas);
    wait_for_interest(clients[0], 2);
    let seen: Vec<Seen> = load.into_iter().map(Load::stop).collect();
    assert!(seen.iter().all(|seen| seen.swept > 0 && seen.refused > 0), "{seen:?}");
    are_equal_and_right(&group);
}

fn are_equal_and_right(group: &Group) {
    group.wait_until_equal();
    assert!(!group.command(&["evidence"]).contains("was wrong"), "{}", group.command(&["evidence"]));
}

/// Sweeps accounts without money until the group acts as release 2, and then each account so many times more.
fn sweep_all(group: &Group, times: u64) {
    let addresses: Vec<SocketAddr> = group.up.replicas.iter().filter_map(|replica| replica.clients).collect();
    let mut clients: Vec<Client> = addresses.into_iter().map(Client::connect).collect();
    wait_until("the group acts as the new release", || is_refused(&mut clients[0]));
    for (number, at) in (1..UNUSED).zip((0..3).cycle()) {
        for time in 1..=times {
            let reply = clients[at].ask(&format!("SWEEP {number}"));
            assert!(
                times_of(&reply, number).is_some_and(|counted| counted % times == time % times),
                "{reply}"
            );
        }
    }
}

#[test]
fn a_group_in_memory_is_upgraded_while_clients_use_it() {
    upgrade(&["--mode", "RDGX"]);
}

/// No request seals what it changes: what a new member follows from has changed since the object was loaded.
#[test]
fn a_group_without_checksums_is_upgraded_while_clients_use_it() {
    upgrade(&["--mode", "RD00"]);
}

#[test]
fn a_group_with_logs_on_disk_is_upgraded_while_clients_use_it() {
    let data = tempfile::tempdir().expect("a directory");
    upgrade(&["--durability", "disk", "--data", data.path().to_str().expect("a name")]);
}

#[test]
fn a_verified_group_is_upgraded_while_clients_use_it() {
    upgrade(&["--mode", "R0GV"]);
}

/// A backup and a checkpoint on disk of the release before, and a log behind it, are the beginning of this one.
#[test]
fn a_state_of_the_release_before_is_loaded_and_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let of = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let (backup, data) = (of("backup"), of("data"));
    let before = Group::up_of(release_1(), &[]);
    fill(&before);
    let said = before.command(&["backup", "--to", &backup]);
    assert!(Path::new(&backup).exists(), "{said}");
    drop(before);

    let restored = Group::up_of(RELEASE_2, &["--restore", &backup]);
    sweep_all(&restored, 3);
    are_equal_and_right(&restored);
    // There is no way back: release 1 does not know what release 2 has written, and says which class that is.
    let newer = of("newer");
    assert!(restored.command(&["backup", "--to", &newer]).contains(&newer));
    drop(restored);
    let mut back = Command::new(release_1());
    back.env("XDG_RUNTIME_DIR", directory.path()).args(["up", "--port", "0", "--restore", &newer]);
    let refused = back.output().expect("it ends");
    let said = String::from_utf8_lossy(&[refused.stdout, refused.stderr].concat()).into_owned();
    let why =
        "an object in a version of `bank::account::Account` that this program does not know (it knows 1)";
    assert!(!refused.status.success() && said.contains(why), "{said}");

    let on_disk = ["--durability", "disk", "--data", &data];
    let kept = Group::up_of(release_1(), &[&on_disk[..], &["--restore", &backup]].concat());
    let mut client = Client::connect(kept.up.replicas[1].clients.expect("it has clients"));
    assert_eq!((client.ask("LINK 1 3").as_str(), client.ask("SWEEP 1").as_str()), ("+OK", ":0"));
    drop(client);
    drop(kept);
    // The second time, the log behind the checkpoint has the change, and what was written behind it.
    for _ in 0..2 {
        let upgraded = Group::up_of(RELEASE_2, &on_disk);
        sweep_all(&upgraded, 3);
        are_equal_and_right(&upgraded);
    }
}
