//! Records of perf_event_open(2)'s rings, made up: this is all that can be tried of hardware samples on a
//! machine without them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/access_records.rs"]
mod exercise;

use proptest::prelude::*;
use spillway_sys::access_events::{Access, Record, decode_ring};

const SAMPLE: u64 = 9;
const LOST: u64 = 2;

/// A record as the kernel writes it: a header with the kind and the size in bytes, then words.
fn encode(kind: u64, words: &[u64]) -> Vec<u64> {
    let bytes = 8 * (words.len() as u64 + 1);
    std::iter::once(kind | bytes << 48).chain(words.iter().copied()).collect()
}

fn record() -> impl Strategy<Value = (Vec<u64>, Option<Record>)> {
    let access = (1_u32..1 << 22, 1_u64..1 << 56, any::<u64>(), 0..5_usize).prop_map(
        |(process, address, time_ns, extra)| {
            let words =
                [&[7 << 32 | u64::from(process), time_ns, address], &vec![u64::MAX; extra][..]].concat();
            (
                encode(SAMPLE, &words),
                Some(Record::Access(Access { process, address, time_ns, write: extra > 0 })),
            )
        },
    );
    let kernel = any::<u64>().prop_map(|time| (encode(SAMPLE, &[1, time, u64::MAX << 47]), None));
    let lost = any::<u64>().prop_map(|count| (encode(LOST, &[1, count]), Some(Record::Lost(count))));
    let other = (10_u64..30, 0..9_usize).prop_map(|(kind, words)| (encode(kind, &vec![3; words]), None));
    prop_oneof![access, kernel, lost, other]
}

proptest! {
    #[test]
    fn what_the_kernel_writes_is_understood_wherever_in_the_ring_it_lies(
        records in prop::collection::vec(record(), 0..40),
        start in 0_u64..1 << 40,
    ) {
        let words: Vec<u64> = records.iter().flat_map(|(words, _)| words.clone()).collect();
        let mut ring = vec![u64::MAX; 512];
        for (at, word) in words.iter().enumerate() {
            ring[(start as usize + at) % 512] = *word;
        }
        let mut found = Vec::new();
        decode_ring(&ring, start * 8, (start + words.len() as u64) * 8, &mut |record| found.push(record));
        let expected: Vec<Record> = records.iter().filter_map(|(_, record)| *record).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_ring_does_harm(data in prop::collection::vec(any::<u8>(), 0..2048)) {
        exercise::exercise(&data);
    }

    #[test]
    fn no_ring_that_looks_like_one_does_harm(
        headers in prop::collection::vec((0_u64..20, 0_u64..80, any::<u64>()), 0..64),
    ) {
        let words = headers.iter().flat_map(|&(kind, bytes, rest)| [kind | bytes << 48, rest, rest]);
        let words: Vec<u64> = [0, headers.len() as u64 * 24].into_iter().chain(words).collect();
        exercise::exercise(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn a_record_that_is_longer_than_the_ring_ends_it() {
    let mut found = 0;
    let ring = [SAMPLE | 0xFFF8 << 48, 7, 8, 0x1000];
    decode_ring(&ring, 0, 32, &mut |_| found += 1);
    decode_ring(&[SAMPLE, 7, 8, 0x1000], 0, 32, &mut |_| found += 1);
    decode_ring(&[], 0, 32, &mut |_| found += 1);
    assert_eq!(found, 0);
}
