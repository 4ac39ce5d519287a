//! The eight tables of clause 1.2, the two of carts that every implementation adds, and their indexes.
//!
//! Amounts are `bigint` cents, where the specification has `numeric(15, 2)`: arithmetic on `numeric` is refused by
//! `crosscheck-sql`. Discounts are whole per cent for the same reason.

/// Tables, in an order in which they can be filled.
pub const TABLES: [&str; 10] = [
    "country",
    "author",
    "address",
    "customer",
    "item",
    "orders",
    "order_line",
    "cc_xacts",
    "shopping_cart",
    "shopping_cart_line",
];

/// Statements that make the tables.
pub const CREATE_TABLES: [&str; 10] = [
    "CREATE TABLE country (co_id BIGINT PRIMARY KEY, co_name VARCHAR(50), co_exchange BIGINT, co_currency VARCHAR(18))",
    "CREATE TABLE author (a_id BIGINT PRIMARY KEY, a_fname VARCHAR(20), a_lname VARCHAR(20), a_mname VARCHAR(20), \
     a_dob DATE, a_bio VARCHAR(500))",
    "CREATE TABLE address (addr_id BIGINT PRIMARY KEY, addr_street1 VARCHAR(40), addr_street2 VARCHAR(40), \
     addr_city VARCHAR(30), addr_state VARCHAR(20), addr_zip VARCHAR(10), addr_co_id BIGINT)",
    "CREATE TABLE customer (c_id BIGINT PRIMARY KEY, c_uname VARCHAR(20), c_passwd VARCHAR(20), c_fname VARCHAR(17), \
     c_lname VARCHAR(17), c_addr_id BIGINT, c_phone VARCHAR(18), c_email VARCHAR(50), c_since DATE, \
     c_last_login DATE, c_login TIMESTAMP, c_expiration TIMESTAMP, c_discount BIGINT, c_balance BIGINT, \
     c_ytd_pmt BIGINT, c_birthdate DATE, c_data VARCHAR(510))",
    "CREATE TABLE item (i_id BIGINT PRIMARY KEY, i_title VARCHAR(60), i_a_id BIGINT, i_pub_date DATE, \
     i_publisher VARCHAR(60), i_subject VARCHAR(60), i_desc VARCHAR(500), i_related1 BIGINT, i_related2 BIGINT, \
     i_related3 BIGINT, i_related4 BIGINT, i_related5 BIGINT, i_thumbnail VARCHAR(40), i_image VARCHAR(40), \
     i_srp BIGINT, i_cost BIGINT, i_avail DATE, i_stock BIGINT, i_isbn VARCHAR(13), i_page BIGINT, \
     i_backing VARCHAR(15), i_dimensions VARCHAR(25))",
    "CREATE TABLE orders (o_id BIGINT PRIMARY KEY, o_c_id BIGINT, o_date TIMESTAMP, o_sub_total BIGINT, o_tax BIGINT, \
     o_total BIGINT, o_ship_type VARCHAR(10), o_ship_date TIMESTAMP, o_bill_addr_id BIGINT, o_ship_addr_id BIGINT, \
     o_status VARCHAR(15))",
    "CREATE TABLE order_line (ol_id BIGINT, ol_o_id BIGINT, ol_i_id BIGINT, ol_qty BIGINT, ol_discount BIGINT, \
     ol_comments VARCHAR(110), PRIMARY KEY (ol_o_id, ol_id))",
    "CREATE TABLE cc_xacts (cx_o_id BIGINT PRIMARY KEY, cx_type VARCHAR(10), cx_num VARCHAR(20), cx_name VARCHAR(30), \
     cx_expire DATE, cx_auth_id VARCHAR(15), cx_xact_amt BIGINT, cx_xact_date TIMESTAMP, cx_co_id BIGINT)",
    "CREATE TABLE shopping_cart (sc_id BIGINT PRIMARY KEY, sc_time TIMESTAMP)",
    "CREATE TABLE shopping_cart_line (scl_sc_id BIGINT, scl_i_id BIGINT, scl_qty BIGINT, \
     PRIMARY KEY (scl_sc_id, scl_i_id))",
];

/// Statements that make the indexes, after the tables are filled: those of the Wisconsin implementation that a query
/// here can use.
pub const CREATE_INDEXES: [&str; 7] = [
    "CREATE INDEX author_a_lname ON author (a_lname)",
    "CREATE UNIQUE INDEX customer_c_uname ON customer (c_uname)",
    "CREATE INDEX item_i_title ON item (i_title)",
    "CREATE INDEX item_i_subject ON item (i_subject)",
    "CREATE INDEX item_i_a_id ON item (i_a_id)",
    "CREATE INDEX order_line_ol_i_id ON order_line (ol_i_id)",
    "CREATE INDEX orders_o_c_id ON orders (o_c_id)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_made_in_the_order_of_its_name() {
        for (name, create) in TABLES.iter().zip(CREATE_TABLES) {
            assert!(create.starts_with(&format!("CREATE TABLE {name} (")), "{name}: {create}");
        }
    }

    #[test]
    fn every_index_is_on_a_column_of_its_table() {
        for create in CREATE_INDEXES {
            let (table, column) =
                create.split_once(" ON ").and_then(|(_, on)| on.split_once(" (")).expect("an index");
            let at = TABLES.iter().position(|name| *name == table).expect("its table");
            assert!(CREATE_TABLES[at].contains(column.trim_end_matches(')')), "{create}");
        }
    }
}
