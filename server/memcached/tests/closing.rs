//! A replica ends in bounded time, even if a fault has corrupted the resources that it frees.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crosscheck::admin::Endpoint;
use crosscheck::{ClientAccess, Durability, Settings, Stop};
use memcached::{Config, Connection, Memcached};

/// Blocks each thread that drops it, as a lock does whose release a fault has suppressed.
struct Stuck;

impl Drop for Stuck {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_replica_ends_although_its_order_thread_cannot_close() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        me: 0,
        peers: vec![free().into()],
        clients: free(),
        access: ClientAccess::default(),
        admin: Endpoint::unix(folder.path().join("admin.sock")).unwrap(),
        mode: "0000".parse().unwrap(),
        workers: 1,
        client_threads: 1,
        durability: Durability::Memory,
        max_connections: 8,
        max_request: 1 << 20,
        idle_timeout: None,
        buffer_limit: crosscheck::limits::BUFFERS,
        service: Vec::new(),
        founding: Vec::new(),
        has_data: false,
        group_key: None,
        begins: true,
        election: (Duration::from_millis(150), Duration::from_millis(300)),
        watchdog: Duration::from_millis(500),
        witness: false,
        extra_protection: true,
        reads: crosscheck::Reads::Batch,
        faults_per_10s: 0,
        behaviors: crosscheck::Behaviors::FIRST,
        restore: None,
        on_detection: crosscheck::OnDetection::default(),
    };
    let service = Memcached::new(Config::default()).unwrap();
    let (stats, stuck) = (service.stats().clone(), Stuck);
    let make_protocol: crosscheck::MakeProtocol<Connection> = Arc::new(move |accepted| {
        let _kept = &stuck;
        Connection::new(stats.clone(), accepted.counters.clone())
    });
    let (tell, reported) = mpsc::channel();
    std::thread::spawn(move || {
        tell.send(crosscheck::serve(settings, service, make_protocol, |stopper| stopper.stop()))
    });
    let outcome = reported.recv_timeout(Duration::from_secs(60)).expect("it ends");
    assert_eq!(outcome.unwrap(), Stop::Asked);
}
