//! Running text, broken at 80 columns.

/// Width of everything that is printed.
const WIDTH: usize = 80;

/// A paragraph behind a lead; its further lines are indented as far as the lead reaches.
pub fn wrapped(lead: &str, text: &str) -> String {
    let indent = lead.chars().count().min(WIDTH / 2);
    let mut out = String::from(lead);
    let mut column = lead.chars().count();
    let mut fresh = true;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if !fresh && column + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
        fresh = false;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_indent_under_the_lead() {
        let text = wrapped("note: ", &"abcdefghi ".repeat(9));
        let expected = format!(
            "note: {}\n      abcdefghi abcdefghi\n",
            "abcdefghi ".repeat(7).trim()
        );
        assert_eq!(text, expected);
    }
}
