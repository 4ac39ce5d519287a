//! What each fault is: which groups survive it, what it hits, and what it needs.

use super::{C, CATALOGUE, CatalogueRow, SimFault, rests};

impl SimFault {
    /// Its row of the catalogue.
    pub fn entry(self) -> &'static CatalogueRow {
        CATALOGUE.iter().find(|entry| entry.fault == self).unwrap_or(&CATALOGUE[0])
    }

    /// Whether a node that runs each request twice masks it: it hits one run of one request.
    pub fn is_masked_by_a_second_run(&self) -> bool {
        matches!(self, SimFault::Corruption(C::InRequest | C::Skip | C::Twice))
    }

    /// Whether the simulation of mode `R0GV` has it. Not yet: what only a scrub of all replicas together finds; a
    /// wrong footprint, since the model takes the mixer's plan from the
    /// first replica where a batch is stable; and losses of more memories than f.
    pub fn is_survived_by_verification(&self) -> bool {
        use SimFault::{Entry, Founding, Memories, Number, Settings, Stuck};
        match self {
            SimFault::Corruption(C::Stray) => false,
            SimFault::Corruption(
                C::InRequest | C::Digest | C::Reply | C::Message | C::Request | C::Skip | C::Twice,
            ) => true,
            SimFault::Corruption(kind) => rests(*kind),
            Entry | Founding | Memories | Number | Settings | Stuck => false,
            _ => !self.needs_disk(),
        }
    }

    /// Whether two replicas without a witness go on after it, without an operator: corrupted memory does not keep them
    /// from that. Of two clocks that differ, and of two results of one computation, none is known to be right; and ends
    /// of processes and lost connections, after which one of the two may have to wait, are tested with real processes.
    pub fn is_survived_by_two(self) -> bool {
        match self {
            // Of two objects that fit their checksums, the trees tell which is right; but not once a request has
            // entered one.
            SimFault::Corruption(kind) => {
                !matches!(kind, C::InRequest | C::Digest | C::Reply | C::Skip | C::Twice | C::Reseal)
            }
            SimFault::Clock | SimFault::Stamp => false,
            _ => self.is_of_memory() || self == SimFault::Interleave,
        }
    }

    /// In verified mode: whether a read that takes no batch gives the right reply after it, or none: no other replica
    /// computes the reply, and the objects' checksums are all that protects it.
    pub fn is_survived_by_local_reads(self) -> bool {
        self != SimFault::Corruption(C::Reseal)
    }

    /// Whether only mode `R0GV` has it.
    pub fn needs_verification(self) -> bool {
        use SimFault::{BodyLost, Flag, Forgets, Groups, Interleave, Kept, Leaf, Node, Tally, Token};
        use SimFault::{SlowExecutor, TwoIncarnations, ViewStorm};
        let is_in_memory = matches!(
            self,
            Interleave | Token | Tally | Leaf | Node | Kept | Groups | Flag | BodyLost | Forgets
        );
        is_in_memory || matches!(self, ViewStorm | TwoIncarnations | SlowExecutor)
    }

    /// Whether it shows where batches have many requests.
    pub fn needs_large_batches(self) -> bool {
        matches!(self, SimFault::Interleave | SimFault::Groups)
    }

    /// Whether it hits computations and nothing else: no message, no process, and nothing that is not computed again.
    pub fn is_of_computation(self) -> bool {
        matches!(
            self,
            SimFault::Interleave | SimFault::Groups | SimFault::Corruption(C::InRequest | C::Skip | C::Twice)
        )
    }

    /// Whether it corrupts memory, computation or messages.
    pub fn is_of_memory(self) -> bool {
        use SimFault::{Clock, Entry, Number, Queue, Stamp, Stuck};
        use SimFault::{Flag, Groups, Kept, Leaf, Node, Tally, Token};
        let is_of_verification = matches!(self, Flag | Groups | Kept | Leaf | Node | Tally | Token);
        is_of_verification
            || matches!(self, SimFault::Corruption(_) | Stuck | Entry | Number | Queue | Clock | Stamp)
    }

    /// Whether it is a fault of memory after whose repair the replica continues: a replica is seldom replaced, so that
    /// the next fault follows at once.
    pub fn is_mended(self) -> bool {
        matches!(self, SimFault::Corruption(kind) if kind != C::Position)
    }

    /// Whether it needs a log on disk.
    pub fn needs_disk(self) -> bool {
        use SimFault::{Blackout, DiskError, DiskFlip, DiskFull, DiskLost, Power};
        matches!(self, Power | DiskLost | DiskFlip | DiskFull | DiskError | Blackout)
    }

    /// Whether it affects any number of replicas, and is therefore injected alone.
    pub fn is_of_all(self) -> bool {
        matches!(self, SimFault::Blackout | SimFault::Memories | SimFault::Interleave)
    }

    /// Whether an episode has no other fault with it. A replica that is slow for long sends nothing to its peers
    /// meanwhile, and counts as away: with another faulty replica there would be more than f.
    pub fn comes_alone(self) -> bool {
        self.is_of_all() || self == SimFault::Slow
    }

    /// Whether a watchdog may end a process that no other fault has hit.
    pub fn may_end(self) -> bool {
        !matches!(self, SimFault::Slow | SimFault::SlowCore | SimFault::Stranger | SimFault::SlowExecutor)
    }

    /// Whether evidence about the replica is expected, and no false alarm.
    pub fn is_corruption(self) -> bool {
        self.is_of_memory()
            || matches!(self, SimFault::Noise | SimFault::Forged | SimFault::ClockJump | SimFault::Suspend)
    }
}
