//! One client: a connection, what it has in its cart, what it has bought, and the choice of its next interaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::error::SqlState;
use wire::SplitMix64;

use crate::catalogue::Catalogue;
use crate::mix::{Mix, RequestType, WebInteraction};
use crate::populate::connect;
use crate::population::{PlacedOrder, Scale};
use crate::statements::{Sql, Statements};

/// Runs of one transaction at most, when others are in its way.
const ATTEMPTS: u32 = 100;
/// Between two of them it waits this long at most.
const LONGEST_WAIT_MS: u64 = 20;
/// How long a client waits before it connects again.
const PAUSE: Duration = Duration::from_millis(100);
/// Different books in a cart at most.
const CART_LINES: usize = 5;

/// What all clients share: the application server of the benchmark.
#[derive(Debug)]
pub struct Shop {
    /// Where the servers listen.
    pub addresses: Vec<String>,
    /// The size of the database.
    pub scale: Scale,
    /// Its books.
    pub catalogue: Catalogue,
    /// The most recent order of each customer when the run began.
    pub last_orders: HashMap<i64, PlacedOrder>,
    /// The number of the next order. The authors' server counts in its own memory, too.
    pub next_order: AtomicI64,
    /// The number of the next cart.
    pub next_cart: AtomicI64,
    /// How many clients there are.
    pub clients: usize,
    /// The choice of interactions.
    pub mix: Mix,
}

/// Why a request has no right answer.
#[derive(Debug)]
pub enum Trouble {
    /// The answer contradicts what must hold.
    Wrong(String),
    /// Another transaction was in the way (40001, or a deadlock): the client may run its own again.
    Conflict,
    /// An error, or no answer.
    Failed(postgres::Error),
}

impl From<postgres::Error> for Trouble {
    fn from(error: postgres::Error) -> Self {
        let conflicts = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
        match error.code() {
            Some(code) if conflicts.contains(&code) => Trouble::Conflict,
            _ => Trouble::Failed(error),
        }
    }
}

/// A result of a request.
pub type ShopResult<T> = Result<T, Trouble>;

/// A cart, by what this client put into it.
#[derive(Clone, Debug, Default)]
pub struct Cart {
    /// Its number.
    pub id: i64,
    /// Copies of each book.
    pub lines: BTreeMap<i64, i64>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Of which type.
    pub request: RequestType,
    /// How long it took, with its repetitions.
    pub took: Duration,
}

/// What a client has seen, beside the answers.
#[derive(Clone, Debug, Default)]
pub struct SeenByShopper {
    /// Transactions that were run again after a conflict.
    pub retries: u64,
    /// Requests that failed.
    pub failures: Vec<String>,
    /// Answers that cannot be right.
    pub wrong: Vec<String>,
    /// Orders that were acknowledged.
    pub orders: Vec<PlacedOrder>,
    /// Orders whose COMMIT had no answer, and that were found later or not.
    pub unsure: Vec<PlacedOrder>,
}

/// An open connection.
pub struct ShopConnection {
    /// The client.
    pub client: Client,
    /// Its statements.
    pub statements: Statements,
}

/// One client.
pub struct Shopper {
    /// What all share.
    pub shop: Arc<Shop>,
    /// Its random numbers.
    pub random: SplitMix64,
    /// Its cart, if it has one.
    pub cart: Option<Cart>,
    /// The last order of each of its customers, in this run.
    pub bought: HashMap<i64, PlacedOrder>,
    /// What it has seen.
    pub seen: SeenByShopper,
    number: usize,
    connection: Option<ShopConnection>,
    /// A purchase was drawn while there was nothing to buy: the next visit of the cart is the purchase.
    owes_purchase: bool,
}

impl Shopper {
    /// The client with this number, connected.
    ///
    /// # Errors
    /// Its server cannot be reached, or refuses a statement.
    pub fn new(shop: Arc<Shop>, number: usize, seed: u64) -> anyhow::Result<Self> {
        let mut shopper = Shopper {
            shop,
            random: SplitMix64::new(wire::derive(seed, number as u64)),
            cart: None,
            bought: HashMap::new(),
            seen: SeenByShopper::default(),
            number,
            connection: None,
            owes_purchase: false,
        };
        shopper.connection = Some(shopper.connect()?);
        Ok(shopper)
    }

    fn connect(&self) -> anyhow::Result<ShopConnection> {
        let addresses = &self.shop.addresses;
        let mut client = connect(&addresses[self.number % addresses.len()])?;
        let statements = Statements::prepare(&mut client)?;
        Ok(ShopConnection { client, statements })
    }

    /// One interaction: its requests with their times.
    pub fn interact(&mut self, answered: &mut Vec<Answered>) {
        let interaction = self.shop.mix.draw(&mut self.random);
        for request in self.requests(interaction) {
            let begun = Instant::now();
            if !self.ask(request) {
                return;
            }
            answered.push(Answered { request, took: begun.elapsed() });
        }
    }

    /// The requests of an interaction. Pages that need no database in the specification show its promotional books,
    /// as there, by the authors' request for related books. The two of an administrator (0.2 %) have no counterpart
    /// among the authors' requests.
    fn requests(&mut self, interaction: WebInteraction) -> Vec<RequestType> {
        let only = |request| vec![request];
        match interaction {
            WebInteraction::Home => only(RequestType::Init),
            WebInteraction::NewProducts => only(RequestType::NewProducts),
            WebInteraction::BestSellers => only(RequestType::BestSellers),
            WebInteraction::ProductDetail | WebInteraction::SearchRequest => only(RequestType::RelatedBooks),
            WebInteraction::SearchResults => {
                let searches =
                    [RequestType::BooksBySubject, RequestType::BooksByTitle, RequestType::BooksByAuthor];
                only(*self.random.pick(&searches))
            }
            WebInteraction::ShoppingCart => self.cart_requests(),
            WebInteraction::CustomerRegistration
            | WebInteraction::BuyRequest
            | WebInteraction::OrderInquiry => only(RequestType::GetCustomer),
            WebInteraction::OrderDisplay | WebInteraction::AdminRequest | WebInteraction::AdminConfirm => {
                only(RequestType::MostRecentOrder)
            }
            WebInteraction::BuyConfirm if self.cart.is_some() => only(RequestType::BuyConfirm),
            WebInteraction::BuyConfirm => {
                self.owes_purchase = true;
                vec![RequestType::CreateCart, RequestType::FillCart]
            }
        }
    }

    fn cart_requests(&mut self) -> Vec<RequestType> {
        match &self.cart {
            None => vec![RequestType::CreateCart, RequestType::FillCart],
            Some(_) if self.owes_purchase => {
                self.owes_purchase = false;
                vec![RequestType::BuyConfirm]
            }
            Some(_) => vec![RequestType::FillCart],
        }
    }

    /// Runs one request until it has an answer; false if it has none, or a wrong one.
    fn ask(&mut self, request: RequestType) -> bool {
        let Some(mut connection) = self.connection.take().or_else(|| self.reconnect()) else { return false };
        let mut waits = SplitMix64::new(self.random.next_u64());
        let drawn_from = self.random.clone();
        for attempt in 0..ATTEMPTS {
            // The same customer, the same book.
            self.random = drawn_from.clone();
            match self.perform(request, &mut connection) {
                Ok(()) => {
                    self.connection = Some(connection);
                    return true;
                }
                Err(Trouble::Conflict) => {
                    self.seen.retries += 1;
                    // Whoever is in the way gets time to end: longer each time, and not the same for two clients.
                    let most = u64::from(attempt).min(LONGEST_WAIT_MS) * 1_000;
                    thread::sleep(Duration::from_micros(waits.below(most + 1)));
                }
                Err(Trouble::Wrong(what)) => {
                    self.seen.wrong.push(format!("client {}, {}: {what}", self.number, request.name()));
                    self.cart = None;
                    self.connection = Some(connection);
                    return false;
                }
                Err(Trouble::Failed(error)) => {
                    self.fail(request, &error);
                    // What a transaction left behind ends with its connection.
                    return false;
                }
            }
        }
        self.seen.failures.push(format!("{}: {ATTEMPTS} conflicts one after the other", request.name()));
        self.connection = Some(connection);
        false
    }

    fn fail(&mut self, request: RequestType, error: &postgres::Error) {
        let why = match error.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => error.to_string(),
        };
        self.seen.failures.push(format!("client {}, {}: {why}", self.number, request.name()));
        // Nobody knows what is in it: it is left, and never looked at again.
        self.cart = None;
    }

    fn reconnect(&mut self) -> Option<ShopConnection> {
        thread::sleep(PAUSE);
        match self.connect() {
            Ok(connection) => Some(connection),
            Err(error) => {
                self.seen.failures.push(format!("client {}: {error:#}", self.number));
                None
            }
        }
    }

    /// A customer of this client: nobody else buys for it.
    pub fn draw_customer(&mut self) -> i64 {
        let (clients, customers) = (self.shop.clients as i64, self.shop.scale.customers());
        let own = (customers - self.number as i64 + clients - 1) / clients;
        self.random.below(own as u64) as i64 * clients + self.number as i64 + 1
    }

    /// A book.
    pub fn draw_item(&mut self) -> i64 {
        self.random.below(self.shop.scale.items as u64) as i64 + 1
    }

    /// The most recent order of one of its customers.
    pub fn last_order(&self, customer: i64) -> Option<&PlacedOrder> {
        self.bought.get(&customer).or_else(|| self.shop.last_orders.get(&customer))
    }

    /// A book for the cart: the one with the fewest copies in it, if there are many books.
    pub fn draw_for_cart(&mut self) -> i64 {
        let drawn = self.draw_item();
        match &self.cart {
            Some(cart) if cart.lines.len() >= CART_LINES => {
                cart.lines.iter().min_by_key(|(_, copies)| **copies).map_or(drawn, |(item, _)| *item)
            }
            _ => drawn,
        }
    }

    /// The number of a new cart.
    pub fn next_cart(&self) -> i64 {
        self.shop.next_cart.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of a new order.
    pub fn next_order(&self) -> i64 {
        self.shop.next_order.fetch_add(1, Ordering::Relaxed)
    }
}

impl ShopConnection {
    /// Runs a query.
    ///
    /// # Errors
    /// As the server says.
    pub fn query(
        &mut self,
        name: Sql,
        arguments: &[&(dyn postgres::types::ToSql + Sync)],
    ) -> ShopResult<Vec<postgres::Row>> {
        Ok(self.client.query(self.statements.of(name), arguments)?)
    }

    /// Runs a statement, which changes so many rows.
    ///
    /// # Errors
    /// As the server says; or it changed another number of rows.
    pub fn change(
        &mut self,
        name: Sql,
        arguments: &[&(dyn postgres::types::ToSql + Sync)],
        due: u64,
    ) -> ShopResult<()> {
        let changed = self.client.execute(self.statements.of(name), arguments)?;
        match changed == due {
            true => Ok(()),
            false => Err(Trouble::Wrong(format!("{name:?} changed {changed} rows in the place of {due}"))),
        }
    }
}
