//! From which node the kernel takes frames for a thread: set_mempolicy(2), get_mempolicy(2).
//! Source: Linux `include/uapi/linux/mempolicy.h`, `Documentation/admin-guide/mm/numa_memory_policy.rst`.

use rustix::io::{Errno, Result};

use crate::raw::syscall;

// By number: the pager's threads have no errno of libc's.
const SET_MEMPOLICY: usize = libc::SYS_set_mempolicy as usize;
const GET_MEMPOLICY: usize = libc::SYS_get_mempolicy as usize;

/// The node of the CPU that the thread runs on.
const MPOL_DEFAULT: i32 = 0;
/// A node as long as it has free frames, then others.
const MPOL_PREFERRED: i32 = 1;
/// Nodes that a mask has room for: the kernel's most (`MAX_NUMNODES`, x86-64).
const MASK_NODES: usize = 1024;
const WORDS: usize = MASK_NODES / 64;

fn checked(result: isize) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-result as i32)) }
}

/// Nobody has set a policy for the calling thread, nor for the one that started it.
///
/// # Errors
/// ENOSYS: the kernel knows no nodes.
pub fn is_default() -> Result<bool> {
    let mut mode = -1_i32;
    // SAFETY: the kernel writes one integer; it is asked for no mask.
    checked(unsafe { syscall(GET_MEMPOLICY, [(&raw mut mode).expose_provenance(), 0, 0, 0, 0, 0]) })?;
    Ok(mode == MPOL_DEFAULT)
}

/// Takes the calling thread's frames from `node` from now on, while it has any; `None`: from that of its CPU.
///
/// # Errors
/// EINVAL: there is no such node, or this process may not use it.
pub fn prefer_node(node: Option<u32>) -> Result<()> {
    let mut mask = [0_u64; WORDS];
    let (mode, nodes, bits) = match node {
        None => (MPOL_DEFAULT, 0, 0),
        Some(node) => {
            *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
            // The kernel reads one bit less than it is told.
            (MPOL_PREFERRED, mask.as_ptr().expose_provenance(), MASK_NODES + 1)
        }
    };
    // SAFETY: the mask is as long as is said and lives through the call, which changes nothing of this
    // process but from where later frames come.
    checked(unsafe { syscall(SET_MEMPOLICY, [mode as usize, nodes, bits, 0, 0, 0]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_prefers_a_node_until_it_does_not() {
        assert_eq!(is_default(), Ok(true));
        prefer_node(Some(0)).unwrap();
        assert_eq!(is_default(), Ok(false));
        prefer_node(None).unwrap();
        assert_eq!(is_default(), Ok(true));
        assert_eq!(prefer_node(Some(1023)), Err(Errno::INVAL));
        assert_eq!(prefer_node(Some(1 << 20)), Err(Errno::INVAL));
        assert_eq!(is_default(), Ok(true));
    }
}
