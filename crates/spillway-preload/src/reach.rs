//! Reading what the program hands to the kernel, where its address may be wrong: the kernel answers with
//! EFAULT, so our look at it before the call must not end the program.

use std::ffi::CStr;

use spillway_core::page::PAGE_SIZE;
use spillway_pager::space::holds::Frame;
use spillway_sys::memory;

use crate::inline::presence::pager;

/// No address of the program's lies above.
const END: usize = 1 << 47;

/// The kernel would say EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

/// Reads the program's memory page by page.
#[derive(Default)]
pub struct Reader {
    /// The page that was found readable last.
    page: Option<usize>,
}

impl Reader {
    /// Reads a word of eight bytes.
    pub fn word(&mut self, address: usize) -> Result<usize, BadAddress> {
        self.check(address, size_of::<usize>())?;
        // SAFETY: readable by `check`. Another thread that unmaps it now is the program's own mistake.
        Ok(unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() })
    }

    /// Reads four bytes, half a word.
    pub fn half_word(&mut self, address: usize) -> Result<u32, BadAddress> {
        self.check(address, size_of::<u32>())?;
        // SAFETY: as above.
        Ok(unsafe { std::ptr::with_exposed_provenance::<u32>(address).read_unaligned() })
    }

    /// A string that ends with null, of at most `most` bytes; its beginning where it is longer.
    pub fn string(&mut self, address: usize, most: usize) -> Result<Vec<u8>, BadAddress> {
        let mut string = Vec::new();
        while string.len() < most {
            let at = address.checked_add(string.len()).ok_or(BadAddress)?;
            let bytes = (PAGE_SIZE - at % PAGE_SIZE).min(most - string.len());
            self.check(at, bytes)?;
            // SAFETY: as above.
            let part = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), bytes) };
            if let Ok(end) = CStr::from_bytes_until_nul(part) {
                string.extend_from_slice(end.to_bytes());
                break;
            }
            string.extend_from_slice(part);
        }
        Ok(string)
    }

    /// An array of pointers that ends with null.
    pub fn pointers(&mut self, address: usize) -> Result<Vec<usize>, BadAddress> {
        let mut pointers = Vec::new();
        loop {
            let at = address.checked_add(pointers.len() * size_of::<usize>()).ok_or(BadAddress)?;
            match self.word(at)? {
                0 => return Ok(pointers),
                pointer => pointers.push(pointer),
            }
        }
    }

    fn check(&mut self, address: usize, bytes: usize) -> Result<(), BadAddress> {
        let end = address.checked_add(bytes).filter(|&end| end <= END).ok_or(BadAddress)?;
        for page in (address & !(PAGE_SIZE - 1)..end).step_by(PAGE_SIZE) {
            if self.page != Some(page) && !is_readable(page) {
                return Err(BadAddress);
            }
            self.page = Some(page);
        }
        Ok(())
    }
}

/// Whether the program may read a page, wherever it is now.
fn is_readable(page: usize) -> bool {
    if memory::is_readable(page) {
        return true;
    }
    // In inline mode the kernel cannot have a far page brought in; once it is there, only its protection
    // counts.
    let Some(pager) = pager() else { return false };
    let Some(hold) = pager.hold(Frame::default()) else { return pager.manages(page) };
    let mut room = PAGE_SIZE;
    let is_readable = pager.make_ready(page..page + 1, Some(&hold), &mut room) && memory::is_readable(page);
    if !is_readable {
        // What is there now and must not be read cannot leave from where it lies.
        pager.note_company();
    }
    is_readable
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

    #[test]
    fn what_ends_where_memory_ends_is_read_and_what_goes_on_is_refused() {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping aliases nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE_SIZE, protection, MapFlags::PRIVATE) };
        let start = start.unwrap();
        let last = start.expose_provenance() + PAGE_SIZE - 16;
        // SAFETY: the second page of the mapping, which nobody uses; then the end of its first.
        unsafe {
            mprotect(start.byte_add(PAGE_SIZE), PAGE_SIZE, MprotectFlags::empty()).unwrap();
            std::ptr::with_exposed_provenance_mut::<[usize; 2]>(last)
                .write([usize::from_ne_bytes(*b"abcdefgh"), 0]);
        }
        let mut reader = Reader::default();
        assert_eq!(reader.string(last, 100), Ok(b"abcdefgh".to_vec()));
        assert_eq!(reader.string(last, 3), Ok(b"abc".to_vec()));
        assert_eq!(reader.pointers(last), Ok(vec![usize::from_ne_bytes(*b"abcdefgh")]));
        // SAFETY: as above.
        unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(last).write([usize::MAX; 2]) };
        assert_eq!(reader.string(last, 100), Err(BadAddress));
        assert_eq!(reader.pointers(last), Err(BadAddress));
        assert_eq!(reader.word(last + 12), Err(BadAddress));
        for wrong in [0, 8, END, usize::MAX - 3] {
            assert_eq!(reader.word(wrong), Err(BadAddress), "{wrong:x}");
            assert_eq!(Reader::default().string(wrong, 100), Err(BadAddress), "{wrong:x}");
        }
    }
}
