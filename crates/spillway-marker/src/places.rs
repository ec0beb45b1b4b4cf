//! Which memory may be marked: private anonymous memory of the program's that it can read and write, and in
//! which nothing lies that the marker itself goes through.

use std::ops::Range;

use spillway_sys::maps::Mapping;
use spillway_sys::own_memory;
use spillway_sys::page::PAGE_SIZE;

/// What to register for a page so that it can be held: its whole mapping. To register a part would split it,
/// and mremap(2) takes no range that is two mappings. None where the page must not be held.
pub fn place_of(page: usize, mappings: &[Mapping]) -> Option<Range<usize>> {
    let at = mappings.partition_point(|mapping| mapping.end <= page);
    let mapping = mappings.get(at).filter(|mapping| mapping.start <= page)?;
    let named = mapping.name.is_empty() || mapping.name == "[heap]" || mapping.name.starts_with("[anon:");
    if !mapping.is_private_writable() || mapping.inode != 0 || !named || is_bss(at, mappings) {
        return None;
    }
    let own = own_memory::parts_of_program(&(page..page + PAGE_SIZE));
    if own.first() != Some(&(page..page + PAGE_SIZE)) {
        return None;
    }
    Some(mapping.start..mapping.end)
}

/// Whether a mapping is what a file's segment has beyond its file: libraries keep variables there, libc's and
/// our own among them.
fn is_bss(at: usize, mappings: &[Mapping]) -> bool {
    let before = at.checked_sub(1).and_then(|before| mappings.get(before));
    before.is_some_and(|before| before.end == mappings[at].start && before.inode != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn mappings() -> Vec<Mapping> {
        [
            "100000-200000 rw-p 00000000 fe:01 77 /usr/lib/a.so",
            "200000-300000 rw-p 00000000 00:00 0 ",
            "400000-900000 rw-p 00000000 00:00 0 ",
            "900000-a00000 r--p 00000000 00:00 0 ",
            "b00000-c00000 rw-s 00000000 00:00 0 ",
            "c00000-d00000 rw-p 00000000 00:00 0                          [stack]",
            "d00000-e00000 rw-p 00000000 00:00 0                          [heap]",
        ]
        .iter()
        .map(|line| Mapping::parse(line).unwrap())
        .collect()
    }

    #[test]
    fn private_anonymous_memory_may_be_marked_and_nothing_else() {
        assert_eq!(place_of(MIB, &mappings()), None, "a file's");
        assert_eq!(place_of(2 * MIB, &mappings()), None, "a library's variables");
        assert_eq!(place_of(3 * MIB, &mappings()), None, "not mapped");
        assert_eq!(place_of(5 * MIB, &mappings()), Some(4 * MIB..9 * MIB), "whole");
        assert_eq!(place_of(9 * MIB, &mappings()), None, "not writable");
        assert_eq!(place_of(11 * MIB, &mappings()), None, "shared");
        assert_eq!(place_of(12 * MIB, &mappings()), None, "the stack");
        assert_eq!(place_of(13 * MIB, &mappings()), Some(13 * MIB..14 * MIB));
        assert_eq!(place_of(20 * MIB, &mappings()), None, "beyond all");
    }

    #[test]
    fn what_is_our_own_is_not_marked() {
        const AT: usize = 1 << 60;
        let line = format!("{:x}-{:x} rw-p 00000000 00:00 0 ", AT, AT + MIB);
        let mappings = [Mapping::parse(&line).unwrap()];
        assert!(place_of(AT, &mappings).is_some());
        own_memory::note(AT + PAGE_SIZE, PAGE_SIZE);
        assert!(place_of(AT, &mappings).is_some() && place_of(AT + PAGE_SIZE, &mappings).is_none());
        own_memory::forget(&(AT..AT + MIB));
    }
}
