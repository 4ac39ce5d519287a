//! The messages between executors and verifiers, and their form on the wire. The decoder is total: it returns messages
//! or an error for any bytes, and reserves no memory for what bytes only claim.

use wire::{Malformed, Put, Reader};

use crate::limits::{MAX_SLOTS, MESSAGES_PER_BODY};
use crate::slots::{CrashVector, Slot, Slots};
use crate::version::{StateToken, Version};

/// A message of the verification stage. Any may be lost, duplicated, delayed or reordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VerifyMessage {
    /// VERIFY: an executor has run a batch. It sends one token for each view, batch and parent, and for ever the same.
    Verify {
        /// The view in which it ran.
        view: u64,
        /// The state after it.
        version: Version,
        /// Token of the state before it.
        parent: StateToken,
        /// The executor's incarnation, its low half: for people who read a trace.
        incarnation: u32,
    },
    /// RECORDED: a verifier keeps this version, and will start later views from it or a later one.
    Recorded {
        /// What it keeps.
        record: TokenRecord,
        /// The incarnations that the verifier knows of.
        crashes: CrashVector,
    },
    /// VIEW-CHANGE: a verifier takes part in no earlier view any more.
    ViewChange {
        /// The promised view.
        view: u64,
        /// Why another view is wanted.
        reason: Reason,
        /// Its record.
        record: TokenRecord,
        /// The incarnations that the verifier knows of.
        crashes: CrashVector,
    },
    /// NEW-VIEW: the leader of a view starts it from this record.
    NewView {
        /// The start. Its view is the new one.
        record: TokenRecord,
        /// The incarnations that the leader knows of.
        crashes: CrashVector,
    },
    /// WHERE: a process asks verifiers what they keep.
    Where {
        /// The asker's incarnation.
        incarnation: u64,
        /// The same in the answer.
        round: AskRound,
        /// The incarnations that the asker knows of.
        crashes: CrashVector,
    },
    /// HERE: the answer of a verifier.
    Here(Here),
    /// WHERE for reads: an executor asks how far the verifiers are, on behalf of reads that wait for it.
    ReadWhere {
        /// The asker's incarnation.
        incarnation: u64,
        /// Counts its questions.
        round: u64,
    },
    /// HERE for reads: the record of a verifier when the question arrived. One without memory does not answer.
    ReadHere {
        /// The asker's incarnation.
        incarnation: u64,
        /// The asker's round.
        round: u64,
        /// View of the record.
        view: u64,
        /// Number of the record's version.
        number: u64,
        /// The incarnations that the verifier knows of.
        crashes: CrashVector,
    },
}

/// What a verifier answers to WHERE.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Here {
    /// The asker's incarnation.
    pub incarnation: u64,
    /// The asker's round.
    pub round: AskRound,
    /// The incarnation of the verifier that answers.
    pub own_incarnation: u64,
    /// The incarnation of the asker's process that took part when the answering verifier began the group; 0 if that is
    /// not known.
    pub founding: u64,
    /// Promised view and record; none if the verifier has no memory.
    pub memory: Option<(u64, TokenRecord)>,
    /// The incarnations that the verifier knows of.
    pub crashes: CrashVector,
}

/// For what a process asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AskRound {
    /// To catch up: it has a memory, or is an executor.
    CatchUp,
    /// A verifier without memory learns which incarnations it had.
    Incarnations,
    /// It has announced its new incarnation, and adopts what is known by those who know of it.
    Adopt,
    /// Nobody has a memory: whether that is so at one time.
    Found,
    /// Whether the peer of a pair hears this process.
    Alive,
    /// An executor has run batches that are not stable: a verifier that sees nothing of them grows impatient too.
    Stalled,
}

/// Why another view is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Tokens differ, and no number of them can agree any more. The next batch runs sequentially.
    Diverged,
    /// Extra protection saw tokens that differ. The next batch runs sequentially.
    Extra,
    /// A batch was not recorded in time.
    Late,
    /// The primary is gone.
    PrimaryGone,
    /// An executor that was left out has caught up.
    Joined,
}

/// The newest version that a verifier keeps, the view in which it recorded it, and how that view works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRecord {
    /// The view.
    pub view: u64,
    /// The version.
    pub version: Version,
    /// How the view works.
    pub lineup: Lineup,
}

/// The parts of processes in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineup {
    /// The executor that numbers the batches.
    pub primary: Slot,
    /// The executors whose tokens count.
    pub executors: Slots,
    /// Those of them that were taken in before they had reached the start of the view. They are no second copy of it:
    /// none takes over, and none is kept alone, until a version was recorded in the view or it has reported the start.
    pub joining: Slots,
    /// The batch after this version, the first of its view, runs sequentially.
    pub sequential: bool,
    /// Extra protection is on.
    pub extra: bool,
}

const VERIFY: u8 = 1;
const RECORDED: u8 = 2;
const VIEW_CHANGE: u8 = 3;
const NEW_VIEW: u8 = 4;
const WHERE: u8 = 5;
const HERE: u8 = 6;
const READ_WHERE: u8 = 7;
const READ_HERE: u8 = 8;

const SEQUENTIAL: u8 = 1;
const EXTRA: u8 = 2;
/// The upper half of the flags is the set of those that join. Only two executors take one in.
const JOINING_SHIFT: u8 = 4;
const MOST_JOINING: Slots = Slots::first(4);

const REASONS: [Reason; 5] =
    [Reason::Diverged, Reason::Extra, Reason::Late, Reason::PrimaryGone, Reason::Joined];
const ROUNDS: [AskRound; 6] = [
    AskRound::CatchUp,
    AskRound::Incarnations,
    AskRound::Adopt,
    AskRound::Found,
    AskRound::Alive,
    AskRound::Stalled,
];

impl VerifyMessage {
    /// Appends the wire form. With three verifiers a VERIFY takes 53 bytes and a RECORDED 44.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            VerifyMessage::Verify { view, version, parent, incarnation } => {
                out.put8(VERIFY).put64(*view);
                put_version(out, version);
                out.put128(parent.0).put32(*incarnation);
            }
            VerifyMessage::Recorded { record, crashes } => {
                out.put8(RECORDED);
                put_record(out, record);
                put_crashes(out, crashes);
            }
            VerifyMessage::ViewChange { view, reason, record, crashes } => {
                out.put8(VIEW_CHANGE).put64(*view).put8(*reason as u8);
                put_record(out, record);
                put_crashes(out, crashes);
            }
            VerifyMessage::NewView { record, crashes } => {
                out.put8(NEW_VIEW);
                put_record(out, record);
                put_crashes(out, crashes);
            }
            VerifyMessage::Where { incarnation, round, crashes } => {
                out.put8(WHERE).put64(*incarnation).put8(*round as u8);
                put_crashes(out, crashes);
            }
            VerifyMessage::Here(here) => {
                out.put8(HERE).put64(here.incarnation).put8(here.round as u8);
                out.put64(here.own_incarnation).put64(here.founding).put8(here.memory.is_some() as u8);
                if let Some((promised, record)) = &here.memory {
                    out.put64(*promised);
                    put_record(out, record);
                }
                put_crashes(out, &here.crashes);
            }
            VerifyMessage::ReadWhere { incarnation, round } => {
                out.put8(READ_WHERE).put64(*incarnation).put64(*round);
            }
            VerifyMessage::ReadHere { incarnation, round, view, number, crashes } => {
                out.put8(READ_HERE).put64(*incarnation).put64(*round).put64(*view).put64(*number);
                put_crashes(out, crashes);
            }
        }
    }

    /// Decodes a body: one message behind the other, [`MESSAGES_PER_BODY`] at most.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`VerifyMessage::encode`] does not write; then none of the messages counts.
    pub fn decode_all(body: &[u8]) -> Result<Vec<VerifyMessage>, Malformed> {
        let mut reader = Reader::new(body);
        let mut messages = Vec::new();
        while !reader.is_empty() {
            if messages.len() == MESSAGES_PER_BODY {
                return Err(Malformed("more messages than one body has"));
            }
            messages.push(read(&mut reader)?);
        }
        Ok(messages)
    }
}

fn read(reader: &mut Reader<'_>) -> Result<VerifyMessage, Malformed> {
    Ok(match reader.u8()? {
        VERIFY => VerifyMessage::Verify {
            view: reader.u64()?,
            version: read_version(reader)?,
            parent: StateToken(reader.u128()?),
            incarnation: reader.u32()?,
        },
        RECORDED => VerifyMessage::Recorded { record: read_record(reader)?, crashes: read_crashes(reader)? },
        VIEW_CHANGE => VerifyMessage::ViewChange {
            view: reader.u64()?,
            reason: one_of(&REASONS, reader.u8()?)?,
            record: read_record(reader)?,
            crashes: read_crashes(reader)?,
        },
        NEW_VIEW => VerifyMessage::NewView { record: read_record(reader)?, crashes: read_crashes(reader)? },
        WHERE => VerifyMessage::Where {
            incarnation: reader.u64()?,
            round: one_of(&ROUNDS, reader.u8()?)?,
            crashes: read_crashes(reader)?,
        },
        HERE => {
            let (incarnation, round) = (reader.u64()?, one_of(&ROUNDS, reader.u8()?)?);
            let (own_incarnation, founding) = (reader.u64()?, reader.u64()?);
            let memory = if reader.flag()? { Some((reader.u64()?, read_record(reader)?)) } else { None };
            let crashes = read_crashes(reader)?;
            VerifyMessage::Here(Here { incarnation, round, own_incarnation, founding, memory, crashes })
        }
        READ_WHERE => VerifyMessage::ReadWhere { incarnation: reader.u64()?, round: reader.u64()? },
        READ_HERE => VerifyMessage::ReadHere {
            incarnation: reader.u64()?,
            round: reader.u64()?,
            view: reader.u64()?,
            number: reader.u64()?,
            crashes: read_crashes(reader)?,
        },
        _ => return Err(Malformed("unknown kind of message")),
    })
}

fn one_of<T: Copy>(all: &[T], index: u8) -> Result<T, Malformed> {
    all.get(index as usize).copied().ok_or(Malformed("a value that does not exist"))
}

fn put_version(out: &mut Vec<u8>, version: &Version) {
    out.put64(version.number).put128(version.token.0);
}

fn read_version(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
    Ok(Version { number: reader.u64()?, token: StateToken(reader.u128()?) })
}

/// A record takes 36 bytes.
pub(crate) fn put_record(out: &mut Vec<u8>, record: &TokenRecord) {
    out.put64(record.view);
    put_version(out, &record.version);
    let Lineup { primary, executors, joining, sequential, extra } = record.lineup;
    let joining = (joining.and(MOST_JOINING).0 as u8) << JOINING_SHIFT;
    out.put8(joining | if sequential { SEQUENTIAL } else { 0 } | if extra { EXTRA } else { 0 });
    out.put8(primary).put16(executors.0);
}

pub(crate) fn read_record(reader: &mut Reader<'_>) -> Result<TokenRecord, Malformed> {
    let (view, version, flags) = (reader.u64()?, read_version(reader)?, reader.u8()?);
    let joining = Slots(u16::from(flags >> JOINING_SHIFT));
    if flags & !(SEQUENTIAL | EXTRA) & 0xf != 0 {
        return Err(Malformed("a flag that does not exist"));
    }
    let (primary, executors) = (reader.u8()?, Slots(reader.u16()?));
    if !executors.minus(joining).contains(primary) {
        return Err(Malformed("the primary is no executor that has the view's start"));
    }
    if !joining.minus(executors).is_empty() {
        return Err(Malformed("one joins that is no executor"));
    }
    let (sequential, extra) = (flags & SEQUENTIAL != 0, flags & EXTRA != 0);
    Ok(TokenRecord { view, version, lineup: Lineup { primary, executors, joining, sequential, extra } })
}

fn put_crashes(out: &mut Vec<u8>, crashes: &CrashVector) {
    out.put8(crashes.counts().len() as u8);
    for count in crashes.counts() {
        out.put16(*count);
    }
}

fn read_crashes(reader: &mut Reader<'_>) -> Result<CrashVector, Malformed> {
    let verifiers = reader.u8()? as usize;
    let mut counts = [0; MAX_SLOTS];
    let counts = counts.get_mut(..verifiers).ok_or(Malformed("more verifiers than there can be"))?;
    for count in counts.iter_mut() {
        *count = reader.u16()?;
    }
    CrashVector::of(counts).ok_or(Malformed("more verifiers than there can be"))
}
