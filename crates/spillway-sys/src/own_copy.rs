//! Copies of the program's memory that raise no fault.

use std::sync::atomic::AtomicU64;

use crate::page::PAGE_SIZE;
use crate::raw;

/// Pages of one copy, and one for an address amid a page.
const MOST_PIECES: usize = 8;

/// Copies what lies from an address on, as far as it is there (process_vm_readv(2) on oneself); returns the
/// bytes. What is not there ends the copy and raises no signal, and neither does what is registered with a
/// userfaultfd whose faults are SIGBUS; a page whose faults others serve is waited for.
#[must_use]
pub fn copy_what_is_there(from: usize, to: &[AtomicU64]) -> usize {
    let mut pieces = [[0_usize; 2]; MOST_PIECES];
    let (mut next, mut left, mut count) = (from, size_of_val(to), 0);
    // Of a piece all is copied or nothing, so that none crosses into another page.
    while left > 0 && count < MOST_PIECES {
        let bytes = left.min(PAGE_SIZE - next % PAGE_SIZE);
        pieces[count] = [next, bytes];
        let Some(behind) = next.checked_add(bytes) else { break };
        (next, left, count) = (behind, left - bytes, count + 1);
    }
    let into = [to.as_ptr().expose_provenance(), size_of_val(to)];
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    let (into_at, pieces_at) = ((&raw const into).expose_provenance(), pieces.as_ptr().expose_provenance());
    let arguments = [process, into_at, 1, pieces_at, count, 0];
    // SAFETY: it writes to words that may change at any time, and to no more of them than there are; what it
    // reads it looks at as another process would.
    let copied = unsafe { raw::syscall(libc::SYS_process_vm_readv as usize, arguments) };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn it_goes_as_far_as_memory_is_there_and_raises_no_fault() {
        let words: Vec<u64> = (0..1500).collect();
        let to: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        let copied =
            |to: &[AtomicU64]| to.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(copy_what_is_there(words[3..].as_ptr().expose_provenance(), &to), 8192);
        assert_eq!(copied(&to), words[3..1027]);
        assert_eq!(copy_what_is_there(8, &to), 0, "nothing lies there");
        assert_eq!(copy_what_is_there(usize::MAX - 7, &to), 0);
        assert_eq!(copy_what_is_there(words.as_ptr().expose_provenance(), &[]), 0);
    }
}
