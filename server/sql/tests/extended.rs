//! The extended protocol against a replica: what runs of messages do, above all those that fail in the middle.

use crosscheck::testing::Replica;
use sql::{Dialect, PgConnection, Sql};

use crate::client::{message, read, replica};

/// A client's connection in PostgreSQL's dialect.
struct Client {
    one: Replica<Sql>,
    connection: PgConnection,
}

/// Parse, Bind and Execute of a statement without parameters, `limit` rows at most.
fn execute(text: &str, limit: u32) -> Vec<u8> {
    let parse = [b"\0", text.as_bytes(), b"\0\0\0"].concat();
    let execute = [&b"\0"[..], &limit.to_be_bytes()].concat();
    [message(b'P', &parse), message(b'B', &[0; 8]), message(b'E', &execute)].concat()
}

impl Client {
    fn new() -> Self {
        let connection = PgConnection::started(7, Dialect::Postgres);
        let mut client = Client { one: replica(), connection };
        client.query("CREATE TABLE t (id serial PRIMARY KEY, v int)");
        client
    }

    /// The reply to some bytes.
    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.one.talk(&mut self.connection, bytes)
    }

    /// What the messages of a reply are, a letter for each; ReadyForQuery brings the status.
    fn kinds(&mut self, bytes: &[u8]) -> String {
        let reply = self.send(bytes);
        let (mut rest, mut kinds) = (&reply[..], String::new());
        while let [kind, a, b, c, d, ..] = *rest {
            kinds.push(char::from(kind));
            let (one, behind) = rest.split_at(1 + u32::from_be_bytes([a, b, c, d]) as usize);
            if kind == b'Z' {
                kinds.push(char::from(one[5]));
            }
            rest = behind;
        }
        kinds
    }

    fn query(&mut self, text: &str) -> Vec<String> {
        let answer = read(&self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())));
        assert_eq!(answer.error, None, "{text}");
        answer.rows
    }

    /// SQLSTATE and status of a query that must fail.
    fn error(&mut self, text: &str) -> (String, char) {
        let reply = self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat()));
        let [code, ..] = read(&reply).error.unwrap_or_else(|| panic!("{text} must fail"));
        (code, *reply.last().expect("a status") as char)
    }

    fn count(&mut self) -> String {
        self.query("SELECT count(*) FROM t").remove(0)
    }
}

fn run(parts: &[Vec<u8>], end: u8) -> Vec<u8> {
    [parts.concat(), message(end, b"")].concat()
}

#[test]
fn what_fails_takes_back_all_up_to_the_sync_and_skips_the_rest() {
    let mut client = Client::new();
    let insert = execute("INSERT INTO t (v) VALUES (1)", 0);
    let wrong = execute("INSERT INTO t (v) VALUES ('x')", 0);
    assert_eq!(client.kinds(&run(&[insert.clone(), wrong.clone(), insert.clone()], b'S')), "12C12EZI");
    assert_eq!(client.count(), "0");
    assert_eq!(
        client.kinds(&run(&[insert.clone(), message(b'C', b"S\0"), wrong.clone()], b'S')),
        "12C312EZI"
    );
    assert_eq!(client.count(), "0", "a Close cuts nothing in two");
    // In front of a Flush, too: it is one transaction up to the Sync.
    assert_eq!(client.kinds(&run(std::slice::from_ref(&insert), b'H')), "12C");
    assert_eq!(client.kinds(&run(&[wrong, insert.clone()], b'S')), "12EZI");
    assert_eq!(client.count(), "0");
    assert_eq!(client.kinds(&run(&[insert], b'S')), "12CZI");
    assert_eq!(client.count(), "1");
}

#[test]
fn a_commit_that_is_skipped_leaves_the_transaction_failed() {
    let mut client = Client::new();
    let commit = execute("COMMIT", 0);
    client.query("BEGIN");
    assert_eq!(client.kinds(&run(&[execute("SELECT nope", 0), commit.clone()], b'S')), "EZE");
    assert_eq!(client.error("INSERT INTO t (v) VALUES (1)"), ("25P02".to_owned(), 'E'));
    client.query("ROLLBACK");
    assert_eq!(client.count(), "0");
    let all = [execute("BEGIN", 0), execute("INSERT INTO t (v) VALUES (1)", 0), commit];
    assert_eq!(client.kinds(&run(&all, b'S')), "12C12C12CZI");
    client.query("BEGIN");
    client.query("INSERT INTO t (v) VALUES (2)");
    client.one.pass_time(61_000_000);
    client.one.pass_time(1);
    assert_eq!(client.error("INSERT INTO t (v) VALUES (3)"), ("25P03".to_owned(), 'E'), "not on its own");
    client.query("ROLLBACK");
    assert_eq!(client.count(), "1");
}

#[test]
fn what_was_left_between_two_messages_says_so() {
    let mut client = Client::new();
    client.kinds(&run(&[execute("INSERT INTO t (v) VALUES (1)", 0)], b'H'));
    client.one.pass_time(61_000_000);
    client.one.pass_time(1);
    assert_eq!(client.kinds(&run(&[execute("INSERT INTO t (v) VALUES (2)", 0)], b'S')), "EZI");
    assert_eq!(client.count(), "0", "not half of it");
    assert_eq!(client.kinds(&message(b'Q', b"COPY t (v) FROM STDIN\0")), "G");
    client.one.pass_time(61_000_000);
    client.one.pass_time(1);
    let lines = [message(b'd', b"1\n"), message(b'c', b"")].concat();
    assert_eq!(client.kinds(&lines), "EZI");
    assert_eq!(client.kinds(&message(b'Q', b"COPY t (v) FROM STDIN\0")), "G");
    assert_eq!(client.kinds(&[message(b'd', b"1\nx\n"), message(b'c', b"")].concat()), "EZI");
    assert_eq!(client.kinds(&message(b'Q', b"COPY t (v) FROM STDIN\0")), "G");
    assert_eq!(client.kinds(&[message(b'd', b"1\n2"), message(b'c', b"")].concat()), "CZI");
    assert_eq!(client.count(), "2");
}

#[test]
fn rows_are_handed_out_in_parts_and_never_skipped() {
    let mut client = Client::new();
    client.query("INSERT INTO t (v) SELECT x FROM generate_series(1, 5) AS g(x)");
    client.query("BEGIN");
    let more = |limit: u32| message(b'E', &[&b"\0"[..], &limit.to_be_bytes()].concat());
    let first = client.kinds(&run(&[execute("SELECT v FROM t WHERE v > 0 ORDER BY id", 2)], b'S'));
    assert_eq!(first, "12DDsZT");
    assert_eq!(client.kinds(&run(&[more(2)], b'S')), "DDsZT");
    assert_eq!(client.kinds(&run(&[more(2)], b'S')), "DCZT");
    client.kinds(&run(&[execute("SELECT v FROM t WHERE v > 0 ORDER BY id", 2)], b'S'));
    client.query("UPDATE t SET v = 0 WHERE id < 3");
    assert_eq!(client.kinds(&run(&[more(2)], b'S')), "EZE", "other rows would be passed over");
    client.query("ROLLBACK");
    let returning = execute("INSERT INTO t (v) VALUES (7), (8), (9) RETURNING id", 1);
    assert_eq!(client.kinds(&run(&[returning], b'S')), "12DDDCZI");
    assert_eq!(client.error("SELECT 1; BEGIN; INSERT INTO t (v) VALUES (1)"), ("0A000".to_owned(), 'I'));
    assert_eq!(client.count(), "8");
}

/// As pgjdbc does with `autosave=always`.
#[test]
fn a_savepoint_in_front_of_a_statement_that_fails_in_the_same_sync_is_there() {
    let mut client = Client::new();
    client.query("BEGIN");
    client.query("INSERT INTO t (v) VALUES (1)");
    let run =
        [execute("SAVEPOINT auto", 0), execute("INSERT INTO t (id, v) VALUES (1, 2)", 0), message(b'S', b"")];
    assert_eq!(client.kinds(&run.concat()), "12C12EZE");
    client.query("ROLLBACK TO SAVEPOINT auto");
    let run = [
        execute("SAVEPOINT auto", 0),
        execute("INSERT INTO t (v) VALUES (3)", 0),
        execute("INSERT INTO t (v) VALUES (1 / 0)", 0),
        message(b'S', b""),
    ];
    assert_eq!(client.kinds(&run.concat()), "12C12C12EZE");
    client.query("ROLLBACK TO SAVEPOINT auto");
    client.query("INSERT INTO t (v) VALUES (4)");
    client.query("COMMIT");
    assert_eq!(client.query("SELECT v FROM t ORDER BY v"), ["1", "4"]);
}

#[test]
fn a_failed_transaction_goes_on_from_a_savepoint_only_when_it_goes_back() {
    let mut client = Client::new();
    client.query("BEGIN");
    client.query("INSERT INTO t (v) VALUES (1)");
    client.query("SAVEPOINT s");
    assert_eq!(client.error("INSERT INTO t (v) VALUES ('x')").1, 'E');
    let parse = message(b'P', b"\0ROLLBACK TO s\0\0\0");
    assert_eq!(client.kinds(&run(&[parse], b'S')), "1ZE", "it is not executed");
    client.query("ROLLBACK TO s");
    client.query("INSERT INTO t (v) VALUES (2)");
    client.query("COMMIT");
    assert_eq!(client.count(), "2");
}

/// libpq sends no CopyDone for a COPY that has failed while it was sending.
#[test]
fn a_copy_that_fails_while_lines_are_sent_is_over() {
    let mut client = Client::new();
    assert_eq!(client.kinds(&message(b'Q', b"COPY t (v) FROM STDIN\0")), "G");
    let wrong = message(b'd', &[&b"x\n"[..], &b"1\n".repeat(300_000)].concat());
    assert_eq!(client.kinds(&wrong), "EZI", "the client waits for no CopyDone");
    assert_eq!(client.kinds(&message(b'd', &b"1\n".repeat(300_000))), "", "these were under way");
    assert_eq!(client.count(), "0");
    client.query("BEGIN");
    client.query("INSERT INTO t (v) VALUES (1)");
    assert_eq!(client.kinds(&message(b'Q', b"COPY t (v) FROM STDIN\0")), "G");
    assert_eq!(client.kinds(&wrong), "EZE");
    assert_eq!(client.error("SELECT 1"), ("25P02".to_owned(), 'E'));
    client.query("ROLLBACK");
    assert_eq!(client.count(), "0");
}

#[test]
fn nothing_in_front_of_a_rollback_runs_on_its_own() {
    let mut client = Client::new();
    client.query("BEGIN");
    client.one.pass_time(61_000_000);
    client.one.pass_time(1);
    let all = [execute("INSERT INTO t (v) VALUES (1)", 0), execute("ROLLBACK", 0)];
    assert_eq!(client.kinds(&run(&all, b'S')), "EZE");
    client.query("ROLLBACK");
    assert_eq!(client.count(), "0");
}

/// Texts that could make the parser, the translation or SQLite use all memory, the stack or hours.
#[test]
fn no_text_of_a_statement_takes_more_than_it_should() {
    let mut client = Client::new();
    let texts = [
        format!("SELECT 1 {}", "NOTNULL ".repeat(100_000)),
        format!("SELECT v {} FROM t", "AT TIME ZONE 'utc' ".repeat(40_000)),
        format!("SELECT 1::int{}", "[]".repeat(200_000)),
        format!("SELECT 1{}", "#1".repeat(700)),
        format!("SELECT 'a'{}", "::regclass::text".repeat(300)),
        format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("SELECT 1{}", " + 1".repeat(5000)),
        format!("SELECT 1 FROM t {}", "PIVOT(x) ".repeat(30_000)),
    ];
    for text in texts {
        let reply = client.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat()));
        let answer = read(&reply);
        assert!(answer.error.is_some() || text.contains("#1"), "{}", &text[..40]);
    }
    assert_eq!(client.query("SELECT 12 # 10"), ["6"]);
    for (text, value) in [
        ("SELECT extract(hour FROM timestamp '2020-01-01 12:00') / 5", "2.4"),
        ("SELECT round(1234.5::float8::int, 0), lpad('a', 3, 'x')", "1235|xxa"),
        ("SELECT '{\"a\":12345678901234567890123}'::json ->> 'a'", "12345678901234567890123"),
        ("SELECT array_length('{}'::int[], 1), array_length('{1,2}'::int[], 2)", "NULL|NULL"),
    ] {
        assert_eq!(client.query(text), [value], "{text}");
    }
}

#[test]
fn numbers_of_sequences_are_drawn_once_each() {
    let mut client = Client::new();
    client.query("CREATE SEQUENCE s; CREATE SEQUENCE down INCREMENT BY -2 START 10");
    assert_eq!(client.query("SELECT nextval('s'), nextval('s'), nextval('down')"), ["1|2|10"]);
    client.query("CREATE TABLE n (id bigint PRIMARY KEY, v int)");
    let inserted = "INSERT INTO n VALUES (nextval('s'), 7), (nextval('s'::regclass), 8) RETURNING id";
    assert_eq!(client.query(inserted), ["3", "4"]);
    // Prepared, and read in parts: it is drawn when it is executed, and not again.
    let select = execute("SELECT nextval('s')", 1);
    assert_eq!(
        client.kinds(&[select, message(b'E', b"\0\0\0\0\x01"), message(b'S', b"")].concat()),
        "12DCCZI"
    );
    assert_eq!(client.query("SELECT setval('s', 40)"), ["40"]);
    assert_eq!(client.query("SELECT nextval('s')"), ["41"]);
    assert_eq!(client.query("SELECT setval('s', 50, false)"), ["50"]);
    assert_eq!(client.query("SELECT nextval('s')"), ["50"]);
    assert_eq!(client.query("SELECT setval('s', (SELECT max(id) FROM n WHERE id < 0))"), ["NULL"]);
    assert_eq!(client.query("SELECT setval('down', nextval('s'))"), ["51"]);
    assert_eq!(client.query("SELECT setval('down', 20, true), setval('public.s', 51, false)"), ["20|51"]);
    client.query("BEGIN");
    assert_eq!(client.query("SELECT nextval('s')"), ["51"]);
    client.query("ROLLBACK");
    assert_eq!(client.query("SELECT nextval('s')"), ["51"], "it was taken back");
    for (text, code) in [
        ("SELECT nextval('nothing')", "42P01"),
        ("SELECT nextval('s') FROM n", "0A000"),
        ("SELECT (SELECT nextval('s'))", "0A000"),
        ("INSERT INTO n SELECT nextval('s'), 1", "0A000"),
        ("UPDATE n SET v = nextval('s')", "0A000"),
        ("INSERT INTO n VALUES (3, 1) ON CONFLICT (id) DO UPDATE SET v = nextval('s')", "0A000"),
        ("INSERT INTO n VALUES (9, 1) RETURNING nextval('s')", "0A000"),
        ("SELECT nextval('s'), unnest(ARRAY[1, 2])", "0A000"),
        ("SELECT currval('s')", "0A000"),
        ("CREATE SEQUENCE s", "42P07"),
        ("CREATE SEQUENCE n", "42P07"),
        ("CREATE SEQUENCE x CYCLE", "0A000"),
        ("CREATE SEQUENCE x INCREMENT 0", "22023"),
        ("DROP SEQUENCE nothing", "42P01"),
        ("SELECT setval('s', 9223372036854775807), nextval('down')", "00000"),
        ("SELECT nextval('s')", "22003"),
    ] {
        if code == "00000" {
            client.query(text);
        } else {
            assert_eq!(client.error(text).0, code, "{text}");
        }
    }
    client.query("CREATE SEQUENCE IF NOT EXISTS s; DROP SEQUENCE s, down; DROP SEQUENCE IF EXISTS s");
    assert_eq!(client.error("SELECT nextval('s')").0, "42P01");
}

/// Clients tell violations apart by the constraint's name.
#[test]
fn a_violated_constraint_is_named_as_postgresql_does() {
    let mut client = Client::new();
    client.query(
        "CREATE TABLE p (id int PRIMARY KEY, a int, b int NOT NULL, UNIQUE (a, b), \
            CONSTRAINT small CHECK (a < 9))",
    );
    client.query("CREATE TABLE q (a int, b int, PRIMARY KEY (a, b)); CREATE UNIQUE INDEX q_b ON q (b)");
    client.query("INSERT INTO p VALUES (1, 1, 1); INSERT INTO q VALUES (1, 1)");
    for (text, message, fields) in [
        ("INSERT INTO p VALUES (1, 2, 2)", "unique constraint \"p_pkey\"", "spublic\0tp\0np_pkey\0"),
        ("INSERT INTO p VALUES (2, 1, 1)", "unique constraint \"p_a_b_key\"", "spublic\0tp\0np_a_b_key\0"),
        ("INSERT INTO q VALUES (1, 1)", "unique constraint", "spublic\0tq\0nq_"),
        ("INSERT INTO q VALUES (2, 1)", "unique constraint \"q_b\"", "spublic\0tq\0nq_b\0"),
        ("INSERT INTO p VALUES (3, 9, 1)", "check constraint \"small\"", "nsmall\0"),
        ("INSERT INTO p VALUES (3, 3, NULL)", "null value in column \"b\"", "spublic\0tp\0cb\0"),
    ] {
        let reply = client.send(&message_of(text));
        let reply = String::from_utf8_lossy(&reply).into_owned();
        assert!(reply.contains(message) && reply.contains(fields), "{text}: {}", reply.escape_debug());
    }
}

fn message_of(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}
