//! What names mean where an expression stands: the tables of its query and of those around it.

use crate::types::PgType;

/// A column of a table in FROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeColumn {
    /// As PostgreSQL knows it.
    pub name: String,
    /// Its type.
    pub of: PgType,
    /// Whether it may be NULL, joins considered.
    pub is_nullable: bool,
    /// Whether it is a part of the primary key.
    pub is_key: bool,
    /// Whether `USING` has merged it with that of a table before.
    pub is_merged: bool,
    /// What SQLite computes for it, if it is no column there.
    pub computed: Option<String>,
}

/// A table in FROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its name or alias.
    pub name: String,
    /// Its columns in order.
    pub columns: Vec<ScopeColumn>,
    /// Whether columns are written without the table before them: in the definition of a table or index.
    pub is_bare: bool,
    /// Whether `*` leaves it out, and names without a table before do not mean it: `excluded`.
    pub is_named_only: bool,
    /// Which one of the list behind FROM it belongs to.
    pub item: usize,
    /// Columns that `USING` merges with those of tables before.
    pub using: Vec<String>,
    /// Whether GROUP BY has its primary key, so that all its columns may be selected.
    pub is_grouped_by_key: bool,
}

impl Relation {
    /// With these columns.
    pub fn new(name: String, columns: Vec<ScopeColumn>) -> Self {
        Relation {
            name,
            columns,
            is_bare: false,
            is_named_only: false,
            item: 0,
            using: Vec::new(),
            is_grouped_by_key: false,
        }
    }

    /// All its columns may be NULL: a join has no row of it.
    pub fn make_nullable(&mut self) {
        self.columns.iter_mut().for_each(|column| column.is_nullable = true);
    }
}

/// Where aggregates may stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: in WHERE and the like.
    #[default]
    Rows,
    /// In the list of SELECT, HAVING and ORDER BY.
    Groups,
    /// Within an aggregate.
    Aggregate,
}

/// A query's tables, and what is known of its groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Tables in FROM so far.
    pub relations: Vec<Relation>,
    /// The expressions of GROUP BY, as SQLite has them.
    pub groups: Vec<String>,
    /// Columns that were named outside of aggregates and groups.
    pub ungrouped: Vec<String>,
    /// Whether an aggregate was seen.
    pub has_aggregate: bool,
    /// Whether aggregates may stand here.
    pub place: Place,
    /// Arrays that items of SELECT take apart, each as a table of SQLite's.
    pub unnested: Vec<String>,
    /// Names of windows.
    pub windows: Vec<String>,
}

/// Where a column was found.
pub struct FoundColumn {
    /// Queries outwards.
    pub scope: usize,
    /// For SQLite.
    pub sql: String,
    /// Itself.
    pub column: ScopeColumn,
    /// Whether it may be selected without an aggregate.
    pub is_grouped_by_key: bool,
    /// As an error names it.
    pub full_name: String,
}
