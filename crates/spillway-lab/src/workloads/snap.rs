//! Sequence alignment like SNAP's (dcm section 4.1, Fig. 11; Zaharia et al. 2011): a load phase that reads
//! the genome and its index from a file, from end to end, then an align phase that looks up each read's seeds
//! at random places of the index and compares the read with the genome where they point.
//!
//! The file stays in the page cache, which is a part of the working set: dcm's shares are of what a virtual
//! machine holds, and "the guest OS keeps the page caches in its memory" (section 5.2). So half of the memory
//! is cold once the reads are aligned.
//!
//! The index is a hash table from each 20-base seed to where it stands, with linear probing. Simplified:
//! reads differ from the genome by substitutions only, so a candidate is scored by how many bases differ;
//! they stand in one direction; the disk takes no time, and the file of reads leaves no page cache.

use rand::RngExt;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{WorkloadRng, mix, rng};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array, LINE_BYTES};
use crate::workload::{Region, Workload};

const SEED_BASES: usize = 20;
const NO_PLACE: u32 = u32::MAX;
/// Slots of the index for two bases of the genome.
const SLOTS_PER_TWO_BASES: usize = 3;
const STEP_LINES: u64 = 64;
/// Reads that lie in memory at a time; they come from a file.
const READ_RING: usize = 1024;

/// What a run may set of [`Snap`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Reads to align; 0: one for each 20 bases of the genome.
    pub reads: u64,
    /// Bases of a read.
    pub read_bases: usize,
    /// Share of a read's bases that differ from the genome.
    pub substitutions: f64,
    /// Work on a seed or a candidate. Some 4.5 of them make a read, which takes SNAP 32 us of a core: its
    /// paper aligns 900 M reads of 100 bases (a human genome 30 times over) in an hour for $2, the price of 8
    /// cores.
    pub compute_ns: u64,
}

impl Default for SnapConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            reads: 0,
            read_bases: 100,
            substitutions: 0.02,
            compute_ns: 7000,
        }
    }
}

/// An entry of the index: a seed's check bits and where it stands.
#[derive(Clone, Copy)]
struct Slot {
    check: u32,
    place: u32,
}

/// Sequence alignment: loads genome and index, then aligns reads.
pub struct Snap {
    config: SnapConfig,
    regions: Vec<Region>,
    /// Where the file lies in the page cache: the genome, then the index.
    page_cache: u64,
    genome: Array<u8>,
    index: Array<Slot>,
    ring: Array<u8>,
    /// For each read where it was found, or nowhere.
    found: Array<u32>,
    reads: WorkloadRng,
    phase: Phase,
    right: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Loads the genome and the index, from this byte of both on.
    Load(u64),
    /// Aligns reads, from this one on.
    Align(u64),
    Done,
}

impl Snap {
    /// Whether the genome and its index are still being loaded.
    pub fn is_load_phase(&self) -> bool {
        matches!(self.phase, Phase::Load(_))
    }

    /// The disk fills a piece of the page cache, and it is copied to where it is used.
    fn load(&mut self, from: u64, accesses: &mut Accesses) -> Phase {
        let genome_bytes = self.genome.len() as u64;
        let bytes = file_bytes(self.genome.len());
        let region_end = if from < genome_bytes { genome_bytes } else { bytes };
        let end = region_end.min(from + STEP_LINES * LINE_BYTES);
        let start =
            if from < genome_bytes { self.genome.address(0) } else { self.index.address(0) - genome_bytes };
        let mut lines = |start: u64, access: fn(u64) -> Access| {
            accesses.extend((from..end).step_by(LINE_BYTES as usize).map(|offset| access(start + offset)));
        };
        lines(self.page_cache, Access::write);
        lines(self.page_cache, Access::read);
        lines(start, Access::write);
        if end < bytes { Phase::Load(end) } else { Phase::Align(0) }
    }

    fn align(&mut self, read: u64, accesses: &mut Accesses) -> Phase {
        if read == self.config.reads {
            return Phase::Done;
        }
        let bases = self.config.read_bases;
        let slot = read as usize % READ_RING * bases;
        let truth = self.draw_read(slot, accesses);
        let place = self.best_place(slot, accesses);
        self.found.set(read as usize, place, accesses);
        self.right += u64::from(place == truth);
        if read + 1 < self.config.reads { Phase::Align(read + 1) } else { Phase::Done }
    }

    /// Takes the next read from its file; answers where it stands.
    fn draw_read(&mut self, slot: usize, accesses: &mut Accesses) -> u32 {
        let bases = self.config.read_bases;
        let place = self.reads.random_range(0..self.genome.len() - bases);
        let read = self.ring.write_run(slot..slot + bases, accesses);
        read.copy_from_slice(&self.genome.data()[place..place + bases]);
        for base in read {
            if self.reads.random_bool(self.config.substitutions) {
                *base = b"ACGT"[self.reads.random_range(0..4usize)];
            }
        }
        place as u32
    }

    /// Where the read differs least from the genome, of the places that its seeds name.
    fn best_place(&self, slot: usize, accesses: &mut Accesses) -> u32 {
        let bases = self.config.read_bases;
        let read = self.ring.read_run(slot..slot + bases, accesses);
        let (mut best, mut least, mut last) = (NO_PLACE, bases, NO_PLACE);
        for offset in (0..=bases - SEED_BASES).step_by(SEED_BASES) {
            let hash = hash(&read[offset..offset + SEED_BASES]);
            accesses.push(Access::compute_ns(self.config.compute_ns));
            self.candidates(hash, accesses, |seed_place, accesses| {
                let Some(place) = seed_place.checked_sub(offset as u32).filter(|&place| place != last) else {
                    return;
                };
                last = place;
                let range = place as usize..place as usize + bases;
                if range.end > self.genome.len() {
                    return;
                }
                let here = self.genome.read_run(range, accesses);
                accesses.push(Access::compute_ns(self.config.compute_ns));
                let different = read.iter().zip(here).filter(|(a, b)| a != b).count();
                if different < least {
                    (best, least) = (place, different);
                }
            });
            // SNAP too stops when what is left cannot be better.
            if least <= 1 {
                break;
            }
        }
        best
    }

    fn candidates(&self, hash: u64, accesses: &mut Accesses, mut each: impl FnMut(u32, &mut Accesses)) {
        let mut slot = (hash % self.index.len() as u64) as usize;
        let mut line = u64::MAX;
        loop {
            let found = self.index.get_next(slot, &mut line, accesses);
            if found.place == NO_PLACE {
                return;
            }
            if found.check == (hash >> 32) as u32 {
                each(found.place, accesses);
            }
            slot = (slot + 1) % self.index.len();
        }
    }
}

/// Slots of the index of a genome of so many bases.
fn slots(bases: usize) -> usize {
    bases * SLOTS_PER_TWO_BASES / 2
}

/// Length of the file that holds such a genome and its index.
fn file_bytes(bases: usize) -> u64 {
    (bases + slots(bases) * size_of::<Slot>()) as u64
}

fn index(genome: &[u8]) -> Vec<Slot> {
    let slots = slots(genome.len());
    let mut index = vec![Slot { check: 0, place: NO_PLACE }; slots];
    for (place, seed) in genome.windows(SEED_BASES).enumerate() {
        let hash = hash(seed);
        let mut slot = (hash % slots as u64) as usize;
        while index[slot].place != NO_PLACE {
            slot = (slot + 1) % slots;
        }
        index[slot] = Slot { check: (hash >> 32) as u32, place: place as u32 };
    }
    index
}

/// A seed's hash: two bits a base, scrambled.
fn hash(seed: &[u8]) -> u64 {
    mix(seed.iter().fold(0, |bits, &base| bits << 2 | u64::from(base >> 1 & 3)))
}

impl Registered for Snap {
    type Config = SnapConfig;
    const NAME: &'static str = "snap";
    const ABOUT: &'static str = "sequence alignment: loads in order, then aligns at random";
    const PRELOAD: bool = false;

    fn new(mut config: SnapConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "read_bases", config.read_bases, SEED_BASES..=400)?;
        within(name, "substitutions", config.substitutions, 0.0..=0.2)?;
        let ring_bytes = READ_RING * config.read_bases;
        at_least(name, config.bytes, ring_bytes as u64 + (64 << 10))?;
        // For each base itself and its slots, twice: in memory and in the page cache; and a fifth of a byte
        // for its alignment.
        let base_tenths = 2 * (10 + 4 * SLOTS_PER_TWO_BASES * 10) + 2;
        let bases = (config.bytes as usize - ring_bytes) * 10 / base_tenths;
        if config.reads == 0 {
            config.reads = bases as u64 / 20;
        }
        let mut bases_rng = rng(config.seed, 0);
        let genome: Vec<u8> = (0..bases).map(|_| b"ACGT"[bases_rng.random_range(0..4usize)]).collect();
        let index = index(&genome);
        let mut space = AddressSpace::default();
        Ok(Self {
            page_cache: space.reserve("page cache", file_bytes(bases)),
            genome: space.array("genome", genome),
            index: space.array("index", index),
            ring: space.filled("reads", 0, ring_bytes),
            found: space.filled("alignments", NO_PLACE, config.reads as usize),
            reads: rng(config.seed, 1),
            phase: Phase::Load(0),
            right: 0,
            regions: space.into_regions(),
            config,
        })
    }
}

impl Workload for Snap {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.config.tasks
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        self.phase = match self.phase {
            Phase::Load(from) => self.load(from, accesses),
            Phase::Align(read) => self.align(read, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    /// Nearly all reads are found where they stand; some have a change in every seed.
    fn verify(&self) -> Result<(), String> {
        if self.right * 100 < self.config.reads * 95 {
            return Err(format!("{} of {} reads found", self.right, self.config.reads));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Action;
    use crate::workloads::testing::run;

    #[test]
    fn finds_reads_where_they_stand() {
        for tasks in [1, 4] {
            let config = SnapConfig { bytes: 2 << 20, tasks, ..SnapConfig::default() };
            let mut snap = Snap::new(config).unwrap();
            run(&mut snap);
            assert_eq!(snap.verify(), Ok(()));
            assert!(
                snap.found
                    .data()
                    .iter()
                    .all(|&place| place as usize <= snap.genome.len() - 100 || place == NO_PLACE)
            );
        }
    }

    #[test]
    fn without_changes_every_read_is_found() {
        let config = SnapConfig { bytes: 1 << 20, substitutions: 0.0, ..SnapConfig::default() };
        let mut snap = Snap::new(config).unwrap();
        run(&mut snap);
        assert_eq!(snap.right, snap.config.reads);
    }

    #[test]
    fn loads_in_order_first_and_leaves_the_file_in_the_page_cache() {
        let mut snap = Snap::new(SnapConfig { bytes: 1 << 20, ..SnapConfig::default() }).unwrap();
        let mut accesses = Accesses::new();
        while snap.is_load_phase() {
            snap.step(0, &mut accesses);
        }
        let (mut cached, mut read, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for access in &accesses {
            match access.action() {
                Action::Write(address) if address < snap.genome.address(0) => cached.push(address),
                Action::Write(address) => copied.push(address),
                Action::Read(address) => read.push(address),
                Action::ComputeNs(_) | Action::Release(..) => panic!("the disk takes no time"),
            }
        }
        assert!(cached.is_sorted() && copied.is_sorted());
        assert_eq!((&cached, cached.len()), (&read, copied.len()));
        assert!(cached.len() as u64 * 64 > 425_000, "{}", cached.len());
        accesses.clear();
        while snap.step(0, &mut accesses) {}
        let in_cache = |access: &Access| match access.action() {
            Action::Read(address) | Action::Write(address) => address < snap.genome.address(0),
            Action::ComputeNs(_) | Action::Release(..) => false,
        };
        assert!(!accesses.iter().any(in_cache), "the file is not read again");
    }
}
