//! Bytes of a hostile peer never panic, and never make more of themselves.
#![allow(clippy::unwrap_used)]

#[path = "exercise/tls.rs"]
mod exercise;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise::exercise(&data);
    }

    #[test]
    fn any_bytes_in_a_record(kind in 20..25_u8, data in prop::collection::vec(any::<u8>(), 0..600)) {
        let length = (data.len() as u16).to_be_bytes();
        exercise::exercise(&[&[kind, 3, 3, length[0], length[1]], &data[..]].concat());
    }
}
