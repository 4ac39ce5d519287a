//! A few requests with long replies: 7.5 kB request 3.8 GB. No replica may treat that as a hang, keep all replies in
//! memory, or delay other clients.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::lab::{HostileRun, Lab, REPLICAS, Setup};
use super::outcome::Case;
use super::watch::HostileWatch;
use super::{ms, wire};
use node::view::grouped;

/// Length of the requested value.
const VALUE: usize = 1_048_000;
/// How often each request contains its key.
const KEYS: usize = 60;
/// Pipelined requests.
const REQUESTS: usize = 60;
/// Connections that send one such request each.
const CONNECTIONS: usize = 100;
/// Longer than the watchdog's five seconds.
const LASTS: Duration = Duration::from_secs(7);
/// How long all replies may take to be read; exceeding it is no error.
const READ: Duration = Duration::from_secs(20);
/// How long a group that is restarted with such requests in its log may take until it serves.
const AGAIN: Duration = Duration::from_secs(20);
/// Values that were acknowledged before.
const KEPT: usize = 1_000;

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    for (workers, disk) in [(1, false), (2, false), (1, true), (2, true)] {
        let lab = run.cluster(Setup { workers, disk, ..Setup::default() })?;
        lab.store(1, "kept", KEPT, 100)?;
        lab.client(1)?.set("b", 0, &vec![b'v'; VALUE])?;
        let of = format!(
            "{workers} worker{}, log {}",
            if workers == 1 { "" } else { "s" },
            if disk { "on disk" } else { "in memory" }
        );
        let request = format!("get{}\r\n", " b".repeat(KEYS));
        let bytes = grouped((request.len() * REQUESTS) as u64);
        attack(
            run,
            &lab,
            format!("{of}: {REQUESTS} pipelined requests, {bytes} bytes, nothing is read"),
            |lab, case| {
                let mut stream = wire::connect(lab.clients(1))?;
                stream.write_all(request.repeat(REQUESTS).as_bytes())?;
                run.sleep(LASTS)?;
                case.add_note(format!("nothing read for {}", ms(LASTS)));
                Ok(())
            },
        )?;
        attack(run, &lab, format!("{of}: the same, and all of it is read"), |lab, case| {
            let mut stream = wire::connect(lab.clients(1))?;
            stream.write_all(request.repeat(REQUESTS).as_bytes())?;
            read(&mut stream, case, REQUESTS);
            Ok(())
        })?;
        attack(
            run,
            &lab,
            format!("{of}: {CONNECTIONS} connections with one such request each, nothing is read"),
            |lab, _| {
                let mut held = wire::connect_all(lab.clients(1), CONNECTIONS);
                held.iter_mut().for_each(|stream| drop(stream.write_all(request.as_bytes())));
                run.sleep(LASTS)
            },
        )?;
        if disk {
            restart(run, &lab, &of)?;
        }
    }
    Ok(())
}

fn attack(
    run: &HostileRun<'_>,
    lab: &Lab<'_>,
    description: String,
    act: impl FnOnce(&Lab<'_>, &mut Case) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut case = Case::new(description);
    lab.forget();
    let watch = HostileWatch::start(lab)?;
    act(lab, &mut case)?;
    let watched = watch.finish();
    lab.check_alive(&mut case);
    watched.check_waits(&mut case, &REPLICAS);
    watched.check_memory(&mut case);
    lab.check_stored(&mut case, &REPLICAS, "kept", KEPT, 100);
    run.record_case(case);
    Ok(())
}

fn read(stream: &mut TcpStream, case: &mut Case, requests: usize) {
    let expected = requests * (KEYS * (format!("VALUE b 0 {VALUE}\r\n").len() + VALUE + 2) + "END\r\n".len());
    let began = Instant::now();
    let taken = wire::drain(stream, expected, began + READ);
    let (taken_mb, seconds) = (taken / 1_000_000, began.elapsed().as_secs_f64());
    case.add_note(format!("{} MB were read in {seconds:.1} s", grouped(taken_mb as u64)));
    let what = "the reader receives every byte, or as many as the time allows";
    let holds = taken == expected || began.elapsed() >= READ;
    case.check(holds, what, format!("{} of {} bytes", grouped(taken as u64), grouped(expected as u64)));
}

/// The requests are in the logs: each restart executes them again.
fn restart(run: &HostileRun<'_>, lab: &Lab<'_>, of: &str) -> anyhow::Result<()> {
    let mut case = Case::new(format!(
        "{of}: all replicas are killed and started again, with these requests in their logs"
    ));
    lab.forget();
    lab.down(&REPLICAS);
    lab.up(&REPLICAS);
    let back = lab.until_served(&REPLICAS, AGAIN)?;
    let seen = back.map_or_else(|| lab.seen(), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), format!("all serve again within {}", ms(AGAIN)), seen);
    lab.check_alive(&mut case);
    lab.check_stored(&mut case, &REPLICAS, "kept", KEPT, 100);
    run.record_case(case);
    Ok(())
}
