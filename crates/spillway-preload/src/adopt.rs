//! Memory that the program has before its main: the heap so far, and large `.data` and `.bss`.

use spillway_pager::calls::Operation;
use spillway_sys::maps::{self, Mapping};
use spillway_sys::memory;

use crate::call;

/// Data segments below this size stay as they are: most libraries have a few pages each.
const MIN_DATA_BYTES: usize = 1 << 20;

/// Libraries that work below the pager, or within it.
const OWN_LIBRARIES: [&str; 4] = ["libspillway_preload", "libc.so", "ld-linux", "libgcc_s"];

/// Brings what there is under management.
pub fn adopt_existing() {
    let Ok(mappings) = maps::read() else { return };
    let mut previous: Option<&Mapping> = None;
    for mapping in &mappings {
        if is_heap(mapping) || is_bss(mapping, previous) {
            adopt(mapping);
        } else if is_data(mapping) {
            adopt_data(mapping);
        }
        previous = Some(mapping);
    }
}

fn adopt(mapping: &Mapping) {
    call(Operation::Adopt, [mapping.start, mapping.bytes(), 0, 0]);
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

fn is_own(mapping: &Mapping) -> bool {
    OWN_LIBRARIES.iter().any(|name| mapping.name.contains(name))
}

/// Anonymous memory right behind a file's: the rest of a data segment.
fn is_bss(mapping: &Mapping, previous: Option<&Mapping>) -> bool {
    let follows = previous.is_some_and(|file| {
        file.end == mapping.start && file.inode != 0 && file.is_private_writable() && !is_own(file)
    });
    let here = std::ptr::from_ref(&mapping).expose_provenance();
    follows
        && mapping.inode == 0
        && mapping.name.is_empty()
        && mapping.is_private_writable()
        && mapping.bytes() >= MIN_DATA_BYTES
        && !(mapping.start..mapping.end).contains(&here)
}

fn is_data(mapping: &Mapping) -> bool {
    mapping.inode != 0
        && mapping.is_private_writable()
        && mapping.bytes() >= MIN_DATA_BYTES
        && !is_own(mapping)
}
