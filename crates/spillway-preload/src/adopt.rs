//! Memory that the program has before its main: the heap so far, and large `.data` and `.bss`.

use spillway_pager::threads::calls::Operation;
use spillway_sys::maps::{self, Mapping};
use spillway_sys::memory;
use spillway_sys::objects::{self, ZeroedData};

use crate::process::call;

/// Data segments below this size stay as they are: most libraries have a few pages each.
const MIN_DATA_BYTES: usize = 1 << 20;

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
    for data in objects::zeroed_data().into_iter().filter(|data| is_large(data) && is_plain(data, &mappings))
    {
        call(Operation::Adopt, [data.pages.start, data.pages.len(), 0, 0]);
    }
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
    mappings
        .iter()
        .find(around)
        .is_some_and(|mapping| mapping.inode == 0 && mapping.name.is_empty() && mapping.is_private_writable())
}

fn is_data(mapping: &Mapping) -> bool {
    mapping.inode != 0
        && mapping.is_private_writable()
        && mapping.bytes() >= MIN_DATA_BYTES
        && !is_own(&mapping.name)
}
