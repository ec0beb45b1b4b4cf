//! Instrumented memory: arrays with addresses, which note each access to them as an algorithm makes it.

use std::ops::Range;

use spillway_core::page::HUGE_BYTES;

use crate::access::{Access, Accesses};
use crate::workload::Region;

/// Bytes of a cache line, the unit in which sequential accesses are noted.
pub const LINE_BYTES: u64 = 64;

/// Alignment of a region: a huge page.
const REGION_ALIGN_BYTES: u64 = HUGE_BYTES;

/// Hands out the addresses of a workload's arrays: one region each, one after the other.
#[derive(Debug)]
pub struct AddressSpace {
    next: u64,
    regions: Vec<Region>,
}

impl Default for AddressSpace {
    fn default() -> Self {
        Self { next: REGION_ALIGN_BYTES, regions: Vec::new() }
    }
}

impl AddressSpace {
    /// Gives `data` a region of its own.
    pub fn array<T: Copy>(&mut self, name: &'static str, data: Vec<T>) -> Array<T> {
        const { assert!(size_of::<T>() <= LINE_BYTES as usize, "an element lies in one cache line") };
        Array { start: self.reserve(name, (data.len() * size_of::<T>()) as u64), data }
    }

    /// A region without data behind it, for what can be worked out from its address; answers where it starts.
    pub fn reserve(&mut self, name: &'static str, bytes: u64) -> u64 {
        let start = self.next;
        if bytes > 0 {
            self.regions.push(Region { name, start, bytes });
            self.next = (start + bytes).next_multiple_of(REGION_ALIGN_BYTES);
        }
        start
    }

    /// Gives `len` copies of `value` a region of their own.
    pub fn filled<T: Copy>(&mut self, name: &'static str, value: T, len: usize) -> Array<T> {
        self.array(name, vec![value; len])
    }

    /// The regions handed out so far, by address.
    pub fn into_regions(self) -> Vec<Region> {
        self.regions
    }
}

/// An array whose accesses are noted.
///
/// One access is noted for an element, and one for each cache line of a run: neighbours in a line that follow
/// each other hit the first-level cache, which is not simulated.
#[derive(Clone, Debug)]
pub struct Array<T> {
    start: u64,
    data: Vec<T>,
}

impl<T: Copy> Array<T> {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Where an element lies.
    #[inline]
    pub fn address(&self, index: usize) -> u64 {
        self.start + (index * size_of::<T>()) as u64
    }

    /// Reads an element, and notes the access.
    #[inline]
    pub fn get(&self, index: usize, accesses: &mut Accesses) -> T {
        accesses.push(Access::read(self.address(index)));
        self.data[index]
    }

    /// Writes an element, and notes the access.
    #[inline]
    pub fn set(&mut self, index: usize, value: T, accesses: &mut Accesses) {
        accesses.push(Access::write(self.address(index)));
        self.data[index] = value;
    }

    /// Reads an element and writes it back changed: one access, since the line has come when it is written.
    #[inline]
    pub fn update(&mut self, index: usize, accesses: &mut Accesses, change: impl FnOnce(T) -> T) {
        accesses.push(Access::write(self.address(index)));
        self.data[index] = change(self.data[index]);
    }

    /// Reads an element of a sequence that may end early: noted when its line is not the last one noted.
    #[inline]
    pub fn get_next(&self, index: usize, last_line: &mut u64, accesses: &mut Accesses) -> T {
        note_next(self.address(index), last_line, accesses);
        self.data[index]
    }

    /// Reads a run of elements.
    #[inline]
    pub fn read_run(&self, run: Range<usize>, accesses: &mut Accesses) -> &[T] {
        note_lines(self.address(run.start), self.address(run.end), Access::read, accesses);
        &self.data[run]
    }

    /// Writes a run of elements: the caller fills the slice.
    #[inline]
    pub fn write_run(&mut self, run: Range<usize>, accesses: &mut Accesses) -> &mut [T] {
        note_lines(self.address(run.start), self.address(run.end), Access::write, accesses);
        &mut self.data[run]
    }

    /// The elements, unnoted: to set up and to verify.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The elements to change, unnoted: to set up.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }
}

/// Notes an access to each cache line from one address up to another.
#[inline]
pub fn note_lines(start: u64, end: u64, access: fn(u64) -> Access, accesses: &mut Accesses) {
    if start < end {
        let lines = start / LINE_BYTES..end.div_ceil(LINE_BYTES);
        accesses.extend(lines.map(|line| access(line * LINE_BYTES)));
    }
}

/// Notes a read when it is in another line than the last one noted.
#[inline]
pub fn note_next(address: u64, last_line: &mut u64, accesses: &mut Accesses) {
    if address / LINE_BYTES != *last_line {
        *last_line = address / LINE_BYTES;
        accesses.push(Access::read(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_apart_and_aligned() {
        let mut space = AddressSpace::default();
        space.filled("small", 0u8, 3);
        space.filled("none", 0u8, 0);
        let large = space.filled("large", 0u64, 1 << 20);
        let regions = space.into_regions();
        assert_eq!(regions.len(), 2);
        assert!(regions.iter().all(|region| region.start % REGION_ALIGN_BYTES == 0));
        assert!(regions[0].start + regions[0].bytes <= regions[1].start);
        assert_eq!(regions[1].bytes, 8 << 20);
        assert_eq!(large.address(2), regions[1].start + 16);
    }

    #[test]
    fn notes_what_is_done() {
        let mut space = AddressSpace::default();
        let mut array = space.array("numbers", (0..64u32).collect());
        let base = array.address(0);
        let mut accesses = Accesses::new();
        assert_eq!(array.get(5, &mut accesses), 5);
        array.set(6, 60, &mut accesses);
        array.update(6, &mut accesses, |value| value + 1);
        assert_eq!(array.data()[6], 61);
        let expected = [Access::read(base + 20), Access::write(base + 24), Access::write(base + 24)];
        assert_eq!(accesses, expected);
    }

    #[test]
    fn runs_note_each_line_once() {
        let mut space = AddressSpace::default();
        let mut array = space.array("numbers", (0..64u32).collect());
        let base = array.address(0);
        let mut accesses = Accesses::new();
        assert_eq!(array.read_run(15..17, &mut accesses), [15, 16]);
        assert_eq!(accesses, [Access::read(base), Access::read(base + 64)]);
        accesses.clear();
        array.write_run(16..32, &mut accesses).fill(0);
        assert_eq!(accesses, [Access::write(base + 64)]);
        accesses.clear();
        assert!(array.read_run(3..3, &mut accesses).is_empty());
        assert!(accesses.is_empty());
        let mut last_line = u64::MAX;
        for index in 0..33 {
            array.get_next(index, &mut last_line, &mut accesses);
        }
        assert_eq!(accesses.len(), 3);
    }
}
