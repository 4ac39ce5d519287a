//! Brings one trouble to one replica, and removes it again, whatever happens meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crate::keeper::Keeper;
use crate::plan::{Direction, Links, Stroke, Trouble, TroubleKind, Victim};
use crate::replica::{fill_disk, slow_disk};
use crate::switch::Way;
use crate::testbed::Testbed;

/// The victim of a trouble that begins now, from 0; never `spared`.
pub fn victim(stroke: &Stroke, keeper: &Keeper, spared: Option<usize>) -> usize {
    let of = match stroke.trouble.kind {
        TroubleKind::Upgrade => keeper.upgradable(stroke.choice),
        _ => (0..keeper.size()).collect(),
    };
    // Between two leaders any replica may be the victim.
    chosen(stroke, &of, keeper.leader(), spared)
}

fn chosen(stroke: &Stroke, of: &[usize], leader: Option<usize>, spared: Option<usize>) -> usize {
    let fits = |number: &usize| match (stroke.trouble.victim, leader) {
        (Victim::Leader, Some(leader)) => *number == leader,
        (Victim::Follower, Some(leader)) => *number != leader,
        _ => true,
    };
    let may_be: Vec<usize> = of.iter().copied().filter(|number| Some(*number) != spared).collect();
    let meant: Vec<usize> = may_be.iter().copied().filter(fits).collect();
    // Where the meant one is spared, another one is the victim.
    let of = if meant.is_empty() { may_be } else { meant };
    of[stroke.choice as usize % of.len()]
}

/// A trouble in effect; it ends at the latest when this value is dropped.
#[derive(Debug)]
pub struct Active {
    testbed: Arc<Testbed>,
    keeper: Arc<Keeper>,
    trouble: Trouble,
    victim: usize,
    /// The affected links: the hosts at their other ends.
    others: Vec<usize>,
    over: bool,
    /// Its effect, where its name does not show it.
    pub note: Option<String>,
}

impl Active {
    /// Brings the trouble to `victim`, from 0.
    pub fn strike(testbed: &Arc<Testbed>, keeper: &Arc<Keeper>, stroke: &Stroke, victim: usize) -> Self {
        let mut active = Active {
            testbed: Arc::clone(testbed),
            keeper: Arc::clone(keeper),
            trouble: stroke.trouble.clone(),
            victim,
            others: others(stroke, victim, testbed.replicas()),
            over: false,
            note: None,
        };
        active.begin();
        active
    }

    fn begin(&mut self) {
        let trouble = &self.trouble;
        match trouble.kind {
            TroubleKind::Calm => {}
            TroubleKind::Partition => self.set_links(Way { cut: true, ..Way::default() }),
            TroubleKind::Loss => self.set_links(Way { loss: trouble.percent / 100.0, ..Way::default() }),
            TroubleKind::Delay => self.set_links(Way {
                delay: Duration::from_secs_f64(trouble.delay_ms / 1e3),
                jitter: Duration::from_secs_f64(trouble.jitter_ms / 1e3),
                ..Way::default()
            }),
            TroubleKind::Kill => self.keeper.keep_down(self.victim, true),
            TroubleKind::Pause => self.keeper.freeze(self.victim, true),
            TroubleKind::Upgrade => {
                let (from, to) = self.keeper.upgrade(self.victim, trouble.killed);
                self.note = Some(format!("from release {from} to {to}"));
            }
            TroubleKind::DiskFull => {
                let written = fill_disk(&self.testbed, self.victim, true);
                self.note = Some(format!("{written} bytes filled the disk"));
            }
            TroubleKind::SlowDisk => {
                let pause = Duration::from_millis(trouble.sync_ms);
                slow_disk(&self.testbed, self.victim, pause);
            }
            TroubleKind::Memory => {
                let more = trouble.more_mb << 20;
                self.keeper.limit_memory(self.victim, Some(more));
            }
        }
    }

    /// Removes the trouble.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        match self.trouble.kind {
            TroubleKind::Calm => {}
            TroubleKind::Partition | TroubleKind::Loss | TroubleKind::Delay => self.set_links(Way::default()),
            TroubleKind::Kill | TroubleKind::Upgrade => self.keeper.keep_down(self.victim, false),
            TroubleKind::Pause => self.keeper.freeze(self.victim, false),
            TroubleKind::DiskFull => drop(fill_disk(&self.testbed, self.victim, false)),
            TroubleKind::SlowDisk => slow_disk(&self.testbed, self.victim, Duration::ZERO),
            TroubleKind::Memory => self.keeper.limit_memory(self.victim, None),
        }
    }

    fn set_links(&self, way: Way) {
        let Some(switch) = &self.testbed.switch else { return };
        for &other in &self.others {
            if self.trouble.direction != Direction::In {
                switch.set(self.victim, other, way);
            }
            if self.trouble.direction != Direction::Out {
                switch.set(other, self.victim, way);
            }
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.end();
    }
}

/// The hosts at the other ends of the affected links; the clients' host comes after the replicas'.
fn others(stroke: &Stroke, victim: usize, replicas: usize) -> Vec<usize> {
    let others = (0..=replicas).filter(|host| *host != victim);
    match stroke.trouble.links {
        Links::All => others.collect(),
        Links::Replicas => others.filter(|host| *host < replicas).collect(),
        Links::One => {
            let step = 1 + (stroke.choice >> 32) as usize % (replicas - 1);
            vec![(victim + step) % replicas]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn the_victim_is_whom_the_plan_says_and_never_the_one_that_is_spared() {
        let plan = Plan::load("network").expect("it ships");
        let mut stroke = plan.sequence(1).next().expect("a stroke");
        for choice in 0..9 {
            stroke.choice = choice;
            stroke.trouble.victim = Victim::Leader;
            assert_eq!(chosen(&stroke, &[0, 1, 2], Some(1), Some(2)), 1);
            assert_ne!(chosen(&stroke, &[0, 1, 2], Some(1), Some(1)), 1);
            assert_eq!(chosen(&stroke, &[0, 1], Some(1), Some(1)), 0);
            stroke.trouble.victim = Victim::Follower;
            assert_eq!(chosen(&stroke, &[0, 1, 2], Some(1), Some(2)), 0);
            assert_eq!(chosen(&stroke, &[0, 1], Some(1), Some(0)), 1, "no other one is left");
            stroke.trouble.victim = Victim::Any;
            assert!(matches!(chosen(&stroke, &[0, 1, 2], None, Some(2)), 0 | 1));
        }
    }

    #[test]
    fn links_lead_to_whom_the_plan_says() {
        let plan = Plan::load("network").expect("it ships");
        let mut stroke = plan.sequence(1).next().expect("a stroke");
        stroke.trouble.links = Links::All;
        assert_eq!(others(&stroke, 1, 3), [0, 2, 3]);
        stroke.trouble.links = Links::Replicas;
        assert_eq!(others(&stroke, 1, 3), [0, 2]);
        stroke.trouble.links = Links::One;
        for choice in 0..9u64 {
            stroke.choice = choice << 32;
            assert!(matches!(others(&stroke, 1, 3)[..], [0] | [2]));
        }
    }
}
