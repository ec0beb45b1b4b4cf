//! Readers of traces stand whatever they are fed.

#[path = "exercise/trace.rs"]
mod exercise;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn readers_stand_anything(data in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise::exercise(&data);
    }

    #[test]
    fn readers_stand_text(data in "([ ILSM]{1,3}[0-9a-fx]{0,9},[0-9rw]{0,3}\n){0,9}") {
        exercise::exercise(data.as_bytes());
    }

    #[test]
    fn readers_stand_records_that_look_right(
        data in prop::collection::vec(0u8..0x40, 3..300), records in 1u8..200,
    ) {
        let sealed: Vec<u8> = [&[records, 0, 3], data.as_slice()].concat();
        exercise::exercise(&sealed);
    }
}
