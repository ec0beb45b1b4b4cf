//! What a fault was raised by.

use spillway_policy::fault_trace;
use spillway_sys::uffd::Fault;

/// What a fault was raised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A read of a page that is not there.
    Read,
    /// A write to a page that is not there.
    Write,
    /// A write to a page that is there but protected.
    Protected,
}

impl From<Fault> for Access {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault { write_protected: true, .. } => Self::Protected,
            Fault { write: true, .. } => Self::Write,
            _ => Self::Read,
        }
    }
}

impl From<Access> for fault_trace::Access {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::Protected => Self::Protected,
        }
    }
}
