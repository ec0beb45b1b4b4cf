//! The page tables of any process, as the hardware uses them: which frame holds a page, and whether its
//! accessed bit is set. Read through [`KernelMemory`], a table at a time; x86-64, four and five levels.
//!
//! The tables change and go away while they are read, and no lock is held: an entry may be out of date, or
//! nonsense where a table was freed and used anew. Who acts on it asks the kernel by virtual address, which
//! then decides.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use rustix::io::Errno;
use thiserror::Error;

use crate::btf::{Btf, BtfError};
use crate::kernel_memory::{KernelMemory, MOST_BYTES};
use crate::page::PAGE_SHIFT;

const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 5;
const LEAF: u64 = 1 << 7;
/// Where PRESENT is clear: mapped without any right, as NUMA balancing does it (`_PAGE_PROTNONE`).
const NO_ACCESS: u64 = 1 << 8;
const FRAME: u64 = 0x000F_FFFF_FFFF_F000;

const ENTRIES: u64 = 512;
const LEVEL_BITS: u32 = 9;

/// The kernel places its map of all memory at a multiple of this.
const MAP_ALIGNMENT: u64 = 1 << 30;
/// As many places for it are tried: for 64 TiB of memory.
const MOST_PLACES: u64 = 1 << 16;

/// Why page tables cannot be read.
#[derive(Debug, Error)]
pub enum PageTablesError {
    /// The kernel does not say where its structures lie.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The kernel's memory cannot be read.
    #[error(
        "kernel memory: {0}; reading page tables needs root (CAP_BPF, CAP_PERFMON) and a kernel that is not \
         locked down"
    )]
    Memory(#[from] Errno),
    /// The kernel's map of all memory was not found.
    #[error("kernel memory: the map of all memory was not found; take another telemetry source")]
    NoMap,
    /// Numbers of processes mean others to the kernel than to the caller.
    #[error(
        "processes cannot be told apart from within a PID namespace; run in the machine's own (a container's \
         option is often --pid=host)"
    )]
    Namespace,
    /// The process is gone, or has no memory of its own.
    #[error("process {0}: gone, or a kernel thread")]
    Gone(u32),
}

/// An entry that maps a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First address that it maps.
    pub address: u64,
    /// The frame there, in pages of 4 KiB.
    pub frame: u64,
    /// How many pages of 4 KiB it maps: 1, 512 or 262,144.
    pub pages: u32,
    /// Whether they were accessed since the bit was cleared.
    pub accessed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    tasks: u64,
    tgid: u64,
    group_leader: u64,
    mm: u64,
    pgd: u64,
}

impl Offsets {
    fn of_kernel() -> Result<Self, BtfError> {
        let btf = Btf::of_kernel()?;
        let task = |member| btf.offset("task_struct", member).map(|offset| offset as u64);
        Ok(Self {
            tasks: task("tasks")?,
            tgid: task("tgid")?,
            group_leader: task("group_leader")?,
            mm: task("mm")?,
            pgd: btf.offset("mm_struct", "pgd")? as u64,
        })
    }
}

/// The address space of one process, by where its page tables begin.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace {
    process: u32,
    task: u64,
    mm: u64,
    pgd: u64,
}

/// The address spaces of processes that are asked for again and again.
#[derive(Debug, Default)]
pub struct KnownSpaces(HashMap<u32, AddressSpace>);

impl KnownSpaces {
    /// A process's address space, searched for where it is not known, or is no longer what it was.
    ///
    /// # Errors
    /// As [`PageTables::find`].
    pub fn space(&mut self, tables: &mut PageTables, process: u32) -> Result<AddressSpace, PageTablesError> {
        if let Some(space) = self.0.get(&process).filter(|space| tables.is_current(space)) {
            return Ok(*space);
        }
        self.0.remove(&process);
        let space = tables.find(process)?;
        self.0.insert(process, space);
        Ok(space)
    }

    /// The process is of no more interest.
    pub fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }
}

/// Where the running kernel keeps what page tables are found by: the same until it is booted anew.
#[derive(Clone, Copy, Debug)]
pub struct KernelLayout {
    offsets: Offsets,
    levels: u32,
    /// Where the kernel maps all memory.
    map: u64,
}

/// Reads page tables in the kernel's memory.
pub struct PageTables {
    memory: KernelMemory,
    layout: KernelLayout,
}

impl PageTables {
    /// Finds out where everything lies.
    ///
    /// # Errors
    /// The kernel gives no access, or is not understood.
    pub fn open() -> Result<Self, PageTablesError> {
        let memory = KernelMemory::open()?;
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let levels = if cpu.split_whitespace().any(|flag| flag == "la57") { 5 } else { 4 };
        let layout = KernelLayout { offsets: Offsets::of_kernel()?, levels, map: 0 };
        let mut tables = Self { memory, layout };
        let own = tables.own_space()?;
        let mark = RandomState::new().build_hasher().finish();
        let mark_at = std::ptr::from_ref(std::hint::black_box(&mark)).expose_provenance() as u64;
        let memory = &mut tables.memory;
        let found = find_map(&mut |address| memory.word(address).ok(), levels, own.pgd, (mark_at, mark));
        tables.layout.map = found.ok_or(PageTablesError::NoMap)?;
        Ok(tables)
    }

    /// The same where the layout is known, in microseconds.
    ///
    /// # Errors
    /// The kernel gives no access.
    pub fn with_layout(layout: KernelLayout) -> Result<Self, PageTablesError> {
        Ok(Self { memory: KernelMemory::open()?, layout })
    }

    /// What was found out.
    #[must_use]
    pub fn layout(&self) -> KernelLayout {
        self.layout
    }

    /// The caller's own address space.
    ///
    /// # Errors
    /// The kernel's memory cannot be read.
    pub fn own_space(&mut self) -> Result<AddressSpace, PageTablesError> {
        let own = self.memory.current_task()?;
        let task = self.memory.word(own + self.layout.offsets.group_leader)?;
        let process = self.word32(task + self.layout.offsets.tgid)?;
        self.space_of(task, process)
    }

    fn space_of(&mut self, task: u64, process: u32) -> Result<AddressSpace, PageTablesError> {
        let mm = self.memory.word(task + self.layout.offsets.mm)?;
        if mm == 0 {
            return Err(PageTablesError::Gone(process));
        }
        let pgd = self.memory.word(mm + self.layout.offsets.pgd)?;
        Ok(AddressSpace { process, task, mm, pgd })
    }

    fn word32(&mut self, address: u64) -> Result<u32, Errno> {
        let mut word = [0; 4];
        word.copy_from_slice(self.memory.read(address, 4)?);
        Ok(u32::from_ne_bytes(word))
    }

    /// Finds a process.
    ///
    /// # Errors
    /// It is gone, or has no memory; the caller is in a PID namespace of its own.
    pub fn find(&mut self, process: u32) -> Result<AddressSpace, PageTablesError> {
        const MOST_TASKS: usize = 1 << 22;
        let gone = PageTablesError::Gone(process);
        let own = self.memory.current_task()?;
        let own = self.memory.word(own + self.layout.offsets.group_leader)?;
        if self.word32(own + self.layout.offsets.tgid)? != std::process::id() {
            return Err(PageTablesError::Namespace);
        }
        let mut task = own;
        for _ in 0..MOST_TASKS {
            if self.word32(task + self.layout.offsets.tgid).ok() == Some(process) {
                return self.space_of(task, process);
            }
            let Ok(next) = self.memory.word(task + self.layout.offsets.tasks) else { return Err(gone) };
            task = next.wrapping_sub(self.layout.offsets.tasks);
            if task == own {
                break;
            }
        }
        Err(gone)
    }

    /// Whether an address space is still what it was: the process lives and has not executed another program.
    #[must_use]
    pub fn is_current(&mut self, space: &AddressSpace) -> bool {
        self.word32(space.task + self.layout.offsets.tgid).ok() == Some(space.process)
            && self.memory.word(space.task + self.layout.offsets.mm).ok() == Some(space.mm)
    }

    /// Tells `visit` of each page in a range of addresses that has a frame.
    pub fn walk(&mut self, space: &AddressSpace, range: Range<u64>, visit: &mut dyn FnMut(Entry)) {
        self.walk_table(space.pgd, self.layout.levels - 1, &range, 0, visit);
    }

    fn walk_table(
        &mut self,
        table: u64,
        level: u32,
        range: &Range<u64>,
        table_start: u64,
        visit: &mut dyn FnMut(Entry),
    ) {
        let shift = PAGE_SHIFT + level * LEVEL_BITS;
        let first = range.start.saturating_sub(table_start) >> shift;
        let end = (range.end - table_start).div_ceil(1 << shift).min(ENTRIES);
        let mut entries = [0; MOST_BYTES];
        let bytes = (end - first) as usize * 8;
        match self.memory.read(table + first * 8, bytes) {
            Ok(read) => entries[..bytes].copy_from_slice(read),
            Err(_) => return,
        }
        for (at, entry) in entries[..bytes].as_chunks().0.iter().enumerate() {
            let entry = u64::from_ne_bytes(*entry);
            let address = table_start + ((first + at as u64) << shift);
            let there = entry & PRESENT != 0;
            let barred = !there && entry & NO_ACCESS != 0;
            let is_leaf = level == 0 || (level <= 2 && entry & LEAF != 0);
            if is_leaf && (there || barred) {
                // The kernel keeps frames inverted where the hardware must not see them (L1TF).
                let frame = (if barred { !entry } else { entry }) & FRAME;
                let pages = 1 << (level * LEVEL_BITS);
                let frame = frame >> PAGE_SHIFT & !(u64::from(pages) - 1);
                visit(Entry { address, frame, pages, accessed: entry & ACCESSED != 0 });
            } else if there && level > 0 {
                self.walk_table(
                    self.layout.map.wrapping_add(entry & FRAME),
                    level - 1,
                    range,
                    address,
                    visit,
                );
            }
        }
    }
}

/// Where the kernel maps all memory, of which `read` reads a word. Tries one place after the other, by two
/// pages: that of the first table itself, and one of the caller's that holds a `mark`, an address and a word
/// that nobody else has. The first alone will not do: a wrong place leads to somebody's page, and a small odd
/// number there passes for an entry.
fn find_map(
    read: &mut dyn FnMut(u64) -> Option<u64>,
    levels: u32,
    pgd: u64,
    (mark_at, mark): (u64, u64),
) -> Option<u64> {
    let highest = pgd & !(MAP_ALIGNMENT - 1);
    (0..MOST_PLACES).map(|place| highest.wrapping_sub(place * MAP_ALIGNMENT)).find(|&map| {
        let mut found = |address: u64| {
            let frame = frame_of(read, levels, map, pgd, address)?;
            Some(map.wrapping_add(frame << PAGE_SHIFT) + (address & ((1 << PAGE_SHIFT) - 1)))
        };
        found(pgd) == Some(pgd) && found(mark_at).and_then(&mut *read) == Some(mark)
    })
}

/// The frame at one address of the address space whose tables begin at `pgd`.
fn frame_of(
    read: &mut dyn FnMut(u64) -> Option<u64>,
    levels: u32,
    map: u64,
    pgd: u64,
    address: u64,
) -> Option<u64> {
    let mut table = pgd;
    for level in (0..levels).rev() {
        let shift = PAGE_SHIFT + level * LEVEL_BITS;
        let entry = read(table + (address >> shift) % ENTRIES * 8)?;
        if entry & PRESENT == 0 {
            return None;
        }
        let below = (address >> PAGE_SHIFT) & ((1 << (level * LEVEL_BITS)) - 1);
        if level == 0 || (level <= 2 && entry & LEAF != 0) {
            return Some(((entry & FRAME) >> PAGE_SHIFT & !((1 << (level * LEVEL_BITS)) - 1)) + below);
        }
        table = map.wrapping_add(entry & FRAME);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Area;

    const PAGES: usize = 1024;

    fn entries(tables: &mut PageTables, area: &Area) -> Vec<Entry> {
        let space = tables.find(std::process::id()).unwrap();
        assert!(tables.is_current(&space));
        let mut found = Vec::new();
        let start = area.address() as u64;
        tables.walk(&space, start..start + (PAGES * 4096) as u64, &mut |entry| found.push(entry));
        found
    }

    #[test]
    fn the_map_of_all_memory_is_found_though_other_pages_look_like_tables() {
        const GIB: u64 = 1 << 30;
        const MAP: u64 = 0xFFFF_8880_0000_0000;
        // The first table lies in the sixth GiB, and maps it all by entries of a GiB; the mark is in the
        // third.
        let (pgd, upper, mark_at, mark) = (5 * GIB + 0x3000, 5 * GIB + 0x4000, 0x7000_0000_0018, 0xF00D);
        let user_tables = [5 * GIB + 0x5000, 5 * GIB + 0x6000, 5 * GIB + 0x7000];
        let slot = |address: u64, level: u32| (address >> (12 + level * 9)) % 512 * 8;
        let mut memory = std::collections::HashMap::from([
            (pgd + slot(MAP + pgd, 3), upper | PRESENT),
            (upper + slot(MAP + pgd, 2), (5 * GIB) | PRESENT | LEAF),
            (pgd + slot(mark_at, 3), user_tables[0] | PRESENT),
            (user_tables[0] + slot(mark_at, 2), user_tables[1] | PRESENT),
            (user_tables[1] + slot(mark_at, 1), user_tables[2] | PRESENT),
            (user_tables[2] + slot(mark_at, 0), (2 * GIB + 0x9000) | PRESENT),
        ]);
        memory.insert(2 * GIB + 0x9018, mark);
        // Whatever else there is holds small odd numbers, as a program's memory does.
        let mut read = |address: u64| {
            let at = address.checked_sub(MAP).filter(|at| *at < 24 * GIB)?;
            Some(memory.get(&at).copied().unwrap_or(PRESENT | LEAF))
        };
        assert_eq!(find_map(&mut read, 4, MAP + pgd, (mark_at, mark)), Some(MAP));
        assert_eq!(find_map(&mut read, 4, MAP + pgd, (mark_at, mark + 1)), None);
    }

    #[test]
    fn pages_are_found_with_their_frames() {
        let mut tables = PageTables::open().unwrap();
        let area = Area::new(PAGES * 4096).unwrap();
        for page in [0, 7, 600, 1023] {
            area.words(page * 4096, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let found = entries(&mut tables, &area);
        let pages: Vec<_> =
            found.iter().map(|entry| (entry.address as usize - area.address()) / 4096).collect();
        assert_eq!(pages, [0, 7, 600, 1023]);
        for entry in found {
            let mut bytes = [0; 8];
            let map = std::fs::File::open("/proc/self/pagemap").unwrap();
            std::os::unix::fs::FileExt::read_exact_at(&map, &mut bytes, entry.address / 4096 * 8).unwrap();
            let frame = u64::from_ne_bytes(bytes) & ((1 << 55) - 1);
            assert_eq!((entry.frame, entry.pages), (frame, 1));
        }
    }

    #[test]
    fn accessed_bits_tell_what_was_used_since_they_were_cleared() {
        let mut tables = PageTables::open().unwrap();
        let area = Area::new(PAGES * 4096).unwrap();
        (0..PAGES)
            .for_each(|page| area.words(page * 4096, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed));
        // Reclaim and DAMON clear bits too, of a page here and there.
        let used = entries(&mut tables, &area).iter().filter(|entry| entry.accessed).count();
        assert!(used > PAGES * 9 / 10, "{used} of {PAGES} are in use");
        std::fs::write("/proc/self/clear_refs", "1").unwrap();
        let used = entries(&mut tables, &area).iter().filter(|entry| entry.accessed).count();
        assert!(used < PAGES / 10, "{used} of {PAGES} are in use");
        // Another process in between makes this one's processor forget its translations.
        std::process::Command::new("true").status().unwrap();
        area.words(5 * 4096, 1)[0].store(2, std::sync::atomic::Ordering::Relaxed);
        assert!(entries(&mut tables, &area)[5].accessed);
    }

    #[test]
    fn a_process_that_is_not_there_is_said_to_be_gone() {
        let mut tables = PageTables::open().unwrap();
        let error = tables.find(u32::MAX).unwrap_err();
        assert!(matches!(error, PageTablesError::Gone(u32::MAX)), "{error}");
        let child = std::process::Command::new("sleep").arg("100").spawn();
        let mut child = child.unwrap();
        let space = tables.find(child.id()).unwrap();
        assert!(tables.is_current(&space));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tables.find(child.id()).is_err());
    }
}
