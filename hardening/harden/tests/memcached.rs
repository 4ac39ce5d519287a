//! Hardened memcached against the same program without protection, on the same random requests, byte for byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harden::compile::Variant;
use memcached_client::Client;
use wire::SplitMix64;

use crate::support::{DETECTED, Server, address_of, built, exchange, requests, skipped};
use crate::trace::Trace;

/// Requests that are sent at once.
const BATCH: u64 = 20;
/// Ends a batch: no key or value contains it.
const SENTINEL: &[u8] = b"MN\r\n";

/// Sends the same requests to both servers, and compares what both answer.
fn compare(native: &Server, hardened: &Server, trace: &mut Trace, batches: u64) {
    let mut streams: [TcpStream; 2] = [native.connect(), hardened.connect()];
    for batch in 0..batches {
        let mut sent = Vec::new();
        for _ in 0..BATCH {
            let request = trace.next();
            sent.extend_from_slice(&request.line);
            sent.extend(request.data.iter().flatten());
        }
        sent.extend_from_slice(b"mn\r\n");
        let [left, right] = streams.each_mut().map(|stream| exchange(stream, &sent, SENTINEL));
        let (left, right) = (left.expect("native answers"), right.expect("the hardened one answers"));
        if left != right {
            let (sent, left, right) = (text(&sent), text(&left), text(&right));
            let at = left.lines().zip(right.lines()).take_while(|(left, right)| left == right).count();
            let [left, right] =
                [&left, &right].map(|reply| reply.lines().nth(at).unwrap_or("nothing").to_owned());
            let before: Vec<_> = sent.lines().collect();
            panic!(
                "batch {batch}, line {at} of the replies\nnative   {left}\nhardened {right}\nsent {before:#?}"
            );
        }
    }
}

/// Text of which long lines are cut.
fn text(bytes: &[u8]) -> String {
    let cut = |line: &str| line.chars().take(100).collect::<String>() + "\n";
    String::from_utf8_lossy(bytes).lines().map(cut).collect()
}

#[test]
fn one_worker_answers_as_without_protection() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    // So little memory that items have to be evicted.
    let options = ["-t", "1", "-m", "8"];
    let native = Server::start(&native, &options);
    let mut hardened = Server::start(&hardened, &options);
    let mut trace = Trace::new(24, "k", 3_000, 300_000, true);
    compare(&native, &hardened, &mut trace, requests(100_000, 3_000_000) / BATCH);
    hardened.assert_runs();
    assert!(hardened.stat("evictions") > 0, "memory was not short");
    assert_eq!(hardened.stat("sei_discarded"), 0);
}

#[test]
fn four_workers_answer_as_without_protection() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    for variant in [Variant::Sei, Variant::Seil, Variant::Dup] {
        let Some(hardened) = built("memcached", variant) else { return };
        let options = ["-t", "4", "-m", "256"];
        let (native, mut hardened) = (Server::start(&native, &options), Server::start(&hardened, &options));
        let batches = requests(100_000, 3_000_000) / BATCH / 8;
        std::thread::scope(|scope| {
            for client in 0..8 {
                let (native, hardened) = (&native, &hardened);
                scope.spawn(move || {
                    let mut trace = Trace::new(client, &format!("c{client}-"), 500, 20_000, false);
                    compare(native, hardened, &mut trace, batches);
                });
            }
        });
        hardened.assert_runs();
    }
}

/// `native` looked for a minus sign up to the next zero byte, and behind a value there is no such byte: in the hardened
/// one a CRC follows, which has one in one value of 25. `decr` and `ma` read numbers in the same way.
#[test]
fn numbers_from_two_to_the_63rd_on_are_added() {
    for variant in [Variant::Native, Variant::Sei, Variant::Dup] {
        let Some(program) = built("memcached", variant) else { return };
        let mut server = Server::start(&program, &["-t", "1"]);
        let mut stream = server.connect();
        let mut random = SplitMix64::new(63);
        let edges = [u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 63) + 1];
        let others = std::iter::repeat_with(|| (1 << 63) + random.below((1 << 63) - 2));
        let numbers = edges.into_iter().chain(others).take(requests(1_000, 100_000) as usize);
        for (place, number) in numbers.enumerate() {
            let key = format!("n{}", place % 100);
            let digits = number.to_string();
            let request = format!("set {key} 0 0 {}\r\n{digits}\r\nincr {key} 1\r\nmn\r\n", digits.len());
            let reply = exchange(&mut stream, request.as_bytes(), SENTINEL).expect("it answers");
            assert_eq!(text(&reply), format!("STORED\n{}\nMN\n", number + 1), "{variant}: {number} + 1");
        }
        server.assert_runs();
    }
}

/// Command lines without a data block, right and wrong ones: what an administrator may try, and what starts threads.
const COMMANDS: [&str; 62] = [
    "get k",
    "gets k n",
    "gat 100 k",
    "gats 100 k",
    "touch k 100",
    "delete none",
    "incr n 1",
    "decr n 1",
    "incr k 1",
    "cas",
    "bget k",
    "version",
    "verbosity 0",
    "verbosity 1 noreply",
    "mn",
    "mg k v t f c s k O1",
    "md none q",
    "ma n N0 J5 v",
    "me k",
    "me",
    "shutdown",
    "flush_all 100",
    "flush_all",
    "stats",
    "stats items",
    "stats slabs",
    "stats sizes",
    "stats sizes_enable",
    "stats sizes_disable",
    "stats settings",
    "stats conns",
    "stats detail on",
    "stats detail dump",
    "stats detail off",
    "stats cachedump 1 10",
    "stats reset",
    "slabs reassign 1 2",
    "slabs automove 0",
    "slabs automove 1",
    "slabs automove 2",
    "cache_memlimit 64",
    "lru_crawler enable",
    "lru_crawler crawl all",
    "lru_crawler crawl 1",
    "lru_crawler metadump all",
    "lru_crawler tocrawl 10",
    "lru_crawler sleep 0",
    "lru_crawler disable",
    "lru_crawler nonsense",
    "lru tune 10 20 0.1 2.0",
    "lru mode segmented",
    "lru mode flat",
    "lru temp_ttl 60",
    "watch evictions",
    "watch mutations fetchers",
    "debugtime p",
    "extstore free_memchunks 1 1",
    "refresh_certs",
    "misbehave",
    "proxy reload",
    "nonsense",
    "quit",
];

/// Each command alone, twice in a row, and then whatever has expired or changed is looked at again.
#[test]
fn no_command_ends_the_server() {
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    for options in [&["-t", "2", "-m", "8"][..], &["-t", "2", "-m", "8", "-o", "no_modern,lru_crawler"]] {
        let mut server = Server::start(&hardened, options);
        for command in COMMANDS {
            let stored = b"set k 0 0 1\r\nv\r\nset n 0 0 1\r\n5\r\nset old 0 -1 1\r\nv\r\n";
            exchange(&mut server.connect(), stored, b"STORED\r\nSTORED\r\nSTORED\r\n").expect("stored");
            for _ in 0..2 {
                let mut stream = server.connect();
                stream.write_all(format!("{command}\r\n").as_bytes()).expect("sent");
                stream.shutdown(std::net::Shutdown::Write).expect("a connection");
                // `watch` holds on to its connection: what it answers is no matter here.
                stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a connection");
                let _ = stream.read_to_end(&mut Vec::new());
            }
            let reply = exchange(&mut server.connect(), b"get k n old\r\n", b"END\r\n");
            assert!(reply.is_ok(), "the server answers nothing after `{command}`: {reply:?}");
            server.assert_runs();
        }
    }
}

/// The crawler's thread would run code of handlers. Asked to start it, all variants refuse, as for the slab mover.
#[test]
fn what_would_start_a_thread_is_refused() {
    for variant in [Variant::Native, Variant::Sei] {
        let Some(program) = built("memcached", variant) else { return };
        let server = Server::start(&program, &["-t", "1"]);
        for (command, refusal) in [
            ("lru_crawler enable", "lru crawler disabled"),
            ("lru_crawler crawl all", "lru crawler disabled"),
            ("lru_crawler metadump all", "lru crawler disabled"),
            ("slabs reassign 1 2", "slab reassignment disabled"),
        ] {
            let reply = exchange(&mut server.connect(), format!("{command}\r\n").as_bytes(), b"\r\n");
            assert_eq!(
                text(&reply.expect("a reply")),
                format!("CLIENT_ERROR {refusal}\n"),
                "{variant}: {command}"
            );
        }
    }
}

/// Ten keys that all connections read and write, several at once and in any order: locks conflict, and no connection
/// may wait for ever. Each value names its key.
#[test]
fn hot_keys_in_any_order() {
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let mut server = Server::start(&hardened, &["-t", "4"]);
    let rounds = requests(4_000, 200_000);
    std::thread::scope(|scope| {
        for number in 0..8_u64 {
            let address = server.address;
            scope.spawn(move || {
                let mut random = wire::SplitMix64::new(number);
                let timeout = std::time::Duration::from_secs(10);
                let mut client = Client::connect(address, timeout).expect("it listens");
                for round in 0..rounds {
                    let mut keys: Vec<String> = (0..10).map(|key| format!("hot{key}")).collect();
                    random.shuffle(&mut keys);
                    if random.once_in(3) {
                        let value = format!("{}:{number}:{round}", keys[0]);
                        client.set(&keys[0], 0, value.as_bytes()).expect("stored");
                        continue;
                    }
                    let values = client.gets(&keys).expect("values");
                    for (key, value) in keys.iter().zip(values) {
                        let is_own = |value: &memcached_client::Value| {
                            value.bytes.starts_with(format!("{key}:").as_bytes())
                        };
                        assert!(value.as_ref().is_none_or(is_own), "{key} has {value:?}");
                    }
                }
            });
        }
    });
    server.assert_runs();
}

#[test]
fn counters_count_once() {
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let mut server = Server::start(&hardened, &["-t", "4"]);
    let rounds = requests(4_000, 200_000);
    let timeout = std::time::Duration::from_secs(10);
    Client::connect(server.address, timeout).expect("it listens").set("n", 0, b"0").expect("stored");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let address = server.address;
            scope.spawn(move || {
                let mut client = Client::connect(address, timeout).expect("it listens");
                for _ in 0..rounds {
                    client.incr("n", 1).expect("a number").expect("the key");
                }
            });
        }
    });
    server.assert_runs();
    let value = Client::connect(server.address, timeout).expect("it listens").get("n").expect("a reply");
    let text = String::from_utf8(value.expect("the key").bytes).expect("text");
    assert_eq!(text.trim().parse(), Ok(4 * rounds));
    assert_eq!(server.stat("curr_items"), 1, "the statistics that threads share");
}

/// A request with its CRCs in the line before it.
fn summed(line: &[u8], data: Option<&[u8]>) -> Vec<u8> {
    let (line_sum, data_sum) = (crc32c::crc32c(line), crc32c::crc32c(data.unwrap_or_default()));
    let head = format!("@{line_sum:08x} {data_sum:08x}\r\n");
    [head.as_bytes(), line, data.unwrap_or_default()].concat()
}

/// Reads a reply and the line with its CRC: (reply, CRC).
fn summed_reply(stream: &mut TcpStream) -> (Vec<u8>, u32) {
    let mut reply = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        reply.push(byte[0]);
        // No line of a reply but this one begins with @.
        let begin = reply.len().saturating_sub(11);
        let is_line = begin == 0 || reply[begin - 1] == b'\n';
        if is_line && reply.len() >= 11 && reply[begin] == b'@' && reply.ends_with(b"\r\n") {
            let digits = std::str::from_utf8(&reply[begin + 1..begin + 9]).expect("digits");
            let sum = u32::from_str_radix(digits, 16).expect("a CRC");
            reply.truncate(begin);
            return (reply, sum);
        }
    }
}

/// The reply to a request whose CRCs are right. Its own CRC must continue that of the data block, or of the line where
/// the reply is to the line alone.
fn ask(stream: &mut TcpStream, line: &[u8], data: Option<&[u8]>) -> Vec<u8> {
    stream.write_all(&summed(line, data)).expect("sent");
    let (reply, sum) = summed_reply(stream);
    let seeds = [line, data.unwrap_or(line)].map(crc32c::crc32c);
    let text = String::from_utf8_lossy(line).into_owned();
    assert!(seeds.map(|seed| crc32c::crc32c_append(seed, &reply)).contains(&sum), "{text}: the reply's CRC");
    reply
}

fn discarded(stream: &mut TcpStream) -> u64 {
    let text = String::from_utf8(ask(stream, b"stats\r\n", None)).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix("STAT sei_discarded ")).expect("the statistic");
    line.trim().parse().expect("a number")
}

#[test]
fn every_reply_has_its_crc() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let native = Server::start(&native, &["-t", "1"]);
    let mut server = Server::start(&hardened, &["-t", "1", "-o", "sei_crc"]);
    let (mut left, mut right) = (native.connect(), server.connect());
    let mut trace = Trace::new(7, "s", 200, 20_000, true);
    for _ in 0..requests(20_000, 1_000_000) {
        let request = trace.next();
        let text = String::from_utf8(request.line.clone()).expect("text");
        let is_quiet = text.split_whitespace().any(|word| word == "noreply" || word == "q");
        // Its data block is longer than its line says: neither is what the CRC is of.
        let is_broken = request.data.as_ref().is_some_and(|data| data == b"abcdefgh\r\n");
        if is_quiet || is_broken {
            continue;
        }
        let reply = ask(&mut right, &request.line, request.data.as_deref());
        left.write_all(&[&request.line[..], request.data.as_deref().unwrap_or_default()].concat())
            .expect("sent");
        let mut without = vec![0; reply.len()];
        left.read_exact(&mut without).expect("as long a reply");
        assert_eq!(String::from_utf8_lossy(&without), String::from_utf8_lossy(&reply), "{text}");
    }
    server.assert_runs();
    assert_eq!(discarded(&mut right), 0);
}

#[test]
fn corrupt_messages_are_discarded_and_counted() {
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let mut server = Server::start(&hardened, &["-t", "1", "-o", "sei_crc"]);
    let mut stream = server.connect();
    assert_eq!(ask(&mut stream, b"set k 0 0 3\r\n", Some(b"old\r\n")), b"STORED\r\n");
    let get = b"get k\r\n";
    let mut number = 0;
    let mut is_discarded = |stream: &mut TcpStream, message: &[u8], what: &str| {
        stream.write_all(message).expect("sent");
        number += 1;
        assert_eq!(discarded(stream), number, "{what}: counted once, and nothing else is answered");
        assert_eq!(ask(stream, get, None), b"VALUE k 0 3\r\nold\r\nEND\r\n", "{what}: nothing was done");
    };
    is_discarded(&mut stream, b"delete k\r\n", "no CRC");
    is_discarded(&mut stream, b"@nonsense\r\ndelete k\r\n", "no number");
    let message = summed(b"delete k\r\n", None);
    for bit in
        (b"@00000000 00000000\r\n".len()..message.len() - 2).flat_map(|at| (0..8).map(move |bit| (at, bit)))
    {
        let mut corrupt = message.clone();
        corrupt[bit.0] ^= 1 << bit.1;
        if corrupt[bit.0] != b'\n' {
            is_discarded(&mut stream, &corrupt, "a bit of the line");
        }
    }
    let mut corrupt = summed(b"set k 0 0 3\r\n", Some(b"new\r\n"));
    let at = corrupt.len() - 4;
    corrupt[at] ^= 0x10;
    is_discarded(&mut stream, &corrupt, "a bit of the data block");
    server.assert_runs();
}

/// Random damage: bytes that change, go, come, or are there twice, and messages that end early.
fn damaged(message: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 if bytes.len() > 1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.next_u64() as u8),
            3 => bytes.extend_from_within(at..),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// A message counts only if line and data block are whole: their CRCs say so. Whatever else comes does nothing.
#[test]
fn damaged_messages_change_nothing() {
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let mut server = Server::start(&hardened, &["-t", "1", "-o", "sei_crc"]);
    let mut reader = server.connect();
    let mut random = SplitMix64::new(41);
    let messages: [(&[u8], Option<&[u8]>); 6] = [
        (b"set k 0 0 3\r\n", Some(b"new\r\n")),
        (b"append k 0 0 3\r\n", Some(b"new\r\n")),
        (b"set k 7 0 3 noreply\r\n", Some(b"new\r\n")),
        (b"delete k\r\n", None),
        (b"gat 1 k\r\n", None),
        (b"incr n 1\r\n", None),
    ];
    let mut without_effect = 0;
    for _ in 0..requests(3_000, 300_000) {
        assert_eq!(ask(&mut reader, b"set k 0 0 3\r\n", Some(b"old\r\n")), b"STORED\r\n");
        assert_eq!(ask(&mut reader, b"set n 0 0 1\r\n", Some(b"5\r\n")), b"STORED\r\n");
        let (line, data) = *random.pick(&messages);
        let sent = damaged(&summed(line, data), &mut random);
        let body = [line, data.unwrap_or_default()].concat();
        let mut writer = server.connect();
        writer.write_all(&sent).expect("sent");
        writer.shutdown(std::net::Shutdown::Write).expect("a connection");
        // A reset connection has been read as far as the server wanted to.
        let _ = writer.read_to_end(&mut Vec::new());
        if !sent.windows(body.len()).any(|window| window == body) {
            let values = ask(&mut reader, b"get k n\r\n", None);
            assert_eq!(text(&values), "VALUE k 0 3\nold\nVALUE n 0 1\n5\nEND\n", "{:?}", text(&sent));
            without_effect += 1;
        }
    }
    server.assert_runs();
    assert!(without_effect > requests(1_000, 100_000), "{without_effect} messages were damaged");
    assert!(discarded(&mut reader) > 0);
}

#[test]
fn without_protection_there_are_no_crcs_to_ask_for() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    let arguments = ["-u", "nobody", "-l", "127.0.0.1", "-o", "sei_crc"];
    let output = Command::new(native).args(arguments).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("built without protection"), "{text}");
}

#[test]
fn memccapable_passes() {
    for variant in [Variant::Native, Variant::Sei, Variant::Seil] {
        let Some(program) = built("memcached", variant) else { return };
        let mut server = Server::start(&program, &["-t", "2"]);
        let port = server.address.port().to_string();
        let Ok(output) = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output()
        else {
            return skipped(
                "memccapable is not installed; install it with: apt-get install libmemcached-tools",
            );
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("All tests passed"), "{variant}: {text}");
        server.assert_runs();
    }
}

/// No instruction of the program, its shims and the library touches memory that is not its own. Values that were never
/// initialised are left out: the library compares what both runs found where they wrote, and what they left there.
#[test]
fn memcheck_finds_nothing() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    let is_there = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_there {
        return skipped("valgrind is not installed; install it with: apt-get install valgrind libc6-dbg");
    }
    let native = Server::start(&native, &["-t", "1"]);
    let checked = || {
        // Valgrind lets a program lower its limit of open files to the one that it has itself, and no further: that is
        // 12 below the shell's.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "ulimit -n 1036; exec \"$0\" \"$@\"",
            "valgrind",
            "--quiet",
            "--error-exitcode=99",
        ]);
        command.args(["--exit-on-first-error=yes", "--undef-value-errors=no"]).arg(&hardened);
        command
    };
    let mut hardened = Server::start_by(checked, &["-t", "1"]);
    compare(&native, &hardened, &mut Trace::new(3, "v", 100, 20_000, true), requests(2_000, 100_000) / BATCH);
    hardened.assert_runs();
}

/// Flips a bit of every copy of `text` in the data of a process; returns how many there were.
fn corrupt(process: u32, text: &[u8]) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("a process of ours");
    let memory = std::fs::File::options().read(true).write(true).open(format!("/proc/{process}/mem"));
    let memory = memory.expect("a process of ours");
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let bounds = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let [begin, end] = [bounds.0, bounds.1].map(|hex| u64::from_str_radix(hex, 16).expect("an address"));
        let mut bytes = vec![0; (end - begin) as usize];
        if memory.read_exact_at(&mut bytes, begin).is_err() {
            continue;
        }
        for at in (0..bytes.len().saturating_sub(text.len())).filter(|&at| bytes[at..].starts_with(text)) {
            memory.write_all_at(&[bytes[at] ^ 1], begin + at as u64).expect("written");
            found += 1;
        }
    }
    found
}

/// A server that has stored a key.
fn with_a_key(program: &Path) -> Server {
    let server = Server::start(program, &["-t", "1", "-m", "8"]);
    let stored = exchange(&mut server.connect(), b"set a-key-of-its-own 0 0 5\r\nvalue\r\n", b"\r\n");
    assert_eq!(stored.expect("a reply"), b"STORED\r\n");
    server
}

/// With `ends`, the program ends with this status and answers nothing; otherwise it loses the key without a word.
fn assert_loses_or_ends(server: &mut Server, ends: Option<i32>) {
    let reply = exchange(&mut server.connect(), b"get a-key-of-its-own\r\n", b"END\r\n");
    match ends {
        None => {
            assert_eq!(reply.expect("the loss"), b"END\r\n");
            server.assert_runs();
        }
        Some(status) => {
            assert!(reply.is_err(), "{reply:?}");
            assert_eq!(server.end(), Some(status));
        }
    }
}

/// A key that is corrupt at rest matches no request: without a CRC of its own the item is lost.
#[test]
fn a_corrupt_key_is_no_miss() {
    let Some(native) = built("memcached", Variant::Native) else { return };
    let Some(hardened) = built("memcached", Variant::Sei) else { return };
    for (program, ends) in [(&native, None), (&hardened, Some(DETECTED))] {
        let mut server = with_a_key(program);
        assert!(corrupt(server.process(), b"a-key-of-its-own") > 0, "the key is in memory");
        assert_loses_or_ends(&mut server, ends);
    }
}

/// The size of the hash table never changes, so nothing repairs it: both runs of `sei` look in the same wrong place.
#[test]
fn a_corrupt_size_of_the_hash_table_is_seen_with_two_copies() {
    for (variant, ends) in [(Variant::Sei, None), (Variant::Dup, Some(DETECTED))] {
        let Some(program) = built("memcached", variant) else { return };
        let mut server = with_a_key(&program);
        let memory = std::fs::File::options().write(true).open(format!("/proc/{}/mem", server.process()));
        let address = address_of("hashpower", &program, server.process());
        memory.expect("a process of ours").write_all_at(&[1], address).expect("written");
        assert_loses_or_ends(&mut server, ends);
    }
}
