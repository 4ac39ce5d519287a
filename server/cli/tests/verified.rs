//! Mode `R0GV`, with real processes: batches run first and are verified afterwards, through kills and faults.

use crate::failover::{end_right, kill_while, load};
use crate::support::cluster::{Cluster, Wish};
use memcached_client::load::RunningLoad;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn up(workers: usize) -> Cluster {
    Cluster::up(&Wish { mode: "R0GV", workers, ..Wish::default() })
}

/// Kills one replica after the other, the primary of the view first, with one worker and with several.
#[test]
fn each_replica_is_killed_in_turn() {
    for workers in [1, 2] {
        let cluster = up(workers);
        let running = load(&cluster).start();
        for round in 0..3 {
            let victim = (cluster.leader() + round % 2) % 3;
            running.must_go_on(1_000, "before a replica is killed");
            kill_while(&cluster, victim, || running.must_go_on(300, "while a replica is down"));
        }
        println!("{workers} workers:");
        end_right(cluster, running);
    }
}

/// A replica that was stopped is thousands of batches behind, and has given up what takes them back, when the primary
/// is killed: it keeps them, and the group goes on with it.
#[test]
fn the_primary_is_killed_while_another_replica_lags() {
    let cluster = up(2);
    let running = load(&cluster).start();
    for round in 0..2 {
        let primary = cluster.leader();
        let lags = (primary + 1 + round) % 3;
        running.must_go_on(1_000, "before a replica is stopped");
        cluster.signal(lags, Signal::STOP);
        running.must_go_on(20_000, "while a replica is stopped");
        cluster.signal(lags, Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        kill_while(&cluster, primary, || ());
        running.must_go_on(300, "after the primary was killed");
    }
    println!("replaced: {:?}", cluster.replaced());
    end_right(cluster, running);
}

fn up_two(witness: bool) -> Cluster {
    Cluster::up(&Wish { mode: "R0GV", replicas: 2, workers: 1, witness, ..Wish::default() })
}

/// Whether the tokens of both replicas count.
fn are_together(cluster: &Cluster) -> bool {
    let executors =
        |replica| cluster.status(replica).map(|status| status["verification"]["executors"].clone());
    (0..2).all(|replica| executors(replica) == Some(json!([1, 2])))
}

/// Waits until both replicas serve, and the tokens of both count.
fn wait_together(cluster: &Cluster) {
    cluster.wait_serving();
    cluster.wait_until("both replicas execute in one view", are_together);
}

/// Kills a process, while the others go on; waits until it is back.
fn kill(cluster: &Cluster, running: &RunningLoad, victim: usize) {
    running.must_go_on(500, "before a kill");
    kill_while(cluster, victim, || running.must_go_on(300, "while a process is down"));
    wait_together(cluster);
}

/// Without a third verifier: the primary is killed, then the backup, and so on. What ends a process proves that it has
/// ended, so that the other one goes on alone, and takes it in again.
#[test]
fn either_of_two_is_killed() {
    let cluster = up_two(false);
    let running = load(&cluster).start();
    for round in 0..4 {
        let victim = (cluster.leader() + round % 2) % 2;
        kill(&cluster, &running, victim);
    }
    end_right(cluster, running);
}

/// The backup takes over from a primary that hangs. A primary whose backup hangs may not go on: the
/// backup might. It says so, and an operator decides.
#[test]
fn either_of_two_hangs() {
    let cluster = up_two(false);
    let running = load(&cluster).start();
    running.must_go_on(500, "before the primary hangs");
    let primary = cluster.leader();
    cluster.signal(primary, Signal::STOP);
    running.must_go_on(500, "while the primary hangs");
    cluster.signal(primary, Signal::CONT);
    wait_together(&cluster);
    running.must_go_on(500, "before the backup hangs");
    let primary = cluster.leader();
    cluster.signal(1 - primary, Signal::STOP);
    cluster.wait_until("the primary says what it waits for", |cluster| {
        let status = cluster.status(primary).unwrap_or_default();
        status["waits_for"]
            .as_str()
            .is_some_and(|reported| reported.contains("it is connected, and sends nothing"))
    });
    let (code, reported) = cluster.command(&["group", "keep", &(primary + 1).to_string(), "--yes"]);
    assert_eq!(code, 0, "{reported}");
    running.must_go_on(500, "after the operator's decision");
    cluster.signal(1 - primary, Signal::CONT);
    wait_together(&cluster);
    running.must_go_on(500, "with both again");
    end_right(cluster, running);
}

/// With a witness, each of the three is killed and hangs, and no operator has to decide.
#[test]
fn two_with_a_witness_go_on_whatever_happens_to_one() {
    let cluster = up_two(true);
    let running = load(&cluster).start();
    for victim in 0..3 {
        kill(&cluster, &running, victim);
        cluster.signal(victim, Signal::STOP);
        running.must_go_on(300, "while a process hangs");
        cluster.signal(victim, Signal::CONT);
        wait_together(&cluster);
    }
    end_right(cluster, running);
}

/// Injects a fault at rest; two in a row are of one kind. Returns whether an object was hit.
fn inject_at_rest(cluster: &Cluster, victim: usize, number: usize) -> bool {
    let kinds = ["flip", "checksum", "id", "length", "lost", "doubled"];
    let kind = kinds[number / 2 % kinds.len()];
    cluster.ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": number}))["done"] == true
}

/// The repairs of a replica since its process began.
fn repairs(cluster: &Cluster, replica: usize) -> u64 {
    cluster.status(replica).and_then(|status| status["repairs"].as_u64()).unwrap_or(0)
}

/// Faults at rest at one of two, with and without a witness: the other one has the objects. Where it has not, the one
/// that knows that it is wrong yields: it ends, or takes the other one's state.
#[test]
fn objects_of_one_of_two_are_repaired_by_the_other() {
    for (witness, victim) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let cluster = up_two(witness);
        let running = load(&cluster).start();
        running.must_go_on(500, "before the faults");
        let (mut injected, mut repaired) = (0, 0);
        for number in 0..24 {
            injected += usize::from(inject_at_rest(&cluster, victim, number));
            running.must_go_on(100, "after a fault at rest");
            wait_together(&cluster);
            repaired = repaired.max(repairs(&cluster, victim));
        }
        let report = running.stop_and_audit(cluster.clients());
        println!("witness: {witness}; {injected} faults at replica {}: {report}", victim + 1);
        println!("replaced: {:?}", cluster.replaced());
        report.assert_right();
        repaired = repaired.max(repairs(&cluster, victim));
        assert!(injected > 0 && repaired > 0, "{repaired} repairs of {injected} faults");
        cluster.assert_equal_state();
        cluster.finish();
    }
}

/// Whether a status or a message says that a replica waits for right objects, or that none are left.
fn operator_is_informed(cluster: &Cluster) -> bool {
    let waits = |replica| {
        cluster.status(replica).is_some_and(|status| !status["verification"]["waits_for"].is_null())
    };
    cluster.said().iter().any(|line| line.contains("start the group again")) || (0..2).any(waits)
}

/// Faults at rest at both of two, faster than scrubs find them. Mostly each has the objects that the other one lacks.
/// Where one has lost its state and the other one an object, no right copy of that is left: the operator is informed,
/// and no reply is wrong.
#[test]
fn faults_at_both_of_two_give_no_wrong_reply() {
    for witness in [false, true] {
        let cluster = up_two(witness);
        let running = load(&cluster).start();
        running.must_go_on(500, "before the faults");
        let (mut injected, mut repaired, mut goes_on) = (0, 0, true);
        for number in 0..36 {
            let (victim, aim) = (number % 2, running.answered() + 100);
            // Another seed each time: the same one would hit the same object at both.
            injected += usize::from(inject_at_rest(&cluster, victim, number));
            let mut informed_since = None;
            cluster.wait_until("both go on together, or a message says why not", |cluster| {
                goes_on = running.answered() >= aim && are_together(cluster);
                informed_since = informed_since.or_else(|| operator_is_informed(cluster).then(Instant::now));
                goes_on || informed_since.is_some_and(|since| since.elapsed() > Duration::from_secs(5))
            });
            if !goes_on {
                break;
            }
            repaired = repaired.max(repairs(&cluster, 0) + repairs(&cluster, 1));
        }
        // Requests that need an object without a right copy get no reply: an audit would wait for one.
        let report = running.stop_and_audit(&[]);
        println!("witness: {witness}; {injected} faults; both go on: {goes_on}; {report}");
        report.assert_right();
        assert!(injected > 0 && (repaired > 0 || !goes_on), "{repaired} repairs of {injected} faults");
        cluster.finish();
    }
}

/// An object at rest that fits its checksum, and is another one than the batches have left: no check finds it, and no
/// request comes that would enter it. A scrub compares it with the tree.
#[test]
fn an_object_that_fits_its_checksum_is_found_by_a_scrub() {
    let cluster = up(1);
    let running = load(&cluster).start();
    running.must_go_on(500, "before the fault");
    running.stop_and_audit(cluster.clients()).assert_right();
    let inject = |seed: u64| cluster.ask(1, &json!({"cmd": "inject", "kind": "reseal", "seed": seed}));
    assert!((0..20).any(|seed| inject(seed)["done"] == true), "no object was hit");
    cluster.wait_until("a scrub has found the object", |cluster| {
        let reported = cluster.evidence(1, 0);
        reported.iter().any(|record| record["outcome"].as_str().is_some_and(|how| how.contains("fitted")))
    });
    cluster.assert_equal_state();
    cluster.finish();
}

/// A fault in the execution at one of three: where the others agree without it, it runs the batch again; where the
/// verifiers wait for all tokens, all take the batch back. Either way the evidence names it.
#[test]
fn what_differs_at_one_replica_is_masked_and_level_again() {
    let cluster = up(2);
    let running = load(&cluster).start();
    running.must_go_on(500, "before the faults");
    let mut injected = [0; 3];
    for seed in 0..18 {
        let (victim, kind) = (seed % 3, ["in-request", "reply", "digest"][seed / 3 % 3]);
        let answer = cluster.ask(victim, &json!({"cmd": "inject", "kind": kind, "seed": seed}));
        injected[victim] += u64::from(answer["done"] == true);
        running.must_go_on(300, "after a fault");
        cluster.wait_serving();
    }
    let report = running.stop_and_audit(cluster.clients());
    println!("{injected:?} faults: {report}");
    report.assert_right();
    let reported: Vec<Value> = (0..3).flat_map(|seen_by| cluster.evidence(seen_by, 0)).collect();
    println!("{} records; replaced: {:?}", reported.len(), cluster.replaced());
    for victim in 0..3 {
        let is_masked = |record: &&Value| {
            let outcome = record["outcome"].as_str().unwrap_or_default();
            record["replica"] == json!(victim + 1) && outcome.starts_with("masked")
        };
        let masked = reported.iter().filter(is_masked).count();
        assert!(
            masked > 0 && injected[victim] > 0,
            "replica {}: {masked} masked of {injected:?}",
            victim + 1
        );
    }
    cluster.assert_equal_state();
    cluster.finish();
}

/// A client of one replica, which connects again after its connection has ended.
struct Client {
    to: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    fn new(to: &SocketAddr) -> Client {
        Client { to: *to, stream: None }
    }

    /// Sends some commands at once, and returns the lines up to the last one that `is_last` of so many.
    fn ask(&mut self, commands: &str, lasts: usize) -> io::Result<Vec<String>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.to)?;
                stream.set_read_timeout(Some(Duration::from_secs(2)))?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(commands.as_bytes())?;
        let (mut lines, mut left) = (Vec::new(), lasts);
        while left > 0 {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_owned();
            left -= usize::from(matches!(&*line, "END" | "STORED"));
            lines.push(line);
        }
        // A connection with an error is not used again.
        self.stream = Some(stream);
        Ok(lines)
    }

    /// The number under `key`; none without an answer.
    fn get(&mut self, key: &str) -> Option<u64> {
        let lines = self.ask(&format!("get {key}\r\n"), 1).ok()?;
        Some(lines.get(1).and_then(|line| line.parse().ok()).unwrap_or(0))
    }
}

fn set(key: &str, number: u64) -> String {
    let text = number.to_string();
    format!("set {key} 0 0 {}\r\n{text}\r\n", text.len())
}

/// With `reads = "local"`: what one replica has acknowledged, each other one reads directly after, also while replicas
/// are killed under load. No later read sees less.
#[test]
fn reads_without_a_batch_see_what_any_replica_has_acknowledged() {
    for (replicas, witness, workers) in [(3, false, 2), (3, false, 1), (2, true, 2)] {
        let cluster = Cluster::up(&Wish {
            mode: "R0GV",
            reads: "local",
            replicas,
            witness,
            workers,
            ..Wish::default()
        });
        let running = load(&cluster).start();
        let mut clients: Vec<Client> = cluster.clients().iter().map(Client::new).collect();
        let mut victim = None;
        let (mut read, mut written) = (0, 0);
        for number in 1..=600 {
            let writer = number as usize % clients.len();
            if clients[writer].ask(&set("probe", number), 1).is_ok() {
                written = number;
            }
            for client in &mut clients {
                let Some(seen) = client.get("probe") else { continue };
                assert!(seen >= written, "{seen} was read after {written} was acknowledged");
                // A write without a reply may have taken effect.
                written = seen;
                read += 1;
            }
            match (number % 200, victim) {
                (50, _) => {
                    victim = Some(cluster.leader());
                    cluster.signal(cluster.leader(), Signal::KILL);
                }
                (150, Some(_)) => cluster.wait_serving(),
                _ => {}
            }
        }
        let local = |replica| cluster.status(replica).unwrap_or_default()["reads"]["local"].clone();
        let local: Vec<Value> = (0..replicas).map(local).collect();
        println!("{replicas} replicas, {workers} workers: {read} reads; since the start of each: {local:?}");
        assert!(local.iter().any(|count| count.as_u64() > Some(0)) && read > 900, "{read} {local:?}");
        end_right(cluster, running);
    }
}

/// Pipelined commands of one connection are answered in their order, and see what was sent before them and nothing
/// that was sent after.
#[test]
fn reads_without_a_batch_keep_the_order_of_their_connection() {
    let cluster = Cluster::up(&Wish { mode: "R0GV", reads: "local", ..Wish::default() });
    let running = load(&cluster).start();
    let mut client = Client::new(&cluster.clients()[0]);
    for number in 0..300 {
        let (old, new) = (2 * number, 2 * number + 1);
        client.ask(&set("own", old), 1).expect("an answer");
        let get = "get own\r\n";
        let lines = client.ask(&[get, get, &set("own", new), get, get].concat(), 5).expect("answers");
        let block = |number: u64| {
            let text = number.to_string();
            [format!("VALUE own 0 {}", text.len()), text, "END".to_owned()]
        };
        let stored = vec!["STORED".to_owned()];
        let expected = [&block(old)[..], &block(old), &stored, &block(new), &block(new)].concat();
        assert_eq!(lines, expected);
    }
    end_right(cluster, running);
}
