//! Linearizability: positions in the log agree with real time and with each connection.

use std::collections::BTreeMap;

use vote::Place;

use super::{About, Broken, Promise};
use crate::client::SentCommand;
use crate::facts::Facts;
use crate::reference::Reference;

/// The order of the log is the witness: together with `replies`, only its agreement with real time remains to be
/// checked.
#[derive(Default)]
pub struct Linear {
    /// Place of the last answer, per client.
    last: BTreeMap<usize, Place>,
}

impl Promise for Linear {
    fn about(&self) -> About {
        About {
            name: "linear",
            section: "EDCC'16 section III-C (architectural measures)",
            promise: "All commands, also those on several keys, happen one after the other, in an order \
                that agrees with real time and with each connection.",
            check: "The order is that of the log, in which `replies` computes the answers; a command's \
                position must be behind that of every command answered before it was sent, and of every \
                earlier command of its connection. A read that took no batch is behind all commands of the batch after \
                which it ran.",
        }
    }

    fn answered(
        &mut self,
        sent: &SentCommand,
        _reply: &[u8],
        facts: &Facts,
        model: &mut dyn Reference,
    ) -> Broken {
        let Some(place) = sent.place.map(|place| facts.planned(place)) else { return Ok(()) };
        // Reads that took no batch and have seen the same batches may have come in any order.
        let may_equal = place.request == u16::MAX;
        let is_before = |other: Place| place < other || (place == other && !may_equal);
        if let Some(floor) = sent.floor.filter(|floor| is_before(*floor)) {
            return Err(format!(
                "{} happened at {place}, before {floor}, which was answered before it was sent",
                model.shown(sent.command)
            ));
        }
        match self.last.insert(sent.client, place) {
            Some(before) if is_before(before) => Err(format!(
                "{} of client {} happened at {place}, before {before}",
                model.shown(sent.command),
                sent.client
            )),
            _ => Ok(()),
        }
    }
}
