//! Numbers in a few columns, and names that cannot disturb a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A number in at most five columns: `7`, `1.2k`, `345M`. `step` is 1000 for counts, 1024 for bytes.
fn short(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value.max(0.0), 0);
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / step, unit + 1);
    }
    match unit {
        0 => format!("{value:.0}{}", units[unit]),
        _ if value < 9.95 => format!("{value:.1}{}", units[unit]),
        _ => format!("{value:.0}{}", units[unit]),
    }
}

/// Bytes, in powers of 1024.
pub fn bytes(bytes: f64) -> String {
    short(bytes, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
}

/// A count, or a rate.
pub fn count(count: f64) -> String {
    short(count, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Microseconds, with their unit.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 9.95 => format!("{us:.1}us"),
        us if us < 999.5 => format!("{us:.0}us"),
        us if us < 9_950.0 => format!("{:.1}ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0}ms", us / 1e3),
        us => format!("{:.1}s", us / 1e6),
    }
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

/// A time in at most six columns.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}", whole / 3600, whole / 60 % 60),
        86_400..8_640_000 => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
        _ => format!("{}d", whole / 86_400),
    }
}

/// A text of others, without what a terminal would take for a command, in at most so many columns.
pub fn printable(text: &str, columns: usize) -> String {
    let clean: String = text
        .chars()
        .map(|letter| if letter.is_control() || is_invisible(letter) { '?' } else { letter })
        .collect();
    if clean.width() <= columns {
        return clean;
    }
    let (mut kept, mut width) = (String::new(), 0);
    for letter in clean.chars() {
        width += letter.width().unwrap_or(0);
        if width >= columns {
            break;
        }
        kept.push(letter);
    }
    kept + if columns > 0 { "~" } else { "" }
}

/// Marks of direction and the like, which change how what follows is shown.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text of others in lines of at most so many columns, broken between words where that can be.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = printable(word, columns);
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_at_most_five_columns() {
        for (bytes_, text) in [(0, "0"), (999, "999"), (1024, "1.0K"), (64 << 20, "64M"), (1 << 30, "1.0G")] {
            assert_eq!(bytes(f64::from(bytes_)), text);
        }
        assert_eq!(bytes(1023.0), "1.0K");
        assert_eq!(bytes(1.5 * f64::from(1 << 30)), "1.5G");
        for value in
            (0..20).flat_map(|power| [1.0, 9.96, 99.96, 999.6].map(|value| value * 10_f64.powi(power)))
        {
            assert!(bytes(value).len() <= 5 && count(value).len() <= 5, "{value}: {}", bytes(value));
        }
        for us in [0.0, 9.94, 9.96, 999.4, 999.6, 9_951.0, 999_499.0, 1e6, 99e6] {
            assert!(micros(us).len() <= 5, "{us}: {}", micros(us));
        }
        for s in [0.0, 59.9, 60.0, 3599.0, 3600.0, 86_399.0, 86_400.0, 8e6, 1e9] {
            assert!(seconds(s).len() <= 6, "{s}: {}", seconds(s));
        }
        assert_eq!((percent(0.001), percent(1.5)), ("0.1%".to_owned(), "150%".to_owned()));
    }

    #[test]
    fn a_name_is_no_command_to_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}\n", 20), "a?[2Jb??");
        assert_eq!(printable("longer than that", 7), "longer~");
        assert_eq!(printable("\u{6f22}\u{5b57}\u{6f22}", 4), "\u{6f22}~");
        assert_eq!(printable("abc", 0), "");
    }

    #[test]
    fn lines_are_broken_between_words_and_words_where_they_must_be() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a\u{1b}b verylongword", 5).iter().map(|line| line.width()).max(), Some(5));
        assert!(wrapped("", 5).is_empty());
    }
}
