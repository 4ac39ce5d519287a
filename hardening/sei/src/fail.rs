//! What the library detects, as a value that names the check, and the words an operator reads.

/// A check that failed. The process ends with status 86 before anything has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// Which check.
    pub reason: Reason,
    /// The word that differs, or 0.
    pub address: usize,
}

/// The checks (sections 2.4 and 2.5 of the design; NSDI'15, Fig. 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each has its text below
pub enum Reason {
    GateAlreadyPassed,
    GateNotPassed,
    AccessOutsideHandler,
    BeginWithoutMessage,
    BeginWithinHandler,
    PrepareWithinHandler,
    CommitOutsideHandler,
    Irrevocable,
    LogFull,
    ArenaFull,
    LogsDiffer,
    StateDiffers,
    CallsDiffer,
    CallsMissing,
    CallsFull,
    SentBytesDiffer,
    InputChanged,
    OutputChanged,
    OutputsDiffer,
    OutputsFull,
    OutputOnDeadStack,
    OutputDoneWithoutAppend,
    OutputNotDone,
    NoCrc,
    TooManyCrcs,
    LockNotHeld,
    LockNotOwned,
    TooManyIgnored,
    TooManyThreads,
    NoClone,
    Refused,
    StateMemory,
    TooManyStateRanges,
    UnknownStack,
    TooManyStacks,
    ByProgram,
}

impl Reason {
    /// One sentence part for the line that the process ends with.
    pub fn text(self) -> &'static str {
        match self {
            Self::GateAlreadyPassed => "a phase was entered a second time (gate already passed)",
            Self::GateNotPassed => "a phase was skipped (gate not passed)",
            Self::AccessOutsideHandler => "code of a handler ran outside of a handler",
            Self::BeginWithoutMessage => "a handler began without sei_prepare",
            Self::BeginWithinHandler => "a handler began within a handler",
            Self::PrepareWithinHandler => "sei_prepare was called within a handler",
            Self::CommitOutsideHandler => "a handler ended that had not begun",
            Self::Irrevocable => "the handler was to run without instrumentation",
            Self::LogFull => "the handler wrote more words than its log holds (4,194,304): make it shorter",
            Self::ArenaFull => "the handler overwrote more than 64 MiB: make it shorter",
            Self::LogsDiffer => "the two runs wrote different words",
            Self::StateDiffers => "the state after the second run is not that after the first",
            Self::CallsDiffer => "the two runs made different calls",
            Self::CallsMissing => "the second run made fewer calls than the first",
            Self::CallsFull => {
                "the handler made more calls than are recorded (1,048,576 or 64 MiB): make it shorter"
            }
            Self::SentBytesDiffer => "the two runs sent different bytes",
            Self::InputChanged => "the message changed while its handler ran",
            Self::OutputChanged => "the reply is not the one that the second run made",
            Self::OutputsDiffer => "the two runs made different replies",
            Self::OutputsFull => "the handler appended more than 65,536 pieces to its replies",
            Self::OutputOnDeadStack => {
                "a reply lies in the frame of a function that has returned: copy it first"
            }
            Self::OutputDoneWithoutAppend => "sei_output_done without sei_output_append",
            Self::OutputNotDone => "the handler ended after sei_output_append without sei_output_done",
            Self::NoCrc => "a reply was about to leave that no handler made (sei_crc_pop found none)",
            Self::TooManyCrcs => "65,536 CRCs wait: the program makes replies and never calls sei_crc_pop",
            Self::LockNotHeld => "a lock was released that the handler had not taken",
            Self::LockNotOwned => "a lock of this handler belongs to another thread",
            Self::TooManyIgnored => "more than 64 calls of sei_ignore_addr in one handler",
            Self::TooManyThreads => "a 257th thread began a handler: the limit is 256 threads",
            Self::NoClone => "a function was called that has no instrumented copy",
            Self::Refused => "the handler called a function that cannot run twice",
            Self::StateMemory => "there is no memory for the second copy of the state",
            Self::TooManyStateRanges => "more than 16 ranges of state, that of sei_state_alloc among them",
            Self::UnknownStack => {
                "a handler began on a stack that is not its thread's (a coroutine's, a signal's): tell the library \
                 with sei_stack"
            }
            Self::TooManyStacks => "more than 65,536 calls of sei_stack for different stacks",
            Self::ByProgram => "a check of the program's own failed (sei_detected)",
        }
    }

    /// The failed check at this address.
    pub fn at(self, address: usize) -> FailedCheck {
        FailedCheck { reason: self, address }
    }
}

impl From<Reason> for FailedCheck {
    fn from(reason: Reason) -> Self {
        reason.at(0)
    }
}
