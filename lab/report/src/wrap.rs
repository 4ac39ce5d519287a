//! Paragraphs and list items, wrapped at the width of all text in the repository.

/// Columns of a line.
const COLUMNS: usize = 120;
/// Columns up to which inline code stays in one line.
const CODE_COLUMNS: usize = 90;

/// A command as a block of shell; broken lines end with a backslash, so that the shell joins them.
pub fn shell(command: &str) -> String {
    let (mut block, mut line) = (String::from("```sh\n"), 0);
    for piece in command.split_inclusive([' ', ',']) {
        let columns = piece.chars().count();
        // One column is left for the backslash.
        if line > 0 && line + columns >= COLUMNS {
            block.push_str("\\\n");
            line = 0;
        }
        block.push_str(piece);
        line += columns;
    }
    block + "\n```\n"
}

/// Lines of `text` after `first` and, from the second one on, after `next`.
pub fn wrapped(text: &str, first: &str, next: &str) -> String {
    let mut page = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in words(text) {
        let columns = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if !is_empty && columns > COLUMNS {
            page += &line;
            page.push('\n');
            line = next.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += &word;
        is_empty = false;
    }
    page + &line + "\n"
}

/// The words of `text`; inline code is one word, unless it is long.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut code = String::new();
    for word in text.split_whitespace() {
        if !code.is_empty() {
            code.push(' ');
        }
        code += word;
        if code.matches('`').count().is_multiple_of(2) {
            words.push(std::mem::take(&mut code));
        }
    }
    words.extend((!code.is_empty()).then_some(code));
    let split = |word: String| match word.chars().count() > CODE_COLUMNS {
        true => word.split_whitespace().map(str::to_owned).collect(),
        false => vec![word],
    };
    words.into_iter().flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_code_stays_together() {
        let text = format!("{} `one two three` {}", "word ".repeat(20), "more ".repeat(40));
        let page = wrapped(&text, "- ", "  ");
        assert!(page.lines().all(|line| line.chars().count() <= COLUMNS), "{page}");
        assert!(page.contains("`one two three`") && page.starts_with("- word"), "{page}");
        assert!(page.lines().skip(1).all(|line| line.starts_with("  ")), "{page}");
        assert_eq!(wrapped("a  b\nc", "", ""), "a b c\n");
    }

    #[test]
    fn long_code_is_broken_at_its_spaces() {
        let page = wrapped(&format!("again: `{}`", "--option value ".repeat(12).trim_end()), "- ", "  ");
        assert!(page.lines().count() > 1 && page.lines().all(|line| line.chars().count() <= COLUMNS));
    }

    #[test]
    fn a_command_is_whole_without_its_backslashes() {
        let command = format!("sim --faults {} --trace", ["flip"; 60].join(","));
        let block = shell(&command);
        assert!(block.lines().all(|line| line.chars().count() <= COLUMNS), "{block}");
        let inside = block.strip_prefix("```sh\n").and_then(|block| block.strip_suffix("\n```\n"));
        assert_eq!(inside.map(|inside| inside.replace("\\\n", "")), Some(command));
    }
}
