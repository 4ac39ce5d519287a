//! Measurements by the kernel: of processes, the loopback device and the machine.

mod cycles;
mod machine;
mod process;
mod wire;

pub use self::wire::Wire;
pub use cycles::{EventLoopCycles, cycles_of};
pub use machine::{Commit, Machine};
pub use process::{Cpu, cpu_of, peak_memory_of, resident_of};
