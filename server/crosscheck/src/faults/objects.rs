//! Faults in objects: at rest, at an ordered turn, and between a handler and its seal.

use execute::SealHook;
use object::{ObjectId, Region, RegionId, short_name};
use schedule::{Access, Lock, LockId, Turn};

use super::pending::{Armed, Occasion, PendingFaults, Target};
use crate::admin::{Corruption, Injected};
use crate::job::Job;
use crate::service::Service;
use crate::shapes;

/// Injects faults between a handler and its seal: the seal then covers the wrong content.
pub(crate) struct InRequest<'a>(pub &'a PendingFaults);

impl SealHook for InRequest<'_> {
    fn before_seal(&self, lock: LockId, access: &mut Access<'_>) {
        let Access::Exclusive(region) = access else { return };
        self.damage_images(lock);
        let computes =
            |kind| matches!(kind, Corruption::InRequest | Corruption::Sticky | Corruption::Erratic);
        let counted = self.0.requests();
        let here =
            |armed: &Armed| computes(armed.kind) && armed.is_due(counted, |region_id| region_id == lock);
        if let Some(armed) = self.0.take(here) {
            // Objects the request has changed: only they are sealed again.
            let mut open = object::request::changed();
            open.retain(|id| region.check(*id) != object::Health::Absent);
            let hit = match armed.target.id {
                Some(named) => open.contains(&named).then_some(named),
                None => choose(&open, armed.target.seed),
            };
            match hit {
                Some(id) => {
                    if region.inject(id, &armed.target.injection(armed.kind)).is_some() {
                        self.0.note_damaged(lock, id);
                    }
                }
                None => self.0.arm(armed),
            }
        }
    }
}

impl InRequest<'_> {
    /// Damages a request's before-images, and makes it fail so that it is undone from them.
    fn damage_images(&self, lock: LockId) {
        let counted = self.0.requests();
        let here = |armed: &Armed| {
            armed.kind == Corruption::Image && armed.is_due(counted, |region_id| region_id == lock)
        };
        let Some(armed) = self.0.take(here) else { return };
        if object::request::damage_images(armed.target.seed) {
            // Like a panic of the handler, but without its message on the terminal.
            std::panic::resume_unwind(Box::new("a fault: the request ends here"));
        }
        self.0.arm(armed);
    }
}

/// Corrupts an object at rest, at an ordered turn on its lock; returns what was done.
pub(super) fn at_turn<S: Service>(
    pending: &PendingFaults,
    service: &S,
    turn: &mut Turn<'_, Job<S::Request>>,
    locks: &[&dyn Lock],
    mut armed: Armed,
) -> Injected {
    let region_id = armed.target.region_id;
    let named = match named(service, turn, locks, &mut armed.target) {
        Ok(named) => named,
        Err(why) => return injected(None, why),
    };
    if let (Corruption::InRequest, Some(id)) = (armed.kind, named) {
        let target = Target { id: Some(id), ..armed.target };
        pending.arm(Armed { kind: armed.kind, occasion: Occasion::RequestOnRegion, target });
        let what = "armed; it happens when a request changes the object".to_owned();
        return injected(Some((region_id, id)), what);
    }
    let mut hit = None;
    turn.visit_regions(locks, |held, access| {
        if let Access::Exclusive(region) = access
            && held == region_id
        {
            hit = corrupt(region, named, &armed);
        }
    });
    match hit {
        Some((id, what)) => injected(Some((region_id, id)), what),
        None => injected(None, "the fault does not fit the object".into()),
    }
}

/// The object that the target's name stands for now, if it has a name; the target is narrowed to the part that the name
/// means.
fn named<S: Service>(
    service: &S,
    turn: &mut Turn<'_, Job<S::Request>>,
    locks: &[&dyn Lock],
    target: &mut Target,
) -> Result<Option<ObjectId>, String> {
    let Some(name) = target.name.clone() else { return Ok(None) };
    if let Some(class) = class_of(&name) {
        let none =
            || format!("region {} has no {class} now; another --seed takes another region", target.region_id);
        return of_class(class, target, turn, locks).map(Some).ok_or_else(none);
    }
    let cx = crate::Cx::new(turn.cx(), service);
    let id = service.find(&cx, &name).ok_or_else(|| format!("there is no {name} now"))?;
    service.part_of(&cx, &name).into_iter().for_each(|part| target.narrow(&part));
    Ok(Some(id))
}

/// The class of a name that stands for any object of it: `class:Account`.
pub(super) fn class_of(name: &str) -> Option<&str> {
    name.strip_prefix("class:")
}

/// An object of this class in the target's region, chosen by its seed.
fn of_class<R>(
    class: &str,
    target: &Target,
    turn: &mut Turn<'_, Job<R>>,
    locks: &[&dyn Lock],
) -> Option<ObjectId> {
    let mut objects = Vec::new();
    turn.visit_regions(locks, |held, access| {
        if let Access::Exclusive(region) = access
            && held == target.region_id
        {
            region.objects(&mut |listed| {
                objects.extend((short_name(listed.class) == class).then_some(listed.id))
            });
        }
    });
    choose(&objects, target.seed)
}

/// One of the regions that can have objects of this class, chosen by `seed`.
pub(super) fn region_with(locks: &[&dyn Lock], class: &str, seed: u64) -> Option<RegionId> {
    let has_class = |lock: &&&dyn Lock| shapes::classes(&[**lock]).iter().any(|of| of.short_name() == class);
    let regions: Vec<RegionId> = locks.iter().filter(has_class).map(|lock| lock.id()).collect();
    regions.get((seed % regions.len().max(1) as u64) as usize).copied()
}

fn injected(hit: Option<(RegionId, ObjectId)>, what: String) -> Injected {
    let (region_id, id) = hit.map(|(region_id, id)| (region_id, id.to_string())).unzip();
    Injected { done: hit.is_some(), what, home: region_id, id }
}

fn choose(objects: &[ObjectId], seed: u64) -> Option<ObjectId> {
    objects.get((seed.rotate_right(17) % objects.len().max(1) as u64) as usize).copied()
}

/// Damages the named object, or one chosen by the seed; tries others when the damage does not fit.
fn corrupt(region: &mut dyn Region, named: Option<ObjectId>, armed: &Armed) -> Option<(ObjectId, String)> {
    let mut objects = Vec::new();
    match named {
        Some(id) => objects.push(id),
        None => region.objects(&mut |listed| objects.push(listed.id)),
    }
    for attempt in 0..8 {
        let target = Target { seed: armed.target.seed.wrapping_add(attempt * 977), ..armed.target.clone() };
        let id = choose(&objects, target.seed)?;
        if let Some(injected) = region.inject(id, &target.injection(armed.kind)) {
            // A write rarely has only one byte.
            for more in (1..target.seed % 8).filter(|_| armed.kind == Corruption::Stray) {
                let seed = target.seed.wrapping_add(more);
                let _ = region.inject(id, &Target { seed, ..target.clone() }.injection(armed.kind));
            }
            let class = short_name(injected.class);
            let member = injected.member.map_or(String::new(), |member| format!(".{member}"));
            let bit = injected.bit.map_or(String::new(), |bit| format!(" bit {bit}"));
            return Some((id, format!("{class} {id}{member}{bit}")));
        }
    }
    None
}
