//! A wrong definition is refused with file, line and remedy; every definition that ships is right.

use super::*;
use crosscheck::admin::Corruption;

const GOOD: &str = r#"
title = "t"
about = "a"
modes = ["RD00", "RDGX"]
peers = ["memcached"]
clients = [1, 100]
seconds = 1.0
repetitions = 5
ratios = [["RDGX", "RD00"]]

[[workload]]
name = "SET"
key_bytes = 100
value_bytes = 400
mix = { set = 1 }
keys = 1000

[[figure]]
workload = "SET"
clients = 100
of = "RDGX"
to = "RD00"
paper = [0.81, 0.86]
target = 0.97
says = "somewhere"
"#;

fn reported(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse("x", "x.toml", &GOOD.replace(from, to)).expect_err("refused")
}

#[test]
fn defaults_are_filled_in() {
    let good = parse("x", "x.toml", GOOD).expect("right");
    assert_eq!(good.sides, [Side::Ours("RD00".into()), Side::Ours("RDGX".into()), Side::Memcached]);
    assert_eq!((good.pipeline, good.replicas, good.rate, good.verify), (1, 3, None, false));
    assert_eq!(good.workloads[0].prefill_percent, 100.0);
    assert_eq!(good.figures[0].measure, Measure::ThroughputRatio);
    assert_eq!(good.hash, parse("y", "y.toml", GOOD).expect("right").hash);
}

#[test]
fn mistakes_name_file_line_and_remedy() {
    let cases = [
        (
            "\"RDGX\"]\npeers",
            "\"RDGXX\"]\npeers",
            "x.toml:4: modes: unknown mode `RDGXX`",
            "did you mean `RDGX`?",
        ),
        ("seconds = 1.0", "seconds = 0.0", "x.toml:7: seconds: 0 is out of range", "from 0.1 to 3600"),
        ("keys = 1000", "kezs = 1000", "x.toml:", "did you mean `keys`?"),
        ("repetitions = 5\n", "", "missing field `repetitions`", "add `repetitions = ...`"),
        ("key_bytes = 100", "key_bytes = 2", "x.toml:13: key_bytes: 2 is out of range", "from 4 to 250"),
        ("{ set = 1 }", "{ sett = 1 }", "x.toml:15: mix: there is no operation `sett`", "use get,"),
        ("{ set = 1 }", "{ set = 0 }", "x.toml:15: mix: all shares are 0", "{ get = 75"),
        ("value_bytes = 400", "value_bytes = { from = 9, to = 1 }", "x.toml:14: value_bytes", "pairs"),
        ("[[\"RDGX\", \"RD00\"]]", "[[\"RDGX\", \"R000\"]]", "x.toml:9: ratios: `R000` is not", "add it to"),
        ("clients = 100", "clients = 7", "x.toml:20: clients: 7 is not measured", "file's `clients`"),
        ("[\"memcached\"]", "[\"RDG0\"]", "x.toml:5: peers: `RDG0` does not belong", "under `modes`"),
        ("clients = [1, 100]", "clients = []", "x.toml:6: clients", "for example [1, 10, 100]"),
    ];
    for (from, to, what, remedy) in cases {
        let reported = reported(from, to);
        assert!(reported.contains(what) && reported.contains(remedy), "{to}\n{reported}");
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    let text = GOOD.replace("seconds = 1.0", "seconds = 0.0").replace("keys = 1000", "keys = 0");
    assert_eq!(parse("x", "x.toml", &text).expect_err("refused").lines().count(), 2);
}

#[test]
fn amounts_have_three_forms() {
    for (text, expected) in [
        ("{ from = 3, to = 9 }", Amount::Between { from: 3, to: 9 }),
        ("[[10, 0.5], [20, 0.5]]", Amount::Weighted(vec![(10, 0.5), (20, 0.5)])),
    ] {
        let good = GOOD.replace("value_bytes = 400", &format!("value_bytes = {text}"));
        assert_eq!(parse("x", "x.toml", &good).expect("right").workloads[0].value_bytes, expected);
    }
}

#[test]
fn every_definition_that_ships_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER);
    let names = names(&folder).expect("the folder is there");
    assert!(names.contains(&"quick".to_owned()));
    for name in names {
        read(&folder, &name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_misspelt_name_is_guessed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER);
    let reported = read(&folder, "qiuck").expect_err("there is none").to_string();
    assert!(reported.contains("did you mean `quick`?"), "{reported}");
}

/// The workload of [`GOOD`] with these fields, measured with RDGX only.
fn with_fields(fields: &str) -> Result<Definition, String> {
    let text = GOOD
        .replace("modes = [\"RD00\", \"RDGX\"]\npeers = [\"memcached\"]", "modes = [\"RDGX\"]")
        .replace("ratios = [[\"RDGX\", \"RD00\"]]\n", "")
        .replace("keys = 1000\n", &format!("keys = 1000\n{fields}\n"));
    parse("x", "x.toml", &text[..text.find("[[figure]]").expect("a figure")])
}

#[test]
fn several_values_of_a_setting_make_several_workloads() {
    let found = with_fields("faults_per_second = [0, 4]\nfault = \"in-request\"").expect("right");
    let names: Vec<&str> = found.workloads.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["SET: 0 faults/s", "SET: 4 faults/s"]);
    let last = &found.workloads[1];
    assert_eq!(
        last.faults,
        Some(SweepFaults { per_second: 4.0, fault: Corruption::InRequest, victim: SweepVictim::Follower })
    );
    assert_eq!(last.sweep.as_ref().map(|sweep| (sweep.family.as_str(), sweep.x)), Some(("SET", 4.0)));
    let one = with_fields("work_us = 30").expect("right");
    assert_eq!((one.workloads[0].name.as_str(), one.workloads[0].work_us), ("SET", 30));
    assert_eq!(one.workloads[0].sweep, None);
}

#[test]
fn sets_of_classes_are_measured_each() {
    let classes = "guarded_classes = [\"none\", \"Item,Bucket\", \"all\"]";
    let found = with_fields(&format!("{classes}\nbefore_images = false\nextra_protection = false"));
    let found = found.expect("right").workloads;
    let reported: Vec<(&str, Option<&str>)> =
        found.iter().map(|one| (one.name.as_str(), one.guarded_classes.as_deref())).collect();
    let expected =
        [("SET: none", Some("none")), ("SET: Item,Bucket", Some("Item,Bucket")), ("SET: all", None)];
    assert_eq!(reported, expected);
    assert_eq!((found[0].before_images, found[0].extra_protection), (Some(false), Some(false)));
}

#[test]
fn mistakes_about_faults_and_work_are_reported() {
    for (fields, what) in [
        (
            "faults_per_second = [4, 0]",
            "faults_per_second: a number is missing, out of range or out of order",
        ),
        ("faults_per_second = []", "x.toml:15: faults_per_second"),
        ("work_us = [0, 1e9]", "write a number from 0 to 100000"),
        ("work_us = [0, 10]\nfaults_per_second = [0, 4]", "only one setting can have several values"),
        ("victim = \"leader\"", "no fault is placed"),
        (
            "faults_per_second = 4\nfault = \"lost\"",
            "x.toml:16: fault: `lost` does not hit an item's value alone",
        ),
        ("guarded_classes = [\"Items\"]", "there is no class `Items`"),
        ("guarded_classes = [\"none\", \"all\"]\nwork_us = [0, 10]", "only one setting can have several"),
    ] {
        let reported = with_fields(fields).expect_err(fields);
        assert!(reported.contains(what), "{fields}\n{reported}");
    }
    let reported = reported("keys = 1000", "keys = 1000\nfaults_per_second = 4");
    assert!(
        reported.contains("`RD00` does not repair") && reported.contains("only RDGX repairs"),
        "{reported}"
    );
    let reported = super::tests::reported("keys = 1000", "keys = 1000\nbefore_images = false");
    assert!(reported.contains("`memcached` has no such setting"), "{reported}");
}

#[test]
fn a_failure_lies_within_the_measured_time_and_hits_replicas() {
    let failure = "failure = { kind = \"kill\", replica = \"primary\", at = 0.2, back = 0.5 }";
    let found = with_fields(failure).expect("right").workloads[0].failure;
    let expected =
        ReplicaFailure { kind: FailureKind::Kill, replica: FailingReplica::Primary, at: 0.2, back: 0.5 };
    assert_eq!(found, Some(expected));
    for (from, to) in [("back = 0.5", "back = 0.1"), ("back = 0.5", "back = 1.0"), ("at = 0.2", "at = 0.0")] {
        let reported = with_fields(&failure.replace(from, to)).expect_err(to);
        assert!(reported.contains("`seconds` above `back`"), "{to}\n{reported}");
    }
    let none = with_fields(&failure.replace("primary", "witness")).expect_err("there is no such role");
    assert!(none.contains("unknown variant"), "{none}");
    let reported = reported("keys = 1000", &format!("keys = 1000\n{failure}"));
    assert!(reported.contains("`memcached` has no other replica"), "{reported}");
    let of_none = self::reported("to = \"RD00\"", "measure = \"failure_gap_ms\"");
    assert!(of_none.contains("no replica fails under `SET`"), "{of_none}");
}

#[test]
fn a_figure_names_as_many_sides_as_its_measure_compares() {
    let one = reported("to = \"RD00\"", "");
    assert!(one.contains("two sides are compared, and only one is named"), "{one}");
    let two = reported("says =", "measure = \"check_bytes\"\nsays =");
    assert!(two.contains("this measure is about one side") && two.contains("remove `to`"), "{two}");
    let nothing = reported("to = \"RD00\"", "measure = \"repair_p50_us\"");
    assert!(nothing.contains("nothing is repaired under `SET`"), "{nothing}");
}
