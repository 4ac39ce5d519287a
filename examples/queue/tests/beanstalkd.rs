//! Side by side with beanstalkd: the same commands get the same replies, wherever the protocol determines them.

use std::net::SocketAddr;

use wire::SplitMix64;

use crate::support::{Beanstalkd, Client, Group, line_of, wait_until};

/// Lines of `stats` and its kin that are of the server, count seconds, or count how often [`reconnect`] asks.
const OF_THE_SERVER: [&str; 15] = [
    "cmd-stats",
    "age",
    "time-left",
    "pause-time-left",
    "pid",
    "version",
    "rusage-utime",
    "rusage-stime",
    "uptime",
    "id",
    "hostname",
    "os",
    "platform",
    "binlog-max-size",
    "total-connections",
];
const CLIENTS: usize = 3;
/// The first command of a connection: the queue does not know it before. It makes the connection a worker's, as for
/// beanstalkd a `reserve-job` does only if it succeeds.
const FIRST: &str = "reserve-with-timeout 0";

/// A server, and what it calls the jobs.
struct Side {
    address: SocketAddr,
    clients: Vec<Client>,
    ids: Vec<u64>,
    /// The client that waits for a job. Which one of several gets it, the protocol does not say.
    waits: Option<usize>,
}

impl Side {
    fn new(address: SocketAddr) -> Self {
        let clients = (0..CLIENTS).map(|_| Client::connect(address).expect("it accepts clients")).collect();
        Side { address, clients, ids: Vec::new(), waits: None }
    }

    /// The reply to a command in which `#N` stands for the N-th job; ids in it are replaced in the same way.
    fn ask(&mut self, client: usize, command: &str) -> String {
        let id = |word: &str| {
            let number = word.strip_prefix('#').and_then(|number| number.parse::<usize>().ok());
            number.map_or_else(
                || word.to_owned(),
                |number| self.ids.get(number).map_or(0, |id| *id).to_string(),
            )
        };
        let words: Vec<String> = command.split(' ').map(id).collect();
        let reply = self.clients[client].ask(&words.join(" "));
        if let Some(id) = reply.strip_prefix("INSERTED ") {
            self.ids.push(id.parse().expect("an id"));
        }
        self.comparable(&reply)
    }

    /// Lets a client reserve a job, and returns the reply, unless it waits.
    fn reserve(&mut self, client: usize, command: &str) -> Option<String> {
        self.clients[client].send(command).expect("it is sent");
        self.waits = Some(client);
        let other = (client + 1) % CLIENTS;
        wait_until("it has a job or waits", || self.clients[client].has_reply() || self.is_waiting(other));
        self.end_of_wait(other)
    }

    /// A client's connection ends, and its jobs go back; then it has a new one. Returns what another one gets then that
    /// has waited.
    fn reconnect(&mut self, client: usize) -> Option<String> {
        self.waits = self.waits.filter(|waits| *waits != client);
        let other = (0..CLIENTS).find(|other| *other != client && Some(*other) != self.waits);
        let other = other.expect("one of three");
        let new = Client::connect(self.address).expect("it accepts clients");
        drop(std::mem::replace(&mut self.clients[client], new));
        // The new one is known to beanstalkd already, and not to the queue.
        wait_until("the end of the connection is noticed", || {
            let stats = self.clients[other].ask("stats");
            line_of(&stats, "current-workers") == (CLIENTS - 1).to_string()
        });
        let gets = self.end_of_wait(other);
        self.ask(client, FIRST);
        gets
    }

    fn is_waiting(&mut self, client: usize) -> bool {
        line_of(&self.clients[client].ask("stats"), "current-waiting") == "1"
    }

    /// The reply to the client that has waited, if it waits no more; `client` asks.
    fn end_of_wait(&mut self, client: usize) -> Option<String> {
        let waits = self.waits?;
        if self.is_waiting(client) {
            return None;
        }
        self.waits = None;
        let reply = self.clients[waits].receive().expect("a reply");
        Some(self.comparable(&reply))
    }

    fn comparable(&self, reply: &str) -> String {
        let number = |id: &str| {
            let id = id.parse::<u64>().ok();
            self.ids
                .iter()
                .position(|other| Some(*other) == id)
                .map_or_else(String::new, |at| format!("#{at}"))
        };
        let (first, data) = reply.split_once("\r\n").unwrap_or((reply, ""));
        let words: Vec<&str> = first.split(' ').collect();
        match words[..] {
            ["OK", _] if data.contains(": ") => {
                let of_queue = |line: &&str| {
                    !line.split_once(": ").is_some_and(|(name, _)| OF_THE_SERVER.contains(&name))
                };
                data.lines().filter(of_queue).collect::<Vec<_>>().join("\n")
            }
            ["OK", _] => {
                let mut names: Vec<&str> = data.lines().collect();
                names.sort_unstable();
                names.join("\n")
            }
            [word @ ("INSERTED" | "RESERVED" | "FOUND"), id, ..] => format!("{word} {} {data}", number(id)),
            _ => reply.to_owned(),
        }
    }
}

/// A command whose reply does not depend on when it comes: times are none, or far off.
fn command(rng: &mut SplitMix64, jobs: u64) -> String {
    let tube = ["default", "mail", "tube-13"][rng.below(3) as usize];
    let job = format!("#{}", rng.below(jobs + 1));
    let (pri, delay) = (rng.below(3) * 1_000, rng.below(4) / 3 * rng.within(1_000, 2_000));
    match rng.below(32) {
        0..8 => format!("put {pri} {delay} {} 5\r\nbody{}", rng.within(1_000, 2_000), rng.below(10)),
        8..12 => "reserve-with-timeout 0".to_owned(),
        12 => format!("reserve-job {job}"),
        13 => format!("delete {job}"),
        14 => format!("release {job} {pri} {delay}"),
        15 => format!("bury {job} {pri}"),
        16 => format!("touch {job}"),
        17 => format!("kick {}", rng.below(4)),
        18 => format!("kick-job {job}"),
        19 => format!("peek {job}"),
        20 => "peek-ready".to_owned(),
        21 => "peek-delayed".to_owned(),
        22 => "peek-buried".to_owned(),
        23 => format!("use {tube}"),
        24 => format!("watch {tube}"),
        25 => format!("ignore {tube}"),
        26 => format!("stats-job {job}"),
        27 => format!("stats-tube {tube}"),
        28 => "list-tubes".to_owned(),
        29 => format!("pause-tube {tube} {}", rng.below(2) * 1_000),
        30 => ["list-tube-used", "list-tubes-watched"][rng.below(2) as usize].to_owned(),
        _ => "stats".to_owned(),
    }
}

#[test]
fn the_same_commands_get_the_same_replies_as_from_beanstalkd() {
    for seed in 0..5 {
        let Some(server) = Beanstalkd::start() else { return };
        let group = Group::up(&["--mode", "0000"]);
        let (mut theirs, mut ours) = (Side::new(server.address), Side::new(group.address(1)));
        for client in 0..CLIENTS {
            assert_eq!(ours.ask(client, FIRST), theirs.ask(client, FIRST));
        }
        let mut rng = SplitMix64::new(seed);
        for step in 0..1_500 {
            let client = rng.below(CLIENTS as u64) as usize;
            if rng.below(50) == 0 {
                let (expected, reply) = (theirs.reconnect(client), ours.reconnect(client));
                assert_eq!(
                    reply, expected,
                    "seed {seed}, step {step}: the connection of client {client} ends"
                );
                continue;
            }
            if theirs.waits == Some(client) {
                continue;
            }
            if theirs.waits.is_none() && rng.below(8) == 0 {
                let command = ["reserve", "reserve-with-timeout 1000"][rng.below(2) as usize];
                let (expected, reply) = (theirs.reserve(client, command), ours.reserve(client, command));
                assert_eq!(reply, expected, "seed {seed}, step {step}: {command} of client {client}");
                continue;
            }
            let command = command(&mut rng, theirs.ids.len() as u64);
            let (expected, reply) = (theirs.ask(client, &command), ours.ask(client, &command));
            assert_eq!(reply, expected, "seed {seed}, step {step}: {command:?} of client {client}");
            let (expected, reply) = (theirs.end_of_wait(client), ours.end_of_wait(client));
            assert_eq!(
                reply, expected,
                "seed {seed}, step {step}: what client {client} does for one that waits"
            );
        }
    }
}

/// Lines, with bodies where they have some, that get an error or a reply of one line.
const LINES: &[&str] = &[
    "put 0 0 1 3\r\nabcde",
    "put 0 0 1 65536\r\n",
    "PUT 0 0 1 1\r\na",
    "",
    "reserve x",
    "reserve-with-timeout",
    "delete 1 2",
    "delete x",
    "delete -1",
    "delete 18446744073709551616",
    "put 1 2",
    "put 0 0 1 1 z",
    "put -1 0 1 1",
    "put 4294967296 0 1 1",
    "use -x",
    "use a b",
    "use a,b",
    "use \u{e9}",
    "kick x",
    "peek x",
    "peek 99",
    "peek-ready x",
    "peek-ready",
    "ignore default",
    "watch a",
    "watch a",
    "ignore b",
    "ignore a",
    "pause-tube nix 1",
    "pause-tube default",
    "pause-tube default x",
    "stats-tube nix",
    "stats-job 99",
    "list-tube-used",
    "list-tubes x",
    "stats x",
    "touch 9",
    "touch 1x",
    "bury 9 1",
    "bury 9",
    "release 9 1 1",
    "release 9 1",
    "kick-job 9",
    "reserve-job 9",
    "use ",
    "frob",
    "watch +/;.$_()-9Az",
    "put 0 0 1 2\nab",
    "list-tube-used x",
    "peek  99",
];

#[test]
fn errors_are_those_of_beanstalkd() {
    let Some(server) = Beanstalkd::start() else { return };
    let group = Group::up(&["--mode", "0000"]);
    let mut long =
        [format!("use {}", "a".repeat(200)), format!("use {}", "a".repeat(201)), "b".repeat(400)].to_vec();
    long.push(format!("put 0 0 1 70000\r\n{}", "x".repeat(70_000)));
    for line in LINES.iter().copied().chain(long.iter().map(String::as_str)) {
        // `list-tube-used` after it shows where the next line begins.
        let line = match line {
            "put 0 0 1 65536\r\n" => format!("{line}{}", "x".repeat(65_536)),
            _ => line.to_owned(),
        };
        let replies = [server.address, group.address(1)].map(|address| {
            let mut client = Client::connect(address).expect("it accepts clients");
            client.send(&line).expect("it is sent");
            client.send("list-tube-used").expect("it is sent");
            let mut replies = Vec::new();
            while !replies.last().is_some_and(|last: &String| last.starts_with("USING default"))
                && replies.len() < 4
            {
                replies.push(client.receive().expect("a reply"));
                if replies.last().is_some_and(|last| last.starts_with("USING a")) {
                    break;
                }
            }
            replies
        });
        let shown: String = line.chars().take(60).collect();
        assert_eq!(replies[1], replies[0], "{shown:?}");
    }
}
