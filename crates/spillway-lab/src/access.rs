//! What a workload does to memory: one word an access, in the order in which a task makes them.

/// One thing that a task does, packed: an access to a cache line, work between accesses, or pages given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u64);

const KIND_SHIFT: u32 = 62;
const KIND_READ: u64 = 0;
const KIND_WRITE: u64 = 1;
const KIND_COMPUTE: u64 = 2;
const KIND_RELEASE: u64 = 3;
/// Of a release: its pages stand below its first page's number.
const RELEASED_BITS: u32 = 18;
const VALUE_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// What an [`Access`] stands for, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Reads at this address.
    Read(u64),
    /// Writes at this address.
    Write(u64),
    /// Works for so many nanoseconds without touching memory outside the first-level cache.
    ComputeNs(u64),
    /// Gives pages back: the number of the first, and how many. What they held is gone.
    Release(u64, u64),
}

impl Access {
    /// A read at `address`.
    pub fn read(address: u64) -> Self {
        Self(KIND_READ << KIND_SHIFT | address & VALUE_MASK)
    }

    /// A write at `address`.
    pub fn write(address: u64) -> Self {
        Self(KIND_WRITE << KIND_SHIFT | address & VALUE_MASK)
    }

    /// Work of `ns` nanoseconds.
    pub fn compute_ns(ns: u64) -> Self {
        Self(KIND_COMPUTE << KIND_SHIFT | ns & VALUE_MASK)
    }

    /// Most pages of one release.
    pub const MOST_RELEASED_PAGES: u64 = (1 << RELEASED_BITS) - 1;

    /// The pages from `page_number` on are given back: at most [`Self::MOST_RELEASED_PAGES`].
    pub fn release(page_number: u64, pages: u64) -> Self {
        let value = page_number << RELEASED_BITS | pages & Self::MOST_RELEASED_PAGES;
        Self(KIND_RELEASE << KIND_SHIFT | value & VALUE_MASK)
    }

    /// The address that is read or written.
    pub fn address(self) -> Option<u64> {
        match self.action() {
            Action::Read(address) | Action::Write(address) => Some(address),
            Action::ComputeNs(_) | Action::Release(..) => None,
        }
    }

    /// What this access does, and where.
    pub fn action(self) -> Action {
        let value = self.0 & VALUE_MASK;
        match self.0 >> KIND_SHIFT {
            KIND_READ => Action::Read(value),
            KIND_WRITE => Action::Write(value),
            KIND_COMPUTE => Action::ComputeNs(value),
            _ => Action::Release(value >> RELEASED_BITS, value & Self::MOST_RELEASED_PAGES),
        }
    }
}

/// The accesses of one step of one task.
pub type Accesses = Vec<Access>;

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page::PAGE_SHIFT;

    #[test]
    fn packs_and_unpacks() {
        assert_eq!(Access::read(0x7fff_1234).action(), Action::Read(0x7fff_1234));
        assert_eq!(Access::write(64).action(), Action::Write(64));
        assert_eq!(Access::compute_ns(17).action(), Action::ComputeNs(17));
        let highest = (1 << (56 - PAGE_SHIFT)) - 1;
        let release = Access::release(highest, Access::MOST_RELEASED_PAGES);
        assert_eq!(release.action(), Action::Release(highest, Access::MOST_RELEASED_PAGES));
        assert_eq!([release.address(), Access::read(64).address()], [None, Some(64)]);
    }
}
