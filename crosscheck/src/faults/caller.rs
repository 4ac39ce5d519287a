//! Somebody who calls a replica and says that he is another one of its group: for a simulation, where he does
//! not have the group's key.

use order::FrameKind;

use crate::peers::Identity;
use crate::peers::hello::Hello;
use crate::peers::secure::{Channel, Dialling, Records};
use crate::{ServeError, Settings};

/// A call, until it is answered.
pub struct Caller {
    me: u8,
    dialling: Dialling,
}

impl Caller {
    /// Begins a call as the replica that has these settings, with their key. Gives the bytes to be sent first.
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

    /// The replica has said `heard`. If that is an answer to who has the key, gives what makes it believe the
    /// caller, and behind it a frame that no replica has sent.
    pub fn go_on(self, heard: &[u8], forged: &[u8]) -> Option<Vec<u8>> {
        let mut records = Records::default();
        records.feed(heard);
        let answer = records.next().ok()??;
        let (_, mut channel): (Hello, Channel) = self.dialling.finish(answer.sealed).ok()?;
        let mut frame = Vec::new();
        let _ = order::frame::encode_parts(FrameKind::Order, self.me, &[forged], &mut frame);
        Some([channel.sealed(&[]), channel.sealed(&frame)].concat())
    }
}
