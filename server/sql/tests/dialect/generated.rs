//! Statements at random: a translation is what SQLite can prepare, it is the same twice, and nothing panics.

use crosscheck::object::to_bytes;
use crosscheck::testing::{Replica, RequestEnd};
use proptest::prelude::*;
use sql::dialect::{PresentTables, statements, translate};
use sql::request::ClientRun;
use sql::{Dialect, SqlRequest};

use super::{Database, LIBRARY, library};
use crate::client::replica;

/// Operands of many types, so that some operators do not fit.
fn operand() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "1",
        "0",
        "-7",
        "2.5",
        "9223372036854775807",
        "'a'",
        "'12'",
        "'2026-01-02'",
        "NULL",
        "true",
        "false",
        "$1",
        "$2",
        "b.id",
        "b.title",
        "b.price",
        "b.ok",
        "b.at",
        "b.data",
        "a.name",
        "a.born",
        "author",
        "name",
        "now()",
        "current_date",
        "date '2026-01-02'",
        "array[1, 2]",
        "'{}'::jsonb",
        "'x'::varchar(3)",
        "interval '1 day'",
        "(select max(id) from book)",
        "(select title from book where id = b.id)",
        "count(*)",
        "sum(b.id)",
        "\"no\"",
        "E'\\n'",
        "'1'::numeric(5,2)",
        "random()",
        "row_number() over (order by b.id)",
        "$3::date",
        "id",
    ])
    .prop_map(str::to_owned)
}

fn functions() -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(vec![
        "lower",
        "length",
        "abs",
        "round",
        "coalesce",
        "max",
        "min",
        "avg",
        "string_agg",
        "greatest",
        "nullif",
        "substr",
        "date_trunc",
        "md5",
        "concat",
        "json_build_array",
        "array_agg",
        "bool_and",
        "ceil",
        "left",
        "nothing",
        "to_json",
        "json_agg",
        "unnest",
        "lag",
        "sqrt",
        "starts_with",
    ])
}

fn types() -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(vec![
        "int",
        "bigint",
        "text",
        "boolean",
        "timestamptz",
        "date",
        "numeric(6,2)",
        "varchar(4)",
        "jsonb",
        "float8",
        "uuid",
        "bytea",
        "int[]",
        "regclass",
        "numeric",
        "time",
    ])
}

fn expression() -> impl Strategy<Value = String> {
    operand().prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let operator = prop::sample::select(vec![
            "+",
            "-",
            "*",
            "/",
            "%",
            "^",
            "||",
            "=",
            "<>",
            "<",
            ">=",
            "and",
            "or",
            "like",
            "ilike",
            "is distinct from",
            "->",
            "->>",
            "&",
            "|",
            "#",
            "<<",
            "~",
            "@>",
            "is not distinct from",
        ]);
        let function = functions();
        let of = types();
        prop_oneof![
            (two.clone(), operator).prop_map(|((a, b), operator)| format!("({a}) {operator} ({b})")),
            (inner.clone(), function.clone()).prop_map(|(a, name)| format!("{name}({a})")),
            (two.clone(), function).prop_map(|((a, b), name)| format!("{name}({a}, {b})")),
            (inner.clone(), of).prop_map(|(a, of)| format!("({a})::{of}")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            inner.clone().prop_map(|a| format!("- ({a})")),
            inner.clone().prop_map(|a| format!("({a}) is null")),
            inner.clone().prop_map(|a| format!("({a}) is not true")),
            two.clone().prop_map(|(a, b)| format!("({a}) in ({b}, {a})")),
            two.clone().prop_map(|(a, b)| format!("({a}) = any ({b})")),
            two.clone().prop_map(|(a, b)| format!("case when {a} then {b} else {a} end")),
            two.clone().prop_map(|(a, b)| format!("case {a} when {b} then 1 end")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("({a}) between ({b}) and ({c})")),
            two.clone().prop_map(|(a, b)| format!("({a}, {b}) = ({b}, {a})")),
            inner.clone().prop_map(|a| format!("exists (select {a} from book)")),
            inner.clone().prop_map(|a| format!("(select {a} from author x limit 1)")),
            two.clone().prop_map(|(a, b)| format!("sum({a}) over (partition by {b} order by {a} desc)")),
            inner.clone().prop_map(|a| format!("count(distinct {a}) filter (where {a})")),
            inner.clone().prop_map(|a| format!("extract(year from {a})")),
            inner.prop_map(|a| format!("trim(both from {a})")),
        ]
    })
}

/// What an expression of [`fitting`] gives.
#[derive(Clone, Copy)]
enum Gives {
    Number,
    Text,
    Truth,
    Moment,
}

/// Expressions whose parts fit, in which a letter stands for a part of that kind.
#[rustfmt::skip]
fn forms(gives: Gives) -> (&'static [&'static str], &'static [&'static str]) {
    match gives {
        Gives::Number => (
            &["1", "-7", "2.5", "b.id", "a.id", "$1::int", "b.price::float8", "NULL::bigint", "'12'::int"],
            &[
                "N + N", "N * N", "N / N", "N % N", "- (N)", "abs(N)", "(N)::int", "(N)::float8", "length(T)",
                "coalesce(N, N)", "case when B then N else N end", "extract(year from M)", "greatest(N, N)",
                "nullif(N, N)", "strpos(T, T)", "(select max(id) from book where id = N)",
                "date_part('month', M)", "(select N)", "round(N)",
            ],
        ),
        Gives::Text => (
            &["'a'", "b.title", "a.name", "$2::text", "'x'::varchar(3)", "NULL::text", "E'\\n'"],
            &[
                "T || T", "T || N", "lower(T)", "substr(T, 2, 1)", "coalesce(T, T)", "(T)::varchar(4)",
                "(N)::text", "concat(T, N, B)", "case N when N then T end", "trim(both 'x' from T)",
                "(M)::text", "replace(T, T, T)", "(select name from author where id = N)", "(b.data ->> T)",
                "(B)::text",
            ],
        ),
        Gives::Truth => (
            &["true", "b.ok", "$3::boolean", "false"],
            &[
                "N = N", "T < T", "M >= M", "B and B", "B or B", "not (B)", "T like T", "T ilike T",
                "N in (N, N)", "N between N and N", "M between M and M", "(N) is null", "(B) is not true",
                "T is distinct from T", "exists (select 1 from author x where x.id = N)",
                "N = any (array[N, N])", "(N, T) = (N, T)", "T in (select name from author)",
                "(N, T) in ((N, T), (N, T))", "a.born < date '2026-01-02'",
            ],
        ),
        Gives::Moment => (
            &["b.at", "now()", "timestamptz '2026-01-02'", "a.born", "current_date", "$4::timestamptz"],
            &[
                "(M) + interval '1 day'", "date_trunc('day', M)", "coalesce(M, M)", "case when B then M end",
                "(M)::date",
            ],
        ),
    }
}

/// An expression whose parts fit each other.
fn fitting(gives: Gives, depth: u32) -> BoxedStrategy<String> {
    let (leaves, forms) = forms(gives);
    let leaf = prop::sample::select(leaves).prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let form = prop::sample::select(forms).prop_flat_map(move |form| {
        // The words of a form are in small letters, so a large one alone is a part.
        let parts: Vec<&str> = form.split_inclusive(|c: char| "NTBM".contains(c)).collect();
        let is_alone = !form.contains("NULL");
        let parts = parts.into_iter().map(move |part| {
            let (before, last) = part.split_at(part.len() - 1);
            let before = before.to_owned();
            let inner = match last {
                "N" if is_alone => fitting(Gives::Number, depth - 1),
                "T" => fitting(Gives::Text, depth - 1),
                "B" => fitting(Gives::Truth, depth - 1),
                "M" => fitting(Gives::Moment, depth - 1),
                _ => return Just(part.to_owned()).boxed(),
            };
            inner.prop_map(move |inner| format!("{before}({inner})")).boxed()
        });
        parts.collect::<Vec<_>>().prop_map(|parts| parts.concat())
    });
    prop_oneof![1 => leaf, 3 => form].boxed()
}

fn fitting_statement() -> impl Strategy<Value = String> {
    use Gives::{Moment, Number, Text, Truth};
    let from = "from book b join author a on a.id = b.author";
    let (n, t, b, m) = (fitting(Number, 3), fitting(Text, 3), fitting(Truth, 3), fitting(Moment, 2));
    (n, t, b, m, 0..9).prop_map(move |(n, t, b, m, kind)| match kind {
        0 => format!("select {n}, {t} as x, {b}, {m} {from} where {b} order by {t} desc, 1 limit 2"),
        1 => format!(
            "select {t}, count(*), sum({n}), max({m}), bool_or({b}) {from} group by {t} \
            having count({b}) > 0"
        ),
        2 => format!("select distinct {n} as n {from} union select {n} {from} order by n"),
        3 => "insert into book (id, title, ok, at) values (7, 'x', true, '2026-01-02') returning id + 1"
            .to_owned(),
        4 => format!("insert into book (title, author, ok, at) select {t}, {n}, {b}, {m} {from}"),
        5 => format!("update book b set author = {n}, title = {t}, ok = {b} from author a where {b}"),
        6 => format!("delete from book b using author a where {b}"),
        7 => format!(
            "with w (n, t) as (select {n}, {t} {from}) select t, row_number() over (order by n) from w"
        ),
        _ => format!(
            "select x.n from (select {n} as n, {m} as m {from}) as x left join author y \
            on y.id = x.n where x.m is null"
        ),
    })
}

fn statement() -> impl Strategy<Value = String> {
    let e = expression;
    let from = "from book b join author a on a.id = b.author";
    prop_oneof![
        4 => (e(), e(), e()).prop_map(move |(a, b, c)| format!("select {a}, {b} as x {from} where {c} order by {b}")),
        2 => (e(), e(), e()).prop_map(move |(a, b, c)| format!("select {a}, {b} {from} group by {a} having {c}")),
        1 => (e(), e()).prop_map(move |(a, b)| format!("select distinct {a} {from} order by {b} desc limit ($4)")),
        1 => (e(), e()).prop_map(|(a, b)| format!("select {a} from book b, author a union \
            select {b} from book b, author a")),
        1 => (e(), e()).prop_map(|(a, b)| format!("insert into book as b (title, ok) values ({a}, {b}) returning {a}")),
        1 => (e(), e()).prop_map(move |(a, b)| format!("insert into book (price, at) select {a}, {b} {from}")),
        1 => (e(), e()).prop_map(|(a, b)| format!("update book b set author = {a} from author a where {b}")),
        1 => (e(), e()).prop_map(|(a, b)| format!("delete from book b using author a where {a} returning {b}")),
        1 => (e(), e()).prop_map(|(a, b)| format!("with w (p) as (select {a} from book b, author a) \
            select p from w where {b}")),
        1 => (e(), e()).prop_map(|(a, b)| format!("select * from (values ({a}, 1), ({b}, 2)) as b (id, ok) \
            left join author a using (id)")),
        1 => e().prop_map(|a| format!("create table made (x int check ({a}), y text default {a})")),
        1 => e().prop_map(move |a| format!("create view made as select {a} as x {from}")),
        1 => e().prop_map(|a| format!("alter table author alter column born type text using {a}")),
    ]
}

/// What SQLite says of a statement that was not written right.
fn is_wrong(message: &str) -> bool {
    let signs = [
        "syntax error",
        "no such column",
        "no such table",
        "ambiguous",
        "misuse",
        "wrong number",
        "incomplete",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

fn check(database: &Database, text: &str) {
    let tables = PresentTables::new(&database.0, None);
    let Ok(parsed) = statements(text) else { return };
    for statement in &parsed {
        let translated = translate(statement, &tables, &[]);
        assert_eq!(translated, translate(statement, &tables, &[]), "{text}");
        let Ok(parts) = translated else { continue };
        let [part] = &parts[..] else { continue };
        match database.0.prepare(&part.sql) {
            Ok(prepared) => {
                let count = part.columns.as_ref().map_or(0, Vec::len);
                assert_eq!(prepared.column_count(), count, "{text}\n{}", part.sql);
                assert!(prepared.parameter_count() <= part.parameters.len(), "{text}\n{}", part.sql);
            }
            Err(error) => assert!(!is_wrong(&error.to_string()), "{text}\n{}\n{error}", part.sql),
        }
    }
}

/// Words in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "select",
        "from",
        "where",
        "book",
        "id",
        "(",
        ")",
        ",",
        ";",
        "1",
        "'a'",
        "$1",
        "=",
        "insert",
        "into",
        "values",
        "set",
        "update",
        "delete",
        "create",
        "table",
        "index",
        "on",
        "alter",
        "drop",
        "column",
        "add",
        "constraint",
        "primary",
        "key",
        "foreign",
        "references",
        "default",
        "not",
        "null",
        "as",
        "with",
        "union",
        "order",
        "by",
        "group",
        "limit",
        "copy",
        "stdin",
        "begin",
        "fetch",
        "declare",
        "cursor",
        "for",
        "show",
        "*",
        ".",
        "::",
        "int",
        "text",
        "join",
        "using",
        "case",
        "when",
        "end",
        "in",
        "any",
        "array",
        "[",
        "]",
        "\"",
        "--",
        "/*",
        "deferrable",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_translation_is_what_sqlite_can_prepare(texts in prop::collection::vec(statement(), 8)) {
        let database = library();
        texts.iter().for_each(|text| check(&database, text));
    }

    #[test]
    fn what_fits_is_translated(texts in prop::collection::vec(fitting_statement(), 8)) {
        let database = library();
        for text in &texts {
            check(&database, text);
            let translated = database.translate(text, &[]);
            prop_assert!(translated.is_ok(), "{text}\n{translated:?}");
        }
    }

    #[test]
    fn words_in_any_order_do_no_harm(texts in prop::collection::vec(words(), 8)) {
        let database = library();
        texts.iter().for_each(|text| check(&database, text));
    }
}

/// Statements, half of which are right, at three replicas: one of them loses its connections now and then, and with
/// them what it has kept of statements and tables. Of all three the replies are equal, and the pages.
#[test]
fn replies_and_pages_are_equal_at_three_replicas() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rounds = if std::env::var_os("CROSSCHECK_LONG").is_some() { 1000 } else { 1 };
    let request = |text: &str| {
        to_bytes(&SqlRequest::Alone { reads: false, run: ClientRun::of_query(Dialect::Postgres, text) })
    };
    let (mut right, mut failed) = (0, 0);
    for round in 0..rounds {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[round as u8, (round >> 8) as u8].repeat(16));
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = prop_oneof![statement(), fitting_statement()];
        let mut replicas = [replica(), replica(), replica()];
        for number in 0..1000 {
            let text = match number % 250 {
                0 => format!("drop table if exists book, author cascade; {LIBRARY}"),
                _ => strategy.new_tree(&mut runner).expect("a statement").current(),
            };
            let replies = replicas.each_mut().map(|one| match one.run(&request(&text)) {
                RequestEnd::Replied(reply) => reply,
                RequestEnd::Corrupted(wrong) => panic!("{text}: {wrong:?}"),
            });
            let [one, two, three] = replies.each_ref().map(|reply| crate::client::read(reply));
            assert!(replies[0] == replies[1], "{round}, {number}: {text}\n{one:?}\n{two:?}");
            assert!(replies[0] == replies[2], "{round}, {number}: {text}\n{one:?}\n{three:?}");
            let error = crate::client::read(&replies[0]).error;
            assert!(error.as_ref().is_none_or(|error| error[0] != "XX000"), "{text}: {error:?}");
            failed += u32::from(error.is_some());
            right += u32::from(error.is_none());
            if number % 100 == 99 {
                let packed = replicas[0].with_region(0, |region| region.pack_all());
                // Each of these is a position of the log.
                replicas[1].with_region(0, |_| ());
                replicas[2].with_region(0, |region| region.load_all(&packed)).expect("it loads");
            }
        }
        let [one, two, three] = replicas.each_mut().map(Replica::digests);
        assert!(one == two && two == three, "{round}");
    }
    assert!(right > 100 && failed > 100, "{right} right, {failed} failed");
    println!("{right} statements were right and {failed} failed, at three replicas alike");
}

/// The parser, where it is not optimised, takes some 100 KiB for each level.
#[test]
fn the_deepest_statements_fit_on_a_stack() {
    let deep = |open: &str, middle: &str, close: &str, count| {
        format!("select {}{middle}{}", open.repeat(count), close.repeat(count))
    };
    for count in [10, 30, 100, 790] {
        for text in [
            deep("(", "1", ")", count),
            deep("(select ", "1", ")", count),
            deep("not ", "true", "", count),
            deep("", "1", " + 1", count),
            deep("", "'a'", " || 'a'", count),
            deep("", "true", " and true", count),
            deep("", "1", " = 1 or 1", count),
            deep("case when true then ", "1", " end", count),
            deep("coalesce(", "1", ", 2)", count),
            deep("", "1", " union all select 1", count),
            deep("", "1", "::int", count),
            deep("- ", "1", "", count),
            deep("array[", "1", "]", count),
        ] {
            let thread = std::thread::Builder::new().stack_size(6 << 20);
            let running = thread.spawn(move || check(&library(), &text)).unwrap();
            running.join().unwrap();
        }
    }
}
