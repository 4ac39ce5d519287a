//! Takes a backup of a running group through the admin endpoints of its replicas.
//!
//! Each endpoint has a thread, which asks one question after the other: a replica that hangs costs no more than its own
//! answers. All decisions are the receiver's ([`Receiver`]): a piece counts if f+1 replicas announce the same digest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver as Answers, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::contents::{Backup, BackupEnd, BackupError, BackupHeader};
use super::file::BackupFile;
use crate::admin::client::{Link, NoAnswer};
use crate::admin::{AdminCommand, BackupGroup, BackupOf, Endpoint, HexBytes, Transferred};
use crate::limits;
use crate::state::PartsScan;
use crate::transfer::{Message, Receiver};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long to wait for answers between two looks at what is due.
const LOOK: Duration = Duration::from_millis(5);
/// A copy is ordered again if no replica has begun one for so long.
const ORDER_AGAIN: Duration = Duration::from_secs(5);
/// Questions that may wait for a replica's thread: pieces in flight, and some more.
const WAITING: usize = 64;
/// The number by which the receiver knows itself: none of a replica.
const NO_REPLICA: u8 = u8::MAX;

/// What is wanted of a backup.
#[derive(Clone, Copy, Debug)]
pub struct Taking<'t> {
    /// The file.
    pub to: &'t Path,
    /// A file of this name is replaced.
    pub replaces: bool,
    /// It is given up if nothing comes for so long.
    pub patience: Duration,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeProgress {
    /// Bytes that are in the file.
    pub bytes: u64,
    /// Bytes that there will be, once that is known.
    pub total: Option<u64>,
}

/// Takes a backup: the state after one entry of the log, none of whose pieces comes on the word of fewer than f+1
/// replicas. Everything that was acknowledged before this call is in it.
///
/// # Errors
/// When fewer replicas answer or agree, or the file cannot be written. Nothing is left of the file then.
pub fn take(
    sources: &[Endpoint],
    taking: &Taking<'_>,
    progress: &mut dyn FnMut(TakeProgress),
) -> Result<Backup, BackupError> {
    let begun = begin(sources)?;
    let group = &begun.group;
    // Two replicas: both.
    let slots = group.replicas.max(1) + u8::from(group.replicas == 2);
    let made_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
    let header =
        BackupHeader { made_us: made_us as u64, agreed_by: needed(group.replicas), group: group.clone() };
    let mut backup = Unfinished {
        file: BackupFile::create(taking.to, taking.replaces, &header)?,
        scan: PartsScan::default(),
        pieces: 0,
        bytes: 0,
        path: taking.to,
    };
    let mut receiving = Receiving {
        receiver: Receiver::new(NO_REPLICA, slots, begun.logged),
        group: Asked::of(begun.sources),
        start: Instant::now(),
        ordered: None,
        moved: Instant::now(),
    };
    while !receiving.advance(&mut backup, taking.patience)? {
        let total = receiving.receiver.progress().and_then(|progress| progress.end).map(|end| end.length);
        progress(TakeProgress { bytes: backup.bytes, total });
    }
    let end = backup.end()?;
    progress(TakeProgress { bytes: end.bytes, total: Some(end.bytes) });
    let digest = backup.file.finish(&end)?;
    Ok(Backup { header, end, digest })
}

/// f+1 of so many replicas; of two both.
fn needed(replicas: u8) -> u8 {
    match replicas {
        2 => 2,
        replicas => replicas.saturating_sub(1) / 2 + 1,
    }
}

/// The group that f+1 replicas say they are of.
struct Begun {
    group: BackupGroup,
    /// By the number of the replica, from 0.
    sources: BTreeMap<u8, Endpoint>,
    /// The last entry of any of their logs: whatever was acknowledged is at or before it.
    logged: u64,
}

fn begin(sources: &[Endpoint]) -> Result<Begun, BackupError> {
    let answers: Vec<Result<BackupOf, NoAnswer>> = thread::scope(|scope| {
        let ask = |source: &Endpoint| {
            let mut link = Link::new(source.clone());
            scope.spawn(move || link.ask(&AdminCommand::Backup { orders: false }, ANSWER))
        };
        let asked: Vec<_> = sources.iter().map(ask).collect();
        let panicked = || Err(NoAnswer::Garbled("the thread that asked it ended".to_owned()));
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(|_| panicked())).collect()
    });
    // Whoever is named twice vouches once.
    let mut answered: BTreeMap<u8, (&Endpoint, &BackupOf)> = BTreeMap::new();
    for (source, of) in sources.iter().zip(&answers) {
        if let Ok(of) = of {
            answered.entry(of.replica).or_insert((source, of));
        }
    }
    let votes = |group: &BackupGroup| answered.values().filter(|(_, of)| of.group == *group).count();
    let Some((_, most)) = answered.values().max_by_key(|(_, of)| votes(&of.group)) else {
        return Err(BackupError::Untaken(format!("no replica can be asked{}", reasons(sources, &answers))));
    };
    let group = most.group.clone();
    let (agree, needed) = (votes(&group), usize::from(needed(group.replicas)));
    if agree < needed {
        let of = group.replicas;
        return Err(BackupError::Untaken(format!(
            "{needed} of {of} replicas have to vouch for every piece, and {agree} can be asked{}. Give the admin \
                endpoints of {needed} or more; `ssh -L` brings those of other machines here",
            reasons(sources, &answers)
        )));
    }
    let among: Vec<_> = answered.into_values().filter(|(_, of)| of.group == group).collect();
    let logged = among.iter().map(|(_, of)| of.logged).max().unwrap_or_default();
    let number = |of: &BackupOf| of.replica.saturating_sub(1);
    let sources = among.into_iter().map(|(source, of)| (number(of), source.clone())).collect();
    Ok(Begun { sources, group, logged })
}

/// Why those that did not answer did not.
fn reasons(sources: &[Endpoint], answers: &[Result<BackupOf, NoAnswer>]) -> String {
    let why = |(source, answer): (&Endpoint, &Result<BackupOf, NoAnswer>)| {
        answer.as_ref().err().map(|why| format!("; {source}: {why}"))
    };
    sources.iter().zip(answers).filter_map(why).collect()
}

/// What a replica's thread has found, and the replica, from 0.
type SourceAnswer = (u8, Result<Option<Message>, NoAnswer>);

/// The replicas that are asked, each by a thread.
struct Asked {
    /// By replica, from 0.
    questions: BTreeMap<u8, SyncSender<AdminCommand>>,
    answers: Answers<SourceAnswer>,
    receiver: u8,
    /// Why a replica has not answered last.
    refusals: BTreeMap<u8, String>,
    /// The replica that has had a copy ordered last.
    last: Option<u8>,
}

impl Asked {
    fn of(sources: BTreeMap<u8, Endpoint>) -> Self {
        let (answered, answers) = mpsc::channel();
        let mut questions = BTreeMap::new();
        for (replica, source) in sources {
            let (ask, asked) = mpsc::sync_channel(WAITING);
            let answered = answered.clone();
            let link = Link::new(source);
            let answer = move || answer_all((replica, link), &asked, &answered);
            // Without a thread it is one that does not answer.
            if thread::Builder::new().name(format!("backup-{}", replica + 1)).spawn(answer).is_ok() {
                questions.insert(replica, ask);
            }
        }
        let receiver = std::process::id() as u8;
        Asked { questions, answers, receiver, refusals: BTreeMap::new(), last: None }
    }

    /// Asks a replica, unless too many questions wait for it: the receiver asks another one.
    fn send(&self, replica: u8, message: &Message) {
        if let Some(ask) = self.questions.get(&replica) {
            let message = HexBytes(message.encode());
            let _ = ask.try_send(AdminCommand::Transfer { receiver: self.receiver, message });
        }
    }

    /// Has a copy ordered by the next replica.
    fn order(&mut self) {
        let after = |replica: &&u8| self.last.is_none_or(|last| **replica > last);
        let next = self.questions.keys().find(after).or_else(|| self.questions.keys().next()).copied();
        if let Some(ask) = next.and_then(|next| self.questions.get(&next)) {
            let _ = ask.try_send(AdminCommand::Backup { orders: true });
        }
        self.last = next;
    }
}

/// One question after the other, until nobody asks any more.
fn answer_all(
    (replica, mut link): (u8, Link),
    asked: &Answers<AdminCommand>,
    answered: &Sender<SourceAnswer>,
) {
    while let Ok(question) = asked.recv() {
        let answer = match &question {
            AdminCommand::Transfer { .. } => {
                link.ask::<Transferred>(&question, ANSWER).map(|answer| Message::decode(answer.message.0))
            }
            _ => link.ask::<BackupOf>(&question, ANSWER).map(|_| None),
        };
        if answer.is_err() {
            // It may be on its way back.
            thread::sleep(limits::ADMIN_RETRY);
        }
        if answered.send((replica, answer)).is_err() {
            return;
        }
    }
}

/// A copy of the state that comes.
struct Receiving {
    receiver: Receiver,
    group: Asked,
    start: Instant,
    /// When a copy was ordered last.
    ordered: Option<Instant>,
    /// When a piece came last.
    moved: Instant,
}

impl Receiving {
    /// Goes on until the next answers. True once the whole state has come.
    fn advance(&mut self, backup: &mut Unfinished<'_>, patience: Duration) -> Result<bool, BackupError> {
        self.order_if_due();
        for (replica, message) in self.receiver.poll(self.start.elapsed().as_micros() as u64) {
            self.group.send(replica, &message);
        }
        match self.group.answers.recv_timeout(LOOK) {
            Ok(answer) => self.on_answer(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
        }
        while let Ok(answer) = self.group.answers.try_recv() {
            self.on_answer(answer);
        }
        while let Some(piece) = self.receiver.take_piece() {
            if piece.is_packed_at_once {
                // Of a replica that lacks its state while the others wait for it; a later one is in parts.
                self.receiver.give_up();
                self.ordered = None;
                break;
            }
            self.moved = Instant::now();
            backup.put(piece.number, piece.bytes)?;
        }
        if self.receiver.ended().is_some() {
            return Ok(true);
        }
        if self.moved.elapsed() > patience {
            return Err(BackupError::Untaken(self.why_not(patience)));
        }
        Ok(false)
    }

    fn on_answer(&mut self, (replica, answer): SourceAnswer) {
        match answer {
            Ok(message) => {
                self.group.refusals.remove(&replica);
                message.into_iter().for_each(|message| self.receiver.on_message(replica, message, false));
            }
            Err(why) => {
                self.group.refusals.insert(replica, why.to_string());
            }
        }
    }

    /// Orders a copy where none is on its way, and another one where the replicas do not agree on the one that is.
    fn order_if_due(&mut self) {
        let is_over = |since: Instant, limit| since.elapsed() > limit;
        let is_stuck = is_over(self.moved, limits::OFFER_KEPT) && !self.receiver.is_agreed();
        if self.receiver.progress().is_some() && !is_stuck {
            return;
        }
        if self.ordered.is_none_or(|ordered| is_over(ordered, ORDER_AGAIN)) {
            if is_stuck {
                self.receiver.give_up();
            }
            self.group.order();
            self.ordered = Some(Instant::now());
        }
    }

    fn why_not(&self, patience: Duration) -> String {
        let offered: Vec<String> = self.receiver.named().map(|replica| (replica + 1).to_string()).collect();
        let offered = match offered.as_slice() {
            [] => "no replica has offered a state".to_owned(),
            some => {
                format!("too few replicas have offered the same (some state came from {})", some.join(", "))
            }
        };
        let why = |(replica, why): (&u8, &String)| format!("; replica {}: {why}", replica + 1);
        let refusals: String = self.group.refusals.iter().map(why).collect();
        format!(
            "nothing came for {} s, and {offered}{refusals}. A copy needs a group that orders requests, and f+1 \
                replicas whose states are equal: see `status` and `digest`",
            patience.as_secs()
        )
    }
}

/// The file, as far as it has come.
struct Unfinished<'t> {
    file: BackupFile,
    scan: PartsScan,
    pieces: u32,
    bytes: u64,
    path: &'t Path,
}

impl Unfinished<'_> {
    fn put(&mut self, number: u32, piece: bytes::Bytes) -> Result<(), BackupError> {
        if number == 0 && self.pieces > 0 {
            self.file.begin_again()?;
            (self.scan, self.pieces, self.bytes) = (PartsScan::default(), 0, 0);
        }
        self.file.piece(&piece)?;
        (self.pieces, self.bytes) = (self.pieces + 1, self.bytes + piece.len() as u64);
        self.scan.put(piece).map_err(|why| self.unreadable(&why))
    }

    fn end(&mut self) -> Result<BackupEnd, BackupError> {
        let scan = std::mem::take(&mut self.scan);
        let head = scan.finish().map_err(|why| self.unreadable(&why))?;
        let (index, batch, time_us) = (head.index, head.batch, head.order.time_us);
        Ok(BackupEnd { index, batch, time_us, pieces: self.pieces, bytes: self.bytes })
    }

    /// f+1 replicas have sent this: they are of another version.
    fn unreadable(&self, why: &str) -> BackupError {
        BackupError::Untaken(format!(
            "the state that the replicas agree on cannot be read ({why}), and {} was not written: use the program that \
                they run",
            self.path.display()
        ))
    }
}
