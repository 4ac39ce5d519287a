//! A definition that is wrong is refused with file, line and remedy; every definition that ships is right.

use super::*;

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

fn told(from: &str, to: &str) -> String {
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
        ("{ set = 1 }", "{ set = 0 }", "x.toml:15: mix: nothing is asked for", "{ get = 75"),
        ("value_bytes = 400", "value_bytes = { from = 9, to = 1 }", "x.toml:14: value_bytes", "pairs"),
        ("[[\"RDGX\", \"RD00\"]]", "[[\"RDGX\", \"R000\"]]", "x.toml:9: ratios: `R000` is not", "add it to"),
        ("clients = 100", "clients = 7", "x.toml:20: clients: 7 is not measured", "file's `clients`"),
        ("[\"memcached\"]", "[\"RDG0\"]", "x.toml:5: peers: `RDG0` does not belong", "under `modes`"),
        ("clients = [1, 100]", "clients = []", "x.toml:6: clients", "for example [1, 10, 100]"),
    ];
    for (from, to, what, remedy) in cases {
        let told = told(from, to);
        assert!(told.contains(what) && told.contains(remedy), "{to}\n{told}");
    }
}

#[test]
fn several_mistakes_are_told_together() {
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    let names = names(&folder).expect("the folder is there");
    assert!(names.contains(&"quick".to_owned()));
    for name in names {
        read(&folder, &name).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_misspelt_name_is_guessed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    let told = read(&folder, "qiuck").expect_err("there is none").to_string();
    assert!(told.contains("did you mean `quick`?"), "{told}");
}
