//! Resident memory of one item, with the allocator of the shipped binary: differences of two fillings of one process,
//! so that what it has anyhow does not count.
//!
//! ```text
//! MIMALLOC_PURGE_DELAY=0 cargo bench -p memcached --bench memory -- 500 160000
//! ```
//!
//! Arguments: bytes of key and value together, and a number of items; up to four times as many are stored. The setting
//! makes the allocator return at once what is free. Objects have checksums, which are 16 bytes of each in every mode;
//! before-images are kept as in every mode, and their buffers do not grow with the items.

mod requests;
#[path = "../tests/support/mod.rs"]
mod support;

use memcached::Config;
use requests::{KEY, set};
use support::Replica;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Numbers of items between one and its double at which memory is measured. A hash table that grows bit by bit takes
/// more or less memory per item as it does, and is the same again at the double.
const STEPS: usize = 6;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of resident memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [bytes, items] = arguments[..] else {
        println!("BYTES ITEMS: nothing is measured without them");
        return;
    };
    let mut replica = Replica::new(Config::with_memory(4 << 30));
    let mut filled = 0;
    let mut resident_at = |number: usize| {
        (filled..number).for_each(|number| drop(replica.run(&set(number, bytes - KEY))));
        filled = number;
        resident()
    };
    let numbers: Vec<usize> = (0..STEPS).map(|step| items * (STEPS + step) / STEPS).collect();
    let once: Vec<usize> = numbers.iter().map(|number| resident_at(*number)).collect();
    let twice: Vec<usize> = numbers.iter().map(|number| resident_at(2 * number)).collect();
    let per_item = (0..STEPS).map(|step| (twice[step] as f64 - once[step] as f64) / numbers[step] as f64);
    let per_item: Vec<f64> = per_item.collect();
    numbers.iter().zip(&per_item).for_each(|(number, each)| println!("{number} more: {each:.1} B per item"));
    println!("{:.1} B resident per item of {bytes} B", per_item.iter().sum::<f64>() / STEPS as f64);
}
