//! The program of a service in short form ([`crosscheck::short`]).

use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::Arc;

use crosscheck::MakeProtocol;
use crosscheck::short::{Sharded, ShortConnection, StatePart};

use crate::application::{Application, ReplicaParts};

/// The program whose service has this state.
#[derive(Debug)]
pub struct ShortProgram<T>(PhantomData<T>);

impl<T: StatePart> Application for ShortProgram<T> {
    const NAME: &'static str = T::NAME;
    const VERSION: &'static str = T::VERSION;
    const ABOUT: &'static str = T::ABOUT;
    const PORT: u16 = T::PORT;
    const OBJECTS: &'static str =
        "  key:NAME    the part of the state that the key belongs to, if it is a text
  part:N      the part with that number, from 0";
    const OBJECT: &'static str = "part:0";
    type Service = Sharded<T>;
    type Protocol = ShortConnection<T>;
    type Options = ();

    fn build(_options: &()) -> Result<ReplicaParts<Self>, String> {
        let make_protocol: MakeProtocol<ShortConnection<T>> =
            Arc::new(|accepted| ShortConnection::new(accepted.id));
        Ok((Sharded::new(), make_protocol))
    }
}

/// Runs the program of a service in short form: `fn main() -> ExitCode { node::short::main::<MyState>() }`.
pub fn main<T: StatePart>() -> ExitCode {
    crate::main::<ShortProgram<T>>()
}
