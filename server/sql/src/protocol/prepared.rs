//! The prepared statements and the portals that a connection has names for. They are no replicated state: each run
//! brings what it refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::request::{Portal, Statement};

/// Prepared statements of a connection at most, and the bytes of their texts.
const MAX_STATEMENTS: usize = 2000;
const MAX_STATEMENT_BYTES: usize = 4 << 20;
/// Portals of a connection at most, and the bytes of their values.
const MAX_PORTALS: usize = 64;
const MAX_PORTAL_BYTES: usize = 4 << 20;

/// A portal with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPortal {
    /// The statement.
    pub statement: Arc<Statement>,
    /// Its values; the number of its statement is set where a run has it.
    pub portal: Arc<Portal>,
    /// Rows that the client has.
    pub handed: u64,
    /// Tables may have changed since it has these.
    pub is_old: bool,
}

impl NamedPortal {
    fn is_suspended(&self) -> bool {
        (1..u64::MAX).contains(&self.handed)
    }
}

#[derive(Clone, Debug, Default)]
struct Names {
    statements: BTreeMap<String, Arc<Statement>>,
    portals: BTreeMap<String, NamedPortal>,
    statement_bytes: usize,
    portal_bytes: usize,
}

/// What a connection has names for. Two are equal if they have seen the same changes: it is compared after each
/// message, so its contents are not; a wrong one shows in the request that uses it.
#[derive(Clone, Debug, Default)]
pub struct PreparedNames {
    names: Arc<Names>,
    history: u64,
}

impl PartialEq for PreparedNames {
    fn eq(&self, other: &Self) -> bool {
        self.history == other.history
    }
}

impl Eq for PreparedNames {}

impl PreparedNames {
    /// To change it; `what` tells changes apart.
    fn change(&mut self, what: u8, name: &str) -> &mut Names {
        self.history = xxh3_64(&[&self.history.to_le_bytes(), &[what][..], name.as_bytes()].concat());
        Arc::make_mut(&mut self.names)
    }

    /// The statement of this name.
    pub fn statement(&self, name: &str) -> Option<&Arc<Statement>> {
        self.names.statements.get(name)
    }

    /// The portal of this name.
    pub fn portal(&self, name: &str) -> Option<&NamedPortal> {
        self.names.portals.get(name)
    }

    /// Prepares a statement. One of the same name is forgotten: perhaps its text was wrong. False if there are too
    /// many.
    pub fn prepare(&mut self, name: &str, statement: Arc<Statement>) -> bool {
        let names = self.change(1, name);
        let new = statement.text.len();
        let old = names.statements.remove(name).map_or(0, |statement| statement.text.len());
        names.statement_bytes -= old;
        if names.statements.len() >= MAX_STATEMENTS || names.statement_bytes + new > MAX_STATEMENT_BYTES {
            return false;
        }
        names.statement_bytes += new;
        names.statements.insert(name.to_owned(), statement);
        true
    }

    /// Opens a portal. False if there are too many.
    pub fn open(&mut self, name: &str, portal: NamedPortal) -> bool {
        self.close(name);
        let names = self.change(2, name);
        let bytes = bytes_of(&portal);
        if names.portals.len() >= MAX_PORTALS || names.portal_bytes + bytes > MAX_PORTAL_BYTES {
            return false;
        }
        names.portal_bytes += bytes;
        names.portals.insert(name.to_owned(), portal);
        true
    }

    /// The client will have so many rows of a portal.
    pub fn hand(&mut self, name: &str, handed: u64) {
        if let Some(portal) = self.change(3, name).portals.get_mut(name) {
            portal.handed = handed;
        }
    }

    /// Tables may change: the later rows of portals that some rows were fetched from may be other ones then.
    pub fn change_tables(&mut self) {
        if self.names.portals.values().any(NamedPortal::is_suspended) {
            let names = self.change(8, "");
            names
                .portals
                .values_mut()
                .filter(|portal| portal.is_suspended())
                .for_each(|portal| portal.is_old = true);
        }
    }

    /// Forgets a statement.
    pub fn forget(&mut self, name: &str) {
        let names = self.change(4, name);
        let bytes = names.statements.remove(name).map_or(0, |statement| statement.text.len());
        names.statement_bytes -= bytes;
    }

    /// Forgets all statements.
    pub fn forget_all(&mut self) {
        let names = self.change(5, "");
        names.statements.clear();
        names.statement_bytes = 0;
    }

    /// Forgets a portal.
    pub fn close(&mut self, name: &str) {
        if self.portal(name).is_some() {
            let names = self.change(6, name);
            let bytes = names.portals.remove(name).map_or(0, |portal| bytes_of(&portal));
            names.portal_bytes -= bytes;
        }
    }

    /// No transaction is open: portals end with theirs.
    pub fn close_all(&mut self) {
        if !self.names.portals.is_empty() {
            let names = self.change(7, "");
            names.portals.clear();
            names.portal_bytes = 0;
        }
    }
}

fn bytes_of(portal: &NamedPortal) -> usize {
    let values = &portal.portal.parameters;
    values.iter().map(|value| 8 + value.bytes.as_ref().map_or(0, Vec::len)).sum()
}
