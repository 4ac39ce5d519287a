//! A cluster at a glance: as a block for a terminal, as one line for a pipe, as JSON for a program.

use crosscheck::admin::{MovedReplica, ReadCounts, ReplicaPhase, Status, VerificationStatus};
use serde_json::{Value, json};

use super::numbers::{grouped, micros};
use super::paint::Tone;
use super::{ViewLine, copies};
use crate::cluster::ReplicaRow;

const HEADS: [&str; 12] = [
    "replica",
    "clients",
    "phase",
    "executed",
    "validated",
    "req/s",
    "conns",
    "mismatches",
    "repairs",
    "checks",
    "frames",
    "held",
];
/// Columns of words; the others are numbers, and stand to the right.
const WORDS: usize = 3;

/// The whole cluster, several lines that are printed once.
pub fn block(rows: &[ReplicaRow]) -> Vec<ViewLine> {
    lines(rows, copies::sentences)
}

/// The same, to be redrawn: a bar shows how far a copy of the state is.
pub fn live_block(rows: &[ReplicaRow]) -> Vec<ViewLine> {
    lines(rows, copies::bars)
}

fn lines(rows: &[ReplicaRow], copies: fn(&[ReplicaRow]) -> Vec<String>) -> Vec<ViewLine> {
    let mut lines = vec![headline(rows)];
    lines.extend(table(rows));
    if let Some((failures, Some(why))) = tolerates(rows) {
        lines.push(Tone::Notable.line(format!("tolerates {failures} further failures now: {why}")));
    }
    if rows.iter().filter_map(|row| row.seen.as_ref().ok()).any(|status| status.alone) {
        let reported =
            "too few replicas for a vote to find a wrong one: every request is run until two runs agree";
        lines.push(Tone::Notable.line(reported));
    }
    lines.extend(copies(rows).into_iter().map(|reported| Tone::Notable.line(reported)));
    lines.extend(rows.iter().filter_map(|row| row.seen.as_ref().ok()).flat_map(notices));
    for row in rows {
        let Ok(status) = &row.seen else { continue };
        let Some(evidence) = &status.last_evidence else { continue };
        let repair = match status.last_repair_us {
            0 => String::new(),
            us => format!("  (last repair took {})", micros(us)),
        };
        let reported = format!("replica {} says: ", row.replica.number);
        lines.push(Tone::Quiet.line(reported) + Tone::Notable.span(evidence) + Tone::Quiet.span(repair));
    }
    lines
}

/// What an operator should know of a replica, beyond its row.
fn notices(status: &Status) -> Vec<ViewLine> {
    let of = |what: String| Tone::Notable.line(format!("replica {} {what}", status.replica));
    let mut notices: Vec<ViewLine> = Vec::new();
    if let Some(verification) = &status.verification {
        let VerificationStatus { view, rollbacks, verifies, executors, witness, .. } = verification;
        if (*view, *rollbacks) != (0, 0) {
            notices
                .push(of(format!("is in view {view}, and took batches back {} times", grouped(*rollbacks))));
        }
        if verification.states_taken > 0 {
            notices.push(of(format!(
                "took the whole state of the others in place of its own {} times",
                grouped(verification.states_taken)
            )));
        }
        if !witness && !executors.is_empty() && !executors.contains(&status.replica) {
            notices.push(of("is not waited for: it was late or away, and catches up".into()));
        }
        if let Some(what) = &verification.waits_for {
            notices.push(of(format!("waits: {what}")));
        }
        if !verifies {
            notices.push(of(
                "does not verify: it waits for a majority of the others to recover its memory".into()
            ));
        }
    }
    let ReadCounts { local, ordered } = status.reads;
    if local + ordered > 0 {
        let (local, ordered) = (grouped(local), grouped(ordered));
        notices
            .push(of(format!("answered {local} reads without a batch; {ordered} more took one after all")));
    }
    if status.newest_behavior > status.behavior {
        let (can, acts_as) = (status.newest_behavior, status.behavior);
        notices.push(of(format!(
            "can act as behavior {can} of its service; the group acts as {acts_as} until all replicas can"
        )));
    }
    let differing = status.moved.iter().filter(|moved| moved.address != moved.configured);
    notices.extend(differing.map(|MovedReplica { replica, address, configured }| {
        of(format!(
            "finds replica {replica} at {address}, as the group has agreed; its configuration still has {configured}"
        ))
    }));
    notices.extend(status.replacing.iter().map(|what| of(format!("is to replace a machine: {what}"))));
    notices.extend(status.resizing.iter().map(|what| of(format!("waits: {what}"))));
    notices.extend(status.waits_for.iter().map(|what| of(format!("waits: {what}"))));
    notices.extend(status.refused.replicas.iter().map(|why| of(format!("does not talk to {why}"))));
    if status.refused.strangers > 0 {
        let times = grouped(status.refused.strangers);
        notices.push(of(format!("refused {times} connections to its peers' port that are not of its group")));
    }
    notices.extend(
        status.counts.iter().map(|(what, times)| of(format!("counted {} x: {what}", grouped(*times)))),
    );
    let buffers = &status.buffers;
    if buffers.evicted > 0 {
        let (closed, limit) = (grouped(buffers.evicted), buffers.limit >> 20);
        notices.push(of(format!(
            "closed {closed} connections that held room, did not move, and others waited for it \
                (buffer_limit_mb = {limit})"
        )));
    }
    notices
}

/// How many further replicas may be killed or paused now, and why not more, as the leader says; where none answers, the
/// least that any replica says. None for a single node.
pub fn tolerates(rows: &[ReplicaRow]) -> Option<(u8, Option<&str>)> {
    let up =
        || rows.iter().filter_map(|row| row.seen.as_ref().ok()).filter(|status| status.mode.starts_with('R'));
    let leader = up().find(|status| status.leader == Some(status.replica));
    let reported = leader.or_else(|| up().min_by_key(|status| status.tolerates))?;
    Some((reported.tolerates, reported.tolerates_why.as_deref()))
}

fn headline(rows: &[ReplicaRow]) -> ViewLine {
    let all = StatusSummary::of(rows);
    let serving = rows.iter().filter(|row| row.is_ready()).count();
    let tone = if serving == rows.len() { Tone::Good } else { Tone::Bad };
    let (more, tone_of_more) = all.tolerates_text();
    Tone::Strong.line(format!("CrossCheck {}  ", all.mode))
        + tone.span(format!("{serving} of {} serve", rows.len()))
        + tone_of_more.span(more)
        + Tone::Plain.span(format!("  leader {}  position {}", all.leader, grouped(all.position)))
        + Tone::Plain.span(format!("  {} requests/s", all.rate_text()))
}

/// One row per replica under a row of heads.
pub fn table(rows: &[ReplicaRow]) -> Vec<ViewLine> {
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let mut widths = HEADS.map(str::len);
    for row in cells.iter().filter(|row| row.len() == HEADS.len()) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let pad = |column: usize, cell: &str| {
        let width = widths[column];
        if column < WORDS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    };
    let line = |row: &[String]| {
        let padded: Vec<String> = row.iter().enumerate().map(|(column, cell)| pad(column, cell)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let heads = HEADS.map(str::to_owned);
    let mut lines = vec![Tone::Quiet.line(line(&heads))];
    lines.extend(rows.iter().zip(&cells).map(|(row, cells)| tone_of(row).line(line(cells))));
    lines
}

fn cells(row: &ReplicaRow) -> Vec<String> {
    let number = row.replica.number.to_string();
    let clients = row.replica.clients.map_or_else(|| "-".to_owned(), |address| address.to_string());
    match &row.seen {
        Err(why) => vec![number, clients, format!("down: {why}")],
        Ok(status) => {
            let leads = if status.leader == Some(status.replica) { " leads" } else { "" };
            vec![
                number + leads,
                clients,
                phase(status).to_owned(),
                grouped(status.executed),
                grouped(status.validated),
                row.rate.map_or_else(|| "-".to_owned(), |rate| grouped(rate.round() as u64)),
                grouped(status.connections),
                grouped(status.mismatches),
                grouped(status.repairs),
                grouped(status.failed_checks),
                grouped(status.dropped_frames),
                grouped(status.held),
            ]
        }
    }
}

fn tone_of(row: &ReplicaRow) -> Tone {
    match &row.seen {
        Err(_) => Tone::Bad,
        Ok(status) if status.phase != ReplicaPhase::Serving || status.held > 0 => Tone::Notable,
        Ok(_) => Tone::Plain,
    }
}

fn phase(status: &Status) -> &'static str {
    match status.phase {
        ReplicaPhase::Serving if status.leader.is_none() => "no leader",
        ReplicaPhase::Serving if status.verification.as_ref().is_some_and(|verified| verified.witness) => {
            "witness"
        }
        ReplicaPhase::Starting => "starting",
        ReplicaPhase::Joining => "joining",
        ReplicaPhase::CatchingUp => "catching up",
        ReplicaPhase::Waiting if status.leader.is_none() => "no leader",
        ReplicaPhase::Waiting => "waiting",
        ReplicaPhase::Serving => "serving",
        ReplicaPhase::Stopping => "stopping",
    }
}

/// The whole cluster in one line. Two lines of which only the rate, the positions and the copies of the state differ
/// are the same news.
pub fn one_line(rows: &[ReplicaRow]) -> (String, String) {
    let all = StatusSummary::of(rows);
    let phases: Vec<String> = rows
        .iter()
        .filter(|row| !row.is_ready())
        .map(|row| {
            let what = row.seen.as_ref().map_or("down", phase);
            format!("  replica {} {what}", row.replica.number)
        })
        .collect();
    let copies = copies::sentences(rows).into_iter().map(|reported| format!("  {reported}"));
    let evidence = all.evidence.map(|evidence| format!("  last: {evidence}")).unwrap_or_default();
    let news = format!(
        "leader {}{}  mismatches {}  repairs {}  held {}{}{evidence}",
        all.leader,
        all.tolerates_text().0,
        all.mismatches,
        all.repairs,
        all.held,
        phases.concat()
    );
    let (rate, copies) = (all.rate_text(), copies.collect::<String>());
    let line = format!("status  {rate} requests/s  position {}  {news}{copies}", all.position);
    (line, news)
}

/// One replica as JSON.
pub fn row_json(row: &ReplicaRow) -> Value {
    let (status, why): (Option<&Status>, Option<&String>) = match &row.seen {
        Ok(status) => (Some(status), None),
        Err(why) => (None, Some(why)),
    };
    json!({
        "replica": row.replica.number,
        "clients": row.replica.clients,
        "admin": row.replica.admin.to_string(),
        "serving": row.serving().is_some(),
        "requests_per_s": row.rate,
        "status": status,
        "why_down": why,
    })
}

struct StatusSummary<'r> {
    mode: &'r str,
    leader: String,
    tolerates: Option<u8>,
    position: u64,
    /// Every replica executes every request, so that the fastest one's rate is the cluster's.
    rate: Option<f64>,
    mismatches: u64,
    repairs: u64,
    held: u64,
    evidence: Option<&'r str>,
}

impl<'r> StatusSummary<'r> {
    fn of(rows: &'r [ReplicaRow]) -> Self {
        let up = || rows.iter().filter_map(|row| row.seen.as_ref().ok());
        let highest = |field: fn(&Status) -> u64| up().map(field).max().unwrap_or(0);
        let leader = up().find(|status| status.leader == Some(status.replica)).or_else(|| up().next());
        let leader = leader.and_then(|status| status.leader);
        StatusSummary {
            mode: up().next().map_or("", |status| &status.mode),
            leader: leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            tolerates: tolerates(rows).map(|(failures, _)| failures),
            position: highest(|status| status.executed),
            rate: rows.iter().filter_map(|row| row.rate).reduce(f64::max),
            mismatches: highest(|status| status.mismatches),
            repairs: up().map(|status| status.repairs).sum(),
            held: up().map(|status| status.held).sum(),
            evidence: up().find_map(|status| status.last_evidence.as_deref()),
        }
    }

    /// How many further replicas may fail, for the headline.
    fn tolerates_text(&self) -> (String, Tone) {
        match self.tolerates {
            None => (String::new(), Tone::Plain),
            Some(0) => ("  tolerates 0".to_owned(), Tone::Bad),
            Some(failures) => (format!("  tolerates {failures}"), Tone::Good),
        }
    }

    fn rate_text(&self) -> String {
        self.rate.map_or_else(|| "-".to_owned(), |rate| grouped(rate.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosscheck::admin::{CopyProgress, Endpoint};

    use crate::cluster::{ReplicaHandle, test_status};

    fn row(number: u8, change: impl Fn(&mut Status)) -> ReplicaRow {
        let clients = Some(([127, 0, 0, 1], 11_210 + u16::from(number)).into());
        let replica = ReplicaHandle { number, admin: Endpoint::Unix("admin.sock".into()), clients };
        let mut status = test_status(number);
        change(&mut status);
        ReplicaRow { replica, seen: Ok(status), rate: None }
    }

    #[test]
    fn the_block_names_leader_positions_evidence_and_who_is_down() {
        let mut down = row(3, |_| ());
        down.seen = Err("no answer".into());
        let mut first = row(1, |status| status.executed = 12_345);
        first.rate = Some(999.6);
        let second = row(2, |status| {
            status.last_evidence = Some("replica 2: item 7.1".into());
            status.last_repair_us = 850;
        });
        let lines: Vec<String> = block(&[first, second, down]).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "CrossCheck RDGX  2 of 3 serve  tolerates 1  leader 1  position 12,345  1,000 requests/s",
                concat!(
                    "replica  clients          phase    executed  validated  req/s  conns  mismatches  repairs",
                    "  checks  frames  held"
                ),
                concat!(
                    "1 leads  127.0.0.1:11211  serving    12,345         10  1,000      0           0        0",
                    "       0       0     0"
                ),
                concat!(
                    "2        127.0.0.1:11212  serving        10         10      -      0           0        0",
                    "       0       0     0"
                ),
                "3        127.0.0.1:11213  down: no answer",
                "replica 2 says: replica 2: item 7.1  (last repair took 850 us)",
            ]
        );
    }

    #[test]
    fn the_block_tells_what_a_replica_waits_for_and_whom_it_refused() {
        let reported = row(2, |status| {
            status.waits_for = Some("for replica 3".into());
            status.refused.replicas.push("replica 1: memory_limit_mb is 64 here and 128 there".into());
            status.refused.strangers = 1200;
            status.buffers.evicted = 7;
            status.buffers.limit = 128 << 20;
        });
        let lines: Vec<String> = block(&[reported]).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines[3..],
            [
                "replica 2 waits: for replica 3",
                "replica 2 does not talk to replica 1: memory_limit_mb is 64 here and 128 there",
                "replica 2 refused 1,200 connections to its peers' port that are not of its group",
                "replica 2 closed 7 connections that held room, did not move, and others waited for it \
                    (buffer_limit_mb = 128)",
            ]
        );
    }

    #[test]
    fn the_line_for_a_pipe_is_news_only_when_more_than_progress_changed() {
        let before = one_line(&[row(1, |_| ()), row(2, |_| ())]);
        let progress = one_line(&[row(1, |status| status.executed = 99), row(2, |_| ())]);
        assert_ne!(before.0, progress.0);
        assert_eq!(before.1, progress.1);
        let joining = one_line(&[row(1, |_| ()), row(2, |status| status.phase = ReplicaPhase::Joining)]);
        assert!(joining.1.contains("replica 2 joining"));
        let repaired = one_line(&[row(1, |status| status.repairs = 1), row(2, |_| ())]);
        assert_ne!(before.1, repaired.1);
    }

    #[test]
    fn a_copy_of_the_state_is_told_where_it_is_printed_and_drawn_where_it_is_redrawn() {
        let joiner = row(3, |status| {
            status.phase = ReplicaPhase::Joining;
            status.receiving = Some(CopyProgress {
                from: vec![1, 2],
                received: 412_000_000,
                total: Some(1_200_000_000),
                bytes_per_second: 180_000_000,
            });
        });
        let sentence =
            "replica 3 receives the state from replicas 1 and 2: 412 MB of 1.2 GB (34 %), 180 MB/s, 5s left";
        let rows = [joiner];
        assert_eq!(block(&rows)[3].to_string(), sentence);
        let bar = "replica 3  [======>             ]  412 MB of 1.2 GB (34 %), 180 MB/s, 5s left";
        assert_eq!(live_block(&rows)[3].to_string(), bar);
        let (line, news) = one_line(&rows);
        assert!(line.ends_with(&format!("replica 3 joining  {sentence}")), "{line}");
        assert!(news.ends_with("replica 3 joining"), "its progress is no news: {news}");
    }

    #[test]
    fn json_says_why_a_replica_is_down() {
        let mut down = row(2, |_| ());
        down.seen = Err("no answer".into());
        let reported = row_json(&down);
        assert_eq!((&reported["serving"], &reported["why_down"]), (&json!(false), &json!("no answer")));
        let up = row_json(&row(1, |_| ()));
        assert_eq!((&up["status"]["leader"], &up["why_down"]), (&json!(1), &Value::Null));
    }
}
