//! The program as an operator and clients see it: three replicas, flipped bits, ended connections, killed processes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::support::{Client, Group, line_of, python_with_greenstalk, wait_until};

#[test]
fn greenstalk_gets_right_answers_from_three_replicas() {
    let Some(mut python) = python_with_greenstalk() else { return };
    let group = Group::up(&[]);
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/greenstalk_calls.py"));
    python.args((1..=3).map(|replica| group.address(replica).port().to_string()));
    let output = python.output().expect("Python starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.contains("all calls answered"), "{printed}");
    group.wait_until_equal();
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}

#[test]
fn flipped_bits_in_jobs_and_tubes_are_outvoted_named_and_repaired() {
    let group = Group::up(&[]);
    let (mut first, mut second) = (group.client(1), group.client(2));
    first.ask("use mail");
    second.ask("watch mail");
    let ids: Vec<u64> = (0..200).map(|number| first.put("5 0 1000", &format!("job {number}"))).collect();
    // Priority and body of a job; name, ready jobs and count of a tube; memory of a region. One replica at a time.
    let jobs = [7, 8].map(|number: usize| format!("job:{}", ids[number]));
    let region = format!("region:{}", queue::region_of_tube("mail"));
    for (replica, object, member) in [
        ("2", jobs[0].as_str(), "2"),
        ("3", jobs[1].as_str(), "8"),
        ("1", "tube:mail", "0"),
        ("2", "tube:mail", "1"),
        ("3", "tube:mail", "8"),
        ("1", region.as_str(), "7"),
    ] {
        let injected =
            group.command(&["inject", "flip", "--replica", replica, "--object", object, "--member", member]);
        assert!(injected.contains("bit"), "{injected}");
        for id in &ids[7..9] {
            assert!(second.ask(&format!("peek {id}")).starts_with(&format!("FOUND {id} ")));
        }
        assert_eq!(line_of(&second.ask("stats-tube mail"), "current-jobs-ready"), "200");
        group.wait_until_equal();
    }
    for id in &ids {
        let job = second.ask("reserve-with-timeout 0");
        assert!(job.starts_with(&format!("RESERVED {id} ")), "{job}");
        assert_eq!(second.ask(&format!("delete {id}")), "DELETED");
    }
    group.wait_until_equal();
    let evidence = group.command(&["evidence"]);
    assert!(evidence.contains(&format!("job {}", ids[7])) && evidence.contains("tube mail"), "{evidence}");
}

#[test]
fn the_jobs_of_a_worker_go_back_when_its_connection_ends() {
    let group = Group::up(&[]);
    let mut first = group.client(1);
    let ids: Vec<u64> = (0..3).map(|number| first.put("5 0 1000", &format!("job {number}"))).collect();
    let mut worker = group.client(2);
    worker.ask("watch other");
    for id in &ids {
        assert!(worker.ask("reserve-with-timeout 0").starts_with(&format!("RESERVED {id} ")));
    }
    assert_eq!(first.ask("reserve-with-timeout 0"), "TIMED_OUT");
    drop(worker);
    wait_until("the jobs are ready", || first.ask("stats-tube default").contains("current-jobs-ready: 3\n"));
    assert!(first.ask("stats-tube other").starts_with("NOT_FOUND"), "no client refers to it");
    assert_eq!(line_of(&first.ask("stats"), "current-connections"), "1");
    group.wait_until_equal();
}

/// Two tubes of two regions, and one of one of these.
const TUBES: [&str; 2] = ["mail", "tube-13"];

#[test]
fn a_client_waits_until_there_is_a_job_in_one_of_its_tubes() {
    assert_ne!(queue::region_of_tube(TUBES[0]), queue::region_of_tube(TUBES[1]));
    for (mode, workers) in [("RDGX", "1"), ("RDGX", "2"), ("R0GV", "2"), ("00GT", "1")] {
        wait_for_jobs(&Group::up(&["--mode", mode, "--workers", workers]));
    }
}

fn wait_for_jobs(group: &Group) {
    let (mut first, mut worker) = (group.client(1), group.client(group.replicas()));
    TUBES.iter().for_each(|tube| assert!(worker.ask(&format!("watch {tube}")).starts_with("WATCHING")));
    for tube in TUBES.iter().cycle().take(6) {
        worker.send("reserve").expect("it is sent");
        wait_until("it waits", || line_of(&first.ask("stats"), "current-waiting") == "1");
        first.ask(&format!("use {tube}"));
        assert_eq!(line_of(&first.ask(&format!("stats-tube {tube}")), "current-waiting"), "1");
        let id = first.put("5 0 1000", "job");
        assert_eq!(worker.receive(), Some(format!("RESERVED {id} 3\r\njob")));
        let next = first.put("9 0 1000", "next");
        assert!(first.ask(&format!("stats-job {next}")).contains("state: ready\n"), "it waits no more");
        for id in [id, next] {
            worker.ask(&format!("reserve-job {id}"));
            assert_eq!(worker.ask(&format!("delete {id}")), "DELETED");
        }
    }
    assert_eq!(worker.ask("reserve-with-timeout 1"), "TIMED_OUT");
    first.put("5 1 2", "job");
    let job = worker.ask("reserve");
    assert!(job.starts_with("RESERVED"), "{job} after the delay");
    assert_eq!(worker.ask("reserve-with-timeout 50"), "DEADLINE_SOON");
    assert!(worker.ask("reserve-with-timeout 50").starts_with("DEADLINE_SOON"), "it is in its last second");
    group.wait_until_equal();
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}

#[test]
fn nothing_is_given_to_a_client_that_waited_and_is_gone() {
    let group = Group::up(&[]);
    let mut first = group.client(1);
    let waiting = |first: &mut Client, number: &str| {
        wait_until("clients wait, or do so no more", || {
            line_of(&first.ask("stats"), "current-waiting") == number
        });
    };
    let mut closes = group.client(2);
    closes.send("reserve").expect("it is sent");
    waiting(&mut first, "1");
    drop(closes);
    waiting(&mut first, "0");
    // A replica dies, with a client that waits in two regions and one that has a job.
    let (mut worker, mut dies) = (group.client(3), group.client(3));
    let taken = first.put("5 0 1000", "taken");
    assert!(worker.ask("reserve").starts_with(&format!("RESERVED {taken} ")));
    TUBES.iter().for_each(|tube| assert!(dies.ask(&format!("watch {tube}")).starts_with("WATCHING")));
    dies.send("reserve").expect("it is sent");
    waiting(&mut first, "1");
    group.signal(3, Signal::KILL);
    waiting(&mut first, "0");
    wait_until("the job is ready", || first.ask(&format!("stats-job {taken}")).contains("state: ready\n"));
    for tube in TUBES {
        assert_eq!(first.ask(&format!("stats-tube {tube}")), "NOT_FOUND", "no client watches it");
    }
    assert_eq!(line_of(&first.ask("stats"), "current-connections"), "1");
    assert_eq!(line_of(&first.ask("stats"), "current-workers"), "0");
    group.wait_until_equal();
}

#[test]
fn delays_reservations_and_pauses_end_at_every_replica() {
    let group = Group::up(&[]);
    let (mut first, mut second) = (group.client(1), group.client(2));
    let id = first.put("5 1 1", "job");
    assert_eq!(first.ask("reserve-with-timeout 0"), "TIMED_OUT", "it is delayed");
    let reserve = |client: &mut Client| client.ask("reserve-with-timeout 0").starts_with("RESERVED");
    wait_until("the delay is over", || reserve(&mut first));
    wait_until("the reservation is over", || reserve(&mut second));
    let stats = first.ask(&format!("stats-job {id}"));
    assert_eq!((line_of(&stats, "reserves"), line_of(&stats, "timeouts")), ("2".to_owned(), "1".to_owned()));
    assert_eq!(first.ask(&format!("delete {id}")), "NOT_FOUND", "it is the other one's");
    assert_eq!(second.ask(&format!("release {id} 1 0")), "RELEASED");
    assert_eq!(second.ask("pause-tube default 1"), "PAUSED");
    wait_until("the pause is over", || reserve(&mut first));
    group.wait_until_equal();
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}

#[test]
fn a_draining_queue_takes_no_jobs() {
    let group = Group::up(&[]);
    let mut client = group.client(1);
    client.put("5 0 1", "job");
    let set = group.command(&["group", "set", "draining", "true"]);
    assert!(set.contains("draining"), "{set}");
    assert_eq!(client.ask("put 5 0 1 3\r\njob"), "DRAINING");
    assert!(client.ask("reserve-with-timeout 0").starts_with("RESERVED"));
    assert_eq!(line_of(&client.ask("stats"), "draining"), "true");
    let refused = group.command(&["group", "set", "draining", "perhaps"]);
    assert!(refused.contains("neither `true`"), "{refused}");
    group.command(&["group", "set", "draining", "false"]);
    client.put("5 0 1", "job");
}

/// Replica 3 is killed twice while clients of all replicas put jobs, and workers of all reserve and delete them.
#[test]
fn no_job_is_lost_or_doubled_while_a_replica_is_killed_under_load() {
    const JOBS: usize = 1_000;
    let group = Group::up(&[]);
    let (all_put, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (put, unsure, deleted) = thread::scope(|scope| {
        let (group, all_put, count) = (&group, &all_put, &count);
        let producers: Vec<_> =
            (1..=3).map(|replica| scope.spawn(move || produce(group, replica, JOBS, count))).collect();
        let workers: Vec<_> =
            (1..=3).map(|replica| scope.spawn(move || consume(group, replica, all_put))).collect();
        for jobs in [JOBS / 2, JOBS] {
            wait_until("jobs are put", || count.load(Ordering::Relaxed) >= jobs);
            group.signal(3, Signal::KILL);
        }
        let (mut put, mut unsure) = (BTreeSet::new(), BTreeSet::new());
        for producer in producers {
            let (jobs, lost) = producer.join().expect("a producer ends well");
            put.extend(jobs);
            unsure.extend(lost);
        }
        all_put.store(true, Ordering::Relaxed);
        let (mut deleted, mut perhaps) = (Vec::new(), BTreeSet::new());
        for worker in workers {
            let (jobs, lost) = worker.join().expect("a worker ends well");
            deleted.extend(jobs);
            perhaps.extend(lost);
        }
        // No other worker does what was deleted without a reply; what was not, one does.
        let once: BTreeSet<String> = deleted.iter().cloned().collect();
        deleted.extend(perhaps.into_iter().filter(|job| !once.contains(job)));
        (put, unsure, deleted)
    });
    let once: BTreeSet<String> = deleted.iter().cloned().collect();
    assert_eq!(once.len(), deleted.len(), "a job was done twice");
    assert!(put.is_subset(&once), "lost: {:?}", put.difference(&once).collect::<Vec<_>>());
    let unasked: Vec<_> = once.difference(&put).filter(|job| !unsure.contains(*job)).collect();
    assert!(unasked.is_empty(), "{unasked:?} were not put");
    assert!(put.len() >= 2 * JOBS, "{} jobs were put", put.len());
    let stats = group.client(1).ask("stats-tube default");
    assert_eq!([line_of(&stats, "current-jobs-ready"), line_of(&stats, "current-jobs-reserved")], ["0", "0"]);
    group.wait_until_equal();
}

/// Asks a client of a replica, and connects again once the connection has ended; none if it ended meanwhile.
fn ask(group: &Group, replica: usize, client: &mut Option<Client>, command: &str) -> Option<String> {
    if client.is_none() {
        wait_until("the replica serves", || {
            *client = Client::connect(group.address(replica));
            client.is_some()
        });
    }
    let reply = client.as_mut().and_then(|client| client.try_ask(command));
    if reply.is_none() {
        *client = None;
    }
    reply
}

/// Puts jobs at a replica. Returns those that were acknowledged, and those whose reply was lost with the connection.
fn produce(group: &Group, replica: usize, jobs: usize, count: &AtomicUsize) -> (Vec<String>, Vec<String>) {
    let (mut put, mut unsure, mut client) = (Vec::new(), Vec::new(), None);
    for number in 0..jobs {
        let job = format!("{replica}.{number}");
        match ask(group, replica, &mut client, &format!("put 5 0 600 {}\r\n{job}", job.len())) {
            Some(reply) if reply.starts_with("INSERTED ") => put.push(job),
            Some(reply) => panic!("{reply}"),
            None => unsure.push(job),
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    (put, unsure)
}

/// Reserves and deletes jobs at a replica until there are none, after all were put. Returns those that were deleted,
/// and those whose reply was lost with the connection.
fn consume(group: &Group, replica: usize, all_put: &AtomicBool) -> (Vec<String>, Vec<String>) {
    let (mut done, mut unsure, mut client) = (Vec::new(), Vec::new(), None);
    loop {
        let was_all = all_put.load(Ordering::Relaxed);
        let Some(job) = ask(group, replica, &mut client, "reserve-with-timeout 1") else { continue };
        if job == "TIMED_OUT" {
            if was_all {
                return (done, unsure);
            }
            continue;
        }
        let (head, body) = job.split_once("\r\n").expect("a job");
        let id = head.split(' ').nth(1).expect("an id");
        match ask(group, replica, &mut client, &format!("delete {id}")) {
            Some(reply) => {
                assert_eq!(reply, "DELETED");
                done.push(body.to_owned());
            }
            None => unsure.push(body.to_owned()),
        }
    }
}
