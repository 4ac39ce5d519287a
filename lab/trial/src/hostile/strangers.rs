//! Strangers connect to the ports of peers and admin commands: they are refused, counted and reported, they displace no
//! connection, and no web page can give a command.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::admin::{Endpoint, Token};
use crosscheck::private;

use super::lab::{HostileRun, Lab, PATIENCE, REPLICAS, Setup};
use super::outcome::Case;
use super::watch::HostileWatch;
use super::{ms, wire};
use cli::service::NodeConfig;
use node::cluster::ports;

/// Duration of the attack.
const LASTS: Duration = Duration::from_secs(4);
/// Half-open connections to each replica's peers' port at a time.
const HALF_OPEN: usize = 300;
/// Connections without a proof of identity that a replica keeps (`peers/guests.rs`), and some for other, short ones.
const KEPT: usize = 64 + 16;
/// A replica's status is at most this old.
const FRESH: Duration = Duration::from_millis(300);
/// How long a replica that is restarted meanwhile may take until it serves.
const BACK: Duration = Duration::from_secs(5);
/// The most lines about strangers per second in a log, with a few at the beginning.
const LINES_PER_SECOND: u64 = 2;
/// The secret of the admin port.
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The request that a web page makes a browser send, to any port.
const POST: &str = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\n\
                    {\"cmd\":\"shutdown\"}\n";

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    // The cluster uses the first six that are free.
    let port = ports::pick(12, &[])?[11];
    let change = |node: &mut NodeConfig, scratch: &std::path::Path| {
        if node.this_replica == 2 {
            let (token, path) = (Token::parse(SECRET), scratch.join("admin.token"));
            if let (Ok(token), Ok(())) = (token, private::create(&path, SECRET)) {
                node.admin = Endpoint::Tcp { address: ports::loopback(port), token };
                node.admin_token_file = Some(path);
            }
        }
    };
    let lab = run.cluster(Setup { change: &change, ..Setup::default() })?;
    lab.store(1, "kept", 100, 100)?;
    let recorded = record(&lab).context("recording a hello")?;
    garbage(run, &lab)?;
    replayed(run, &lab, &recorded)?;
    half_open(run, &lab, &[])?;
    half_open(run, &lab, &recorded)?;
    admin(run, &lab)
}

/// The first record of each replica that connects to replica 1, as received by another program on that port.
fn record(lab: &Lab<'_>) -> anyhow::Result<Vec<Vec<u8>>> {
    lab.down(&[1]);
    let listener = TcpListener::bind(lab.peers(1)).context("listening in the place of replica 1")?;
    let mut recorded = Vec::new();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut record = vec![0; 12];
        stream.read_exact(&mut record)?;
        let length = usize::from(u16::from_le_bytes([record[0], record[1]]));
        record.resize(12 + length, 0);
        stream.read_exact(&mut record[12..])?;
        recorded.push(record);
    }
    drop(listener);
    lab.up(&[1]);
    lab.until(PATIENCE, Lab::is_whole)?.context("the group does not serve again")?;
    Ok(recorded)
}

/// Records the connections between replicas and the leader, until requested to finish.
struct Links {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<(usize, Vec<u8>)>,
}

impl Links {
    fn start(lab: &Lab<'_>) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let (own, observer) = (Arc::clone(&over), Arc::clone(&lab.keeper.observer));
        // Its status may be older than the attack.
        thread::sleep(FRESH);
        let thread = thread::Builder::new().name("links".into()).spawn(move || {
            let (mut fewest, mut leaders) = (usize::MAX, Vec::new());
            while !own.load(Ordering::Relaxed) {
                for status in observer.rows().into_iter().filter_map(|row| row.seen.ok()) {
                    fewest = fewest.min(status.peers.len());
                    leaders.extend(status.leader);
                }
                leaders.sort_unstable();
                leaders.dedup();
                thread::sleep(Duration::from_millis(20));
            }
            (fewest, leaders)
        })?;
        Ok(Links { over, thread })
    }

    fn check(self, case: &mut Case) {
        self.over.store(true, Ordering::Relaxed);
        let (fewest, leaders) = self.thread.join().unwrap_or_default();
        let seen = format!("at least {fewest} of 2 connected at any time");
        case.check(fewest == 2, "no live link is displaced", seen);
        case.check(leaders.len() == 1, "no other leader is elected", format!("leaders: {leaders:?}"));
    }
}

fn strangers(lab: &Lab<'_>) -> Vec<u64> {
    let counted = |number: &u8| lab.status(*number).map_or(0, |status| status.refused.strangers);
    REPLICAS.iter().map(counted).collect()
}

/// Checks that strangers are counted and reported, at a limited rate; `sent` is the least number of them at each
/// replica.
fn check_counted(case: &mut Case, lab: &Lab<'_>, before: &[u64], sent: u64, took: Duration) {
    let counted: Vec<u64> = strangers(lab).iter().zip(before).map(|(now, before)| now - before).collect();
    let holds = counted.iter().all(|counted| *counted >= sent);
    case.check(
        holds,
        format!("`status` counts them: {sent} at least"),
        format!("{counted:?} refused strangers"),
    );
    let lines: Vec<usize> =
        REPLICAS.iter().map(|number| lab.said(*number, "to the peers' port w").len()).collect();
    let most = 3 + (took.as_secs() + 1) * LINES_PER_SECOND;
    let holds = lines.iter().all(|lines| *lines > 0 && *lines as u64 <= most);
    let what = format!("the log reports them, in {most} lines at most");
    case.check(holds, what, format!("{lines:?} lines in {}", ms(took)));
    case.notes
        .extend(lab.said(1, "to the peers' port w").pop().map(|line| format!("replica 1 says: {line}")));
}

fn garbage(run: &HostileRun<'_>, lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut case = Case::new(
        "at each peers' port, one after the other for 4 s: garbage, HTTP, a length of 65,535, zeros",
    );
    let noise: Vec<u8> = (0u32..4_000).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let pieces: [&[u8]; 5] = [&noise, POST.as_bytes(), &[0xFF; 300], &[0; 300], b"XCHK\x02\x02\x00\x00"];
    lab.forget();
    let before = strangers(lab);
    let (watch, links, began) = (HostileWatch::start(lab)?, Links::start(lab)?, Instant::now());
    let mut sent = 0u64;
    while began.elapsed() < LASTS {
        for number in REPLICAS {
            for piece in pieces {
                let Ok(mut stream) = wire::connect(lab.peers(number)) else { continue };
                wire::send(&mut stream, piece, Instant::now() + Duration::from_secs(1));
            }
        }
        sent += pieces.len() as u64;
        run.sleep(Duration::from_millis(20))?;
    }
    let took = began.elapsed();
    links.check(&mut case);
    watch.finish().check_waits(&mut case, &REPLICAS);
    // A connection that ends before it has sent a header does not count as an attempt.
    check_counted(&mut case, lab, &before, sent / 2, took);
    lab.check_alive(&mut case);
    case.add_note(format!("{sent} connections to each replica"));
    run.record_case(case);
    Ok(())
}

fn replayed(run: &HostileRun<'_>, lab: &Lab<'_>, recorded: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut case = Case::new("recorded hellos of replicas 2 and 3, sent again to replicas 1 and 2 for 4 s");
    lab.forget();
    let (watch, links, began) = (HostileWatch::start(lab)?, Links::start(lab)?, Instant::now());
    let (mut sent, mut answered, mut held) = (0u64, 0u64, Vec::new());
    while began.elapsed() < LASTS {
        for (number, record) in
            [1, 2].iter().flat_map(|number| recorded.iter().map(move |record| (*number, record)))
        {
            let Ok(mut stream) = wire::connect(lab.peers(number)) else { continue };
            let until = Instant::now() + Duration::from_millis(30);
            wire::send(&mut stream, record, until);
            answered += u64::from(wire::drain(&mut stream, 1, until) > 0);
            sent += 1;
            held.push(stream);
        }
        run.sleep(Duration::from_millis(5))?;
    }
    case.add_note(format!(
        "{sent} times; {answered} were answered, as they begin with bytes that a replica once sent"
    ));
    links.check(&mut case);
    watch.finish().check_waits(&mut case, &REPLICAS);
    lab.check_alive(&mut case);
    run.record_case(case);
    Ok(())
}

/// A replica is killed and restarted while strangers use the others' connections for peers that have not authenticated
/// themselves.
fn half_open(run: &HostileRun<'_>, lab: &Lab<'_>, hellos: &[Vec<u8>]) -> anyhow::Result<()> {
    let with = if hellos.is_empty() { "with a byte each" } else { "that begin with a recorded hello" };
    let mut case = Case::new(format!(
        "{HALF_OPEN} half-open connections {with} to each peers' port all the time, for 4 s; replica 3 is \
            killed and started again"
    ));
    lab.forget();
    let (watch, began) = (HostileWatch::start(lab)?, Instant::now());
    let over = AtomicBool::new(false);
    let pids: Vec<u32> = [1, 2].iter().filter_map(|number| lab.pid(*number)).collect();
    let before = open_files(&pids);
    let (back, opened, most) = thread::scope(|scope| {
        let (over, floods) = (&over, REPLICAS.map(|number| lab.peers(number)));
        let floods = floods.map(|address| scope.spawn(move || flood(address, hellos, over)));
        let files = scope.spawn(|| most_files(&pids, over));
        let back = killed_meanwhile(run, lab, began);
        over.store(true, Ordering::Relaxed);
        let opened = floods.into_iter().map(|flood| flood.join().unwrap_or(0)).sum::<usize>();
        (back, opened, files.join().unwrap_or_default())
    });
    let back = back?;
    let holds =
        most.len() == 2 && before.iter().zip(&most).all(|(before, most)| *most > 0 && *most <= before + KEPT);
    let seen = format!("{most:?} files at most, {before:?} before");
    case.check(holds, format!("replicas 1 and 2 keep {KEPT} of them at most"), seen);
    case.add_note(format!("{opened} were opened"));
    let seen =
        back.map_or_else(|| format!("not within {}", ms(BACK)), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), format!("replica 3 serves again within {}", ms(BACK)), seen);
    watch.finish().check_waits(&mut case, &[1, 2]);
    lab.check_alive(&mut case);
    let whole = lab.until(PATIENCE, Lab::is_whole)?;
    case.check(whole.is_some(), "all are connected in the end", lab.seen());
    lab.check_stored(&mut case, &REPLICAS, "kept", 100, 100);
    run.record_case(case);
    Ok(())
}

fn open_files(pids: &[u32]) -> Vec<usize> {
    let count = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    pids.iter().map(count).collect()
}

/// The largest number of files that each of these processes had open until requested to finish.
fn most_files(pids: &[u32], over: &AtomicBool) -> Vec<usize> {
    let mut most = vec![0; pids.len()];
    while !over.load(Ordering::Relaxed) {
        most.iter_mut().zip(open_files(pids)).for_each(|(most, now)| *most = now.max(*most));
        thread::sleep(Duration::from_millis(20));
    }
    most
}

fn killed_meanwhile(run: &HostileRun<'_>, lab: &Lab<'_>, began: Instant) -> anyhow::Result<Option<Duration>> {
    run.sleep(Duration::from_secs(1))?;
    lab.down(&[3]);
    lab.up(&[3]);
    let back = lab.until(BACK, Lab::is_whole)?;
    run.sleep(LASTS.saturating_sub(began.elapsed()))?;
    Ok(back)
}

/// Keeps as many connections half open as possible, and replaces the oldest one continuously.
fn flood(address: SocketAddr, hellos: &[Vec<u8>], over: &AtomicBool) -> usize {
    let (mut held, mut opened) = (std::collections::VecDeque::new(), 0);
    while !over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            let said = hellos.get(opened % hellos.len().max(1)).map_or(&[7][..], Vec::as_slice);
            wire::send(&mut stream, said, Instant::now() + Duration::from_millis(50));
            held.push_back(stream);
            opened += 1;
        }
        if held.len() > HALF_OPEN {
            held.pop_front();
        }
        thread::sleep(Duration::from_millis(1));
    }
    opened
}

fn admin(run: &HostileRun<'_>, lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut case = Case::new(
        "an HTTP request whose body is `shutdown`, 20 times to each admin socket, and to the admin port of replica 2",
    );
    lab.forget();
    let pids = REPLICAS.map(|number| lab.pid(number));
    let (mut open, mut done, mut last_answer) = (0, 0, String::new());
    for _ in 0..20 {
        for number in REPLICAS {
            let (answer, is_closed) = match &lab.replica(number).admin {
                Endpoint::Unix(path) => {
                    let mut stream = UnixStream::connect(path)?;
                    // A connection that is refused early may be closed before all bytes are sent.
                    let _ = std::io::Write::write_all(&mut stream, POST.as_bytes());
                    wire::answer(&mut stream, Duration::from_secs(1))
                }
                Endpoint::Tcp { address, .. } => {
                    let mut stream = wire::connect(*address)?;
                    wire::send(&mut stream, POST.as_bytes(), Instant::now() + Duration::from_secs(1));
                    wire::answer(&mut stream, Duration::from_secs(1))
                }
            };
            let text = String::from_utf8_lossy(&answer).into_owned();
            open += usize::from(!is_closed);
            done +=
                usize::from(text.lines().count() > 1 || text.contains("null") || text.contains("\"what\""));
            last_answer = text;
        }
    }
    case.add_note(format!("the last answer: {}", last_answer.trim()));
    case.check(open == 0, "the first line ends the connection", format!("{open} of 60 stayed open"));
    case.check(done == 0, "no line behind it is answered", format!("{done} of 60 were"));
    let same = pids == REPLICAS.map(|number| lab.pid(number));
    case.check(same, "no replica was stopped", if same { "the same 3 processes" } else { "other processes" });
    lab.check_alive(&mut case);
    let modes: Vec<String> = REPLICAS
        .iter()
        .filter_map(|number| match &lab.replica(*number).admin {
            Endpoint::Unix(path) => {
                Some(std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o7777))
            }
            Endpoint::Tcp { .. } => None,
        })
        .map(|mode| format!("{mode:04o}"))
        .collect();
    case.check(modes == ["0600"; 2], "socket files are of mode 0600", modes.join(", "));
    let status = lab.status(2).is_some();
    case.check(
        status,
        "a client with the secret is served at the port",
        if status { "`status` answers" } else { "no answer" },
    );
    run.record_case(case);
    Ok(())
}
