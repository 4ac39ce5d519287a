//! What replicas do, in lines of the trace.

use wire::ReplicaId;

use super::verified::ShownVersion;
use crate::world::{Observed, What};

/// An observation for the trace, without data that depends on more than the seed (the processor core, texts for
/// people).
pub(super) struct Shown<'a>(pub(super) &'a Observed);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let replica = ReplicaId(self.0.replica);
        match &self.0.what {
            What::Delivered { batch, ordered } => {
                let requests = ordered.requests.len();
                write!(f, "{replica} takes {batch} ({requests} of {})", ReplicaId(ordered.origin))
            }
            What::Executed { batch, outcomes } => {
                write!(f, "{replica} did {batch}:")?;
                outcomes.iter().try_for_each(|one| {
                    write!(f, " {:04x}{}", one.digest as u16, if one.failed { "!" } else { "" })
                })
            }
            What::Traced(run) => {
                let (position, started) = (run.position, run.started.len());
                write!(f, "{replica} ran {:?} at {position}, which started {started}", run.place)
            }
            What::Released { place, to, reply } => {
                let reply = String::from_utf8_lossy(reply);
                let start: String = reply.chars().take(24).collect();
                write!(
                    f,
                    "{replica} releases {place} to {:?}: {start:?}",
                    to.map(|to| (to.slot, to.sequence))
                )
            }
            What::ReadHere { batch, to, reply } => {
                let reply = String::from_utf8_lossy(reply);
                let start: String = reply.chars().take(24).collect();
                let to = (to.slot, to.sequence);
                write!(f, "{replica} answers {to:?} from its state after {batch}: {start:?}")
            }
            What::Packed { turn, objects } => write!(f, "{replica} packs {} at {turn}", objects.len()),
            What::Installing { turn, objects } => write!(f, "{replica} installs {} at {turn}", objects.len()),
            What::Digest { position, digest } => {
                write!(f, "{replica} digests {}: {digest:032x}", position.index)
            }
            What::Evidence(record) => write!(
                f,
                "{replica} blames {:?} for {:?}: {} {} {} {}",
                record.replica,
                record.request,
                record.class,
                record.stage,
                record.outcome,
                record.objects.join("; ")
            ),
            What::StateMade { index, digests } => {
                write!(f, "{replica} offers its state after {index} in {} pieces", digests.len())
            }
            What::StateTaken { index, .. } => write!(f, "{replica} takes the state after {index}"),
            What::StateRefused { from } => {
                write!(f, "{replica} refuses the state of {:?}", from.map(ReplicaId))
            }
            What::Said(what) => write!(f, "{replica} says {what}"),
            What::Speculated { batch, .. } => write!(f, "{replica} begins {batch}"),
            What::Ran { batch, outcomes } => write!(f, "{replica} ran {batch} ({})", outcomes.len()),
            What::Folded { version, .. } => write!(f, "{replica} comes to {}", ShownVersion(version)),
            What::Agreed(version) => write!(f, "{replica} agrees to {}", ShownVersion(version)),
            What::Voted { view, version, .. } => {
                write!(f, "{replica} votes for {} in view {view}", ShownVersion(version))
            }
            What::NotRolledBack { was_kept } => write!(f, "{replica} cannot go back ({was_kept})"),
            What::Stable { version, .. } => write!(f, "{replica} has stable {}", ShownVersion(version)),
            What::Recorded { version, .. } => write!(f, "{replica} recorded {}", ShownVersion(version)),
            What::Followed { view, version, sequential } => {
                let how = if *sequential { ", one at a time" } else { "" };
                write!(f, "{replica} follows view {view} after {}{how}", ShownVersion(version))
            }
            What::Diverged(version) => write!(f, "{replica} differs from {}", ShownVersion(version)),
            What::TookBack { version, .. } => write!(f, "{replica} is back at {}", ShownVersion(version)),
            What::Rewound { batch, .. } => write!(f, "{replica} goes on after {batch}"),
            What::Installed { version, .. } => {
                write!(f, "{replica} has the state of {}", ShownVersion(version))
            }
        }
    }
}
