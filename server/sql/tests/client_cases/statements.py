"""Types, errors and statements of PostgreSQL's, asked through psycopg 3."""
import datetime as dt
import decimal
import uuid

from .harness import case, code_and_hint, fails, same
from .psycopg3 import P3, fresh, psycopg3

UTC = dt.timezone.utc


TYPES = [
    ("boolean", True), ("smallint", -32768), ("integer", 2147483647), ("bigint", -9223372036854775808),
    ("real", 0.5), ("double precision", 1e300), ("numeric(10,2)", decimal.Decimal("12345678.90")),
    ("text", "ä 'quoted' \"text\" \\ 😀"), ("varchar(5)", "abcde"), ("bytea", b"\x00\x01\xff"),
    ("date", dt.date(2024, 2, 29)), ("time", dt.time(23, 59, 59, 120000)),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 456789)),
    ("timestamptz", dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    ("uuid", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
]
ALL_TYPES = ", ".join(f"c{at} {name}" for at, (name, _) in enumerate(TYPES))


def round_trip(binary):
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_types", ALL_TYPES))
        values = [value for _, value in TYPES]
        marks = ", ".join(["%b" if binary else "%s"] * len(values))
        c.execute(f"INSERT INTO c_types VALUES ({marks})", values)
        c.execute(f"INSERT INTO c_types VALUES ({marks})", [None] * len(values))
        found = c.cursor(binary=binary).execute("SELECT * FROM c_types WHERE c0").fetchone()
        same(list(found), values)
        same(str(found[6]), "12345678.90")
        same(set(c.execute("SELECT * FROM c_types WHERE c0 IS NULL").fetchone()), {None})


@case("psycopg: all types in text")
def _():
    round_trip(False)


@case("psycopg: all types in binary")
def _():
    round_trip(True)


@case("psycopg: times of other zones, JSON")
def _():
    from psycopg.types.json import Json, Jsonb
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_json", "at timestamptz, a json, b jsonb"))
        late = dt.datetime(2026, 1, 2, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
        c.execute("INSERT INTO c_json VALUES (%s, %s, %s)", (late, Json({"z": [1, None]}), Jsonb({"zz": 1, "a": "ä"})))
        same(c.execute("SELECT * FROM c_json").fetchone(), (late, {"z": [1, None]}, {"a": "ä", "zz": 1}))
        same(c.execute("SELECT b::text, b->>'a', (b->'zz')::int FROM c_json").fetchone(),
             ('{"a": "ä", "zz": 1}', "ä", 1))


ERRORS = [
    ("22P02", "SELECT 'abc'::int"), ("22P02", "SELECT 'maybe'::boolean"), ("22003", "SELECT 40000::smallint"),
    ("22003", "SELECT '99999999999'::int"), ("22007", "SELECT 'nonsense'::date"),
    ("22008", "SELECT '2024-02-30'::date"), ("22012", "SELECT 1 / 0"),
    ("22001", "INSERT INTO c_err (s) VALUES ('abcd')"),
    ("22003", "INSERT INTO c_err (n) VALUES (12345)"), ("23502", "INSERT INTO c_err (must) VALUES (NULL)"),
    ("23505", "INSERT INTO c_err (id) VALUES (1)"), ("23503", "INSERT INTO c_err (up) VALUES (99)"),
    ("23514", "INSERT INTO c_err (id, n) VALUES (5, -1)"), ("42P01", "SELECT * FROM c_nothing"),
    ("42703", "SELECT nothing FROM c_err"), ("42601", "SELEC 1"), ("42883", "SELECT nothing(1)"),
    ("42P07", "CREATE TABLE c_err (a int)"), ("42703", "INSERT INTO c_err (nothing) VALUES (1)"),
    ("42601", "INSERT INTO c_err (id, s) VALUES (1)"), ("22P02", "INSERT INTO c_err (id) VALUES ('x')"),
    ("2201E", "SELECT ln(0::float8)"), ("54000", "SELECT chr(0)"), ("42601", "SELECT * FROM"),
]


@case("psycopg: errors have PostgreSQL's codes")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_err", "id int PRIMARY KEY DEFAULT 2, s varchar(3), n numeric(4,2) CHECK (n > 0), "
                           "must int NOT NULL DEFAULT 0, up int REFERENCES c_err(id)"))
        c.execute("INSERT INTO c_err (id) VALUES (1)")
        wrong = []
        for code, sql in ERRORS:
            try:
                c.execute(sql)
                wrong.append(f"{sql}: no error")
            except Exception as error:
                found, hint = code_and_hint(error)
                if found != code and not (found == "0A000" and hint):
                    wrong.append(f"{sql}: {found} instead of {code}")
        same(wrong, [])


@case("psycopg: WITH, windows, patterns, sets")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 (id, v) VALUES (1, 'Anna'), (2, 'ánna'), (3, 'Bert')")
        same(c.execute("SELECT id FROM c_p3 WHERE v LIKE 'a%'").fetchall(), [])
        same(c.execute("SELECT id FROM c_p3 WHERE v ILIKE 'ann_'").fetchall(), [(1,)])
        same(c.execute("WITH t AS (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM c_p3) "
                       "SELECT id FROM t WHERE n = 1").fetchall(), [(3,)])
        same(c.execute("SELECT v FROM c_p3 WHERE id < 3 EXCEPT SELECT 'Anna' ORDER BY 1").fetchall(), [("ánna",)])
        same(c.execute("SELECT CASE WHEN id > 2 THEN 'big' ELSE 'small' END, coalesce(NULL, v), upper(v) "
                       "FROM c_p3 ORDER BY id DESC LIMIT 1 OFFSET 0").fetchone(), ("big", "Bert", "BERT"))
        same(c.execute("WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) "
                       "SELECT sum(n) FROM t").fetchone(), (15,))
        same(c.execute("SELECT generate_series(1, 3)").fetchall(), [(1,), (2,), (3,)])


@case("psycopg: arithmetic of dates")
def _():
    with psycopg3(autocommit=True) as c:
        at = dt.datetime(2024, 1, 31, 10, 30, tzinfo=UTC)
        found = c.execute("SELECT date_trunc('month', %s::timestamptz), %s::timestamptz + interval '1 month', "
                          "extract(year FROM %s::timestamptz)::int, %s::timestamptz::date, date '2024-03-01' - 1",
                          (at, at, at, at)).fetchone()
        same(found, (dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2024, 2, 29, 10, 30, tzinfo=UTC), 2024,
                     dt.date(2024, 1, 31), dt.date(2024, 2, 29)))
        now = c.execute("SELECT now()").fetchone()[0]
        same(abs((now - dt.datetime.now(UTC)).total_seconds()) < 3600, True)


@case("psycopg: numeric is exact")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_money", "n numeric(10,2)"))
        c.execute("INSERT INTO c_money VALUES (0.1), (0.2), (12.5), (1.005)")
        found = c.execute("SELECT n FROM c_money").fetchall()
        same([str(value) for value, in found], ["0.10", "0.20", "12.50", "1.01"])
        same(c.execute("SELECT sum(n) FROM c_money").fetchone(), (decimal.Decimal("13.81"),))
        same(c.execute("SELECT count(*) FROM c_money WHERE n + 0.1 = 0.3").fetchone(), (1,))


@case("psycopg: foreign keys, cascades")
def _():
    with psycopg3(autocommit=True) as c:
        c.execute("DROP TABLE IF EXISTS c_child, c_parent")
        c.execute("CREATE TABLE c_parent (id int PRIMARY KEY)")
        c.execute("CREATE TABLE c_child (id int PRIMARY KEY, p int REFERENCES c_parent(id) ON DELETE CASCADE)")
        c.execute("INSERT INTO c_parent VALUES (1), (2)")
        c.execute("INSERT INTO c_child VALUES (1, 1), (2, 2)")
        c.execute("DELETE FROM c_parent WHERE id = 1")
        same(c.execute("SELECT id FROM c_child").fetchall(), [(2,)])
        c.execute("DROP TABLE c_parent CASCADE")
        same(c.execute("SELECT count(*) FROM c_child").fetchone(), (1,))


@case("psycopg: views")
def _():
    with psycopg3(autocommit=True) as c:
        c.execute("DROP VIEW IF EXISTS c_view")
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 VALUES (1, 'x', true, 1.5), (2, 'y', false, 2)")
        c.execute("CREATE VIEW c_view AS SELECT id, b FROM c_p3 WHERE b")
        same(c.execute("SELECT * FROM c_view").fetchall(), [(1, True)])
        c.execute("DROP VIEW c_view")


@case("psycopg: tables are altered")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_alter", "id int PRIMARY KEY, a text"))
        c.execute("INSERT INTO c_alter VALUES (1, 'x')")
        c.execute("ALTER TABLE c_alter ADD COLUMN n int NOT NULL DEFAULT 7")
        c.execute("ALTER TABLE c_alter RENAME COLUMN a TO b")
        same(c.execute("SELECT id, b, n FROM c_alter").fetchall(), [(1, "x", 7)])
        c.execute("ALTER TABLE c_alter DROP COLUMN b")
        c.execute("ALTER TABLE c_alter RENAME TO c_altered")
        same(c.execute("SELECT * FROM c_altered").fetchall(), [(1, 7)])
        c.execute("DROP TABLE c_altered")


@case("psycopg: constraints are added and dropped")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_alter", "id int, a text"))
        c.execute("ALTER TABLE c_alter ADD CONSTRAINT c_alter_pk PRIMARY KEY (id)")
        c.execute("ALTER TABLE c_alter ADD CONSTRAINT c_alter_a UNIQUE (a)")
        c.execute("INSERT INTO c_alter VALUES (1, 'x')")
        fails("23505", c.execute, "INSERT INTO c_alter VALUES (2, 'x')")
        c.execute("ALTER TABLE c_alter DROP CONSTRAINT c_alter_a")
        c.execute("INSERT INTO c_alter VALUES (2, 'x')")
        c.execute("ALTER TABLE c_alter ALTER COLUMN a SET NOT NULL")
        fails("23502", c.execute, "INSERT INTO c_alter VALUES (3, NULL)")
        c.execute("ALTER TABLE c_alter ALTER COLUMN a DROP NOT NULL, ALTER COLUMN a SET DEFAULT 'd'")
        same(c.execute("INSERT INTO c_alter (id) VALUES (4) RETURNING a").fetchone(), ("d",))


@case("psycopg: TRUNCATE, and DROP of several tables")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_one", "a int"), ("c_two", "a int"))
        c.execute("INSERT INTO c_one VALUES (1)")
        c.execute("TRUNCATE c_one, c_two")
        same(c.execute("SELECT count(*) FROM c_one").fetchone(), (0,))
        c.execute("DROP TABLE IF EXISTS c_one, c_two, c_never")
        fails("42P01", c.execute, "SELECT * FROM c_two")


@case("psycopg: long values")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_long", "a text, b bytea"))
        text, data = "ä" * 100_000, bytes(range(256)) * 500
        c.execute("INSERT INTO c_long VALUES (%s, %b)", (text, data))
        same(c.cursor(binary=True).execute("SELECT a, b FROM c_long").fetchone(), (text, data))


@case("psycopg: levels of isolation, settings")
def _():
    import psycopg
    with psycopg3() as c:
        c.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        same(c.execute("SELECT 1").fetchone(), (1,))
        c.commit()
        c.autocommit = True
        c.execute("SET application_name = 'clients'")
        same(c.execute("SHOW standard_conforming_strings").fetchone(), ("on",))
        same(c.execute("SELECT current_setting('server_version_num')::int >= 150000").fetchone(), (True,))


@case("psycopg: two transactions cannot both win")
def _():
    with psycopg3(autocommit=True) as setup:
        fresh(setup, P3)
        setup.execute("INSERT INTO c_p3 (id, f) VALUES (1, 100)")
    import psycopg
    with psycopg3() as one, psycopg3() as two:
        for connection in (one, two):
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            same(connection.execute("SELECT f FROM c_p3 WHERE id = 1").fetchone(), (100.0,))
        one.execute("UPDATE c_p3 SET f = 90 WHERE id = 1")
        one.commit()
        def second():
            two.execute("UPDATE c_p3 SET f = 80 WHERE id = 1")
            two.commit()
        fails("40001", second)
        two.rollback()
        same(one.execute("SELECT f FROM c_p3").fetchone(), (90.0,))
