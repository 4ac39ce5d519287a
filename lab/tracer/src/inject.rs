//! Injects one fault into a thread that stands before the chosen instruction.
//!
//! A wrong address that is not mapped, or not for this kind of access, must cause a real fault: a simulated SIGSEGV is
//! ignored by handlers that return and expect the instruction to fault again, as Rust's does. So the thread is sent to
//! an address that is never mapped.

use std::io;

use iced_x86::{Register, UsedMemory};
use serde::{Deserialize, Serialize};
use wire::SplitMix64;

use crate::code::{Code, FaultPlace, Named};
use crate::fault::{Bits, TracerFault};
use crate::memory::Memory;
use crate::sys::{self, Registers};

/// The first page is never mapped: a jump there is a fault of the processor itself.
const NOWHERE: u64 = 0x40;

/// The flipped bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// Register name, or the address and length of memory.
    pub place: String,
    /// The number of the bit.
    pub bit: u32,
    /// Before the flip: up to 64 bytes in hexadecimal, the highest digit first.
    pub old: String,
    /// After it.
    pub new: String,
    /// Whether a wrong address was not mapped: the processor faulted.
    pub nowhere: bool,
}

/// The thread into which a fault is injected.
pub struct TargetThread<'a> {
    /// Kernel id of the stopped thread.
    pub thread: i32,
    /// Its address space.
    pub memory: &'a Memory,
    /// False for the null campaign: everything is done except the flip.
    pub flips: bool,
    /// Lets the thread execute one instruction; false when the thread did not complete it.
    pub step: &'a mut dyn FnMut() -> io::Result<bool>,
}

impl std::fmt::Debug for TargetThread<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Victim")
            .field("thread", &self.thread)
            .field("flips", &self.flips)
            .finish_non_exhaustive()
    }
}

/// Why nothing was flipped.
#[derive(Debug)]
pub enum Missed {
    /// The operand cannot be reached from outside (the kernel's clock pages, for one).
    OutOfReach,
    /// The thread was ended, or left the instruction by a signal, during the injection.
    Gone,
    /// A system call of the tracer failed.
    Failed(io::Error),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Self {
        Missed::Failed(error)
    }
}

impl TargetThread<'_> {
    /// Injects into `code`, before which the thread stands. Place and bit are drawn from `stream`.
    ///
    /// # Errors
    /// See [`Missed`].
    pub fn inject(
        mut self,
        fault: TracerFault,
        code: &Code,
        bits: Bits,
        stream: &mut SplitMix64,
    ) -> Result<Flip, Missed> {
        match fault {
            TracerFault::Cf => self.instruction_pointer(bits, stream),
            TracerFault::Rreg => self.place(&code.read, bits, stream),
            TracerFault::Wreg => {
                self.stepped()?;
                self.place(&code.written, bits, stream)
            }
            TracerFault::Rval => {
                let (address, length) = self.operand(&code.loads, stream)?;
                self.value(address, length, stream)
            }
            TracerFault::Wval => {
                let (address, length) = self.operand(&code.stores, stream)?;
                self.stepped()?;
                self.value(address, length, stream)
            }
            TracerFault::Waddr => self.wrong_store(code, bits, stream),
            TracerFault::Raddr => self.wrong_load(code, bits, stream),
        }
    }

    fn stepped(&mut self) -> Result<(), Missed> {
        if (self.step)()? { Ok(()) } else { Err(Missed::Gone) }
    }

    fn mask(&self, bit: u32) -> u64 {
        if self.flips { 1 << bit } else { 0 }
    }

    fn instruction_pointer(&mut self, bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let mut registers = sys::registers(self.thread)?;
        let bit = bit_of(bits, 64, stream);
        let old = registers.rip;
        registers.rip ^= self.mask(bit);
        sys::set_registers(self.thread, &registers)?;
        Ok(flip("rip".into(), bit, old, registers.rip))
    }

    fn place(&mut self, places: &[FaultPlace], bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        match stream.one_of(places).ok_or(Missed::OutOfReach)? {
            FaultPlace::Flags(mask) => self.flags(*mask, stream),
            FaultPlace::Register(named) if named.register.is_xmm() || named.register.is_ymm() => {
                self.vector(*named, bits, stream)
            }
            FaultPlace::Register(named) => self.general(*named, bits, stream),
        }
    }

    fn flags(&mut self, mask: u64, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let choices: Vec<u32> = (0..16).filter(|bit| mask & (1 << bit) != 0).collect();
        let bit = *stream.one_of(&choices).ok_or(Missed::OutOfReach)?;
        let mut registers = sys::registers(self.thread)?;
        let old = registers.eflags;
        registers.eflags ^= self.mask(bit);
        sys::set_registers(self.thread, &registers)?;
        Ok(flip("flags".into(), bit, old, registers.eflags))
    }

    fn general(&mut self, named: Named, bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let mut registers = sys::registers(self.thread)?;
        let bit = bit_of(bits, named.bits, stream);
        let high = matches!(named.register, Register::AH | Register::BH | Register::CH | Register::DH);
        let shift = if high { 8 } else { 0 };
        let mask = self.mask(bit + shift);
        let whole = general_mut(&mut registers, named.register).ok_or(Missed::OutOfReach)?;
        let old = *whole;
        *whole ^= mask;
        let new = *whole;
        sys::set_registers(self.thread, &registers)?;
        Ok(flip(format!("{:?}", named.register).to_lowercase(), bit, old, new))
    }

    fn vector(&mut self, named: Named, bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let bit = bit_of(bits, named.bits, stream);
        let mut state = sys::extended_state(self.thread)?;
        let (at, component) = vector_byte(named.register.number(), bit);
        let byte = *state.get(at).ok_or(Missed::OutOfReach)?;
        let new = byte ^ if self.flips { 1 << (bit % 8) } else { 0 };
        state[at] = new;
        // A component in its initial state is not stored and would not be loaded (Intel SDM volume 1, 13.6).
        if self.flips {
            state[XSTATE_BV] |= component;
        }
        sys::set_extended_state(self.thread, &mut state)?;
        let name = format!("{:?}", named.register).to_lowercase();
        Ok(flip(name, bit, u64::from(byte), u64::from(new)))
    }

    fn value(&mut self, address: u64, length: usize, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let bit = stream.below(length as u64 * 8) as u32;
        let old = self.memory.read(address, length).map_err(|_| Missed::OutOfReach)?;
        let mut new = old.clone();
        new[bit as usize / 8] ^= if self.flips { 1 << (bit % 8) } else { 0 };
        self.memory.write(address, &new).map_err(|_| Missed::OutOfReach)?;
        let place = format!("{address:#x}+{length}");
        Ok(Flip { place, bit, old: hex(&old), new: hex(&new), nowhere: false })
    }

    /// The value is written to the wrong address, and the right one keeps its old content.
    fn wrong_store(&mut self, code: &Code, bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let (right, length) = self.operand(&code.stores, stream)?;
        let bit = bit_of(bits, 64, stream);
        let wrong = right ^ self.mask(bit);
        if !self.memory.allows(wrong, length, true)? {
            return self.go_nowhere(right, wrong, length, bit);
        }
        let before = self.memory.read(right, length).map_err(|_| Missed::OutOfReach)?;
        self.stepped()?;
        let value = self.memory.read(right, length)?;
        self.memory.write(right, &before)?;
        self.memory.write(wrong, &value)?;
        Ok(address_flip(right, wrong, length, bit, false))
    }

    /// The bytes of the wrong address are at the right one while the instruction runs.
    fn wrong_load(&mut self, code: &Code, bits: Bits, stream: &mut SplitMix64) -> Result<Flip, Missed> {
        let (right, length) = self.operand(&code.loads, stream)?;
        let bit = bit_of(bits, 64, stream);
        let wrong = right ^ self.mask(bit);
        if !self.memory.allows(wrong, length, false)? {
            return self.go_nowhere(right, wrong, length, bit);
        }
        let before = self.memory.read(right, length).map_err(|_| Missed::OutOfReach)?;
        let other = self.memory.read(wrong, length).map_err(|_| Missed::OutOfReach)?;
        self.memory.write(right, &other).map_err(|_| Missed::OutOfReach)?;
        let stepped = self.stepped();
        let also_written = self.memory.read(right, length)? != other;
        if !also_written {
            self.memory.write(right, &before)?;
        }
        stepped?;
        Ok(address_flip(right, wrong, length, bit, false))
    }

    fn go_nowhere(&mut self, right: u64, wrong: u64, length: usize, bit: u32) -> Result<Flip, Missed> {
        let mut registers = sys::registers(self.thread)?;
        registers.rip = NOWHERE;
        sys::set_registers(self.thread, &registers)?;
        Ok(address_flip(right, wrong, length, bit, true))
    }

    fn operand(&self, several: &[UsedMemory], stream: &mut SplitMix64) -> Result<(u64, usize), Missed> {
        let memory = stream.one_of(several).ok_or(Missed::OutOfReach)?;
        let registers = sys::registers(self.thread)?;
        let address = address_of(memory, &registers).ok_or(Missed::OutOfReach)?;
        Ok((address, memory.memory_size().size()))
    }
}

/// The address of a memory operand. None for the forms that need a vector register's lanes.
pub fn address_of(memory: &UsedMemory, registers: &Registers) -> Option<u64> {
    let mut copy = *registers;
    memory.virtual_address(0, |register, _, _| match register {
        Register::FS => Some(registers.fs_base),
        Register::GS => Some(registers.gs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        Register::RIP => Some(registers.rip),
        register => general_mut(&mut copy, register).map(|whole| match register.size() {
            8 => *whole,
            bytes => *whole & ((1 << (bytes * 8)) - 1),
        }),
    })
}

fn general_mut(registers: &mut Registers, register: Register) -> Option<&mut u64> {
    Some(match register.full_register() {
        Register::RAX => &mut registers.rax,
        Register::RBX => &mut registers.rbx,
        Register::RCX => &mut registers.rcx,
        Register::RDX => &mut registers.rdx,
        Register::RSI => &mut registers.rsi,
        Register::RDI => &mut registers.rdi,
        Register::RBP => &mut registers.rbp,
        Register::RSP => &mut registers.rsp,
        Register::R8 => &mut registers.r8,
        Register::R9 => &mut registers.r9,
        Register::R10 => &mut registers.r10,
        Register::R11 => &mut registers.r11,
        Register::R12 => &mut registers.r12,
        Register::R13 => &mut registers.r13,
        Register::R14 => &mut registers.r14,
        Register::R15 => &mut registers.r15,
        _ => return None,
    })
}

/// Header field that shows which components are stored (Intel SDM volume 1, 13.4.2).
const XSTATE_BV: usize = 512;
/// Low 16 bytes of each vector register, in the legacy region.
const XMM: usize = 160;
/// High 16 bytes, at the offset that the standard format has on every processor so far.
const YMM_HIGH: usize = 576;

/// Byte of the extended state that holds `bit` of vector register `number`, and the mark of its component.
fn vector_byte(number: usize, bit: u32) -> (usize, u8) {
    let byte = bit as usize / 8;
    if byte < 16 { (XMM + 16 * number + byte, 2) } else { (YMM_HIGH + 16 * number + byte - 16, 4) }
}

fn bit_of(bits: Bits, width: u32, stream: &mut SplitMix64) -> u32 {
    let (low, count) = bits.within(width);
    low + stream.below(u64::from(count)) as u32
}

fn flip(place: String, bit: u32, old: u64, new: u64) -> Flip {
    Flip { place, bit, old: format!("{old:x}"), new: format!("{new:x}"), nowhere: false }
}

fn address_flip(right: u64, wrong: u64, length: usize, bit: u32, nowhere: bool) -> Flip {
    let place = format!("address+{length}");
    Flip { place, bit, old: format!("{right:x}"), new: format!("{wrong:x}"), nowhere }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect()
}
