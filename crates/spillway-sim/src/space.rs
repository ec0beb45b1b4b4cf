//! One process's address space, as the kernel keeps it: mappings, page table entries, and what userfaultfd(2)
//! does to them.
//!
//! Semantics: `Documentation/admin-guide/mm/userfaultfd.rst`, `mm/userfaultfd.c` of Linux 6.18, and what
//! `docs/userfaultfd.md` found out. Nothing here draws: what the kernel may do or leave is
//! [`crate::kernel`]'s business.

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::{Errno, Result};

use crate::physical::{FrameId, Physical};

/// What the program may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It may not touch it.
    None,
    /// It may read it.
    Read,
    /// It may read and write it.
    Write,
    /// It may read, write and execute it.
    Execute,
}

impl Protection {
    fn may_write(self) -> bool {
        matches!(self, Self::Write | Self::Execute)
    }
}

/// To whom the faults of a registered page go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// To the handlers, as messages.
    Handlers,
    /// To the faulting thread, as SIGBUS.
    Signals,
}

/// What a mapping says of its pages. Neighbours that agree in it are one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What the program may do.
    pub protection: Protection,
    /// Registered with a userfaultfd.
    pub registered: Option<Faults>,
    /// A child does not get it (`MADV_DONTFORK`).
    pub is_dropped_on_fork: bool,
    /// A child gets zeros (`MADV_WIPEONFORK`).
    pub is_wiped_on_fork: bool,
    /// It is locked in memory (mlock(2)).
    pub is_locked: bool,
    /// Keeps mappings apart that the kernel does not merge.
    pub mapping: u32,
}

/// A page table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// There is no page here.
    Missing,
    /// The machine's shared page of zeros.
    Zero {
        /// It is write-protected by userfaultfd.
        is_protected: bool,
    },
    /// A frame of the machine's memory.
    Frame {
        /// The number of the frame.
        id: FrameId,
        /// Not shared since a fork, or made the process's own since.
        is_exclusive: bool,
        /// It is write-protected by userfaultfd.
        is_protected: bool,
    },
    /// Every access gives SIGBUS.
    Poisoned,
}

impl Entry {
    /// The page is there, be it the shared page of zeros.
    #[must_use]
    pub fn is_present(self) -> bool {
        matches!(self, Self::Zero { .. } | Self::Frame { .. })
    }

    fn is_protected(self) -> bool {
        matches!(self, Self::Zero { is_protected: true } | Self::Frame { is_protected: true, .. })
    }
}

/// A page that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// What its mapping says.
    pub attributes: Attributes,
    /// What its entry says.
    pub entry: Entry,
}

/// A page of the pager's own: a frame, a page of the reserve, a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Not shared since a fork.
    pub is_exclusive: bool,
    /// It is the shared page of zeros.
    pub is_zero: bool,
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It can be made.
    Done,
    /// Nothing is there, and somebody is to be asked.
    Missing(Faults),
    /// Something is there that must not be written without asking.
    Protected(Faults),
    /// Nobody may do that here.
    Segv,
    /// The page is poisoned.
    Bus,
}

/// Range of page numbers.
pub type Pages = Range<u64>;

/// The address space of one process.
#[derive(Debug, Default)]
pub struct Space {
    pages: BTreeMap<u64, Mapped>,
    own: BTreeMap<usize, Own>,
}

impl Space {
    /// What is mapped at a page.
    #[must_use]
    pub fn get(&self, page: u64) -> Option<&Mapped> {
        self.pages.get(&page)
    }

    /// A page's entry; missing where nothing is mapped.
    #[must_use]
    pub fn entry(&self, page: u64) -> Entry {
        self.pages.get(&page).map_or(Entry::Missing, |mapped| mapped.entry)
    }

    /// All mapped pages, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Mapped)> {
        self.pages.iter().map(|(&page, mapped)| (page, mapped))
    }

    /// Maps pages in place of what was there.
    pub fn map(&mut self, physical: &mut Physical, pages: Pages, protection: Protection, mapping: u32) {
        self.unmap(physical, pages.clone());
        let attributes = Attributes {
            protection,
            registered: None,
            is_dropped_on_fork: false,
            is_wiped_on_fork: false,
            is_locked: false,
            mapping,
        };
        self.pages.extend(pages.map(|page| (page, Mapped { attributes, entry: Entry::Missing })));
    }

    /// Unmaps pages, as munmap(2) does.
    pub fn unmap(&mut self, physical: &mut Physical, pages: Pages) {
        let numbers: Vec<u64> = self.pages.range(pages).map(|(&page, _)| page).collect();
        for page in numbers {
            if let Some(Mapped { entry: Entry::Frame { id, .. }, .. }) = self.pages.remove(&page) {
                physical.unmap(id);
            }
        }
    }

    /// mremap(2) of `from` to `to`, where what was there goes. The new place is not registered, nor its pages
    /// protected.
    pub fn move_pages(&mut self, physical: &mut Physical, from: Pages, to: u64) {
        let count = from.end - from.start;
        self.unmap(physical, to..to + count);
        let numbers: Vec<u64> = self.pages.range(from.clone()).map(|(&page, _)| page).collect();
        for page in numbers {
            if let Some(mut mapped) = self.pages.remove(&page) {
                mapped.attributes.registered = None;
                set_protected(&mut mapped.entry, false);
                self.pages.insert(page - from.start + to, mapped);
            }
        }
    }

    /// Changes what the mappings of a range say. ENOMEM where something is not mapped.
    pub fn change(&mut self, pages: Pages, change: impl Fn(&mut Attributes)) -> Result<()> {
        let is_whole = self.pages.range(pages.clone()).count() as u64 == pages.end - pages.start;
        self.pages.range_mut(pages).for_each(|(_, mapped)| change(&mut mapped.attributes));
        if is_whole { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Registers pages for userfaultfd, as UFFDIO_REGISTER does.
    pub fn register(&mut self, pages: Pages, faults: Faults) -> Result<()> {
        let mut of_range = self.pages.range(pages.clone()).peekable();
        if of_range.peek().is_none() {
            return Err(Errno::INVAL);
        }
        let is_others = |registered: Option<Faults>| registered.is_some_and(|other| other != faults);
        if of_range.any(|(_, mapped)| is_others(mapped.attributes.registered)) {
            return Err(Errno::BUSY);
        }
        let _ = self.change(pages, |attributes| attributes.registered = Some(faults));
        Ok(())
    }

    /// UFFDIO_UNREGISTER. Protection goes with the registration.
    pub fn unregister(&mut self, pages: Pages) -> Result<()> {
        let mut any = false;
        for (_, mapped) in self.pages.range_mut(pages) {
            mapped.attributes.registered = None;
            set_protected(&mut mapped.entry, false);
            any = true;
        }
        if any { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// What the one mapping says that a range lies in; `None` where it lies in several, or in none.
    #[must_use]
    pub fn one_mapping(&self, pages: Pages) -> Option<Attributes> {
        let first = self.pages.get(&pages.start)?.attributes;
        let alike = self.pages.range(pages.clone()).filter(|(_, mapped)| mapped.attributes == first);
        (alike.count() as u64 == pages.end - pages.start).then_some(first)
    }

    /// Whether UFFDIO_COPY and its like may work on a range: ENOENT where it does not lie in one registered
    /// mapping.
    pub fn may_fill(&self, pages: Pages, faults: Faults) -> Result<()> {
        let attributes = self.one_mapping(pages).ok_or(Errno::NOENT)?;
        if attributes.registered == Some(faults) { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// Puts a copy where nothing is.
    pub fn fill(
        &mut self,
        physical: &mut Physical,
        page: u64,
        contents: &[u8],
        is_protected: bool,
    ) -> Result<()> {
        let mapped = self.pages.get_mut(&page).ok_or(Errno::NOENT)?;
        if mapped.entry.is_present() {
            return Err(Errno::EXIST);
        }
        let id = physical.take_filled(contents);
        mapped.entry = Entry::Frame { id, is_exclusive: true, is_protected };
        Ok(())
    }

    /// Maps the shared page of zeros where nothing is.
    pub fn fill_zero(&mut self, page: u64) -> Result<()> {
        self.fill_marker(page, Entry::Zero { is_protected: false })
    }

    /// Poisons a page where nothing is.
    pub fn poison(&mut self, page: u64) -> Result<()> {
        self.fill_marker(page, Entry::Poisoned)
    }

    fn fill_marker(&mut self, page: u64, entry: Entry) -> Result<()> {
        let mapped = self.pages.get_mut(&page).ok_or(Errno::NOENT)?;
        if mapped.entry != Entry::Missing {
            return Err(Errno::EXIST);
        }
        mapped.entry = entry;
        Ok(())
    }

    /// Whether UFFDIO_MOVE may take pages from, or bring them to, a range of the program's. The other side is
    /// the pager's own: writable, not executable, not locked. `faults`: it must be registered with that.
    pub fn may_move(&self, pages: Pages, faults: Option<Faults>) -> Result<()> {
        self.pages.get(&pages.start).ok_or(Errno::NOENT)?;
        let attributes = self.one_mapping(pages).ok_or(Errno::INVAL)?;
        let is_registered = faults.is_none() || attributes.registered == faults;
        match attributes.protection == Protection::Write && !attributes.is_locked && is_registered {
            true => Ok(()),
            false => Err(Errno::INVAL),
        }
    }

    /// Takes a page out, for a move: its frame, which is no longer mapped then, or `None` for the page of
    /// zeros.
    pub fn take_out(&mut self, physical: &Physical, page: u64) -> Result<Option<FrameId>> {
        let mapped = self.pages.get_mut(&page).ok_or(Errno::NOENT)?;
        let taken = match mapped.entry {
            Entry::Missing => return Err(Errno::NOENT),
            Entry::Poisoned => return Err(Errno::FAULT),
            Entry::Zero { .. } => None,
            Entry::Frame { is_exclusive: false, .. } => return Err(Errno::BUSY),
            Entry::Frame { id, .. } if physical.pins(id) > 0 => return Err(Errno::BUSY),
            Entry::Frame { id, .. } => Some(id),
        };
        mapped.entry = Entry::Missing;
        Ok(taken)
    }

    /// MADV_DONTNEED. EINVAL where something is locked, ENOMEM where something is not mapped.
    pub fn discard(&mut self, physical: &mut Physical, pages: Pages) -> Result<()> {
        let mut is_whole = true;
        for page in pages {
            let Some(mapped) = self.pages.get_mut(&page) else {
                is_whole = false;
                continue;
            };
            if mapped.attributes.is_locked {
                return Err(Errno::INVAL);
            }
            if let Entry::Frame { id, .. } = std::mem::replace(&mut mapped.entry, Entry::Missing) {
                physical.unmap(id);
            }
        }
        if is_whole { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// UFFDIO_WRITEPROTECT. ENOENT at the first page that is not registered.
    pub fn write_protect(&mut self, pages: Pages, on: bool) -> Result<()> {
        for page in pages {
            let mapped = self.pages.get_mut(&page).ok_or(Errno::NOENT)?;
            if mapped.attributes.registered.is_none() {
                return Err(Errno::NOENT);
            }
            set_protected(&mut mapped.entry, on);
        }
        Ok(())
    }

    /// An access of the program, or of the kernel on its behalf: what the kernel does by itself is done.
    pub fn access(&mut self, physical: &mut Physical, page: u64, write: bool) -> Access {
        let Some(mapped) = self.pages.get_mut(&page) else { return Access::Segv };
        let Attributes { protection, registered, .. } = mapped.attributes;
        if protection == Protection::None || write && !protection.may_write() {
            return Access::Segv;
        }
        match (mapped.entry, registered) {
            (Entry::Poisoned, _) => return Access::Bus,
            (Entry::Missing, Some(faults)) => return Access::Missing(faults),
            (entry, Some(faults)) if write && entry.is_protected() => return Access::Protected(faults),
            (Entry::Missing, None) if !write => mapped.entry = Entry::Zero { is_protected: false },
            (Entry::Missing | Entry::Zero { .. }, _) if write => {
                let id = physical.take();
                mapped.entry = Entry::Frame { id, is_exclusive: true, is_protected: false };
            }
            (Entry::Frame { id, is_exclusive: false, is_protected }, _) if write => {
                let own = if physical.mappings(id) == 1 { id } else { copy_of(physical, id) };
                mapped.entry = Entry::Frame { id: own, is_exclusive: true, is_protected };
            }
            _ => {}
        }
        Access::Done
    }

    /// The frame of a page, if it has one of its own or of others.
    #[must_use]
    pub fn frame(&self, page: u64) -> Option<FrameId> {
        match self.entry(page) {
            Entry::Frame { id, .. } => Some(id),
            _ => None,
        }
    }

    /// What the page map says of a page.
    #[must_use]
    pub fn page_map_bits(&self, physical: &Physical, page: u64) -> u64 {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const PROTECTED: u64 = 1 << 57;
        const EXCLUSIVE: u64 = 1 << 56;
        let entry = self.entry(page);
        let protected = if entry.is_protected() { PROTECTED } else { 0 };
        match entry {
            Entry::Missing => 0,
            // A marker: an entry that is not there, as of a swapped page.
            Entry::Poisoned => SWAPPED,
            Entry::Zero { .. } => PRESENT | protected,
            Entry::Frame { id, .. } if physical.mappings(id) > 1 => PRESENT | protected,
            Entry::Frame { .. } => PRESENT | EXCLUSIVE | protected,
        }
    }

    /// Bytes that are locked, or pinned by devices.
    #[must_use]
    pub fn pinned_pages(&self, physical: &Physical) -> u64 {
        let pins = |mapped: &Mapped| match mapped.entry {
            Entry::Frame { id, .. } => u64::from(physical.pins(id)),
            _ => 0,
        };
        self.pages.values().map(|mapped| pins(mapped) + u64::from(mapped.attributes.is_locked)).sum()
    }

    /// fork(2): the child's space. Frames are shared until one of the two writes, but for pinned ones, which
    /// are copied at once. The child is registered with nothing, so nothing is protected there, and locks
    /// nothing.
    pub fn fork(&mut self, physical: &mut Physical) -> Self {
        let mut pages = BTreeMap::new();
        for (&page, mapped) in
            self.pages.iter_mut().filter(|(_, mapped)| !mapped.attributes.is_dropped_on_fork)
        {
            let mut child = *mapped;
            child.attributes.registered = None;
            child.attributes.is_locked = false;
            child.entry = match &mut mapped.entry {
                _ if mapped.attributes.is_wiped_on_fork => Entry::Missing,
                Entry::Frame { id, .. } if physical.pins(*id) > 0 => {
                    let copy = physical.take();
                    copy_frame(physical, *id, copy);
                    Entry::Frame { id: copy, is_exclusive: true, is_protected: false }
                }
                Entry::Frame { id, is_exclusive, .. } => {
                    *is_exclusive = false;
                    physical.share(*id);
                    Entry::Frame { id: *id, is_exclusive: false, is_protected: false }
                }
                Entry::Zero { .. } => Entry::Zero { is_protected: false },
                other => *other,
            };
            pages.insert(page, child);
        }
        Self { pages, own: BTreeMap::new() }
    }

    /// Gives the machine back what the process holds.
    pub fn end(&mut self, physical: &mut Physical) {
        self.unmap(physical, 0..u64::MAX);
        self.own.clear();
    }

    // The pager's own areas, whose contents lie in memory of the simulator's.

    /// What is at an address of the pager's own.
    #[must_use]
    pub fn own(&self, address: usize) -> Option<Own> {
        self.own.get(&address).copied()
    }

    /// Something comes to lie there.
    pub fn set_own(&mut self, address: usize, own: Own) {
        self.own.insert(address, own);
    }

    /// Nothing lies there any more. What did?
    pub fn take_own(&mut self, address: usize) -> Option<Own> {
        self.own.remove(&address)
    }

    /// All that is there within a range of addresses.
    pub fn own_within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Own)> {
        self.own.range(range).map(|(&address, &own)| (address, own))
    }

    /// After a fork the child has its parent's frames too, shared, at addresses of its own.
    pub fn share_own(&mut self, child: &mut Self, from: Range<usize>, to: usize) {
        for (&address, own) in self.own.range_mut(from.clone()) {
            own.is_exclusive = own.is_zero;
            child.own.insert(address - from.start + to, *own);
        }
    }
}

fn set_protected(entry: &mut Entry, on: bool) {
    if let Entry::Zero { is_protected } | Entry::Frame { is_protected, .. } = entry {
        *is_protected = on;
    }
}

fn copy_of(physical: &mut Physical, id: FrameId) -> FrameId {
    let copy = physical.take();
    copy_frame(physical, id, copy);
    physical.unmap(id);
    copy
}

fn copy_frame(physical: &mut Physical, from: FrameId, to: FrameId) {
    let contents = *physical.page(from);
    *physical.page_mut(to) = contents;
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page::PAGE_SIZE;

    const FULL: [u8; PAGE_SIZE] = [7; PAGE_SIZE];

    fn space(pages: Pages) -> (Space, Physical) {
        let (mut space, mut physical) = (Space::default(), Physical::default());
        space.map(&mut physical, pages.clone(), Protection::Write, 0);
        space.register(pages, Faults::Handlers).unwrap();
        (space, physical)
    }

    #[test]
    fn a_registered_page_is_asked_for_and_another_is_zero() {
        let (mut space, mut physical) = space(10..20);
        assert_eq!(space.access(&mut physical, 10, false), Access::Missing(Faults::Handlers));
        assert_eq!(space.access(&mut physical, 20, false), Access::Segv);
        space.unregister(10..12).unwrap();
        assert_eq!(space.access(&mut physical, 10, false), Access::Done);
        assert_eq!(space.entry(10), Entry::Zero { is_protected: false });
        assert_eq!(space.access(&mut physical, 10, true), Access::Done);
        assert_eq!(physical.page(space.frame(10).unwrap())[0], 0);
        assert_eq!(space.one_mapping(10..13), None);
    }

    #[test]
    fn copies_go_where_nothing_is_in_one_registered_mapping() {
        let (mut space, mut physical) = space(10..20);
        assert_eq!(space.may_fill(10..20, Faults::Handlers), Ok(()));
        assert_eq!(space.may_fill(10..20, Faults::Signals), Err(Errno::NOENT));
        assert_eq!(space.may_fill(18..21, Faults::Handlers), Err(Errno::NOENT));
        space.change(15..20, |attributes| attributes.protection = Protection::Read).unwrap();
        assert_eq!(space.may_fill(10..20, Faults::Handlers), Err(Errno::NOENT));
        space.fill(&mut physical, 10, &FULL, false).unwrap();
        assert_eq!(space.fill(&mut physical, 10, &FULL, false), Err(Errno::EXIST));
        assert_eq!(space.fill_zero(10), Err(Errno::EXIST));
        space.poison(11).unwrap();
        assert_eq!(space.access(&mut physical, 11, false), Access::Bus);
        assert_eq!(space.fill_zero(11), Err(Errno::EXIST));
        space.fill(&mut physical, 11, &FULL, false).unwrap();
        assert_eq!(space.access(&mut physical, 11, false), Access::Done);
    }

    #[test]
    fn a_protected_page_is_read_and_a_write_is_asked_for() {
        let (mut space, mut physical) = space(10..20);
        space.fill(&mut physical, 10, &FULL, true).unwrap();
        assert_eq!(space.access(&mut physical, 10, false), Access::Done);
        assert_eq!(space.access(&mut physical, 10, true), Access::Protected(Faults::Handlers));
        assert_eq!(space.page_map_bits(&physical, 10) >> 56, 0b1000_0011);
        space.write_protect(10..11, false).unwrap();
        assert_eq!(space.access(&mut physical, 10, true), Access::Done);
        assert_eq!(space.write_protect(19..21, true), Err(Errno::NOENT));
    }

    #[test]
    fn protection_goes_with_the_registration_and_with_a_move() {
        let (mut space, mut physical) = space(10..20);
        space.fill(&mut physical, 10, &FULL, true).unwrap();
        space.fill(&mut physical, 11, &FULL, true).unwrap();
        space.unregister(10..11).unwrap();
        assert_eq!(space.access(&mut physical, 10, true), Access::Done);
        space.move_pages(&mut physical, 11..20, 100);
        assert_eq!(space.get(100).unwrap().attributes.registered, None);
        assert_eq!(space.access(&mut physical, 100, true), Access::Done);
        assert_eq!(space.access(&mut physical, 11, true), Access::Segv);
    }

    #[test]
    fn shared_and_pinned_pages_do_not_move() {
        let (mut space, mut physical) = space(10..20);
        space.fill(&mut physical, 10, &FULL, false).unwrap();
        assert_eq!(space.take_out(&physical, 11), Err(Errno::NOENT));
        let mut child = space.fork(&mut physical);
        assert_eq!(space.take_out(&physical, 10), Err(Errno::BUSY));
        child.end(&mut physical);
        assert_eq!(space.take_out(&physical, 10), Err(Errno::BUSY), "also where the other has ended");
        assert_eq!(space.access(&mut physical, 10, true), Access::Done);
        let id = space.frame(10).unwrap();
        physical.pin(id);
        assert_eq!((space.take_out(&physical, 10), space.pinned_pages(&physical)), (Err(Errno::BUSY), 1));
        physical.unpin(id);
        assert_eq!(space.take_out(&physical, 10), Ok(Some(id)));
        assert_eq!(space.entry(10), Entry::Missing);
    }

    #[test]
    fn moves_want_one_writable_mapping() {
        let (mut space, _) = space(10..20);
        let may = |space: &Space, pages| space.may_move(pages, Some(Faults::Handlers));
        assert_eq!(may(&space, 10..20), Ok(()));
        assert_eq!(may(&space, 20..21), Err(Errno::NOENT));
        for protection in [Protection::None, Protection::Read, Protection::Execute] {
            space.change(15..20, |attributes| attributes.protection = protection).unwrap();
            assert_eq!((may(&space, 15..16), may(&space, 14..16)), (Err(Errno::INVAL), Err(Errno::INVAL)));
        }
        space.change(10..11, |attributes| attributes.is_locked = true).unwrap();
        assert_eq!(may(&space, 10..11), Err(Errno::INVAL));
        space.unregister(11..12).unwrap();
        assert_eq!((may(&space, 11..12), space.may_move(11..12, None)), (Err(Errno::INVAL), Ok(())));
    }

    #[test]
    fn a_fork_shares_until_one_writes_and_copies_what_is_pinned() {
        let (mut space, mut physical) = space(10..20);
        (10..13).for_each(|page| space.fill(&mut physical, page, &FULL, true).unwrap());
        physical.pin(space.frame(12).unwrap());
        space.change(11..12, |attributes| attributes.is_dropped_on_fork = true).unwrap();
        let mut child = space.fork(&mut physical);
        assert!(child.get(11).is_none() && child.get(10).unwrap().attributes.registered.is_none());
        assert_ne!(child.frame(12), space.frame(12));
        assert_eq!(child.frame(10), space.frame(10));
        assert_eq!(child.access(&mut physical, 10, true), Access::Done, "the child has no protection");
        assert_ne!(child.frame(10), space.frame(10));
        assert_eq!(space.access(&mut physical, 10, true), Access::Protected(Faults::Handlers));
        space.write_protect(10..11, false).unwrap();
        let own = space.frame(10);
        assert_eq!((space.access(&mut physical, 10, true), space.frame(10)), (Access::Done, own));
    }

    #[test]
    fn a_discard_reads_as_missing_and_spares_what_is_locked() {
        let (mut space, mut physical) = space(10..20);
        space.fill(&mut physical, 10, &FULL, false).unwrap();
        space.poison(11).unwrap();
        assert_eq!(space.discard(&mut physical, 10..21), Err(Errno::NOMEM));
        assert_eq!((space.entry(10), space.entry(11), physical.used()), (Entry::Missing, Entry::Missing, 0));
        space.change(10..11, |attributes| attributes.is_locked = true).unwrap();
        assert_eq!(space.discard(&mut physical, 10..11), Err(Errno::INVAL));
    }

    #[test]
    fn the_pagers_own_pages_are_shared_with_a_child_at_its_addresses() {
        let (mut space, mut physical) = space(10..20);
        space.set_own(0x5000, Own { is_exclusive: true, is_zero: false });
        space.set_own(0x6000, Own { is_exclusive: true, is_zero: true });
        let mut child = space.fork(&mut physical);
        space.share_own(&mut child, 0x4000..0x8000, 0x1_4000);
        assert_eq!(child.own(0x1_5000), Some(Own { is_exclusive: false, is_zero: false }));
        assert_eq!(child.own(0x1_6000), Some(Own { is_exclusive: true, is_zero: true }));
        assert_eq!(space.own(0x5000), Some(Own { is_exclusive: false, is_zero: false }));
        assert_eq!(child.take_own(0x1_5000).map(|own| own.is_zero), Some(false));
        assert_eq!(child.own_within(0..usize::MAX).count(), 1);
    }
}
