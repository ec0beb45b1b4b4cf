//! In which form events are written down.

/// How events are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines that are whole sentences.
    #[default]
    Text,
    /// JSON objects, a line each.
    Json,
}
