//! Input and output of a handler: the input's CRC, and CRCs of replies, which the second run makes and V compares.
//!
//! NSDI'15, Fig. 3: phase I and V2 for the input, R7 and V3 for the output. A reply's CRC continues that of its
//! request, so a client recognises a valid reply to another request; the paper's covers the reply alone.

use crate::copies::Copies;
use crate::crc::Joiner;
use crate::fail::{FailedCheck, Reason};
use crate::limits;
use crate::memory::ProgramMemory;
use crate::mutate::{Protection, kept};

/// The message that a handler runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputMessage {
    /// Where it is.
    pub address: usize,
    /// Its bytes.
    pub length: usize,
    /// Its CRC-32C.
    pub crc: u32,
    /// The handler edits it: it is compared after R, instead of in V.
    pub is_edited: bool,
}

/// A part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// Bytes of the program.
    Bytes { address: usize, length: usize },
    /// Bytes whose CRC is stored beside them.
    Stored { crc: u32, length: usize },
    /// What follows is for this connection.
    To { context: usize },
    /// The end of a reply.
    Done,
}

/// A reply that both runs have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedReply {
    /// Its CRC-32C.
    pub crc: u32,
    /// The connection that it is for; 0: the one that the handler began with.
    pub context: usize,
}

/// Input and output of the handler that runs.
#[derive(Default)]
pub struct HandlerMessage {
    input: Option<InputMessage>,
    pieces: Vec<Piece>,
    /// How many the second run has made.
    replayed: usize,
    /// CRC of the reply that the second run is making.
    current: u32,
    /// The connection that the second run replies to.
    target: usize,
    /// The replies that the second run has made.
    replies: Vec<AgreedReply>,
    /// Joins stored CRCs: one for the second run, one for V, so that a fault in one shows.
    joiners: [Joiner; 2],
    /// Replies continue their request's CRC.
    binds: bool,
}

impl InputMessage {
    /// Whether the message is the one that its CRC describes.
    pub fn is_valid(&self, memory: &impl ProgramMemory) -> bool {
        crc32c::crc32c(memory.bytes(self.address, self.length)) == self.crc
    }
}

impl HandlerMessage {
    /// Phase I: this message, or none.
    pub fn begin(&mut self, input: Option<InputMessage>, binds: bool) {
        self.input = input;
        self.binds = binds;
        self.restart();
    }

    /// Forgets the output, for a handler that begins again.
    pub fn restart(&mut self) {
        self.pieces.clear();
        self.replies.clear();
        self.replayed = 0;
        self.target = 0;
        self.current = self.seed(0);
    }

    /// A reply continues the CRC of its own request, and another connection has not sent it.
    fn seed(&self, target: usize) -> u32 {
        match self.input {
            Some(input) if self.binds && target == 0 && kept(Protection::OutputSeed) => input.crc,
            _ => 0,
        }
    }

    /// After R: a message that the handler edits is what it was.
    ///
    /// # Errors
    /// It is not.
    pub fn check_after_reset(&self, memory: &impl ProgramMemory) -> Result<(), FailedCheck> {
        match self.input {
            Some(input) if input.is_edited => check(memory, &input, Protection::InputAfterReset),
            _ => Ok(()),
        }
    }

    /// The first run adds bytes to a reply.
    ///
    /// # Errors
    /// There are too many pieces.
    pub fn append_first(&mut self, address: usize, length: usize) -> Result<(), Reason> {
        self.first(Piece::Bytes { address, length })
    }

    /// The first run adds bytes with a stored CRC.
    ///
    /// # Errors
    /// There are too many pieces.
    pub fn append_crc_first(&mut self, crc: u32, length: usize) -> Result<(), Reason> {
        self.first(Piece::Stored { crc, length })
    }

    /// The first run completes a reply.
    ///
    /// # Errors
    /// It has no bytes, or there are too many pieces.
    pub fn done_first(&mut self) -> Result<(), Reason> {
        if self.is_between_replies() {
            return Err(Reason::OutputDoneWithoutAppend);
        }
        self.first(Piece::Done)
    }

    /// What the first run adds from here on is for this connection.
    ///
    /// # Errors
    /// A reply is not complete, or there are too many pieces.
    pub fn to_first(&mut self, context: usize) -> Result<(), Reason> {
        if !self.is_between_replies() {
            return Err(Reason::OutputNotDone);
        }
        self.first(Piece::To { context })
    }

    fn is_between_replies(&self) -> bool {
        matches!(self.pieces.last(), None | Some(Piece::Done | Piece::To { .. }))
    }

    fn first(&mut self, piece: Piece) -> Result<(), Reason> {
        if self.pieces.len() >= limits::OUTPUT_PIECES {
            return Err(Reason::OutputsFull);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// The second run adds bytes, whose CRC it computes: from its own copy, where the state is duplicated.
    ///
    /// # Errors
    /// The first run added something else.
    pub fn append_second(
        &mut self,
        memory: &impl ProgramMemory,
        copies: &Copies,
        address: usize,
        length: usize,
    ) -> Result<(), Reason> {
        self.second(Piece::Bytes { address, length })?;
        self.current = crc32c::crc32c_append(self.current, memory.bytes(copies.second(address), length));
        Ok(())
    }

    /// The second run adds bytes with a stored CRC.
    ///
    /// # Errors
    /// The first run added something else.
    pub fn append_crc_second(&mut self, crc: u32, length: usize) -> Result<(), Reason> {
        self.second(Piece::Stored { crc, length })?;
        self.current = self.joiners[0].join(self.current, crc, length);
        Ok(())
    }

    /// The second run completes a reply.
    ///
    /// # Errors
    /// The first run did something else.
    pub fn done_second(&mut self) -> Result<(), Reason> {
        self.second(Piece::Done)?;
        self.replies.push(AgreedReply { crc: self.current, context: self.target });
        self.current = self.seed(self.target);
        Ok(())
    }

    /// What the second run adds from here on is for this connection.
    ///
    /// # Errors
    /// The first run did something else.
    pub fn to_second(&mut self, context: usize) -> Result<(), Reason> {
        self.second(Piece::To { context })?;
        self.target = context;
        self.current = self.seed(context);
        Ok(())
    }

    fn second(&mut self, piece: Piece) -> Result<(), Reason> {
        if self.pieces.get(self.replayed) != Some(&piece) {
            return Err(Reason::OutputsDiffer);
        }
        self.replayed += 1;
        Ok(())
    }

    /// V: the input is what its CRC says, and the bytes of each reply, read once more at the places that the first run
    /// recorded, give the CRC that the second run made.
    ///
    /// # Errors
    /// The first that differs.
    pub fn validate(&mut self, memory: &impl ProgramMemory) -> Result<(), FailedCheck> {
        if let Some(input) = self.input
            && !input.is_edited
        {
            check(memory, &input, Protection::InputInV)?;
        }
        if self.replayed != self.pieces.len() {
            return Err(Reason::OutputsDiffer.into());
        }
        if self.pieces.is_empty() && self.replies.is_empty() {
            return Ok(());
        }
        if !self.is_between_replies() {
            return Err(Reason::OutputNotDone.into());
        }
        let mut target = 0;
        let mut crc = self.seed(target);
        let mut first_address = 0;
        let mut replies = self.replies.iter();
        for piece in &self.pieces {
            match *piece {
                Piece::Bytes { address, length } => {
                    first_address = address;
                    crc = crc32c::crc32c_append(crc, memory.bytes(address, length));
                }
                Piece::Stored { crc: stored, length } => crc = self.joiners[1].join(crc, stored, length),
                Piece::To { context } => {
                    target = context;
                    crc = self.seed(target);
                }
                Piece::Done => {
                    if replies.next() != Some(&AgreedReply { crc, context: target })
                        && kept(Protection::OutputInV)
                    {
                        return Err(Reason::OutputChanged.at(first_address));
                    }
                    crc = self.seed(target);
                }
            }
        }
        match replies.next() {
            None => Ok(()),
            Some(_) => Err(Reason::OutputsDiffer.into()),
        }
    }

    /// The replies.
    pub fn replies(&self) -> &[AgreedReply] {
        &self.replies
    }
}

fn check(
    memory: &impl ProgramMemory,
    input: &InputMessage,
    protection: Protection,
) -> Result<(), FailedCheck> {
    if input.is_valid(memory) || !kept(protection) {
        Ok(())
    } else {
        Err(Reason::InputChanged.at(input.address))
    }
}
