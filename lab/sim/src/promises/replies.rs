//! No wrong reply reaches a client.

use super::{About, Broken, Promise, RunEnd};
use crate::client::SentCommand;
use crate::facts::Facts;
use crate::reference::Reference;

/// Compares with the model, which executes the log as one sequential program.
pub struct Replies;

impl Promise for Replies {
    fn about(&self) -> About {
        About {
            name: "replies",
            section: "EDCC'16 sections III-B (fault model) and IV-B",
            promise: "Every reply that reaches a client is the one that a correct service gives at that position. In \
                mode R0GV: that it gives when it runs each batch one request at a time. What the service starts \
                itself runs once, when it is to run.",
            check: "An independent model of the service executes the ordered commands; every byte of every \
                reply is compared. Where a service starts requests itself, each run of one is compared with what has \
                started it; none runs before its time, no timer behind a request of a later batch, and in the end \
                none is left. For memcached, every unique stands for one version. In mode R0GV the order within \
                a batch is the one in which the first replica where it is stable held the locks (serial).",
        }
    }

    fn answered(
        &mut self,
        sent: &SentCommand,
        reply: &[u8],
        _facts: &Facts,
        model: &mut dyn Reference,
    ) -> Broken {
        let Some(place) = sent.place else {
            return Err(format!("{} was answered and has no position", model.shown(sent.command)));
        };
        match model.compare(sent.command, place, reply) {
            None => {
                let shown = model.shown(sent.command);
                Err(format!("{shown} was answered at {place}, where nothing was asked"))
            }
            Some(compared) => {
                compared.map_err(|why| format!("{} at {place}: {why}", model.shown(sent.command)))
            }
        }
    }

    fn at_end(&mut self, _facts: &Facts, _end: &RunEnd, model: &mut dyn Reference) -> Broken {
        model.compare_rest()?;
        model.all_has_run()
    }
}
