//! The program: the commands of every service, for this service.

use std::sync::Arc;

use crosscheck::{Behaviors, MakeProtocol};
use node::{Application, ReplicaParts};

use crate::{Bank, RespConnection};

/// The program of a release: 2 is the present one. Release 1 is kept, as a program of its own, so that tests can
/// upgrade a group from it.
pub struct Program<const RELEASE: u16>;

impl<const RELEASE: u16> Application for Program<RELEASE> {
    const NAME: &'static str = "bank";
    const VERSION: &'static str = if RELEASE == 1 { "1.0" } else { "2.0" };
    const BEHAVIORS: Behaviors = Behaviors::up_to(RELEASE);
    const ABOUT: &'static str = "A bank that survives bit flips; redis-cli talks to it";
    const PORT: u16 = 6379;
    const OBJECTS: &'static str = "  account:N   the account with that number
  branch:N    the branch with that number, 0 to 7
  office      what holds for the whole bank";
    const OBJECT: &'static str = "account:1";
    type Service = Bank;
    type Protocol = RespConnection;
    type Options = ();

    fn build(_options: &()) -> Result<ReplicaParts<Self>, String> {
        let make_protocol: MakeProtocol<RespConnection> = Arc::new(|_accepted| RespConnection);
        Ok((Bank::new(), make_protocol))
    }
}
