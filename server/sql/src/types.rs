//! The types of PostgreSQL that columns, parameters and results have, and how SQLite keeps their values.
//!
//! SQLite keeps numbers, text and bytes; a column's declared type is words that it repeats. So a type of PostgreSQL is
//! these words in lower case (`integer`, `varchar(20)`), which clients get back as that type. Words that are not
//! written so come from SQLite's dialect: such a column has the type of SQLite's affinity.
//!
//! | Type | kept as |
//! |---|---|
//! | `boolean` | 0 or 1 |
//! | `smallint`, `integer`, `bigint`, `oid` | an integer |
//! | `real`, `double precision` | a real number |
//! | `numeric(p, s)`, p at most 15 | an integer or a real number; both have 15 digits. Replies have its scale |
//! | `text`, `varchar(n)`, `char(n)`, `json`, `jsonb`, `uuid` | text |
//! | `bytea` | bytes |
//! | `date`, `time`, `timestamp`, `timestamptz` | text as PostgreSQL writes it, in UTC, which sorts as time does |
//! | arrays, as parameters only | text, an array in JSON |

/// A type of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PgType {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric(precision, scale)`, at most [`MAX_PRECISION`] digits.
    Numeric {
        /// Digits in all.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// `text`
    Text,
    /// `varchar(n)`: characters at most.
    Varchar(u32),
    /// `char(n)`: characters at most. Blanks at the end are not put there.
    Char(u32),
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `timestamptz`
    Timestamptz,
    /// `uuid`
    Uuid,
    /// `json`
    Json,
    /// `jsonb`
    Jsonb,
    /// `name`, of the catalogue.
    Name,
    /// `oid`, of the catalogue.
    Oid,
    /// `"char"`, of the catalogue.
    Letter,
    /// `boolean[]`
    BoolArray,
    /// `integer[]`
    Int4Array,
    /// `bigint[]`
    Int8Array,
    /// `oid[]`, of the catalogue.
    OidArray,
    /// `double precision[]`
    DoubleArray,
    /// `text[]`
    TextArray,
    /// `uuid[]`
    UuidArray,
}

/// Digits of a `numeric` that a real number of SQLite's keeps exactly.
pub const MAX_PRECISION: u8 = 15;

/// Types without a modifier: the name, what else it is called, its number in `pg_type`, the bytes of a value there.
const PLAIN: [(PgType, &str, &[&str], u32, i16); 24] = [
    (PgType::Bool, "boolean", &["bool"], 16, 1),
    (PgType::Int2, "smallint", &["int2"], 21, 2),
    (PgType::Int4, "int4", &["int", "integer"], 23, 4),
    (PgType::Int8, "bigint", &["int8"], 20, 8),
    (PgType::Real, "float4", &["real"], 700, 4),
    (PgType::Double, "double precision", &["float8", "float"], 701, 8),
    (PgType::Text, "text", &["varchar", "character varying"], 25, -1),
    (PgType::Bytea, "bytea", &[], 17, -1),
    (PgType::Date, "date", &[], 1082, 4),
    (PgType::Time, "time", &["time without time zone"], 1083, 8),
    (PgType::Timestamp, "timestamp", &["timestamp without time zone"], 1114, 8),
    (PgType::Timestamptz, "timestamptz", &["timestamp with time zone"], 1184, 8),
    (PgType::Uuid, "uuid", &[], 2950, 16),
    // "text" is for SQLite, which would take some JSON for numbers.
    (PgType::Json, "json text", &["json"], 114, -1),
    (PgType::Jsonb, "jsonb text", &["jsonb"], 3802, -1),
    (PgType::Name, "name text", &["name"], 19, 64),
    (PgType::Oid, "oid", &["regclass", "regtype", "regproc"], 26, 4),
    (PgType::Letter, "char text", &["\"char\""], 18, 1),
    (PgType::BoolArray, "boolean[]", &["bool[]"], 1000, -1),
    (PgType::Int4Array, "integer[]", &["int[]", "int4[]"], 1007, -1),
    (PgType::Int8Array, "bigint[]", &["int8[]"], 1016, -1),
    (PgType::OidArray, "oid[]", &[], 1028, -1),
    (PgType::DoubleArray, "double precision[]", &["float8[]", "float[]"], 1022, -1),
    (PgType::TextArray, "text[]", &["varchar[]", "character varying[]"], 1009, -1),
];

impl PgType {
    fn plain(self) -> Option<&'static (PgType, &'static str, &'static [&'static str], u32, i16)> {
        PLAIN.iter().find(|(of, ..)| *of == self)
    }

    /// Its number in `pg_type`.
    pub fn number(self) -> u32 {
        match self {
            PgType::Numeric { .. } => 1700,
            PgType::Varchar(_) => 1043,
            PgType::Char(_) => 1042,
            PgType::UuidArray => 2951,
            plain => plain.plain().map_or(25, |(.., number, _)| *number),
        }
    }

    /// The type with this number in `pg_type`, without a modifier; none if it is not supported, or not known yet.
    pub fn of_number(number: u32) -> Option<Self> {
        match number {
            1700 => Some(PgType::Numeric { precision: MAX_PRECISION, scale: 0 }),
            1042 | 1043 | 705 => Some(PgType::Text),
            1005 => Some(PgType::Int4Array),
            1014 | 1015 => Some(PgType::TextArray),
            2951 => Some(PgType::UuidArray),
            number => PLAIN.iter().find(|(.., of, _)| *of == number).map(|(of, ..)| *of),
        }
    }

    /// Bytes of a value in `pg_type`, -1 if they differ.
    pub fn length(self) -> i16 {
        self.plain().map_or(-1, |(.., length)| *length)
    }

    /// The modifier in a description of columns, -1 for none.
    pub fn modifier(self) -> i32 {
        match self {
            PgType::Numeric { precision, scale } => (i32::from(precision) << 16 | i32::from(scale)) + 4,
            PgType::Varchar(length) | PgType::Char(length) => length as i32 + 4,
            _ => -1,
        }
    }

    /// How a column of this type is declared to SQLite.
    pub fn declaration(self) -> String {
        match self {
            PgType::Numeric { precision, scale } => format!("numeric({precision},{scale})"),
            PgType::Varchar(length) => format!("varchar({length})"),
            PgType::Char(length) => format!("char({length})"),
            PgType::UuidArray => "uuid[]".to_owned(),
            plain => plain.plain().map_or("text", |(_, name, ..)| name).to_owned(),
        }
    }

    /// The type of a column that is declared so to SQLite.
    pub fn declared(words: &str) -> Self {
        let with_number = |name: &str| {
            let rest = words.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
            rest.parse().ok()
        };
        if let Some((of, ..)) = PLAIN.iter().find(|(_, name, ..)| *name == words) {
            return *of;
        }
        if let Some(length) = with_number("varchar") {
            return PgType::Varchar(length);
        }
        if let Some(length) = with_number("char") {
            return PgType::Char(length);
        }
        let numbers = words.strip_prefix("numeric(").and_then(|rest| rest.strip_suffix(')')?.split_once(','));
        if let Some((precision, scale)) = numbers
            && let (Ok(precision), Ok(scale)) = (precision.parse(), scale.parse())
        {
            return PgType::Numeric { precision, scale };
        }
        Self::of_affinity(words)
    }

    /// What SQLite keeps in a column that is declared so (its documentation, *Datatypes*, 3.1).
    fn of_affinity(words: &str) -> Self {
        let words = words.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
        match () {
            () if has(&["INT"]) => PgType::Int8,
            () if has(&["CHAR", "CLOB", "TEXT"]) => PgType::Text,
            () if has(&["BLOB"]) => PgType::Bytea,
            () if has(&["REAL", "FLOA", "DOUB"]) => PgType::Double,
            () => PgType::Text,
        }
    }

    /// The type that clients call so, in lower case and without a modifier.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "uuid[]" => Some(PgType::UuidArray),
            name => PLAIN
                .iter()
                .find(|(_, first, others, ..)| *first == name || others.contains(&name))
                .map(|(of, ..)| *of),
        }
    }

    /// Of the elements, if it is an array.
    pub fn element(self) -> Option<Self> {
        match self {
            PgType::BoolArray => Some(PgType::Bool),
            PgType::Int4Array => Some(PgType::Int4),
            PgType::Int8Array => Some(PgType::Int8),
            PgType::OidArray => Some(PgType::Oid),
            PgType::DoubleArray => Some(PgType::Double),
            PgType::TextArray => Some(PgType::Text),
            PgType::UuidArray => Some(PgType::Uuid),
            _ => None,
        }
    }

    /// Whether SQLite keeps an integer.
    pub fn is_integer(self) -> bool {
        matches!(self, PgType::Int2 | PgType::Int4 | PgType::Int8 | PgType::Oid)
    }

    /// Whether it is a number that may be exact in decimals.
    pub fn is_numeric(self) -> bool {
        matches!(self, PgType::Numeric { .. })
    }

    /// Whether it is text of some kind.
    pub fn is_text(self) -> bool {
        matches!(self, PgType::Text | PgType::Varchar(_) | PgType::Char(_) | PgType::Name | PgType::Letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_gives_the_type_back() {
        let with_modifier =
            [PgType::Numeric { precision: 10, scale: 2 }, PgType::Varchar(20), PgType::Char(3)];
        for of in PLAIN.iter().map(|(of, ..)| *of).chain(with_modifier) {
            assert_eq!(PgType::declared(&of.declaration()), of);
        }
        assert_eq!(PgType::declared("INTEGER"), PgType::Int8, "in SQLite's dialect");
        assert_eq!(PgType::declared("VARCHAR(20)"), PgType::Text);
        assert_eq!(PgType::named("int4"), Some(PgType::Int4));
        assert_eq!(PgType::of_number(1184), Some(PgType::Timestamptz));
    }

    /// SQLite's rules of affinity on the words: what the table above says is kept as text must not become a number.
    #[test]
    fn sqlite_keeps_what_the_table_says() {
        for of in [PgType::Json, PgType::Jsonb, PgType::Text, PgType::Varchar(5), PgType::Char(5)] {
            let words = of.declaration().to_uppercase();
            assert!(words.contains("TEXT") || words.contains("CHAR"), "{words}");
        }
        for of in [PgType::Uuid, PgType::Date, PgType::Timestamp, PgType::Timestamptz, PgType::Bytea] {
            assert!(!of.declaration().to_uppercase().contains("INT"), "{of:?}");
        }
    }
}
