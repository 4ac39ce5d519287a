//! What PostgreSQL 15 answers, as expectations.

use proptest::prelude::*;

use super::*;

const MONEY: PgType = PgType::Numeric { precision: 10, scale: 2 };
const ANY: PgType = PgType::Numeric { precision: 15, scale: 0 };

fn shown(value: &Value, of: PgType) -> Result<String, SqlError> {
    let mut out = Vec::new();
    to_result(value.into(), of, Format::Text, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn bytes(value: &Value, of: PgType) -> Vec<u8> {
    let mut out = Vec::new();
    to_result(value.into(), of, Format::Binary, &mut out).unwrap();
    out
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

type Case = (PgType, &'static str, Result<&'static str, &'static str>);

/// `SELECT text::type::text`, or its SQLSTATE; of booleans as the protocol has them.
const CASES: &[Case] = {
    use PgType::*;
    &[
        (Bool, "t", Ok("t")),
        (Bool, "TRUE", Ok("t")),
        (Bool, "f", Ok("f")),
        (Bool, " yes ", Ok("t")),
        (Bool, "n", Ok("f")),
        (Bool, "on", Ok("t")),
        (Bool, "of", Ok("f")),
        (Bool, "0", Ok("f")),
        (Bool, "o", Err("22P02")),
        (Bool, "", Err("22P02")),
        (Bool, "truex", Err("22P02")),
        (Int2, "32767", Ok("32767")),
        (Int2, "-32768", Ok("-32768")),
        (Int2, "32768", Err("22003")),
        (Int2, "1.5", Err("22P02")),
        (Int4, "-2147483648", Ok("-2147483648")),
        (Int4, "2147483648", Err("22003")),
        (Int4, " 7 ", Ok("7")),
        (Int4, "+5", Ok("5")),
        (Int4, "", Err("22P02")),
        (Int4, "abc", Err("22P02")),
        (Int4, "0x10", Err("22P02")),
        (Int4, "-", Err("22P02")),
        (Int8, "9223372036854775807", Ok("9223372036854775807")),
        (Int8, "-9223372036854775808", Ok("-9223372036854775808")),
        (Int8, "9223372036854775808", Err("22003")),
        (Oid, "4294967295", Ok("4294967295")),
        (Oid, "4294967296", Err("22003")),
        (Real, "0.1", Ok("0.1")),
        (Real, "1000000", Ok("1e+06")),
        (Real, "16777217", Ok("1.6777216e+07")),
        (Real, "1e39", Err("22003")),
        (Real, "1e-50", Err("22003")),
        (Real, "3.4028235e38", Ok("3.4028235e+38")),
        (Real, "-inf", Ok("-Infinity")),
        (Double, "0.1", Ok("0.1")),
        (Double, "1e15", Ok("1e+15")),
        (Double, "123456789012345680", Ok("1.2345678901234568e+17")),
        (Double, "1e400", Err("22003")),
        (Double, "1e-400", Err("22003")),
        (Double, ".5", Ok("0.5")),
        (Double, "5.", Ok("5")),
        (Double, "Infinity", Ok("Infinity")),
        (Double, "-0", Ok("-0")),
        (Double, "0e999", Ok("0")),
        (Double, "1e5x", Err("22P02")),
        (Double, "1e", Err("22P02")),
        (Double, "abc", Err("22P02")),
        (MONEY, "12.5", Ok("12.50")),
        (MONEY, "0.005", Ok("0.01")),
        (MONEY, "-0.005", Ok("-0.01")),
        (MONEY, "0.004", Ok("0.00")),
        (MONEY, "99999999.994", Ok("99999999.99")),
        (MONEY, "99999999.995", Err("22003")),
        (MONEY, "1e3", Ok("1000.00")),
        (MONEY, "-1.5e-1", Ok("-0.15")),
        (MONEY, ".5", Ok("0.50")),
        (MONEY, "5.", Ok("5.00")),
        (MONEY, "abc", Err("22P02")),
        (MONEY, "1..2", Err("22P02")),
        (MONEY, "00012", Ok("12.00")),
        (MONEY, "-0", Ok("0.00")),
        (MONEY, "1e-400", Ok("0.00")),
        (Varchar(3), "abc", Ok("abc")),
        (Varchar(3), "abc  ", Ok("abc")),
        (Varchar(3), "abcd", Ok("abc")),
        (Varchar(3), "äöü", Ok("äöü")),
        (Varchar(3), "äöüß", Ok("äöü")),
        (Bytea, "\\x00ff", Ok("\\x00ff")),
        (Bytea, "\\xABcd", Ok("\\xabcd")),
        (Bytea, "abc\\\\d", Ok("\\x6162635c64")),
        (Bytea, "\\000\\377", Ok("\\x00ff")),
        (Bytea, "\\x0", Err("22023")),
        (Bytea, "\\xzz", Err("22023")),
        (Bytea, "\\9", Err("22P02")),
        (Bytea, "", Ok("\\x")),
        (Date, "2024-02-29", Ok("2024-02-29")),
        (Date, "2023-02-29", Err("22008")),
        (Date, "20240229", Ok("2024-02-29")),
        (Date, "2024-1-2", Ok("2024-01-02")),
        (Date, "0001-01-01", Ok("0001-01-01")),
        (Date, "9999-12-31", Ok("9999-12-31")),
        (Date, "2024-13-01", Err("22008")),
        (Date, "2024-01-02 23:59:59-05", Ok("2024-01-02")),
        (Date, "abc", Err("22007")),
        (Date, "", Err("22007")),
        (Date, "10:00", Err("22007")),
        (Date, "2024-01-02T03:04:05Z", Ok("2024-01-02")),
        (Date, "0000-01-01", Err("22008")),
        (Time, "12:34:56.789000", Ok("12:34:56.789")),
        (Time, "1:02", Ok("01:02:00")),
        (Time, "24:00", Ok("24:00:00")),
        (Time, "24:00:01", Err("22008")),
        (Time, "23:59:60", Ok("24:00:00")),
        (Time, "12:60", Err("22008")),
        (Time, "12:34:56.1234567", Ok("12:34:56.123457")),
        (Time, "2024-01-02 03:04:05", Ok("03:04:05")),
        (Time, "12:34:56+02", Ok("12:34:56")),
        (Time, "12", Err("22007")),
        (Time, "23:59:59.9999999", Ok("24:00:00")),
        (Timestamp, "2024-01-02 03:04:05.120000", Ok("2024-01-02 03:04:05.12")),
        (Timestamp, "2024-01-02", Ok("2024-01-02 00:00:00")),
        (Timestamp, "2024-01-02T03:04:05+05:30", Ok("2024-01-02 03:04:05")),
        (Timestamp, "2024-01-02 24:00", Ok("2024-01-03 00:00:00")),
        (Timestamp, "2024-12-31 23:59:60", Ok("2025-01-01 00:00:00")),
        (Timestamp, "2024-01-02 03:04:05.9999999", Ok("2024-01-02 03:04:06")),
        (Timestamp, "2024-01-02 03", Err("22007")),
        (Timestamp, "  2024-01-02   03:04  ", Ok("2024-01-02 03:04:00")),
        (Timestamp, "2024-01-02 03:04:05.", Ok("2024-01-02 03:04:05")),
        (Timestamp, "2024-01-02x", Err("22007")),
        (Timestamptz, "2024-01-02 03:04:05.5", Ok("2024-01-02 03:04:05.5+00")),
        (Timestamptz, "2024-01-02 03:04:05+05:30", Ok("2024-01-01 21:34:05+00")),
        (Timestamptz, "2024-01-02 03:04:05 -0800", Ok("2024-01-02 11:04:05+00")),
        (Timestamptz, "2024-01-02T03:04:05Z", Ok("2024-01-02 03:04:05+00")),
        (Timestamptz, "2024-01-02 00:30:00+01", Ok("2024-01-01 23:30:00+00")),
        (Timestamptz, "2024-01-02 03:04:05+15:59", Ok("2024-01-01 11:05:05+00")),
        (Timestamptz, "2024-01-02 03:04:05+16", Err("22009")),
        (Timestamptz, "2024-02-29 03:04 UTC", Ok("2024-02-29 03:04:00+00")),
        (Timestamptz, "1999-12-31 23:59:59.999999+00:00:01", Ok("1999-12-31 23:59:58.999999+00")),
        (Timestamptz, "0001-01-01 00:00:00", Ok("0001-01-01 00:00:00+00")),
        (Timestamptz, "nonsense", Err("22007")),
        (Timestamptz, "2024-01-02 25:00", Err("22008")),
        (Timestamptz, "12:00", Err("22007")),
        (Uuid, "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", Ok("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (Uuid, "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}", Ok("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (Uuid, "a0eebc999c0b4ef8bb6d6bb9bd380a11", Ok("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (Uuid, "a0eebc999c0b4ef8bb6d6bb9bd380a1", Err("22P02")),
        (Uuid, "a0eebc999c0b4ef8bb6d6bb9bd380a11-", Err("22P02")),
        (Uuid, "g0eebc999c0b4ef8bb6d6bb9bd380a11", Err("22P02")),
        (Uuid, "a-0eebc999c0b4ef8bb6d6bb9bd380a11", Err("22P02")),
        (Json, "{\"a\":1,  \"a\":[1,2]}", Ok("{\"a\":1,  \"a\":[1,2]}")),
        (Json, "{a:1}", Err("22P02")),
        (Json, "[1,]", Err("22P02")),
        (Json, "\"\\u12\"", Err("22P02")),
        (Json, "01", Err("22P02")),
        (Json, "1e5", Ok("1e5")),
        (Json, "", Err("22P02")),
        (Json, "nul", Err("22P02")),
        (Json, "[1] x", Err("22P02")),
        (Json, "\"\t\"", Err("22P02")),
        (
            Jsonb,
            "{\"bb\":1,\"a\":[1, 2.50,-0,1e2,1.5e-3],\"a\":{\"x\":\"\\u00e4\\n\\u0001\\/\"}}",
            Ok("{\"a\": {\"x\": \"ä\\n\\u0001/\"}, \"bb\": 1}"),
        ),
        (Jsonb, "{}", Ok("{}")),
        (Jsonb, "[]", Ok("[]")),
        (Jsonb, "\"\\ud83d\\ude00\"", Ok("\"😀\"")),
        (Jsonb, "\"\\ud83d\"", Err("22P02")),
        (Jsonb, "\"\\u0000\"", Err("22P05")),
        (Jsonb, "1E+3", Ok("1000")),
        (Jsonb, "-0.00", Ok("0.00")),
        (Jsonb, "null", Ok("null")),
        (Jsonb, "tru", Err("22P02")),
        (Jsonb, "{\"a\":true,\"b\":false}", Ok("{\"a\": true, \"b\": false}")),
        (Int4Array, "{1,2,NULL}", Ok("{1,2,NULL}")),
        (Int4Array, "{}", Ok("{}")),
        (Int4Array, "{ 1 , 2 }", Ok("{1,2}")),
        (Int4Array, "{1,}", Err("22P02")),
        (Int4Array, "{1", Err("22P02")),
        (Int4Array, "1,2", Err("22P02")),
        (Int4Array, "{a}", Err("22P02")),
        (Int4Array, "{\"1\",null}", Ok("{1,NULL}")),
        (Int4Array, "{1}x", Err("22P02")),
        (Int4Array, "{3000000000}", Err("22003")),
        (TextArray, "{a,\"b c\",NULL,\"NULL\",\"\"}", Ok("{a,\"b c\",NULL,\"NULL\",\"\"}")),
        (TextArray, "{\"a\\\"b\",\"c\\\\d\",e\\,f}", Ok("{\"a\\\"b\",\"c\\\\d\",\"e,f\"}")),
        (TextArray, "{a b , c}", Ok("{\"a b\",c}")),
        (TextArray, "{ä,\"{x}\"}", Ok("{ä,\"{x}\"}")),
        (TextArray, "{,}", Err("22P02")),
        (TextArray, "{\"a\"b}", Err("22P02")),
        (TextArray, "{\\NULL}", Ok("{\"NULL\"}")),
        (TextArray, "{a\"b\"}", Err("22P02")),
        (BoolArray, "{t,f,yes}", Ok("{t,f,t}")),
        (DoubleArray, "{1,1.5,1e20}", Ok("{1,1.5,1e+20}")),
    ]
};

#[test]
fn casts_of_text_are_postgresqls() {
    for (of, from, expected) in CASES.iter().copied() {
        let value = coerce((&text(from)).into(), of, Coercion::Explicit);
        let result = value.and_then(|value| shown(&value, of));
        assert_eq!(result.as_deref().map_err(|error| error.code.as_str()), expected, "{of:?} {from:?}");
    }
}

/// What is read again is the same, in both formats, whatever SQLite's column is.
#[test]
fn values_pass_through_both_formats() {
    for (of, from, expected) in CASES.iter().copied() {
        if expected.is_err() || matches!(of, PgType::Varchar(_)) {
            continue;
        }
        let value = input(from, of).unwrap();
        let again = from_parameter(shown(&value, of).unwrap().as_bytes(), Format::Text, of).unwrap();
        assert_eq!(again, value, "{of:?} {from:?}");
        let binary = bytes(&value, of);
        assert_eq!(from_parameter(&binary, Format::Binary, of).unwrap(), value, "{of:?} {from:?}");
    }
}

#[test]
fn lengths_are_kept() {
    let code = |text, of| input(text, of).map_err(|error| error.code);
    assert_eq!(code("abc  ", PgType::Varchar(3)), Ok(text("abc")));
    assert_eq!(code("abcd", PgType::Varchar(3)), Err("22001".to_owned()));
    assert_eq!(code("ab ", PgType::Char(2)), Ok(text("ab")));
    assert_eq!(code("abc", PgType::Char(2)), Err("22001".to_owned()));
    assert_eq!(from_parameter(b"abcd", Format::Text, PgType::Varchar(3)), Ok(text("abcd")), "no modifier");
    let message = input("abcd", PgType::Varchar(3)).unwrap_err().message;
    assert_eq!(message, "value too long for type character varying(3)");
    assert_eq!(code("a\0b", PgType::Text), Err("22021".to_owned()));
    assert_eq!(from_parameter(b"a\xff", Format::Text, PgType::Text).unwrap_err().code, "22021");
}

#[test]
fn messages_are_postgresqls() {
    let cases = [
        ("abc", PgType::Int4, "invalid input syntax for type integer: \"abc\""),
        ("99999999999", PgType::Int4, "value \"99999999999\" is out of range for type integer"),
        ("x", PgType::Double, "invalid input syntax for type double precision: \"x\""),
        ("1e400", PgType::Double, "\"1e400\" is out of range for type double precision"),
        ("x", MONEY, "invalid input syntax for type numeric: \"x\""),
        ("1e9", MONEY, "numeric field overflow"),
        ("x", PgType::Timestamptz, "invalid input syntax for type timestamp with time zone: \"x\""),
        ("2024-02-30", PgType::Date, "date/time field value out of range: \"2024-02-30\""),
        ("{", PgType::Int4Array, "malformed array literal: \"{\""),
        ("{", PgType::Json, "invalid input syntax for type json"),
        ("\\xg", PgType::Bytea, "invalid hexadecimal digit: \"g\""),
    ];
    for (from, of, message) in cases {
        assert_eq!(input(from, of).unwrap_err().message, message);
    }
}

#[test]
fn what_is_not_kept_is_refused_with_a_remedy() {
    let cases = [
        ("now", PgType::Timestamptz),
        ("today", PgType::Date),
        ("infinity", PgType::Timestamp),
        ("2024-01-02 BC", PgType::Date),
        ("12024-01-02", PgType::Date),
        ("01/02/2024", PgType::Date),
        ("Jan 2 2024", PgType::Date),
        ("2024-01-02 03:04:05 Europe/Berlin", PgType::Timestamptz),
        ("3:04 pm", PgType::Time),
        ("NaN", PgType::Double),
        ("NaN", MONEY),
        ("Infinity", MONEY),
        ("{{1},{2}}", PgType::Int4Array),
        ("[0:1]={1,2}", PgType::Int4Array),
    ];
    for (from, of) in cases {
        let error = input(from, of).unwrap_err();
        assert!(error.code == "0A000" && error.hint.is_some(), "{from}: {error:?}");
    }
    assert_eq!(from_parameter(b"1234567.123456789", Format::Text, MONEY).unwrap_err().code, "22003");
}

/// What PostgreSQL 15 answers to `SELECT x::float8`.
#[test]
fn numbers_are_written_as_postgresql_writes_them() {
    let cases = [
        (0.0, "0"),
        (1.5, "1.5"),
        (-2.0, "-2"),
        (0.1, "0.1"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (1.5e300, "1.5e+300"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (f64::NEG_INFINITY, "-Infinity"),
        (123_456.789, "123456.789"),
        (-1e-7, "-1e-07"),
        (f64::NAN, "NaN"),
        (-0.0, "-0"),
    ];
    for (number, text) in cases {
        assert_eq!(real(number), text);
    }
}

/// `SELECT numeric_send(x)`, `timestamp_send(x)` and so on of PostgreSQL 15.
#[test]
fn binary_forms_are_postgresqls() {
    let cases = [
        ("12.50", MONEY, "0002000000000002000c1388"),
        ("-12345.67", MONEY, "0003000140000002000109291a2c"),
        ("0.01", MONEY, "0001ffff000000020064"),
        ("0", MONEY, "0000000000000002"),
        ("10000", MONEY, "00010001000000020001"),
        ("2024-02-29", PgType::Date, "00002279"),
        ("1999-12-31", PgType::Date, "ffffffff"),
        ("03:04:05.678", PgType::Time, "00000002925fabb0"),
        ("2024-01-02 03:04:05.678", PgType::Timestamp, "0002b0ec85204bb0"),
        ("1970-01-01 00:00:00+01", PgType::Timestamptz, "fffca2fdee347c00"),
        ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", PgType::Uuid, "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("{\"a\":1}", PgType::Jsonb, "017b2261223a20317d"),
        (
            "{1,NULL,3}",
            PgType::Int4Array,
            "00000001000000010000001700000003000000010000000400000001ffffffff0000000400000003",
        ),
        ("{}", PgType::TextArray, "000000000000000000000019"),
        ("{a,NULL}", PgType::TextArray, "00000001000000010000001900000002000000010000000161ffffffff"),
        ("1.5", PgType::Real, "3fc00000"),
        ("-0.1", PgType::Double, "bfb999999999999a"),
        ("t", PgType::Bool, "01"),
        ("4294967295", PgType::Oid, "ffffffff"),
    ];
    for (from, of, expected) in cases {
        let mut hex = Vec::new();
        put_hex(&bytes(&input(from, of).unwrap(), of), &mut hex);
        assert_eq!(String::from_utf8(hex).unwrap(), format!("\\x{expected}"), "{of:?} {from}");
    }
}

#[test]
fn casts_between_types() {
    use Coercion::{Assignment, Explicit};
    let real = Value::Real;
    let cases = [
        (real(1.5), PgType::Int4, Explicit, Ok("2")),
        (real(2.5), PgType::Int4, Assignment, Ok("3")),
        (real(-2.5), PgType::Int8, Assignment, Ok("-3")),
        (real(1.005 * 100.0), PgType::Int4, Explicit, Ok("101")),
        (real(3e9), PgType::Int4, Explicit, Err("22003")),
        (real(1e18), PgType::Int8, Explicit, Ok("1000000000000000000")),
        (real(1e19), PgType::Int8, Explicit, Err("22003")),
        (real(f64::INFINITY), PgType::Int8, Explicit, Err("22003")),
        (real(2.675), MONEY, Assignment, Ok("2.68")),
        (real(0.1 + 0.2), MONEY, Assignment, Ok("0.30")),
        (real(1e300), PgType::Real, Explicit, Err("22003")),
        (real(0.1), PgType::Real, Explicit, Ok("0.1")),
        (real(1.5), PgType::Text, Assignment, Ok("1.5")),
        (real(1.5), PgType::Bool, Explicit, Err("42846")),
        (Value::Integer(7), PgType::Bool, Explicit, Ok("t")),
        (Value::Integer(7), PgType::Bool, Assignment, Err("42804")),
        (Value::Integer(1), PgType::Bool, Assignment, Ok("t")),
        (Value::Integer(40_000), PgType::Int2, Assignment, Err("22003")),
        (Value::Integer(12), MONEY, Assignment, Ok("12.00")),
        (Value::Integer(12), PgType::Varchar(1), Assignment, Err("22001")),
        (Value::Integer(12), PgType::Varchar(1), Explicit, Ok("1")),
        (Value::Integer(12), PgType::Date, Explicit, Err("42846")),
        (Value::Integer(12), PgType::Bytea, Explicit, Err("42846")),
        (text("2024-01-02 23:59:59.5+00"), PgType::Date, Explicit, Ok("2024-01-02")),
        (text("2024-01-02 23:59:59.5+00"), PgType::Timestamp, Assignment, Ok("2024-01-02 23:59:59.5")),
        (text("2024-01-02 23:59:59.5+00"), PgType::Time, Assignment, Ok("23:59:59.5")),
        (text("2024-01-02"), PgType::Timestamptz, Assignment, Ok("2024-01-02 00:00:00+00")),
        (text("[1,null]"), PgType::Int4Array, Assignment, Ok("{1,NULL}")),
        (text("true"), PgType::Bool, Explicit, Ok("t")),
        (Value::Blob(vec![1, 255]), PgType::Text, Explicit, Ok("\\x01ff")),
        (Value::Blob(vec![1, 255]), PgType::Int4, Explicit, Err("42846")),
    ];
    for (from, of, how, expected) in cases {
        let result = coerce((&from).into(), of, how).and_then(|value| shown(&value, of));
        assert_eq!(result.as_deref().map_err(|error| error.code.as_str()), expected, "{from:?} {of:?}");
    }
    assert_eq!(coerce(ValueRef::Null, PgType::Int4, Assignment), Ok(Value::Null));
    assert_eq!(round_half_even(2.5, PgType::Int4), Ok(2));
}

/// What SQLite's columns may hold besides values of their type.
#[test]
fn a_value_of_another_type_is_an_error() {
    let cases = [
        (text("abc"), PgType::Int4, "XX000"),
        (Value::Integer(3_000_000_000), PgType::Int4, "22003"),
        (Value::Real(1.5), PgType::Int8, "XX000"),
        (Value::Integer(2), PgType::Bool, "XX000"),
        (Value::Integer(2), PgType::Timestamptz, "XX000"),
        (text("yesterday"), PgType::Date, "XX000"),
        (text("2024-01-02"), PgType::Time, "XX000"),
        (text("{"), PgType::Jsonb, "XX000"),
        (text("{1}"), PgType::Int4Array, "XX000"),
        (text("[3000000000]"), PgType::Int4Array, "22003"),
        (text("x"), PgType::Bytea, "XX000"),
        (Value::Real(1e14), MONEY, "22003"),
    ];
    for (value, of, code) in cases {
        for format in [Format::Text, Format::Binary] {
            let mut out = Vec::new();
            assert_eq!(to_result((&value).into(), of, format, &mut out).unwrap_err().code, code, "{of:?}");
        }
    }
}

#[test]
fn numeric_shows_what_it_has() {
    assert_eq!(shown(&Value::Real(12.5), MONEY).unwrap(), "12.50");
    assert_eq!(shown(&Value::Real(7.0 / 3.0), ANY).unwrap(), "2.33333333333333");
    assert_eq!(shown(&Value::Real(0.1 + 0.2), ANY).unwrap(), "0.3");
    assert_eq!(shown(&Value::Integer(1_234_567_890_123_456_789), ANY).unwrap(), "1234567890123456789");
    assert_eq!(from_parameter(b"12.50", Format::Text, ANY), Ok(Value::Real(12.5)));
    assert_eq!(from_parameter(b"12.00", Format::Text, ANY), Ok(Value::Integer(12)));
}

#[test]
fn wrong_binary_forms_are_refused() {
    let cases: [(&[u8], PgType, &str); 9] = [
        (b"", PgType::Bool, "22P03"),
        (b"\0\0\0", PgType::Int4, "22P03"),
        (b"\0\x01\0\0\0\0\0\0", MONEY, "22P03"),
        (b"\0\0\0\0\xc0\0\0\0", MONEY, "0A000"),
        (b"\x02{}", PgType::Jsonb, "22P03"),
        (b"\x7f\xff\xff\xff", PgType::Date, "0A000"),
        (b"\x70\xff\xff\xff", PgType::Date, "22008"),
        (b"\0\0\0\x02\0\0\0\0\0\0\0\x17", PgType::Int4Array, "0A000"),
        (b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01", PgType::Int4Array, "22P03"),
    ];
    for (bytes, of, code) in cases {
        assert_eq!(from_parameter(bytes, Format::Binary, of).unwrap_err().code, code, "{of:?} {bytes:?}");
    }
}

#[test]
fn deep_json_is_refused() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(input(&deep(1000), PgType::Jsonb).is_ok());
    assert_eq!(input(&deep(100_000), PgType::Json).unwrap_err().code, "54001");
}

fn any_type() -> impl Strategy<Value = PgType> {
    prop::sample::select(CASES.iter().map(|(of, ..)| *of).collect::<Vec<_>>())
}

proptest! {
    /// No bytes make it panic; what is taken can be shown, and is the same when it is read again.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40), of in any_type(), binary in any::<bool>()) {
        let format = if binary { Format::Binary } else { Format::Text };
        if let Ok(value) = from_parameter(&bytes, format, of) {
            let again = from_parameter(shown(&value, of).unwrap().as_bytes(), Format::Text, of);
            prop_assert_eq!(again, Ok(value));
        }
    }

    #[test]
    fn any_text(from in "[-+0-9a-f:. TZ{},\"\\\\\\[\\]]{0,30}", of in any_type()) {
        if let Ok(value) = input(&from, of) {
            prop_assert_eq!(input(&shown(&value, of).unwrap(), of), Ok(value));
        }
    }

    #[test]
    fn any_stored_value(number in any::<i64>(), of in any_type(), bits in any::<u64>()) {
        for value in [ValueRef::Integer(number), ValueRef::Real(f64::from_bits(bits))] {
            for how in [Coercion::Assignment, Coercion::Explicit] {
                if let Ok(value) = coerce(value, of, how) {
                    shown(&value, of).unwrap();
                }
            }
            let _ = to_result(value, of, Format::Binary, &mut Vec::new());
        }
    }

    #[test]
    fn every_microsecond_is_kept(us in -63_082_281_600_000_000_i64..252_455_616_000_000_000) {
        let text = timestamptz_text(us).unwrap();
        prop_assert_eq!(timestamp_of(&text), Ok(us));
    }

    #[test]
    fn decimals_are_kept(digits in 0_i64..1_000_000_000_000_000, scale in 0_u8..=15) {
        let of = PgType::Numeric { precision: 15, scale };
        let from = Decimal::from_digits(false, digits.to_string().bytes().map(|b| b - b'0').collect(), scale.into());
        let value = from.clone().value().unwrap();
        prop_assert_eq!(shown(&value, of).unwrap(), from.text(scale));
        prop_assert_eq!(from_parameter(&bytes(&value, of), Format::Binary, of), Ok(value));
    }
}
