//! The running cluster of the demonstration: its clients, its background load, and the reports of its replicas.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use crosscheck::admin::{EvidenceRecord, Status};

use super::scenes::Object;
use cli::service::{ClusterOptions, ClusterPlan};
use memcached_client::Client;
use memcached_client::load::{CheckedLoad, LoadCounts, RunningLoad};
use node::cluster::{Keeper, ReplicaHandle, ReplicaRow};
use node::evidence::EvidenceWatch;
use node::signals::Ending;

/// How long a client of the demonstration waits for a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the cluster may take to come up.
const START: Duration = Duration::from_secs(30);
/// Longest value of the background load, in bytes.
const LONGEST_VALUE: usize = 400;
/// Connections of the background load.
const CONNECTIONS: usize = 6;

/// The cluster and its clients.
pub struct Stage {
    /// The replicas.
    pub replicas: Vec<ReplicaHandle>,
    /// The load that runs during every scene and checks every reply.
    pub load: RunningLoad,
    keeper: Keeper,
    clients: Vec<Client>,
    watch: EvidenceWatch,
}

impl Stage {
    /// Starts a cluster on free ports, stores the demonstration's items, and starts the load.
    ///
    /// # Errors
    /// A part does not start.
    pub fn set(replicas: u8, ending: &Ending) -> anyhow::Result<Self> {
        let wish = ClusterOptions { replicas: Some(replicas), port: Some(0), ..ClusterOptions::default() };
        let keeper = Keeper::start(&ClusterPlan::new(&wish)?, node::up::STOP_PATIENCE)?;
        keeper.until_ready(START, ending)?;
        // The starts are shown elsewhere; events of a process after this point are errors.
        keeper.events.take();
        let replicas = keeper.replicas.clone();
        let addresses: Vec<_> = replicas.iter().filter_map(|replica| replica.clients).collect();
        let connect = |address: &std::net::SocketAddr| Client::connect(*address, PATIENCE);
        let mut clients = addresses.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        for object in [Object::LongValue, Object::LongKey] {
            clients[0].set(&object.key(), 0, &object.value())?;
        }
        let load = CheckedLoad {
            clients: CONNECTIONS,
            keys: 50,
            pipeline: 1,
            longest_value: LONGEST_VALUE,
            patience: PATIENCE,
            prefix: "load:".to_owned(),
            ..CheckedLoad::on(&addresses)
        };
        let load = load.try_start()?;
        let watch = EvidenceWatch::new(&replicas);
        Ok(Stage { replicas, load, keeper, clients, watch })
    }

    /// Stores an object's item again through one replica.
    ///
    /// # Errors
    /// The replica does not store it.
    pub fn store(&mut self, replica: u8, object: Object) -> anyhow::Result<()> {
        let client = &mut self.clients[usize::from(replica - 1)];
        client
            .set(&object.key(), 0, &object.value())
            .with_context(|| format!("storing through replica {replica}"))
    }

    /// Reads an object's item through one replica and compares every byte. Returns how long it took.
    ///
    /// # Errors
    /// A wrong or missing value, or no answer.
    pub fn read(&mut self, replica: u8, object: Object) -> anyhow::Result<Duration> {
        let (key, expected) = (object.key(), object.value());
        let index = usize::from(replica - 1);
        let start = Instant::now();
        let value = match self.clients[index].get(&key) {
            Ok(value) => value,
            Err(trouble) => {
                let address = self.replicas[index].clients.ok_or_else(|| anyhow!("no client address"))?;
                self.clients[index] = Client::connect(address, PATIENCE)?;
                bail!("replica {replica}: {trouble}");
            }
        };
        let took = start.elapsed();
        match value {
            Some(value) if value.bytes == expected && value.flags == 0 => Ok(took),
            Some(_) => Err(anyhow!("replica {replica} sent a WRONG VALUE to a client")),
            None => Err(anyhow!("replica {replica} does not find the key")),
        }
    }

    /// A replica's last status.
    pub fn status(&self, replica: u8) -> Option<Status> {
        let rows = self.keeper.observer.rows();
        let row: Option<ReplicaRow> = rows.into_iter().find(|row| row.replica.number == replica);
        row.and_then(|row| row.seen.ok())
    }

    /// Frames that all replicas together have dropped.
    pub fn dropped_frames(&self) -> u64 {
        let rows = self.keeper.observer.rows();
        rows.iter().filter_map(|row| row.seen.as_ref().ok()).map(|status| status.dropped_frames).sum()
    }

    /// Evidence since the last call, with the replica that detected the error.
    pub fn news(&mut self) -> Vec<(u8, EvidenceRecord)> {
        self.watch.poll().records
    }

    /// The events of the processes since the last call.
    pub fn events(&self) -> Vec<node::cluster::SupervisorEvent> {
        self.keeper.events.take()
    }

    /// Ends the load and keeps the cluster, for the last comparison.
    pub fn quiet(self) -> (LoadCounts, Keeper) {
        let seen = self.load.stop();
        // The last repairs end within a moment.
        thread::sleep(Duration::from_millis(300));
        (seen, self.keeper)
    }
}
