//! Hardened dnscache against the same program without protection and against what the zone says, on random queries; and
//! what the protection costs it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use harden::compile::Variant;
use wire::SplitMix64;
use zone::{A, CNAME, MX, Question, TXT, WrongAnswer, check};

use crate::support::{DETECTED, address_of, built, requests, skipped};

/// Queries that wait for their replies at the same time; dnscache has room for 200.
const WINDOW: usize = 64;
/// How long a reply may take: dnscache gives up on a server after a minute.
const PATIENCE: Duration = Duration::from_secs(90);
/// A cache that has room for all names, and one that has not.
const ROOMY: u32 = 1_000_000;
const TIGHT: u32 = 20_000;

/// Port 53 is written in the program; the addresses are those of this process.
fn own(last: u8) -> Ipv4Addr {
    let number = std::process::id();
    Ipv4Addr::new(127, 1 + (number >> 8) as u8 % 60, number as u8, last)
}

/// Starts the zone's servers once for all tests. False, with one line, where that is not permitted.
fn zone_is_served() -> bool {
    static SERVED: OnceLock<Result<(), String>> = OnceLock::new();
    let served = SERVED.get_or_init(|| zone::serve(own(1), own(2)).map_err(|error| error.to_string()));
    if let Err(error) = served {
        skipped(&format!("dnscache needs port 53, and with it root or a network namespace: {error}"));
    }
    served.is_ok()
}

/// These variants, where they can be built and the zone is served; none, with one line, elsewhere.
fn programs<const N: usize>(variants: [Variant; N]) -> Option<[PathBuf; N]> {
    let programs: Vec<PathBuf> =
        variants.iter().map(|&variant| built("dnscache", variant)).collect::<Option<_>>()?;
    zone_is_served().then_some(programs)?.try_into().ok()
}

/// A dnscache on port 53 of a loopback address.
struct Cache {
    child: Child,
    address: SocketAddrV4,
    _root: tempfile::TempDir,
}

impl Cache {
    fn start(program: &Path, bytes: u32) -> Cache {
        Cache::start_by(Command::new(program), bytes)
    }

    /// Starts one by this command.
    fn start_by(mut command: Command, bytes: u32) -> Cache {
        static STARTED: AtomicU8 = AtomicU8::new(10);
        let own_address = own(STARTED.fetch_add(1, Ordering::Relaxed));
        let root = tempfile::tempdir().expect("a folder");
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("our folder");
        for folder in ["servers", "ip"] {
            fs::create_dir(root.path().join(folder)).expect("made");
        }
        fs::write(root.path().join("servers/@"), format!("{}\n", own(1))).expect("written");
        fs::write(root.path().join("ip/127"), "").expect("written");
        fs::write(root.path().join("seed"), [7; 128]).expect("written");
        command.env("ROOT", root.path());
        command.env("IP", own_address.to_string()).env("IPSEND", own_address.to_string());
        command.env("CACHESIZE", bytes.to_string()).env("UID", "65534").env("GID", "65534");
        // What is left of a record's time is a clock's.
        command.env("HIDETTL", "1");
        command.stdin(File::open(root.path().join("seed")).expect("opened")).stderr(Stdio::null());
        let child = command.spawn().expect("dnscache starts");
        let cache = Cache { child, address: SocketAddrV4::new(own_address, 53), _root: root };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(cache.address).is_err() {
            assert!(Instant::now() < deadline, "dnscache does not answer on {own_address}");
            std::thread::sleep(Duration::from_millis(10));
        }
        cache
    }

    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        let detected = ended.is_some_and(|status| status.code() == Some(DETECTED));
        assert!(!detected, "the library detected a fault where there was none");
        assert_eq!(ended, None, "the server has ended");
    }

    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        socket.connect(self.address).expect("loopback");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket
    }

    fn over_tcp(&self, query: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).expect("sent");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a reply");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).expect("a reply");
        reply
    }

    /// Time that it has run on a processor, in nanoseconds.
    fn processor_ns(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).expect("a process");
        text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("nanoseconds")
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reply to this query: others on the socket would be late ones.
fn ask(socket: &UdpSocket, query: &[u8]) -> Vec<u8> {
    socket.send(query).expect("sent");
    let mut buffer = [0; 1024];
    loop {
        let length = socket.recv(&mut buffer).expect("a reply");
        if buffer[..2] == query[..2] {
            return buffer[..length].to_vec();
        }
    }
}

/// Questions whose replies fit into datagrams.
fn short_questions(hosts: u64, zones: u64) -> Vec<Question> {
    let names = (0..hosts).flat_map(|host| (0..zones).map(move |zone| (host, zone)));
    let all = names.flat_map(|(host, zone)| [A, CNAME, MX, TXT].map(|kind| Question { host, zone, kind }));
    all.filter(Question::fits).collect()
}

/// A client with many queries under way, which checks every reply against the zone.
struct Load {
    socket: UdpSocket,
    questions: Vec<Question>,
    random: SplitMix64,
    id: u16,
}

impl Load {
    fn new(cache: &Cache, hosts: u64, zones: u64, seed: u64) -> Load {
        let questions = short_questions(hosts, zones);
        Load { socket: cache.socket(), questions, random: SplitMix64::new(seed), id: 0 }
    }

    /// Asks every question once.
    fn fill(&mut self) {
        for question in self.questions.clone() {
            let query = question.query(0);
            assert_eq!(check(&query, &ask(&self.socket, &query)), Ok(()), "{question:?}");
        }
    }

    fn send(&mut self, waiting: &mut HashMap<u16, Question>) {
        let question = *self.random.pick(&self.questions);
        self.id = self.id.wrapping_add(1);
        assert!(
            waiting.insert(self.id, question).is_none(),
            "query {} has waited for 65,535 others",
            self.id
        );
        self.socket.send(&question.query(self.id)).expect("sent");
    }

    /// Sends this many queries and checks all replies.
    fn run(&mut self, queries: u64) {
        let mut waiting = HashMap::new();
        let mut sent = 0;
        let mut buffer = [0; 1024];
        while sent < queries || !waiting.is_empty() {
            while sent < queries && waiting.len() < WINDOW {
                self.send(&mut waiting);
                sent += 1;
            }
            let length = self.socket.recv(&mut buffer).expect("a reply");
            let reply = &buffer[..length];
            let id = zone::id(reply).expect("an id");
            let question = waiting.remove(&id).expect("a reply to a query that waits");
            assert_eq!(check(&question.query(id), reply), Ok(()), "{question:?}: {reply:?}");
        }
    }
}

#[test]
fn answers_as_without_protection_and_as_the_zone_says() {
    let Some([native, hardened]) = programs([Variant::Native, Variant::Sei]) else { return };
    // The second cache is too small for the names that are asked for.
    for (round, bytes) in [(0, ROOMY), (1, TIGHT)] {
        let native = Cache::start(&native, bytes);
        let mut hardened = Cache::start(&hardened, bytes);
        let sockets = [native.socket(), hardened.socket()];
        let mut random = SplitMix64::new(round);
        for id in 0..requests(50_000, 5_000_000) {
            let kind = *random.pick(&[A, A, A, MX, TXT]);
            let question = Question { host: random.below(400), zone: random.below(8), kind };
            let query = question.query(id as u16);
            let mut replies = sockets.each_ref().map(|socket| ask(socket, &query));
            if check(&query, &replies[1]) == Err(WrongAnswer::Truncated) {
                assert_eq!(replies[0], replies[1], "{question:?}");
                replies = [native.over_tcp(&query), hardened.over_tcp(&query)];
            }
            let [left, right] = replies;
            assert_eq!(left, right, "{question:?}");
            assert_eq!(check(&query, &right), Ok(()), "{question:?}: {right:?}");
        }
        hardened.assert_runs();
    }
}

/// Every reply is checked, and the library detects no fault: there is none.
#[test]
fn a_soak_has_no_false_detection() {
    let Some([hardened]) = programs([Variant::Sei]) else { return };
    let queries = requests(100_000, 10_000_000);
    for (seed, bytes, share) in [(1, ROOMY, queries / 10 * 9), (2, TIGHT, queries / 10)] {
        let mut cache = Cache::start(&hardened, bytes);
        let begun = Instant::now();
        Load::new(&cache, 400, 8, seed).run(share);
        println!("{share} queries, a cache of {bytes} bytes: {:.1} s", begun.elapsed().as_secs_f64());
        cache.assert_runs();
    }
}

/// Processor time of a query with and without protection, in turns: a server that is busy all the time answers as many
/// queries in a second as that allows. Prints medians and the whole spread.
fn compare_throughput(what: &str, programs: &[PathBuf; 2], bytes: u32, hosts: u64) {
    let caches = programs.each_ref().map(|program| Cache::start(program, bytes));
    let mut loads = caches.each_ref().map(|cache| Load::new(cache, hosts, 8, 3));
    loads.iter_mut().for_each(Load::fill);
    let queries = requests(4_000, 40_000);
    let mut rounds: Vec<[f64; 3]> = (0..25)
        .map(|_| {
            let [native, hardened] = [0, 1].map(|at: usize| {
                let before = caches[at].processor_ns();
                loads[at].run(queries);
                (caches[at].processor_ns() - before) as f64 / queries as f64 / 1000.0
            });
            [native / hardened, native, hardened]
        })
        .collect();
    for (at, name) in ["throughput, sei over native", "native, us", "sei, us"].iter().enumerate() {
        rounds.sort_by(|one, other| one[at].total_cmp(&other[at]));
        let [low, middle, high] = [0, rounds.len() / 2, rounds.len() - 1].map(|round| rounds[round][at]);
        println!("{what}: {name}: {middle:.3} ({low:.3} to {high:.3})");
    }
}

/// The paper's Deadwood keeps at least half of its throughput; docs/performance.md has figures. Only in a long run,
/// which has the machine for itself, and it only prints: a ratio of times is no reason to fail.
#[test]
fn throughput_is_compared_with_that_without_protection() {
    if std::env::var_os("CROSSCHECK_LONG").is_none() {
        println!("not compared: this is no long run (CROSSCHECK_LONG=1)");
        return;
    }
    let Some(programs) = programs([Variant::Native, Variant::Sei]) else { return };
    compare_throughput("all names in the cache", &programs, ROOMY, 100);
    compare_throughput("a cache too small", &programs, TIGHT, 400);
}

/// Cycles of the processor in the parts of the event loop, as the variants that count them leave them in memory.
struct Parts {
    memory: File,
    address: u64,
}

impl Parts {
    fn of(program: &Path, cache: &Cache) -> Parts {
        let process = cache.child.id();
        let memory = File::open(format!("/proc/{process}/mem")).expect("a process of ours");
        Parts { memory, address: address_of("sei_part_cycles", program, process) }
    }

    /// Dispatching and handling, and both together.
    fn read(&self) -> [u64; 3] {
        let mut bytes = [0; 32];
        self.memory.read_exact_at(&mut bytes, self.address).expect("the program's counters");
        // In the order of `enum sei_part`: waiting is left out, and dnscache sends in its handlers.
        let part = |number: usize| u64::from_ne_bytes(*bytes[8 * number..].first_chunk().expect("a word"));
        [part(1), part(2), part(1) + part(2)]
    }
}

/// The SEI paper's Table 5 has 2.4 for handlers and 1.41 for all of Deadwood. A handler of dnscache contains its system
/// calls: it sends its reply and writes its log. Prints medians of the ratios and the whole spread.
#[test]
fn cycles_are_counted_in_each_part() {
    let Some(programs) = programs([Variant::NativeCycles, Variant::SeiCycles]) else { return };
    let caches = programs.each_ref().map(|program| Cache::start(program, ROOMY));
    let parts = [0, 1].map(|at| Parts::of(&programs[at], &caches[at]));
    let mut loads = caches.each_ref().map(|cache| Load::new(cache, 100, 8, 3));
    loads.iter_mut().for_each(Load::fill);
    let queries = requests(4_000, 40_000);
    let mut rounds: Vec<[[f64; 3]; 2]> = (0..requests(5, 25))
        .map(|_| {
            [0, 1].map(|at: usize| {
                let before = parts[at].read();
                loads[at].run(queries);
                let after = parts[at].read();
                [0, 1, 2].map(|part| (after[part] - before[part]) as f64 / queries as f64)
            })
        })
        .collect();
    for (part, name) in ["dispatching", "handling", "all"].into_iter().enumerate() {
        let ratio = |[native, hardened]: &[[f64; 3]; 2]| hardened[part] / native[part];
        rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let [low, middle, high] = [0, rounds.len() / 2, rounds.len() - 1].map(|round| rounds[round]);
        println!(
            "{name}: {:.0} cycles a query, {:.0} hardened: {:.2} ({:.2} to {:.2})",
            middle[0][part],
            middle[1][part],
            ratio(&middle),
            ratio(&low),
            ratio(&high)
        );
        assert!(middle[0][part] > 0.0 && middle[1][part] > 0.0, "both count: {middle:?}");
    }
}

/// A cache under a tool of valgrind, whose report goes to a file; none, with one line, where there is no valgrind.
fn under_valgrind(program: &Path, options: &[&str], report: &Path) -> Option<Cache> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skipped("valgrind is not installed; install it with: apt-get install valgrind libc6-dbg");
        return None;
    }
    let mut command = Command::new("valgrind");
    // dnscache has another root folder soon: what valgrind needs later it must have open.
    command.arg("--vgdb=no").arg(format!("--log-file={}", report.display())).args(options).arg(program);
    Some(Cache::start_by(command, ROOMY))
}

/// As for memcached: no instruction of the program, its shims and the library touches memory that is not its own.
#[test]
fn memcheck_finds_nothing_in_dnscache() {
    let Some([hardened]) = programs([Variant::Sei]) else { return };
    let report = tempfile::NamedTempFile::new().expect("a file");
    let options = ["--error-exitcode=99", "--exit-on-first-error=yes", "--undef-value-errors=no"];
    let Some(mut cache) = under_valgrind(&hardened, &options, report.path()) else { return };
    let mut load = Load::new(&cache, 60, 4, 4);
    load.run(requests(2_000, 100_000));
    // Longer replies come over TCP.
    let question = Question { host: 13, zone: 1, kind: TXT };
    assert!(!question.fits());
    let query = question.query(1);
    assert_eq!(check(&query, &cache.over_tcp(&query)), Ok(()));
    cache.assert_runs();
    let text = fs::read_to_string(report.path()).expect("a report");
    assert!(text.contains("Memcheck"), "valgrind ran it: {text}");
}

/// Instructions of a cache that starts, fills itself, and answers this many queries; none without valgrind.
fn instructions(program: &Path, queries: u64) -> Option<u64> {
    let report = tempfile::NamedTempFile::new().expect("a file");
    let options = ["--tool=lackey", "--basic-counts=yes"];
    let mut cache = under_valgrind(program, &options, report.path())?;
    let mut load = Load::new(&cache, 30, 2, 5);
    load.fill();
    load.run(queries);
    cache.assert_runs();
    let id = cache.child.id().to_string();
    let reported = Command::new("kill").args(["-TERM", &id]).status().expect("kill");
    assert!(reported.success());
    cache.child.wait().expect("a child");
    let text = fs::read_to_string(report.path()).expect("a report");
    let counted = text.lines().find_map(|line| line.split_once("guest instrs:"));
    let number = counted.and_then(|(_, number)| number.trim().replace(',', "").parse().ok());
    Some(number.unwrap_or_else(|| panic!("valgrind counted nothing: {text}")))
}

/// More than twice as many: the two runs are there. Less than eight times as many: what they cost beside that.
#[test]
fn instructions_of_a_query_are_bounded() {
    let Some([native, hardened]) = programs([Variant::Native, Variant::Sei]) else { return };
    let more = requests(1_000, 10_000);
    let [native, hardened] = [native, hardened].map(|program| {
        let [few, many] = [100, 100 + more].map(|queries| instructions(&program, queries));
        Some((many? - few?) as f64 / more as f64)
    });
    let (Some(native), Some(hardened)) = (native, hardened) else { return };
    println!("instructions of a query from the cache: {native:.0} native, {hardened:.0} sei");
    assert!((2.0..8.0).contains(&(hardened / native)), "{native:.0} become {hardened:.0}");
}
