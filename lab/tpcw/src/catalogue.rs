//! What the shop sells, in memory: the right answers to all questions about books.

use crate::population::{Author, Item, SUBJECTS, Scale};

/// Books that a page shows at most.
pub const PAGE: usize = 50;

/// All books and authors.
#[derive(Debug)]
pub struct Catalogue {
    items: Vec<Item>,
    authors: Vec<Author>,
    /// Numbers of all books by title.
    by_title: Vec<i64>,
}

impl Catalogue {
    /// That of this population.
    pub fn new(scale: Scale) -> Self {
        let items: Vec<Item> = (1..=scale.items).map(|id| scale.item(id)).collect();
        let mut by_title: Vec<i64> = (1..=scale.items).collect();
        by_title.sort_by(|a, b| items[*a as usize - 1].title.cmp(&items[*b as usize - 1].title));
        Catalogue { items, authors: (1..=scale.authors()).map(|id| scale.author(id)).collect(), by_title }
    }

    /// The book with this number; none if there is no such book.
    pub fn item(&self, id: i64) -> Option<&Item> {
        self.items.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// The author of a book.
    pub fn author_of(&self, item: &Item) -> &Author {
        &self.authors[item.author as usize - 1]
    }

    /// All authors.
    pub fn authors(&self) -> &[Author] {
        &self.authors
    }

    /// All books.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// What a book costs, in cents; 0 for a book that there is not.
    pub fn cost(&self, id: i64) -> i64 {
        self.item(id).map_or(0, |item| item.cost)
    }

    /// The first page of books that are so, by title.
    pub fn page(&self, is_meant: impl Fn(&Item) -> bool) -> Vec<i64> {
        let items = self.by_title.iter().map(|id| &self.items[*id as usize - 1]);
        items.filter(|item| is_meant(item)).take(PAGE).map(|item| item.id).collect()
    }

    /// The first page of a subject's books, latest first, and by title where dates are equal.
    pub fn new_products(&self, subject: usize) -> Vec<i64> {
        let mut items: Vec<&Item> = self.items.iter().filter(|item| item.subject == subject).collect();
        items.sort_by(|a, b| b.published.cmp(&a.published).then_with(|| a.title.cmp(&b.title)));
        items.into_iter().take(PAGE).map(|item| item.id).collect()
    }

    /// Whether a book is of the subject with this number.
    pub fn is_of(&self, id: i64, subject: usize) -> bool {
        subject < SUBJECTS.len() && self.item(id).is_some_and(|item| item.subject == subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_sorted_and_have_what_was_asked_for_and_nothing_else() {
        let scale = Scale { items: 2_000, ebs: 1, seed: 3 };
        let shop = Catalogue::new(scale);
        for subject in 0..SUBJECTS.len() {
            let of_subject = shop.items().iter().filter(|item| item.subject == subject).count();
            let page = shop.page(|item| item.subject == subject);
            assert_eq!(page.len(), of_subject.min(PAGE));
            let titles: Vec<&str> =
                page.iter().map(|id| shop.item(*id).expect("a book").title.as_str()).collect();
            assert!(titles.is_sorted());
            let new = shop.new_products(subject);
            assert_eq!(new.len(), page.len());
            let dates: Vec<&str> =
                new.iter().map(|id| shop.item(*id).expect("a book").published.as_str()).collect();
            assert!(dates.iter().rev().is_sorted());
            assert!(new.iter().all(|id| shop.is_of(*id, subject)));
        }
        assert!(shop.item(0).is_none() && shop.item(2_001).is_none() && !shop.is_of(0, 1));
    }
}
