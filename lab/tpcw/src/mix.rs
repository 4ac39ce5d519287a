//! The 14 web interactions of TPC-W, how often each mix has them, and the 12 requests that Eve's authors made of them.
//!
//! The shares are those of the specification's table of mixes (clause 5.2), from memory. Those of *browsing* and
//! *ordering* are confirmed: the transition probabilities that the public Wisconsin implementation has
//! (`EBTPCW1Factory`, `EBTPCW3Factory`) have them as their stationary distribution, to 0.01. *Shopping* was not checked
//! so, but adds up to its 80 and 20.
//!
//! The authors' published client does not walk by those probabilities: a session is one search, the related books, and
//! with 90 % a cart and a purchase, which is nearly two reads per write. Here the shares are the specification's, and
//! the requests theirs.

use clap::ValueEnum;
use wire::SplitMix64;

/// One of the twelve requests of the server of Eve's authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the authors' names")]
pub enum RequestType {
    Init,
    BestSellers,
    BooksBySubject,
    BooksByTitle,
    BooksByAuthor,
    NewProducts,
    RelatedBooks,
    CreateCart,
    FillCart,
    GetCustomer,
    MostRecentOrder,
    BuyConfirm,
}

impl RequestType {
    /// All of them, in the authors' order.
    pub const ALL: [RequestType; 12] = [
        RequestType::Init,
        RequestType::BestSellers,
        RequestType::BooksBySubject,
        RequestType::BooksByTitle,
        RequestType::BooksByAuthor,
        RequestType::NewProducts,
        RequestType::RelatedBooks,
        RequestType::CreateCart,
        RequestType::FillCart,
        RequestType::GetCustomer,
        RequestType::MostRecentOrder,
        RequestType::BuyConfirm,
    ];

    /// The authors' name.
    pub fn name(self) -> &'static str {
        match self {
            RequestType::Init => "INIT",
            RequestType::BestSellers => "GET_BEST_SELLERS",
            RequestType::BooksBySubject => "GET_BOOKS_BY_SUBJECT",
            RequestType::BooksByTitle => "GET_BOOKS_BY_TITLE",
            RequestType::BooksByAuthor => "GET_BOOKS_BY_AUTHOR",
            RequestType::NewProducts => "NEW_PRODUCTS_BY_SUBJECT",
            RequestType::RelatedBooks => "GET_RELATED_BOOKS",
            RequestType::CreateCart => "CREATE_CART",
            RequestType::FillCart => "FILL_CART",
            RequestType::GetCustomer => "GET_CUSTOMER",
            RequestType::MostRecentOrder => "GET_MOST_RECENT_ORDER",
            RequestType::BuyConfirm => "DO_BUY_CONFIRM",
        }
    }
}

/// One of the fourteen web interactions of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum WebInteraction {
    Home,
    NewProducts,
    BestSellers,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
    CustomerRegistration,
    BuyRequest,
    BuyConfirm,
    OrderInquiry,
    OrderDisplay,
    AdminRequest,
    AdminConfirm,
}

/// Each interaction, and its share in hundredths of a per cent in *browsing*, *shopping* and *ordering*.
const SHARES: [(WebInteraction, [u64; 3]); 14] = [
    (WebInteraction::Home, [2_900, 1_600, 912]),
    (WebInteraction::NewProducts, [1_100, 500, 46]),
    (WebInteraction::BestSellers, [1_100, 500, 46]),
    (WebInteraction::ProductDetail, [2_100, 1_700, 1_235]),
    (WebInteraction::SearchRequest, [1_200, 2_000, 1_453]),
    (WebInteraction::SearchResults, [1_100, 1_700, 1_308]),
    (WebInteraction::ShoppingCart, [200, 1_160, 1_353]),
    (WebInteraction::CustomerRegistration, [82, 300, 1_286]),
    (WebInteraction::BuyRequest, [75, 260, 1_273]),
    (WebInteraction::BuyConfirm, [69, 120, 1_018]),
    (WebInteraction::OrderInquiry, [30, 75, 25]),
    (WebInteraction::OrderDisplay, [25, 66, 22]),
    (WebInteraction::AdminRequest, [10, 10, 12]),
    (WebInteraction::AdminConfirm, [9, 9, 11]),
];

/// Hundredths of a per cent in all.
const ALL: u64 = 10_000;

/// How often each interaction comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// 95 % browse, 5 % order: Fig. 3 of the paper
    Browsing,
    /// 80 % browse, 20 % order: the specification's main mix
    Shopping,
    /// 50 % browse, 50 % order
    Ordering,
}

impl Mix {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Browsing => "browsing",
            Mix::Shopping => "shopping",
            Mix::Ordering => "ordering",
        }
    }

    /// Draws an interaction.
    pub fn draw(self, random: &mut SplitMix64) -> WebInteraction {
        let mut left = random.below(ALL);
        for (interaction, shares) in SHARES {
            match left.checked_sub(shares[self as usize]) {
                Some(rest) => left = rest,
                None => return interaction,
            }
        }
        unreachable!("the shares of a mix are {ALL} in all, which a test checks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixes_are_95_to_5_80_to_20_and_50_to_50() {
        let sum = |of: &[(WebInteraction, [u64; 3])], mix: Mix| -> u64 {
            of.iter().map(|(_, shares)| shares[mix as usize]).sum()
        };
        // The first six are the specification's class *Browse*, the others its class *Order*.
        for (mix, browse) in [(Mix::Browsing, 9_500), (Mix::Shopping, 8_000), (Mix::Ordering, 5_000)] {
            assert_eq!(sum(&SHARES[..6], mix), browse, "{mix:?}");
            assert_eq!(sum(&SHARES, mix), ALL, "{mix:?}");
        }
    }

    #[test]
    fn draws_follow_the_shares() {
        let mut random = SplitMix64::new(1);
        let drawn: Vec<WebInteraction> = (0..100_000).map(|_| Mix::Ordering.draw(&mut random)).collect();
        let of = |which| drawn.iter().filter(|drawn| **drawn == which).count() as f64 / 1_000.0;
        assert!((of(WebInteraction::BuyConfirm) - 10.18).abs() < 0.3);
        assert!((of(WebInteraction::BestSellers) - 0.46).abs() < 0.1);
    }

    #[test]
    fn a_request_type_is_at_its_number() {
        for (number, request) in RequestType::ALL.into_iter().enumerate() {
            assert_eq!(request as usize, number, "{}", request.name());
        }
    }
}
