//! Numbers of bytes in words.

use spillway_core::size::Size;

/// A number of bytes as people write it.
pub(super) fn size(bytes: u64) -> String {
    Size::from_bytes(bytes).to_string().replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(4096, "4 KiB"), (2 << 20, "2 MiB"), (1 << 30, "1 GiB"), (1536, "1.5 KiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
