//! Where injected faults strike on a worker's thread. Without the feature every one of these does nothing.

use std::cell::Cell;

use schedule::{Lock, Turn};
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

        pub(crate) fn linger(&self, _turn: &Turn<'_, Job<S::Request>>) {}

        pub(crate) fn count_fault(&self, _turn: &mut Turn<'_, Job<S::Request>>) {}

        pub(crate) fn garble_reply(&self, _turn: &Turn<'_, Job<S::Request>>, _reply: &mut [u8]) {}

        pub(crate) fn digest_fault(
            &self,
            _turn: &Turn<'_, Job<S::Request>>,
        ) -> impl FnOnce(RequestResult) -> RequestResult + use<S> {
            |result| result
        }

        pub(crate) fn request_fault(&self, _turn: &Turn<'_, Job<S::Request>>) -> bool {
            false
        }

        pub(crate) fn wrong_runs(&self, _turn: &Turn<'_, Job<S::Request>>) -> Cell<Option<u32>> {
            Cell::new(None)
        }

        pub(crate) fn noop(&self, _turn: &mut Turn<'_, Job<S::Request>>, _locks: &[&dyn Lock], ticket: u64) {
            let injected = Injected {
                done: false,
                what: "no fault injector in this build".into(),
                home: None,
                id: None,
            };
            (self.report)(Report::Nudged { ticket, injected });
        }
    }
}

#[cfg(feature = "inject")]
mod striking {
    use object::{Home, ObjectId, Region};
    use schedule::{Access, LockId};

    use super::*;
    use crate::admin::{Injected, Kind};
    use crate::inject::{Armed, Armory, Occasion, Target};
    use crate::job::Work;

    /// Strikes between a handler and its seal: the seal then covers the wrong content.
    pub(crate) struct InRequest<'a>(&'a Armory);

    impl execute::Between for InRequest<'_> {
        fn before_seal(&self, lock: LockId, access: &mut Access<'_>) {
            let Access::Exclusive(region) = access else { return };
            self.damage_images(lock);
            let computes = |kind| matches!(kind, Kind::InRequest | Kind::Sticky | Kind::Erratic);
            let counted = self.0.requests();
            let here = |armed: &Armed| computes(armed.kind) && strikes(armed, counted, |home| home == lock);
            if let Some(armed) = self.0.take(here) {
                // Objects the request has changed: only they are sealed again.
                let mut open = object::request::changed();
                open.retain(|id| region.check(*id) != object::Health::Absent);
                let struck = match armed.target.id {
                    Some(named) => open.contains(&named).then_some(named),
                    None => choose(&open, armed.target.seed),
                };
                match struck {
                    Some(id) => _ = region.inject(id, &armed.target.injection(armed.kind)),
                    None => self.0.arm(armed),
                }
            }
        }
    }

    impl InRequest<'_> {
        /// What a request would be undone with is wrong, and it must be undone.
        fn damage_images(&self, lock: LockId) {
            let counted = self.0.requests();
            let here =
                |armed: &Armed| armed.kind == Kind::Image && strikes(armed, counted, |home| home == lock);
            let Some(armed) = self.0.take(here) else { return };
            if object::request::damage_images(armed.target.seed) {
                // As a panic of the handler, and without its words on the terminal.
                std::panic::resume_unwind(Box::new("a fault: the request ends here"));
            }
            self.0.arm(armed);
        }
    }

    impl<S: Service> Context<S> {
        pub(crate) fn between(&self) -> InRequest<'_> {
            InRequest(&self.armory)
        }

        /// A request that takes long.
        pub(crate) fn linger(&self, turn: &Turn<'_, Job<S::Request>>) {
            if !matches!(turn.request().work, Work::Service(_)) {
                return;
            }
            let time = self.armory.takes(turn.position(), self.runner);
            if let (Some(seat), false) = (&self.seat, time.is_zero()) {
                seat.linger(time.as_micros() as u64);
            }
        }

        /// A worker that counts one position too many, from this request on.
        pub(crate) fn count_fault(&self, turn: &mut Turn<'_, Job<S::Request>>) {
            if self.take(turn, Kind::Position).is_some() {
                turn.lose_count();
            }
        }

        pub(crate) fn garble_reply(&self, turn: &Turn<'_, Job<S::Request>>, reply: &mut [u8]) {
            if !reply.is_empty()
                && let Some(armed) = self.take(turn, Kind::Reply)
            {
                let bit = (armed.target.seed % (reply.len() as u64 * 8)) as usize;
                reply[bit / 8] ^= 1 << (bit % 8);
            }
        }

        pub(crate) fn digest_fault(
            &self,
            turn: &Turn<'_, Job<S::Request>>,
        ) -> impl FnOnce(RequestResult) -> RequestResult + use<S> {
            let fault = self.take(turn, Kind::Digest);
            move |mut result| {
                if let Some(armed) = fault {
                    result.digest ^= 1 << (armed.target.seed % 128);
                }
                result
            }
        }

        fn take(&self, turn: &Turn<'_, Job<S::Request>>, kind: Kind) -> Option<Armed> {
            let counted = self.armory.requests();
            self.armory.take(|armed| {
                armed.kind == kind && strikes(armed, counted, |home| turn.footprint().allows(home, false))
            })
        }

        /// A turn on one lock, asked for by whoever wants to corrupt a resting object behind it.
        pub(crate) fn noop(&self, turn: &mut Turn<'_, Job<S::Request>>, locks: &[&dyn Lock], ticket: u64) {
            let Some(armed) = self.armory.take(|armed| armed.occasion == Occasion::Noop(ticket)) else {
                return;
            };
            let named = match &armed.target.name {
                Some(name) => match self.service.find(&crate::Cx::new(turn.cx(), &*self.service), name) {
                    Some(id) => Some(id),
                    None => return self.nudged(ticket, None, format!("there is no {name} now")),
                },
                None => None,
            };
            if let (Kind::InRequest, Some(id)) = (armed.kind, named) {
                let home = armed.target.home;
                let target = Target { id: Some(id), ..armed.target };
                self.armory.arm(Armed { kind: armed.kind, occasion: Occasion::RequestOnHome, target });
                let what = "armed; it strikes when a request changes the object".to_owned();
                return self.nudged(ticket, Some((home, id)), what);
            }
            let mut struck = None;
            turn.visit_regions(locks, |home, access| {
                if let Access::Exclusive(region) = access
                    && home == armed.target.home
                {
                    struck = strike(region, named, &armed).map(|(id, what)| (home, id, what));
                }
            });
            match struck {
                Some((home, id, what)) => self.nudged(ticket, Some((home, id)), what),
                None => self.nudged(ticket, None, "the fault does not fit the object".into()),
            }
        }

        fn nudged(&self, ticket: u64, hit: Option<(Home, ObjectId)>, what: String) {
            let injected = Injected {
                done: hit.is_some(),
                what,
                home: hit.map(|(home, _)| home),
                id: hit.map(|(_, id)| id.to_string()),
            };
            (self.report)(Report::Nudged { ticket, injected });
        }

        /// How often the handler runs where it should run once: a fault of one run, not of the next.
        pub(crate) fn wrong_runs(&self, turn: &Turn<'_, Job<S::Request>>) -> Cell<Option<u32>> {
            self.armory.note_request();
            let skipped = self.take(turn, Kind::Skip).map(|_| 0);
            Cell::new(skipped.or_else(|| self.take(turn, Kind::Twice).map(|_| 2)))
        }

        /// A request whose ordered bytes were corrupted between delivery and execution.
        pub(crate) fn request_fault(&self, turn: &Turn<'_, Job<S::Request>>) -> bool {
            self.take(turn, Kind::Request).is_some()
        }
    }

    fn strikes(armed: &Armed, counted: u64, holds: impl Fn(Home) -> bool) -> bool {
        match armed.occasion {
            Occasion::Noop(_) => false,
            Occasion::RequestOnHome => holds(armed.target.home),
            Occasion::AnyRequest => true,
            Occasion::Later(at) => counted >= at,
        }
    }

    fn choose(objects: &[ObjectId], seed: u64) -> Option<ObjectId> {
        objects.get((seed.rotate_right(17) % objects.len().max(1) as u64) as usize).copied()
    }

    /// Damages the named object, or one chosen by the seed; tries others when the damage does not fit.
    fn strike(region: &mut dyn Region, named: Option<ObjectId>, armed: &Armed) -> Option<(ObjectId, String)> {
        let mut objects = Vec::new();
        match named {
            Some(id) => objects.push(id),
            None => region.objects(&mut |listed| objects.push(listed.id)),
        }
        for attempt in 0..8 {
            let target =
                Target { seed: armed.target.seed.wrapping_add(attempt * 977), ..armed.target.clone() };
            let id = choose(&objects, target.seed)?;
            if let Some(injected) = region.inject(id, &target.injection(armed.kind)) {
                // A write is rarely of one byte.
                for more in (1..target.seed % 8).filter(|_| armed.kind == Kind::Stray) {
                    let seed = target.seed.wrapping_add(more);
                    let _ = region.inject(id, &Target { seed, ..target.clone() }.injection(armed.kind));
                }
                let class = injected.class.rsplit("::").next().unwrap_or(injected.class);
                let member = injected.member.map_or(String::new(), |member| format!(".{member}"));
                let bit = injected.bit.map_or(String::new(), |bit| format!(" bit {bit}"));
                return Some((id, format!("{class} {id}{member}{bit}")));
            }
        }
        None
    }
}
