//! Which instructions of the run's programs waited for pages to be fetched: a table of fixed size, in samples
//! of the time that was lost. Only faults that are served where they happen ([`crate::inline`]) come with the
//! address of their instruction; the supervisor looks for those of others from outside.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::run::process_entry::MAX_PROCESSES;

/// A sample stands for so much time, in nanoseconds.
pub const SAMPLE_NS: u64 = 1_000_000;
/// Instructions that are told apart, of all processes.
const SITES: usize = 1024;
/// Places at which one may stand.
const PROBES: usize = 8;
/// No program has memory beyond.
const ADDRESS_BITS: u32 = 48;
/// Samples for which there was no place.
const LEFT_OUT_AT: usize = 0;
const SITES_AT: usize = 1;
/// Words that this takes: which instruction it is and how many samples it has.
pub(super) const SITE_WORDS: usize = SITES_AT + SITES * 2;

/// An instruction of a process, and what was seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The process's entry in the run.
    pub entry: usize,
    /// The address of the instruction; 0 where a system call needed the page.
    pub instruction: u64,
    /// How often it was met.
    pub samples: u64,
}

/// The table of a run's instructions.
#[derive(Clone, Copy)]
pub struct Sites<'a>(pub(super) &'a [AtomicU64]);

/// Which entry and which instruction, as a word that is not 0.
fn key_of(entry: usize, instruction: u64) -> u64 {
    (entry as u64 + 1) << ADDRESS_BITS | instruction & ((1 << ADDRESS_BITS) - 1)
}

/// Fibonacci hashing: neighbours lie apart (Knuth, "The Art of Computer Programming", 6.4).
fn place_of(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % SITES
}

impl Sites<'_> {
    fn pair(&self, place: usize) -> (&AtomicU64, &AtomicU64) {
        let at = SITES_AT + place % SITES * 2;
        (&self.0[at], &self.0[at + 1])
    }

    /// Notes that process `entry` waited at an instruction.
    pub(crate) fn note(&self, entry: usize, instruction: u64, samples: u64) {
        let key = key_of(entry, instruction);
        let start = place_of(key);
        for (of, count) in (start..start + PROBES).map(|place| self.pair(place)) {
            let found = match of.load(Ordering::Relaxed) {
                0 => of.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(key),
                found => found,
            };
            if found == key {
                count.fetch_add(samples, Ordering::Relaxed);
                return;
            }
        }
        self.0[LEFT_OUT_AT].fetch_add(samples, Ordering::Relaxed);
    }

    /// The entry is another process's: what it has is forgotten.
    pub(super) fn forget(&self, entry: usize) {
        for (of, count) in (0..SITES).map(|place| self.pair(place)) {
            let key = of.load(Ordering::Relaxed);
            if key >> ADDRESS_BITS == entry as u64 + 1 {
                count.store(0, Ordering::Relaxed);
                // Whoever looks for another that stands behind it looks at all places.
                let _ = of.compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// All that was noted so far.
    #[must_use]
    pub fn read(&self) -> Vec<Site> {
        let each = (0..SITES).map(|place| self.pair(place)).filter_map(|(of, count)| {
            let key = of.load(Ordering::Relaxed);
            let entry = (key >> ADDRESS_BITS).checked_sub(1)? as usize;
            let instruction = key & ((1 << ADDRESS_BITS) - 1);
            Some(Site { entry, instruction, samples: count.load(Ordering::Relaxed) })
        });
        each.filter(|site| site.entry < MAX_PROCESSES && site.samples > 0).collect()
    }

    /// Samples for which there was no place.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.0[LEFT_OUT_AT].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..SITE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn samples_are_counted_by_process_and_instruction() {
        let words = words();
        let sites = Sites(&words);
        assert_eq!(sites.read(), []);
        for (entry, instruction, samples) in
            [(0, 0x40_1000, 2), (1023, 0x7fff_ffff_f000, 5), (0, 0x40_1000, 1), (0, 0, 7)]
        {
            sites.note(entry, instruction, samples);
        }
        let mut read = sites.read();
        read.sort_by_key(|site| site.samples);
        let told: Vec<_> = read.iter().map(|site| (site.entry, site.instruction, site.samples)).collect();
        assert_eq!(told, [(0, 0x40_1000, 3), (1023, 0x7fff_ffff_f000, 5), (0, 0, 7)]);
        sites.forget(0);
        assert_eq!(sites.read().len(), 1);
        sites.note(0, 0x40_1000, 4);
        assert_eq!((sites.read().len(), sites.left_out()), (2, 0));
    }

    #[test]
    fn what_finds_no_place_is_counted_and_none_is_lost() {
        let words = words();
        let sites = Sites(&words);
        for instruction in 0..3 * SITES as u64 {
            sites.note(3, instruction * 16, 1);
        }
        let told: u64 = sites.read().iter().map(|site| site.samples).sum();
        assert!(sites.read().len() > SITES / 2 && sites.left_out() > 0);
        assert_eq!(told + sites.left_out(), 3 * SITES as u64);
    }
}
