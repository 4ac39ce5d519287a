//! Tables from groups of rows: a group is a line, and each column says what of a group it shows.

use crate::Table;
use crate::stats::Spread;

/// What a column shows of a group.
type ColumnCell<'a, G> = Box<dyn Fn(&G) -> String + 'a>;

/// The columns of a table.
pub struct Columns<'a, G> {
    list: Vec<(String, ColumnCell<'a, G>)>,
}

impl<G> Default for Columns<'_, G> {
    fn default() -> Self {
        Columns { list: Vec::new() }
    }
}

impl<'a, G> Columns<'a, G> {
    /// A column of text.
    #[must_use]
    pub fn text(mut self, head: &str, cell: impl Fn(&G) -> String + 'a) -> Self {
        self.list.push((head.to_owned(), Box::new(cell)));
        self
    }

    /// A column of medians; empty where a group has none.
    #[must_use]
    pub fn median(
        self,
        head: &str,
        number: impl Fn(f64) -> String + 'a,
        value: impl Fn(&G) -> Option<Spread> + 'a,
    ) -> Self {
        self.text(head, move |group| value(group).map_or(String::new(), |found| number(found.median)))
    }

    /// A column of medians, and one of the intervals of the true medians.
    #[must_use]
    pub fn spread<N>(self, head: &str, number: N, value: impl Fn(&G) -> Option<Spread> + Clone + 'a) -> Self
    where
        N: Fn(f64) -> String + Clone + 'a,
    {
        self.median(head, number.clone(), value.clone()).text("Interval", move |group| {
            value(group).map_or(String::new(), |found| found.interval(&number))
        })
    }

    /// A column of medians, and one of the lowest and the highest value.
    #[must_use]
    pub fn range<N>(self, head: &str, number: N, value: impl Fn(&G) -> Option<Spread> + Clone + 'a) -> Self
    where
        N: Fn(f64) -> String + Clone + 'a,
    {
        self.median(head, number.clone(), value.clone())
            .text("Range", move |group| value(group).map_or(String::new(), |found| found.range(&number)))
    }

    /// The table of these groups.
    pub fn table(&self, caption: impl Into<String>, groups: &[G]) -> Table {
        let row = |group: &G| self.list.iter().map(|(_, cell)| cell(group)).collect::<Vec<String>>();
        Table::new(caption, self.list.iter().map(|(head, _)| head.as_str())).rows(groups.iter().map(row))
    }

    /// The table of these groups; none without any.
    pub fn table_of_some(&self, caption: impl Into<String>, groups: &[G]) -> Option<Table> {
        (!groups.is_empty()).then(|| self.table(caption, groups))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_line_and_what_it_lacks_is_empty() {
        let groups = [("a", vec![1.0, 3.0, 2.0]), ("b", vec![])];
        let table = Columns::<(&str, Vec<f64>)>::default()
            .text("Name", |group| group.0.to_owned())
            .spread("Time", |value| format!("{value:.1}"), |group| Spread::of(&group.1))
            .range("Size", |value| format!("{value:.0}"), |group| Spread::of(&group.1))
            .table("t", &groups);
        assert_eq!(table.head, ["Name", "Time", "Interval", "Size", "Range"]);
        assert_eq!(table.rows, [["a", "2.0", "1.0..3.0", "2", "1..3"], ["b", "", "", "", ""]]);
    }
}
