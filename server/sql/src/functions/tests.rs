//! What PostgreSQL 15 answers, as expectations.

use proptest::prelude::*;

use super::*;
use crate::types::PgType;
use crate::values::{Format, Interval, to_result};

fn fill(out: &mut [u8]) {
    out.fill(0xa5);
}

fn connection() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let sources = Sources { now_us: || 1_700_000_000_123_456, fill };
    register(&connection, sources).unwrap();
    connection
}

fn ask(connection: &Connection, expression: &str) -> Result<String, String> {
    let answer = connection.query_row(&format!("SELECT {expression}"), [], |row| {
        let mut out = Vec::new();
        match row.get_ref(0)? {
            ValueRef::Null => out.extend(b"NULL"),
            value => to_result(value, PgType::Text, Format::Text, &mut out).unwrap(),
        }
        Ok(String::from_utf8(out).unwrap())
    });
    answer.map_err(|error| error.to_string())
}

/// A number without zeros behind its point, which depend on its type.
fn trimmed(text: &str) -> &str {
    let is_number =
        text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || b"-.".contains(&byte));
    if is_number { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

type Case = (&'static str, Result<&'static str, &'static str>);

/// Expressions in SQLite's words; what PostgreSQL answers to the same in its own, or its SQLSTATE.
#[rustfmt::skip]
const CASES: &[Case] = &[
    ("cast_int4('12')", Ok("12")),
    ("cast_int4('x')", Err("22P02")),
    ("cast_int4(1.5)", Ok("2")),
    ("cast_int2(40000)", Err("22003")),
    ("cast_bool('yes')", Ok("1")),
    ("cast_bool(5)", Ok("1")),
    ("cast_varchar('abcdef',3)", Ok("abc")),
    ("cast_char('abcdef',3)", Ok("abc")),
    ("cast_numeric('12.345',10,2)", Ok("12.35")),
    ("cast_numeric('1e20',10,2)", Err("22003")),
    ("cast_date('2024-01-02 10:00')", Ok("2024-01-02")),
    ("cast_timestamptz('2024-01-02 10:00+02')", Ok("2024-01-02 08:00:00+00")),
    ("cast_uuid('x')", Err("22P02")),
    ("cast_jsonb('{\"b\":1,\"a\":2}')", Ok("{\"a\": 2, \"b\": 1}")),
    ("cast_int4_array('{1,2}')", Ok("[1,2]")),
    ("cast_text(1.0)", Ok("1")),
    ("cast_int4(NULL)", Ok("NULL")),
    ("like_pg('abc','a%')", Ok("1")),
    ("like_pg('abc','A%')", Ok("0")),
    ("like_pg('a%c','a\\%c')", Ok("1")),
    ("like_pg('abc','a\\%c')", Ok("0")),
    ("like_pg('äbc','_b_')", Ok("1")),
    ("like_pg('abc','a!%','!')", Ok("0")),
    ("like_pg('a%','a!%','!')", Ok("1")),
    ("like_pg('abc\\','abc\\')", Err("22025")),
    ("like_pg('a\\c','a\\c','')", Ok("1")),
    ("like_pg('','')", Ok("1")),
    ("like_pg('','%')", Ok("1")),
    ("like_pg('aaab','%a%b')", Ok("1")),
    ("like_pg('mississippi','%is%ip_i')", Ok("1")),
    ("like_pg('x','%%x%%')", Ok("1")),
    ("like_pg('a','a','ab')", Err("22025")),
    ("ilike_pg('ÄBC','äb%')", Ok("1")),
    ("like_pg(NULL,'a')", Ok("NULL")),
    ("regexp_pg('author','^(author)$')", Ok("1")),
    ("regexp_pg('authors','^(author)$')", Ok("0")),
    ("regexp_pg('pg_toast','^pg_toast')", Ok("1")),
    ("regexp_pg('ab12','[a-c]+\\d{2}$')", Ok("1")),
    ("regexp_pg('a]b','[]]')", Ok("1")),
    ("regexp_pg('foo.bar','o\\.b')", Ok("1")),
    ("regexp_pg('xaaay','xa{2,3}y')", Ok("1")),
    ("regexp_pg('xay','xa{2,3}y')", Ok("0")),
    ("regexp_pg('','^$')", Ok("1")),
    ("regexp_pg('abc','(')", Err("2201B")),
    ("regexp_pg('abc','*a')", Err("2201B")),
    ("regexp_pg('abc','[^[:digit:]]{3}')", Ok("1")),
    ("regexp_pg('a-b','[a\\-z]-')", Ok("1")),
    ("iregexp_pg('ABC','b')", Ok("1")),
    ("greatest_pg(1,NULL,3,2)", Ok("3")),
    ("least_pg(2.5,1,NULL)", Ok("1")),
    ("greatest_pg('a','B')", Ok("a")),
    ("greatest_pg(NULL,NULL)", Ok("NULL")),
    ("lower_pg('ÄÖß')", Ok("äöß")),
    ("upper_pg('äöß')", Ok("ÄÖß")),
    ("initcap('hello wORLD-foo 1a')", Ok("Hello World-Foo 1a")),
    ("char_length('äöü')", Ok("3")),
    ("bit_length('äö')", Ok("32")),
    ("md5('')", Ok("d41d8cd98f00b204e9800998ecf8427e")),
    ("md5('The quick brown fox jumps over the lazy dog')", Ok("9e107d9d372bb6826bd81d3542a419d6")),
    ("md5(x'00ff')", Ok("d07d34efac6328007ad67c7e0a985e00")),
    ("md5(repeat('a',200))", Ok("887f30b43b2867f4a9accceee7d16e6c")),
    ("lpad('hi',5)", Ok("   hi")),
    ("lpad('hi',5,'xy')", Ok("xyxhi")),
    ("rpad('hi',5,'xy')", Ok("hixyx")),
    ("lpad('hello',2)", Ok("he")),
    ("lpad('hi',-1)", Ok("")),
    ("lpad('hi',5,'')", Ok("hi")),
    ("btrim('  a ')", Ok("a")),
    ("btrim('xyxaxy','xy')", Ok("a")),
    ("split_part('a,b,c',',',2)", Ok("b")),
    ("split_part('a,b,c',',',-1)", Ok("c")),
    ("split_part('a,b,c',',',4)", Ok("")),
    ("split_part('a,b,c',',',0)", Err("22023")),
    ("split_part('abc','',1)", Ok("abc")),
    ("left('abcde',2)", Ok("ab")),
    ("left('abcde',-2)", Ok("abc")),
    ("left('abcde',9)", Ok("abcde")),
    ("right('abcde',2)", Ok("de")),
    ("right('abcde',-2)", Ok("cde")),
    ("right('abcde',0)", Ok("")),
    ("left('äöü',-5)", Ok("")),
    ("substring_pg('abcdef',2,3)", Ok("bcd")),
    ("substring_pg('abcdef',0,3)", Ok("ab")),
    ("substring_pg('abcdef',-2)", Ok("abcdef")),
    ("substring_pg('abcdef',2,-1)", Err("22011")),
    ("substring_pg('abcdef',9)", Ok("")),
    ("strpos('hello','l')", Ok("3")),
    ("strpos('äöü','ü')", Ok("3")),
    ("strpos('a','')", Ok("1")),
    ("strpos('a','x')", Ok("0")),
    ("starts_with('abc','ab')", Ok("1")),
    ("repeat('ab',3)", Ok("ababab")),
    ("repeat('ab',-3)", Ok("")),
    ("reverse('äbc')", Ok("cbä")),
    ("translate('12345','143','ax')", Ok("a2x5")),
    ("to_hex(255)", Ok("ff")),
    ("to_hex(-1)", Ok("ffffffff")),
    ("to_hex(4294967296)", Ok("100000000")),
    ("chr(228)", Ok("ä")),
    ("chr(0)", Err("54000")),
    ("chr(55296)", Err("54000")),
    ("ascii('ä')", Ok("228")),
    ("ascii('')", Ok("0")),
    ("quote_ident('abc')", Ok("abc")),
    ("quote_ident('Abc')", Ok("\"Abc\"")),
    ("quote_ident('a\"b')", Ok("\"a\"\"b\"")),
    ("quote_ident('select')", Ok("\"select\"")),
    ("quote_ident('user')", Ok("\"user\"")),
    ("quote_ident('name')", Ok("name")),
    ("quote_ident('1a')", Ok("\"1a\"")),
    ("quote_ident('a1$')", Ok("\"a1$\"")),
    ("quote_ident('')", Ok("\"\"")),
    ("quote_literal('a''b')", Ok("'a''b'")),
    ("quote_literal('a\\b')", Ok("E'a\\\\b'")),
    ("quote_nullable(NULL)", Ok("NULL")),
    ("encode(x'00ff','hex')", Ok("00ff")),
    ("encode(x'005cff41','escape')", Ok("\\000\\\\\\377A")),
    ("format('%s-%I-%L','a','B c','d''e')", Ok("a-\"B c\"-'d''e'")),
    ("format('%2$s %1$s %%','a','b')", Ok("b a %")),
    ("format('%s%L',NULL,NULL)", Ok("NULL")),
    ("format('%s')", Err("22023")),
    ("format('%I',NULL)", Err("22004")),
    ("format('%2$s %s','a','b','c')", Ok("b c")),
    ("array_to_string('[1,null,\"a\"]',',')", Ok("1,a")),
    ("array_to_string('[1,null,\"a\"]',',','*')", Ok("1,*,a")),
    ("string_to_array('a,b',',')", Ok("[\"a\",\"b\"]")),
    ("string_to_array('',',')", Ok("[]")),
    ("array_length_pg('[1,2]',1)", Ok("2")),
    ("array_length_pg('[]',1)", Ok("NULL")),
    ("cardinality('[1,2]')", Ok("2")),
    ("json_typeof('[]')", Ok("array")),
    ("jsonb_contains_pg('{\"a\":1,\"b\":[1,2]}','{\"b\":[2]}')", Ok("1")),
    ("jsonb_contains_pg('[1,2]','1')", Ok("1")),
    ("jsonb_contains_pg('{\"a\":{\"b\":1}}','{\"a\":{}}')", Ok("1")),
    ("jsonb_contains_pg('{\"a\":1}','{\"a\":2}')", Ok("0")),
    ("jsonb_contains_pg('[1,[2,3]]','[[3]]')", Ok("1")),
    ("jsonb_contains_pg('[1,[2,3]]','[3]')", Ok("0")),
    ("jsonb_exists_pg('{\"a\":1}','a')", Ok("1")),
    ("jsonb_exists_pg('[\"b\"]','a')", Ok("0")),
    ("json_build_object('a',1,'b','x','c',NULL)", Ok("{\"a\" : 1, \"b\" : \"x\", \"c\" : null}")),
    ("jsonb_build_object('bb',1,'a',json('[1,\"x\"]'))", Ok("{\"a\": [1, \"x\"], \"bb\": 1}")),
    ("json_build_array(1,'a',NULL,2.5)", Ok("[1, \"a\", null, 2.5]")),
    ("json_build_object('a')", Err("22023")),
    ("json_build_object(NULL,1)", Err("22023")),
    ("json_build_object('a',json_build_array(1,2))", Ok("{\"a\" : [1, 2]}")),
    ("to_jsonb('a\"b')", Ok("\"a\\\"b\"")),
    ("add_pg(1,2)", Ok("3")),
    ("add_pg(9223372036854775807,1)", Err("22003")),
    ("multiply_pg(1e300,1e300)", Err("22003")),
    ("divide_pg(7,2)", Ok("3")),
    ("divide_pg(-7,2)", Ok("-3")),
    ("divide_pg(7,0)", Err("22012")),
    ("divide_pg(7.0,0)", Err("22012")),
    ("divide_pg(7.0,2)", Ok("3.5")),
    ("div(7,2)", Ok("3")),
    ("mod(-7,3)", Ok("-1")),
    ("mod(7,0)", Err("22012")),
    ("mod(10.5,3)", Ok("1.5")),
    ("ceil(-1.5)", Ok("-1")),
    ("floor(-1.5)", Ok("-2")),
    ("trunc(-1.57)", Ok("-1")),
    ("trunc(1.999,2)", Ok("1.99")),
    ("trunc(12345,-2)", Ok("12300")),
    ("round_pg(2.5)", Ok("3")),
    ("round_pg(-2.5)", Ok("-3")),
    ("round_pg(1.005,2)", Ok("1.01")),
    ("round_pg(1250,-2)", Ok("1300")),
    ("round_double_pg(2.5)", Ok("2")),
    ("sqrt(2)", Ok("1.4142135623730951")),
    ("sqrt(-1)", Err("2201F")),
    ("exp(1)", Ok("2.718281828459045")),
    ("exp(-2.5)", Ok("0.0820849986238988")),
    ("exp(700)", Ok("1.0142320547350045e+304")),
    ("exp(710)", Err("22003")),
    ("ln(10)", Ok("2.302585092994046")),
    ("ln(0.1)", Ok("-2.3025850929940455")),
    ("ln(0)", Err("2201E")),
    ("ln(-1)", Err("2201E")),
    ("log(1000)", Ok("3")),
    ("log(2,8)", Ok("3")),
    ("power(2,10)", Ok("1024")),
    ("power(2,0.5)", Ok("1.4142135623730951")),
    ("power(0,-1)", Err("2201F")),
    ("power(-8,0.5)", Err("2201F")),
    ("power(-2,3)", Ok("-8")),
    ("power(10,400)", Err("22003")),
    ("pi()", Ok("3.141592653589793")),
    ("degrees(1)", Ok("57.29577951308232")),
    ("radians(180)", Ok("3.141592653589793")),
    ("extract_pg('year','2024-12-30 13:14:15.678901+00')", Ok("2024")),
    ("extract_pg('month','2024-12-30 13:14:15.678901+00')", Ok("12")),
    ("extract_pg('day','2024-12-30 13:14:15.678901+00')", Ok("30")),
    ("extract_pg('hour','2024-12-30 13:14:15.678901+00')", Ok("13")),
    ("extract_pg('minute','2024-12-30 13:14:15.678901+00')", Ok("14")),
    ("extract_pg('second','2024-12-30 13:14:15.678901+00')", Ok("15.678901")),
    ("extract_pg('milliseconds','2024-12-30 13:14:15.678901+00')", Ok("15678.901")),
    ("extract_pg('microseconds','2024-12-30 13:14:15.678901+00')", Ok("15678901")),
    ("extract_pg('epoch','2024-12-30 13:14:15.678901+00')", Ok("1735564455.678901")),
    ("extract_pg('dow','2024-12-30 13:14:15.678901+00')", Ok("1")),
    ("extract_pg('isodow','2024-12-30 13:14:15.678901+00')", Ok("1")),
    ("extract_pg('doy','2024-12-30 13:14:15.678901+00')", Ok("365")),
    ("extract_pg('week','2024-12-30 13:14:15.678901+00')", Ok("1")),
    ("extract_pg('isoyear','2024-12-30 13:14:15.678901+00')", Ok("2025")),
    ("extract_pg('quarter','2024-12-30 13:14:15.678901+00')", Ok("4")),
    ("extract_pg('decade','2024-12-30 13:14:15.678901+00')", Ok("202")),
    ("extract_pg('century','2024-12-30 13:14:15.678901+00')", Ok("21")),
    ("extract_pg('millennium','2024-12-30 13:14:15.678901+00')", Ok("3")),
    ("extract_pg('timezone','2024-12-30 13:14:15.678901+00')", Ok("0")),
    ("extract_pg('dow','2023-01-01')", Ok("0")),
    ("extract_pg('week','2023-01-01')", Ok("52")),
    ("extract_pg('julian','2023-01-01')", Ok("2459946")),
    ("extract_pg('hour','2023-01-01')", Err("0A000")),
    ("extract_pg('epoch','1969-12-31 23:59:59.5')", Ok("-0.500000")),
    ("extract_pg('minute','10:11:12')", Ok("11")),
    ("extract_pg('year','10:11:12')", Err("0A000")),
    ("extract_pg('eon','2023-01-01 00:00:00+00')", Err("22023")),
    ("date_trunc_pg('microseconds','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 13:14:15.678901+00")),
    ("date_trunc_pg('milliseconds','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 13:14:15.678+00")),
    ("date_trunc_pg('second','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 13:14:15+00")),
    ("date_trunc_pg('minute','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 13:14:00+00")),
    ("date_trunc_pg('hour','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 13:00:00+00")),
    ("date_trunc_pg('day','2024-12-29 13:14:15.678901+00')", Ok("2024-12-29 00:00:00+00")),
    ("date_trunc_pg('week','2024-12-29 13:14:15.678901+00')", Ok("2024-12-23 00:00:00+00")),
    ("date_trunc_pg('month','2024-12-29 13:14:15.678901+00')", Ok("2024-12-01 00:00:00+00")),
    ("date_trunc_pg('quarter','2024-12-29 13:14:15.678901+00')", Ok("2024-10-01 00:00:00+00")),
    ("date_trunc_pg('year','2024-12-29 13:14:15.678901+00')", Ok("2024-01-01 00:00:00+00")),
    ("date_trunc_pg('decade','2024-12-29 13:14:15.678901+00')", Ok("2020-01-01 00:00:00+00")),
    ("date_trunc_pg('century','2024-12-29 13:14:15.678901+00')", Ok("2001-01-01 00:00:00+00")),
    ("date_trunc_pg('millennium','2024-12-29 13:14:15.678901+00')", Ok("2001-01-01 00:00:00+00")),
    ("date_trunc_pg('eon','2024-12-29 13:14:15.678901+00')", Err("22023")),
    ("date_trunc_pg('month','1999-05-06')", Ok("1999-05-01 00:00:00+00")),
    ("date_trunc_pg('hour','1999-05-06 07:08:09')", Ok("1999-05-06 07:00:00")),
    ("add_days_pg('2024-02-28',2)", Ok("2024-03-01")),
    ("to_timestamp(1700000000.5)", Ok("2023-11-14 22:13:20.5+00")),
    ("make_date(2024,2,29)", Ok("2024-02-29")),
    ("make_date(2023,2,29)", Err("22008")),
    ("regexp_pg('abd','a(b|c)?d')", Ok("1")),
];

/// A point in time, an interval, and their sum.
const SUMS: &[(&str, &str, Result<&str, &str>)] = &[
    ("2024-01-31 00:00:00", "1 month", Ok("2024-02-29 00:00:00")),
    ("2024-03-31 10:00:00", "-1 mon", Ok("2024-02-29 10:00:00")),
    ("2024-02-29 00:00:00", "1 year", Ok("2025-02-28 00:00:00")),
    ("2024-01-01 00:00:00", "1 day 2 hours 30 minutes", Ok("2024-01-02 02:30:00")),
    ("2024-01-01 00:00:00", "1.5 days", Ok("2024-01-02 12:00:00")),
    ("2024-01-01 00:00:00", "2 weeks ago", Ok("2023-12-18 00:00:00")),
    ("2024-01-01 00:00:00", "@ 1 year 2 mons 3 days 04:05:06.5", Ok("2025-03-04 04:05:06.5")),
    ("2024-01-01 00:00:00", "-00:30", Ok("2023-12-31 23:30:00")),
    ("2024-01-01 00:00:00", "1h", Ok("2024-01-01 01:00:00")),
    ("2024-01-01 00:00:00", "90", Ok("2024-01-01 00:01:30")),
    ("2024-01-01 00:00:00", "0 days 0.000001 seconds", Ok("2024-01-01 00:00:00.000001")),
    ("2024-01-01 00:00:00", "abc", Err("22007")),
    ("2024-01-01 00:00:00", "", Err("22007")),
    ("2024-01-01 00:00:00", "1 days -02:03:04", Ok("2024-01-01 21:56:56")),
    ("2024-01-01 00:00:00", "0.25 seconds", Ok("2024-01-01 00:00:00.25")),
    ("2024-01-01 00:00:00+00", "-1 day", Ok("2023-12-31 00:00:00+00")),
    ("2024-01-01", "1 day", Ok("2024-01-02 00:00:00")),
    ("23:00:00", "2 hours", Ok("01:00:00")),
];

#[test]
fn intervals_are_added_as_postgresql_does() {
    let connection = connection();
    for (moment, text, expected) in SUMS {
        let answer = Interval::parse(text).and_then(|interval| {
            let Interval { months, days, us } = interval;
            let sql = format!("SELECT add_interval_pg('{moment}', {months}, {days}, {us})");
            connection
                .query_row(&sql, [], |row| row.get::<_, String>(0))
                .map_err(|error| SqlError::of_sqlite(&error))
        });
        let answer = answer.as_deref().map_err(|error| error.code.as_str());
        assert_eq!(answer, *expected, "{moment} + {text}");
    }
}

#[test]
fn answers_are_postgresqls() {
    let connection = connection();
    let mut wrong = Vec::new();
    for (expression, expected) in CASES {
        let answer = ask(&connection, expression);
        let is_right = match (&answer, expected) {
            (Ok(answer), Ok(expected)) => trimmed(answer) == trimmed(expected),
            (Err(error), Err(code)) => error.starts_with(&format!("{code}: ")),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{expression}: {answer:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_have_their_code_and_hint() {
    let connection = connection();
    let error = ask(&connection, "cast_int4('abc')").unwrap_err();
    assert_eq!(error, "22P02: invalid input syntax for type integer: \"abc\"");
    let error = ask(&connection, "cast_timestamptz('now')").unwrap_err();
    assert!(error.starts_with("0A000: ") && error.contains("\nHINT: Use now()"), "{error}");
    assert!(ask(&connection, "assign_varchar('abcd', 3)").unwrap_err().starts_with("22001: "));
    assert_eq!(ask(&connection, "assign_varchar('abc  ', 3)"), Ok("abc".into()));
    assert!(ask(&connection, "assign_bool(7)").unwrap_err().starts_with("42804: "));
    assert!(ask(&connection, "repeat('abc', 1000000)").unwrap_err().starts_with("54000: "));
    assert!(ask(&connection, "lpad('a', 9000000000)").unwrap_err().starts_with("54000: "));
    assert!(ask(&connection, "like_pg('a', repeat('%a', 600))").unwrap_err().starts_with("54000: "));
    assert!(ask(&connection, "upper_pg(x'00')").unwrap_err().starts_with("42883: "));
}

#[test]
fn time_and_chance_are_the_requests() {
    let connection = connection();
    assert_eq!(ask(&connection, "now_pg()"), Ok("2023-11-14 22:13:20.123456+00".into()));
    assert_eq!(ask(&connection, "gen_random_uuid_pg()"), Ok("a5a5a5a5-a5a5-45a5-a5a5-a5a5a5a5a5a5".into()));
    assert_eq!(ask(&connection, "random_pg() >= 0 AND random_pg() < 1"), Ok("1".into()));
}

#[test]
fn aggregates() {
    let connection = connection();
    let cases = [
        ("bool_and(x > 0)", "1"),
        ("bool_and(x > 1)", "0"),
        ("bool_or(x > 2)", "1"),
        ("every(x IS NULL)", "0"),
        ("array_agg(x)", "[1, 2, 4, null]"),
        ("json_agg(x ORDER BY x DESC)", "[4, 2, 1, null]"),
        ("json_agg(json_build_object('k', x)) FILTER (WHERE x < 2)", "[{\"k\" : 1}]"),
        ("jsonb_object_agg('k' || x, x) FILTER (WHERE x > 0)", "{\"k1\": 1, \"k2\": 2, \"k4\": 4}"),
        ("stddev(x)", "1.5275252316519468"),
        ("var_pop(x)", "1.5555555555555556"),
        ("bool_and(x) FILTER (WHERE x IS NULL)", "NULL"),
        ("array_agg(x) FILTER (WHERE false)", "NULL"),
        ("stddev(x) FILTER (WHERE x = 1)", "NULL"),
    ];
    for (expression, expected) in cases {
        let from = "FROM (VALUES (1), (2), (4), (NULL)) AS t";
        let from = format!("FROM (SELECT column1 AS x {from})");
        let answer = ask(&connection, &format!("{expression} {from}"));
        assert_eq!(answer.as_deref(), Ok(expected), "{expression}");
    }
}

/// The answer of a plain walk through text and pattern, which may take very long.
fn plainly(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| plainly(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && plainly(&text[1..], rest),
        [first, rest @ ..] => text.first() == Some(first) && plainly(&text[1..], rest),
    }
}

/// Patterns whose plain matching never ends.
#[test]
fn patterns_take_no_time() {
    let text = "a".repeat(1 << 20);
    let pattern = LikePattern::new(&("%a".repeat(499) + "b"), None, false).unwrap();
    assert!(!pattern.matches(&text));
    let regex = Regex::new("^(a+)+$|(a|a)*b", false).unwrap();
    assert!(!regex.is_in(&("a".repeat(10_000) + "c")).unwrap());
    assert_eq!(Regex::new("((a{200}){200}){200}", false).unwrap_err().code, "54001");
    assert_eq!(Regex::new(&("a".to_owned() + &"*".repeat(1_000_000)), false).unwrap_err().code, "2201B");
    assert_eq!(Regex::new(&"(".repeat(100_000), false).unwrap_err().code, "54001");
}

#[test]
fn long_arguments_take_no_time() {
    let connection = connection();
    let numbers = "(WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5000) \
        SELECT json_group_array(json_array(n)) FROM t)";
    let error = ask(&connection, &format!("jsonb_contains_pg({numbers}, replace({numbers}, '[5', '[6'))"));
    assert!(error.is_err_and(|error| error.starts_with("54000: ")));
    let many = "repeat('abcdefghijklmnopqrstuvwxyz', 40000)";
    assert_eq!(
        ask(&connection, &format!("length(translate({many}, {many} || 'ä', 'x'))")),
        Ok("40000".into())
    );
    assert_eq!(ask(&connection, &format!("btrim({many}, {many})")), Ok(String::new()));
}

#[test]
fn digests_of_all_lengths_differ() {
    let all: std::collections::BTreeSet<_> = (0..200).map(|length| md5_hex(&vec![0; length])).collect();
    assert_eq!(all.len(), 200);
    assert_eq!(md5_hex(&vec![b'a'; 1_000_000]), "7707d6ae4e027c70eea2a935c2296f21");
}

proptest! {
    #[test]
    fn like_is_plain_matching(text in "[ab%_]{0,12}", pattern in "[ab%_]{0,10}") {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        let made = LikePattern::new(&pattern, None, false).unwrap();
        prop_assert_eq!(made.matches(&text), plainly(&characters(&text), &characters(&pattern)));
    }

    #[test]
    fn any_expression(text in "\\PC{0,20}", seed in any::<u64>()) {
        let _ = Regex::new(&text, seed % 2 == 0).map(|regex| regex.is_in(&text));
        let _ = Interval::parse(&text);
        let _ = LikePattern::new(&text, Some('a'), true).map(|pattern| pattern.matches(&text));
    }

    #[test]
    fn any_regex(text in "[a-c()|*+?{}0-3^$.\\[\\]\\\\,-]{0,15}") {
        let _ = Regex::new(&text, false).map(|regex| regex.is_in("abcabc"));
    }

    #[test]
    fn logarithms_are_near(bits in any::<u64>(), small in -700.0..700.0) {
        let number = f64::from_bits(bits >> 1);
        if number.is_finite() && number > 0.0 {
            let (ours, hosts) = (logarithm::ln(number), number.ln());
            prop_assert!((ours - hosts).abs() <= hosts.abs() * 2.3e-16, "ln {number}: {ours} {hosts}");
        }
        let (ours, hosts) = (logarithm::exp(small), f64::exp(small));
        prop_assert!((ours - hosts).abs() <= hosts.abs() * 2.3e-16, "exp {small}: {ours} {hosts}");
        let (ours, hosts) = (logarithm::power(small.abs() + 0.1, 1.7), (small.abs() + 0.1).powf(1.7));
        prop_assert!((ours - hosts).abs() <= hosts.abs() * 2.3e-16, "{small} to 1.7: {ours} {hosts}");
    }
}
