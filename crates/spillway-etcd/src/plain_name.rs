//! Names that others have put into etcd, and that are printed.

/// No terminal takes any of it for a command.
pub(crate) fn is_plain_name(text: &str) -> bool {
    (1..=256).contains(&text.len()) && text.chars().all(|letter| !letter.is_control())
}
