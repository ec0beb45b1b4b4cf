use std::collections::VecDeque;

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;

const RECORDS: u64 = 8;
const RING_AT: usize = 1024;

/// Whoever samples: the other end of the ring.
pub(crate) struct Writer {
    file: NamedTempFile,
    memory: SharedMemory,
}

impl Writer {
    /// A file with room for [`RECORDS`], of which so many were written already.
    pub(crate) fn new(written: u64) -> Self {
        let (file, memory) = counters::tests::file();
        let writer = Self { file, memory };
        let words = [MAGIC, VERSION, RING_AT as u64, RECORDS, 200, 0, written, written, 0, 0];
        words.iter().enumerate().for_each(|(word, &value)| writer.set(word, value));
        writer
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn set(&self, word: usize, value: u64) {
        memory_word(&self.memory, word).store(value, Ordering::Release);
    }

    pub(crate) fn get(&self, word: usize) -> u64 {
        load(&self.memory, word)
    }

    /// Writes a sample, or loses it.
    pub(crate) fn push(&self, sampled: Sampled) -> bool {
        let (written, read) = (self.get(at::WRITTEN), self.get(at::READ));
        if written.wrapping_sub(read) >= RECORDS {
            self.set(at::LOST, self.get(at::LOST) + 1);
            return false;
        }
        let slot = (written % RECORDS) as usize;
        let flags = u64::from(sampled.write) << 32 | u64::from(sampled.far) << 33;
        let words = self.memory.atomics_u64(RING_AT + slot * RECORD_BYTES, 2);
        words[0].store(sampled.address, Ordering::Relaxed);
        words[1].store(u64::from(sampled.process) | flags, Ordering::Relaxed);
        self.set(at::WRITTEN, written.wrapping_add(1));
        true
    }
}

fn sampled(at: u64) -> Sampled {
    Sampled { process: 7, address: 0x5000 + at * 8, write: at.is_multiple_of(3), far: at.is_multiple_of(5) }
}

fn taken(ring: &mut SampleRing) -> Vec<Sampled> {
    let mut taken = Vec::new();
    ring.take(&mut |sampled| taken.push(sampled)).unwrap();
    taken
}

proptest! {
    /// Whatever is written and read when, from whatever count on: each sample comes once and in its order, or
    /// is counted as lost.
    #[test]
    fn every_sample_is_read_once_or_counted_as_lost(
        written in prop_oneof![Just(0), Just(u64::MAX - 5), any::<u64>()],
        steps in prop::collection::vec(prop_oneof![3 => Just(true), 1 => Just(false)], 0..200),
    ) {
        let writer = Writer::new(written);
        let mut ring = SampleRing::open(writer.path()).unwrap();
        let (mut expected, mut lost, mut at) = (VecDeque::new(), 0, 0);
        for writes in steps {
            if writes {
                let fits = (expected.len() as u64) < RECORDS;
                prop_assert_eq!(writer.push(sampled(at)), fits);
                if fits { expected.push_back(sampled(at)) } else { lost += 1 }
                at += 1;
            } else {
                prop_assert_eq!(taken(&mut ring), Vec::from(std::mem::take(&mut expected)));
            }
            prop_assert_eq!(ring.lost(), lost);
            prop_assert_eq!(ring.cost_ns(), at * 200);
        }
        prop_assert_eq!(taken(&mut ring), Vec::from(expected));
    }

    /// Counts that were damaged lead nowhere: an error, or records of the ring.
    #[test]
    fn counts_that_cannot_be_are_an_error(written: u64, claimed: u64) {
        let writer = Writer::new(written);
        let mut ring = SampleRing::open(writer.path()).unwrap();
        writer.set(at::WRITTEN, claimed);
        let result = ring.take(&mut |_| {});
        prop_assert_eq!(result.is_ok(), claimed.wrapping_sub(written) <= RECORDS);
    }
}

#[test]
fn what_was_sampled_before_is_passed_over_and_the_period_is_the_readers() {
    let writer = Writer::new(3);
    (0..5).for_each(|at| assert!(writer.push(sampled(at))));
    writer.set(at::LOST, 9);
    let mut ring = SampleRing::open(writer.path()).unwrap();
    assert_eq!((taken(&mut ring), ring.lost(), ring.cost_ns()), (vec![], 0, 0));
    assert_eq!(writer.get(at::PERIOD), 0);
    ring.set_period(200);
    assert_eq!(writer.get(at::PERIOD), 200);
    writer.push(sampled(6));
    assert_eq!(taken(&mut ring), [sampled(6)]);
    drop(ring);
    assert_eq!(writer.get(at::PERIOD), 0, "nobody reads any more");
}

#[test]
fn a_file_of_another_version_or_with_a_ring_that_does_not_fit_is_refused_by_name() {
    let bytes = 4096;
    for (word, value, names) in [
        (0, 1, "without samples"),
        (at::VERSION, 2, "layout 2"),
        (at::VERSION, 0, "layout 0"),
        (at::RING, bytes, "cannot be"),
        (at::RING, 8, "cannot be"),
        (at::RING, 1032, "cannot be"),
        (at::RING, u64::MAX - 15, "cannot be"),
        (at::RECORDS, 0, "0 samples"),
        (at::RECORDS, 7, "7 samples"),
        (at::RECORDS, 256, "256 samples"),
        (at::RECORDS, 1 << 60, "cannot be"),
    ] {
        let writer = Writer::new(0);
        writer.set(word, value);
        let error = SampleRing::open(writer.path()).unwrap_err().to_string();
        assert!(error.contains(names) && error.contains(writer.path().to_str().unwrap()), "{error}");
    }
    let (file, _) = counters::tests::file();
    assert!(matches!(SampleRing::open(file.path()), Err(SamplesError::Missing(_))), "counters only");
    file.as_file().set_len(AT_BYTES as u64 + 40).unwrap();
    assert!(matches!(SampleRing::open(file.path()), Err(SamplesError::Missing(_))), "too short");
    assert!(matches!(SampleRing::open(Path::new("/nowhere")), Err(SamplesError::Counters(_))));
}

#[test]
fn records_without_an_address_or_a_process_are_passed_over() {
    assert_eq!(decode([0x5000, 7]).map(|sampled| sampled.write), Some(false));
    assert_eq!(decode([0x5000, 7 | STORE]).map(|sampled| (sampled.write, sampled.far)), Some((true, false)));
    for record in [[0, 7], [0x5000, 0], [0x5000, STORE], [USER_END, 7], [u64::MAX, u64::MAX]] {
        assert_eq!(decode(record), None, "{record:?}");
    }
}
