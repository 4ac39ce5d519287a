//! Each fault type has one known effect on a program of a few instructions, and a run without the flip has none.
//!
//! The program is assembled here and written as an ELF file of its own: no runtime, no library; its exit code shows the
//! result of its computation.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use iced_x86::InstructionInfoFactory;
use iced_x86::code_asm::{CodeAssembler, eax, edi, qword_ptr, rax, rdi, rsp, xmm0};
use tracer::code::{Code, LONGEST};
use tracer::draw;
use tracer::fault::{Bits, TracerFault};
use tracer::inject::{Flip, Missed, TargetThread};
use tracer::memory::Memory;
use tracer::sys::{self, Resume, ThreadEvent};

/// Where the program is loaded.
const BASE: u64 = 0x40_0000;
/// Bytes of the ELF header and its one program header.
const HEADERS: u64 = 64 + 56;

/// Steps of the program.
const MOVE: usize = 2;
const STORE: usize = 3;
const LOAD: usize = 4;
const TO_VECTOR: usize = 5;
const FROM_VECTOR: usize = 6;

/// Exits with 5, the value that passes through two registers, the memory at [rsp] and a vector register; the value 9 is
/// 16 bytes above it.
fn program() -> Vec<u8> {
    let assemble = || {
        let mut a = CodeAssembler::new(64)?;
        a.mov(qword_ptr(rsp + 16), 9)?;
        a.mov(eax, 5)?;
        a.mov(edi, eax)?;
        a.mov(qword_ptr(rsp), rdi)?;
        a.mov(rax, qword_ptr(rsp))?;
        a.movq(xmm0, rax)?;
        a.movq(rdi, xmm0)?;
        a.mov(eax, 60)?;
        a.syscall()?;
        a.assemble(BASE + HEADERS)
    };
    let code: Result<Vec<u8>, iced_x86::IcedError> = assemble();
    elf(&code.expect("assembled"))
}

/// A file of one segment that is loaded as a whole and begins behind the headers.
fn elf(code: &[u8]) -> Vec<u8> {
    let length = HEADERS + code.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([2_u16, 62].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend([BASE + HEADERS, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    file.extend([64_u16, 56, 1, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    // A segment that is read and executed.
    file.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    file.extend([0, BASE, BASE, length, length, 0x1000].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(code);
    file
}

/// How the program ended after an injection before its instruction `at`; none where this machine permits no tracing.
fn run_with_fault(
    fault: TracerFault,
    at: usize,
    bits: &str,
    seed: u64,
    flips: bool,
) -> Option<(ThreadEvent, Result<Flip, Missed>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("program");
    fs::write(&path, program()).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("permitted");
    let child = match sys::spawn_traced(Command::new(&path).stdin(Stdio::null())) {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: this machine permits no ptrace ({error})");
            return None;
        }
    };
    let thread = child.id() as i32;
    wait(thread);
    for _ in 0..at {
        sys::resume(thread, Resume::Step, 0).expect("stepped");
        wait(thread);
    }
    let memory = Memory::open(thread).expect("its memory");
    let address = sys::instruction_pointer(thread).expect("its place");
    let mut bytes = [0; LONGEST];
    memory.read_some(address, &mut bytes);
    let code = Code::decode(address, bytes, &mut InstructionInfoFactory::new());
    assert!(code.can(fault), "{fault} in {}", code.text());
    let mut step = || {
        sys::resume(thread, Resume::Step, 0)?;
        Ok(matches!(wait(thread), ThreadEvent::Stopped { signal: libc::SIGTRAP, .. }))
    };
    let victim = TargetThread { thread, memory: &memory, flips, step: &mut step };
    let bits: Bits = bits.parse().expect("bits");
    let flip = victim.inject(fault, &code, bits, &mut draw::stream(seed, 0, 0));
    sys::resume(thread, Resume::Freely, 0).expect("resumed");
    let end = match wait(thread) {
        // A fault of the processor ends the program.
        ThreadEvent::Stopped { signal, .. } => {
            sys::resume(thread, Resume::Freely, signal).expect("resumed");
            wait(thread)
        }
        end => end,
    };
    Some((end, flip))
}

fn wait(thread: i32) -> ThreadEvent {
    sys::wait(Some(thread), true).expect("waited").expect("an event")
}

/// The exit code after an injection.
fn exit(fault: TracerFault, at: usize, bits: &str) -> Option<i32> {
    let (end, flip) = run_with_fault(fault, at, bits, 1, true)?;
    let flip = flip.expect("injected");
    assert!(!flip.nowhere, "{flip:?}");
    match end {
        ThreadEvent::Exited { code, .. } => Some(code),
        other => panic!("{other:?} after {flip:?}"),
    }
}

#[test]
fn a_written_register_has_its_bit_flipped() {
    let Some(code) = exit(TracerFault::Wreg, MOVE, "1..1") else { return };
    assert_eq!(code, 5 ^ 2);
}

#[test]
fn a_read_register_is_flipped_before_it_is_read() {
    let Some(code) = exit(TracerFault::Rreg, MOVE, "3..3") else { return };
    assert_eq!(code, 5 ^ 8);
}

#[test]
fn vector_registers_are_flipped_too() {
    let Some(code) = exit(TracerFault::Wreg, TO_VECTOR, "4..4") else { return };
    assert_eq!(code, 5 ^ 16);
    assert_eq!(exit(TracerFault::Rreg, FROM_VECTOR, "5..5"), Some(5 ^ 32));
    assert_eq!(exit(TracerFault::Rreg, FROM_VECTOR, "64..127"), Some(5), "the upper half goes nowhere");
}

#[test]
fn a_written_value_is_flipped_in_memory() {
    // Memory has no range of bits: the seed decides, and the exit code shows the bits of the lowest byte only.
    for seed in 0..6 {
        let Some((end, flip)) = run_with_fault(TracerFault::Wval, STORE, "full", seed, true) else { return };
        let flip = flip.expect("injected");
        let right = 5_u64 ^ (1 << flip.bit);
        assert_eq!(
            end,
            ThreadEvent::Exited { thread: end.thread(), code: (right & 0xff) as i32 },
            "{flip:?}"
        );
        assert_eq!(u64::from_str_radix(&flip.new, 16), Ok(right));
    }
}

#[test]
fn a_read_value_is_flipped_before_it_is_read() {
    for seed in 0..6 {
        let Some((end, flip)) = run_with_fault(TracerFault::Rval, LOAD, "full", seed, true) else { return };
        let right = 5_u64 ^ (1 << flip.expect("injected").bit);
        assert_eq!(end, ThreadEvent::Exited { thread: end.thread(), code: (right & 0xff) as i32 });
    }
}

#[test]
fn a_wrong_address_takes_the_value_elsewhere() {
    // The stack is aligned to 16 bytes, so that flipping bit 3 reaches 8 bytes up: neither 5 nor 9 is there.
    let Some((ThreadEvent::Exited { code, .. }, flip)) =
        run_with_fault(TracerFault::Waddr, STORE, "3..3", 1, true)
    else {
        return;
    };
    let flip = flip.expect("injected");
    let right = u64::from_str_radix(&flip.old, 16).expect("an address");
    assert_eq!(u64::from_str_radix(&flip.new, 16), Ok(right ^ 8));
    assert_ne!(code, 5, "the right place keeps what the kernel put there: the count of arguments");
    assert_eq!(code, 1);
}

#[test]
fn a_wrong_address_reads_what_is_elsewhere() {
    let Some((end, flip)) = run_with_fault(TracerFault::Raddr, LOAD, "4..4", 1, true) else { return };
    let flip = flip.expect("injected");
    let (right, wrong) = (u64::from_str_radix(&flip.old, 16), u64::from_str_radix(&flip.new, 16));
    let (right, wrong) = (right.expect("an address"), wrong.expect("an address"));
    if wrong == right + 16 {
        assert_eq!(end, ThreadEvent::Exited { thread: end.thread(), code: 9 });
    } else {
        assert_ne!(end, ThreadEvent::Exited { thread: end.thread(), code: 5 });
    }
}

#[test]
fn an_address_that_leads_nowhere_is_a_fault_of_the_processor() {
    for fault in [TracerFault::Waddr, TracerFault::Raddr] {
        let at = if fault == TracerFault::Waddr { STORE } else { LOAD };
        let Some((end, flip)) = run_with_fault(fault, at, "46..46", 1, true) else { return };
        assert!(flip.expect("injected").nowhere);
        assert_eq!(end, ThreadEvent::Killed { thread: end.thread(), signal: libc::SIGSEGV });
    }
}

#[test]
fn control_flow_goes_where_the_flipped_pointer_points() {
    let Some((end, flip)) = run_with_fault(TracerFault::Cf, MOVE, "40..40", 1, true) else { return };
    assert_eq!(flip.expect("injected").place, "rip");
    assert_eq!(end, ThreadEvent::Killed { thread: end.thread(), signal: libc::SIGSEGV });
}

#[test]
fn everything_but_the_flip_changes_nothing() {
    for fault in TracerFault::ALL {
        let at = match fault {
            TracerFault::Raddr | TracerFault::Rval => LOAD,
            TracerFault::Wval | TracerFault::Waddr => STORE,
            TracerFault::Cf | TracerFault::Wreg | TracerFault::Rreg => MOVE,
        };
        for seed in 0..4 {
            let Some((end, flip)) = run_with_fault(fault, at, "full", seed, false) else { return };
            let flip = flip.expect("injected");
            assert_eq!(flip.old, flip.new, "{fault}");
            assert_eq!(end, ThreadEvent::Exited { thread: end.thread(), code: 5 }, "{fault}");
        }
    }
}
