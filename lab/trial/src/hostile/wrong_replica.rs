//! A replica that stays wrong is replaced, and a value that all replicas computed differently does not block its object
//! for ever.

use std::time::{Duration, Instant};

use crosscheck::admin::client::Link;
use crosscheck::admin::{AdminCommand, Corruption, EvidenceRecord, Inject, Injected};

use super::lab::{HostileRun, Lab, PATIENCE, REPLICAS, Setup};
use super::ms;
use super::outcome::Case;
use super::watch::HostileWatch;
use node::digest;

/// Wrong replies in a row that are armed: several times the bound, since some take effect in one batch.
const REPLIES: u64 = 1_500;
/// How long it may take until a replica whose replies are all wrong is replaced.
const REPLACED: Duration = Duration::from_secs(15);
/// How long a replica computes wrongly.
const LASTS: Duration = Duration::from_secs(4);
/// How long a value that differs at all replicas may delay its client.
const SETTLED: Duration = Duration::from_secs(4);
/// Length of the value that differs at all replicas: the flipped bits are in its text.
const LENGTH: usize = 40;
/// The faulty replica.
const VICTIM: u8 = 2;

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let lab = run.cluster(Setup::default())?;
    lab.store(1, "kept", 100, 100)?;
    for kind in [Corruption::Sticky, Corruption::Erratic] {
        computes_wrongly(run, &lab, kind)?;
    }
    answers_wrongly(run, &lab)?;
    drop(lab);
    for workers in [1, 2] {
        all_differ(run, workers)?;
    }
    Ok(())
}

fn place(
    link: &mut Link,
    kind: Corruption,
    object: Option<&str>,
    bit: Option<u64>,
    seed: u64,
) -> anyhow::Result<Injected> {
    let member = bit.map(|_| 1);
    let inject = Inject { kind, object: object.map(str::to_owned), bit, member, seed };
    link.ask(&AdminCommand::Inject(inject), PATIENCE).map_err(|why| anyhow::anyhow!("injecting: {why}"))
}

/// Checks that only the victim was blamed, and that the states are equal.
fn check_healed(case: &mut Case, lab: &Lab<'_>) -> anyhow::Result<()> {
    let back = lab.until_served(&REPLICAS, REPLACED)?;
    case.check(back.is_some(), "then all replicas serve", lab.seen());
    let mut differ = Ok(());
    let equal = lab.until(PATIENCE, |lab| {
        differ = digest::compare(&digest::collect(lab.replicas()));
        differ.is_ok()
    })?;
    let seen = equal.map_or_else(|| format!("{differ:?}"), |_| "equal digests".to_owned());
    case.check(equal.is_some(), "their states are equal, bit by bit", seen);
    let records: Vec<_> = REPLICAS.iter().flat_map(|number| lab.evidence(*number)).collect();
    let others =
        records.iter().filter(|record| record.replica.is_some_and(|blamed| blamed != VICTIM)).count();
    case.check(
        others == 0,
        "evidence blames no other replica",
        format!("{others} of {} records do", records.len()),
    );
    Ok(())
}

fn computes_wrongly(run: &HostileRun<'_>, lab: &Lab<'_>, kind: Corruption) -> anyhow::Result<()> {
    let word = if kind == Corruption::Sticky { "every n-th" } else { "now and then a" };
    let mut case = Case::new(format!(
        "{word} request of replica {VICTIM} changes a bit of what it has written, for {}",
        ms(LASTS)
    ));
    lab.forget();
    let (watch, began, mut armed) = (HostileWatch::start(lab)?, Instant::now(), 0);
    let mut link = Link::new(lab.replica(VICTIM).admin.clone());
    while began.elapsed() < LASTS {
        // Between two processes of the victim no fault can be placed.
        armed +=
            usize::from(place(&mut link, kind, None, None, 7 * began.elapsed().as_millis() as u64).is_ok());
        run.sleep(Duration::from_millis(100))?;
    }
    let watched = watch.finish();
    case.add_note(format!("armed {armed} times; {} deaths", lab.deaths().len()));
    watched.check_waits(&mut case, &[1, 3]);
    check_healed(&mut case, lab)?;
    lab.check_stored(&mut case, &REPLICAS, "kept", 100, 100);
    run.record_case(case);
    Ok(())
}

fn answers_wrongly(run: &HostileRun<'_>, lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut case = Case::new(format!("replica {VICTIM} renders every reply wrongly, from now on"));
    lab.forget();
    let before = lab.pid(VICTIM);
    let watch = HostileWatch::start(lab)?;
    let mut link = Link::new(lab.replica(VICTIM).admin.clone());
    let armed = (0..REPLIES)
        .take_while(|seed| place(&mut link, Corruption::Reply, None, None, *seed).is_ok())
        .count();
    let gone = lab.until(REPLACED, |lab| lab.pid(VICTIM) != before)?;
    let watched = watch.finish();
    case.add_note(format!("{armed} wrong replies were armed"));
    let seen =
        gone.map_or_else(|| format!("not within {}", ms(REPLACED)), |after| format!("after {}", ms(after)));
    case.check(gone.is_some(), format!("it replaces itself within {}", ms(REPLACED)), seen);
    let said = lab.said(VICTIM, "has to be replaced");
    case.check(!said.is_empty(), "and reports why", said.join("; "));
    watched.check_waits(&mut case, &[1, 3]);
    check_healed(&mut case, lab)?;
    lab.check_stored(&mut case, &REPLICAS, "kept", 100, 100);
    run.record_case(case);
    Ok(())
}

fn all_differ(run: &HostileRun<'_>, workers: usize) -> anyhow::Result<()> {
    let of = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
    let mut case = Case::new(format!(
        "{of}: one `set` comes to another value at each replica, as by a handler that is not deterministic"
    ));
    let lab = run.cluster(Setup { workers, ..Setup::default() })?;
    let mut client = lab.client(1)?;
    client.set("differs", 0, &[b'b'; LENGTH])?;
    let watch = HostileWatch::start(&lab)?;
    for number in REPLICAS {
        let mut link = Link::new(lab.replica(number).admin.clone());
        let injected =
            place(&mut link, Corruption::InRequest, Some("item:differs"), Some(200 + u64::from(number)), 0)?;
        case.check(injected.done, format!("armed at replica {number}"), injected.what);
    }
    let began = Instant::now();
    let answer = client.set("differs", 0, &[b'a'; LENGTH]);
    let took = began.elapsed();
    let seen = match &answer {
        Ok(()) => "STORED".to_owned(),
        Err(why) => format!("{why} after {}", ms(took)),
    };
    case.check(
        answer.is_err() && took < SETTLED,
        format!("its client is disconnected within {}, without a reply", ms(SETTLED)),
        seen,
    );
    let values = REPLICAS.map(|number| -> anyhow::Result<_> {
        Ok(lab.client(number)?.get("differs")?.map(|found| found.bytes))
    });
    let shown: Vec<String> = values
        .iter()
        .map(|value| match value {
            Ok(value) => {
                format!("{:?}", value.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
            }
            Err(why) => why.to_string(),
        })
        .collect();
    let equal =
        values.iter().all(|value| matches!(value, Ok(Some(_)))) && shown.iter().all(|one| *one == shown[0]);
    case.check(equal, "then all replicas give the same value", shown.join(", "));
    let stored = lab.client(2)?.set("differs", 0, &[b'n'; LENGTH]);
    case.check(stored.is_ok(), "it can be stored again", format!("{stored:?}"));
    check_evidence(&mut case, &lab);
    watch.finish().check_waits(&mut case, &REPLICAS);
    lab.check_alive(&mut case);
    run.record_case(case);
    Ok(())
}

/// Checks that every replica has a record of the error, with the replica whose version the group settled on.
fn check_evidence(case: &mut Case, lab: &Lab<'_>) {
    let is_it =
        |record: &EvidenceRecord| record.class == "nondeterminism" && record.outcome.contains("settled on");
    let records: Vec<EvidenceRecord> =
        REPLICAS.iter().filter_map(|number| lab.evidence(*number).into_iter().find(is_it)).collect();
    case.check(
        records.len() == 3,
        "evidence of every replica describes it",
        format!("{} of 3 do", records.len()),
    );
    case.notes.extend(records.first().map(|record| {
        format!(
            "replica 1 has: {} [{}, {}] {}",
            record.objects.join("; "),
            record.class,
            record.stage,
            record.outcome
        )
    }));
}
