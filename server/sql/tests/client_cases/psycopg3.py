"""psycopg 3: protocol, COPY, cursors and transactions."""
from .harness import ADDRESS, case, code_and_hint, fails, same


def psycopg3(**options):
    import psycopg
    return psycopg.connect("postgresql://" + ADDRESS, **options)


def fresh(connection, *tables):
    """Makes tables anew: pairs of a name and its columns."""
    for name, columns in tables:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(f"CREATE TABLE {name} ({columns})")


P3 = ("c_p3", "id int PRIMARY KEY, v text, b bool, f float8")


@case("psycopg: values come back")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 VALUES (%s, %s, %s, %s)", (1, "x", True, 1.5))
        same(c.execute("SELECT * FROM c_p3").fetchone(), (1, "x", True, 1.5))


@case("psycopg: a transaction is taken back")
def _():
    with psycopg3() as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 (id, v) VALUES (1, 'x')")
        c.commit()
        same(c.execute("INSERT INTO c_p3 (id, v) VALUES (2, 'y') RETURNING id, v").fetchone(), (2, "y"))
        same(c.execute("SELECT count(*) FROM c_p3").fetchone(), (2,))
        c.rollback()
        same(c.execute("SELECT count(*) FROM c_p3").fetchone(), (1,))


@case("psycopg: expressions have PostgreSQL's types")
def _():
    with psycopg3(autocommit=True) as c:
        cursor = c.execute("SELECT 1 + 1, 'a' || 'b', 1 = 1, 2.5 * 2, 7 / 2, NULL, count(*), 1.5::float8")
        row = cursor.fetchone()
        same(row[:3] + row[4:7], (2, "ab", True, 3, None, 1))
        same((float(row[3]), row[7]), (5.0, 1.5))
        same([column.type_code for column in cursor.description[:3]], [23, 25, 16])
        same(cursor.description[6].type_code, 20)


@case("psycopg: binary results")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 VALUES (1, 'x', true, 1.5)")
        found = c.cursor(binary=True).execute("SELECT id, v, b, f FROM c_p3 WHERE id = %s", (1,)).fetchone()
        same(found, (1, "x", True, 1.5))


@case("psycopg: prepared statements")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        for number in range(5):
            c.execute("INSERT INTO c_p3 (id, v) VALUES (%s, %s)", (number, str(number)), prepare=True)
        for number in range(5):
            query = "SELECT v FROM c_p3 WHERE id = %s"
            same(c.execute(query, (number,), prepare=True).fetchone(), (str(number),))


@case("psycopg: a pipeline")
def _():
    with psycopg3() as c:
        fresh(c, P3)
        with c.pipeline():
            c.execute("INSERT INTO c_p3 (id, v) VALUES (1, 'a')")
            c.execute("UPDATE c_p3 SET v = 'z' WHERE id = 1")
            cursor = c.execute("SELECT v FROM c_p3 WHERE id = 1")
        same(cursor.fetchone(), ("z",))


@case("psycopg: COPY from the client")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        with c.cursor().copy("COPY c_p3 (id, v, b, f) FROM STDIN") as copy:
            copy.write_row((7, "tab\tand \\ and\nline", True, 0.5))
            copy.write_row((8, None, False, None))
        same(c.execute("SELECT * FROM c_p3 ORDER BY id").fetchall(),
             [(7, "tab\tand \\ and\nline", True, 0.5), (8, None, False, None)])


@case("psycopg: COPY to the client")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 VALUES (1, 'a\tb', true, 1.5), (2, NULL, false, NULL)")
        with c.cursor().copy("COPY c_p3 TO STDOUT") as copy:
            same(b"".join(bytes(part) for part in copy), b"1\ta\\tb\tt\t1.5\n2\t\\N\tf\t\\N\n")
        with c.cursor().copy("COPY (SELECT id FROM c_p3 ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
            same(b"".join(bytes(part) for part in copy), b"id\n1\n2\n")


@case("psycopg: COPY in CSV")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        with c.cursor().copy("COPY c_p3 (id, v) FROM STDIN WITH (FORMAT csv)") as copy:
            copy.write(b'1,"a ""b"", c"\n2,\n')
        same(c.execute("SELECT id, v FROM c_p3 ORDER BY id").fetchall(), [(1, 'a "b", c'), (2, None)])


@case("psycopg: wrong rows of COPY change nothing")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        def wrong():
            with c.cursor().copy("COPY c_p3 (id, v) FROM STDIN") as copy:
                copy.write(b"1\ta\nx\tb\n")
        fails("22P02", wrong)
        same(c.execute("SELECT count(*) FROM c_p3").fetchone(), (0,))


@case("psycopg: a cursor of the server")
def _():
    with psycopg3() as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 (id) VALUES (1), (2), (3), (4), (5)")
        with c.cursor("named") as cursor:
            cursor.execute("SELECT id FROM c_p3 ORDER BY id")
            same(cursor.fetchmany(2), [(1,), (2,)])
            same(cursor.fetchall(), [(3,), (4,), (5,)])


@case("psycopg: serial gives numbers")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_serial", "id SERIAL PRIMARY KEY, v text"), ("c_big", "v text, id BIGSERIAL"))
        found = [c.execute("INSERT INTO c_serial (v) VALUES ('x') RETURNING id").fetchone()[0] for _ in range(3)]
        same(found, [1, 2, 3])
        same(c.execute("INSERT INTO c_big (v) VALUES ('a'), ('b') RETURNING id").fetchall(), [(1,), (2,)])


@case("psycopg: identity columns give numbers")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, ("c_identity", "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v text"))
        same(c.execute("INSERT INTO c_identity (v) VALUES ('a'), ('b') RETURNING id").fetchall(), [(1,), (2,)])
        same(c.execute("INSERT INTO c_identity (id, v) VALUES (10, 'c') RETURNING id").fetchone(), (10,))


@case("psycopg: savepoints")
def _():
    with psycopg3() as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 (id) VALUES (1)")
        try:
            with c.transaction():
                c.execute("INSERT INTO c_p3 (id) VALUES (2)")
                c.execute("INSERT INTO c_p3 (id) VALUES (1)")
        except Exception as error:
            same(code_and_hint(error)[0], "23505")
        with c.transaction():
            c.execute("INSERT INTO c_p3 (id) VALUES (3)")
        c.commit()
        same(c.execute("SELECT id FROM c_p3 ORDER BY id").fetchall(), [(1,), (3,)])


@case("psycopg: arrays as parameters")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        c.execute("INSERT INTO c_p3 (id, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        same(c.execute("SELECT id FROM c_p3 WHERE id = ANY(%s) ORDER BY id", ([1, 3, 9],)).fetchall(), [(1,), (3,)])
        same(c.execute("SELECT id FROM c_p3 WHERE v = ANY(%s)", (["b", 'x"y'],)).fetchall(), [(2,)])
        same(c.execute("SELECT id FROM c_p3 WHERE NOT id = ANY(%s)", ([],)).fetchall(), [(1,), (2,), (3,)])
        same(c.execute("SELECT id FROM c_p3 WHERE id <> ALL(%s) ORDER BY id", ([1, 2],)).fetchall(), [(3,)])


@case("psycopg: elements of arrays as rows")
def _():
    with psycopg3(autocommit=True) as c:
        same(c.execute("SELECT unnest(%s::int[])", ([3, 1, 2],)).fetchall(), [(3,), (1,), (2,)])
        same(c.execute("SELECT %s::text[]", (["a", None, "b c"],)).fetchone(), (["a", None, "b c"],))


@case("psycopg: a failed transaction says so until its end")
def _():
    with psycopg3() as c:
        fails("42P01", c.execute, "SELECT * FROM c_nothing")
        fails("25P02", c.execute, "SELECT 1")
        c.rollback()
        same(c.execute("SELECT 1").fetchone(), (1,))


@case("psycopg: many rows with executemany, RETURNING")
def _():
    with psycopg3() as c:
        fresh(c, P3)
        cursor = c.cursor()
        cursor.executemany("INSERT INTO c_p3 (id, v) VALUES (%s, %s)", [(n, str(n)) for n in range(100)])
        same(cursor.rowcount, 100)
        cursor.executemany("UPDATE c_p3 SET v = 'x' WHERE id = %s RETURNING id", [(1,), (2,)], returning=True)
        same(cursor.fetchone(), (1,))
        same(c.execute("SELECT count(*), sum(id), min(v), max(id) FROM c_p3").fetchone(), (100, 4950, "0", 99))


@case("psycopg: insert or update")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        sql = "INSERT INTO c_p3 (id, v) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING v"
        same([c.execute(sql, (value,)).fetchone() for value in "ab"], [("a",), ("b",)])
        cursor = c.execute("INSERT INTO c_p3 (id) VALUES (1), (2) ON CONFLICT DO NOTHING")
        same(cursor.rowcount, 1)


@case("psycopg: several statements in one query")
def _():
    with psycopg3(autocommit=True) as c:
        fresh(c, P3)
        cursor = c.execute("INSERT INTO c_p3 (id) VALUES (1); SELECT id FROM c_p3; DELETE FROM c_p3")
        same(cursor.statusmessage, "INSERT 0 1")
        cursor.nextset()
        same(cursor.fetchall(), [(1,)])
        cursor.nextset()
        same(cursor.statusmessage, "DELETE 1")
        fails("23505", c.execute, "INSERT INTO c_p3 (id) VALUES (5); INSERT INTO c_p3 (id) VALUES (5)")
        same(c.execute("SELECT count(*) FROM c_p3").fetchone(), (0,))
