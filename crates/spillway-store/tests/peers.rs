//! Whatever a donor, a relay or whoever may write to an export says, a store's side of it stands.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/claim.rs"]
mod claim;
#[path = "exercise/meeting.rs"]
mod meeting;
#[path = "exercise/ring.rs"]
mod ring;

use proptest::prelude::*;

proptest! {
    #[test]
    fn no_page_makes_the_reader_of_claims_panic(data in prop::collection::vec(any::<u8>(), 0..5000)) {
        claim::exercise(&data);
    }

    #[test]
    fn almost_claims_are_read_as_they_are_written(
        names in "(run=[a\r]{0,3}\n)?(host=[a\r\u{1b}]{0,3}\n)?(machine=b\r?\n)?",
        numbers in "(pid=[+-]?[0-9]{1,11}\n)?(began=0?[0-9]{1,21}\r?\n)?",
    ) {
        claim::exercise((names + &numbers).as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_is_said_at_a_meeting_nobody_panics(
        prefix in prop_oneof![Just(vec![]), any::<u8>().prop_map(|byte| vec![byte % 4])],
        data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        meeting::exercise(&[prefix, data].concat());
    }

    #[test]
    fn whatever_is_in_a_ring_no_lane_panics(data in prop::collection::vec(any::<u8>(), 0..60)) {
        ring::exercise(&data);
    }

    #[test]
    fn a_donor_that_answers_almost_well_hurts_no_lane(
        steps in prop::collection::vec(0u8..4, 0..12), odd in any::<u8>(),
    ) {
        ring::exercise(&[&[3][..], &steps, &[odd]].concat());
    }
}

#[test]
fn a_donor_that_answers_well_is_understood() {
    ring::exercise(&[&[3][..], &[0; 20]].concat());
}
