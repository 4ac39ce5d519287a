//! Statements of PostgreSQL, translated and run on SQLite: what they give, and what is refused.

mod generated;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use sql::dialect::{Kind, PresentTables, Translated, statements, translate};
use sql::error::SqlError;
use sql::functions::Sources;
use sql::types::PgType;

pub struct Database(Connection);

/// What a statement has given.
#[derive(Debug, PartialEq)]
struct Outcome {
    columns: Vec<(String, PgType)>,
    rows: Vec<String>,
    kind: Kind,
}

impl Database {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        let fill = |bytes: &mut [u8]| bytes.fill(7);
        sql::functions::register(&connection, Sources { now_us: || 1_767_323_045_000_000, fill }).unwrap();
        sql::catalog::register(&connection).unwrap();
        Database(connection)
    }

    fn translate(&self, text: &str, types: &[Option<PgType>]) -> Result<Vec<Translated>, SqlError> {
        let tables = PresentTables::new(&self.0, None);
        let parsed = statements(text)?;
        assert_eq!(parsed.len(), 1, "{text}");
        translate(&parsed[0], &tables, types)
    }

    /// Runs statements with parameters for the last one.
    fn run(&self, text: &str, values: &[Value]) -> Result<Outcome, String> {
        let mut last = Err("nothing was run".to_owned());
        for statement in statements(text).map_err(|error| format!("{} {}", error.code, error.message))? {
            let tables = PresentTables::new(&self.0, None);
            let parts = translate(&statement, &tables, &[]);
            let parts = parts.map_err(|error| format!("{} {}", error.code, error.message))?;
            self.0.execute_batch("SAVEPOINT one").unwrap();
            for part in parts {
                match self.part(&part, values) {
                    Ok(outcome) => last = Ok(outcome),
                    Err(error) => {
                        self.0.execute_batch("ROLLBACK TO one; RELEASE one").unwrap();
                        return Err(format!("{error}\n{}", part.sql));
                    }
                }
            }
            if let Err(error) = self.0.execute_batch("RELEASE one") {
                self.0.execute_batch("ROLLBACK TO one; RELEASE one").unwrap();
                return Err(error.to_string());
            }
        }
        last
    }

    fn part(&self, part: &Translated, values: &[Value]) -> rusqlite::Result<Outcome> {
        let columns = part.columns.clone().unwrap_or_default();
        let mut outcome = Outcome { columns, rows: Vec::new(), kind: part.kind.clone() };
        if part.sql.is_empty() {
            return Ok(outcome);
        }
        let mut statement = self.0.prepare(&part.sql)?;
        let used = &values[..statement.parameter_count()];
        let width = statement.column_count();
        let mut rows = statement.query(params_from_iter(used))?;
        while let Some(row) = rows.next()? {
            let cells = (0..width).map(|at| row.get(at).map(shown)).collect::<rusqlite::Result<Vec<_>>>()?;
            outcome.rows.push(cells.join("|"));
        }
        Ok(outcome)
    }

    /// The rows of the last statement.
    fn rows(&self, text: &str) -> Vec<String> {
        self.rows_with(text, &[])
    }

    fn rows_with(&self, text: &str, values: &[Value]) -> Vec<String> {
        self.run(text, values).unwrap_or_else(|error| panic!("{text}: {error}")).rows
    }

    /// The first value.
    fn value(&self, text: &str) -> String {
        self.rows(text).into_iter().next().unwrap_or_else(|| panic!("{text}: no row"))
    }

    /// The code of the error.
    fn code(&self, text: &str) -> String {
        match self.run(text, &[]) {
            Err(error) => {
                let code = error.split_whitespace().next().unwrap_or("");
                code.trim_end_matches(':').to_owned()
            }
            Ok(outcome) => panic!("{text}: {outcome:?}"),
        }
    }

    fn columns(&self, text: &str) -> Vec<(String, PgType)> {
        let parts = self.translate(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        parts.last().and_then(|part| part.columns.clone()).unwrap_or_default()
    }

    fn parameters(&self, text: &str) -> Vec<PgType> {
        let parts = self.translate(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        parts[0].parameters.clone()
    }

    fn sql(&self, text: &str) -> String {
        let parts = self.translate(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        parts.iter().map(|part| part.sql.as_str()).collect::<Vec<_>>().join("; ")
    }
}

fn shown(value: Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{bytes:?}"),
    }
}

fn library() -> Database {
    let database = Database::new();
    database.rows(LIBRARY);
    database
}

/// Authors and books.
const LIBRARY: &str = "create table author (id serial primary key, name varchar(50) not null unique, born date);
         create table book (id bigserial, title text not null, price numeric(10,2), author int references author(id)
             on delete cascade, ok boolean default true, at timestamptz default now(), data jsonb, primary key (id));
         insert into author (name, born) values ('Ann', '1970-01-02'), ('Bob', NULL), ('Cy', '1950-05-06');
         insert into book (title, price, author, ok, at) values ('A', 12.50, 1, 't', '2026-01-02 00:00:00+00'),
             ('b', 3, 1, false, '2026-01-03 00:00:00+00'), ('C', NULL, 2, DEFAULT, DEFAULT)";

#[test]
fn selects_have_the_names_and_types_of_postgresql() {
    let database = library();
    let columns = database.columns("select 1+1, 'a'||'b', 1.5*2, 1=1, count(*), max(title) as m from book");
    let expected = [
        ("?column?", PgType::Int4),
        ("?column?", PgType::Text),
        ("?column?", PgType::Double),
        ("?column?", PgType::Bool),
        ("count", PgType::Int8),
        ("m", PgType::Text),
    ];
    assert_eq!(columns, expected.map(|(name, of)| (name.to_owned(), of)));
    assert_eq!(database.rows("select 1+1, 'a'||'b', 1.5*2, 1=1"), ["2|ab|3.0|1"]);
    let columns = database.columns("select * from book where id = $1");
    let types: Vec<PgType> = columns.iter().map(|(_, of)| *of).collect();
    let numeric = PgType::Numeric { precision: 10, scale: 2 };
    let (i, l, t) = (PgType::Int4, PgType::Int8, PgType::Text);
    assert_eq!(types, [l, t, numeric, i, PgType::Bool, PgType::Timestamptz, PgType::Jsonb]);
    let names =
        |text: &str| database.columns(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",");
    assert_eq!(
        names("select case when true then 1 end, coalesce(1, 2), lower('A'), '1'::int"),
        "case,coalesce,lower,int4"
    );
    assert_eq!(
        names("select id::text, extract(year from at), exists (select 1) from book"),
        "id,extract,exists"
    );
}

#[test]
fn parameters_have_the_types_of_what_they_meet() {
    let database = library();
    assert_eq!(
        database.parameters("select id, title from book where id = $1 and ok = $2"),
        [PgType::Int8, PgType::Bool]
    );
    let insert = "insert into book (title, price, at, author) values ($1, $2, $3, $4) returning id";
    let numeric = PgType::Numeric { precision: 10, scale: 2 };
    assert_eq!(database.parameters(insert), [PgType::Text, numeric, PgType::Timestamptz, PgType::Int4]);
    assert_eq!(
        database.parameters("select * from book where author = any($1) limit $2"),
        [PgType::Int4Array, PgType::Int8]
    );
    assert_eq!(database.parameters("update author set name = $1, born = $2 where id in ($3, $4)").len(), 4);
    assert_eq!(database.parameters("select $1::int + $2"), [PgType::Int4, PgType::Int4]);
    assert_eq!(database.parameters("select $1"), [PgType::Text]);
    let given =
        database.translate("insert into author (id, name) values ($1, $2)", &[Some(PgType::Int8)]).unwrap();
    assert!(given[0].sql.contains("cast_int4(?1)"), "{}", given[0].sql);
}

#[test]
fn what_needs_no_conversion_has_none() {
    let database = library();
    assert_eq!(
        database.sql("select title from book where id = $1"),
        "SELECT \"book\".\"title\" AS \"title\" FROM \"book\" WHERE \"book\".\"id\" = ?1"
    );
    let sql = database.sql("insert into author (id, name) values (7, $1)");
    assert_eq!(sql, "INSERT INTO \"author\" (\"id\", \"name\") VALUES (7, assign_varchar(?1, 50))");
    let sql = database.sql("update book set author = author + $1 where id = $2");
    assert!(
        sql.contains("\"author\" = cast_int4(\"book\".\"author\" + ?1) WHERE \"book\".\"id\" = ?2"),
        "{sql}"
    );
}

#[test]
fn values_are_converted_or_refused() {
    let database = library();
    assert_eq!(
        database.rows("select ok, price, at from book order by id limit 1"),
        ["1|12.5|2026-01-02 00:00:00+00"]
    );
    assert_eq!(database.code("insert into book (title, ok) values ('x', 'maybe')"), "22P02");
    assert_eq!(database.code("insert into book (title, author) values ('x', true)"), "42804");
    assert!(database.run("insert into author (name) values (repeat('x', 51))", &[]).is_err());
    assert!(database.run("insert into book (title, author) values ('x', 'abc')", &[]).is_err());
    assert_eq!(database.code("select 'a' from book where id = true"), "42883");
    assert_eq!(database.code("select 1 where 1"), "42804");
}

#[test]
fn ids_are_given_and_keys_are_not_invented() {
    let database = library();
    assert_eq!(database.rows("insert into author (name) values ('D') returning id, name"), ["4|D"]);
    assert!(database.run("insert into author (id, name) values (NULL, 'E')", &[]).is_err());
    database.rows("create table plain (id int primary key, v text)");
    assert_eq!(database.code("insert into plain (v) values ('x')"), "23502");
    assert!(database.run("insert into plain values (NULL, 'x')", &[]).is_err());
    assert!(database.run("insert into plain select NULL, 'x'", &[]).is_err());
    assert_eq!(database.rows("insert into plain values (1) returning *"), ["1|NULL"]);
    assert_eq!(database.code("create table s (id serial, v text)"), "0A000");
    database.rows("create table two (a text, b int generated by default as identity, primary key (b))");
    assert_eq!(database.rows("insert into two (a) values ('x'), ('y') returning b"), ["1", "2"]);
}

#[test]
fn meaning_is_that_of_postgresql_where_sqlite_differs() {
    let database = library();
    assert_eq!(database.rows("select name from author order by born"), ["Cy", "Ann", "Bob"]);
    assert_eq!(database.rows("select name from author order by born desc, 1"), ["Bob", "Ann", "Cy"]);
    assert_eq!(database.rows("select title from book where title like 'B%'"), Vec::<String>::new());
    assert_eq!(database.rows("select title from book where title ilike 'B%'"), ["b"]);
    assert_eq!(database.value("select greatest(1, NULL, 3)"), "3");
    assert_eq!(database.value("select 7 / 2, -7 / 2"), "3|-3");
    assert!(database.run("select 1 / (1 - 1)", &[]).is_err());
    assert!(database.run("select (select id from author)", &[]).is_err());
    assert_eq!(database.value("select (select name from author where id = 1)"), "Ann");
    assert_eq!(database.code("select name, count(*) from author"), "42803");
    assert_eq!(
        database.rows(
            "select a.name, count(b.id) from author a left join book b on b.author = a.id \
                              group by a.id order by 1"
        ),
        ["Ann|2", "Bob|1", "Cy|0"]
    );
    assert_eq!(
        database.code("select a.name, b.title from author a join book b on true group by a.id"),
        "42803"
    );
    assert_eq!(database.code("select price * 2 from book"), "0A000");
    assert_eq!(database.code("select sum(price) from book"), "0A000");
    assert_eq!(database.value("select max(price), count(price) from book"), "12.5|2");
}

#[test]
fn queries_of_drivers_and_mappers_pass() {
    let database = library();
    let rows = database.rows(
        "INSERT INTO book (title, price, author) SELECT p0::VARCHAR, p1::NUMERIC(10, 2), p2::INTEGER FROM \
         (VALUES ('x'::VARCHAR, 1.5::NUMERIC(10, 2), 1::INTEGER, 0), \
         ('y', 2, 2, 1)) AS imp_sen(p0, p1, p2, sen_counter) \
         ORDER BY sen_counter RETURNING book.id, book.id AS id__1",
    );
    assert_eq!(rows, ["4|4", "5|5"]);
    database.rows("insert into author (name) values ('Ann') on conflict do nothing");
    database.rows(
        "insert into author (name) values ('Ann') on conflict (name) do update set born = excluded.born",
    );
    assert_eq!(database.value("select born from author where id = 1"), "NULL");
    assert_eq!(database.value("select count(*) from book where id = any(array[1, 2])"), "2");
    let list = [Value::Text("[1,3]".to_owned())];
    assert_eq!(
        database.rows_with("select title from book where id = any($1) order by id", &list),
        ["A", "C"]
    );
    assert_eq!(database.value("select pg_catalog.version()"), sql::catalog::VERSION);
    assert_eq!(database.rows("select * from (values (1, 'a'), (2, 'b')) as t(x, y) where x > 1"), ["2|b"]);
    assert_eq!(
        database.rows(
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select * from r"
        ),
        ["1", "2", "3"]
    );
    assert_eq!(database.rows("select x from generate_series(1, 5, 2) as x"), ["1", "3", "5"]);
    assert_eq!(
        database.rows("select name, row_number() over (order by id desc) from author order by id limit 1"),
        ["Ann|3"]
    );
    assert_eq!(
        database.rows(
            "delete from book using author where book.author = author.id and author.name = 'Bob' \
                              returning title"
        ),
        ["C", "y"]
    );
    assert_eq!(
        database.rows(
            "update book set title = a.name from author a where a.id = book.author and book.id = 1 \
                              returning book.title"
        ),
        ["Ann"]
    );
}

#[test]
fn sessions_are_told_by_kind() {
    let database = library();
    let kind = |text: &str| {
        database.translate(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"))[0].kind.clone()
    };
    assert_eq!(kind("begin isolation level repeatable read"), Kind::Begin { is_read_only: false });
    assert_eq!(kind("START TRANSACTION READ ONLY"), Kind::Begin { is_read_only: true });
    assert_eq!(kind("end"), Kind::Commit { is_chained: false });
    assert_eq!(kind("abort"), Kind::Rollback { is_chained: false });
    assert_eq!(kind("rollback to savepoint a"), Kind::RollbackTo("a".to_owned()));
    assert_eq!(kind("release s"), Kind::Release("s".to_owned()));
    assert_eq!(kind("discard all"), Kind::DiscardAll);
    let set = |name: &str, value: Option<&str>| Kind::Set {
        name: name.to_owned(),
        value: value.map(str::to_owned),
        is_local: false,
    };
    assert_eq!(kind("set extra_float_digits = 3"), set("extra_float_digits", Some("3")));
    assert_eq!(kind("SET TIME ZONE 'UTC'"), set("timezone", Some("UTC")));
    assert_eq!(kind("set client_encoding to default"), set("client_encoding", None));
    assert_eq!(
        kind("show transaction isolation level"),
        Kind::Show(Some("transaction_isolation".to_owned()))
    );
    let fetch = Kind::Fetch { name: "c".to_owned(), count: Some(10), is_move: false };
    assert_eq!(kind("fetch forward 10 from c"), fetch);
    assert_eq!(kind("fetch 10 in c"), fetch);
    assert_eq!(kind("move all from c"), Kind::Fetch { name: "c".to_owned(), count: None, is_move: true });
    assert_eq!(
        kind("declare c cursor with hold for select 1"),
        Kind::Declare { name: "c".to_owned(), is_held: true }
    );
    assert_eq!(kind("close all"), Kind::CloseCursor(None));
    assert!(matches!(kind("copy book(id, title) from stdin"), Kind::CopyIn(_)));
    assert!(
        matches!(kind("copy (select 1) to stdout with (format csv, header)"), Kind::CopyOut(format) if format.is_csv)
    );
    assert_eq!(database.code("prepare p as select 1"), "0A000");
    assert_eq!(database.code("listen x"), "0A000");
}

#[test]
fn errors_have_their_place() {
    let error = statements("select 1;\nselect a b c from d").unwrap_err();
    assert_eq!((error.code.as_str(), error.position), ("42601", Some(22)));
    assert_eq!(statements("selec 1").unwrap_err().code, "42601");
    assert_eq!(statements(" ; -- nothing\n ;").unwrap().len(), 0);
    let deep = format!("select {}1{}", "(".repeat(500), ")".repeat(500));
    assert_eq!(statements(&deep).unwrap_err().code, "54001");
    let long = format!("select 1{}", " + 1".repeat(5000));
    assert_eq!(statements(&long).unwrap_err().code, "54001");
}

#[test]
fn tables_are_altered_with_their_rows() {
    let database = library();
    database.rows("alter table book add column pages int not null default 7");
    database.rows("alter table book add column seen timestamptz default now() not null");
    assert_eq!(database.value("select pages, seen from book where id = 1"), "7|2026-01-02 03:04:05+00");
    database.rows("alter table author add constraint long check (length(name) >= 2)");
    assert!(database.run("insert into author (name) values ('X')", &[]).is_err());
    assert!(database.run("alter table author add constraint none check (length(name) > 2)", &[]).is_err());
    database.rows("alter table author drop constraint long");
    database.rows("insert into author (name) values ('X')");
    database.rows("alter table author alter column name drop not null, alter column name set not null");
    assert_eq!(database.code("alter table author alter column born set not null"), "23502");
}

#[test]
fn tables_are_altered_as_django_does() {
    let database = library();
    database.rows(
        "create table ct (id integer not null primary key generated by default as identity, name varchar(100) not null);
         create table perm (id serial primary key, ct_id integer not null, code varchar(10) not null);
         insert into ct (name) values ('a'); insert into perm (ct_id, code) values (1, 'x');
         ALTER TABLE \"perm\" ADD CONSTRAINT \"perm_ct_code_uniq\" UNIQUE (\"ct_id\", \"code\");
         ALTER TABLE \"perm\" ADD CONSTRAINT \"perm_ct_fk\" FOREIGN KEY (\"ct_id\") REFERENCES \"ct\" (\"id\")
             DEFERRABLE INITIALLY DEFERRED;
         CREATE INDEX \"perm_like\" ON \"perm\" (\"code\" varchar_pattern_ops);
         ALTER TABLE \"ct\" ALTER COLUMN \"name\" DROP NOT NULL;
         ALTER TABLE \"perm\" ALTER COLUMN \"code\" TYPE varchar(255) USING \"code\"::varchar(255)",
    );
    assert!(database.run("insert into perm (ct_id, code) values (1, 'x')", &[]).is_err());
    assert!(database.run("insert into perm (ct_id, code) values (9, 'y')", &[]).is_err());
    database.rows("ALTER TABLE \"ct\" DROP COLUMN \"name\" CASCADE");
    assert_eq!(database.rows("select * from ct"), ["1"]);
    assert_eq!(database.code("drop table ct"), "2BP01");
    database.rows("alter table perm drop constraint perm_ct_fk");
    database.rows("insert into perm (ct_id, code) values (9, 'y')");
    let add = "alter table perm add foreign key (ct_id) references ct (id)";
    assert!(database.run(add, &[]).is_err_and(|error| error.starts_with("23503")));
    database.rows("alter table perm drop constraint perm_ct_code_uniq");
    database.rows("alter table perm alter column code type int using length(code)");
    assert_eq!(database.columns("select code from perm"), [("code".to_owned(), PgType::Int4)]);
    database.rows("alter table perm drop column ct_id");
    database.rows("alter table perm rename column code to size; alter table perm rename to perms");
    assert_eq!(database.rows("select size from perms order by id"), ["1", "1"]);
    assert_eq!(
        database.0.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(),
        "ok"
    );
}

#[test]
fn tables_are_made_and_dropped_as_pgbench_does() {
    let database = Database::new();
    database.rows(
        "drop table if exists pgbench_accounts, pgbench_branches;
         create table pgbench_branches(bid int not null, bbalance int, filler char(88)) with (fillfactor=100);
         create table pgbench_accounts(aid int not null, bid int, abalance int, filler char(84)) with (fillfactor=100);
         truncate table pgbench_accounts, pgbench_branches;
         insert into pgbench_branches(bid, bbalance) values (1, 0);
         insert into pgbench_accounts select aid, 1, 0, '' from generate_series(1, 20) as aid;
         alter table pgbench_branches add primary key (bid);
         alter table pgbench_accounts add primary key (aid);
         alter table pgbench_accounts add constraint a foreign key (bid) references pgbench_branches;
         vacuum analyze pgbench_accounts",
    );
    let sql = database.sql("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2");
    assert_eq!(
        sql,
        "UPDATE \"pgbench_accounts\" SET \"abalance\" = cast_int4(\"pgbench_accounts\".\"abalance\" + ?1) \
                     WHERE \"pgbench_accounts\".\"aid\" = ?2"
    );
    assert!(database.run("insert into pgbench_accounts values (1)", &[]).is_err());
    assert_eq!(database.code("truncate pgbench_branches"), "0A000");
    database.rows("truncate pgbench_branches cascade; drop table pgbench_branches, pgbench_accounts");
}

#[test]
fn views_and_tables_of_queries_keep_their_types() {
    let database = library();
    database.rows(
        "create view v (a, b) as select id, at from book where ok;
         create table c as select at, price from book",
    );
    let columns = database.columns("select * from v");
    assert_eq!(columns, [("a".to_owned(), PgType::Int8), ("b".to_owned(), PgType::Timestamptz)]);
    assert_eq!(database.columns("select at from c")[0].1, PgType::Timestamptz);
    database.rows("create or replace view v as select name from author");
    assert_eq!(database.rows("select * from v order by name desc limit 1"), ["Cy"]);
    database.rows("create view w as select name from v");
    assert_eq!(database.code("drop table author, book"), "2BP01");
    assert_eq!(database.code("drop view v"), "2BP01");
    assert_eq!(database.code("alter table author alter column name type text"), "0A000");
    database.rows("drop view v cascade; drop view if exists v");
    assert_eq!(database.code("select * from w"), "42P01");
    assert_eq!(database.code("select 'now'::timestamptz"), "0A000");
}

#[test]
fn a_table_is_dropped_with_the_foreign_keys_to_it() {
    let database = library();
    assert_eq!(database.code("drop table author"), "2BP01");
    database.rows("drop table author cascade");
    assert_eq!(database.value("insert into book (title, author) values ('q', 99) returning author"), "99");
    database.rows(
        "create table a (id int primary key, b int);
         create table b (id int primary key, a int references a deferrable initially deferred);
         alter table a add foreign key (b) references b deferrable initially deferred",
    );
    database
        .0
        .execute_batch("BEGIN; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1); COMMIT")
        .unwrap();
    database.rows("drop table a, b");
    assert_eq!(database.code("select 1 from a"), "42P01");
}

#[test]
fn the_catalogue_is_a_table_like_others() {
    let database = library();
    for from in ["pg_class", "pg_catalog.pg_class", "pg_class as pg_class"] {
        assert_eq!(
            database.rows(&format!("select relname from {from} where relkind = 'r' order by 1")),
            ["author", "book"]
        );
    }
    assert_eq!(database.columns("select oid, relname from pg_class")[0].1, PgType::Oid);
    let of_psql = "SELECT c.oid, c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) \
                   '^(author)$' COLLATE pg_catalog.default AND c.relkind = ANY (ARRAY['r', 'v'])";
    assert_eq!(database.rows(of_psql).len(), 1);
    assert_eq!(
        database.value("select 'book'::regclass::oid, c.oid = 'book'::regclass from pg_class c limit 1"),
        "32768|0"
    );
    assert_eq!(database.code("select * from pg_nothing"), "42P01");
    assert_eq!(database.code("select * from sqlite_sequence"), "42P01");
    assert_eq!(database.code("delete from sqlite_sequence"), "42939");
}

#[test]
fn arrays_and_json_are_taken_apart() {
    let database = library();
    database.rows("update book set data = '[1, \"x\", true]' where id = 1");
    assert_eq!(database.rows("select unnest(array[3, 4]) as u"), ["3", "4"]);
    assert_eq!(
        database.rows("select * from unnest(array['a', 'b']) with ordinality as z (p, q)"),
        ["a|1", "b|2"]
    );
    let both = [Value::Text("[\"a\",\"b\"]".to_owned()), Value::Text("[1,2]".to_owned())];
    assert_eq!(
        database.rows_with("select p, q from unnest($1::text[], $2::int[]) as z (p, q)", &both),
        ["a|1", "b|2"]
    );
    let elements = "select x, x.value from book, jsonb_array_elements_text(data) as x where id = 1";
    assert_eq!(database.rows(elements), ["1|1", "x|x", "true|true"]);
    assert_eq!(
        database.value("select array(select name from author order by 1)"),
        "[\"Ann\",\"Bob\",\"Cy\"]"
    );
}

#[test]
fn moments_are_compared_and_moved() {
    let database = library();
    assert!(database.sql("select 1 from book where at > $1").ends_with("WHERE \"book\".\"at\" > ?1"));
    let sql = database.sql("select 1 from book where at = $1::timestamp");
    assert!(sql.ends_with("WHERE \"book\".\"at\" = cast_timestamptz(?1)"), "{sql}");
    let sql = database.sql("select at + interval '1 month 2 days -03:00', at - '1 hour'::interval from book");
    assert!(sql.contains("add_interval_pg(\"book\".\"at\", 1, 2, -10800000000)"), "{sql}");
    assert!(sql.contains("add_interval_pg(\"book\".\"at\", 0, 0, -3600000000)"), "{sql}");
    assert_eq!(database.value("select born - date '1970-01-01' from author where id = 1"), "1");
    for text in ["select at - at from book", "select interval '1 day'"] {
        assert_eq!(database.code(text), "0A000", "{text}");
    }
    assert_eq!(database.code("select at + interval '1 fortnight' from book"), "22007");
}

#[test]
fn documents_are_searched() {
    let database = library();
    for (condition, expected) in [
        ("'{\"a\": 1, \"b\": [2]}'::jsonb @> '{\"b\": [2]}'", "1"),
        ("'{\"a\": 1}'::jsonb <@ '{\"a\": 1, \"b\": 2}'", "1"),
        ("'{\"a\": 1}'::jsonb @> '{\"a\": 2}'", "0"),
        ("'{\"a\": 1}'::jsonb ? 'a'", "1"),
        ("'{\"a\": 1}'::jsonb ? 'b'", "0"),
    ] {
        assert_eq!(database.value(&format!("select {condition}")), expected, "{condition}");
    }
    assert_eq!(database.code("select title ? 'a' from book"), "42883");
}

/// In a condition, too: SQLite's own sum would be a real number.
#[test]
fn sums_that_leave_the_range_are_errors() {
    let database = library();
    for text in [
        "select 1 where 9223372036854775807::bigint + 1::bigint > 0",
        "select 1 where (-9223372036854775807)::bigint - 2::bigint < 0",
        "select 1 where 9223372036854775807::bigint * 2::bigint > 0",
    ] {
        let Err(error) = database.run(text, &[]) else { panic!("{text} has a result") };
        assert!(error.contains("22003"), "{text}: {error}");
    }
}

/// Each is refused, and says what to do.
#[test]
fn what_is_not_supported_is_refused_with_a_remedy() {
    let database = library();
    let refused = [
        "select distinct on (id) * from book",
        "select * from author a, lateral (select 1) as x",
        "select name from author group by rollup (name)",
        "with x as (delete from book returning *) select * from x",
        "select * from book where title ~ '^[a-z]+$'",
        "select price + 1 from book",
        "select avg(price) from book",
        "select data #> '{a}' from book",
        "select currval('s')",
        "select sum(id) over (partition by ok order by at rows unbounded preceding exclude ties) from book",
        "create table x (a interval)",
        "create table x (a int[])",
        "create table x (a numeric)",
        "create table x (a numeric(20, 2))",
        "create table x (a int generated always as (1) stored)",
        "create table x (like author)",
        "create temporary table x (a int)",
        "create materialized view x as select 1",
        "create index on book using gin (data)",
        "create unique index on author (born) nulls not distinct",
        "create sequence s maxvalue 5",
        "create function f() returns int as 'select 1' language sql",
        "alter table author alter id add generated always as identity",
        "alter table author drop constraint author_pkey",
        "copy author from '/tmp/x'",
        "fetch backward 1 from c",
        "explain analyze select 1",
        "merge into author using book on true when matched then delete",
        "grant select on author to x",
        "notify x",
    ];
    for text in refused {
        let parsed = statements(text);
        let Ok(parsed) = parsed else { continue };
        let tables = PresentTables::new(&database.0, None);
        let error = translate(&parsed[0], &tables, &[]).expect_err(text);
        assert_eq!(error.code, "0A000", "{text}: {error:?}");
        assert!(error.hint.is_some(), "{text}: {error:?}");
    }
}
