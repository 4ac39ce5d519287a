//! Parts of the catalogue's queries: tables and views, indexes, columns and constraints as SQLite knows them.

use super::numbers::{TYPES, TypeRow};
use super::{DATABASE, INTERNAL, USER};
use crate::settings;

/// Parts by name. A part may have others within it.
const FRAGMENTS: &[(&str, &str)] = &[
    // Numbers stay below 2^32.
    (
        "relations",
        "(SELECT 16384 + ((rowid % 1000000) << 12) AS oid, name, type, sql FROM main.sqlite_schema \
          WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*' \
            AND name NOT GLOB {internal})",
    ),
    // `alias` is the number of the column that is the row's number in SQLite, which no index is needed for.
    (
        "tables",
        "(SELECT r.*, (SELECT c.cid + 1 FROM pragma_table_xinfo(r.name) AS c WHERE c.pk = 1 AND NOT EXISTS \
            (SELECT 1 FROM pragma_index_list(r.name) AS l WHERE l.origin = 'pk')) AS alias \
          FROM {relations} AS r WHERE r.type = 'table')",
    ),
    (
        "columns",
        "(SELECT r.oid AS relid, r.name AS relation, r.type AS kind, c.cid + 1 AS num, c.name AS name, \
            CASE WHEN c.type = 'INTEGER' AND instr(r.sql, char(34) || c.name || char(34) || ' integer') THEN 'int4' \
              ELSE c.type END AS declared, \
            c.\"notnull\" OR c.pk > 0 AS is_needed, c.dflt_value AS value, c.hidden AS hidden, \
            c.pk = 1 AND NOT EXISTS (SELECT 1 FROM pragma_index_list(r.name) AS l WHERE l.origin = 'pk') AS is_alias \
          FROM {relations} AS r, pragma_table_xinfo(r.name) AS c)",
    ),
    // The dialect makes an index of a UNIQUE constraint, and of a primary key that is added later; their names tell.
    (
        "indexes",
        "(SELECT t.oid AS relid, t.name AS relation, \
            coalesce(16384 + ((s.rowid % 1000000) << 12), t.oid + 1) AS oid, \
            CASE l.origin WHEN 'c' THEN l.name WHEN 'pk' THEN object_name_pg(t.name, NULL, 'pkey') \
              ELSE object_name_pg(t.name, \
                (SELECT group_concat(i.name, '_' ORDER BY i.seqno) FROM pragma_index_info(l.name) AS i), 'key') \
            END AS name, \
            l.\"unique\" AS is_unique, \
            CASE WHEN l.origin <> 'c' OR l.partial OR NOT l.\"unique\" THEN l.origin \
              WHEN l.name = t.name || '_pkey' THEN 'pk' \
              WHEN substr(l.name, -4) = '_key' THEN 'u' ELSE 'c' END AS origin, s.sql AS sql, \
            (SELECT json_group_array(CASE x.cid WHEN -1 THEN t.alias WHEN -2 THEN 0 ELSE x.cid + 1 END \
                ORDER BY x.seqno) FROM pragma_index_xinfo(l.name) AS x WHERE x.key) AS keys, \
            (SELECT json_group_array(x.desc * 3 ORDER BY x.seqno) FROM pragma_index_xinfo(l.name) AS x WHERE x.key) \
              AS options \
          FROM {tables} AS t, pragma_index_list(t.name) AS l \
          LEFT JOIN main.sqlite_schema AS s ON s.type = 'index' AND s.name = l.name \
          UNION ALL \
          SELECT t.oid, t.name, t.oid + 1, object_name_pg(t.name, NULL, 'pkey'), 1, 'pk', NULL, \
            json_array(t.alias), '[0]' \
          FROM {tables} AS t WHERE t.alias IS NOT NULL)",
    ),
    (
        "foreign_keys",
        "(SELECT t.oid AS relid, t.name AS relation, f.id AS id, coalesce(p.oid, 0) AS parent_oid, \
            f.\"table\" AS parent, f.on_update AS on_update, f.on_delete AS on_delete, \
            group_concat(c.name, '_' ORDER BY f.seq) AS column_names, \
            json_group_array(c.cid + 1 ORDER BY f.seq) AS keys, \
            json_group_array(q.cid + 1 ORDER BY f.seq) AS parent_keys \
          FROM {relations} AS t, pragma_foreign_key_list(t.name) AS f \
          JOIN pragma_table_xinfo(t.name) AS c ON c.name = f.\"from\" COLLATE NOCASE \
          LEFT JOIN {relations} AS p ON p.name = f.\"table\" COLLATE NOCASE \
          LEFT JOIN pragma_table_xinfo(p.name) AS q \
            ON CASE WHEN f.\"to\" IS NULL THEN q.pk = f.seq + 1 ELSE q.name = f.\"to\" COLLATE NOCASE END \
          WHERE t.type = 'table' GROUP BY t.oid, f.id)",
    ),
    (
        "constraints",
        "(SELECT x.relid + 2 AS oid, x.name AS name, 'p' AS kind, x.relid AS relid, x.relation AS relation, \
            x.oid AS index_oid, 0 AS parent_oid, NULL AS parent, NULL AS on_update, NULL AS on_delete, \
            x.keys AS keys, NULL AS parent_keys \
          FROM {indexes} AS x WHERE x.origin = 'pk' \
          UNION ALL \
          SELECT x.oid + 2, x.name, 'u', x.relid, x.relation, x.oid, 0, NULL, NULL, NULL, x.keys, NULL \
          FROM {indexes} AS x WHERE x.origin = 'u' \
          UNION ALL \
          SELECT k.relid + 2048 + k.id, object_name_pg(k.relation, k.column_names, 'fkey') || \
              coalesce(nullif(row_number() \
                OVER (PARTITION BY k.relid, k.column_names ORDER BY k.id DESC) - 1, 0), ''), \
            'f', k.relid, k.relation, \
            coalesce((SELECT coalesce(16384 + ((s.rowid % 1000000) << 12), k.parent_oid + 1) \
                FROM pragma_index_list(k.parent) AS l \
                LEFT JOIN main.sqlite_schema AS s ON s.type = 'index' AND s.name = l.name \
                WHERE l.\"unique\" AND k.parent_keys = (SELECT json_group_array(i.cid + 1 ORDER BY i.seqno) \
                  FROM pragma_index_info(l.name) AS i) \
                ORDER BY l.origin = 'pk' DESC LIMIT 1), \
              (SELECT k.parent_oid + 1 FROM pragma_table_xinfo(k.parent) AS c \
                WHERE c.pk = 1 AND k.parent_keys = json_array(c.cid + 1)), 0), \
            k.parent_oid, k.parent, k.on_update, k.on_delete, k.keys, k.parent_keys \
          FROM {foreign_keys} AS k)",
    ),
    // Names of columns by their numbers, of `relation` and of `parent`.
    (
        "key_names",
        "(SELECT group_concat(quote_ident(n.name), ', ' ORDER BY j.key) FROM json_each(x.keys) AS j \
          JOIN pragma_table_xinfo(x.relation) AS n ON n.cid + 1 = j.value)",
    ),
    (
        "parent_key_names",
        "(SELECT group_concat(quote_ident(n.name), ', ' ORDER BY j.key) FROM json_each(x.parent_keys) AS j \
          JOIN pragma_table_xinfo(x.parent) AS n ON n.cid + 1 = j.value)",
    ),
    (
        "index_definition",
        "'CREATE ' || CASE WHEN x.is_unique THEN 'UNIQUE ' ELSE '' END || 'INDEX ' || quote_ident(x.name) || \
          ' ON public.' || quote_ident(x.relation) || ' USING btree (' || \
          coalesce(index_part_pg(x.sql, 0), {key_names}) || ')' || \
          coalesce(' WHERE (' || index_part_pg(x.sql, -1) || ')', '')",
    ),
    (
        "constraint_definition",
        "CASE x.kind WHEN 'p' THEN 'PRIMARY KEY (' || {key_names} || ')' \
          WHEN 'u' THEN 'UNIQUE (' || {key_names} || ')' \
          ELSE 'FOREIGN KEY (' || {key_names} || ') REFERENCES ' || quote_ident(x.parent) || '(' || \
            coalesce({parent_key_names}, '') || ')' || \
            CASE x.on_update WHEN 'NO ACTION' THEN '' ELSE ' ON UPDATE ' || x.on_update END || \
            CASE x.on_delete WHEN 'NO ACTION' THEN '' ELSE ' ON DELETE ' || x.on_delete END \
          END",
    ),
    ("relation_names", "(SELECT oid, name FROM {relations} UNION ALL SELECT oid, name FROM {indexes})"),
];

/// What stands for a call: the name, how many arguments, the expression. The arguments are put in where no column of
/// the expression's own has a name that they might mean.
pub const EXPRESSIONS: &[(&str, usize, &str)] = &[
    (
        "pg_get_constraintdef",
        1,
        "(SELECT {constraint_definition} FROM (SELECT ?1 AS a1) AS a, {constraints} AS x WHERE x.oid = a.a1)",
    ),
    (
        "pg_get_constraintdef",
        2,
        "(SELECT {constraint_definition} FROM (SELECT ?1 AS a1) AS a, {constraints} AS x WHERE x.oid = a.a1)",
    ),
    (
        "pg_get_indexdef",
        1,
        "(SELECT {index_definition} FROM (SELECT ?1 AS a1) AS a, {indexes} AS x WHERE x.oid = a.a1)",
    ),
    (
        "pg_get_indexdef",
        3,
        "(SELECT CASE a.a2 WHEN 0 THEN {index_definition} ELSE coalesce(index_part_pg(x.sql, a.a2), \
            (SELECT quote_ident(n.name) FROM pragma_table_xinfo(x.relation) AS n \
              WHERE n.cid + 1 = x.keys ->> (a.a2 - 1))) END \
          FROM (SELECT ?1 AS a1, ?2 AS a2) AS a, {indexes} AS x WHERE x.oid = a.a1)",
    ),
    (
        "pg_get_viewdef",
        1,
        "(SELECT view_query_pg(x.sql) FROM (SELECT ?1 AS a1) AS a, {relations} AS x \
          WHERE x.oid = a.a1 AND x.type = 'view')",
    ),
    (
        "pg_get_viewdef",
        2,
        "(SELECT view_query_pg(x.sql) FROM (SELECT ?1 AS a1) AS a, {relations} AS x \
          WHERE x.oid = a.a1 AND x.type = 'view')",
    ),
    (
        "pg_get_triggerdef",
        1,
        "(SELECT x.sql FROM (SELECT ?1 AS a1) AS a, main.sqlite_schema AS x \
          WHERE x.type = 'trigger' AND 16384 + ((x.rowid % 1000000) << 12) = a.a1)",
    ),
    (
        "pg_get_triggerdef",
        2,
        "(SELECT x.sql FROM (SELECT ?1 AS a1) AS a, main.sqlite_schema AS x \
          WHERE x.type = 'trigger' AND 16384 + ((x.rowid % 1000000) << 12) = a.a1)",
    ),
    (
        "to_regclass",
        1,
        "(SELECT coalesce(catalogue_oid_pg(a.a1), \
            (SELECT x.oid FROM {relation_names} AS x WHERE x.name = relation_name_pg(a.a1))) \
          FROM (SELECT ?1 AS a1) AS a)",
    ),
    (
        "regclass_in",
        1,
        "(SELECT coalesce(digits_pg(a.a1), catalogue_oid_pg(a.a1), \
            (SELECT x.oid FROM {relation_names} AS x WHERE x.name = relation_name_pg(a.a1))) \
          FROM (SELECT ?1 AS a1) AS a)",
    ),
    (
        "regclass_out",
        1,
        "(SELECT coalesce((SELECT quote_ident(x.name) FROM {relation_names} AS x WHERE x.oid = a.a1), \
            catalogue_name_pg(a.a1), cast_text(a.a1)) FROM (SELECT ?1 AS a1) AS a)",
    ),
];

/// The text with its parts put in.
pub fn expand(text: &str) -> String {
    let mut out = text.to_owned();
    // Parts have parts, not deeper than this.
    for _ in 0..8 {
        if !out.contains('{') {
            break;
        }
        for (name, part) in FRAGMENTS {
            out = out.replace(&format!("{{{name}}}"), part);
        }
        for (name, part) in [("{user}", USER), ("{database}", DATABASE)] {
            out = out.replace(name, &quoted(part));
        }
        out = out.replace("{internal}", &quoted(&format!("{INTERNAL}*")));
        if out.contains("{types}") {
            out = out.replace("{types}", &types());
        }
        if out.contains("{settings}") {
            let rows: Vec<_> = settings::all()
                .map(|(name, value)| format!("({}, {})", quoted(name), quoted(value)))
                .collect();
            out = out.replace("{settings}", &format!("VALUES {}", rows.join(", ")));
        }
    }
    out
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn types() -> String {
    let row = |(number, name, length, is_value, kind, category, is_preferred, element, array, collation): &TypeRow| {
        let flags = [*is_value, *is_preferred].map(i32::from);
        format!(
            "({number}, '{name}', {length}, {}, '{kind}', '{category}', {}, {element}, {array}, {collation})",
            flags[0], flags[1]
        )
    };
    let rows: Vec<_> = TYPES.iter().map(row).collect();
    format!("VALUES {}", rows.join(", "))
}
