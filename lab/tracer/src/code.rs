//! The registers and memory that one static instruction reads and writes, and therefore the faults that it can carry.

use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, Mnemonic,
    OpAccess, OpKind, Register, UsedMemory,
};

use crate::fault::TracerFault;

/// Longest x86 instruction, in bytes.
pub const LONGEST: usize = 15;
/// Longest memory operand that faults are injected into, in bytes: one cache line, one AVX-512 register.
const LONGEST_OPERAND: usize = 64;

/// The status flags a fault may flip: CF, PF, AF, ZF, SF, OF (Intel SDM volume 1, 3.4.3.1).
pub const STATUS_FLAGS: u64 = 0x8d5;

/// A register that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The named register: `EAX` for an instruction on 32 bits of RAX.
    pub register: Register,
    /// Width of the name in bits.
    pub bits: u32,
}

/// A place into which a register fault can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPlace {
    /// A general or vector register.
    Register(Named),
    /// Some of the status flags, as a mask.
    Flags(u64),
}

/// One decoded instruction and its uses.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its address.
    pub address: u64,
    /// Its bytes; longer than the instruction.
    pub bytes: [u8; LONGEST],
    /// The decoded instruction.
    pub instruction: Instruction,
    /// The registers that it writes, flags last.
    pub written: Vec<FaultPlace>,
    /// The registers that it reads, address registers included, flags last.
    pub read: Vec<FaultPlace>,
    /// Memory it writes.
    pub stores: Vec<UsedMemory>,
    /// Memory it reads.
    pub loads: Vec<UsedMemory>,
    can: u8,
}

impl Code {
    /// Decodes the instruction at `address`.
    pub fn decode(address: u64, bytes: [u8; LONGEST], factory: &mut InstructionInfoFactory) -> Self {
        let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
        let info = factory.info(&instruction);
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for used in info.used_registers() {
            let Some(named) = named(&instruction, used.register()) else { continue };
            if writes(used.access()) && !written.contains(&FaultPlace::Register(named)) {
                written.push(FaultPlace::Register(named));
            }
            if reads(used.access()) && !read.contains(&FaultPlace::Register(named)) {
                read.push(FaultPlace::Register(named));
            }
        }
        let (mut stores, mut loads) = (Vec::new(), Vec::new());
        for memory in info.used_memory() {
            if !(1..=LONGEST_OPERAND).contains(&memory.memory_size().size()) {
                continue;
            }
            if writes(memory.access()) {
                stores.push(*memory);
            }
            if reads(memory.access()) {
                loads.push(*memory);
            }
        }
        if let mask @ 1.. = mask_of(instruction.rflags_modified()) {
            written.push(FaultPlace::Flags(mask));
        }
        if let mask @ 1.. = mask_of(instruction.rflags_read()) {
            read.push(FaultPlace::Flags(mask));
        }
        let mut code = Code { address, bytes, instruction, written, read, stores, loads, can: 0 };
        code.can =
            TracerFault::ALL.iter().filter(|fault| code.carries(**fault)).map(|fault| fault.bit()).sum();
        code
    }

    /// Whether this instruction has a place for `fault`.
    pub fn can(&self, fault: TracerFault) -> bool {
        self.can & fault.bit() != 0
    }

    /// Whether it enters the kernel.
    pub fn is_syscall(&self) -> bool {
        self.instruction.mnemonic() == Mnemonic::Syscall
    }

    /// Whether it repeats itself: each iteration is one step, but a breakpoint stops only before the first.
    pub fn repeats(&self) -> bool {
        self.instruction.has_rep_prefix() || self.instruction.has_repne_prefix()
    }

    /// The instruction in assembly language.
    pub fn text(&self) -> String {
        let mut text = String::new();
        IntelFormatter::new().format(&self.instruction, &mut text);
        text
    }

    fn carries(&self, fault: TracerFault) -> bool {
        match fault {
            TracerFault::Cf => true,
            TracerFault::Wreg => !self.written.is_empty(),
            TracerFault::Rreg => !self.read.is_empty(),
            TracerFault::Wval | TracerFault::Waddr => !self.stores.is_empty(),
            TracerFault::Rval | TracerFault::Raddr => !self.loads.is_empty(),
        }
    }
}

/// The register as the instruction names it; none for those into which no fault is injected (segment, x87, MMX,
/// mask and control registers, and the instruction pointer, which has its own fault).
fn named(instruction: &Instruction, register: Register) -> Option<Named> {
    let full = register.full_register();
    let is_ours = full.is_gpr() || register.is_xmm() || register.is_ymm();
    if !is_ours {
        return None;
    }
    let by_name = (0..instruction.op_count())
        .filter(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand))
        .find(|name| name.full_register() == full && name.size() < register.size());
    let register = by_name.unwrap_or(register);
    Some(Named { register, bits: register.size() as u32 * 8 })
}

fn writes(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn reads(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

/// The decoder's flag names as bits of the flags register.
fn mask_of(named: u32) -> u64 {
    use iced_x86::RflagsBits as Bits;
    let pairs = [(Bits::CF, 0), (Bits::PF, 2), (Bits::AF, 4), (Bits::ZF, 6), (Bits::SF, 7), (Bits::OF, 11)];
    pairs.iter().filter(|(name, _)| named & name != 0).map(|(_, bit)| 1 << bit).sum::<u64>() & STATUS_FLAGS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Code {
        let mut all = [0x90; LONGEST];
        all[..bytes.len()].copy_from_slice(bytes);
        Code::decode(0x1000, all, &mut InstructionInfoFactory::new())
    }

    fn register(register: Register, bits: u32) -> FaultPlace {
        FaultPlace::Register(Named { register, bits })
    }

    #[test]
    fn a_move_between_registers_carries_register_faults_only() {
        let code = decode(&[0x89, 0xd8]); // mov eax, ebx
        assert_eq!(code.written, [register(Register::EAX, 32)]);
        assert_eq!(code.read, [register(Register::EBX, 32)]);
        let can: Vec<TracerFault> = TracerFault::ALL.into_iter().filter(|fault| code.can(*fault)).collect();
        assert_eq!(can, [TracerFault::Cf, TracerFault::Wreg, TracerFault::Rreg]);
    }

    #[test]
    fn a_push_stores_and_moves_the_stack() {
        let code = decode(&[0x50]); // push rax
        assert!(code.written.contains(&register(Register::RSP, 64)));
        assert_eq!(code.stores.len(), 1);
        assert_eq!(code.stores[0].memory_size().size(), 8);
        assert!(!code.can(TracerFault::Rval));
    }

    #[test]
    fn flags_are_places_of_their_own() {
        let compare = decode(&[0x48, 0x39, 0xd8]); // cmp rax, rbx
        assert_eq!(compare.written, [FaultPlace::Flags(STATUS_FLAGS)]);
        let jump = decode(&[0x74, 0x00]); // je
        assert_eq!(jump.read, [FaultPlace::Flags(0x40)]);
        assert!(jump.written.is_empty());
    }

    #[test]
    fn repeated_strings_and_system_calls_are_known() {
        assert!(decode(&[0xf3, 0xa4]).repeats()); // rep movsb
        assert!(decode(&[0x0f, 0x05]).is_syscall());
        assert!(!decode(&[0x90]).repeats());
    }
}
