//! move_pages(2): where pages of any process lie, and moving them to another node.
//! Source: Linux `mm/migrate.c`, `man 2 move_pages`.

use rustix::io::{Errno, Result};

/// What became of one page: the node on which it lies, or why it does not lie where it was wanted.
pub type PageResult = std::result::Result<u32, Errno>;

/// Move only what no other process maps.
const MOVE_OWN: i32 = 1 << 1;

/// What the kernel leaves where it stopped before it came to a page.
const NOT_TRIED: i32 = i32::MIN;

fn call(process: u32, addresses: &[u64], nodes: Option<&[i32]>, statuses: &mut [i32]) -> Result<()> {
    let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: the arrays are as long as is said and live through the call; addresses are of the other
    // process, and a page keeps its contents while it moves.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            nodes,
            statuses.as_mut_ptr(),
            MOVE_OWN,
        )
    };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

fn result_of(status: i32) -> PageResult {
    match status {
        NOT_TRIED => Err(Errno::AGAIN),
        node if node >= 0 => Ok(node as u32),
        errno => Err(Errno::from_raw_os_error(-errno)),
    }
}

/// Where pages lie, by an address within each: ENOENT where there is none, EFAULT where it is the shared page
/// of zeros.
///
/// # Errors
/// ESRCH: the process is gone. EPERM: it may not be looked at.
pub fn nodes_of(process: u32, addresses: &[u64]) -> Result<Vec<PageResult>> {
    let mut statuses = vec![NOT_TRIED; addresses.len()];
    call(process, addresses, None, &mut statuses)?;
    Ok(statuses.into_iter().map(result_of).collect())
}

/// Moves pages to a node. Each page's result is the node where it lies now, or why it did not move: EBUSY
/// (pinned, or in use by the kernel), EACCES (another process maps it too), ENOENT (not there), ENOMEM (no
/// free frame), EAGAIN (not tried).
///
/// # Errors
/// ESRCH: the process is gone. EPERM: it may not be touched. EACCES: it may not use that node. ENODEV: there
/// is no such node.
pub fn move_pages(process: u32, addresses: &[u64], node: u32) -> Result<Vec<PageResult>> {
    let mut statuses = vec![NOT_TRIED; addresses.len()];
    call(process, addresses, Some(&vec![node as i32; addresses.len()]), &mut statuses)?;
    Ok(statuses.into_iter().map(result_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Area;

    #[test]
    fn each_page_has_its_own_result() {
        let area = Area::new(3 * 4096).unwrap();
        area.words(0, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        area.words(2 * 4096, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        let address = area.address() as u64;
        let addresses = [address, address + 4096, address + 2 * 4096];
        let process = std::process::id();
        let found = nodes_of(process, &addresses).unwrap();
        let node = found[0].unwrap();
        assert_eq!(found, [Ok(node), Err(Errno::NOENT), Ok(node)]);
        assert_eq!(move_pages(process, &addresses, node).unwrap(), found, "to where they are");
        assert_eq!(area.words(0, 1)[0].load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn what_cannot_be_done_at_all_is_an_error() {
        let area = Area::new(4096).unwrap();
        area.words(0, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        let addresses = [area.address() as u64];
        assert_eq!(nodes_of(i32::MAX as u32, &addresses).unwrap_err(), Errno::SRCH);
        assert_eq!(move_pages(std::process::id(), &addresses, 1023).unwrap_err(), Errno::NODEV);
    }
}
