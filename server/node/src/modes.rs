//! `modes`: explains the paper's letters, because every other command names modes by them.

use crate::outcome::{CommandOutcome, CommandVerdict, say};
use crate::program::text;

/// The text of the topic; a template of [`text`].
pub const TEXT: &str = "\
A mode says which protections are on, in the letters of the paper (EDCC'16, Table IV), and T (SEI, NSDI'15) and V (Eve,
OSDI'12); 0 = off.

  R  replication   every request has one agreed position in a log that 2f+1 replicas share
  D  determinism   worker threads take the locks in log order, so that replicas stay bit-identical
  G  guarding      an object's checksum is checked when a request first touches it, and sealed at its end
  X  cross-check   a reply leaves only when f other replicas touched the same bytes with the same result
  T  twice         in the place of X, for one node: each request runs twice, and a reply leaves only when both agree
  V  verify        in the place of X, and without D: a batch runs in parallel at once; a reply leaves when a majority of
                   verifiers has recorded the state after its batch. What differs is taken back and runs again

  mode   replicas   survives                              wrong bytes can reach a client when
  0000   1          nothing                               any bit flips
  00G0   1          nothing, but detects errors           a bit flips while a request runs
  00GT   1          nothing, but detects errors           two faults hit one request alike
  R000   1, 3, 5..  a crash; that replica cannot rejoin   any bit flips, or two requests race
  RD00   1, 3, 5..  f crashes                             any bit flips
  RDG0   1, 3, 5..  f crashes                             a bit flips while a request runs
  RDGX   1, 3, 5..  f crashed or corrupted replicas       more than f replicas are faulty at once
  R00V   2, 3, 5..  f crashes; corruption during requests a bit flips at rest, or more than f are faulty at once
  R0GV   2, 3, 5..  f crashes; corruption during requests more than f replicas are faulty at once

With 3 replicas f is 1, with 5 it is 2. Two replicas with V survive one crash; with a witness also when one of them only
cannot be reached. RDGX is the default. 00GT is for a single node whose clients must see no wrong byte, and may see
errors and lose the state. R0GV is for services whose state is not behind ordered locks, and for bugs in concurrent
code: it compares whole states, batch by batch, and masks what differs at up to f replicas. The others exist so that
the price of each letter can be measured, and R000 to show why D is needed: under conflicting requests its
replicas diverge (see `{program} digest`).";

/// Prints the topic.
pub fn run() -> CommandOutcome {
    say(&text(TEXT))?;
    Ok(CommandVerdict::Holds)
}

#[cfg(test)]
mod tests {
    use crosscheck::Mode;

    #[test]
    fn every_mode_is_explained() {
        for mode in Mode::ALL {
            assert!(super::TEXT.contains(&format!("\n  {mode}   ")), "{mode} is missing");
        }
    }
}
