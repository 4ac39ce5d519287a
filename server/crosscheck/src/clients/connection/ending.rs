//! The end of a connection: its client has gone, or this replica stops and has answered it.

use std::sync::atomic::Ordering::Relaxed;

use mio::Registry;

use super::{Connection, Wants};
use crate::counters::ClientCounters;
use crate::limits;
use crate::service::Protocol;

impl<P: Protocol> Connection<P> {
    /// Ends the connection, and returns the request that its protocol still orders. A socket that is not its own is not
    /// closed: the kernel would give its number to the next client, which would then get the replies of another one.
    pub(in crate::clients) fn end(
        mut self,
        registry: &Registry,
        counters: &ClientCounters,
        twice: bool,
    ) -> Option<order::Request> {
        let farewell = self.input.closed(twice);
        if self.has_own_socket(counters) {
            let has_failed = self.stream.has_begun_handshake() && self.half_closed;
            counters.tls_failed.fetch_add(u64::from(has_failed), Relaxed);
            self.stream.end(registry);
        } else {
            std::mem::forget(self);
        }
        farewell
    }

    /// This replica stops, and all replies have left: the client reads the end. What it still sends is dropped: a
    /// socket that is closed with unread bytes resets the connection, and its client may lose replies on their way.
    /// Returns whether the client has not closed its end.
    pub(in crate::clients) fn end_gently(&mut self, counters: &ClientCounters) -> bool {
        self.has_own_socket(counters) && self.stream.end_gently(limits::READ_PER_TURN)
    }
}

/// This replica stops: a request that was not read to its end is not executed, and waits for no budget.
pub(super) fn read_no_further<P>(connection: &mut Connection<P>) {
    connection.half_closed = true;
    if matches!(connection.wants, Wants::Input) {
        connection.wants = Wants::Nothing;
    }
}

/// Whether no reply can be on its way to the client: nothing has moved for a while.
pub(in crate::clients) fn rests<P: Protocol>(connection: &mut Connection<P>, tick: u64) -> bool {
    connection.moved == 0 || connection.idle_ticks(tick) >= limits::ticks(limits::RESTING)
}
