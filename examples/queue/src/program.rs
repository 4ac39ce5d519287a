//! The program: the commands of every service, for this service.

use std::sync::Arc;

use crosscheck::MakeProtocol;
use node::{Application, ReplicaParts};

use crate::{BeanstalkConnection, WorkQueue};

/// The work queue as a program.
pub struct QueueProgram;

impl Application for QueueProgram {
    const NAME: &'static str = "queue";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "A work queue that survives bit flips; beanstalkd's clients talk to it";
    const PORT: u16 = 11300;
    const OBJECTS: &'static str = "  job:ID      the job with that id
  tube:NAME   the tube with that name
  region:N    what holds for all tubes of a region, 0 to 15";
    const OBJECT: &'static str = "tube:default";
    type Service = WorkQueue;
    type Protocol = BeanstalkConnection;
    type Options = ();

    fn build(_options: &()) -> Result<ReplicaParts<Self>, String> {
        let make_protocol: MakeProtocol<BeanstalkConnection> =
            Arc::new(|accepted| BeanstalkConnection::new(accepted.id));
        Ok((WorkQueue::new(), make_protocol))
    }
}
