//! What an ordered request can be: a client's, or one of the pipeline's own, which take their position like any other.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use object::Home;
use vote::Recover;

/// First byte of the pipeline's own requests; a service's encodings begin below it.
pub const CONTROL: u8 = 0xf0;

/// A request of the pipeline itself. Each has a footprint, so it holds up nothing but what it concerns (design section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// RECOVER: at this position healthy replicas pack the named objects and the faulty one replaces them.
    Recover(Recover),
    /// A turn on one lock and nothing else: where an injected fault strikes a resting object.
    Nudge {
        /// The lock.
        home: Home,
        /// Tells the replica that asked for it which of its waiting callers this serves.
        ticket: u64,
    },
    /// Check every object of one region, and let the vote compare the whole region.
    Scrub {
        /// The region's lock.
        home: Home,
    },
    /// Digest of the whole state, alone at its position.
    Digest {
        /// Tells the replica that asked for it which of its waiting callers this serves.
        ticket: u64,
    },
    /// Every healthy replica keeps a copy of the whole state as of this position, for whoever needs it.
    Cut,
}

impl Control {
    /// The request as ordered bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        match self {
            Control::Recover(recover) => {
                out.put_u8(CONTROL);
                recover.encode(&mut out);
            }
            Control::Nudge { home, ticket } => {
                out.put_u8(CONTROL + 1);
                out.put_u32_le(*home);
                out.put_u64_le(*ticket);
            }
            Control::Scrub { home } => {
                out.put_u8(CONTROL + 2);
                out.put_u32_le(*home);
            }
            Control::Digest { ticket } => {
                out.put_u8(CONTROL + 3);
                out.put_u64_le(*ticket);
            }
            Control::Cut => out.put_u8(CONTROL + 4),
        }
        out.freeze()
    }

    /// Whether these ordered bytes are the pipeline's own.
    pub fn is_control(ordered: &[u8]) -> bool {
        ordered.first().is_some_and(|first| *first >= CONTROL)
    }

    /// The request in `ordered`; `None` if it is none.
    pub fn decode(ordered: &Bytes) -> Option<Control> {
        let mut rest = ordered.clone();
        let control = match rest.try_get_u8().ok()?.checked_sub(CONTROL)? {
            0 => return Recover::decode(&rest).ok().map(Control::Recover),
            1 => Control::Nudge { home: rest.try_get_u32_le().ok()?, ticket: rest.try_get_u64_le().ok()? },
            2 => Control::Scrub { home: rest.try_get_u32_le().ok()? },
            3 => Control::Digest { ticket: rest.try_get_u64_le().ok()? },
            4 => Control::Cut,
            _ => return None,
        };
        rest.is_empty().then_some(control)
    }
}
