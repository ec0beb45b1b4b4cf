//! Memory that the program has before its main: the heap so far, large `.data` and `.bss`, and what its
//! libraries have mapped, such as an allocator that begins before us.

use std::ops::Range;

use spillway_pager::threads::calls::Operation;
use spillway_sys::maps::{self, Mapping};
use spillway_sys::memory::{self, ProcessStatus};
use spillway_sys::objects::{self, ZeroedData};
use spillway_sys::own_memory;

use crate::process::call;

/// Data segments below this size stay as they are: most libraries have a few pages each.
const MIN_DATA_BYTES: usize = 1 << 20;

/// Anonymous mappings beyond this are reservations, of which a sanitizer's shadow is one: they stay as they
/// are.
const MOST_MAPPED_BYTES: usize = 64 << 30;

/// Libraries that work below the pager, or within it.
const OWN_LIBRARIES: [&str; 4] = ["libspillway_preload", "libc.so", "ld-linux", "libgcc_s"];

/// Brings what there is under management.
pub fn adopt_existing() {
    let Ok(mappings) = maps::read() else { return };
    for mapping in &mappings {
        if is_heap(mapping) {
            call(Operation::Adopt, [mapping.start, mapping.bytes(), 0, 0]);
        } else if is_data(mapping) {
            adopt_data(mapping);
        }
    }
    // Not by its mapping, which may go on into thread-local storage: there the kernel writes whenever the
    // thread has changed its CPU (rseq(2)), and ends it where it cannot.
    let zeroed = objects::zeroed_data();
    for data in zeroed.iter().filter(|data| is_large(data) && is_plain(data, &mappings)) {
        call(Operation::Adopt, [data.pages.start, data.pages.len(), 0, 0]);
    }
    adopt_mapped(&mappings, &zeroed);
}

/// What is anonymous and neither a library's data, adopted or left alone above, nor the main thread's
/// storage, nor ours. The kernel merges neighbours, so a mapping may hold some of each.
fn adopt_mapped(mappings: &[Mapping], zeroed: &[ZeroedData]) {
    // What is locked must stay where it is, and a mapping does not say whether it is.
    let outsiders = ProcessStatus::open().and_then(|status| status.outsiders());
    if outsiders.is_ok_and(|outsiders| !outsiders.hold_nothing()) {
        return;
    }
    let mut others: Vec<Range<usize>> = zeroed.iter().map(|data| data.pages.clone()).collect();
    others.push(objects::thread_storage());
    others.sort_unstable_by_key(|other| other.start);
    for mapping in mappings.iter().filter(|mapping| is_mapped(mapping)) {
        for part in parts_without(mapping.start..mapping.end, &others) {
            for part in own_memory::parts_of_program(&part).into_iter().filter(is_worth_it) {
                call(Operation::Adopt, [part.start, part.len(), 0, 0]);
            }
        }
    }
}

fn is_mapped(mapping: &Mapping) -> bool {
    mapping.inode == 0 && mapping.name.is_empty() && mapping.is_private_writable()
}

fn is_worth_it(part: &Range<usize>) -> bool {
    (MIN_DATA_BYTES..=MOST_MAPPED_BYTES).contains(&part.len())
}

/// The parts of a range that none of the others, in order of address, covers.
fn parts_without(range: Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut parts, mut from) = (Vec::new(), range.start);
    for other in others.iter().filter(|other| other.start < range.end && range.start < other.end) {
        if from < other.start {
            parts.push(from..other.start);
        }
        from = from.max(other.end);
    }
    if from < range.end {
        parts.push(from..range.end);
    }
    parts
}

/// Piece by piece, so that no more than a piece is local before it counts against the limit.
fn adopt_data(mapping: &Mapping) {
    const PIECE_BYTES: usize = 1 << 20;
    for start in (mapping.start..mapping.end).step_by(PIECE_BYTES) {
        let bytes = PIECE_BYTES.min(mapping.end - start);
        // SAFETY: readable and writable by is_data, and no thread of the program runs yet.
        if unsafe { memory::make_anonymous(start, bytes) }.is_ok() {
            call(Operation::Adopt, [start, bytes, 0, 0]);
        }
    }
}

fn is_heap(mapping: &Mapping) -> bool {
    mapping.name == "[heap]" && mapping.is_private_writable()
}

fn is_own(name: &str) -> bool {
    OWN_LIBRARIES.iter().any(|own| name.contains(own))
}

fn is_large(data: &ZeroedData) -> bool {
    data.pages.len() >= MIN_DATA_BYTES && !is_own(&data.name)
}

/// Whole in one anonymous mapping, and not the heap's, which the kernel may have merged with it.
fn is_plain(data: &ZeroedData, mappings: &[Mapping]) -> bool {
    let around = |mapping: &&Mapping| mapping.start <= data.pages.start && data.pages.end <= mapping.end;
    mappings.iter().find(around).is_some_and(is_mapped)
}

fn is_data(mapping: &Mapping) -> bool {
    mapping.inode != 0
        && mapping.is_private_writable()
        && mapping.bytes() >= MIN_DATA_BYTES
        && !is_own(&mapping.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_cover_is_left_out() {
        let others = [5..10, 20..30, 25..28, 40..60];
        assert_eq!(parts_without(0..50, &others), [0..5, 10..20, 30..40]);
        assert_eq!(parts_without(22..65, &others), [30..40, 60..65]);
        assert_eq!(parts_without(6..9, &others), []);
    }
}
