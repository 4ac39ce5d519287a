//! The same bytes to this service and to stock memcached, and the same bytes back, or a difference with a reason.

mod cases;
mod stock;
#[path = "../support/mod.rs"]
mod support;
mod uniques;

use std::time::SystemTime;

use cases::{CASES, Case};
use memcached::Config;
use support::Replica;

/// Sent after each case: its answer shows that everything before has been answered.
const END: &[u8] = b"mg no_such_key_here Othe-end\r\n";
const ENDED: &[u8] = b"EN Othe-end\r\n";

#[test]
fn this_service_answers_as_the_table_says() {
    let mut failures = Vec::new();
    for case in CASES {
        let mut replica = Replica::new(Config::default());
        let mut connection = replica.connect();
        let input = [&case.input(), END].concat();
        let (output, closed) = replica.talk(&mut connection, &input);
        judge(case, case.ours(), &output, closed, &mut failures);
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), CASES.len(), failures.join("\n"));
}

#[test]
fn stock_memcached_answers_as_the_table_says() {
    let Some(server) = stock::Server::start() else {
        println!("skipped: memcached not installed");
        return;
    };
    let mut failures = Vec::new();
    for case in CASES {
        server.talk(b"flush_all\r\n", END, ENDED);
        let (output, closed) = server.talk(&case.input(), END, ENDED);
        judge(case, case.stock(), &output, closed, &mut failures);
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), CASES.len(), failures.join("\n"));
}

#[test]
fn uniques_behave_alike_here_and_there() {
    let mut replica = Replica::new(Config::default());
    uniques::all(&mut |question| replica.ask(question));
    let Some(server) = stock::Server::start() else {
        println!("skipped: memcached not installed");
        return;
    };
    uniques::all(&mut |question| {
        let (output, _) = server.talk(question.as_bytes(), END, ENDED);
        String::from_utf8_lossy(output.strip_suffix(ENDED).unwrap_or(&output)).into_owned()
    });
}

/// The fields of `stats` and `stats settings` that the usual exporters and dashboards read, with the form of the value.
#[test]
fn what_exporters_read_is_there_here_and_in_stock() {
    let is_count = |value: &str| value.parse::<u64>().is_ok();
    let is_time = |value: &str| {
        value.split_once('.').is_some_and(|(s, us)| is_count(s) && us.len() == 6 && is_count(us))
    };
    let check = |whose: &str, ask: &mut dyn FnMut(&str) -> String| {
        let counts =
            ["threads", "accepting_conns", "listen_disabled_num", "max_connections", "curr_connections"];
        let general = ask("stats\r\n");
        counts
            .iter()
            .for_each(|name| assert!(is_count(value_of(&general, name)), "{whose}: {name} in {general}"));
        for name in ["rusage_user", "rusage_system"] {
            assert!(is_time(value_of(&general, name)), "{whose}: {name} in {general}");
        }
        assert!(is_count(value_of(&general, "uptime")), "{whose}: {general}");
        // Also where nobody has asked for data: monitors compare it with their own clock.
        let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_secs();
        let time_s: u64 = value_of(&general, "time").parse().expect("a number of seconds");
        assert!(time_s.abs_diff(now_s) < 60, "{whose}: {time_s} s, and this host has {now_s} s");
        let settings = ask("stats settings\r\n");
        for name in ["maxconns", "tcpport", "maxbytes", "num_threads"] {
            assert!(is_count(value_of(&settings, name)), "{whose}: {name} in {settings}");
        }
    };
    let mut replica = Replica::new(Config::default());
    check("this service", &mut |question| replica.ask(question));
    let Some(server) = stock::Server::start() else {
        println!("skipped: memcached not installed");
        return;
    };
    check("stock", &mut |question| {
        let (output, _) = server.talk(question.as_bytes(), END, ENDED);
        String::from_utf8_lossy(&output).into_owned()
    });
}

/// The value of a line `STAT name value`, or nothing.
fn value_of<'r>(report: &'r str, name: &str) -> &'r str {
    let value = |line: &'r str| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' ');
    report.lines().find_map(value).unwrap_or_default()
}

#[test]
fn every_difference_has_a_reason() {
    let reasons = include_str!("../../DIFFERENCES.md");
    let mut named: Vec<&str> =
        CASES.iter().filter_map(|case| case.difference.map(|(number, _)| number)).collect();
    named.sort_unstable();
    named.dedup();
    assert!(!named.is_empty());
    for number in named {
        assert!(
            reasons.contains(&format!("- **{number}.** ")),
            "DIFFERENCES.md does not give a reason for {number}"
        );
    }
}

#[test]
fn replies_do_not_depend_on_how_the_bytes_were_cut() {
    for case in CASES.iter().filter(|case| case.input().len() < 3_000) {
        for step in [1, 2, 3, 7] {
            let mut replica = Replica::new(Config::default());
            let mut connection = replica.connect();
            let (mut pending, mut output, mut closed) = (Vec::new(), Vec::new(), false);
            for piece in case.input().chunks(step) {
                if closed {
                    break;
                }
                pending.extend_from_slice(piece);
                let (used, bytes, ends) = replica.talk_some(&mut connection, &pending);
                pending.drain(..used);
                output.extend(bytes);
                closed = ends;
            }
            let mut failures = Vec::new();
            judge_exactly(case, case.ours(), &output, &mut failures);
            assert!(failures.is_empty(), "in pieces of {step}: {}", failures.join("\n"));
        }
    }
}

fn judge(case: &Case, expected: &str, output: &[u8], closed: bool, failures: &mut Vec<String>) {
    let output = if closed { output } else { output.strip_suffix(ENDED).unwrap_or(output) };
    judge_exactly(case, expected, output, failures);
}

fn judge_exactly(case: &Case, expected: &str, output: &[u8], failures: &mut Vec<String>) {
    if !cases::matches(expected.as_bytes(), output) {
        let (input, got) = (shorten(&case.input()), shorten(output));
        failures.push(format!("{input}\n  expected {}\n  got      {got}", shorten(expected.as_bytes())));
    }
}

fn shorten(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).escape_debug().to_string();
    if text.len() > 300 {
        format!("{}.. ({} bytes)", text.chars().take(300).collect::<String>(), bytes.len())
    } else {
        text
    }
}
