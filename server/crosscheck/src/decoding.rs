//! From the bytes of an ordered request to the work that it is, and the locks that it takes.

use bytes::Bytes;
use schedule::Footprint;

use crate::job::Work;
use crate::ordered::Control;
use crate::service::{Service, declared};

/// Decodes one ordered request and its footprint: a pure function, so that every replica gets the same result.
pub(crate) fn decode<S: Service>(
    service: &S,
    locks: u32,
    request: &order::Request,
) -> (Work<S::Request>, Footprint) {
    if !request.is_intact() {
        return (Work::Damaged, Footprint::new());
    }
    let ordered: &Bytes = &request.bytes;
    if Control::is_control(ordered) {
        return match Control::decode(ordered) {
            Some(control) => {
                let footprint = control_footprint(&control, locks);
                (Work::Control(control), footprint)
            }
            None => (Work::Damaged, Footprint::new()),
        };
    }
    match service.decode(ordered) {
        Ok(request) => {
            let footprint = declared(service, &request);
            (Work::Service(request), footprint)
        }
        Err(_) => (Work::Damaged, Footprint::new()),
    }
}

fn control_footprint(control: &Control, locks: u32) -> Footprint {
    let within = |region_ids: &[u32]| -> Footprint {
        region_ids.iter().copied().filter(|region_id| *region_id < locks).collect()
    };
    match control {
        Control::Recover(recover) => within(&recover.region_ids()),
        Control::Noop { region_id, .. }
        | Control::Scrub { region_id }
        | Control::Digest { region_id, .. } => within(&[*region_id]),
        Control::Recheck { objects, .. } => {
            within(&objects.iter().map(|(region_id, _)| *region_id).collect::<Vec<_>>())
        }
        Control::CopyPart { region_id, count, .. } => {
            within(&(*region_id..region_id.saturating_add(u32::from(*count))).collect::<Vec<_>>())
        }
        Control::Checkpoint { .. }
        | Control::CopyWanted
        | Control::Set { .. }
        | Control::Move { .. }
        | Control::Size(_)
        | Control::Gone { .. }
        | Control::Answered { .. } => Footprint::new(),
        // No other request runs meanwhile.
        Control::ActAs { .. } => Footprint::all(),
    }
}
