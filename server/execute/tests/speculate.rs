//! Batches that are rolled back: state, tree and tokens are those of before (OSDI 2012, 4.1 and 6.1).

use std::collections::BTreeSet;

use execute::{End, KeptRequest, NotRolledBack, Speculation, TokenParts};
use object::{Change, Injection, Kept, Region, RegionId};
use tree::{Tree, TreeShape};
use verify::{StateToken, Version};
use wire::SplitMix64;

use crate::support::{Bank, Request};

fn tree_of(bank: &mut Bank) -> Tree {
    let mut tree = Tree::new(TreeShape::even(2, 64));
    for region_id in 0..2 {
        let mut objects = Vec::new();
        let account = bank.accounts[region_id].get_mut();
        account.objects(&mut |listed| objects.push((listed.id, listed.recomputed)));
        tree.recompute(region_id as RegionId, objects);
    }
    tree
}

fn start(bank: &mut Bank) -> Speculation {
    Speculation::new(tree_of(bank), Version { number: 0, token: StateToken(7) }, TokenParts::default())
}

fn digests(bank: &mut Bank) -> [u128; 2] {
    [0, 1].map(|region_id| bank.accounts[region_id].get_mut().digest())
}

/// Runs a batch of these requests, in this order.
fn run(bank: &mut Bank, speculation: &mut Speculation, requests: &[Request]) -> StateToken {
    let mut executed = Vec::new();
    for (stamp, &request) in (0..).zip(requests) {
        let (ran, kept) = bank.keep(request, room(speculation));
        assert!(matches!(ran.end, End::Done(_) | End::Panicked), "{:?}", ran.end);
        let answer = u128::from(ran.reply.parse::<u64>().unwrap_or_default());
        executed.push(KeptRequest { stamp, answer, kept });
    }
    speculation.fold(executed, 5)
}

fn any(random: &mut SplitMix64) -> Request {
    let amount = random.below(1_000);
    match random.below(5) {
        0 => Request::Read,
        1 => Request::PayInBoth(amount),
        2 => Request::PayInThenPanic(amount),
        _ => Request::PayIn(amount),
    }
}

/// Buffers for the next request.
fn room(speculation: &mut Speculation) -> Kept {
    speculation.rooms(1).pop().unwrap_or_default()
}

#[test]
fn any_number_of_batches_is_rolled_back() {
    let mut random = SplitMix64::new(11);
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    let mut versions = vec![(speculation.version(), digests(&mut bank))];
    for _ in 0..2_000 {
        match random.below(8) {
            0 => {
                let to = random.below(versions.len() as u64);
                let stable = versions[0].0.number;
                versions.truncate(to as usize + 1);
                let left = speculation.roll_back(stable + to, &mut bank).expect("it is sound");
                assert_eq!((left, digests(&mut bank)), versions[to as usize]);
            }
            1 => {
                let to = random.below(versions.len() as u64);
                speculation.agree(versions[to as usize].0.number);
                versions.drain(..to as usize);
                assert_eq!(speculation.stable(), versions[0].0);
            }
            _ => {
                let requests: Vec<Request> = (0..random.below(6)).map(|_| any(&mut random)).collect();
                let token = run(&mut bank, &mut speculation, &requests);
                let number = versions[versions.len() - 1].0.number + 1;
                versions.push((Version { number, token }, digests(&mut bank)));
            }
        }
        assert_eq!(speculation.version(), versions[versions.len() - 1].0);
        assert_eq!(speculation.tree().root(), tree_of(&mut bank).root());
    }
    speculation.agree(u64::MAX);
    assert_eq!(speculation.bytes(), 0);
}

/// The token says whether replicas agree: on the state, on the outputs, and on everything before.
#[test]
fn tokens_differ_where_anything_does() {
    let tokens: Vec<StateToken> = [
        &[Request::PayIn(1), Request::PayIn(2)][..],
        // The same state by another way, with other answers.
        &[Request::PayIn(2), Request::PayIn(1)],
        &[Request::PayIn(3)],
        &[Request::PayIn(1), Request::PayIn(2), Request::Read],
        &[],
    ]
    .into_iter()
    .map(|requests| {
        let mut bank = Bank::new();
        let mut speculation = start(&mut bank);
        run(&mut bank, &mut speculation, requests)
    })
    .collect();
    for (number, token) in tokens.iter().enumerate() {
        assert!(!tokens[..number].contains(token), "{number}: {tokens:?}");
    }
    let twice = |first: &[Request]| {
        let mut bank = Bank::new();
        let mut speculation = start(&mut bank);
        run(&mut bank, &mut speculation, first);
        run(&mut bank, &mut speculation, &[Request::Read])
    };
    assert_eq!(twice(&[Request::PayIn(1)]), twice(&[Request::PayIn(1)]));
    assert_ne!(twice(&[Request::PayIn(100), Request::Read]), twice(&[Request::Read, Request::PayIn(100)]));
}

#[test]
fn a_batch_that_has_not_ended_is_rolled_back() {
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    let before = digests(&mut bank);
    let mut executed: Vec<KeptRequest> = (1..)
        .zip([Request::PayIn(4), Request::PayInBoth(5), Request::PayIn(6)])
        .map(|(stamp, request)| KeptRequest {
            stamp,
            answer: 0,
            kept: bank.keep(request, room(&mut speculation)).1,
        })
        .collect();
    executed.reverse();
    assert_ne!(digests(&mut bank), before);
    speculation.roll_back_running(executed, &mut bank).expect("it is sound");
    assert_eq!(digests(&mut bank), before);
}

#[test]
fn what_became_stable_stays() {
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    run(&mut bank, &mut speculation, &[Request::PayIn(1)]);
    run(&mut bank, &mut speculation, &[Request::PayIn(1)]);
    speculation.agree(1);
    let refused = speculation.roll_back(0, &mut bank);
    assert_eq!(refused, Err(NotRolledBack::Stable(speculation.stable())));
    assert_eq!(speculation.roll_back(1, &mut bank).map(|version| version.number), Ok(1));
}

/// A fault between a batch and its rollback: the tree does not fit the state of before, and says so.
#[test]
fn a_corrupted_tree_or_image_is_found() {
    for is_tree in [true, false] {
        let mut bank = Bank::new();
        let mut speculation = start(&mut bank);
        run(&mut bank, &mut speculation, &[Request::PayIn(1)]);
        run(&mut bank, &mut speculation, &[Request::PayIn(1)]);
        if is_tree {
            let id = bank.accounts[0].get_mut().root();
            speculation.tree().apply(Change { region_id: 0, id, old: 1, new: 3 });
        } else {
            let account = bank.accounts[0].get_mut();
            let id = account.root();
            account.inject(id, &Injection::Flip { member: Some(0), bit: Some(1), seed: 0 }).expect("it fits");
        }
        let left = speculation.roll_back(0, &mut bank);
        if is_tree {
            assert_eq!(left, Err(NotRolledBack::State(0)));
        } else {
            // The before-image overwrites the flipped bit.
            assert_eq!(left.map(|version| version.number), Ok(0));
            assert!(bank.accounts[0].get_mut().scrub(9).is_empty());
        }
    }
}

/// A corrupted replica rolls back to an earlier version and gets the object as it was then from one that is further.
#[test]
fn a_corrupted_object_is_replaced_by_that_of_another_replica_at_the_same_version() {
    let mut random = SplitMix64::new(5);
    let (mut donor, mut asker) = (Bank::new(), Bank::new());
    let (mut of_donor, mut of_asker) = (start(&mut donor), start(&mut asker));
    for number in 0..200u64 {
        let requests: Vec<Request> = (0..4).map(|_| any(&mut random)).collect();
        assert_eq!(run(&mut donor, &mut of_donor, &requests), run(&mut asker, &mut of_asker, &requests));
        of_asker.agree(number);
        let version = of_asker.version();
        let region_id = random.below(2) as RegionId;
        let account = asker.accounts[region_id as usize].get_mut();
        let (id, before) = (account.root(), account.digest());
        let flip = Injection::Flip { member: None, bit: None, seed: number };
        account.inject(id, &flip).expect("it fits");
        assert!(!of_asker.are_right(&[(region_id, id)], &mut asker));
        // The donor goes on meanwhile: some of it is stable there, some is not, some is not folded.
        let later: Vec<Request> = (0..3).map(|_| any(&mut random)).collect();
        let present = digests(&mut donor);
        run(&mut donor, &mut of_donor, &later);
        of_donor.agree(version.number + number % 2);
        let running: Vec<_> = (0..2).map(|_| donor.keep(any(&mut random), room(&mut of_donor)).1).collect();
        let running: Vec<_> = running.iter().collect();
        let object = of_donor.object_after(version.number, (region_id, id), &running, &mut donor);
        let packed = object.expect("it is known").expect("it existed");
        asker.accounts[region_id as usize].get_mut().replace(id, Some(&packed)).expect("it fits");
        assert!(of_asker.are_right(&[(region_id, id)], &mut asker));
        assert_eq!(asker.accounts[region_id as usize].get_mut().digest(), before);
        // What is not known yet, or any more, is not sent.
        assert_eq!(of_donor.object_after(version.number + 2, (region_id, id), &running, &mut donor), None);
        // The donor continues from the asker's version: its own later requests are rolled back.
        donor = Bank::new();
        (0..2).for_each(|region_id| {
            let packed = asker.accounts[region_id].get_mut().pack_all();
            donor.accounts[region_id].get_mut().load_all(&packed).expect("it fits");
        });
        assert_eq!(digests(&mut donor), present);
        let parts = of_asker.parts();
        of_donor = Speculation::new(tree_of(&mut donor), version, parts);
        assert!(of_donor.fits_token());
        // Of a state with another object, the token tells.
        let mut wrong = Bank::new();
        let mut of_wrong = start(&mut wrong);
        run(&mut wrong, &mut of_wrong, &[Request::PayIn(987_654_321)]);
        assert!(!Speculation::new(tree_of(&mut wrong), version, parts).fits_token());
    }
}

/// A request that lacks an object does not know in which of its regions that is. In a wrong one the object is known not
/// to exist, also where later requests have changed it in its own.
#[test]
fn an_object_is_asked_for_in_a_region_that_it_is_not_in() {
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    run(&mut bank, &mut speculation, &[Request::PayIn(1)]);
    let number = speculation.version().number;
    let ids: Vec<_> = (0..2).map(|region_id: usize| bank.accounts[region_id].get_mut().root()).collect();
    run(&mut bank, &mut speculation, &[Request::PayIn(1), Request::PayIn(2)]);
    for (region_id, id) in (0..).zip(ids) {
        assert!(
            speculation.object_after(number, (region_id, id), &[], &mut bank).expect("it is known").is_some()
        );
        let elsewhere = (1 - region_id, id);
        assert_eq!(speculation.object_after(number, elsewhere, &[], &mut bank), Some(None));
    }
}

#[test]
fn buffers_of_requests_that_are_not_kept_any_more_are_used_again() {
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    assert!(speculation.rooms(3).is_empty());
    // As many stable batches as are kept, and one more.
    for number in 1..=257 {
        run(&mut bank, &mut speculation, &[Request::PayIn(number)]);
        speculation.agree(number);
    }
    assert_eq!(speculation.rooms(3).len(), 1);
    assert!(speculation.rooms(3).is_empty());
    speculation.take_rooms_back([Kept::new(), Kept::new()]);
    assert_eq!(speculation.rooms(1).len(), 1);
}

/// What a copy of the state has to pack again after it was rolled back.
#[test]
fn objects_of_batches_after_a_version_are_shown() {
    let mut bank = Bank::new();
    let mut speculation = start(&mut bank);
    run(&mut bank, &mut speculation, &[Request::PayInBoth(1)]);
    run(&mut bank, &mut speculation, &[Request::Read, Request::PayIn(2)]);
    let changed_after = |speculation: &Speculation, number| {
        let mut changed = BTreeSet::new();
        speculation.each_changed_after(number, &mut |region_id, _| _ = changed.insert(region_id));
        changed.len()
    };
    assert_eq!([0, 1, 2].map(|number| changed_after(&speculation, number)), [2, 1, 0]);
    speculation.agree(1);
    assert_eq!(changed_after(&speculation, 1), 1);
}
