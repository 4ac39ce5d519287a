//! The program: the commands of every service, for this service.

use std::process::ExitCode;
use std::sync::Arc;

use bank::{Bank, RespConnection};
use crosscheck::MakeProtocol;
use node::{Application, ReplicaParts};

struct Program;

impl Application for Program {
    const NAME: &'static str = "bank";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
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

fn main() -> ExitCode {
    node::main::<Program>()
}
