//! The twelve requests, each with the check of its answer.

use postgres::Row;

use crate::mix::RequestType;
use crate::population::{Item, OrderLine, OrderTotals, PlacedOrder, SUBJECTS};
use crate::random::syllables;
use crate::shopper::{Cart, ShopConnection, ShopResult, Shopper, Trouble};
use crate::statements::Sql;

/// The cards of clause 4.7.
const CARDS: [&str; 5] = ["VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"];
/// Below this a book is ordered again.
const LEAST_STOCK: i64 = 10;
/// So many copies come then.
pub const DELIVERY: i64 = 21;

/// Gives up with this evidence unless the condition holds.
fn must(holds: bool, evidence: impl FnOnce() -> String) -> ShopResult<()> {
    if holds { Ok(()) } else { Err(Trouble::Wrong(evidence())) }
}

/// What is in a column.
fn cell<'a, T: postgres::types::FromSql<'a>>(row: &'a Row, column: &str) -> ShopResult<T> {
    row.try_get(column).map_err(|error| Trouble::Wrong(format!("column {column}: {error}")))
}

/// The stock of a book after a sale: by clause 2.7.3 a delivery comes when fewer than ten would be left.
pub fn stock_after(stock: i64, sold: i64) -> i64 {
    let left = stock - sold;
    if left < LEAST_STOCK { left + DELIVERY } else { left }
}

impl Shopper {
    /// Asks for this, and checks the answer.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub fn perform(&mut self, request: RequestType, connection: &mut ShopConnection) -> ShopResult<()> {
        let is_transaction =
            matches!(request, RequestType::FillCart | RequestType::BuyConfirm | RequestType::MostRecentOrder);
        if !is_transaction {
            return self.perform_one(request, connection);
        }
        connection.client.batch_execute("BEGIN")?;
        let done = match request {
            RequestType::FillCart => self.fill_cart(connection).map(Done::Cart),
            RequestType::BuyConfirm => self.buy_confirm(connection).map(Done::Order),
            _ => self.most_recent_order(connection).map(|()| Done::Read),
        };
        match done {
            Ok(done) => self.commit(connection, done),
            Err(trouble) => {
                // The first error is the one to report: after it, this one may be that there is no connection.
                let _ = connection.client.batch_execute("ROLLBACK");
                Err(trouble)
            }
        }
    }

    fn perform_one(&mut self, request: RequestType, connection: &mut ShopConnection) -> ShopResult<()> {
        match request {
            RequestType::Init => self.init(connection),
            RequestType::BestSellers => self.best_sellers(connection),
            RequestType::BooksBySubject => self.books_by_subject(connection),
            RequestType::BooksByTitle => self.books_by_title(connection),
            RequestType::BooksByAuthor => self.books_by_author(connection),
            RequestType::NewProducts => self.new_products(connection),
            RequestType::RelatedBooks => self.related_books(connection),
            RequestType::CreateCart => self.create_cart(connection),
            RequestType::GetCustomer => self.get_customer(connection),
            RequestType::FillCart | RequestType::BuyConfirm | RequestType::MostRecentOrder => {
                unreachable!("{} is a transaction", request.name())
            }
        }
    }

    fn commit(&mut self, connection: &mut ShopConnection, done: Done) -> ShopResult<()> {
        let outcome = connection.client.batch_execute("COMMIT").map_err(Trouble::from);
        match (outcome, done) {
            (Ok(()), Done::Read) => Ok(()),
            (Ok(()), Done::Cart(cart)) => {
                self.cart = Some(cart);
                Ok(())
            }
            (Ok(()), Done::Order(order)) => {
                self.cart = None;
                self.bought.insert(order.customer, order.clone());
                self.seen.orders.push(order);
                Ok(())
            }
            (Err(Trouble::Failed(error)), Done::Order(order)) => {
                // It counts or not. The customer's last order is not known any more, so that it is asked for no more.
                self.seen.unsure.push(order);
                Err(Trouble::Failed(error))
            }
            (Err(trouble), _) => Err(trouble),
        }
    }

    /// The home page: it greets the customer.
    fn init(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let drawn = self.draw_customer();
        let customer = self.shop.scale.customer(drawn);
        let rows = connection.query(Sql::CustomerName, &[&customer.id])?;
        must(rows.len() == 1, || format!("{} customers {}", rows.len(), customer.id))?;
        let name: (&str, &str) = (cell(&rows[0], "c_fname")?, cell(&rows[0], "c_lname")?);
        must(name == (&customer.first, &customer.last), || format!("customer {} is {name:?}", customer.id))
    }

    /// Sales go on meanwhile, so that the list itself is compared at the end of the run only.
    fn best_sellers(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let subject = self.random.below(SUBJECTS.len() as u64) as usize;
        let rows = connection.query(Sql::BestSellers, &[&SUBJECTS[subject]])?;
        must(rows.len() <= 50, || format!("{} best sellers", rows.len()))?;
        let mut known = std::collections::HashSet::new();
        let mut before = i64::MAX;
        for row in &rows {
            let id: i64 = cell(row, "i_id")?;
            let sold: i64 = cell(row, "sold")?;
            must(known.insert(id), || format!("book {id} is in the list twice"))?;
            must((1..=before).contains(&sold), || {
                format!("book {id}: {sold} sold, after one with {before}")
            })?;
            before = sold;
            self.check_short(row, |item| item.subject == subject)?;
        }
        Ok(())
    }

    fn books_by_subject(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let subject = self.random.below(SUBJECTS.len() as u64) as usize;
        let rows = connection.query(Sql::BySubject, &[&SUBJECTS[subject]])?;
        let due = self.shop.catalogue.page(|item| item.subject == subject);
        self.check_books(&rows, &due, SUBJECTS[subject])
    }

    fn books_by_title(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let item = self.draw_item();
        let title = self.shop.catalogue.items()[item as usize - 1].title.clone();
        let at = self.random.below(title.len() as u64 - 2) as usize;
        let part = &title[at..at + 3];
        let rows = connection.query(Sql::ByTitle, &[&format!("%{part}%")])?;
        let due = self.shop.catalogue.page(|item| item.title.contains(part));
        self.check_books(&rows, &due, part)
    }

    fn books_by_author(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let authors = self.shop.catalogue.authors();
        let name = authors[self.random.below(authors.len() as u64) as usize].last.clone();
        let part = &name[..name.len() - 1];
        let rows = connection.query(Sql::ByAuthor, &[&format!("%{part}%")])?;
        let catalogue = &self.shop.catalogue;
        let due = catalogue.page(|item| catalogue.author_of(item).last.contains(part));
        self.check_books(&rows, &due, part)
    }

    fn new_products(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let subject = self.random.below(SUBJECTS.len() as u64) as usize;
        let rows = connection.query(Sql::NewProducts, &[&SUBJECTS[subject]])?;
        let due = self.shop.catalogue.new_products(subject);
        for row in &rows {
            self.check_short(row, |item| item.subject == subject)?;
        }
        check_numbers(&rows, &due, SUBJECTS[subject])
    }

    fn related_books(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let id = self.draw_item();
        let rows = connection.query(Sql::Related, &[&id])?;
        let mut found = rows.iter().map(|row| cell(row, "i_id")).collect::<ShopResult<Vec<i64>>>()?;
        found.sort_unstable();
        let mut due = self.shop.scale.item(id).related;
        due.sort_unstable();
        must(found == due, || format!("books {found:?} in the place of {due:?} are related to {id}"))?;
        for row in &rows {
            let (book, image): (i64, &str) = (cell(row, "i_id")?, cell(row, "i_thumbnail")?);
            must(image == format!("thumb_{book}.gif"), || format!("book {book} has the image {image}"))?;
        }
        Ok(())
    }

    fn create_cart(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let id = self.next_cart();
        connection.change(Sql::CreateCart, &[&id], 1)?;
        self.cart = Some(Cart { id, ..Cart::default() });
        Ok(())
    }

    /// Adds a copy of a book, and returns the cart as it is then.
    fn fill_cart(&mut self, connection: &mut ShopConnection) -> ShopResult<Cart> {
        let mut cart = self.cart.clone().ok_or_else(|| Trouble::Wrong("there is no cart".to_owned()))?;
        let item = self.draw_for_cart();
        let rows = connection.query(Sql::CartLine, &[&cart.id, &item])?;
        let found = rows.first().map(|row| cell::<i64>(row, "scl_qty")).transpose()?;
        let known = cart.lines.get(&item).copied();
        must(found == known, || format!("cart {} has {found:?} copies of {item}, not {known:?}", cart.id))?;
        let copies = known.unwrap_or(0) + 1;
        match known {
            Some(_) => connection.change(Sql::ChangeLine, &[&copies, &cart.id, &item], 1)?,
            None => connection.change(Sql::AddLine, &[&copies, &cart.id, &item], 1)?,
        }
        connection.change(Sql::TouchCart, &[&cart.id], 1)?;
        cart.lines.insert(item, copies);
        self.check_cart(connection, &cart)?;
        Ok(cart)
    }

    fn check_cart(&self, connection: &mut ShopConnection, cart: &Cart) -> ShopResult<()> {
        let rows = connection.query(Sql::Cart, &[&cart.id])?;
        let mut lines = Vec::new();
        for row in &rows {
            let (id, copies): (i64, i64) = (cell(row, "scl_i_id")?, cell(row, "scl_qty")?);
            let cost: i64 = cell(row, "i_cost")?;
            must(cost == self.shop.catalogue.cost(id), || format!("book {id} costs {cost}"))?;
            lines.push((id, copies));
        }
        let due: Vec<(i64, i64)> = cart.lines.iter().map(|(id, copies)| (*id, *copies)).collect();
        must(lines == due, || format!("cart {} has {lines:?} in the place of {due:?}", cart.id))
    }

    fn get_customer(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let drawn = self.draw_customer();
        let customer = self.shop.scale.customer(drawn);
        let rows = connection.query(Sql::Customer, &[&customer.user])?;
        must(rows.len() == 1, || format!("{} customers {}", rows.len(), customer.user))?;
        let row = &rows[0];
        let address = self.shop.scale.address(customer.address);
        let found: (i64, &str, i64) = (cell(row, "c_id")?, cell(row, "c_data")?, cell(row, "c_discount")?);
        let due = (customer.id, customer.data.as_str(), customer.discount);
        must(found == due, || format!("customer {found:?} in the place of {due:?}"))?;
        let found: (&str, &str, i64) =
            (cell(row, "addr_street1")?, cell(row, "addr_zip")?, cell(row, "co_id")?);
        let due = (address.street.as_str(), address.zip.as_str(), address.country);
        must(found == due, || format!("address {found:?} in the place of {due:?}"))
    }

    fn most_recent_order(&mut self, connection: &mut ShopConnection) -> ShopResult<()> {
        let customer = self.draw_customer();
        if self.seen.unsure.iter().any(|order| order.customer == customer) {
            return Ok(());
        }
        let rows = connection.query(Sql::LastOrder, &[&syllables(customer)])?;
        let found = rows.first().map(|row| cell::<i64>(row, "o_id")).transpose()?;
        let due = self.last_order(customer).cloned();
        let number = due.as_ref().map(|order| order.id);
        must(found == number, || {
            format!("the last order of customer {customer} is {found:?}, not {number:?}")
        })?;
        let Some(due) = due else { return Ok(()) };
        let rows = connection.query(Sql::Order, &[&due.id])?;
        must(rows.len() == 1, || format!("{} orders {}", rows.len(), due.id))?;
        let row = &rows[0];
        let totals = OrderTotals {
            lines: cell(row, "o_sub_total")?,
            tax: cell(row, "o_tax")?,
            total: cell(row, "o_total")?,
        };
        must(totals == due.totals, || {
            format!("order {}: {totals:?} in the place of {:?}", due.id, due.totals)
        })?;
        let (owner, paid): (i64, i64) = (cell(row, "c_id")?, cell(row, "cx_xact_amt")?);
        must(owner == customer && paid == totals.total, || {
            format!("order {} is of {owner}, not {customer}, and {paid} was paid", due.id)
        })?;
        let lines = connection.query(Sql::OrderLines, &[&due.id])?;
        let lines = lines.iter().map(order_line).collect::<ShopResult<Vec<OrderLine>>>()?;
        must(lines == due.lines, || format!("order {}: {lines:?} in the place of {:?}", due.id, due.lines))
    }

    /// Buys what is in the cart, as one transaction of clause 2.7.
    fn buy_confirm(&mut self, connection: &mut ShopConnection) -> ShopResult<PlacedOrder> {
        let cart = self.cart.clone().ok_or_else(|| Trouble::Wrong("there is no cart".to_owned()))?;
        let drawn = self.draw_customer();
        let customer = self.shop.scale.customer(drawn);
        let rows = connection.query(Sql::Discount, &[&customer.id])?;
        must(rows.len() == 1, || format!("{} customers {}", rows.len(), customer.id))?;
        let found: (i64, i64) = (cell(&rows[0], "c_discount")?, cell(&rows[0], "c_addr_id")?);
        must(found == (customer.discount, customer.address), || {
            format!("customer {}: {found:?}", customer.id)
        })?;
        self.check_cart(connection, &cart)?;
        let line = |(item, quantity): (&i64, &i64)| OrderLine {
            item: *item,
            quantity: *quantity,
            discount: customer.discount,
        };
        let lines: Vec<OrderLine> = cart.lines.iter().map(line).collect();
        let totals = OrderTotals::of(&lines, |item| self.shop.catalogue.cost(item));
        let order =
            PlacedOrder { id: self.next_order(), customer: customer.id, date: String::new(), totals, lines };
        let OrderTotals { lines: sum, tax, total } = totals;
        let address = customer.address;
        connection.change(Sql::EnterOrder, &[&order.id, &order.customer, &sum, &tax, &total, &address], 1)?;
        for (number, line) in order.lines.iter().enumerate() {
            self.enter_line(connection, order.id, number as i64, line)?;
        }
        let card = *self.random.pick(&CARDS);
        connection.change(Sql::EnterPayment, &[&order.id, &card, &total, &address], 1)?;
        connection.change(Sql::ClearCart, &[&cart.id], order.lines.len() as u64)?;
        Ok(order)
    }

    fn enter_line(
        &self,
        connection: &mut ShopConnection,
        order: i64,
        number: i64,
        line: &OrderLine,
    ) -> ShopResult<()> {
        let OrderLine { item, quantity, discount } = *line;
        connection.change(Sql::EnterLine, &[&number, &order, &item, &quantity, &discount, &"NONE"], 1)?;
        let rows = connection.query(Sql::Stock, &[&item])?;
        must(rows.len() == 1, || format!("{} books {item}", rows.len()))?;
        let stock: i64 = cell(&rows[0], "i_stock")?;
        must(stock >= LEAST_STOCK, || format!("book {item} has a stock of {stock}"))?;
        connection.change(Sql::SetStock, &[&stock_after(stock, quantity), &item], 1)
    }

    /// A row with a book and its author, of four columns.
    fn check_short(&self, row: &Row, is_meant: impl Fn(&Item) -> bool) -> ShopResult<()> {
        let id: i64 = cell(row, "i_id")?;
        let Some(item) = self.shop.catalogue.item(id) else {
            return Err(Trouble::Wrong(format!("there is no book {id}")));
        };
        let author = self.shop.catalogue.author_of(item);
        let found: (&str, &str, &str) = (cell(row, "i_title")?, cell(row, "a_fname")?, cell(row, "a_lname")?);
        let due = (item.title.as_str(), author.first.as_str(), author.last.as_str());
        must(found == due, || format!("book {id} is {found:?} in the place of {due:?}"))?;
        must(is_meant(item), || format!("book {id} is of {}", SUBJECTS[item.subject]))
    }

    /// Rows with all columns of a book and its author.
    fn check_books(&self, rows: &[Row], due: &[i64], asked: &str) -> ShopResult<()> {
        check_numbers(rows, due, asked)?;
        for row in rows {
            self.check_short(row, |_| true)?;
            let id: i64 = cell(row, "i_id")?;
            let (cost, description): (i64, &str) = (cell(row, "i_cost")?, cell(row, "i_desc")?);
            let item = self.shop.catalogue.item(id).expect("check_short found it");
            must(cost == item.cost && description == item.description, || {
                format!("book {id} costs {cost} and is described by {description}")
            })?;
        }
        Ok(())
    }
}

/// What a transaction has done when it is committed.
enum Done {
    Read,
    Cart(Cart),
    Order(PlacedOrder),
}

fn check_numbers(rows: &[Row], due: &[i64], asked: &str) -> ShopResult<()> {
    let found = rows.iter().map(|row| cell(row, "i_id")).collect::<ShopResult<Vec<i64>>>()?;
    must(found == due, || format!("asked for {asked}: books {found:?} in the place of {due:?}"))
}

/// A row of `order_line`.
///
/// # Errors
/// A column is missing, or of another type.
pub fn order_line(row: &Row) -> ShopResult<OrderLine> {
    Ok(OrderLine {
        item: cell(row, "ol_i_id")?,
        quantity: cell(row, "ol_qty")?,
        discount: cell(row, "ol_discount")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_comes_before_a_book_is_out_of_stock() {
        assert_eq!(stock_after(30, 5), 25);
        assert_eq!(stock_after(15, 5), 10);
        assert_eq!(stock_after(14, 5), 9 + DELIVERY);
        for stock in LEAST_STOCK..=60 {
            for sold in 1..=20 {
                assert!(stock_after(stock, sold) >= LEAST_STOCK || sold > 21, "{stock} less {sold}");
            }
        }
    }
}
