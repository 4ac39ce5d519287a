//! Questions that clients ask, as they are translated, and what PostgreSQL 15 answers to them about the same tables.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::*;
use crate::functions::{self, Sources};
use crate::values::{Format, to_result};

const TABLES: &str = "
    CREATE TABLE author(id integer PRIMARY KEY, name varchar(50) NOT NULL UNIQUE, bio text DEFAULT 'x');
    CREATE TABLE book(id bigint PRIMARY KEY NOT NULL, title text NOT NULL, price numeric(10,2),
      author_id bigint REFERENCES author(id) ON DELETE CASCADE, ok boolean DEFAULT 1,
      at timestamptz DEFAULT (now_pg()), UNIQUE(title, author_id));
    CREATE INDEX book_title ON book(title DESC, lower_pg(title)) WHERE price > 0;
    CREATE VIEW cheap AS SELECT id, title FROM book WHERE price < 10;
    CREATE TABLE pair(a bigint, b bigint, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE TABLE ref(x bigint, y bigint, tags text[], FOREIGN KEY(x, y) REFERENCES pair,
      FOREIGN KEY(x, y) REFERENCES pair);
    CREATE TABLE crosscheck_internal_x(a);
";

fn connection() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("PRAGMA trusted_schema = OFF").unwrap();
    functions::register(&connection, Sources { now_us: || 0, fill: |_| {} }).unwrap();
    register(&connection).unwrap();
    connection.execute_batch(TABLES).unwrap();
    connection
}

/// Puts in what a translation does: tables of the catalogue as queries, and expressions for calls.
fn translated(sql: &str) -> String {
    let mut out = sql.to_owned();
    for ((name, count), text) in EXPRESSIONS.iter() {
        while let Some(at) = out.find(&format!("{name}(")) {
            let end = at + out[at..].find(')').unwrap();
            let arguments: Vec<&str> = out[at + name.len() + 1..end].split(',').collect();
            if arguments.len() != *count {
                break;
            }
            let mut call = text.clone();
            for (at, argument) in arguments.iter().enumerate() {
                call = call.replace(&format!("?{}", at + 1), argument);
            }
            out.replace_range(at..=end, &call);
        }
    }
    let used = |name: &str| {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        out.match_indices(name).any(|(at, _)| !out[at + name.len()..].starts_with(is_word))
    };
    let mut tables = Vec::new();
    for (schema, name) in names() {
        let known = if schema == "pg_catalog" { name.to_owned() } else { format!("{schema}_{name}") };
        if used(&known) {
            let select = relation(Some(schema), name).unwrap().select;
            tables.push(format!("{known} AS MATERIALIZED ({select})"));
        }
    }
    if tables.is_empty() { out } else { format!("WITH {} {out}", tables.join(", ")) }
}

fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&translated(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let count = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut out = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let value = |at| match row.get_ref(at).unwrap() {
            ValueRef::Null => "NULL".to_owned(),
            value => {
                let mut text = Vec::new();
                to_result(value, PgType::Text, Format::Text, &mut text).unwrap();
                String::from_utf8(text).unwrap()
            }
        };
        out.push((0..count).map(value).collect::<Vec<_>>().join("|"));
    }
    out
}

type Case = (&'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "tables, views and indexes",
        "SELECT relname, relkind, relhasindex, relnatts, relam FROM pg_class WHERE relnamespace = 2200 \
         ORDER BY 1",
        &[
            "author|r|1|3|2",
            "author_name_key|i|0|1|403",
            "author_pkey|i|0|1|403",
            "book|r|1|6|2",
            "book_pkey|i|0|1|403",
            "book_title|i|0|2|403",
            "book_title_author_id_key|i|0|2|403",
            "cheap|v|0|2|0",
            "pair|r|1|2|2",
            "pair_pkey|i|0|2|403",
            "ref|r|0|3|2",
        ],
    ),
    (
        "psql: \\d",
        "SELECT n.nspname, c.relname, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END, \
         am.amname FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am am \
         ON am.oid = c.relam WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', '') AND n.nspname <> \
         'pg_catalog' AND NOT regexp_pg(n.nspname, '^pg_toast') AND n.nspname <> 'information_schema' AND \
         pg_table_is_visible(c.oid) ORDER BY 1, 2",
        &[
            "public|author|table|heap",
            "public|book|table|heap",
            "public|cheap|view|NULL",
            "public|pair|table|heap",
            "public|ref|table|heap",
        ],
    ),
    (
        "psql: columns of \\d book",
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), (SELECT pg_get_expr(d.adbin, d.adrelid, \
         1) FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), \
         a.attnotnull, (SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation AND \
         t.oid = a.atttypid AND a.attcollation <> t.typcollation), a.attidentity, a.attgenerated FROM \
         pg_attribute a WHERE a.attrelid = (regclass_in('book')) AND a.attnum > 0 AND NOT a.attisdropped \
         ORDER BY a.attnum",
        &[
            "id|bigint|NULL|1|NULL||",
            "title|text|NULL|1|NULL||",
            "price|numeric(10,2)|NULL|0|NULL||",
            "author_id|bigint|NULL|0|NULL||",
            "ok|boolean|true|0|NULL||",
            "at|timestamp with time zone|now()|0|NULL||",
        ],
    ),
    (
        "psql: indexes of \\d book",
        "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, \
         pg_get_indexdef(i.indexrelid,0,1), pg_get_constraintdef(con.oid,1), contype, condeferrable, \
         condeferred, i.indisreplident, c2.reltablespace FROM pg_class c, pg_class c2, pg_index i LEFT \
         JOIN pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p', \
         'u', 'x')) WHERE c.oid = (regclass_in('book')) AND c.oid = i.indrelid AND i.indexrelid = c2.oid \
         AND i.indpred IS NULL ORDER BY i.indisprimary DESC, c2.relname",
        &[
            "book_pkey|1|1|0|1|CREATE UNIQUE INDEX book_pkey ON public.book USING btree (id)|PRIMARY KEY \
             (id)|p|0|0|0|0",
            "book_title_author_id_key|0|1|0|1|CREATE UNIQUE INDEX book_title_author_id_key ON public.book \
             USING btree (title, author_id)|UNIQUE (title, author_id)|u|0|0|0|0",
        ],
    ),
    (
        "psql: who refers to author",
        "SELECT conname, (regclass_out(conrelid)), pg_get_constraintdef(oid,1) FROM pg_constraint c WHERE \
         confrelid IN (regclass_in('author')) AND contype = 'f' AND conparentid = 0 ORDER BY conname",
        &["book_author_id_fkey|book|FOREIGN KEY (author_id) REFERENCES author(id) ON DELETE CASCADE"],
    ),
    (
        "keys of indexes",
        "SELECT (regclass_out(i.indexrelid)) AS n, indkey, indoption, indisunique, indisprimary, indnatts, \
         indexprs IS NULL FROM pg_index i ORDER BY 1",
        &[
            "author_name_key|[2]|[0]|1|0|1|1",
            "author_pkey|[1]|[0]|1|1|1|1",
            "book_pkey|[1]|[0]|1|1|1|1",
            "book_title|[2,0]|[3,0]|0|0|2|0",
            "book_title_author_id_key|[2,4]|[0,0]|1|0|2|1",
            "pair_pkey|[1,2]|[0,0]|1|1|2|1",
        ],
    ),
    (
        "constraints",
        "SELECT conname, contype, (regclass_out(conrelid)), (regclass_out(conindid)), \
         (regclass_out(confrelid)), conkey, confkey, confdeltype, confupdtype, pg_get_constraintdef(oid) \
         FROM pg_constraint ORDER BY 1",
        &[
            "author_name_key|u|author|author_name_key|-|[2]|NULL| | |UNIQUE (name)",
            "author_pkey|p|author|author_pkey|-|[1]|NULL| | |PRIMARY KEY (id)",
            "book_author_id_fkey|f|book|author_pkey|author|[4]|[1]|c|a|FOREIGN KEY (author_id) REFERENCES \
             author(id) ON DELETE CASCADE",
            "book_pkey|p|book|book_pkey|-|[1]|NULL| | |PRIMARY KEY (id)",
            "book_title_author_id_key|u|book|book_title_author_id_key|-|[2,4]|NULL| | |UNIQUE (title, author_id)",
            "pair_pkey|p|pair|pair_pkey|-|[1,2]|NULL| | |PRIMARY KEY (a, b)",
            "ref_x_y_fkey|f|ref|pair_pkey|pair|[1,2]|[1,2]|a|a|FOREIGN KEY (x, y) REFERENCES pair(a, b)",
            "ref_x_y_fkey1|f|ref|pair_pkey|pair|[1,2]|[1,2]|a|a|FOREIGN KEY (x, y) REFERENCES pair(a, b)",
        ],
    ),
    (
        "columns, of indexes too",
        "SELECT (regclass_out(attrelid)) AS r, attname, format_type(atttypid, atttypmod), attnum, \
         attnotnull, atthasdef, attidentity, attlen, attcollation FROM pg_attribute WHERE attnum > 0 AND \
         attname <> 'expr' ORDER BY 1, 4",
        &[
            "author|id|bigint|1|1|0|d|8|0",
            "author|name|character varying(50)|2|1|0||-1|100",
            "author|bio|text|3|0|1||-1|100",
            "author_name_key|name|character varying(50)|1|0|0||-1|100",
            "author_pkey|id|bigint|1|0|0||8|0",
            "book|id|bigint|1|1|0||8|0",
            "book|title|text|2|1|0||-1|100",
            "book|price|numeric(10,2)|3|0|0||-1|0",
            "book|author_id|bigint|4|0|0||8|0",
            "book|ok|boolean|5|0|1||1|0",
            "book|at|timestamp with time zone|6|0|1||8|0",
            "book_pkey|id|bigint|1|0|0||8|0",
            "book_title|title|text|1|0|0||-1|100",
            "book_title_author_id_key|title|text|1|0|0||-1|100",
            "book_title_author_id_key|author_id|bigint|2|0|0||8|0",
            "cheap|id|bigint|1|0|0||8|0",
            "cheap|title|text|2|0|0||-1|100",
            "pair|a|bigint|1|1|0||8|0",
            "pair|b|bigint|2|1|0||8|0",
            "pair_pkey|a|bigint|1|0|0||8|0",
            "pair_pkey|b|bigint|2|0|0||8|0",
            "ref|x|bigint|1|0|0||8|0",
            "ref|y|bigint|2|0|0||8|0",
            "ref|tags|text[]|3|0|0||-1|100",
        ],
    ),
    (
        "Django: columns of a table",
        "SELECT a.attname, NOT (a.attnotnull OR (t.typtype = 'd' AND t.typnotnull)), pg_get_expr(ad.adbin, \
         ad.adrelid), CASE WHEN collname = 'default' THEN NULL ELSE collname END, a.attidentity != '', \
         col_description(a.attrelid, a.attnum) FROM pg_attribute a LEFT JOIN pg_attrdef ad ON a.attrelid = \
         ad.adrelid AND a.attnum = ad.adnum LEFT JOIN pg_collation co ON a.attcollation = co.oid JOIN \
         pg_type t ON a.atttypid = t.oid JOIN pg_class c ON a.attrelid = c.oid JOIN pg_namespace n ON \
         c.relnamespace = n.oid WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v') AND c.relname = 'author' AND \
         n.nspname NOT IN ('pg_catalog', 'pg_toast') AND pg_table_is_visible(c.oid) ORDER BY a.attnum",
        &["id|0|NULL|NULL|1|NULL", "name|0|NULL|NULL|0|NULL", "bio|1|'x'::text|NULL|0|NULL"],
    ),
    (
        "Django: constraints of a table",
        "SELECT c.conname, (SELECT json_group_array(ca.attname ORDER BY cols.key) FROM json_each(c.conkey) \
         cols JOIN pg_attribute ca ON cols.value = ca.attnum WHERE ca.attrelid = c.conrelid), c.contype, \
         (SELECT fkc.relname || '.' || fka.attname FROM pg_attribute fka JOIN pg_class fkc ON fka.attrelid \
         = fkc.oid WHERE fka.attrelid = c.confrelid AND fka.attnum = c.confkey ->> 0), cl.reloptions FROM \
         pg_constraint c JOIN pg_class cl ON c.conrelid = cl.oid WHERE cl.relname = 'book' AND \
         pg_table_is_visible(cl.oid) ORDER BY 1",
        &[
            "book_author_id_fkey|[\"author_id\"]|f|author.id|NULL",
            "book_pkey|[\"id\"]|p|NULL|NULL",
            "book_title_author_id_key|[\"title\",\"author_id\"]|u|NULL|NULL",
        ],
    ),
    (
        "Django: indexes of a table",
        "SELECT c2.relname, json_group_array(attr.attname ORDER BY koi.key), idx.indisunique, \
         idx.indisprimary, json_group_array(CASE am.amname WHEN 'btree' THEN CASE ((idx.indoption ->> \
         koi.key) & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END ORDER BY koi.key), am.amname FROM pg_index \
         idx, json_each(idx.indkey) koi LEFT JOIN pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 \
         ON idx.indexrelid = c2.oid LEFT JOIN pg_am am ON c2.relam = am.oid LEFT JOIN pg_attribute attr ON \
         attr.attrelid = c.oid AND attr.attnum = koi.value WHERE c.relname = 'book' AND \
         pg_table_is_visible(c.oid) GROUP BY 1 ORDER BY 1",
        &[
            "book_pkey|[\"id\"]|1|1|[\"ASC\"]|btree",
            "book_title|[\"title\",null]|0|0|[\"DESC\",\"ASC\"]|btree",
            "book_title_author_id_key|[\"title\",\"author_id\"]|1|0|[\"ASC\",\"ASC\"]|btree",
        ],
    ),
    (
        "SQLAlchemy: foreign keys of a table",
        "SELECT r.relname, k.conname, CASE WHEN k.oid IS NOT NULL THEN pg_get_constraintdef(k.oid,1) END, \
         nsp_ref.nspname, d.description FROM pg_class r LEFT JOIN pg_constraint k ON r.oid = k.conrelid \
         AND k.contype = 'f' LEFT JOIN pg_class cls_ref ON cls_ref.oid = k.confrelid LEFT JOIN \
         pg_namespace nsp_ref ON cls_ref.relnamespace = nsp_ref.oid LEFT JOIN pg_description d ON d.objoid \
         = k.oid AND d.classoid = (regclass_in('pg_catalog.pg_constraint')) WHERE r.relkind IN ('r', 'p', \
         'f', 'v', 'm') ORDER BY 1, 2",
        &[
            "author|NULL|NULL|NULL|NULL",
            "book|book_author_id_fkey|FOREIGN KEY (author_id) REFERENCES author(id) ON DELETE CASCADE|public|NULL",
            "cheap|NULL|NULL|NULL|NULL",
            "pair|NULL|NULL|NULL|NULL",
            "ref|ref_x_y_fkey|FOREIGN KEY (x, y) REFERENCES pair(a, b)|public|NULL",
            "ref|ref_x_y_fkey1|FOREIGN KEY (x, y) REFERENCES pair(a, b)|public|NULL",
        ],
    ),
    (
        "SQLAlchemy: primary keys",
        "SELECT con.conname, json_group_array(a.attname ORDER BY con.ord), \
         bool_and(con.indnullsnotdistinct) FROM pg_attribute a JOIN (SELECT k.conrelid, k.conname, u.value \
         AS attnum, u.key AS ord, i.indnullsnotdistinct FROM pg_constraint k JOIN pg_index i ON k.conindid \
         = i.indexrelid, json_each(i.indkey) u WHERE k.contype = 'p') con ON a.attnum = con.attnum AND \
         a.attrelid = con.conrelid GROUP BY con.conrelid, con.conname ORDER BY 1",
        &["author_pkey|[\"id\"]|0", "book_pkey|[\"id\"]|0", "pair_pkey|[\"a\",\"b\"]|0"],
    ),
    (
        "asyncpg: types",
        "SELECT t.oid, ns.nspname, t.typname, t.typtype, t.typelem, e.typdelim, coalesce(r.rngsubtype, \
         m.rngsubtype) FROM pg_type t JOIN pg_namespace ns ON ns.oid = t.typnamespace LEFT JOIN pg_type e \
         ON t.typlen = -1 AND t.typelem != 0 AND t.typelem = e.oid LEFT JOIN pg_range r ON t.oid = \
         r.rngtypid LEFT JOIN pg_range m ON t.oid = m.rngmultitypid WHERE t.oid IN (23, 1007, 1184, 3802, \
         1009, 22) ORDER BY 1",
        &[
            "22|pg_catalog|int2vector|b|21|,|NULL",
            "23|pg_catalog|int4|b|0|NULL|NULL",
            "1007|pg_catalog|_int4|b|23|,|NULL",
            "1009|pg_catalog|_text|b|25|,|NULL",
            "1184|pg_catalog|timestamptz|b|0|NULL|NULL",
            "3802|pg_catalog|jsonb|b|0|NULL|NULL",
        ],
    ),
    (
        "information_schema.columns",
        "SELECT table_name, column_name, data_type, character_maximum_length, character_octet_length, \
         numeric_precision, numeric_precision_radix, numeric_scale, datetime_precision, udt_name, \
         is_nullable, column_default, is_identity, identity_generation FROM information_schema_columns \
         ORDER BY 1, ordinal_position",
        &[
            "author|id|bigint|NULL|NULL|64|2|0|NULL|int8|NO|NULL|YES|BY DEFAULT",
            "author|name|character varying|50|200|NULL|NULL|NULL|NULL|varchar|NO|NULL|NO|NULL",
            "author|bio|text|NULL|1073741824|NULL|NULL|NULL|NULL|text|YES|'x'::text|NO|NULL",
            "book|id|bigint|NULL|NULL|64|2|0|NULL|int8|NO|NULL|NO|NULL",
            "book|title|text|NULL|1073741824|NULL|NULL|NULL|NULL|text|NO|NULL|NO|NULL",
            "book|price|numeric|NULL|NULL|10|10|2|NULL|numeric|YES|NULL|NO|NULL",
            "book|author_id|bigint|NULL|NULL|64|2|0|NULL|int8|YES|NULL|NO|NULL",
            "book|ok|boolean|NULL|NULL|NULL|NULL|NULL|NULL|bool|YES|true|NO|NULL",
            "book|at|timestamp with time zone|NULL|NULL|NULL|NULL|NULL|6|timestamptz|YES|now()|NO|NULL",
            "cheap|id|bigint|NULL|NULL|64|2|0|NULL|int8|YES|NULL|NO|NULL",
            "cheap|title|text|NULL|1073741824|NULL|NULL|NULL|NULL|text|YES|NULL|NO|NULL",
            "pair|a|bigint|NULL|NULL|64|2|0|NULL|int8|NO|NULL|NO|NULL",
            "pair|b|bigint|NULL|NULL|64|2|0|NULL|int8|NO|NULL|NO|NULL",
            "ref|x|bigint|NULL|NULL|64|2|0|NULL|int8|YES|NULL|NO|NULL",
            "ref|y|bigint|NULL|NULL|64|2|0|NULL|int8|YES|NULL|NO|NULL",
            "ref|tags|ARRAY|NULL|NULL|NULL|NULL|NULL|NULL|_text|YES|NULL|NO|NULL",
        ],
    ),
    (
        "information_schema.tables",
        "SELECT table_schema, table_name, table_type FROM information_schema_tables ORDER BY 2",
        &[
            "public|author|BASE TABLE",
            "public|book|BASE TABLE",
            "public|cheap|VIEW",
            "public|pair|BASE TABLE",
            "public|ref|BASE TABLE",
        ],
    ),
    (
        "information_schema.table_constraints",
        "SELECT constraint_name, table_name, constraint_type, is_deferrable, nulls_distinct FROM \
         information_schema_table_constraints ORDER BY 1",
        &[
            "author_name_key|author|UNIQUE|NO|YES",
            "author_pkey|author|PRIMARY KEY|NO|NULL",
            "book_author_id_fkey|book|FOREIGN KEY|NO|NULL",
            "book_pkey|book|PRIMARY KEY|NO|NULL",
            "book_title_author_id_key|book|UNIQUE|NO|YES",
            "pair_pkey|pair|PRIMARY KEY|NO|NULL",
            "ref_x_y_fkey|ref|FOREIGN KEY|NO|NULL",
            "ref_x_y_fkey1|ref|FOREIGN KEY|NO|NULL",
        ],
    ),
    (
        "information_schema.key_column_usage",
        "SELECT constraint_name, table_name, column_name, ordinal_position, position_in_unique_constraint \
         FROM information_schema_key_column_usage ORDER BY 1, 4",
        &[
            "author_name_key|author|name|1|NULL",
            "author_pkey|author|id|1|NULL",
            "book_author_id_fkey|book|author_id|1|1",
            "book_pkey|book|id|1|NULL",
            "book_title_author_id_key|book|title|1|NULL",
            "book_title_author_id_key|book|author_id|2|NULL",
            "pair_pkey|pair|a|1|NULL",
            "pair_pkey|pair|b|2|NULL",
            "ref_x_y_fkey|ref|x|1|1",
            "ref_x_y_fkey|ref|y|2|2",
            "ref_x_y_fkey1|ref|x|1|1",
            "ref_x_y_fkey1|ref|y|2|2",
        ],
    ),
    (
        "information_schema.referential_constraints",
        "SELECT constraint_name, unique_constraint_name, update_rule, delete_rule, match_option FROM \
         information_schema_referential_constraints ORDER BY 1",
        &[
            "book_author_id_fkey|author_pkey|NO ACTION|CASCADE|NONE",
            "ref_x_y_fkey|pair_pkey|NO ACTION|NO ACTION|NONE",
            "ref_x_y_fkey1|pair_pkey|NO ACTION|NO ACTION|NONE",
        ],
    ),
    (
        "information_schema.constraint_column_usage",
        "SELECT constraint_name, table_name, column_name FROM information_schema_constraint_column_usage \
         ORDER BY 1, 3",
        &[
            "author_name_key|author|name",
            "author_pkey|author|id",
            "book_author_id_fkey|author|id",
            "book_pkey|book|id",
            "book_title_author_id_key|book|author_id",
            "book_title_author_id_key|book|title",
            "pair_pkey|pair|a",
            "pair_pkey|pair|b",
            "ref_x_y_fkey|pair|a",
            "ref_x_y_fkey|pair|b",
            "ref_x_y_fkey1|pair|a",
            "ref_x_y_fkey1|pair|b",
        ],
    ),
    (
        "pg_indexes",
        "SELECT indexname, indexdef FROM pg_indexes WHERE indexname <> 'book_title' ORDER BY 1",
        &[
            "author_name_key|CREATE UNIQUE INDEX author_name_key ON public.author USING btree (name)",
            "author_pkey|CREATE UNIQUE INDEX author_pkey ON public.author USING btree (id)",
            "book_pkey|CREATE UNIQUE INDEX book_pkey ON public.book USING btree (id)",
            "book_title_author_id_key|CREATE UNIQUE INDEX book_title_author_id_key ON public.book USING \
             btree (title, author_id)",
            "pair_pkey|CREATE UNIQUE INDEX pair_pkey ON public.pair USING btree (a, b)",
        ],
    ),
    (
        "pg_tables",
        "SELECT schemaname, tablename, hasindexes, hastriggers FROM pg_tables WHERE tablename = 'ref'",
        &["public|ref|0|0"],
    ),
    (
        "names of relations",
        "SELECT (to_regclass('public.book')) IS NULL, (to_regclass('nothing')), (regclass_out(1259)), \
         (regclass_out(0)), (regclass_in('pg_class')), (regclass_out(99999))",
        &["0|NULL|pg_class|-|1259|99999"],
    ),
];

#[test]
fn clients_get_postgresqls_answers() {
    let connection = connection();
    let mut wrong = Vec::new();
    for (what, sql, expected) in CASES {
        let found = rows(&connection, sql);
        if found != *expected {
            wrong.push(format!("{what}:\n{}\nexpected:\n{}", found.join("\n"), expected.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Each table can be read, has the columns that it says, and values of their types.
#[test]
fn all_tables_have_their_types() {
    let connection = connection();
    for (schema, name) in names() {
        let table = relation(Some(schema), name).unwrap();
        let mut statement =
            connection.prepare(table.select).unwrap_or_else(|error| panic!("{schema}.{name}: {error}"));
        let columns = table.columns.iter().map(|(name, _)| *name);
        assert!(statement.column_names().eq(columns), "{schema}.{name}");
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for (at, (column, of)) in table.columns.iter().enumerate() {
                let value = row.get_ref(at).unwrap();
                if value != ValueRef::Null {
                    let result = to_result(value, *of, Format::Binary, &mut Vec::new());
                    assert!(result.is_ok(), "{schema}.{name}.{column}: {result:?}");
                }
            }
        }
    }
}

#[test]
fn numbers_of_objects_are_their_own() {
    let connection = connection();
    let all = "SELECT oid FROM pg_class UNION ALL SELECT oid FROM pg_constraint UNION ALL SELECT oid FROM pg_attrdef";
    let found = rows(&connection, all);
    let distinct: std::collections::BTreeSet<_> = found.iter().collect();
    assert_eq!(distinct.len(), found.len());
    let before = rows(&connection, "SELECT oid, relname FROM pg_class WHERE relname <> 'ref' ORDER BY 1");
    connection.execute_batch("DROP TABLE ref; CREATE TABLE later(a integer)").unwrap();
    let after = rows(&connection, "SELECT oid, relname FROM pg_class WHERE relname <> 'later' ORDER BY 1");
    assert_eq!(before, after);
}

#[test]
fn functions_answer_as_postgresqls() {
    let connection = connection();
    let cases = [
        ("format_type(23, NULL)", "integer"),
        ("format_type(1043, 24)", "character varying(20)"),
        ("format_type(1043, -1)", "character varying"),
        ("format_type(1042, 7)", "character(3)"),
        ("format_type(1042, -1)", "bpchar"),
        ("format_type(1042, NULL)", "character"),
        ("format_type(1700, 655366)", "numeric(10,2)"),
        ("format_type(1700, -1)", "numeric"),
        ("format_type(1184, -1)", "timestamp with time zone"),
        ("format_type(1007, -1)", "integer[]"),
        ("format_type(1015, 24)", "character varying(20)[]"),
        ("format_type(18, -1)", "\"char\""),
        ("format_type(22, -1)", "int2vector"),
        ("format_type(30, -1)", "oidvector"),
        ("format_type(2205, -1)", "regclass"),
        ("format_type(0, -1)", "-"),
        ("format_type(99999, -1)", "???"),
        ("format_type(NULL, -1)", "NULL"),
        ("to_regtype('int4')", "23"),
        ("to_regtype('integer')", "23"),
        ("to_regtype('pg_catalog.timestamptz')", "1184"),
        ("to_regtype('varchar(10)')", "1043"),
        ("to_regtype('text[]')", "1009"),
        ("to_regtype('regclass')", "2205"),
        ("to_regtype('nothing')", "NULL"),
        ("regtype_out_pg(1009)", "text[]"),
        ("pg_size_pretty(0)", "0 bytes"),
        ("pg_size_pretty(10239)", "10239 bytes"),
        ("pg_size_pretty(10240)", "10 kB"),
        ("pg_size_pretty(8192000)", "8000 kB"),
        ("pg_size_pretty(10485247)", "10239 kB"),
        ("pg_size_pretty(10485760)", "10 MB"),
        ("pg_size_pretty(123456789012)", "115 GB"),
        ("pg_size_pretty(-123456789)", "-118 MB"),
        ("pg_encoding_to_char(6)", "UTF8"),
        ("current_schema()", "public"),
        ("current_schemas(0)", "[\"public\"]"),
        ("current_schemas(1)", "[\"pg_catalog\",\"public\"]"),
        ("current_setting('server_encoding')", "UTF8"),
        ("current_setting('integer_datetimes')", "on"),
        ("current_setting('nothing', 1)", "NULL"),
        ("set_config('jit', 'off', 0)", "off"),
        ("pg_table_is_visible(NULL)", "NULL"),
        ("obj_description(1, 'pg_class')", "NULL"),
    ];
    for (call, expected) in cases {
        assert_eq!(rows(&connection, &format!("SELECT {call}")), [expected], "{call}");
    }
    let long = object_name_of(&connection, &"t".repeat(70), &"c".repeat(70));
    assert_eq!(long, format!("{}_{}_key", "t".repeat(29), "c".repeat(29)));
}

fn object_name_of(connection: &Connection, first: &str, second: &str) -> String {
    let name =
        connection.query_row("SELECT object_name_pg(?1, ?2, 'key')", [first, second], |row| row.get(0));
    name.unwrap()
}

/// Definitions are shown as they were given, in PostgreSQL's words as far as names of functions go.
#[test]
fn definitions_are_shown() {
    let connection = connection();
    let index = rows(&connection, "SELECT indexdef FROM pg_indexes WHERE indexname = 'book_title'");
    let expected =
        "CREATE INDEX book_title ON public.book USING btree (title DESC, lower(title)) WHERE (price > 0)";
    assert_eq!(index, [expected]);
    let part = "SELECT pg_get_indexdef(oid,2,1), pg_get_indexdef(oid,1,0) FROM pg_class WHERE relname = 'book_title'";
    assert_eq!(rows(&connection, part), ["lower(title)|title DESC"]);
    let view = rows(&connection, "SELECT pg_get_viewdef(oid) FROM pg_class WHERE relname = 'cheap'");
    assert_eq!(view, [" SELECT id, title FROM book WHERE price < 10;"]);
    assert_eq!(rows(&connection, r#"SELECT index_part_pg('CREATE INDEX "a(" ON t("x,)", y)', 2)"#), ["y"]);
    assert_eq!(
        rows(&connection, r#"SELECT view_query_pg('CREATE VIEW "as as" as select 1')"#),
        [" select 1;"]
    );
    assert_eq!(rows(&connection, "SELECT default_text_pg('((now_pg()))', 'timestamptz')"), ["now()"]);
    assert_eq!(rows(&connection, "SELECT default_text_pg('(a_pg() + b())', 'text')"), ["a() + b()"]);
}

#[test]
fn what_has_no_answer_is_refused() {
    let connection = connection();
    for (call, code) in [
        ("txid_current()", "0A000: "),
        ("pg_advisory_lock(1)", "0A000: "),
        ("current_setting('nothing')", "42704: "),
        ("set_config('TimeZone', 'Europe/Berlin', 0)", "0A000: "),
        ("regtype_in_pg('nothing')", "42704: "),
        ("regnamespace_in_pg('nothing')", "3F000: "),
    ] {
        let error = connection.query_row(&format!("SELECT {call}"), [], |_| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with(code), "{call}: {error}");
    }
    assert!(relation(Some("public"), "pg_class").is_none());
    assert!(relation(None, "author").is_none());
    assert!(expression("pg_get_expr", 2).is_none(), "a function of SQLite");
}
