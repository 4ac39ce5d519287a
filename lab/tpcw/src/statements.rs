//! The statements of the requests, prepared once per connection. Their texts follow the published server of Eve's
//! authors, in PostgreSQL's dialect.

use postgres::{Client, Statement};

/// Names of the statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table below has their texts")]
pub enum Sql {
    CustomerName,
    BestSellers,
    BySubject,
    ByTitle,
    ByAuthor,
    NewProducts,
    Related,
    CreateCart,
    CartLine,
    AddLine,
    ChangeLine,
    TouchCart,
    Cart,
    Customer,
    LastOrder,
    Order,
    OrderLines,
    Discount,
    EnterOrder,
    EnterLine,
    Stock,
    SetStock,
    EnterPayment,
    ClearCart,
}

/// Each with its text, in the order of the names.
const TEXTS: [(Sql, &str); 24] = [
    (Sql::CustomerName, "SELECT c_fname, c_lname FROM customer WHERE c_id = $1"),
    // The sum is not in the authors' list: the generator checks the order by it.
    (
        Sql::BestSellers,
        "SELECT i_id, i_title, a_fname, a_lname, CAST(SUM(ol_qty) AS BIGINT) AS sold FROM item, author, order_line \
         WHERE item.i_id = order_line.ol_i_id AND item.i_a_id = author.a_id \
         AND order_line.ol_o_id > (SELECT MAX(o_id) - 3333 FROM orders) AND item.i_subject = $1 \
         GROUP BY i_id, i_title, a_fname, a_lname ORDER BY SUM(ol_qty) DESC LIMIT 50",
    ),
    (
        Sql::BySubject,
        "SELECT * FROM item, author WHERE item.i_a_id = author.a_id AND item.i_subject = $1 \
         ORDER BY item.i_title LIMIT 50",
    ),
    (
        Sql::ByTitle,
        "SELECT * FROM item, author WHERE item.i_a_id = author.a_id AND item.i_title LIKE $1 \
         ORDER BY item.i_title LIMIT 50",
    ),
    (
        Sql::ByAuthor,
        "SELECT * FROM author, item WHERE author.a_lname LIKE $1 AND item.i_a_id = author.a_id \
         ORDER BY item.i_title LIMIT 50",
    ),
    (
        Sql::NewProducts,
        "SELECT i_id, i_title, a_fname, a_lname FROM item, author WHERE item.i_a_id = author.a_id \
         AND item.i_subject = $1 ORDER BY item.i_pub_date DESC, item.i_title LIMIT 50",
    ),
    (
        Sql::Related,
        "SELECT j.i_id, j.i_thumbnail FROM item i, item j WHERE (i.i_related1 = j.i_id OR i.i_related2 = j.i_id \
         OR i.i_related3 = j.i_id OR i.i_related4 = j.i_id OR i.i_related5 = j.i_id) AND i.i_id = $1",
    ),
    (Sql::CreateCart, "INSERT INTO shopping_cart (sc_id, sc_time) VALUES ($1, now())"),
    (Sql::CartLine, "SELECT scl_qty FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id = $2"),
    (Sql::AddLine, "INSERT INTO shopping_cart_line (scl_qty, scl_sc_id, scl_i_id) VALUES ($1, $2, $3)"),
    (Sql::ChangeLine, "UPDATE shopping_cart_line SET scl_qty = $1 WHERE scl_sc_id = $2 AND scl_i_id = $3"),
    (Sql::TouchCart, "UPDATE shopping_cart SET sc_time = now() WHERE sc_id = $1"),
    (
        Sql::Cart,
        "SELECT scl_i_id, scl_qty, i_title, i_cost FROM shopping_cart_line, item WHERE scl_i_id = item.i_id \
         AND scl_sc_id = $1 ORDER BY scl_i_id",
    ),
    (
        Sql::Customer,
        "SELECT * FROM customer, address, country WHERE customer.c_addr_id = address.addr_id \
         AND address.addr_co_id = country.co_id AND customer.c_uname = $1",
    ),
    (
        Sql::LastOrder,
        "SELECT o_id FROM customer, orders WHERE customer.c_id = orders.o_c_id AND c_uname = $1 \
         ORDER BY o_date DESC, orders.o_id DESC LIMIT 1",
    ),
    (
        Sql::Order,
        "SELECT orders.*, customer.*, cc_xacts.cx_type, cc_xacts.cx_xact_amt, \
         ship.addr_street1 AS ship_addr_street1, ship.addr_state AS ship_addr_state, \
         ship.addr_zip AS ship_addr_zip, ship_co.co_name AS ship_co_name, \
         bill.addr_street1 AS bill_addr_street1, bill.addr_state AS bill_addr_state, \
         bill.addr_zip AS bill_addr_zip, bill_co.co_name AS bill_co_name \
         FROM customer, orders, cc_xacts, address AS ship, country AS ship_co, address AS bill, country AS bill_co \
         WHERE orders.o_id = $1 AND cx_o_id = orders.o_id AND customer.c_id = orders.o_c_id \
         AND orders.o_bill_addr_id = bill.addr_id AND bill.addr_co_id = bill_co.co_id \
         AND orders.o_ship_addr_id = ship.addr_id AND ship.addr_co_id = ship_co.co_id",
    ),
    (Sql::OrderLines, "SELECT * FROM order_line, item WHERE ol_o_id = $1 AND ol_i_id = i_id ORDER BY ol_id"),
    (Sql::Discount, "SELECT c_discount, c_addr_id FROM customer WHERE c_id = $1"),
    (
        Sql::EnterOrder,
        "INSERT INTO orders (o_id, o_c_id, o_date, o_sub_total, o_tax, o_total, o_ship_type, o_ship_date, \
         o_bill_addr_id, o_ship_addr_id, o_status) \
         VALUES ($1, $2, now(), $3, $4, $5, 'SHIP', now(), $6, $6, 'PENDING')",
    ),
    (
        Sql::EnterLine,
        "INSERT INTO order_line (ol_id, ol_o_id, ol_i_id, ol_qty, ol_discount, ol_comments) \
         VALUES ($1, $2, $3, $4, $5, $6)",
    ),
    (Sql::Stock, "SELECT i_stock FROM item WHERE i_id = $1"),
    (Sql::SetStock, "UPDATE item SET i_stock = $1 WHERE i_id = $2"),
    (
        Sql::EnterPayment,
        "INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_xact_amt, cx_xact_date, cx_co_id) \
         VALUES ($1, $2, '1234567890', 'NAME', DATE '2030-01-01', $3, now(), \
         (SELECT co_id FROM address, country WHERE addr_id = $4 AND addr_co_id = co_id))",
    ),
    (Sql::ClearCart, "DELETE FROM shopping_cart_line WHERE scl_sc_id = $1"),
];

/// The statements of one connection.
pub struct Statements(Vec<Statement>);

impl Statements {
    /// Prepares all of them.
    ///
    /// # Errors
    /// The server refuses one, or is gone.
    pub fn prepare(client: &mut Client) -> anyhow::Result<Self> {
        let prepare = |(name, text): (Sql, &str)| {
            client
                .prepare(text)
                .map_err(|error| anyhow::Error::new(error).context(format!("{name:?}: {text}")))
        };
        TEXTS.into_iter().map(prepare).collect::<anyhow::Result<Vec<Statement>>>().map(Statements)
    }

    /// One of them.
    pub fn of(&self, name: Sql) -> &Statement {
        &self.0[name as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_at_the_number_of_its_name() {
        for (number, (name, text)) in TEXTS.into_iter().enumerate() {
            assert_eq!(name as usize, number, "{name:?}: {text}");
        }
    }
}
