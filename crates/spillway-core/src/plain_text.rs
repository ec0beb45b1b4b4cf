//! What somebody else says, as it may be shown: no terminal takes any of it for a command.

/// Its letters, without control characters.
pub fn plain(said: &str) -> impl Iterator<Item = char> + '_ {
    said.chars().filter(|letter| !letter.is_control())
}

/// The same with its line ends.
pub fn plain_lines(said: &str) -> impl Iterator<Item = char> + '_ {
    said.chars().filter(|letter| *letter == '\n' || !letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let said = "no \u{1b}[2Jroom\r\n\u{9b}1m";
        assert_eq!(plain(said).collect::<String>(), "no [2Jroom1m");
        assert_eq!(plain_lines(said).collect::<String>(), "no [2Jroom\n1m");
    }
}
