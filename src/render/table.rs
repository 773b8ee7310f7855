//! Plain tables: a column of names to the left, numbers to the right, at most 80 columns wide.

use std::fmt;

/// A table of text cells. The first column is aligned left, the others right.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    left: bool,
}

/// Between two columns.
const GAP: &str = "  ";

impl Table {
    /// A table with this first row.
    pub fn new<C: Into<String>>(head: impl IntoIterator<Item = C>) -> Table {
        let mut table = Table::default();
        table.row(head);
        table
    }

    /// Adds a row.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(Row {
            cells: cells.into_iter().map(Into::into).collect(),
            left: false,
        });
    }

    /// Adds a row whose cells are all aligned left: names and words rather than numbers.
    pub fn row_left<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(Row {
            cells: cells.into_iter().map(Into::into).collect(),
            left: true,
        });
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self
            .rows
            .iter()
            .map(|row| row.cells.len())
            .max()
            .unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.cells.iter().zip(&widths).enumerate() {
                line.push_str(if column == 0 { "" } else { GAP });
                if row.left || column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("{cell:>width$}"));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Shortens text from other people's files so that it fits a cell, and defuses control characters.
pub fn fit(text: &str, width: usize) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if shown.chars().count() > width {
        shown = shown.chars().take(width.saturating_sub(1)).collect();
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_is_left_the_others_right() {
        let mut table = Table::new(["", "light", "heavy"]);
        table.row(["MB/s", "9.5", "1234"]);
        assert_eq!(
            table.to_string(),
            "      light  heavy\nMB/s    9.5   1234\n"
        );
    }

    #[test]
    fn long_or_hostile_text_is_cut_and_defused() {
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("a\u{1b}[2J", 10), "a\u{fffd}[2J");
    }
}
