//! What a workload does to memory: one word an access, in the order in which a task makes them.

/// One thing that a task does, packed: an access to a cache line, or work between accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u64);

const KIND_SHIFT: u32 = 62;
const KIND_READ: u64 = 0;
const KIND_WRITE: u64 = 1;
const KIND_COMPUTE: u64 = 2;
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

    /// What this access does, and where.
    pub fn action(self) -> Action {
        let value = self.0 & VALUE_MASK;
        match self.0 >> KIND_SHIFT {
            KIND_READ => Action::Read(value),
            KIND_WRITE => Action::Write(value),
            _ => Action::ComputeNs(value),
        }
    }
}

/// The accesses of one step of one task.
pub type Accesses = Vec<Access>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        assert_eq!(Access::read(0x7fff_1234).action(), Action::Read(0x7fff_1234));
        assert_eq!(Access::write(64).action(), Action::Write(64));
        assert_eq!(Access::compute_ns(17).action(), Action::ComputeNs(17));
    }
}
