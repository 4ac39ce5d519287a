//! How far a copy of the state is that a replica receives or packs: a sentence to print, or a bar to redraw.

use std::time::Duration;

use crosscheck::admin::{CopyGiven, CopyProgress};

use super::numbers::{bytes, grouped};
use super::progress::roughly;
use crate::cluster::ReplicaRow;

/// Characters of the bar.
const BAR: usize = 20;

/// For output that stays: who receives the state from whom, or packs it, and how far.
pub(super) fn sentences(rows: &[ReplicaRow]) -> Vec<String> {
    let of = |copy: CopyText| format!("replica {} {}: {}", copy.replica, copy.what, copy.figures);
    copies(rows).map(of).collect()
}

/// For output that is redrawn: the same in short, with a bar.
pub(super) fn bars(rows: &[ReplicaRow]) -> Vec<String> {
    let of = |copy: CopyText| {
        let done = copy.share as usize;
        let bar = if done < BAR { format!("{}>", "=".repeat(done)) } else { "=".repeat(BAR) };
        format!("replica {}  [{bar:<BAR$}]  {}", copy.replica, copy.figures)
    };
    copies(rows).map(of).collect()
}

/// A copy of the state as text.
struct CopyText {
    replica: u8,
    what: String,
    /// How much is done, of [`BAR`].
    share: u64,
    figures: String,
}

fn copies(rows: &[ReplicaRow]) -> impl Iterator<Item = CopyText> + '_ {
    // A checkpoint that only shortens the log is packed in the same way. No operator waits for it.
    let is_awaited = rows.iter().any(ReplicaRow::is_filled);
    let up = rows.iter().filter_map(|row| row.seen.as_ref().ok());
    up.flat_map(move |status| {
        // If nobody has agreed on a state yet, the status says what is waited for.
        let received = status.receiving.as_ref().filter(|copy| copy.total.is_some() || copy.received > 0);
        // All that have the state pack the same: one line is enough.
        let leads = status.leader == Some(status.replica);
        let given = status.giving.as_ref().filter(|_| leads && is_awaited);
        let received = received.map(|copy| CopyText::of_received(status.replica, copy));
        received.into_iter().chain(given.map(|copy| CopyText::of_given(status.replica, copy)))
    })
}

impl CopyText {
    fn of_received(replica: u8, copy: &CopyProgress) -> Self {
        CopyText {
            replica,
            what: format!("receives the state{}", donors(&copy.from)),
            share: copy.total.map_or(0, |total| share(copy.received, total, BAR as u64)),
            figures: figures(copy),
        }
    }

    fn of_given(replica: u8, copy: &CopyGiven) -> Self {
        let share = |parts| share(copy.begun.into(), copy.regions.into(), parts);
        CopyText {
            replica,
            what: "packs the state for those that lack it".into(),
            // It is not complete before the last change is packed.
            share: share(BAR as u64).min(BAR as u64 - 1),
            figures: match share(100) {
                100 => format!("all packed but {} objects", grouped(copy.left)),
                percent => format!("{percent} % packed"),
            },
        }
    }
}

fn donors(from: &[u8]) -> String {
    match from {
        [] => String::new(),
        [one] => format!(" from replica {one}"),
        [firsts @ .., last] => {
            let firsts: Vec<String> = firsts.iter().map(u8::to_string).collect();
            format!(" from replicas {} and {last}", firsts.join(", "))
        }
    }
}

fn figures(copy: &CopyProgress) -> String {
    let (received, rate) = (bytes(copy.received), bytes(copy.bytes_per_second));
    let Some(total) = copy.total else { return format!("{received}, {rate}/s") };
    if copy.received >= total {
        return format!("all {received} are here and are put in place");
    }
    let left = (total - copy.received).div_ceil(copy.bytes_per_second.max(1));
    let left = match copy.bytes_per_second {
        0 => String::new(),
        _ => format!(", {} left", roughly(Duration::from_secs(left))),
    };
    let percent = share(copy.received, total, 100);
    format!("{received} of {} ({percent} %), {rate}/s{left}", bytes(total))
}

/// How many of `parts` are done, rounded down.
fn share(received: u64, total: u64, parts: u64) -> u64 {
    (u128::from(received.min(total)) * u128::from(parts) / u128::from(total.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use crosscheck::admin::{Endpoint, ReplicaPhase, Status};

    use super::*;
    use crate::cluster::{ReplicaHandle, test_status};

    const MB: u64 = 1_000_000;

    fn row(status: Status) -> ReplicaRow {
        let admin = Endpoint::Unix("admin.sock".into());
        let replica = ReplicaHandle { number: status.replica, admin, clients: None };
        ReplicaRow { replica, seen: Ok(status), rate: None }
    }

    fn receiving(from: &[u8], received: u64, total: Option<u64>, bytes_per_second: u64) -> [ReplicaRow; 1] {
        let copy = CopyProgress { from: from.to_vec(), received, total, bytes_per_second };
        [row(Status { receiving: Some(copy), ..test_status(3) })]
    }

    #[test]
    fn a_sentence_says_whose_state_and_how_far() {
        let told = |from: &[u8], received, total, rate| sentences(&receiving(from, received, total, rate));
        assert_eq!(sentences(&[row(test_status(3))]), [""; 0]);
        assert_eq!(told(&[], 0, None, 0), [""; 0], "the status says what it waits for");
        let cases = [
            (told(&[1, 2], 0, Some(1_200 * MB), 0), " from replicas 1 and 2: 0 B of 1.2 GB (0 %), 0 B/s"),
            (
                told(&[1, 2, 5], 412 * MB, Some(1_200 * MB), 180 * MB),
                " from replicas 1, 2 and 5: 412 MB of 1.2 GB (34 %), 180 MB/s, 5s left",
            ),
            (told(&[2], 7 * MB, None, 9_000), " from replica 2: 7.0 MB, 9.0 kB/s"),
            (
                told(&[1], 10 * MB, Some(100 * MB), 1),
                " from replica 1: 10 MB of 100 MB (10 %), 1 B/s, 3y left",
            ),
            (told(&[], 12 * MB, Some(12 * MB), MB), ": all 12 MB are here and are put in place"),
        ];
        for (told, wanted) in cases {
            assert_eq!(told, [format!("replica 3 receives the state{wanted}")]);
        }
    }

    #[test]
    fn a_bar_grows_from_end_to_end() {
        let drawn = |received, total| bars(&receiving(&[1, 2], received, total, 0));
        let cases = [
            (drawn(0, Some(40)), "[>                   ]  0 B of 40 B (0 %), 0 B/s"),
            (drawn(39, Some(40)), "[===================>]  39 B of 40 B (97 %), 0 B/s"),
            (drawn(40, Some(40)), "[====================]  all 40 B are here and are put in place"),
            (drawn(7, None), "[>                   ]  7 B, 0 B/s"),
            (
                drawn(u64::MAX - 1, Some(u64::MAX)),
                "[===================>]  18447 PB of 18447 PB (99 %), 0 B/s",
            ),
        ];
        for (drawn, wanted) in cases {
            assert_eq!(drawn, [format!("replica 3  {wanted}")]);
        }
        assert_eq!(bars(&[row(test_status(3))]), [""; 0]);
    }

    #[test]
    fn of_those_that_pack_the_state_for_another_one_the_leader_says_how_far() {
        let packs = |begun, left, phase| {
            let giving = Some(CopyGiven { session: 7, begun, regions: 1_024, left });
            let status = |replica| Status { giving: giving.clone(), ..test_status(replica) };
            [row(status(1)), row(status(2)), row(Status { phase, ..test_status(3) })]
        };
        let (packing, joining) = ("replica 1 packs the state for those that lack it", ReplicaPhase::Joining);
        assert_eq!(sentences(&packs(350, 12, joining)), [format!("{packing}: 34 % packed")]);
        assert_eq!(bars(&packs(350, 12, joining)), ["replica 1  [======>             ]  34 % packed"]);
        let (sentence, bar) = (sentences(&packs(1_024, 5_678, joining)), bars(&packs(1_024, 5_678, joining)));
        assert_eq!(sentence, [format!("{packing}: all packed but 5,678 objects")]);
        assert_eq!(bar, ["replica 1  [===================>]  all packed but 5,678 objects"]);
        assert_eq!(sentences(&packs(350, 12, ReplicaPhase::Serving)), [""; 0], "it is for the disk");
    }
}
