//! What forked children get of pages that are held: copies, since the kernel, which finds nothing where they
//! belong, would give them zeros. A child's memory is its own descriptor's, of which nobody else has heard:
//! when all is there it is closed, and the child is a process like any other.

use std::ops::Range;

use rustix::io::Errno;
use rustix::thread::sched_yield;
use spillway_sys::maps::Mapping;
use spillway_sys::memory::Area;
use spillway_sys::page::PAGE_SIZE;
use spillway_sys::uffd::Uffd;
use spillway_sys::uffd::events::Event;

use crate::held::Page;
use crate::program;

/// How often a copy for which there is no memory is tried.
const MOST_TRIES: usize = 10_000;

/// Gives a child what is held. The child's descriptor where that could not be done: as long as it is open,
/// the child waits for what is missing and does not read zeros.
pub fn bequeath(child: Uffd, mut pages: Vec<Page>, frames: &Area) -> Option<Uffd> {
    let mut tries = 0;
    while let Some(&page) = pages.last() {
        match child.copy_from_frame(program::page(page.address), frames.pages(page.frame, 1)) {
            Err(Errno::SRCH) => return None,
            Err(Errno::AGAIN) => hear(&child, &mut pages, frames),
            Err(Errno::NOMEM) if tries < MOST_TRIES => {
                tries += 1;
                sched_yield();
            }
            Err(Errno::NOMEM) => return Some(child),
            // It is there, or the child has not got the mapping.
            Ok(()) | Err(_) => drop(pages.pop()),
        }
    }
    None
}

/// The child goes on meanwhile, and what it does to its memory must be heard before more can be put there.
fn hear(child: &Uffd, pages: &mut Vec<Page>, frames: &Area) {
    match child.read_event() {
        Ok(Some(Event::Dropped { start, end } | Event::Unmapped { start, end })) => {
            pages.retain(|page| !(start..end).contains(&page.address));
        }
        Ok(Some(Event::Moved { from, to, bytes })) => {
            let moved = from..from + bytes;
            let to_new = |page: &mut Page| page.address = page.address - from + to;
            pages.iter_mut().filter(|page| moved.contains(&page.address)).for_each(to_new);
        }
        // What the child had got by then, the kernel copied.
        Ok(Some(Event::Forked(grandchild))) => {
            if let Some(kept) = bequeath(grandchild, pages.clone(), frames) {
                std::mem::forget(kept);
            }
        }
        // Who waits for a page is woken by it, or by the end of the descriptor.
        Ok(Some(Event::Fault(_)) | None) | Err(_) => sched_yield(),
    }
}

/// Addresses that are zeros in children (`MADV_WIPEONFORK`), by the text of `/proc/PID/smaps`.
pub fn wiped(smaps: &str) -> Vec<Range<usize>> {
    let (mut current, mut wiped) = (0..0, Vec::new());
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_whitespace().any(|flag| flag == "wf") {
                wiped.push(current.clone());
            }
        } else if let Some(mapping) = Mapping::parse(line) {
            current = mapping.start..mapping.end;
        }
    }
    wiped
}

/// Of what is held, the pages that a child gets.
pub fn inherited(pages: impl Iterator<Item = Page>, wiped: &[Range<usize>]) -> Vec<Page> {
    let is_wiped = |page: &Page| {
        wiped.iter().any(|range| range.start < page.address + PAGE_SIZE && page.address < range.end)
    };
    pages.filter(|page| !is_wiped(page)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wiped_is_not_inherited() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nVmFlags: rd wr mr mw me ac wf \n\
                     3000-5000 rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n";
        let wiped = wiped(smaps);
        assert_eq!(wiped, std::slice::from_ref(&(0x1000..0x3000)));
        let pages = [0x2000, 0x3000].map(|address| Page { address, frame: 0 });
        assert_eq!(inherited(pages.into_iter(), &wiped), pages[1..]);
    }
}
