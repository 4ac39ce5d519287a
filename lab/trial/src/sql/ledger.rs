//! What clients of the bank know of their transfers, and the comparison of the bank's tables with it, row by row.

use std::collections::BTreeMap;
use std::collections::HashMap;

use serde::Serialize;

/// Faults that are listed one by one.
const MOST_SHOWN: usize = 20;

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// The account that pays.
    pub source: u32,
    /// The account that is paid.
    pub target: u32,
    /// How much.
    pub amount: i64,
}

/// What its client knows of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferState {
    /// Its COMMIT is not answered, and may never be: it may be in the tables, now or later.
    Unknown,
    /// Its COMMIT was acknowledged: it must be in the tables, once.
    Acknowledged,
    /// Its COMMIT was not sent, or refused: it must not be in the tables.
    Void,
}

/// All transfers that clients began.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    transfers: HashMap<String, (Transfer, TransferState)>,
}

/// How the tables differ from the ledger; all zero when they are right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LedgerFaults {
    /// Acknowledged transfers that are not in the table.
    pub missing: u64,
    /// Rows of transfers that are there already.
    pub doubled: u64,
    /// Rows with another account or amount than the client sent.
    pub changed: u64,
    /// Rows of transfers that were undone, or that no client began.
    pub foreign: u64,
    /// Accounts whose balance is not what the rows of transfers say, and those that are missing or too many.
    pub balances: u64,
    /// The first of them, as text.
    pub shown: Vec<String>,
}

impl Ledger {
    /// Notes a transfer, or what is known of it now.
    pub fn note(&mut self, name: &str, transfer: Transfer, state: TransferState) {
        self.transfers.insert(name.to_owned(), (transfer, state));
    }

    /// How many are in this state.
    pub fn count(&self, state: TransferState) -> u64 {
        self.transfers.values().filter(|(_, is)| *is == state).count() as u64
    }

    /// The names of the acknowledged ones.
    pub fn acknowledged(&self) -> Vec<String> {
        let is =
            |(_, (_, state)): &(&String, &(Transfer, TransferState))| *state == TransferState::Acknowledged;
        self.transfers.iter().filter(is).map(|(name, _)| name.clone()).collect()
    }

    /// Compares both tables of one moment with this ledger of a later one. `due` were acknowledged before that moment;
    /// each account had `first` in the beginning.
    pub fn compare(
        &self,
        due: &[String],
        rows: &[(String, Transfer)],
        balances: &[(u32, i64)],
        (accounts, first): (u32, i64),
    ) -> LedgerFaults {
        let mut faults = LedgerFaults::default();
        let mut seen: HashMap<&str, u64> = HashMap::new();
        let mut should: BTreeMap<u32, i64> = (1..=accounts).map(|account| (account, first)).collect();
        for (name, row) in rows {
            *should.entry(row.source).or_default() -= row.amount;
            *should.entry(row.target).or_default() += row.amount;
            let count = seen.entry(name).or_default();
            *count += 1;
            if *count > 1 {
                faults.show(format!("{name} is there {count} times"), |faults| &mut faults.doubled);
            }
            match self.transfers.get(name) {
                Some((_, TransferState::Void)) => {
                    faults.show(format!("{name} was undone, and is there"), |faults| &mut faults.foreign);
                }
                Some((sent, _)) if sent != row => {
                    faults
                        .show(format!("{name} is {row:?}, sent was {sent:?}"), |faults| &mut faults.changed);
                }
                Some(_) => {}
                None => faults.show(format!("nobody began {name}"), |faults| &mut faults.foreign),
            }
        }
        for name in due.iter().filter(|name| !seen.contains_key(name.as_str())) {
            faults.show(format!("{name} was acknowledged, and is missing"), |faults| &mut faults.missing);
        }
        let is: BTreeMap<u32, i64> = balances.iter().copied().collect();
        let all: std::collections::BTreeSet<u32> = should.keys().chain(is.keys()).copied().collect();
        for account in all.into_iter().filter(|account| should.get(account) != is.get(account)) {
            let (should, is) = (should.get(&account), is.get(&account));
            faults.show(format!("account {account} has {is:?}, by its transfers {should:?}"), |faults| {
                &mut faults.balances
            });
        }
        faults
    }
}

impl LedgerFaults {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.missing + self.doubled + self.changed + self.foreign + self.balances
    }

    /// Counts one, and keeps it as text.
    fn show(&mut self, what: String, kind: impl Fn(&mut Self) -> &mut u64) {
        *kind(self) += 1;
        if self.shown.len() < MOST_SHOWN {
            self.shown.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Transfer = Transfer { source: 1, target: 2, amount: 30 };
    const TWO: Transfer = Transfer { source: 2, target: 3, amount: 5 };

    type Rows = Vec<(String, Transfer)>;

    /// Two acknowledged transfers, an unknown and a void one; the tables of a right bank.
    fn bank() -> (Ledger, Rows, Vec<(u32, i64)>) {
        let mut ledger = Ledger::default();
        ledger.note("a", ONE, TransferState::Acknowledged);
        ledger.note("b", TWO, TransferState::Acknowledged);
        ledger.note("u", ONE, TransferState::Unknown);
        ledger.note("v", ONE, TransferState::Void);
        let rows = vec![("a".to_owned(), ONE), ("b".to_owned(), TWO)];
        (ledger, rows, vec![(1, 70), (2, 125), (3, 105)])
    }

    fn faults(change: impl Fn(&mut Rows, &mut Vec<(u32, i64)>)) -> LedgerFaults {
        let (ledger, mut rows, mut balances) = bank();
        change(&mut rows, &mut balances);
        ledger.compare(&ledger.acknowledged(), &rows, &balances, (3, 100))
    }

    #[test]
    fn a_right_bank_has_no_faults_with_and_without_what_is_unknown() {
        assert_eq!(faults(|_, _| ()), LedgerFaults::default());
        let with_unknown = faults(|rows, balances| {
            rows.push(("u".to_owned(), ONE));
            *balances = vec![(1, 40), (2, 155), (3, 105)];
        });
        assert_eq!(with_unknown, LedgerFaults::default());
    }

    #[test]
    fn an_acknowledged_transfer_that_is_missing_is_found() {
        let lost = faults(|rows, balances| {
            rows.remove(1);
            *balances = vec![(1, 70), (2, 130), (3, 100)];
        });
        assert_eq!((lost.missing, lost.count()), (1, 1), "{lost:?}");
    }

    #[test]
    fn a_transfer_that_happened_twice_is_found() {
        let twice = faults(|rows, balances| {
            rows.push(rows[0].clone());
            *balances = vec![(1, 40), (2, 155), (3, 105)];
        });
        assert_eq!((twice.doubled, twice.count()), (1, 1), "{twice:?}");
    }

    #[test]
    fn rows_that_nobody_sent_and_rows_that_were_undone_are_found() {
        let foreign = |name: &'static str| {
            faults(move |rows, balances| {
                rows.push((name.to_owned(), ONE));
                *balances = vec![(1, 40), (2, 155), (3, 105)];
            })
        };
        assert_eq!((foreign("v").foreign, foreign("v").count()), (1, 1));
        assert_eq!((foreign("x").foreign, foreign("x").count()), (1, 1));
    }

    #[test]
    fn a_changed_row_and_a_wrong_balance_are_found() {
        let changed = faults(|rows, balances| {
            rows[0].1.amount += 4096;
            *balances = vec![(1, 70 - 4096), (2, 125 + 4096), (3, 105)];
        });
        assert_eq!((changed.changed, changed.count()), (1, 1), "{changed:?}");
        assert_eq!(faults(|_, balances| balances[2].1 += 1).balances, 1);
        assert_eq!(faults(|_, balances| balances.truncate(2)).balances, 1);
        assert_eq!(faults(|_, balances| balances.push((4, 0))).balances, 1);
    }
}
