//! A table, and the alignment of its columns.

/// A table; all rows have as many cells as the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its caption; may be empty.
    pub caption: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
    /// A last column of bars: its name, and one for each row; HTML only.
    pub bars: Option<(String, Vec<Vec<Bar>>)>,
}

/// A piece of a stacked bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its share of the whole, from 0 to 1.
    pub share: f64,
    /// Its colour, in HTML notation.
    pub colour: &'static str,
    /// Its tooltip.
    pub tooltip: String,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// Figures, aligned to the right.
    Figures,
    /// Names, aligned to the left.
    Names,
    /// Sentences, aligned to the left; they may be wrapped.
    Sentences,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Table { caption: caption.into(), head, rows: Vec::new(), bars: None }
    }

    /// The table with these rows added at the end.
    pub fn rows<R: IntoIterator<Item = impl Into<String>>>(
        mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        self.rows.extend(rows.into_iter().map(|row| row.into_iter().map(Into::into).collect()));
        self
    }

    /// The table with a column of bars, one for each row.
    pub fn bars(mut self, name: impl Into<String>, bars: impl IntoIterator<Item = Vec<Bar>>) -> Self {
        self.bars = Some((name.into(), bars.into_iter().collect()));
        self
    }

    /// The content of each column. The first has names, and so do others with a cell of many letters.
    pub(crate) fn fillings(&self) -> Vec<Filling> {
        let letters = |cell: &String| cell.chars().filter(|letter| letter.is_alphabetic()).count();
        let filling = |column: usize| {
            let any = |is: &dyn Fn(&String) -> bool| self.rows.iter().any(|row| is(&row[column]));
            match column {
                0 => Filling::Names,
                _ if any(&|cell| cell.len() > 40) => Filling::Sentences,
                _ if any(&|cell| letters(cell) >= 10) => Filling::Names,
                _ => Filling::Figures,
            }
        };
        (0..self.head.len()).map(filling).collect()
    }
}
