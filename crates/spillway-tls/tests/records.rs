//! Connections that a session has left to somebody else: what they seal the other side's session opens, and
//! the other way round; and nothing that was changed, left out or repeated is taken.
#![allow(clippy::unwrap_used)]

#[path = "exercise/records.rs"]
mod exercise;

use exercise::{Pair, pair};
use proptest::prelude::*;
use spillway_tls::records::{
    Content, HEAD_BYTES, KEYS_BYTES, Keys, MAX_CONTENT_BYTES, MAX_RECORD_BYTES, RecordError, TAIL_BYTES,
};

fn contents(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|number| (number as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn seal(pair: &mut Pair, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; HEAD_BYTES + content.len() + TAIL_BYTES];
    record[HEAD_BYTES..HEAD_BYTES + content.len()].copy_from_slice(content);
    let bytes = pair.sealer.seal(&mut record, content.len()).unwrap();
    assert_eq!(bytes, record.len());
    record
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_arrive_both_ways(
        lengths in prop::collection::vec(0..=MAX_CONTENT_BYTES, 1..5),
        piece in 1..9000_usize,
    ) {
        let mut pair = pair();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for (index, length) in lengths.iter().enumerate() {
            let content = contents(*length, index as u8);
            let record = seal(&mut pair, &content);
            record.chunks(piece).for_each(|piece| pair.server.open(piece, &mut received).unwrap());
            sent.extend(content);
        }
        prop_assert_eq!(&received, &sent);
        // Back.
        let mut sealed = Vec::new();
        pair.server.seal(&sent, &mut sealed).unwrap();
        let mut back = Vec::new();
        while !sealed.is_empty() {
            let Some(opened) = pair.opener.open(&mut sealed).unwrap() else { panic!("half a record") };
            let Content::Data(data) = opened.content else { panic!("{:?}", opened.content) };
            back.extend_from_slice(&sealed[data]);
            sealed.drain(..opened.record_bytes);
        }
        prop_assert_eq!(back, sent);
    }

    /// One byte of a record is another one: no byte of it is handed on.
    #[test]
    fn what_was_changed_is_not_taken(
        length in 0..600_usize,
        at in any::<prop::sample::Index>(),
        by in 1..=255_u8,
    ) {
        let mut pair = pair();
        let mut sealed = Vec::new();
        pair.server.seal(&contents(length.max(1), 3), &mut sealed).unwrap();
        sealed[at.index(HEAD_BYTES)] ^= by;
        // A length that grew waits for more, which does not help it.
        sealed.resize(MAX_RECORD_BYTES, 0);
        let opened = pair.opener.open(&mut sealed.clone());
        let is_refused = matches!(opened, Err(RecordError::NoRecord | RecordError::Damaged) | Ok(None));
        prop_assert!(is_refused, "{opened:?}");
        let mut pair = exercise::pair();
        let mut sealed = Vec::new();
        pair.server.seal(&contents(length.max(1), 3), &mut sealed).unwrap();
        let behind_head = HEAD_BYTES + at.index(sealed.len() - HEAD_BYTES);
        sealed[behind_head] ^= by;
        prop_assert_eq!(pair.opener.open(&mut sealed), Err(RecordError::Damaged));
    }

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise::exercise(&data);
    }
}

#[test]
fn records_come_once_and_in_their_order() {
    let mut pair = pair();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    pair.server.seal(b"one", &mut first).unwrap();
    pair.server.seal(b"two", &mut second).unwrap();
    assert_eq!(
        exercise::pair().opener.open(&mut second.clone()),
        Err(RecordError::Damaged),
        "of others' keys"
    );
    assert!(pair.opener.open(&mut first.clone()).unwrap().is_some());
    assert_eq!(pair.opener.open(&mut first), Err(RecordError::Damaged), "again");
    let mut other = exercise::pair();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    other.server.seal(b"one", &mut first).unwrap();
    other.server.seal(b"two", &mut second).unwrap();
    assert_eq!(other.opener.open(&mut second), Err(RecordError::Damaged), "the first was left out");
}

#[test]
fn each_side_says_that_it_ends() {
    let mut pair = pair();
    let mut record = [0; 64];
    let bytes = pair.sealer.end(&mut record).unwrap();
    pair.server.open(&record[..bytes], &mut Vec::new()).unwrap();
    assert!(pair.server.has_ended());
    let mut sealed = Vec::new();
    pair.server.end(&mut sealed);
    assert_eq!(pair.opener.open(&mut sealed).unwrap().unwrap().content, Content::End);
}

#[test]
fn too_much_for_a_record_and_too_little_room_are_refused() {
    let mut pair = pair();
    let mut room = vec![0; 2 * MAX_RECORD_BYTES];
    assert_eq!(pair.sealer.seal(&mut room, MAX_CONTENT_BYTES + 1), Err(RecordError::NoRecord));
    assert_eq!(
        pair.sealer.seal(&mut room[..HEAD_BYTES + 10 + TAIL_BYTES - 1], 10),
        Err(RecordError::NoRecord)
    );
    assert_eq!(pair.sealer.seal(&mut [], 0), Err(RecordError::NoRecord));
    // None of them has taken a record's number.
    let record = seal(&mut pair, b"still in order");
    pair.server.open(&record, &mut Vec::new()).unwrap();
}

/// The number of the next record is the last thing of each way in the keys.
#[test]
fn keys_that_were_used_enough_say_so_and_those_that_were_used_too_much_do_nothing() {
    let pair = pair();
    let with_number = |number: u64| {
        let mut bytes = *pair.keys.encode();
        for way in [KEYS_BYTES / 2, KEYS_BYTES] {
            bytes[way - 8..way].copy_from_slice(&number.to_be_bytes());
        }
        Keys::decode(&bytes).unwrap()
    };
    let (mut sealer, _) = with_number((1 << 22) - 1);
    assert!(!sealer.is_worn_out());
    sealer.seal(&mut [0; 64], 1).unwrap();
    assert!(sealer.is_worn_out());
    let (mut sealer, mut opener) = with_number(1 << 24);
    assert!(opener.is_worn_out());
    assert_eq!(sealer.seal(&mut [0; 64], 1), Err(RecordError::WornOut));
    let mut record = [23, 3, 3, 0, 17].into_iter().chain([0; 17]).collect::<Vec<_>>();
    assert_eq!(opener.open(&mut record), Err(RecordError::WornOut));
    let mut other_cipher = *pair.keys.encode();
    other_cipher[0] = 9;
    assert!(Keys::decode(&other_cipher).is_none());
    assert_eq!(format!("{:?}", pair.keys), "Keys");
}
