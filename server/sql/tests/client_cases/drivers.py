"""psycopg 2, asyncpg and pg8000."""
import asyncio
import datetime as dt
import decimal
import io
import uuid

from .harness import ADDRESS, DATABASE, PORT, USER, case, fails, same

UTC = dt.timezone.utc


def psycopg2_connection():
    import psycopg2
    return psycopg2.connect(host="127.0.0.1", port=PORT, user=USER, dbname=DATABASE)


@case("psycopg2: a transaction")
def _():
    c = psycopg2_connection()
    k = c.cursor()
    k.execute("DROP TABLE IF EXISTS c_p2")
    k.execute("CREATE TABLE c_p2 (id int PRIMARY KEY, v text, n numeric(6,2), at timestamptz)")
    k.execute("INSERT INTO c_p2 VALUES (%s, %s, %s, %s)", (1, "it's", decimal.Decimal("1.10"), dt.datetime(2024, 1, 1)))
    c.commit()
    k.execute("SELECT id, v, n FROM c_p2 WHERE id = %s", (1,))
    same(k.fetchone(), (1, "it's", decimal.Decimal("1.10")))
    c.rollback()
    c.close()


@case("psycopg2: many rows, a cursor of the server, COPY")
def _():
    from psycopg2.extras import execute_values
    c = psycopg2_connection()
    k = c.cursor()
    k.execute("DROP TABLE IF EXISTS c_p2")
    k.execute("CREATE TABLE c_p2 (id int PRIMARY KEY, v text)")
    execute_values(k, "INSERT INTO c_p2 VALUES %s", [(n, str(n)) for n in range(10)])
    k.copy_from(io.StringIO("10\tten\n11\t\\N\n"), "c_p2")
    c.commit()
    named = c.cursor("rows")
    named.execute("SELECT id FROM c_p2 ORDER BY id")
    same([row[0] for row in named], list(range(12)))
    c.close()


@case("psycopg2: errors have classes")
def _():
    from psycopg2 import errors
    c = psycopg2_connection()
    k = c.cursor()
    k.execute("DROP TABLE IF EXISTS c_p2")
    k.execute("CREATE TABLE c_p2 (id int PRIMARY KEY)")
    k.execute("INSERT INTO c_p2 VALUES (1)")
    c.commit()
    try:
        k.execute("INSERT INTO c_p2 VALUES (1)")
        raise AssertionError("no error")
    except errors.UniqueViolation:
        c.rollback()
    c.close()


def with_asyncpg(work):
    import asyncpg
    async def run():
        connection = await asyncpg.connect("postgresql://" + ADDRESS)
        try:
            await work(connection)
        finally:
            await connection.close()
    asyncio.run(run())


async def asyncpg_table(c):
    await c.execute("DROP TABLE IF EXISTS c_async")
    columns = "id int PRIMARY KEY, v text, n numeric(10,2), at timestamptz, u uuid, j jsonb"
    await c.execute(f"CREATE TABLE c_async ({columns})")


@case("asyncpg: parameters and rows")
def _():
    async def work(c):
        await asyncpg_table(c)
        at, number = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), uuid.uuid4()
        values = (1, "x", decimal.Decimal("12.50"), at, number, '{"a": 1}')
        await c.execute("INSERT INTO c_async VALUES ($1, $2, $3, $4, $5, $6)", *values)
        same(tuple(await c.fetchrow("SELECT * FROM c_async WHERE id = $1", 1)), values)
        same(await c.fetchval("SELECT $1::int + 1", 41), 42)
        same(await c.fetch("SELECT v FROM c_async WHERE id = 2"), [])
    with_asyncpg(work)


@case("asyncpg: prepared statements")
def _():
    async def work(c):
        await asyncpg_table(c)
        insert = await c.prepare("INSERT INTO c_async (id, v) VALUES ($1, $2) RETURNING id")
        same([await insert.fetchval(n, str(n)) for n in range(3)], [0, 1, 2])
        select = await c.prepare("SELECT id, v FROM c_async WHERE id > $1 ORDER BY id")
        same([a.name for a in select.get_attributes()], ["id", "v"])
        same([p.name for p in select.get_parameters()], ["int4"])
        same([tuple(row) for row in await select.fetch(0)], [(1, "1"), (2, "2")])
    with_asyncpg(work)


@case("asyncpg: transactions and savepoints")
def _():
    async def work(c):
        import asyncpg
        await asyncpg_table(c)
        async with c.transaction():
            await c.execute("INSERT INTO c_async (id) VALUES (1)")
            try:
                async with c.transaction():
                    await c.execute("INSERT INTO c_async (id) VALUES (1)")
            except asyncpg.UniqueViolationError:
                pass
            await c.execute("INSERT INTO c_async (id) VALUES (2)")
        same(await c.fetchval("SELECT count(*) FROM c_async"), 2)
        transaction = c.transaction()
        await transaction.start()
        await c.execute("DELETE FROM c_async")
        await transaction.rollback()
        same(await c.fetchval("SELECT count(*) FROM c_async"), 2)
    with_asyncpg(work)


@case("asyncpg: COPY in binary")
def _():
    async def work(c):
        await asyncpg_table(c)
        rows = [(n, f"row {n}", decimal.Decimal("1.25"), None, None, None) for n in range(10)]
        await c.copy_records_to_table("c_async", records=rows)
        same(await c.fetchval("SELECT sum(n) FROM c_async"), decimal.Decimal("12.50"))
    with_asyncpg(work)


@case("asyncpg: COPY in text")
def _():
    async def work(c):
        await asyncpg_table(c)
        await c.copy_to_table("c_async", source=io.BytesIO(b"1\ta\n2\t\\N\n"), columns=["id", "v"])
        out = io.BytesIO()
        await c.copy_from_query("SELECT id, v FROM c_async ORDER BY id", output=out)
        same(out.getvalue(), b"1\ta\n2\t\\N\n")
    with_asyncpg(work)


@case("asyncpg: executemany")
def _():
    async def work(c):
        await asyncpg_table(c)
        await c.executemany("INSERT INTO c_async (id, v) VALUES ($1, $2)", [(n, "x") for n in range(50)])
        same(await c.fetchval("SELECT count(*) FROM c_async"), 50)
    with_asyncpg(work)


@case("asyncpg: a cursor, arrays")
def _():
    async def work(c):
        await asyncpg_table(c)
        await c.executemany("INSERT INTO c_async (id, v) VALUES ($1, $2)", [(n, str(n)) for n in range(10)])
        async with c.transaction():
            found = [row["id"] async for row in c.cursor("SELECT id FROM c_async ORDER BY id", prefetch=3)]
        same(found, list(range(10)))
        same(await c.fetchval("SELECT count(*) FROM c_async WHERE id = ANY($1::int[])", [1, 2, 99]), 2)
        same(await c.fetchval("SELECT count(*) FROM c_async WHERE v = ANY($1::text[])", ["1", "x"]), 1)
        same(await c.fetchval("SELECT $1::int[]", [1, None, 3]), [1, None, 3])
    with_asyncpg(work)


@case("asyncpg: a pool resets its connections")
def _():
    import asyncpg
    async def run():
        async with asyncpg.create_pool("postgresql://" + ADDRESS, min_size=1, max_size=2) as pool:
            for number in range(4):
                async with pool.acquire() as c:
                    same(await c.fetchval("SELECT $1::int", number), number)
    asyncio.run(run())


@case("asyncpg: errors have classes")
def _():
    async def work(c):
        import asyncpg
        for error, sql in [(asyncpg.UndefinedTableError, "SELECT * FROM c_nothing"),
                           (asyncpg.InvalidTextRepresentationError, "SELECT 'x'::int"),
                           (asyncpg.DivisionByZeroError, "SELECT 1 / 0")]:
            try:
                await c.fetch(sql)
                raise AssertionError(f"no error: {sql}")
            except error:
                pass
    with_asyncpg(work)


@case("pg8000: values and a transaction")
def _():
    import pg8000.native
    c = pg8000.native.Connection(USER, host="127.0.0.1", port=PORT, database=DATABASE)
    c.run("DROP TABLE IF EXISTS c_pg8000")
    c.run("CREATE TABLE c_pg8000 (id int PRIMARY KEY, v text, n numeric(8,3), at timestamptz)")
    c.run("START TRANSACTION")
    at = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    c.run("INSERT INTO c_pg8000 VALUES (:a, :b, :c, :d)", a=1, b="x", c=decimal.Decimal("1.500"), d=at)
    c.run("COMMIT")
    same(c.run("SELECT * FROM c_pg8000 WHERE id = :a", a=1), [[1, "x", decimal.Decimal("1.500"), at]])
    same(c.run("SELECT id FROM c_pg8000 WHERE id = ANY(:a)", a=[1, 2]), [[1]])
    c.close()


@case("pg8000: prepared statements and errors")
def _():
    import pg8000.native
    c = pg8000.native.Connection(USER, host="127.0.0.1", port=PORT, database=DATABASE)
    statement = c.prepare("SELECT CAST(:x AS int) * 2")
    same([statement.run(x=n) for n in (1, 2)], [[[2]], [[4]]])
    statement.close()
    fails("22P02", c.run, "SELECT 'x'::int")
    same(c.run("SELECT 1"), [[1]])
    c.close()
