//! `populate`: makes the tables and fills them.

use std::time::Instant;

use anyhow::Context;
use postgres::{Client, NoTls};

use crate::population::{COUNTRIES, PlacedOrder, SUBJECTS, Scale};
use crate::schema::{CREATE_INDEXES, CREATE_TABLES, TABLES};

/// Bytes of one INSERT, roughly: a message of `crosscheck-sql` has 1 MiB at most.
const STATEMENT_BYTES: usize = 128 * 1024;

/// Options of `populate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where the server listens, as HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    pub address: String,
    /// Of which size.
    #[command(flatten)]
    pub scale: Scale,
    /// Drop the tables first, if there are any
    #[arg(long)]
    pub again: bool,
}

/// Makes and fills the tables, and says how long that took.
///
/// # Errors
/// The server cannot be reached, or refuses a statement.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let begun = Instant::now();
    populate(&args.address, args.scale, args.again)?;
    println!(
        "{} items, {} customers, {} orders in {:.1} s",
        args.scale.items,
        args.scale.customers(),
        args.scale.orders(),
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Makes and fills the tables.
///
/// # Errors
/// The server cannot be reached, or refuses a statement.
pub fn populate(address: &str, scale: Scale, again: bool) -> anyhow::Result<()> {
    let mut client = connect(address)?;
    if again {
        for table in TABLES {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {table}")).context(table)?;
        }
    }
    for create in CREATE_TABLES {
        client.batch_execute(create).context(create)?;
    }
    fill(&mut client, scale)?;
    for create in CREATE_INDEXES {
        client.batch_execute(create).context(create)?;
    }
    // Statistics for a planner that uses them. SQLite's pages would depend on when they are made: it is refused there.
    match client.batch_execute("VACUUM ANALYZE") {
        Err(error) if error.code() == Some(&postgres::error::SqlState::FEATURE_NOT_SUPPORTED) => Ok(()),
        other => other.context("VACUUM ANALYZE"),
    }
}

/// Connects to a server as the user and to the database `tpcw`, which `crosscheck-sql` does not distinguish.
///
/// # Errors
/// Nobody answers there, or the answer is no.
pub fn connect(address: &str) -> anyhow::Result<Client> {
    let (host, port) = address.rsplit_once(':').with_context(|| format!("{address} is not HOST:PORT"))?;
    let text = format!("host={host} port={port} user=tpcw dbname=postgres connect_timeout=20");
    Client::connect(&text, NoTls).with_context(|| format!("connecting to {address}"))
}

fn fill(client: &mut Client, scale: Scale) -> anyhow::Result<()> {
    insert(
        client,
        "country",
        (1..=COUNTRIES).map(|id| format!("{id}\tCOUNTRY{id}\t{}\tCURRENCY{id}", 100 + id)),
    )?;
    insert(client, "author", (1..=scale.authors()).map(|id| author(scale, id)))?;
    insert(client, "address", (1..=scale.addresses()).map(|id| address_row(scale, id)))?;
    insert(client, "customer", (1..=scale.customers()).map(|id| customer(scale, id)))?;
    insert(client, "item", (1..=scale.items).map(|id| item(scale, id)))?;
    let orders = || (1..=scale.orders()).map(|id| scale.order(id));
    insert(client, "orders", orders().map(|order| order_row(scale, &order)))?;
    insert(client, "order_line", orders().flat_map(|order| line_rows(&order)))?;
    insert(client, "cc_xacts", orders().map(|order| payment_row(scale, &order)))
}

/// Fills a table. Rows have values between tabs, and no value has a quote.
fn insert(client: &mut Client, table: &str, rows: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let begin = format!("INSERT INTO {table} VALUES ");
    let mut text = String::new();
    for row in rows {
        text += if text.is_empty() { &begin } else { "," };
        text += &format!("('{}')", row.replace('\t', "','"));
        if text.len() > STATEMENT_BYTES {
            client.batch_execute(&text).context(table.to_owned())?;
            text.clear();
        }
    }
    if text.is_empty() { Ok(()) } else { client.batch_execute(&text).context(table.to_owned()) }
}

fn author(scale: Scale, id: i64) -> String {
    let author = scale.author(id);
    let rest = [author.first, author.last, author.middle, author.born, author.biography].join("\t");
    format!("{id}\t{rest}")
}

fn address_row(scale: Scale, id: i64) -> String {
    let address = scale.address(id);
    let texts = [address.street, address.street2, address.city, address.state, address.zip].join("\t");
    format!("{id}\t{texts}\t{}", address.country)
}

fn customer(scale: Scale, id: i64) -> String {
    let customer = scale.customer(id);
    let password = customer.user.to_lowercase();
    let login = "2001-12-31 12:00:00\t2001-12-31 14:00:00";
    format!(
        "{id}\t{}\t{password}\t{}\t{}\t{}\t{}\t{}@EXAMPLE\t{}\t{}\t{login}\t{}\t0\t{}\t{}\t{}",
        customer.user,
        customer.first,
        customer.last,
        customer.address,
        customer.phone,
        customer.user,
        customer.since,
        customer.since,
        customer.discount,
        customer.paid,
        customer.born,
        customer.data
    )
}

fn item(scale: Scale, id: i64) -> String {
    let item = scale.item(id);
    let related = item.related.map(|id| id.to_string()).join("\t");
    format!(
        "{id}\t{}\t{}\t{}\t{}\t{}\t{}\t{related}\tthumb_{id}.gif\timage_{id}.gif\t\
         {}\t{}\t{}\t{}\t{}\t{}\tHARDBACK\t10x20x30",
        item.title,
        item.author,
        item.published,
        item.publisher,
        SUBJECTS[item.subject],
        item.description,
        item.srp,
        item.cost,
        item.published,
        item.stock,
        item.isbn,
        item.pages
    )
}

fn order_row(scale: Scale, order: &PlacedOrder) -> String {
    let address = scale.customer(order.customer).address;
    let totals = order.totals;
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\tSHIP\t{}\t{address}\t{address}\tSHIPPED",
        order.id, order.customer, order.date, totals.lines, totals.tax, totals.total, order.date
    )
}

fn line_rows(order: &PlacedOrder) -> Vec<String> {
    let row = |(number, line): (usize, &crate::population::OrderLine)| {
        format!("{number}\t{}\t{}\t{}\t{}\tNONE", order.id, line.item, line.quantity, line.discount)
    };
    order.lines.iter().enumerate().map(row).collect()
}

fn payment_row(scale: Scale, order: &PlacedOrder) -> String {
    let country = scale.address(scale.customer(order.customer).address).country;
    format!(
        "{}\tVISA\t1234567890\tNAME\t2003-01-01\tAUTH\t{}\t{}\t{country}",
        order.id, order.totals.total, order.date
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { items: 100, ebs: 1, seed: 7 };

    /// Columns that the statement for this table names.
    fn columns(table: &str) -> usize {
        let at = TABLES.iter().position(|name| *name == table).expect("a table");
        let inner = CREATE_TABLES[at].split_once(" (").expect("columns").1;
        // Lengths of types and the names of keys have no comma but one in a key of two columns.
        inner
            .split(", ")
            .filter(|part| part.split(' ').count() > 1 && !part.contains("PRIMARY KEY ("))
            .count()
    }

    #[test]
    fn a_row_has_a_value_for_each_column() {
        let order = SCALE.order(1);
        let rows = [
            ("author", author(SCALE, 1)),
            ("address", address_row(SCALE, 1)),
            ("customer", customer(SCALE, 1)),
            ("item", item(SCALE, 1)),
            ("orders", order_row(SCALE, &order)),
            ("order_line", line_rows(&order).remove(0)),
            ("cc_xacts", payment_row(SCALE, &order)),
        ];
        for (table, row) in rows {
            assert_eq!(row.split('\t').count(), columns(table), "{table}: {row}");
        }
    }
}
