//! Bytes of replies: kept while they may be needed, within bounds, and never waited for in vain.

use super::cluster::Cluster;
use super::service::{Op, Slip};
use crate::limits::{FETCH_BYTES, FETCHES, KEPT_REPLY_BYTES_MAX, LONG_REPLY_BYTES};
use crate::record::{DetailExchange, Dispute, Record};
use crate::{Config, Dropped, Message, Place, Replica, RequestResult, Voter, keeps_reply};

/// The replica of the cluster that owes the reply to a request.
fn owner(place: Place) -> usize {
    ((place.batch + u64::from(place.request)) % 3) as usize
}

fn result(cluster: &Cluster, replica: usize, place: Place) -> &RequestResult {
    let record = cluster.nodes[replica].voter.window().get(place.batch).expect("it is open");
    &record.requests()[usize::from(place.request)]
}

fn has_reply(cluster: &Cluster, replica: usize, place: Place) -> bool {
    result(cluster, replica, place).has_reply()
}

/// Bytes that a batch holds, counted once more.
fn counted(record: &Record) -> usize {
    let of_details = |details: &DetailExchange| {
        let stated = details.stated.iter().flatten().map(|stated| size_of_val(stated.as_slice()));
        let deltas = details.disputes.values().flat_map(|dispute| dispute.deltas.iter().flatten());
        stated.sum::<usize>()
            + deltas.map(|delta| size_of_val(&delta.pairs[..])).sum::<usize>()
            + details.disputes.len() * size_of::<Dispute>()
    };
    let results = record.requests().iter().map(RequestResult::bytes).sum::<usize>();
    results + record.details.as_deref().map_or(0, of_details)
}

/// The bytes that a voter counts are those that it holds.
fn assert_exact(voter: &Voter) {
    let window = voter.window();
    let batches = voter.open_batches().chain(window.parked.keys().copied());
    let records: Vec<&Record> = batches.filter_map(|batch| window.get(batch)).collect();
    for record in &records {
        assert_eq!(record.bytes + record.owed_bytes, counted(record));
    }
    let sum = |of: fn(&Record) -> usize| records.iter().map(|record| of(record)).sum::<usize>();
    assert_eq!(
        (window.bytes, window.owed_bytes),
        (sum(|record| record.bytes), sum(|record| record.owed_bytes))
    );
    let results = || records.iter().flat_map(|record| record.requests());
    let kept =
        results().filter(|result| !result.request_info.mine).map(RequestResult::reply_bytes).sum::<usize>();
    assert_eq!(
        (window.kept_bytes, window.owed_bytes),
        (kept, results().map(RequestResult::owed_bytes).sum())
    );
}

fn assert_all_exact(cluster: &Cluster) {
    cluster.nodes.iter().for_each(|node| assert_exact(&node.voter));
}

/// Three replicas; replica `faulty` answers every request of batch 1 wrongly.
fn wrong_replies(faulty: usize, ops: &[Op], configure: impl Fn(Config) -> Config) -> Cluster {
    let mut cluster = Cluster::configured(3, 5, configure);
    cluster.order(&[Op::Set(0, 1)]);
    cluster.run();
    for request in 0..ops.len() as u16 {
        cluster.nodes[faulty].slips.insert(Place::new(1, request), Slip::Reply);
    }
    cluster.order(ops);
    cluster
}

#[test]
fn a_reply_that_has_left_is_let_go_of_by_its_owner() {
    let mut cluster = wrong_replies(1, &[Op::Long(900), Op::Long(800), Op::Long(700)], |config| config);
    cluster.run();
    cluster.assert_as_if_fault_free();
    for place in (0..3).map(|request| Place::new(1, request)) {
        for replica in 0..3 {
            let is_owner = replica == owner(place);
            assert_eq!(has_reply(&cluster, replica, place), !is_owner, "{place} at replica {replica}");
            assert_eq!(result(&cluster, replica, place).reply_len, 900 - 100 * u64::from(place.request));
        }
    }
    assert_all_exact(&cluster);
}

/// Each replica has another reply, and none can reproduce its own.
#[test]
fn a_reply_that_was_dropped_is_let_go_of_by_its_owner() {
    let mut cluster = Cluster::new(3, 5);
    let tampers: [fn(&mut RequestResult); 3] =
        [|one| answer(one, 1), |one| answer(one, 2), |one| answer(one, 3)];
    for (node, tamper) in cluster.nodes.iter_mut().zip(tampers) {
        node.tamper.insert(Place::new(0, 1), tamper);
    }
    cluster.order(&[Op::Get(0), Op::Long(5000)]);
    cluster.run();
    assert_eq!(cluster.nodes[1].dropped, [(Place::new(0, 1), Dropped::NoResult)]);
    assert!(!has_reply(&cluster, 1, Place::new(0, 1)));
    assert_all_exact(&cluster);
}

fn answer(result: &mut RequestResult, byte: u8) {
    *result = RequestResult::new(result.request_info, result.pairs.clone(), vec![byte; 5000].into());
}

#[test]
fn replies_of_other_replicas_clients_are_bounded_and_the_oldest_go_first() {
    let mut cluster = Cluster::configured(3, 5, |config| config.with_kept_reply_bytes(1000));
    for _ in 0..6 {
        // Two of the three are other replicas', so one of the older 400 bytes stays.
        cluster.order(&[Op::Long(400), Op::Long(400), Op::Long(400)]);
    }
    cluster.run();
    cluster.assert_as_if_fault_free();
    for replica in 0..3 {
        let places = (0..6).flat_map(|batch| (0..3).map(move |request| Place::new(batch, request)));
        let kept: Vec<Place> = places.filter(|place| has_reply(&cluster, replica, *place)).collect();
        assert_eq!(kept.len(), 2, "at replica {replica}: {kept:?}");
        assert!(kept.iter().all(|place| place.batch == 5), "at replica {replica}: {kept:?}");
    }
    assert_all_exact(&cluster);
}

#[test]
fn one_batch_of_more_than_may_be_kept_leaves_what_fits() {
    let mut cluster = Cluster::configured(3, 5, |config| config.with_kept_reply_bytes(1000));
    cluster.order(&[Op::Long(300); 12]);
    cluster.run();
    cluster.assert_as_if_fault_free();
    let kept = (0..12).filter(|request| has_reply(&cluster, 0, Place::new(0, *request))).collect::<Vec<_>>();
    assert_eq!(kept, [8, 10, 11], "the last ones of others");
    assert_all_exact(&cluster);
}

#[test]
fn a_long_reply_is_kept_by_its_owner_only() {
    let longest = KEPT_REPLY_BYTES_MAX as u32;
    assert!(keeps_reply(false, longest as usize) && keeps_reply(true, longest as usize + 1));
    assert!(!keeps_reply(false, longest as usize + 1));
    let mut cluster = Cluster::new(3, 5);
    cluster.on_wire =
        Box::new(|_, _, message| (!matches!(message, Message::Check { .. })).then_some(message));
    cluster.order(&[Op::Long(longest + 1), Op::Long(longest)]);
    cluster.execute();
    let at = |request| (0..3).map(|one| has_reply(&cluster, one, Place::new(0, request))).collect::<Vec<_>>();
    assert_eq!((at(0), at(1)), (vec![true, false, false], vec![true, true, true]));
    assert_all_exact(&cluster);
}

/// No time passes: replies that no replica has are not waited for.
fn deliver_all(cluster: &mut Cluster) {
    cluster.execute();
    while cluster.deliver() {}
}

#[test]
fn a_long_reply_that_is_wrong_is_dropped_at_once() {
    for length in [KEPT_REPLY_BYTES_MAX + 1, FETCH_BYTES + 1] {
        let ops = [Op::Long(length as u32), Op::Get(0), Op::Get(0)];
        let mut cluster = wrong_replies(1, &ops, |config| config);
        deliver_all(&mut cluster);
        assert_eq!(cluster.nodes[1].dropped, [(Place::new(1, 0), Dropped::NotFetched)]);
        assert!(cluster.nodes[2].dropped.is_empty() && cluster.nodes[0].dropped.is_empty());
        let asks =
            |line: &&String| line.starts_with("1 -> ") && line.contains("batch: 1, request: 0 }, offset");
        assert_eq!(cluster.transcript.iter().filter(asks).count(), 0, "nobody keeps it");
    }
}

#[test]
fn a_reply_that_nobody_keeps_any_more_is_dropped_at_once() {
    let mut cluster = wrong_replies(1, &[Op::Long(50)], |config| config.with_kept_reply_bytes(0));
    deliver_all(&mut cluster);
    assert_eq!(cluster.nodes[1].dropped, [(Place::new(1, 0), Dropped::NotFetched)]);
    cluster.run();
    assert!(cluster.nodes.iter().all(|node| node.voter.is_settled()));
    cluster.assert_blames_only(&[1]);
}

#[test]
fn a_reply_that_one_peer_has_let_go_of_comes_from_another() {
    let keeps = |config: Config| match config.me() {
        0 => config.with_kept_reply_bytes(0),
        _ => config,
    };
    let mut cluster = wrong_replies(1, &[Op::Long(50)], keeps);
    deliver_all(&mut cluster);
    cluster.assert_as_if_fault_free();
    assert_eq!(cluster.nodes[1].voter.counters().replies_repaired, 1);
    let reported = |line: &&String| line.starts_with("0 -> 1: ReplyGone");
    assert_eq!(cluster.transcript.iter().filter(reported).count(), 1, "its other replies may still be had");
}

/// The bounds are checked after every event, in `Cluster::handle`.
#[test]
fn replies_are_fetched_a_few_at_a_time() {
    for length in [5, KEPT_REPLY_BYTES_MAX as u32] {
        let count = 3 * if length == 5 { FETCHES + 9 } else { 11 };
        let configure = |config: Config| config.with_window_bytes(256 << 20).with_kept_reply_bytes(128 << 20);
        let mut cluster = wrong_replies(1, &vec![Op::Long(length); count], configure);
        cluster.run();
        cluster.assert_as_if_fault_free();
        assert_eq!(cluster.nodes[1].voter.counters().replies_repaired, count as u64 / 3);
        assert_all_exact(&cluster);
    }
}

/// A reply for which the owner's worker had no room.
fn without_room(result: &mut RequestResult) {
    let reply = result.reply.take().expect("it is made here");
    let before = (result.digest, result.answer());
    *result = RequestResult::without_reply(result.request_info, result.pairs.clone(), &reply);
    assert_eq!((result.digest, result.answer()), before, "its peers see no difference");
}

#[test]
fn a_reply_without_room_is_dropped_and_nobody_is_blamed() {
    let mut cluster = Cluster::new(3, 5);
    cluster.order(&[Op::Set(0, 5), Op::Get(0), Op::Long(700)]);
    for replica in 0..3 {
        cluster.nodes[replica].tamper.insert(Place::new(0, 2), without_room);
    }
    cluster.run();
    assert_eq!(cluster.nodes[2].dropped, [(Place::new(0, 2), Dropped::NoRoom)]);
    for node in &cluster.nodes {
        assert!(node.evidence.is_empty() && node.voter.counters().mismatched_batches == 0);
        assert!(node.voter.is_settled());
    }
    assert_all_exact(&cluster);
}

/// One level down: another request of the batch is disputed, or this one is.
#[test]
fn a_reply_without_room_is_dropped_where_replicas_differ() {
    for (wrong, replica) in [(0, 1), (2, 1), (2, 2)] {
        let mut cluster = Cluster::new(3, 5);
        cluster.order(&[Op::Set(0, 5), Op::Get(0), Op::Long(700)]);
        cluster.nodes[2].tamper.insert(Place::new(0, 2), without_room);
        cluster.nodes[replica].slips.insert(Place::new(0, wrong), Slip::Reply);
        cluster.run();
        assert_eq!(cluster.nodes[2].dropped, [(Place::new(0, 2), Dropped::NoRoom)]);
        cluster.assert_blames_only(&[replica as Replica]);
        assert!(cluster.nodes.iter().all(|node| node.voter.is_settled()));
        assert_all_exact(&cluster);
    }
}

/// Only this replica votes: the bytes that it may hold depend on its configuration.
#[test]
fn the_window_closes_its_oldest_batch_when_it_holds_too_much() {
    let bytes = 100_000;
    let configure = |config: Config| config.with_window_bytes(bytes).with_owed_reply_bytes(bytes);
    let mut cluster = Cluster::configured(3, 5, configure);
    cluster.on_wire = Box::new(|_, _, _| None);
    for _ in 0..30 {
        cluster.order(&[Op::Long(20_000), Op::Long(20_000), Op::Long(20_000)]);
    }
    for _ in 0..30 {
        cluster.execute();
        while cluster.deliver() {}
    }
    for node in &cluster.nodes {
        let window = node.voter.window();
        assert!(
            window.bytes <= bytes && window.owed_bytes <= bytes,
            "{} {}",
            window.bytes,
            window.owed_bytes
        );
        assert!(node.voter.window().kept_bytes <= bytes / 2);
        let closed = node.dropped.iter().filter(|(_, why)| *why == Dropped::WindowClosed).count();
        assert!(closed > 20 && closed < 30, "{closed}: the newest are open");
        assert_exact(&node.voter);
    }
}

/// Short replies have no other bound: they count for the window, for any client.
#[test]
fn short_replies_that_are_owed_are_held_within_the_window() {
    let bytes = 200_000;
    let mut cluster =
        Cluster::configured(3, 5, |config| config.with_window_bytes(bytes).with_owed_reply_bytes(0));
    cluster.on_wire = Box::new(|_, _, _| None);
    let short = LONG_REPLY_BYTES as u32 - 1;
    for _ in 0..60 {
        cluster.order(&[Op::Long(short); 3]);
    }
    for _ in 0..60 {
        cluster.execute();
        while cluster.deliver() {}
    }
    for node in &cluster.nodes {
        let window = node.voter.window();
        assert!(window.bytes <= bytes && window.owed_bytes == 0, "{} {}", window.bytes, window.owed_bytes);
        assert!(
            !node.dropped.is_empty() && node.dropped.iter().all(|(_, why)| *why == Dropped::WindowClosed)
        );
        assert_exact(&node.voter);
    }
}

/// A reply that is longer than the window waits for its vote, and so do those of other clients, before it and after it.
#[test]
fn a_reply_longer_than_the_window_pushes_nobody_out() {
    let bytes = 100_000;
    let mut cluster = Cluster::configured(3, 5, |config| config.with_window_bytes(bytes));
    // In each batch another replica owes the first reply.
    for long in [10, 10, 3 * bytes as u32, 10, 10, 4 * bytes as u32, 10] {
        cluster.order(&[Op::Long(long), Op::Get(0), Op::Get(0)]);
    }
    for _ in 0..7 {
        cluster.execute();
    }
    assert!(cluster.nodes.iter().any(|node| node.voter.window().owed_bytes > 3 * bytes));
    cluster.run();
    cluster.assert_as_if_fault_free();
    for node in &cluster.nodes {
        assert_eq!(node.dropped, []);
        assert_eq!(node.voter.window().owed_bytes, 0);
    }
    assert_all_exact(&cluster);
}
