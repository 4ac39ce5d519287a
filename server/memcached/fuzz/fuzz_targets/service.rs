//! Any client against a small, full service: no panic, memory within its limit, every object intact.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use memcached::Config;
use support::Replica;

const TINY: Config = Config { memory: 64 << 10, item_bytes: 4 << 10, shards: 2 };

fuzz_target!(|input: &[u8]| {
    let mut replica = Replica::new(TINY);
    for filler in 0..150 {
        replica.ask(&format!("set f{filler} 0 {} 200\r\n{}\r\n", filler % 3, "f".repeat(200)));
    }
    for conversation in input.split(|byte| *byte == 0) {
        let mut connection = replica.connect();
        replica.talk(&mut connection, conversation);
        replica.now_us += 400_000;
        assert!(replica.service.stats().bytes() <= TINY.memory);
    }
    replica.audit();
    for region_id in 0..TINY.shards {
        assert!(replica.with_region(region_id, |region| region.scrub(1)).is_empty());
    }
});
