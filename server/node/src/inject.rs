//! `inject`: corrupts one replica of a running cluster on purpose, to verify that the fault is detected and repaired.

use std::time::Duration;

use anyhow::anyhow;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use crosscheck::admin::client::NoAnswer;
use crosscheck::admin::{AdminCommand, Corruption, Inject, Injected};
use serde_json::json;
use wire::mix;

use crate::cluster::{ClusterTarget, ReplicaHandle};
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use crate::program::text;
use crate::signals::Ending;

/// A fault takes a turn in the schedule like a request, after the requests that run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a fault of a series is tried at a replica that takes none now: it may be starting, or replacing itself.
const SERIES_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two such tries.
const AGAIN: Duration = Duration::from_millis(200);

/// The beginning of `inject --help`.
pub const ABOUT: &str = "Places one fault, or a series of random ones, in the memory or the messages of a \
    running replica. This command and the server must carry the fault injector: a build with `--features \
    inject` does, a plain one does not. With 2f+1 replicas, faults in up to f of them at a time are \
    survived; corrupt more only to see it fail.";

/// Options of `inject`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Naming an object:
{objects}
  class:NAME  any object of a class of the service, as evidence and `digest` name it; --seed chooses which one

Examples:
  {program} inject flip --replica 2 --object {object}            one bit, chosen by --seed
  {program} inject flip -r 2 -o {object} --member 1 --bit 200    this very bit of its member 1
  {program} inject lost --replica 3 --object {object}            it is lost at replica 3
  {program} inject reply --replica 1                                  a wrong byte in its next reply
  {program} inject message --replica 1                                its next frame to a peer is damaged
  {program} inject --random                                           anything, anywhere
  {program} inject --random --count 1000 --every 50 --seed 7          the same thousand faults every time
Then:
  {program} evidence                                                  which replica detected it, and how it ended
  {program} digest                                                    all equal again?

Exit code: 0 when every fault was placed, 1 when one could not be, 2 for a server without the injector."))]
pub struct Args {
    /// The kind of fault
    #[arg(value_parser = offered(), required_unless_present = "random", conflicts_with = "random")]
    pub kind: Option<Corruption>,
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// The replica, from 1
    #[arg(long, short, value_name = "R", required_unless_present = "random")]
    pub replica: Option<u8>,
    /// The object, by its name [default: a random one]
    #[arg(long, short, value_name = "NAME", conflicts_with = "random")]
    pub object: Option<String>,
    /// The tracked member of the object, from 0 in the order of declaration
    #[arg(long, short, value_name = "N", conflicts_with = "random")]
    pub member: Option<u8>,
    /// The bit of the member, from 0 [default: chosen by --seed]
    #[arg(long, short, value_name = "N", conflicts_with = "random")]
    pub bit: Option<u64>,
    /// Decides all choices that are left open, so that a fault can be repeated [default: another one every time]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Faults of random kinds, at random replicas (or at --replica)
    #[arg(long)]
    pub random: bool,
    /// How many random faults
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random")]
    pub count: u64,
    /// Milliseconds between two random faults
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "random")]
    pub every: u64,
    /// Print JSON, one value per fault
    #[arg(long)]
    pub json: bool,
}

/// The corruptions that the command line offers, with their names in the admin protocol and their help, in the order of
/// the help.
const OFFERED: [(Corruption, &str, &str); 15] = [
    (
        Corruption::Flip,
        "flip",
        "One bit of an object that no request uses: detected by the next request that enters it, before \
         it reads it",
    ),
    (Corruption::MultiFlip, "multi-flip", "Several bits of an object that no request uses"),
    (
        Corruption::InRequest,
        "in-request",
        "One bit of an object in use, after the entry check and before the seal: only the other replicas \
         can detect it",
    ),
    (
        Corruption::Checksum,
        "checksum",
        "An object's stored checksum: the object is right, and looks corrupted",
    ),
    (Corruption::Id, "id", "An object's own id"),
    (Corruption::Length, "length", "A length: a sequence within an object loses or gains an element"),
    (Corruption::Lost, "lost", "An object is removed from its store"),
    (Corruption::Doubled, "doubled", "An object is in its store twice"),
    (Corruption::Digest, "digest", "The digest of the next request"),
    (
        Corruption::Check,
        "check",
        "The digest in the next CHECK message to the peers; in verified mode, a bit of the next VERIFY",
    ),
    (Corruption::Reply, "reply", "The reply of the next request, after it was rendered"),
    (Corruption::Message, "message", "The next frame to a peer, on its way out"),
    (Corruption::Repair, "repair", "The next REPAIR packet that this replica sends to a corrupted one"),
    (Corruption::Request, "request", "The next ordered request, between delivery and execution"),
    (
        Corruption::Asked,
        "asked",
        "The checksum of the next client request, before it is ordered: no replica can run it",
    ),
];

/// How many of them a random series draws from: all but the last. A request that is wrong at all replicas is no fault
/// of one of them, and its client notices it.
const DRAWN: u64 = OFFERED.len() as u64 - 1;

/// Reads the name of a corruption, and lists all of them in the help.
fn offered() -> impl TypedValueParser<Value = Corruption> {
    let values = OFFERED.map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Corruption>())
}

/// Places the faults.
pub fn run(args: &Args) -> CommandOutcome {
    if !cfg!(feature = "inject") {
        return Err(misuse(format!("this build carries no fault injector; {}", crosscheck::WITH_INJECTOR)));
    }
    let replicas = args.target.replicas()?;
    let victims = victims(&replicas, args.replica)?;
    let seed = args.seed.unwrap_or_else(another_seed);
    let ending = Ending::catch()?;
    let mut series = Series::default();
    for number in 0..if args.random { args.count } else { 1 } {
        if number > 0 && ending.sleep(Duration::from_millis(args.every)) {
            break;
        }
        let (victim, fault) = match args.kind {
            Some(kind) => {
                let object = args.object.clone();
                (victims[0].clone(), Inject { kind, object, bit: args.bit, member: args.member, seed })
            }
            None => random(&victims, seed.wrapping_add(number)),
        };
        let injected = if args.random {
            place_patiently(|| ask_for(&victim, &fault), |pause| ending.sleep(pause))?
        } else {
            Ok(place(&victim, &fault)?)
        };
        series.count(&injected);
        match injected {
            Ok(injected) => tell(args.json, &victim, &fault, &injected)?,
            Err(why) => tell_refused(args.json, &victim, &fault, &why)?,
        }
    }
    if args.random && args.count > 1 && !args.json {
        say(&series.to_string())?;
    }
    Ok(CommandVerdict::of(series.is_complete()))
}

/// What became of a series of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Series {
    placed: u64,
    not_placed: u64,
    refused: u64,
}

impl Series {
    fn count(&mut self, injected: &Result<Injected, String>) {
        match injected {
            Ok(Injected { done: true, .. }) => self.placed += 1,
            Ok(_) => self.not_placed += 1,
            Err(_) => self.refused += 1,
        }
    }

    fn is_complete(self) -> bool {
        self.not_placed + self.refused == 0
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Series { placed, not_placed, refused } = self;
        write!(f, "{placed} faults placed, {not_placed} not placed, {refused} refused")
    }
}

/// Places one fault of a series. A replica that takes none now is asked again for a while; then the series goes on
/// without this fault, and this returns the reason.
///
/// # Errors
/// The replica has no injector: no fault of the series can be placed.
fn place_patiently(
    mut place: impl FnMut() -> Result<Injected, NoAnswer>,
    sleep: impl Fn(Duration) -> bool,
) -> anyhow::Result<Result<Injected, String>> {
    let mut tries = SERIES_PATIENCE.as_millis() / AGAIN.as_millis();
    loop {
        match place() {
            Ok(injected) => return Ok(Ok(injected)),
            Err(NoAnswer::Refused(why)) if why.contains("inject") => return Err(misuse(why)),
            Err(why) if tries == 0 || sleep(AGAIN) => return Ok(Err(why.to_string())),
            Err(_) => tries -= 1,
        }
    }
}

fn ask_for(victim: &ReplicaHandle, fault: &Inject) -> Result<Injected, NoAnswer> {
    victim.ask(&AdminCommand::Inject(fault.clone()), PATIENCE)
}

/// Places one fault.
///
/// # Errors
/// The replica does not answer or has no injector.
pub fn place(victim: &ReplicaHandle, fault: &Inject) -> anyhow::Result<Injected> {
    ask_for(victim, fault).map_err(|why| match why {
        NoAnswer::Refused(why) if why.contains("inject") => {
            misuse(format!("replica {} refuses: {why}", victim.number))
        }
        why => anyhow!("replica {}: {why}", victim.number),
    })
}

fn victims(replicas: &[ReplicaHandle], chosen: Option<u8>) -> anyhow::Result<Vec<ReplicaHandle>> {
    let Some(number) = chosen else { return Ok(replicas.to_vec()) };
    let victims: Vec<ReplicaHandle> =
        replicas.iter().filter(|replica| replica.number == number).cloned().collect();
    if victims.is_empty() {
        let numbers: Vec<String> = replicas.iter().map(|replica| replica.number.to_string()).collect();
        return Err(misuse(format!("there is no replica {number}; there are {}", numbers.join(", "))));
    }
    Ok(victims)
}

/// The seed alone decides replica and kind, so that a series is repeated by its seed; the server chooses object and
/// bit, by the same seed.
fn random(victims: &[ReplicaHandle], seed: u64) -> (ReplicaHandle, Inject) {
    let first = mix(seed);
    let victim = victims[(first % victims.len() as u64) as usize].clone();
    let (kind, ..) = OFFERED[(mix(first) % DRAWN) as usize];
    (victim, Inject { kind, object: None, bit: None, member: None, seed })
}

fn another_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    mix(now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32))
}

fn tell_refused(json: bool, victim: &ReplicaHandle, fault: &Inject, why: &str) -> anyhow::Result<()> {
    if json {
        return say_json(&json!({"replica": victim.number, "fault": fault, "refused": why}));
    }
    Ok(say(&format!("replica {}  REFUSED: {why}  (seed {})", victim.number, fault.seed))?)
}

fn tell(json: bool, victim: &ReplicaHandle, fault: &Inject, injected: &Injected) -> anyhow::Result<()> {
    if json {
        return say_json(&json!({"replica": victim.number, "fault": fault, "injected": injected}));
    }
    let done = if injected.done { "" } else { "NOT PLACED: " };
    let id = injected.id.as_ref().map(|id| format!("  id {id}")).unwrap_or_default();
    let Inject { kind, seed, .. } = fault;
    Ok(say(&format!("replica {}  {kind}  {done}{}{id}  (seed {seed})", victim.number, injected.what))?)
}

#[cfg(test)]
mod tests {
    use crosscheck::admin::Endpoint;

    use super::*;

    #[test]
    fn every_kind_is_offered_under_the_protocols_word_and_explained() {
        let values: Vec<_> = offered().possible_values().expect("a list").collect();
        assert_eq!(values.len(), OFFERED.len());
        for (value, (kind, ..)) in values.iter().zip(OFFERED) {
            assert_eq!(value.get_name(), kind.to_string());
            assert!(value.get_help().is_some());
        }
    }

    #[test]
    fn a_series_is_repeated_by_its_seed_and_reaches_every_replica_and_kind() {
        let replica =
            |number| ReplicaHandle { number, admin: Endpoint::Unix("admin.sock".into()), clients: None };
        let victims = [replica(1), replica(2), replica(3)];
        let series = |seed: u64| (0..300).map(|number| random(&victims, seed + number)).collect::<Vec<_>>();
        assert_eq!(series(7), series(7));
        for victim in &victims {
            for (kind, ..) in OFFERED {
                let hit = |(other, inject): &(ReplicaHandle, Inject)| other == victim && inject.kind == kind;
                let is_drawn = series(7).iter().any(hit);
                assert_eq!(is_drawn, kind != Corruption::Asked, "{kind} at replica {}", victim.number);
            }
        }
    }

    /// A replica that replaces itself refuses faults for a moment: the series waits, and goes on.
    #[test]
    fn a_series_goes_on_when_a_replica_takes_no_fault_for_a_while() {
        let placed = || Injected { done: true, what: "a bit".into(), home: None, id: None };
        let busy = || Err(NoAnswer::Refused("this replica has no state yet; try again".into()));
        let slept = std::cell::Cell::new(0);
        let sleep = |_| {
            slept.set(slept.get() + 1);
            false
        };
        let mut answers = vec![Ok(placed()), busy(), busy()];
        let told = place_patiently(|| answers.pop().expect("an answer"), sleep).expect("it goes on");
        assert!(told.is_ok() && slept.get() == 2, "{told:?}");
        let told = place_patiently(busy, sleep).expect("it goes on");
        assert!(told.as_ref().is_err_and(|why| why.contains("try again")), "{told:?}");
        assert!(slept.get() < 40, "the wait is bounded: {}", slept.get());
        let told = place_patiently(busy, |_| true).expect("it ends when asked");
        let mut series = Series::default();
        [Ok(placed()), told, Ok(Injected { done: false, ..placed() })]
            .iter()
            .for_each(|one| series.count(one));
        assert_eq!(series.to_string(), "1 faults placed, 1 not placed, 1 refused");
        assert!(!series.is_complete());
        let none = || Err(NoAnswer::Refused("this build cannot inject".into()));
        assert!(place_patiently(none, |_| false).is_err(), "no fault can be placed");
    }

    #[test]
    fn a_replica_that_is_not_there_is_misuse() {
        let replica = ReplicaHandle { number: 1, admin: Endpoint::Unix("admin.sock".into()), clients: None };
        let told = victims(&[replica], Some(4)).unwrap_err().to_string();
        assert_eq!(told, "there is no replica 4; there are 1");
    }
}
