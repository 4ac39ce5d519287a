//! One replica of a CrossCheck service, and the face that a service author imports.
//!
//! A service implements [`Service`] and [`Protocol`] with protected objects ([`object`]) behind deterministic locks
//! ([`schedule`]); [`serve`] runs it as one replica of a group. The path of a request is [`Stage`].

// Lets `#[critical]` find `::crosscheck::object` in this crate's own tests and examples.
extern crate self as crosscheck;

pub mod admin;
mod admin_server;
mod clients;
mod evidence;
#[cfg(feature = "inject")]
mod inject;
mod job;
pub mod limits;
mod mailbox;
mod ordered;
mod peers;
mod replica;
mod service;
mod settings;
mod stage;
mod state;
mod strike;
mod transfer;
mod worker;

pub use job::Job;
pub use object;
pub use schedule;
pub use service::{Action, ClientCounters, MakeProtocol, Malformed, Progress, Protocol, Service};
pub use settings::{Durability, Mode, Settings};
pub use stage::Stage;

use std::io;
use std::sync::Arc;

use clients::Clients;
use mailbox::Mailbox;
use replica::{Input, Replica};

/// Why a replica stopped in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was told to.
    Asked,
    /// It cannot be repaired in place, for this reason: start it again, and its peers will fill it.
    Replace(String),
}

/// Why a replica could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The operating system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Going on would break a promise; nothing acknowledged is lost.
    #[error("stopped: {0}")]
    FailStop(order::FailStop),
    /// The state that f+1 peers agree on cannot be loaded: they run another version.
    #[error("the group's state cannot be loaded: {0}; do all replicas run the same version and configuration?")]
    BadState(String),
}

/// Stops a running replica from another thread.
#[derive(Clone)]
pub struct Stopper(Mailbox<Input>);

impl Stopper {
    /// Asks the replica to stop cleanly.
    pub fn stop(&self) {
        self.0.send(Input::Stop);
    }
}

/// Runs one replica of `service` until it is told to stop, or must be replaced. Blocks; `started` is given a way to
/// stop it as soon as its sockets are open.
///
/// # Errors
/// [`ServeError`] says what is wrong and what would help.
pub fn serve<S: Service, P: Protocol>(
    settings: Settings,
    service: S,
    make_protocol: MakeProtocol<P>,
    started: impl FnOnce(Stopper),
) -> Result<Stop, ServeError> {
    let (me, replicas) = (settings.me, settings.peers.len() as u8);
    let config = order::Config::new(me, replicas, replica::seed());
    if !settings.mode.replicated {
        let engine = order::SingleEngine::new(me, 1, 0);
        let orderer = order::Orderer::new(config, engine, order::State::default());
        return run(settings, service, orderer, make_protocol, started);
    }
    let (engine, state) = replica::raft_engine(&settings)?;
    run(settings, service, order::Orderer::new(config, engine, state), make_protocol, started)
}

fn run<S: Service, P: Protocol, E: order::OrderEngine>(
    settings: Settings,
    service: S,
    orderer: order::Orderer<E>,
    make_protocol: MakeProtocol<P>,
    started: impl FnOnce(Stopper),
) -> Result<Stop, ServeError> {
    let counters = Arc::new(ClientCounters::default());
    let admin = settings.admin;
    let (address, max_connections, max_request) = (settings.clients, settings.max_connections, settings.max_request);
    let replica = Replica::new(settings, service, orderer, counters.clone())?;
    let mailbox = replica.mailbox();
    let calls = mailbox.clone();
    admin_server::listen(admin, move |call| calls.send(Input::Call(call)))?;
    let submissions = mailbox.clone();
    let open_clients = Box::new(move || {
        let clients = Clients::bind(address, make_protocol, counters, max_connections, max_request)?;
        let answers = clients.answers();
        let submit = move |requests: &mut Vec<clients::Submission>| {
            submissions.send(Input::Submissions(std::mem::take(requests)));
        };
        std::thread::Builder::new().name("clients".into()).spawn(move || clients.run(submit))?;
        Ok(answers)
    });
    started(Stopper(mailbox));
    replica.run(open_clients)
}
