//! Measurements by the kernel: of processes and the loopback device.

mod cycles;
mod process;
mod wire;

pub use self::wire::Wire;
pub use cycles::{EventLoopCycles, cycles_of};
pub use process::{Cpu, cpu_of, peak_memory_of, resident_of, threads_of};
