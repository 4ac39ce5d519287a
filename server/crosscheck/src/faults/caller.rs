//! A process that connects to a replica and claims to be another one of its group: for a simulation, in which it does
//! not have the group's key.

use order::FrameKind;

use crate::peers::Identity;
use crate::peers::hello::Hello;
use crate::peers::records::Records;
use crate::peers::secure::{Channel, Dialling};
use crate::{ServeError, Settings};

/// An open connection attempt, until it is answered.
pub struct Caller {
    me: u8,
    dialling: Dialling,
}

impl Caller {
    /// Begins as the replica that has these settings, with their key. Returns the first bytes to send.
    ///
    /// # Errors
    /// When no key is set.
    pub fn call(settings: &Settings, seed: u64) -> Result<(Self, Vec<u8>), ServeError> {
        let mut identity = Identity::of(settings, Some(seed))?;
        let mut first = Vec::new();
        let begun = Dialling::begin(&mut identity.secret, &identity.hello, &mut first);
        let dialling = begun.map_err(|_| ServeError::NoKey)?;
        Ok((Caller { me: settings.me, dialling }, first))
    }

    /// The replica has sent `received`. If this is the answer to a holder of the key, returns the proof that makes the
    /// replica accept the caller, and after it a frame that no replica has sent.
    pub fn go_on(self, received: &[u8], forged: &[u8]) -> Option<Vec<u8>> {
        let mut records = Records::default();
        records.feed(received);
        let answer = records.next().ok()??;
        let (_, mut channel): (Hello, Channel) = self.dialling.finish(answer.sealed).ok()?;
        let mut frame = Vec::new();
        let _ = order::frame::encode_parts(FrameKind::Order, self.me, &[forged], &mut frame);
        Some([channel.sealed(&[]), channel.sealed(&frame)].concat())
    }
}
