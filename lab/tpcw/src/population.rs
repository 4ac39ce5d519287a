//! The tables' rows as they are before the first request: each is computed from the seed and its key, so that the
//! generator knows what the database has to answer without asking it.

use std::collections::HashMap;

use crate::random::{date, digits, letters, number, of_row, syllables};

/// The 24 subjects of clause 4.6, as the Wisconsin implementation has them.
pub const SUBJECTS: [&str; 24] = [
    "ARTS",
    "BIOGRAPHIES",
    "BUSINESS",
    "CHILDREN",
    "COMPUTERS",
    "COOKING",
    "HEALTH",
    "HISTORY",
    "HOME",
    "HUMOR",
    "LITERATURE",
    "MYSTERY",
    "NON-FICTION",
    "PARENTING",
    "POLITICS",
    "REFERENCE",
    "RELIGION",
    "ROMANCE",
    "SELF-HELP",
    "SCIENCE-NATURE",
    "SCIENCE-FICTION",
    "SPORTS",
    "YOUTH",
    "TRAVEL",
];
/// Countries; the specification scales every table but this one.
pub const COUNTRIES: i64 = 92;
/// Customers per emulated browser.
const CUSTOMERS_PER_BROWSER: i64 = 2_880;
/// The numbers of the tables in the seeds of their rows.
const ITEM: u64 = 1;
const AUTHOR: u64 = 2;
const CUSTOMER: u64 = 3;
const ADDRESS: u64 = 4;
const ORDER: u64 = 5;

/// How large the database is, and what its rows begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct Scale {
    /// Books. The specification allows 1,000, 10,000 and so on to 10 million; the authors of Eve had 1,000
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(i64).range(100..=100_000))]
    pub items: i64,
    /// Emulated browsers, by which the other tables are scaled: 2,880 customers each. The authors of Eve had 5
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=100))]
    pub ebs: i64,
    /// What the rows are computed from. `run` needs the same as `populate`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Scale {
    /// Authors: a quarter of the items.
    pub fn authors(&self) -> i64 {
        self.items / 4
    }

    /// Customers.
    pub fn customers(&self) -> i64 {
        CUSTOMERS_PER_BROWSER * self.ebs
    }

    /// Addresses: two per customer.
    pub fn addresses(&self) -> i64 {
        2 * self.customers()
    }

    /// Orders: nine for ten customers.
    pub fn orders(&self) -> i64 {
        self.customers() * 9 / 10
    }

    /// A book.
    pub fn item(&self, id: i64) -> Item {
        let random = &mut of_row(self.seed, ITEM, id);
        let srp = number(random, 100, 9_999);
        let title = letters(random, 14, 60);
        let author = match id <= self.authors() {
            // Each author has a book at least, as in clause 4.6.
            true => id,
            false => number(random, 1, self.authors()),
        };
        Item {
            id,
            title,
            author,
            published: date(random, 1930, 1995),
            subject: random.below(SUBJECTS.len() as u64) as usize,
            description: letters(random, 100, 500),
            related: self.related(id, number(random, 1, 50)),
            srp,
            cost: srp * number(random, 50, 100) / 100,
            stock: number(random, 10, 30),
            publisher: letters(random, 14, 60),
            isbn: letters(random, 13, 13),
            pages: number(random, 20, 9_999),
        }
    }

    /// Five other books, all different.
    fn related(&self, id: i64, step: i64) -> [i64; 5] {
        // Steps of at most 50 around a circle of at least 300 books would meet again only in a smaller circle.
        let step = step.min((self.items - 1) / 5);
        [1, 2, 3, 4, 5].map(|n| (id - 1 + n * step) % self.items + 1)
    }

    /// An author.
    pub fn author(&self, id: i64) -> Author {
        let random = &mut of_row(self.seed, AUTHOR, id);
        Author {
            id,
            first: letters(random, 3, 20),
            last: letters(random, 4, 20),
            middle: letters(random, 1, 20),
            born: date(random, 1800, 1990),
            biography: letters(random, 125, 500),
        }
    }

    /// A customer.
    pub fn customer(&self, id: i64) -> Customer {
        let random = &mut of_row(self.seed, CUSTOMER, id);
        Customer {
            id,
            user: syllables(id),
            first: letters(random, 8, 15),
            last: letters(random, 8, 15),
            address: number(random, 1, self.addresses()),
            phone: digits(random, 9, 16),
            since: date(random, 1999, 2001),
            discount: number(random, 0, 50),
            paid: number(random, 0, 99_999),
            born: date(random, 1880, 2000),
            data: letters(random, 100, 500),
        }
    }

    /// An address.
    pub fn address(&self, id: i64) -> Address {
        let random = &mut of_row(self.seed, ADDRESS, id);
        Address {
            id,
            street: letters(random, 15, 40),
            street2: letters(random, 15, 40),
            city: letters(random, 4, 30),
            state: letters(random, 2, 20),
            zip: letters(random, 5, 10),
            country: number(random, 1, COUNTRIES),
        }
    }

    /// An order of the population. Its totals are those of its lines: in the specification they are drawn, which
    /// nothing could check.
    pub fn order(&self, id: i64) -> PlacedOrder {
        let random = &mut of_row(self.seed, ORDER, id);
        let customer = number(random, 1, self.customers());
        let lines = (0..number(random, 1, 5)).map(|_| OrderLine {
            item: number(random, 1, self.items),
            quantity: number(random, 1, 5),
            discount: number(random, 0, 30),
        });
        let lines: Vec<OrderLine> = lines.collect();
        let date = format!("{} {:02}:{:02}:00", date(random, 2001, 2001), random.below(24), random.below(60));
        PlacedOrder {
            id,
            customer,
            date,
            totals: OrderTotals::of(&lines, |item| self.item(item).cost),
            lines,
        }
    }

    /// The most recent order of each customer who has one.
    pub fn last_orders(&self) -> HashMap<i64, PlacedOrder> {
        let mut last: HashMap<i64, PlacedOrder> = HashMap::new();
        for order in (1..=self.orders()).map(|id| self.order(id)) {
            match last.get(&order.customer) {
                Some(known) if (&known.date, known.id) > (&order.date, order.id) => {}
                _ => drop(last.insert(order.customer, order)),
            }
        }
        last
    }
}

/// A row of `item`. Amounts are in cents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct Item {
    pub id: i64,
    pub title: String,
    pub author: i64,
    pub published: String,
    pub subject: usize,
    pub description: String,
    pub related: [i64; 5],
    pub srp: i64,
    pub cost: i64,
    pub stock: i64,
    pub publisher: String,
    pub isbn: String,
    pub pages: i64,
}

/// A row of `author`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct Author {
    pub id: i64,
    pub first: String,
    pub last: String,
    pub middle: String,
    pub born: String,
    pub biography: String,
}

/// A row of `customer`. The discount is in per cent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct Customer {
    pub id: i64,
    pub user: String,
    pub first: String,
    pub last: String,
    pub address: i64,
    pub phone: String,
    pub since: String,
    pub discount: i64,
    pub paid: i64,
    pub born: String,
    pub data: String,
}

/// A row of `address`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct Address {
    pub id: i64,
    pub street: String,
    pub street2: String,
    pub city: String,
    pub state: String,
    pub zip: String,
    pub country: i64,
}

/// An order with its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct PlacedOrder {
    pub id: i64,
    pub customer: i64,
    /// As text, in the order of time; empty for an order of a run, whose time the server chose.
    pub date: String,
    pub totals: OrderTotals,
    pub lines: Vec<OrderLine>,
}

/// A row of `order_line`, without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct OrderLine {
    pub item: i64,
    pub quantity: i64,
    pub discount: i64,
}

/// What an order costs, in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "columns of the specification")]
pub struct OrderTotals {
    pub lines: i64,
    pub tax: i64,
    pub total: i64,
}

impl OrderTotals {
    /// Of lines whose books cost this: 8.25 % of tax, and 3.00 and 1.00 per copy for shipping.
    pub fn of(lines: &[OrderLine], cost: impl Fn(i64) -> i64) -> Self {
        let cents = |line: &OrderLine| cost(line.item) * line.quantity * (100 - line.discount) / 100;
        let sum: i64 = lines.iter().map(cents).sum();
        let copies: i64 = lines.iter().map(|line| line.quantity).sum();
        let tax = sum * 825 / 10_000;
        OrderTotals { lines: sum, tax, total: sum + tax + 300 + 100 * copies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SCALE: Scale = Scale { items: 1_000, ebs: 1, seed: 1 };

    #[test]
    fn the_tables_have_the_cardinalities_of_clause_4_3() {
        let scale = Scale { items: 10_000, ebs: 10, seed: 1 };
        assert_eq!((scale.authors(), scale.customers(), scale.addresses()), (2_500, 28_800, 57_600));
        assert_eq!(scale.orders(), 25_920);
        let lines: usize = (1..=scale.orders()).map(|id| scale.order(id).lines.len()).sum();
        let per_order = lines as f64 / scale.orders() as f64;
        assert!((2.9..3.1).contains(&per_order), "{per_order} lines per order");
    }

    #[test]
    fn titles_are_different_so_that_their_order_is_certain() {
        let titles: HashSet<String> = (1..=1_000).map(|id| SCALE.item(id).title).collect();
        assert_eq!(titles.len(), 1_000);
    }

    #[test]
    fn every_author_has_a_book_and_related_books_are_five_others() {
        let authors: HashSet<i64> = (1..=1_000).map(|id| SCALE.item(id).author).collect();
        assert_eq!(authors.len() as i64, SCALE.authors());
        for scale in [SCALE, Scale { items: 100, ..SCALE }] {
            for item in (1..=scale.items).map(|id| scale.item(id)) {
                let others: HashSet<i64> = item.related.into_iter().collect();
                assert_eq!(others.len(), 5, "{item:?}");
                assert!(!others.contains(&item.id) && others.iter().all(|id| (1..=scale.items).contains(id)));
            }
        }
    }

    #[test]
    fn an_order_costs_its_lines_the_tax_and_the_shipping() {
        let line = |item, quantity, discount| OrderLine { item, quantity, discount };
        // 2 x 10.00 less 10 %, and 1 x 3.33 less 50 %, rounded down to the cent.
        let totals =
            OrderTotals::of(&[line(1, 2, 10), line(2, 1, 50)], |item| if item == 1 { 1_000 } else { 333 });
        assert_eq!(totals, OrderTotals { lines: 1_966, tax: 162, total: 1_966 + 162 + 600 });
    }

    #[test]
    fn the_last_order_of_a_customer_is_the_one_with_the_latest_date() {
        let last = SCALE.last_orders();
        for order in (1..=SCALE.orders()).map(|id| SCALE.order(id)) {
            let known = &last[&order.customer];
            assert!((&known.date, known.id) >= (&order.date, order.id));
        }
        let customers: HashSet<i64> = (1..=SCALE.orders()).map(|id| SCALE.order(id).customer).collect();
        assert_eq!(customers.len(), last.len());
    }
}
