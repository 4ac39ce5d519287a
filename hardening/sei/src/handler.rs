//! One thread's handler: phases I, E1, R, E2 and V as a state machine over memory.
//!
//! NSDI'15, section 4.2 and Fig. 3. `abi` gives it the accesses and calls that the compiler redirects, and does what it
//! says: run again, or let the effects happen. Every check that fails is a value of type [`FailedCheck`].

use crate::calls::{Calls, Function, Kind, RecordedCall};
use crate::copies::Copies;
use crate::fail::{FailedCheck, Reason};
use crate::gate::{Gate, Gates};
use crate::limits;
use crate::locks::{Held, Owners};
use crate::log::{Ignored, Log, NewValues};
use crate::memory::{ProgramMemory, Size};
use crate::message::{AgreedReply, HandlerMessage, InputMessage};
use crate::mutate::{Protection, kept};

/// The part of a word that is an address; what is called stands above it.
const ADDRESS: u64 = (1 << 56) - 1;

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No handler runs.
    Idle,
    /// Phase I is over, the first run has not begun.
    Prepared,
    /// First run.
    First,
    /// Second run.
    Second,
    /// The state is compared, and effects happen.
    Validated,
}

impl Phase {
    /// Its name in the paper, and in the line that a process ends with.
    pub fn name(self) -> &'static core::ffi::CStr {
        match self {
            Self::Idle => c"idle",
            Self::Prepared => c"I",
            Self::First => c"E1",
            Self::Second => c"E2",
            Self::Validated => c"V",
        }
    }
}

/// What follows the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The state is as before: the handler runs a second time.
    RunAgain,
    /// Both runs agree: effects may happen.
    Release,
}

/// The handler of one thread, and what it needs to run twice.
pub struct Handler {
    phase: Phase,
    /// Frames below the handler's own are dead after R: first address and bytes. They are neither logged nor undone.
    dead_stack: (usize, usize),
    /// The log of the run that is under way; closed while no handler runs.
    open: Log,
    /// The log of the first run, from R on; before that the room for the second one's.
    first: Log,
    new: NewValues,
    gates: Gates,
    message: HandlerMessage,
    /// Calls of this handler.
    pub calls: Calls,
    /// Locks of this handler.
    pub held: Held,
    /// Of each run. The first `always_ignored` ranges are those of every handler of this thread.
    ignored: [Ignored; 2],
    always_ignored: usize,
    /// Ranges with a second copy.
    pub copies: Copies,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            dead_stack: (0, 0),
            open: Log::default(),
            first: Log::default(),
            new: NewValues::default(),
            gates: Gates::new(),
            message: HandlerMessage::default(),
            calls: Calls::default(),
            held: Held::default(),
            ignored: Default::default(),
            always_ignored: 0,
            copies: Copies::new(),
        }
    }
}

impl Handler {
    /// What the thread is doing.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Entries of the first run's log.
    pub fn entries(&self) -> usize {
        self.first.len()
    }

    /// Which run is under way.
    ///
    /// # Errors
    /// None: a fault led into a handler's code.
    #[inline(always)]
    pub fn is_second_run(&self) -> Result<bool, Reason> {
        match self.phase {
            Phase::First => Ok(false),
            Phase::Second => Ok(true),
            _ => Err(Reason::AccessOutsideHandler),
        }
    }

    /// The replies of a handler whose runs agree.
    pub fn replies(&self) -> &[AgreedReply] {
        self.message.replies()
    }

    /// Phase I, for a message or none. `false`: the message is corrupt and is to be discarded.
    ///
    /// # Errors
    /// A handler runs already: a fault led out of it.
    pub fn prepare(
        &mut self,
        memory: &impl ProgramMemory,
        input: Option<InputMessage>,
        binds: bool,
    ) -> Result<bool, FailedCheck> {
        if self.phase != Phase::Idle {
            return Err(Reason::PrepareWithinHandler.into());
        }
        if let Some(input) = input
            && !input.is_valid(memory)
            && kept(Protection::InputAtBegin)
        {
            return Ok(false);
        }
        self.gates.reset();
        self.message.begin(input, binds);
        self.gates.pass(Gate::Begun)?;
        self.phase = Phase::Prepared;
        Ok(true)
    }

    /// The first run begins, in a frame that ends at `low`. The thread's stack may reach down to `stack_limit`.
    ///
    /// # Errors
    /// Phase I was skipped, or a handler runs.
    pub fn begin(&mut self, stack_limit: usize, low: usize) -> Result<(), FailedCheck> {
        match self.phase {
            Phase::Prepared => {}
            Phase::Idle => return Err(Reason::BeginWithoutMessage.into()),
            _ => return Err(Reason::BeginWithinHandler.into()),
        }
        self.dead_stack = (stack_limit, low.saturating_sub(stack_limit));
        self.open.open();
        self.phase = Phase::First;
        Ok(())
    }

    /// A word is about to be overwritten (R2, R6): keeps it, and returns the address to write to.
    ///
    /// # Errors
    /// No handler runs, or the log is full.
    #[inline(always)]
    pub fn before_write(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        size: Size,
    ) -> Result<usize, Reason> {
        match self.before_usual_write(memory, address, size) {
            Some(at) => Ok(at),
            None => {
                let at = self.read_at(address);
                self.open.record(memory, address, at, size).map(|()| at)
            }
        }
    }

    /// The same where the log has room. `None`: nothing was kept, and [`Self::before_write`] says why or makes room.
    #[inline(always)]
    pub fn before_usual_write(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        size: Size,
    ) -> Option<usize> {
        if self.is_dead_stack(address) && kept(Protection::StackFilterOfWrites) {
            return Some(address);
        }
        if !kept(Protection::AppendBeforeStore) {
            return Some(address);
        }
        let at = self.read_at(address);
        self.open.record_within(memory, address, at, size).then_some(at)
    }

    /// The same for `length` bytes.
    ///
    /// # Errors
    /// No handler runs, or the log is full.
    pub fn before_range(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        length: usize,
    ) -> Result<usize, Reason> {
        if self.is_dead_stack(address) && kept(Protection::StackFilterOfWrites) {
            return Ok(address);
        }
        let at = self.read_at(address);
        self.open.record_range(memory, address, at, length).map(|()| at)
    }

    /// Where this run reads what the program knows at `address`.
    #[inline(always)]
    pub fn read_at(&self, address: usize) -> usize {
        if cfg!(feature = "dup") && self.phase == Phase::Second {
            self.copies.second(address)
        } else {
            address
        }
    }

    /// Whether the address lies in the frame of a function that the handler called.
    #[inline(always)]
    pub fn is_dead_stack(&self, address: usize) -> bool {
        address.wrapping_sub(self.dead_stack.0) < self.dead_stack.1
    }

    /// What handlers of this thread write here is never compared: `errno`, which any call of the C library may change,
    /// also one that the library makes for itself.
    pub fn ignore_always(&mut self, address: usize, length: usize) {
        self.ignored.iter_mut().for_each(|ignored| ignored.push((address, length)));
        self.always_ignored += 1;
    }

    /// What is written here in this handler is not compared.
    ///
    /// # Errors
    /// There are too many such ranges, or no handler runs.
    pub fn ignore(&mut self, address: usize, length: usize) -> Result<(), Reason> {
        let ignored = &mut self.ignored[usize::from(self.is_second_run()?)];
        if ignored.len() - self.always_ignored >= limits::IGNORED_RANGES {
            return Err(Reason::TooManyIgnored);
        }
        ignored.push((address, length));
        Ok(())
    }

    /// A call of the handler: the first run does it with `run`, the second is given its result. Returns result and
    /// errno.
    ///
    /// # Errors
    /// The runs differ.
    pub fn call(
        &mut self,
        kind: Kind,
        function: Function,
        arguments: [u64; 3],
        run: impl FnOnce() -> (u64, i32),
    ) -> Result<(u64, i32), Reason> {
        if self.is_second_run()? {
            let call: &RecordedCall = self.calls.second(kind, function, arguments)?;
            let again = (call.result, call.errno);
            return Ok(if is_replayed(kind) { again } else { run() });
        }
        let got = run();
        let call = self.calls.first(kind, function, arguments)?;
        (call.result, call.errno) = got;
        Ok(got)
    }

    /// A frequent call, described by one word: `run` in the first run, whose result the second is given.
    ///
    /// # Errors
    /// The runs differ.
    #[inline]
    pub fn call_word(&mut self, word: u64, run: impl FnOnce() -> u64) -> Result<u64, FailedCheck> {
        if self.is_second_run()? {
            let first = self.calls.next_word()?;
            if first != word {
                // Where they differ: the lock, or the word, that the first run had.
                return Err(Reason::CallsDiffer.at((first & ADDRESS) as usize));
            }
            let result = self.calls.next_word()?;
            return Ok(if kept(Protection::ReplayWord) { result } else { run() });
        }
        self.calls.first_word(word)?;
        let result = run();
        self.calls.first_word(result)?;
        Ok(result)
    }

    /// A call that others see: it is made after both runs agree.
    ///
    /// # Errors
    /// The runs differ.
    pub fn defer(&mut self, function: Function, arguments: [u64; 3], sent: &[u8]) -> Result<(), Reason> {
        if self.is_second_run()? {
            self.calls.defer_second(function, arguments, sent)
        } else {
            self.calls.defer_first(function, arguments, sent)
        }
    }

    /// Bytes are added to the reply.
    ///
    /// # Errors
    /// The runs differ, or the bytes will be gone before they are compared.
    pub fn output_append(
        &mut self,
        memory: &impl ProgramMemory,
        address: usize,
        length: usize,
    ) -> Result<(), FailedCheck> {
        if self.is_dead_stack(address) && length > 0 {
            return Err(Reason::OutputOnDeadStack.at(address));
        }
        if self.is_second_run()? {
            self.message.append_second(memory, &self.copies, address, length)?;
        } else {
            self.message.append_first(address, length)?;
        }
        Ok(())
    }

    /// Bytes with a stored CRC are added to the reply.
    ///
    /// # Errors
    /// The runs differ.
    pub fn output_append_crc(&mut self, crc: u32, length: usize) -> Result<(), FailedCheck> {
        if self.is_second_run()? {
            self.message.append_crc_second(crc, length)?;
        } else {
            self.message.append_crc_first(crc, length)?;
        }
        Ok(())
    }

    /// What follows is a reply to this connection; 0: to the one that the handler began with.
    ///
    /// # Errors
    /// The runs differ, or a reply is not complete.
    pub fn output_to(&mut self, context: usize) -> Result<(), FailedCheck> {
        if self.is_second_run()? {
            self.message.to_second(context)?;
        } else {
            self.message.to_first(context)?;
        }
        Ok(())
    }

    /// The reply is complete.
    ///
    /// # Errors
    /// The runs differ, or the reply has no bytes.
    pub fn output_done(&mut self) -> Result<(), FailedCheck> {
        if self.is_second_run()? {
            self.message.done_second()?;
        } else {
            self.message.done_first()?;
        }
        Ok(())
    }

    /// The end of a run: R behind the first, V behind the second. `owners` and `thread` are for the locks.
    ///
    /// # Errors
    /// The runs differ, or a phase was skipped.
    pub fn commit(
        &mut self,
        memory: &mut impl ProgramMemory,
        owners: &Owners,
        thread: usize,
    ) -> Result<Next, FailedCheck> {
        match self.phase {
            Phase::First => {
                self.gates.was_passed(Gate::Begun)?;
                self.gates.pass(Gate::First)?;
                self.reset(memory)
            }
            Phase::Second => {
                self.gates.was_passed(Gate::Reset)?;
                self.gates.pass(Gate::Second)?;
                self.validate(memory, owners, thread)
            }
            _ => Err(Reason::CommitOutsideHandler.into()),
        }
    }

    /// Phase R.
    fn reset(&mut self, memory: &mut impl ProgramMemory) -> Result<Next, FailedCheck> {
        self.open.reset(memory, &mut self.new, &self.copies);
        std::mem::swap(&mut self.open, &mut self.first);
        self.open.open();
        self.message.check_after_reset(memory)?;
        self.held.begin_second();
        self.gates.was_passed(Gate::First)?;
        self.gates.pass(Gate::Reset)?;
        self.phase = Phase::Second;
        Ok(Next::RunAgain)
    }

    /// Phase V, in the order of NSDI'15, Fig. 3, with what is compared there.
    fn validate(
        &mut self,
        memory: &mut impl ProgramMemory,
        owners: &Owners,
        thread: usize,
    ) -> Result<Next, FailedCheck> {
        if self.has_ignored() && self.ignored[0] != self.ignored[1] {
            return Err(Reason::CallsDiffer.into());
        }
        self.first.compare(&self.open, &self.ignored[1])?;
        if kept(Protection::StateIsNew) {
            self.first.state_is(memory, &self.new, &self.ignored[1], &self.copies)?;
        }
        self.calls.are_all_replayed()?;
        self.message.validate(memory)?;
        self.held.validate(owners, thread)?;
        self.gates.was_passed(Gate::Second)?;
        self.gates.pass(Gate::Valid)?;
        self.phase = Phase::Validated;
        Ok(Next::Release)
    }

    /// Effects have happened: no handler runs any more.
    ///
    /// # Errors
    /// V was skipped.
    pub fn end(&mut self) -> Result<(), FailedCheck> {
        self.gates.was_passed(Gate::Valid)?;
        self.clear();
        self.open.close();
        self.phase = Phase::Idle;
        Ok(())
    }

    /// A lock was not to be had: what the first run did is undone, and it begins again. The caller has released locks
    /// and freed what was allocated.
    ///
    /// # Errors
    /// It is not the first run.
    pub fn retry(&mut self, memory: &mut impl ProgramMemory) -> Result<(), FailedCheck> {
        if self.phase != Phase::First {
            return Err(Reason::CallsDiffer.into());
        }
        self.open.undo(memory);
        self.message.restart();
        self.clear();
        Ok(())
    }

    /// Whether this handler has ignored anything beside what is always ignored.
    fn has_ignored(&self) -> bool {
        self.ignored.iter().any(|ignored| ignored.len() != self.always_ignored)
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.open.clear();
        self.first.clear();
        self.new.clear();
        if !self.calls.has_none() {
            self.calls.clear();
        }
        if self.has_ignored() {
            self.ignored.iter_mut().for_each(|ignored| ignored.truncate(self.always_ignored));
        }
    }
}

/// Without the replay of its kind (a test removed it), the second run does the call itself.
fn is_replayed(kind: Kind) -> bool {
    match kind {
        Kind::Allocate => kept(Protection::ReplayAllocation),
        Kind::Recorded | Kind::Taken => kept(Protection::ReplayValue),
        Kind::Free | Kind::Deferred | Kind::Add | Kind::FreeContext => true,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::VectorMemory;

    const COUNTER: usize = 200;
    const MESSAGE: usize = 16;

    fn setting() -> (Handler, VectorMemory, Owners) {
        (Handler::default(), VectorMemory((0..=255).collect()), Owners::new(16))
    }

    fn input(memory: &VectorMemory) -> Option<InputMessage> {
        let crc = crc32c::crc32c(memory.bytes(MESSAGE, 8));
        Some(InputMessage { address: MESSAGE, length: 8, crc, is_edited: false })
    }

    /// The program's handler: counts, and replies with the counter.
    fn run(handler: &mut Handler, memory: &mut VectorMemory) {
        let at = handler.before_write(memory, COUNTER, Size::B4).unwrap();
        let value = memory.load(at, Size::B4) + 1;
        memory.store(at, Size::B4, value);
        handler.output_append(memory, COUNTER, 4).unwrap();
        handler.output_done().unwrap();
    }

    #[test]
    fn a_handler_counts_once_and_replies_with_the_requests_crc() {
        let (mut handler, mut memory, owners) = setting();
        let before = memory.load(COUNTER, Size::B4);
        let request = input(&memory);
        for round in 1..=3 {
            assert_eq!(handler.prepare(&memory, request, true), Ok(true));
            handler.begin(0, 0).unwrap();
            run(&mut handler, &mut memory);
            assert_eq!(handler.commit(&mut memory, &owners, 0), Ok(Next::RunAgain));
            run(&mut handler, &mut memory);
            assert_eq!(handler.commit(&mut memory, &owners, 0), Ok(Next::Release));
            assert_eq!(memory.load(COUNTER, Size::B4), before + round);
            let crc = crc32c::crc32c_append(request.unwrap().crc, memory.bytes(COUNTER, 4));
            assert_eq!(handler.replies(), [AgreedReply { crc, context: 0 }]);
            handler.end().unwrap();
        }
    }

    #[test]
    fn a_corrupt_message_is_discarded() {
        let (mut handler, mut memory, _) = setting();
        let request = input(&memory);
        memory.0[MESSAGE] ^= 4;
        assert_eq!(handler.prepare(&memory, request, true), Ok(false));
        assert_eq!(handler.phase(), Phase::Idle);
    }

    /// A fault leads from one phase into another: what each phase's own code does is left out or done twice. With the
    /// gates' test or set removed, by the name of each, the jump goes on to the next check.
    #[test]
    fn jumps_over_a_phase_are_seen_by_its_gate() {
        let (mut handler, mut memory, owners) = setting();
        // Out of I: E1 runs with the gates of the last handler.
        handler.phase = Phase::Prepared;
        handler.begin(0, 0).unwrap();
        run(&mut handler, &mut memory);
        assert_eq!(handler.commit(&mut memory, &owners, 0), Err(Reason::GateNotPassed.into()));

        // Back from R into E1: its end comes a second time.
        let (mut handler, mut memory, owners) = setting();
        let request = input(&memory);
        handler.prepare(&memory, request, true).unwrap();
        handler.begin(0, 0).unwrap();
        run(&mut handler, &mut memory);
        handler.gates.pass(Gate::First).unwrap();
        assert_eq!(handler.commit(&mut memory, &owners, 0), Err(Reason::GateAlreadyPassed.into()));

        // Over R into E2 and V.
        let (mut handler, mut memory, owners) = setting();
        handler.prepare(&memory, request, true).unwrap();
        handler.begin(0, 0).unwrap();
        run(&mut handler, &mut memory);
        handler.phase = Phase::Second;
        assert_eq!(handler.commit(&mut memory, &owners, 0), Err(Reason::GateNotPassed.into()));

        // Over V to the end.
        let (mut handler, mut memory, owners) = setting();
        handler.prepare(&memory, request, true).unwrap();
        handler.begin(0, 0).unwrap();
        run(&mut handler, &mut memory);
        handler.commit(&mut memory, &owners, 0).unwrap();
        run(&mut handler, &mut memory);
        assert_eq!(handler.end(), Err(Reason::GateNotPassed.into()));
    }

    #[test]
    fn a_handler_cannot_begin_within_another_one_nor_end_outside() {
        let (mut handler, mut memory, owners) = setting();
        assert_eq!(handler.begin(0, 0), Err(Reason::BeginWithoutMessage.into()));
        assert_eq!(handler.commit(&mut memory, &owners, 0), Err(Reason::CommitOutsideHandler.into()));
        assert_eq!(handler.before_write(&memory, COUNTER, Size::B4), Err(Reason::AccessOutsideHandler));
        handler.prepare(&memory, None, true).unwrap();
        assert_eq!(handler.prepare(&memory, None, true), Err(Reason::PrepareWithinHandler.into()));
        handler.begin(0, 0).unwrap();
        assert_eq!(handler.begin(0, 0), Err(Reason::BeginWithinHandler.into()));
    }

    #[test]
    fn a_retry_begins_with_the_old_state() {
        let (mut handler, mut memory, owners) = setting();
        let before = memory.0.clone();
        let request = input(&memory);
        handler.prepare(&memory, request, true).unwrap();
        handler.begin(0, 0).unwrap();
        run(&mut handler, &mut memory);
        handler.retry(&mut memory).unwrap();
        assert_eq!(memory.0, before);
        run(&mut handler, &mut memory);
        handler.commit(&mut memory, &owners, 0).unwrap();
        run(&mut handler, &mut memory);
        handler.commit(&mut memory, &owners, 0).unwrap();
        assert_eq!(memory.load(COUNTER, Size::B4), u64::from(u32::from_le_bytes([200, 201, 202, 203])) + 1);
    }

    /// Every bit of everything that the handler's records hold between two runs is a place for a fault: the counter,
    /// and the reply, are right at the end, or the fault is detected.
    #[test]
    fn a_flipped_bit_of_memory_between_any_two_steps_is_detected_or_harmless() {
        for step in 0..4 {
            for address in [MESSAGE, MESSAGE + 7, COUNTER, COUNTER + 3] {
                for bit in 0..8 {
                    assert_isolated(step, address, bit);
                }
            }
        }
    }

    fn assert_isolated(step: usize, address: usize, bit: u32) {
        let (mut handler, mut memory, owners) = setting();
        let right = memory.load(COUNTER, Size::B4) + 1;
        let request = input(&memory);
        let flip = |memory: &mut VectorMemory, at: usize| {
            if at == step {
                memory.0[address] ^= 1 << bit;
            }
        };
        let outcome = (|| {
            if !handler.prepare(&memory, request, true)? {
                return Ok(());
            }
            handler.begin(0, 0)?;
            flip(&mut memory, 0);
            // Flipped before the first run has read it, the state itself is wrong: ECC, or a second copy, is for that.
            if step == 0 && address >= COUNTER {
                return Err(Reason::StateDiffers.into());
            }
            run(&mut handler, &mut memory);
            flip(&mut memory, 1);
            handler.commit(&mut memory, &owners, 0)?;
            flip(&mut memory, 2);
            run(&mut handler, &mut memory);
            flip(&mut memory, 3);
            handler.commit(&mut memory, &owners, 0).map(|_| ())
        })();
        if outcome.is_ok() {
            assert_eq!(memory.load(COUNTER, Size::B4), right, "step {step}, byte {address}, bit {bit}");
            let crc = crc32c::crc32c_append(request.unwrap().crc, &(right as u32).to_le_bytes());
            assert_eq!(
                handler.replies(),
                [AgreedReply { crc, context: 0 }],
                "step {step}, byte {address}, bit {bit}"
            );
        }
    }
}
