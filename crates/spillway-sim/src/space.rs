//! One process's address space, as the kernel keeps it: mappings, page table entries, and what userfaultfd(2)
//! does to them.
//!
//! Semantics: `Documentation/admin-guide/mm/userfaultfd.rst`, `mm/userfaultfd.c` of Linux 6.18, and what
//! `docs/concepts/userfaultfd.md` found out. Nothing here draws: what the kernel may do or leave is
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

    /// Puts a copy in the place of a page's frame, as the kernel may where it swaps.
    pub fn replace_frame(&mut self, physical: &mut Physical, page: u64) {
        if let Some(Mapped { entry: Entry::Frame { id, .. }, .. }) = self.pages.get_mut(&page) {
            *id = copy_of(physical, *id);
        }
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
                let own = if physical.is_sole(id) { id } else { copy_of(physical, id) };
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

    /// Pages that are locked, or that devices keep.
    #[must_use]
    pub fn pinned_pages(&self, physical: &Physical) -> u64 {
        let pins = |mapped: &Mapped| match mapped.entry {
            Entry::Frame { id, .. } => u64::from(physical.counted_pins(id)),
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
mod tests;
