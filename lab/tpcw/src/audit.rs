//! The whole database after a run: every order costs its lines and is paid once, everything that was acknowledged is
//! there and nothing else, and each book's stock is what its sales left.

use std::collections::{HashMap, HashSet};

use postgres::{Client, Row};

use crate::catalogue::Catalogue;
use crate::population::{OrderLine, OrderTotals, PlacedOrder, SUBJECTS, Scale};
use crate::requests::{DELIVERY, order_line};
use crate::shopper::SeenByShopper;

/// Orders of the best-seller list.
const RECENT_ORDERS: i64 = 3_333;
/// Breaches that are listed.
const LISTED: usize = 20;

/// The orders in a database, with the amount of each payment.
#[derive(Debug, Default)]
pub struct Books {
    orders: HashMap<i64, (PlacedOrder, i64)>,
}

impl Books {
    /// Reads all orders whose number is at least this.
    ///
    /// # Errors
    /// The server's.
    pub fn read(client: &mut Client, least: i64) -> anyhow::Result<Self> {
        let text = "SELECT o_id, o_c_id, o_sub_total, o_tax, o_total, cx_xact_amt, CAST(o_date AS TEXT) AS o_text \
                    FROM orders LEFT JOIN cc_xacts ON cx_o_id = o_id WHERE o_id >= $1 ORDER BY o_id";
        let mut orders = HashMap::new();
        for row in client.query(text, &[&least])? {
            let (id, order) = order_of(&row)?;
            anyhow::ensure!(orders.insert(id, order).is_none(), "order {id} is there twice");
        }
        let text = "SELECT ol_o_id, ol_i_id, ol_qty, ol_discount FROM order_line WHERE ol_o_id >= $1 \
                    ORDER BY ol_o_id, ol_id";
        for row in client.query(text, &[&least])? {
            let order: i64 = row.try_get("ol_o_id")?;
            let line = order_line(&row).map_err(|trouble| anyhow::anyhow!("{trouble:?}"))?;
            let known = orders.get_mut(&order);
            known
                .ok_or_else(|| anyhow::anyhow!("a line of order {order}, which there is not"))?
                .0
                .lines
                .push(line);
        }
        Ok(Books { orders })
    }

    /// The largest number of an order; 0 of none.
    pub fn last_number(&self) -> i64 {
        self.orders.keys().copied().max().unwrap_or(0)
    }

    /// The orders.
    pub fn orders(&self) -> impl Iterator<Item = &PlacedOrder> {
        self.orders.values().map(|(order, _)| order)
    }

    /// What is wrong with the orders themselves.
    pub fn breaches(&self, catalogue: &Catalogue) -> Vec<String> {
        let mut breaches = Vec::new();
        for (order, paid) in self.orders.values() {
            let due = OrderTotals::of(&order.lines, |item| catalogue.cost(item));
            if order.lines.is_empty() || order.totals != due || *paid != due.total {
                breaches.push(format!("{order:?}, of which {paid} is paid, costs {due:?}"));
            }
        }
        breaches
    }

    /// Copies sold of each book.
    fn sold(&self) -> HashMap<i64, i64> {
        let mut sold = HashMap::new();
        for line in self.orders().flat_map(|order| &order.lines) {
            *sold.entry(line.item).or_default() += line.quantity;
        }
        sold
    }
}

fn order_of(row: &Row) -> anyhow::Result<(i64, (PlacedOrder, i64))> {
    let id: i64 = row.try_get("o_id")?;
    let totals = OrderTotals {
        lines: row.try_get("o_sub_total")?,
        tax: row.try_get("o_tax")?,
        total: row.try_get("o_total")?,
    };
    let order = PlacedOrder {
        id,
        customer: row.try_get("o_c_id")?,
        date: row.try_get("o_text")?,
        totals,
        lines: Vec::new(),
    };
    let paid: Option<i64> = row.try_get("cx_xact_amt")?;
    Ok((id, (order, paid.unwrap_or(-1))))
}

/// Looks at everything. `before` are the orders since the population that were there before the run.
///
/// # Errors
/// The server's.
pub fn audit(
    client: &mut Client,
    scale: Scale,
    catalogue: &Catalogue,
    before: &Books,
    seen: &[SeenByShopper],
) -> anyhow::Result<Vec<String>> {
    let all = Books::read(client, 0)?;
    let mut breaches = all.breaches(catalogue);
    breaches.extend(compare(&all, scale, before, seen));
    let since_population = Books::read(client, scale.orders() + 1)?;
    breaches.extend(stock(client, scale, &since_population.sold())?);
    breaches.extend(counts(client, scale, &all)?);
    for subject in 0..SUBJECTS.len() {
        breaches.extend(best_sellers(client, catalogue, &all, subject)?);
    }
    let more = breaches.len().saturating_sub(LISTED);
    breaches.truncate(LISTED);
    if more > 0 {
        breaches.push(format!("and {more} more"));
    }
    Ok(breaches)
}

/// Every order that has to be there is, as it was ordered, and there is no other one.
fn compare(all: &Books, scale: Scale, before: &Books, seen: &[SeenByShopper]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut due: HashSet<i64> = (1..=scale.orders()).collect();
    let same = |a: &PlacedOrder, b: &PlacedOrder| {
        (a.customer, a.totals, &a.lines) == (b.customer, b.totals, &b.lines)
    };
    let populated: Vec<PlacedOrder> = (1..=scale.orders()).map(|id| scale.order(id)).collect();
    let acknowledged = seen.iter().flat_map(|seen| &seen.orders);
    for order in populated.iter().chain(before.orders()).chain(acknowledged) {
        due.insert(order.id);
        match all.orders.get(&order.id) {
            Some((found, _)) if same(found, order) => {}
            found => breaches.push(format!("{order:?} was acknowledged, there is {found:?}")),
        }
    }
    let unsure: HashMap<i64, &PlacedOrder> =
        seen.iter().flat_map(|seen| &seen.unsure).map(|order| (order.id, order)).collect();
    for order in all.orders().filter(|order| !due.contains(&order.id)) {
        if !unsure.get(&order.id).is_some_and(|unsure| same(unsure, order)) {
            breaches.push(format!("{order:?} was never acknowledged"));
        }
    }
    breaches
}

/// A book's stock is that of the population, less what was sold, and 21 for each delivery.
fn stock(client: &mut Client, scale: Scale, sold: &HashMap<i64, i64>) -> anyhow::Result<Vec<String>> {
    let rows = client.query("SELECT i_id, i_stock FROM item ORDER BY i_id", &[])?;
    let mut breaches = Vec::new();
    if rows.len() as i64 != scale.items {
        breaches.push(format!("{} books", rows.len()));
    }
    for row in rows {
        let (id, stock): (i64, i64) = (row.try_get("i_id")?, row.try_get("i_stock")?);
        let delivered = stock - scale.item(id).stock + sold.get(&id).copied().unwrap_or(0);
        if stock < 10 || delivered < 0 || delivered % DELIVERY != 0 {
            breaches.push(format!("book {id}: {sold:?} sold, {stock} left, {delivered} delivered"));
        }
    }
    Ok(breaches)
}

/// The tables' sizes and sums by the server, beside those of the rows that it returned.
fn counts(client: &mut Client, scale: Scale, all: &Books) -> anyhow::Result<Vec<String>> {
    let lines = || all.orders().flat_map(|order| &order.lines);
    let due = [
        ("SELECT COUNT(*) FROM customer", scale.customers()),
        ("SELECT COUNT(*) FROM address", scale.addresses()),
        ("SELECT COUNT(*) FROM author", scale.authors()),
        ("SELECT COUNT(*) FROM orders", all.orders.len() as i64),
        ("SELECT COUNT(*) FROM cc_xacts", all.orders.len() as i64),
        ("SELECT COUNT(*) FROM order_line", lines().count() as i64),
        ("SELECT CAST(SUM(ol_qty) AS BIGINT) FROM order_line", lines().map(|line| line.quantity).sum()),
        (
            "SELECT CAST(SUM(o_total) AS BIGINT) FROM orders",
            all.orders().map(|order| order.totals.total).sum(),
        ),
        (
            "SELECT CAST(SUM(cx_xact_amt) AS BIGINT) FROM cc_xacts",
            all.orders().map(|order| order.totals.total).sum(),
        ),
    ];
    let mut breaches = Vec::new();
    for (text, due) in due {
        let found: i64 = client.query_one(text, &[])?.try_get(0)?;
        if found != due {
            breaches.push(format!("{text}: {found} in the place of {due}"));
        }
    }
    Ok(breaches)
}

/// The list of best sellers, beside the same sums over all order lines.
fn best_sellers(
    client: &mut Client,
    catalogue: &Catalogue,
    all: &Books,
    subject: usize,
) -> anyhow::Result<Vec<String>> {
    let text = "SELECT i_id, CAST(SUM(ol_qty) AS BIGINT) AS sold FROM item, order_line \
                WHERE i_id = ol_i_id AND i_subject = $1 AND ol_o_id > (SELECT MAX(o_id) - 3333 FROM orders) \
                GROUP BY i_id ORDER BY SUM(ol_qty) DESC LIMIT 50";
    let mut found = Vec::new();
    for row in client.query(text, &[&SUBJECTS[subject]])? {
        found.push((row.try_get::<_, i64>("i_id")?, row.try_get::<_, i64>("sold")?));
    }
    let recent = all.orders().filter(|order| order.id > all.last_number() - RECENT_ORDERS);
    let sold = sums(recent.flat_map(|order| &order.lines), |item| catalogue.is_of(item, subject));
    Ok(list_breach(&found, &sold)
        .map(|what| format!("best sellers of {}: {what}", SUBJECTS[subject]))
        .into_iter()
        .collect())
}

fn sums<'a>(lines: impl Iterator<Item = &'a OrderLine>, is_meant: impl Fn(i64) -> bool) -> HashMap<i64, i64> {
    let mut sold = HashMap::new();
    for line in lines.filter(|line| is_meant(line.item)) {
        *sold.entry(line.item).or_default() += line.quantity;
    }
    sold
}

/// Which of several with the same sum are the last of a full list is not defined: the sums are.
fn list_breach(found: &[(i64, i64)], sold: &HashMap<i64, i64>) -> Option<String> {
    let mut due: Vec<i64> = sold.values().copied().collect();
    due.sort_unstable_by(|a, b| b.cmp(a));
    due.truncate(50);
    let sums: Vec<i64> = found.iter().map(|(_, sold)| *sold).collect();
    let wrong = found.iter().find(|(item, count)| sold.get(item) != Some(count));
    match wrong {
        Some((item, count)) => Some(format!("{count} of {item} in the place of {:?}", sold.get(item))),
        None if sums != due => Some(format!("{sums:?} in the place of {due:?}")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { items: 100, ebs: 1, seed: 5 };

    fn books(change: impl Fn(&mut PlacedOrder)) -> Books {
        let orders = (1..=SCALE.orders()).map(|id| {
            let mut order = SCALE.order(id);
            let paid = order.totals.total;
            change(&mut order);
            (id, (order, paid))
        });
        Books { orders: orders.collect() }
    }

    #[test]
    fn the_population_has_no_breach() {
        let catalogue = Catalogue::new(SCALE);
        let all = books(|_| ());
        assert_eq!(all.breaches(&catalogue), Vec::<String>::new());
        assert_eq!(compare(&all, SCALE, &Books::default(), &[]), Vec::<String>::new());
    }

    #[test]
    fn a_line_that_is_lost_is_found_by_both_checks() {
        let all = books(|order| {
            if order.id == 3 {
                order.lines.pop();
            }
        });
        assert_eq!(all.breaches(&Catalogue::new(SCALE)).len(), 1);
        assert_eq!(compare(&all, SCALE, &Books::default(), &[]).len(), 1);
    }

    #[test]
    fn an_order_that_nobody_placed_and_one_that_is_lost_are_found() {
        let mut all = books(|_| ());
        let (mut order, paid) = all.orders.remove(&7).expect("order 7");
        order.id = SCALE.orders() + 1;
        all.orders.insert(order.id, (order.clone(), paid));
        let breaches = compare(&all, SCALE, &Books::default(), &[]);
        assert_eq!(breaches.len(), 2, "{breaches:?}");
        // One whose COMMIT had no answer may be there.
        let seen = [SeenByShopper { unsure: vec![order], ..SeenByShopper::default() }];
        assert_eq!(compare(&all, SCALE, &Books::default(), &seen).len(), 1);
    }

    #[test]
    fn a_list_of_best_sellers_may_differ_only_where_sums_are_equal() {
        let sold: HashMap<i64, i64> =
            (1..=51).map(|item| (item, if item < 50 { 100 - item } else { 3 })).collect();
        let with = |last| (1..50).map(|item| (item, 100 - item)).chain([(last, 3)]).collect::<Vec<_>>();
        assert_eq!(list_breach(&with(50), &sold), None);
        assert_eq!(list_breach(&with(51), &sold), None);
        assert!(list_breach(&with(52), &sold).is_some());
        assert!(list_breach(&with(50)[1..], &sold).is_some());
    }
}
