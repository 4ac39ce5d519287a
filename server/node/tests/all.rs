//! Every integration test of the crate in one binary. They run replicas of small services: here and not beside the
//! pipeline, because this crate is compiled without optimisation in tests, and each service compiles a pipeline.

mod builds;
mod timers;

use std::net::SocketAddr;
use std::time::Duration;

use crosscheck::admin::Endpoint;
use crosscheck::{Address, ClientAccess, Durability, Mode, OnDetection, Reads, Settings};

/// The settings of replica `me` (from 0) with these addresses: one worker, everything in memory, and no group of its
/// own.
fn settings(me: u8, peers: Vec<Address>, clients: SocketAddr, admin: Endpoint) -> Settings {
    Settings {
        me,
        peers,
        clients,
        access: ClientAccess::default(),
        admin,
        mode: Mode::default(),
        workers: 1,
        client_threads: 1,
        durability: Durability::Memory,
        max_connections: 8,
        max_request: 1 << 16,
        buffer_limit: 32 << 20,
        idle_timeout: None,
        service: Vec::new(),
        founding: Vec::new(),
        has_data: false,
        group_key: None,
        begins: false,
        restore: None,
        election: (Duration::from_millis(300), Duration::from_millis(600)),
        watchdog: Duration::from_secs(10),
        faults_per_10s: 0,
        behaviors: crosscheck::Behaviors::FIRST,
        on_detection: OnDetection::Answer,
        witness: false,
        extra_protection: false,
        reads: Reads::Batch,
    }
}
