//! A clock that can be stopped: without it, a program that reads the time takes another path on every run.
//!
//! Programs read the time without a system call, by a function that the kernel maps into them (vdso(7)). That function
//! is overwritten with one that returns the stopped time if there is one, and otherwise calls the kernel. So is the
//! older function for the real time in microseconds.

use std::io;

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, eax, edi, qword_ptr, r8, rax, rcx, rdi, rsi,
};
use rustix::time::{ClockId, clock_gettime};

use crate::memory::Memory;

/// Clocks that stop, by the kernel's number, which is the index here: real time, monotonic, raw, both coarse
/// ones, boot time.
const CLOCKS: [Option<ClockId>; 8] = [
    Some(ClockId::Realtime),
    Some(ClockId::Monotonic),
    None,
    None,
    Some(ClockId::MonotonicRaw),
    Some(ClockId::RealtimeCoarse),
    Some(ClockId::MonotonicCoarse),
    Some(ClockId::Boottime),
];
/// Bytes of a time: seconds, nanoseconds.
const TIME: usize = 16;
/// Where the table has the real time in microseconds.
const MICROS: usize = 8 + CLOCKS.len() * TIME;
/// Bytes of the table: the address that identifies the thread, then the stopped times.
const TABLE: usize = MICROS + TIME;
/// `clock_gettime` in the kernel's table.
const SYS_CLOCK_GETTIME: u32 = 228;
/// `gettimeofday` there.
const SYS_GETTIMEOFDAY: u32 = 96;

/// The clock of one traced process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The address of the table; zero seconds mean that a clock runs.
    table: u64,
}

impl Clock {
    /// Replaces the function; the process must be stopped before its first instruction. None where there is no such
    /// function.
    ///
    /// # Errors
    /// When the process has ended, or its mapped functions are not as in vdso(7).
    pub fn install(memory: &Memory) -> io::Result<Option<Self>> {
        let modules = memory.modules()?;
        let Some(module) = modules.iter().find(|module| module.path == "[vdso]") else { return Ok(None) };
        let image = memory.read(module.base, (module.end - module.base) as usize)?;
        let Some((address, room)) = function(&image, "__vdso_clock_gettime", module.base) else {
            return Ok(None);
        };
        let code = assemble(address).map_err(io::Error::other)?;
        if code.len() as u64 > room {
            return Ok(None);
        }
        memory.write(address, &code)?;
        let table = address + (code.len() - TABLE) as u64;
        if let Some((address, room)) = function(&image, "__vdso_gettimeofday", module.base) {
            let code = assemble_micros(address, table).map_err(io::Error::other)?;
            if code.len() as u64 <= room {
                memory.write(address, &code)?;
            }
        }
        Ok(Some(Clock { table }))
    }

    /// Stops it at the present time, only for the thread whose FS register holds `thread`: other threads sleep until a
    /// point in time, and with a stopped clock would wake up repeatedly.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn stop(&self, memory: &Memory, thread: u64) -> io::Result<()> {
        let mut bytes = thread.to_ne_bytes().to_vec();
        for clock in CLOCKS {
            let now = clock.map(clock_gettime);
            bytes.extend(now.map_or(0, |now| now.tv_sec).to_ne_bytes());
            bytes.extend(now.map_or(0, |now| now.tv_nsec).to_ne_bytes());
        }
        let now = clock_gettime(ClockId::Realtime);
        bytes.extend(now.tv_sec.to_ne_bytes());
        bytes.extend((now.tv_nsec / 1000).to_ne_bytes());
        memory.write(self.table, &bytes)
    }

    /// Lets the clock run again.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn go(&self, memory: &Memory) -> io::Result<()> {
        memory.write(self.table, &[0; TABLE])
    }
}

/// The address of a function and the bytes that are available for it.
fn function(image: &[u8], name: &str, base: u64) -> Option<(u64, u64)> {
    let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(image).ok()?;
    let (symbols, names) = file.dynamic_symbol_table().ok()??;
    let symbol =
        symbols.iter().find(|symbol| names.get(symbol.st_name as usize).is_ok_and(|other| other == name))?;
    Some((base + symbol.st_value, symbol.st_size))
}

/// The end of either function: the `stopped` time goes to where `to` points. Where there is none, and at the label
/// `kernel`, the system call does it.
fn answer(
    a: &mut CodeAssembler,
    mut kernel: CodeLabel,
    stopped: AsmMemoryOperand,
    to: AsmRegister64,
    call: u32,
) -> Result<(), iced_x86::IcedError> {
    a.mov(rcx, qword_ptr(stopped))?;
    a.test(rcx, rcx)?;
    a.jz(kernel)?;
    a.mov(qword_ptr(to), rcx)?;
    a.mov(rcx, qword_ptr(stopped + 8))?;
    a.mov(qword_ptr(to + 8), rcx)?;
    a.xor(eax, eax)?;
    a.ret()?;
    a.set_label(&mut kernel)?;
    a.mov(eax, call)?;
    a.syscall()?;
    a.ret()
}

/// `int clock_gettime(edi: clock, rsi: time)`, with the table of stopped times right behind it.
fn assemble(address: u64) -> Result<Vec<u8>, iced_x86::IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let (kernel, mut table) = (a.create_label(), a.create_label());
    // By the ABI of thread-local storage the thread's descriptor begins with its own address.
    a.mov(rax, qword_ptr(0).fs())?;
    a.lea(r8, qword_ptr(table))?;
    a.cmp(rax, qword_ptr(r8))?;
    a.jne(kernel)?;
    a.cmp(edi, CLOCKS.len() as i32)?;
    a.jae(kernel)?;
    a.mov(eax, edi)?;
    a.shl(eax, 4)?;
    answer(&mut a, kernel, r8 + rax + 8, rsi, SYS_CLOCK_GETTIME)?;
    a.set_label(&mut table)?;
    a.db(&[0; TABLE])?;
    a.assemble(address)
}

/// `int gettimeofday(rdi: time, rsi: unused)`, with the stopped time in `table`.
fn assemble_micros(address: u64, table: u64) -> Result<Vec<u8>, iced_x86::IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let kernel = a.create_label();
    a.mov(rax, qword_ptr(0).fs())?;
    a.mov(r8, table)?;
    a.cmp(rax, qword_ptr(r8))?;
    a.jne(kernel)?;
    a.test(rdi, rdi)?;
    a.jz(kernel)?;
    answer(&mut a, kernel, r8 + MICROS, rdi, SYS_GETTIMEOFDAY)?;
    a.assemble(address)
}
