//! Random corruption of one replica at a time under load: no client receives a wrong byte, and the right replica and
//! object are named and repaired.

use crate::support::cluster::{Cluster, PATIENCE, Wish};
use memcached_client::load::{CheckedLoad, LoadDraw, RunningLoad};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Faults in a named object at rest: the record must name it.
const OBJECT_KINDS: [&str; 6] = ["flip", "multi-flip", "checksum", "id", "lost", "doubled"];
/// Faults that take effect at the next opportunity, wherever that is.
const ARMED_KINDS: [&str; 7] = ["in-request", "digest", "check", "reply", "message", "repair", "request"];
/// Faults in any object that the replica chooses from the seed; tables and queues included.
const ANYWHERE_KINDS: [&str; 5] = ["flip", "multi-flip", "length", "lost", "doubled"];

/// Faults placed in one replica before it must be healthy again: at most f replicas are wrong at a time.
const FAULTS_PER_ROUND: u64 = 10;

/// Each replica in turn is the only victim, so that a record that blames another one is wrong; then all are victims,
/// one at a time, so that a repaired replica must repair others.
#[test]
fn random_corruption_under_load() {
    let faults = crate::support::size("CROSSCHECK_FAULTS", 1_000, 20_000);
    let seed = crate::support::size("CROSSCHECK_SEED", 1, 1);
    let mut by_kind = BTreeMap::new();
    for (part, victims) in [&[0][..], &[1], &[2], &[0, 1, 2]].into_iter().enumerate() {
        campaign(victims, faults.div_ceil(4), seed * 4 + part as u64, &mut by_kind);
    }
    println!("{} faults placed: {by_kind:?}", by_kind.values().sum::<u64>());
    for kind in OBJECT_KINDS.iter().chain(&ARMED_KINDS).chain(&ANYWHERE_KINDS) {
        assert!(by_kind.contains_key(*kind), "no fault of kind {kind} was ever placed");
    }
}

fn campaign(victims: &[usize], faults: u64, seed: u64, by_kind: &mut BTreeMap<String, u64>) {
    // One thread that runs all stages, and threads that pass requests to each other, in turn.
    let cluster = Cluster::up(&Wish { workers: 1 + seed as usize % 2, ..Wish::default() });
    let running = CheckedLoad { seed, ..CheckedLoad::on(cluster.clients()) }.start();
    let mut campaign = Campaign {
        cluster: &cluster,
        running: &running,
        draw: LoadDraw::new(seed),
        victims,
        placed: by_kind,
    };
    let mut placed = 0;
    while placed < faults {
        placed += campaign.round();
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{placed} faults in replicas {victims:?} from 0, seed {seed}: {report}");
    for why in cluster.replaced() {
        println!("  replaced: {why}");
    }
    report.assert_right();
    cluster.assert_equal_state();
    cluster.finish();
}

/// One named object, one fault, every step: detected, blamed on the right replica, named, repaired.
#[test]
fn each_kind_in_a_named_object_is_found_named_and_repaired() {
    each_kind_in_a_named_object("RDGX");
}

/// The same where replicas verify afterwards: the object comes from a peer as it was after the same batch.
#[test]
fn with_v_each_kind_in_a_named_object_is_found_named_and_repaired() {
    each_kind_in_a_named_object("R0GV");
}

fn each_kind_in_a_named_object(mode: &'static str) {
    let cluster = Cluster::up(&Wish { mode, ..Wish::default() });
    for (number, kind) in OBJECT_KINDS.iter().enumerate() {
        for victim in 0..3 {
            let key = format!("victim-{kind}-{victim}");
            let value = format!("the value of {key}");
            store(&cluster, &key, &value);
            let before = last_numbers(&cluster);
            let inject = json!({
                "cmd": "inject", "kind": kind, "object": format!("item:{key}"), "seed": number * 3 + victim,
            });
            let injected = cluster.ask(victim, &inject);
            assert_eq!(injected["done"], true, "{kind} at replica {}: {injected}", victim + 1);
            for reader in 0..3 {
                assert_eq!(
                    fetch(&cluster, reader, &key),
                    value,
                    "{kind} at replica {} and read there",
                    victim + 1
                );
            }
            let id = injected["id"].as_str().unwrap_or("no id").to_owned();
            // If a scrub comes before the readers and finds an object too many or too few, it has the region repaired
            // as a whole.
            let region = format!("region {} replaced", injected["home"]);
            cluster.wait_until("a record names replica and object", |cluster| {
                let records = new_records(cluster, &before);
                records.iter().any(|record| names(record, victim, &id) || names(record, victim, &region))
            });
            assert_no_other_blamed(&cluster, &before, &[victim]);
            cluster.assert_equal_state();
        }
    }
    cluster.finish();
}

/// A fault in a computation: the object is changed between the handler's change and its seal, so its checksum fits.
#[test]
fn a_wrong_computation_on_a_named_object_is_found_named_and_repaired() {
    let cluster = Cluster::up(&Wish::default());
    for victim in 0..3 {
        let key = format!("computed-{victim}");
        store(&cluster, &key, "before");
        let before = last_numbers(&cluster);
        let inject =
            json!({"cmd": "inject", "kind": "in-request", "object": format!("item:{key}"), "seed": 5});
        let injected = cluster.ask(victim, &inject);
        assert_eq!(injected["done"], true, "{injected}");
        store(&cluster, &key, "after");
        let id = injected["id"].as_str().unwrap_or("no id").to_owned();
        cluster.wait_until("a record names replica and object", |cluster| {
            new_records(cluster, &before).iter().any(|record| names(record, victim, &id))
        });
        for reader in 0..3 {
            assert_eq!(fetch(&cluster, reader, &key), "after");
        }
        assert_no_other_blamed(&cluster, &before, &[victim]);
        cluster.assert_equal_state();
    }
    cluster.finish();
}

/// Another program than that of the others, or a defect that only one replica meets, is no fault of hardware: from the
/// fourth request of a kind in a row on, all of its records say so. A request of another kind is judged by itself.
#[test]
fn a_replica_that_errs_in_every_request_of_a_kind_is_not_called_faulty_hardware() {
    let cluster = Cluster::up(&Wish { workers: 1, ..Wish::default() });
    store(&cluster, "kept", "as it was");
    // Until the victim has executed it as well: the next reply that it makes is to be the wrong one.
    cluster.assert_equal_state();
    let (victim, asked) = (2, 0);
    let mut errors = Vec::new();
    let mut err = |round: usize, request: &str, end: &str| {
        let injected = cluster.ask(victim, &json!({"cmd": "inject", "kind": "reply", "seed": round}));
        assert_eq!(injected["done"], true, "{injected}");
        talk(&cluster, asked, request, end);
        cluster.wait_until("the wrong reply is found", |cluster| {
            errors = cluster.evidence(asked, 0);
            errors.len() == round
        });
        let class = |record: &Value| record["class"].as_str().unwrap_or_default().to_owned();
        errors.iter().map(class).collect::<Vec<_>>()
    };
    for round in 1..=6 {
        let expected = if round < 4 { "hardware-like" } else { "software-bug" };
        let classes = err(round, "touch kept 0\r\n", "\r\n");
        assert_eq!(classes, vec![expected; round], "{:#?}", cluster.evidence(asked, 0));
    }
    let last = err(7, "get kept\r\n", "END\r\n");
    assert_eq!(last.last().map(String::as_str), Some("hardware-like"));
    assert!(errors.iter().all(|record| record["replica"] == victim + 1), "{errors:#?}");
    cluster.finish();
}

/// Two replicas that differ have no majority: while one is away, each verifies its own computations.
#[test]
fn a_fault_in_a_computation_while_a_replica_is_away_is_masked() {
    let cluster = Cluster::up(&Wish { workers: 1, ..Wish::default() });
    let away = (cluster.leader() + 1) % 3;
    let there: Vec<usize> = (0..3).filter(|replica| *replica != away).collect();
    cluster.signal(away, Signal::STOP);
    cluster.wait_until("the others run every request twice", |cluster| {
        there.iter().all(|replica| cluster.status(*replica).is_some_and(|status| status["alone"] == true))
    });
    let clients: Vec<_> = there.iter().map(|replica| cluster.clients()[*replica]).collect();
    let running = CheckedLoad { seed: 9, ..CheckedLoad::on(&clients) }.start();
    running.must_go_on(500, "before the faults");
    for (seed, victim) in (0..20).zip(there.iter().cycle()) {
        let injected = cluster.ask(*victim, &json!({"cmd": "inject", "kind": "in-request", "seed": seed}));
        assert_eq!(injected["done"], true, "{injected}");
        running.must_go_on(200, "after a fault in a computation");
    }
    for victim in there {
        let records = cluster.evidence(victim, 0);
        let masked = records.iter().filter(|record| {
            record["replica"] == victim + 1
                && record["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("masked"))
        });
        assert!(masked.count() >= 8, "{records:#?}");
    }
    cluster.signal(away, Signal::CONT);
    cluster.wait_serving();
    let report = running.stop_and_audit(&clients);
    println!("{report}");
    report.assert_right();
    cluster.assert_equal_state();
    cluster.finish();
}

/// A fault hits an object of a class, which need not have a name.
#[test]
fn a_fault_hits_an_object_of_a_class() {
    let cluster = Cluster::up(&Wish::default());
    let inject = |class: &str| {
        let object = format!("class:{class}");
        cluster.ask(1, &json!({"cmd": "inject", "kind": "flip", "object": object, "seed": 3}))
    };
    let injected = inject("Shard");
    assert!(injected["what"].as_str().is_some_and(|what| what.starts_with("Shard ")), "{injected}");
    // Some of them need the object.
    (0..300).for_each(|number| store(&cluster, &format!("key-{number}"), "a value"));
    cluster.assert_equal_state();
    let refused = inject("Nothing").to_string();
    assert!(refused.contains("no object or class of this name"), "{refused}");
    cluster.finish();
}

/// A request whose checksum was wrong before it was ordered is wrong at every replica alike. If each replica blamed its
/// own memory, none would be left to copy the state from.
#[test]
fn a_request_that_is_wrong_for_all_costs_its_client_the_reply_and_nobody_a_state() {
    for mode in ["RDGX", "RDG0", "RD00"] {
        let cluster = Cluster::up(&Wish { mode, ..Wish::default() });
        store(&cluster, "kept", "as it was");
        for victim in 0..3 {
            let injected = cluster.ask(victim, &json!({"cmd": "inject", "kind": "asked", "seed": victim}));
            assert_eq!(injected["done"], true, "{injected}");
            let mut client =
                TcpStream::connect(cluster.clients()[victim]).expect("the replica accepts clients");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            client.write_all(b"set kept 0 0 5\r\nwrong\r\n").expect("the replica reads");
            let mut reply = Vec::new();
            let end = client.read_to_end(&mut reply);
            assert!(
                reply.is_empty() && !matches!(&end, Err(why) if why.kind() == ErrorKind::WouldBlock),
                "{end:?}"
            );
            assert_eq!(fetch(&cluster, victim, "kept"), "as it was", "{mode}");
        }
        assert_eq!(cluster.replaced(), Vec::<String>::new(), "{mode}");
        cluster.wait_serving();
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// Injects faults into one replica at a time, and waits until the group is healthy before the next one.
struct Campaign<'a> {
    cluster: &'a Cluster,
    running: &'a RunningLoad,
    draw: LoadDraw,
    victims: &'a [usize],
    placed: &'a mut BTreeMap<String, u64>,
}

impl Campaign<'_> {
    /// Returns how many faults were placed.
    fn round(&mut self) -> u64 {
        let victim = self.victims[self.draw.below(self.victims.len() as u64) as usize];
        let before = last_numbers(self.cluster);
        let mut placed = Vec::new();
        for _ in 0..FAULTS_PER_ROUND {
            let inject = self.draw_fault();
            let answer = self.cluster.ask(victim, &inject);
            if answer["done"] == true {
                *self.placed.entry(inject["kind"].as_str().unwrap_or("").to_owned()).or_default() += 1;
                placed.push(format!("  placed: {inject}: {}\n", answer["what"]));
            }
            if !self.running.wait_for(20, PATIENCE / 4) {
                break;
            }
        }
        if !self.running.wait_for(200, PATIENCE) {
            let seen = self.cluster.seen();
            self.running
                .must_go_on(1, &format!("after faults in replica {}\n{}{seen}", victim + 1, placed.concat()));
        }
        self.cluster.wait_serving();
        self.cluster.assert_equal_state();
        assert_no_other_blamed(self.cluster, &before, self.victims);
        placed.len() as u64
    }

    fn draw_fault(&mut self) -> Value {
        let seed = self.draw.bits() >> 12;
        match self.draw.below(3) {
            0 => {
                // Keys that the load uses while it runs undisturbed; where one is missing at the moment, no fault is
                // placed.
                let key = format!("c{}k{}g0", self.draw.below(24), self.draw.below(12));
                let kind = OBJECT_KINDS[self.draw.below(OBJECT_KINDS.len() as u64) as usize];
                json!({"cmd": "inject", "kind": kind, "object": format!("item:{key}"), "seed": seed})
            }
            1 => {
                let kind = ANYWHERE_KINDS[self.draw.below(ANYWHERE_KINDS.len() as u64) as usize];
                json!({"cmd": "inject", "kind": kind, "seed": seed})
            }
            _ => {
                let kind = ARMED_KINDS[self.draw.below(ARMED_KINDS.len() as u64) as usize];
                json!({"cmd": "inject", "kind": kind, "seed": seed})
            }
        }
    }
}

/// Number of the last evidence record of every replica.
fn last_numbers(cluster: &Cluster) -> Vec<u64> {
    let last =
        |replica| cluster.evidence(replica, 0).iter().filter_map(|r| r["number"].as_u64()).max().unwrap_or(0);
    (0..3).map(last).collect()
}

fn new_records(cluster: &Cluster, before: &[u64]) -> Vec<Value> {
    (0..3).flat_map(|replica| cluster.evidence(replica, before[replica])).collect()
}

fn names(record: &Value, victim: usize, id: &str) -> bool {
    let objects = record["objects"].as_array().into_iter().flatten();
    record["replica"] == victim + 1 && objects.filter_map(Value::as_str).any(|object| object.contains(id))
}

fn assert_no_other_blamed(cluster: &Cluster, before: &[u64], victims: &[usize]) {
    for record in new_records(cluster, before) {
        let blamed = &record["replica"];
        let rightly = blamed.is_null() || victims.iter().any(|victim| *blamed == victim + 1);
        assert!(rightly, "only replicas {victims:?} (from 0) were hit, and {record} blames another");
    }
}

fn store(cluster: &Cluster, key: &str, value: &str) {
    let reply = talk(cluster, 0, &format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), "\r\n");
    assert_eq!(reply, "STORED\r\n");
}

fn fetch(cluster: &Cluster, replica: usize, key: &str) -> String {
    let reply = talk(cluster, replica, &format!("get {key}\r\n"), "END\r\n");
    let head = reply.lines().next().unwrap_or("").to_owned();
    assert!(head.starts_with(&format!("VALUE {key} 0 ")), "{reply}");
    reply[head.len() + 2..].trim_end_matches("\r\nEND\r\n").to_owned()
}

fn talk(cluster: &Cluster, replica: usize, request: &str, end: &str) -> String {
    let mut stream = TcpStream::connect(cluster.clients()[replica]).expect("the replica accepts clients");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.write_all(request.as_bytes()).expect("the replica reads");
    let (mut reply, mut chunk) = (Vec::new(), [0; 4096]);
    let deadline = Instant::now() + PATIENCE;
    while !reply.ends_with(end.as_bytes()) {
        assert!(Instant::now() < deadline, "no whole reply to {request:?}: {reply:?}");
        let count = stream.read(&mut chunk).expect("the replica answers");
        assert!(count > 0, "connection closed after {reply:?} to {request:?}");
        reply.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8(reply).expect("values here are text")
}
