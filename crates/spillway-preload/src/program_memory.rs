//! The program's memory as its system calls see it: the kernel copies it (process_vm_readv(2) of this very
//! process), so that an address where nothing is gives an error and no signal.

use spillway_core::page::PAGE_SIZE;
use spillway_sys::{raw, signal};

use crate::inline::presence::{frame, pager};

/// No program has memory from here on.
const HIGHEST: usize = 1 << 47;

/// There is no memory at an address, or none that may be used so: EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

/// Words of the program's.
pub fn read_words<const N: usize>(address: usize) -> Result<[usize; N], BadAddress> {
    let mut words = [0; N];
    let into = words.as_mut_ptr().expose_provenance();
    copy(libc::SYS_process_vm_readv, into, address, size_of_val(&words))?;
    Ok(words)
}

/// Fills `into` from the program's memory.
pub fn read(address: usize, into: &mut [u8]) -> Result<(), BadAddress> {
    copy(libc::SYS_process_vm_readv, into.as_mut_ptr().expose_provenance(), address, into.len())
}

/// Writes words to the program's memory.
pub fn write_words(address: usize, words: &[usize]) -> Result<(), BadAddress> {
    let from = words.as_ptr().expose_provenance();
    copy(libc::SYS_process_vm_writev, from, address, size_of_val(words))
}

/// Copies between memory of ours and the program's, which is brought in where it is not there.
fn copy(number: i64, ours: usize, address: usize, bytes: usize) -> Result<(), BadAddress> {
    /// Without a hold pages may go again before the copy is made, and another thread may protect them.
    const TRIES: usize = 64;
    if copied(number, ours, address, bytes) {
        return Ok(());
    }
    let Some(pager) = pager().filter(|_| address < HIGHEST) else { return Err(BadAddress) };
    let hold = pager.hold(frame());
    for _ in 0..TRIES {
        // Ours may lie on a stack of the program's.
        let mut room = 2 * (bytes + PAGE_SIZE);
        let is_ready = [ours, address]
            .into_iter()
            .all(|start| pager.make_ready(start..start.saturating_add(bytes), hold.as_ref(), &mut room));
        if is_ready && copied(number, ours, address, bytes) {
            return Ok(());
        }
        if !is_ready {
            break;
        }
    }
    Err(BadAddress)
}

fn copied(number: i64, ours: usize, address: usize, bytes: usize) -> bool {
    let (own, theirs) = ([ours, bytes], [address, bytes]);
    let arguments = [
        signal::own_process() as usize,
        own.as_ptr().expose_provenance(),
        1,
        theirs.as_ptr().expose_provenance(),
        1,
        0,
    ];
    // SAFETY: `ours` has so many bytes by the functions above; the program's memory changes as the program
    // asked for.
    let done = unsafe { raw::syscall(number as usize, arguments) };
    done == bytes as isize
}
