//! EDCC'16 Fig. 2, line by line, against the classification by f+1 equal votes.
//!
//! `paper` is the algorithm as printed, for three replicas; each statement cites its line. Two readings had to be
//! chosen, and are stated in `classify`: lines 15-18 apply to replicas that were SUSPECT before this comparison (Table
//! I and the text: "two comparisons ... are needed to reach the FAILED state"), and where no two agree `classify` does
//! not follow it.

use crate::limits::MAX_REPLICAS;
use crate::{Status, Vote, Votes, classify};

/// Fig. 2 at one replica, which has all CHECKs of `arrivals`, in this order.
fn paper(arrivals: &[(usize, u128)]) -> [Status; 3] {
    let mut status = [Status::Unknown; 3]; // Table I
    let mut delta: Vec<(usize, u128)> = Vec::new(); // "Data: state delta D"
    for &(j, check) in arrivals {
        // Line 3: wait until one CHECK arrives. (The own one, line 1, is among the arrivals.)
        for &(i, pairs) in &delta {
            // Line 4: for each P_i in D; line 5: compare all pairs of the CHECK of R_j with P_i.
            if pairs == check {
                // Lines 6-9: both are VALID.
                status[i] = Status::Valid;
                status[j] = Status::Valid;
            } else {
                // Lines 11-18: UNKNOWN becomes SUSPECT; SUSPECT becomes FAILED.
                for replica in [i, j] {
                    status[replica] = match status[replica] {
                        Status::Unknown => Status::Suspect,
                        Status::Suspect => Status::Failed,
                        decided => decided,
                    };
                }
            }
        }
        delta.push((j, check));
    }
    status
}

fn ours(arrivals: &[(usize, u128)], replicas: usize) -> Vec<Status> {
    let mut votes = Votes::default();
    for (replica, value) in arrivals {
        votes[*replica].add_value(*value);
    }
    classify(&votes, replicas as u32 / 2 + 1).statuses[..replicas].to_vec()
}

fn orders(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(of - 1);
    let insert = |order: &Vec<usize>, at: usize| [&order[..at], &[of - 1], &order[at..]].concat();
    shorter.iter().flat_map(|order| (0..of).map(move |at| insert(order, at))).collect()
}

#[test]
fn lines_3_to_21_for_all_values_all_orders_and_all_prefixes() {
    let mut compared = 0;
    for values in (0..27u128).map(|n| [n % 3, n / 3 % 3, n / 9]) {
        for order in orders(3) {
            let arrivals: Vec<_> = order.iter().map(|replica| (*replica, values[*replica])).collect();
            for prefix in 1..=3 {
                let arrivals = &arrivals[..prefix];
                let (paper, ours) = (paper(arrivals), ours(arrivals, 3));
                compared += 1;
                let all_differ =
                    prefix == 3 && values[0] != values[1] && values[1] != values[2] && values[0] != values[2];
                if all_differ {
                    // Section IV-D: "This would break our assumptions about faults." No replica is FAILED without a
                    // majority.
                    assert_eq!(ours, [Status::Suspect; 3]);
                    assert!(paper.contains(&Status::Failed));
                } else {
                    assert_eq!(
                        paper.to_vec(),
                        ours,
                        "values {values:?} in order {order:?}, {prefix} arrived"
                    );
                }
            }
        }
    }
    assert_eq!(compared, 27 * 6 * 3);
}

#[test]
fn line_8_one_successful_comparison_makes_both_valid() {
    assert_eq!(ours(&[(0, 7), (2, 7)], 3), [Status::Valid, Status::Unknown, Status::Valid]);
}

#[test]
fn line_13_one_failed_comparison_makes_both_suspect() {
    assert_eq!(ours(&[(0, 7), (1, 8)], 3), [Status::Suspect, Status::Suspect, Status::Unknown]);
}

#[test]
fn line_17_the_second_comparison_tells_who_failed() {
    assert_eq!(ours(&[(0, 7), (1, 8), (2, 7)], 3), [Status::Valid, Status::Failed, Status::Valid]);
    assert_eq!(ours(&[(0, 7), (1, 8), (2, 8)], 3), [Status::Failed, Status::Valid, Status::Valid]);
}

#[test]
fn five_replicas_need_three_equal_votes() {
    use Status::*;
    assert_eq!(ours(&[(0, 7), (1, 7)], 5), [Unknown; 5], "two of five may both be wrong");
    assert_eq!(ours(&[(0, 7), (1, 7), (4, 8)], 5), [Suspect, Suspect, Unknown, Unknown, Suspect]);
    assert_eq!(ours(&[(0, 7), (1, 7), (4, 8), (3, 7)], 5), [Valid, Valid, Unknown, Valid, Failed]);
    assert_eq!(ours(&[(0, 7), (1, 7), (4, 8), (3, 9), (2, 7)], 5), [Valid, Valid, Valid, Failed, Failed]);
}

#[test]
fn the_order_of_arrival_never_matters() {
    for values in (0..243u128).map(|n| [n % 3, n / 3 % 3, n / 9 % 3, n / 27 % 3, n / 81]) {
        let expected = ours(&(0..5).map(|r| (r, values[r])).collect::<Vec<_>>(), 5);
        for order in orders(5).into_iter().step_by(7) {
            let arrivals: Vec<_> = order.iter().map(|replica| (*replica, values[*replica])).collect();
            assert_eq!(ours(&arrivals, 5), expected);
        }
    }
}

#[test]
fn a_replica_that_blames_itself_has_no_vote() {
    let mut votes: Votes = [Vote::default(); MAX_REPLICAS];
    votes[0].add_value(7);
    votes[1].add_value(7);
    votes[1].blame();
    let verdict = classify(&votes, 2);
    assert_eq!(verdict.majority, None);
    assert_eq!(verdict.statuses[..3], [Status::Unknown, Status::Failed, Status::Unknown]);
}

#[test]
fn a_torn_vote_is_valid_when_either_half_is_right() {
    let mut votes: Votes = [Vote::default(); MAX_REPLICAS];
    votes[0].add_value(7);
    votes[1].add_value(99); // a fault hit the stated digest
    votes[1].add_value(7); // the pairs were not
    votes[2].add_value(7);
    assert_eq!(classify(&votes, 2).statuses[..3], [Status::Valid; 3]);
}
