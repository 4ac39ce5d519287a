//! Who is let in: passwords by SCRAM-SHA-256, and TLS that a client asks for.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crosscheck::{Action, Passwords, Progress, Protocol};
use sql::PgConnection;
use sql::scram::{MECHANISM, Proof, Users, first_message};

use crate::client::message;
use crate::replicated::{Group, wait_until};
use crate::skipped;

fn users(lines: &str) -> Arc<Users> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("passwords");
    std::fs::write(&path, lines).expect("a file");
    Arc::new(Users::new(Passwords::open(&path).expect("lines")))
}

fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0ann\0database\0bank\0\0";
    [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Two instances, which take the same steps: clients' bytes are decoded twice.
fn step(both: &mut [PgConnection; 2], input: &[u8]) -> Action {
    let [one, other] = both.each_mut().map(|connection| match connection.next(input) {
        Progress::Done { used, action } if used == input.len() => action,
        other => panic!("{}: {other:?}", input.escape_ascii()),
    });
    assert_eq!(one, other);
    assert!(both[0] == both[1]);
    one
}

fn reply(action: Action) -> Vec<u8> {
    match action {
        Action::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// Logs in with this password; the last action.
fn log_in(both: &mut [PgConnection; 2], password: &str) -> Action {
    assert_eq!(reply(step(both, &startup()))[..9], *b"R\0\0\0\x17\0\0\0\x0a");
    let first = first_message("abc");
    let body = [MECHANISM.as_bytes(), b"\0", &(first.len() as u32).to_be_bytes(), first.as_bytes()].concat();
    let challenge = reply(step(both, &message(b'p', &body)));
    let text = std::str::from_utf8(&challenge[9..]).expect("text");
    let proof = Proof::new("abc", text, password.as_bytes()).expect("a challenge");
    step(both, &message(b'p', proof.text.as_bytes()))
}

#[test]
fn only_the_right_password_opens_and_nothing_is_ordered_before() {
    let users = users("ann:pencil\n");
    let fresh = || [(); 2].map(|()| PgConnection::new(7).guarded_by(users.clone(), [3; 18]));
    let mut both = fresh();
    let welcome = reply(log_in(&mut both, "pencil"));
    assert!(welcome.starts_with(b"R") && welcome.ends_with(b"Z\0\0\0\x05I"), "{}", welcome.escape_ascii());
    assert!(matches!(step(&mut both, &message(b'Q', b"SELECT 1\0")), Action::Order(_)));
    for password in ["Pencil", "", "pencil "] {
        let Action::Close(error) = log_in(&mut fresh(), password) else { panic!("{password} opens") };
        assert!(error.windows(5).any(|part| part == b"28P01"), "{}", error.escape_ascii());
    }
    // In the place of a proof: a query, another mechanism, nonsense.
    for input in [message(b'Q', b"SELECT 1\0"), message(b'p', b"PLAIN\0\0\0\0\0"), message(b'p', b"")] {
        let mut both = fresh();
        reply(step(&mut both, &startup()));
        assert!(matches!(step(&mut both, &input), Action::Close(_)), "{}", input.escape_ascii());
    }
}

#[test]
fn with_a_certificate_clients_must_ask_for_tls() {
    let fresh = || [(); 2].map(|()| PgConnection::new(7).only_with_tls());
    let Action::Close(error) = step(&mut fresh(), &startup()) else { panic!("it is let in without TLS") };
    assert!(error.windows(15).any(|part| part == b"sslmode=require"));
    let mut both = fresh();
    assert_eq!(step(&mut both, &SSL_REQUEST), Action::StartTls(b"S".to_vec()));
    reply(step(&mut both, &startup()));
    let mut both = [(); 2].map(|()| PgConnection::new(7));
    assert_eq!(reply(step(&mut both, &SSL_REQUEST)), b"N");
}

#[test]
fn an_open_transaction_ends_with_its_connection() {
    let mut connection = PgConnection::started(7, sql::Dialect::Postgres);
    assert_eq!(connection.closed(), None);
    connection.next(&message(b'Q', b"BEGIN\0"));
    let ordered = connection.closed().expect("a request");
    assert_eq!(ordered, crosscheck::object::to_bytes(&sql::SqlRequest::Closed { session: 7 }));
    connection.next(&message(b'Q', b"ROLLBACK\0"));
    assert_eq!(connection.closed(), None);
}

#[test]
fn a_client_that_is_one_too_many_understands_why() {
    let text = PgConnection::TOO_MANY_CLIENTS;
    let length = u32::from_be_bytes(*text[1..].first_chunk().expect("a length")) as usize;
    assert_eq!((text[0], length + 1), (b'E', text.len()));
}

/// psql at a replica with these environment variables.
fn psql(group: &Group, variables: &[(&str, &str)], query: &str) -> String {
    let mut command = Command::new("psql");
    let address = group.clients(1);
    command.args(["--no-psqlrc", "-At", "-w", "-h", "localhost", "-p", &address.port().to_string()]);
    let output = command
        .args(["-d", "postgres", "-c", query])
        .env_remove("PGPASSWORD")
        .envs(variables.iter().copied())
        .output()
        .expect("psql starts");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
}

fn certificate(folder: &Path) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, mode).expect("its permissions");
    (cert.display().to_string(), key.display().to_string())
}

#[test]
fn psql_and_dump_log_in_over_tls_and_others_are_told_why_not() {
    if Command::new("psql").arg("--version").output().is_err() {
        return skipped::skipped("psql is not installed; install it with: apt-get install postgresql-client");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = certificate(folder.path());
    let passwords = folder.path().join("passwords");
    std::fs::write(&passwords, "ann:pencil\n").expect("a file");
    let passwords = passwords.display().to_string();
    let group = Group::up_with(&["--tls-cert", &cert, "--tls-key", &key, "--password-file", &passwords]);
    let right = [
        ("PGUSER", "ann"),
        ("PGPASSWORD", "pencil"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", cert.as_str()),
    ];
    let made = psql(&group, &right, "CREATE TABLE t (a INT); INSERT INTO t VALUES (41)");
    assert!(made.contains("INSERT 0 1"), "{made}");
    for (changed, expected) in [
        (("PGPASSWORD", "Pencil"), "password authentication failed for user \"ann\""),
        (("PGUSER", "bob"), "password authentication failed for user \"bob\""),
        (("PGSSLMODE", "disable"), "this port only serves clients with TLS"),
    ] {
        let variables = right.map(|(name, value)| if name == changed.0 { changed } else { (name, value) });
        let refused = psql(&group, &variables, "SELECT a FROM t");
        assert!(refused.contains(expected), "{refused}");
    }
    let file = folder.path().join("copy.sqlite");
    let dump = |password: &str| {
        group.command_with(
            &[("PGPASSWORD", password)],
            &["dump", "--user", "ann", "--tls-ca", &cert, &file.display().to_string()],
        )
    };
    assert!(dump("Pencil").contains("28P01"));
    let printed = dump("pencil");
    assert!(printed.contains("pages of 4096 bytes written"), "{printed}");
    // What the service lacks is counted.
    psql(&group, &right, "LISTEN news");
    wait_until("it is counted", || group.command(&["status"]).contains("LISTEN"));
}
