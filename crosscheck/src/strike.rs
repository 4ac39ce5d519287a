//! Where injected faults strike on a worker's thread. Without the feature every one of these does nothing.

use object::{Home, ObjectId, Region};
use schedule::{Access, Lock, Turn};
use vote::RequestResult;

use crate::job::Job;
use crate::service::Service;
use crate::worker::{Context, Report};

#[cfg(not(feature = "inject"))]
mod nothing {
    use super::*;
    use crate::admin::Injected;

    impl<S: Service> Context<S> {
        pub(crate) fn between(&self) {}

        pub(crate) fn garble_reply(&self, _turn: &Turn<'_, Job<S::Request>>, _reply: &mut [u8]) {}

        pub(crate) fn digest_fault(
            &self,
            _turn: &Turn<'_, Job<S::Request>>,
        ) -> impl FnOnce(RequestResult) -> RequestResult + use<S> {
            |result| result
        }

        pub(crate) fn nudge(&self, _turn: &mut Turn<'_, Job<S::Request>>, _locks: &[&dyn Lock], ticket: u64) {
            let injected = Injected { done: false, what: "no fault injector in this build".into(), home: None, id: None };
            (self.report)(Report::Nudged { ticket, injected });
        }
    }
}
