//! What memory a system call uses, so that it is there when the kernel looks.
//!
//! Of a call whose shape is not known each argument counts as the address of [`ANY_BYTES`]: more than most
//! structures have. Memory that is not ours costs nothing to name. Addresses that lead to others may be
//! wrong: what cannot be read is left out, and the kernel says so to the program.

use std::ops::Range;

use spillway_core::page::PAGE_SIZE;

use super::shapes::{Part, TEXT_BYTES, shape};

/// Taken for a pointer of unknown length.
const ANY_BYTES: usize = 4096;
/// No valid address lies below (`mmap_min_addr`) or above.
const ADDRESSES: Range<usize> = 1 << 16..1 << 47;
/// Bytes of a `struct iovec`.
const VECTOR_BYTES: usize = 16;
/// Bytes of a `struct msghdr`.
const MESSAGE_BYTES: usize = 56;
/// Bytes of a `struct mmsghdr`, from one to the next.
const MESSAGES_STEP: usize = 64;
/// Vectors that are read together.
const VECTORS_AT_ONCE: usize = 8;
/// More vectors or messages than this are refused (`UIO_MAXIOV`).
const MOST_VECTORS: usize = 1024;

/// Reads the program's memory; false where that cannot be.
pub type Read<'a> = &'a dyn Fn(usize, &mut [u8]) -> bool;

/// Each range that a call uses. Returns whether those are all.
pub fn used(number: usize, a: [usize; 6], read: Read<'_>, uses: &mut dyn FnMut(Range<usize>)) -> bool {
    let mut uses = Uses { read, uses };
    let Some(parts) = shape(number, a) else {
        let addresses = a.into_iter().filter(|address| ADDRESSES.contains(address));
        addresses.for_each(|address| uses.range(address, ANY_BYTES));
        return false;
    };
    parts.iter().for_each(|&(index, part)| uses.part(a[index], part, a));
    number as i64 != libc::SYS_ioctl
}

/// What most requests of ioctl(2) say of their argument's length (`_IOC_SIZE`, `asm-generic/ioctl.h`).
fn control_bytes(request: usize) -> usize {
    const SIZE_BITS: u32 = 14;
    request >> 16 & ((1 << SIZE_BITS) - 1)
}

struct Uses<'a> {
    read: Read<'a>,
    uses: &'a mut dyn FnMut(Range<usize>),
}

impl Uses<'_> {
    fn range(&mut self, start: usize, bytes: usize) {
        if start != 0 && bytes != 0 {
            (self.uses)(start..start.saturating_add(bytes).min(ADDRESSES.end.max(start)));
        }
    }

    fn words<const N: usize>(&self, address: usize) -> Option<[usize; N]> {
        const MOST_BYTES: usize = 64;
        let mut bytes = [0; MOST_BYTES];
        let bytes = &mut bytes[..N * 8];
        (self.read)(address, bytes)
            .then(|| std::array::from_fn(|index| usize::from_ne_bytes(bytes.as_chunks().0[index])))
    }

    fn part(&mut self, start: usize, part: Part, a: [usize; 6]) {
        match part {
            Part::Bytes(bytes) => self.range(start, bytes),
            Part::Times(count, bytes) => self.range(start, a[count].saturating_mul(bytes)),
            Part::Bits(count) => self.range(start, (a[count] & 0x7FFF_FFFF).div_ceil(64) * 8),
            Part::BytePerPage(bytes) => self.range(start, a[bytes].div_ceil(PAGE_SIZE)),
            Part::Control(request) => self.range(start, control_bytes(a[request]).max(ANY_BYTES)),
            Part::Text => self.range(start, TEXT_BYTES),
            Part::LengthAt(index) => {
                let mut length = [0; 4];
                if ADDRESSES.contains(&a[index]) && (self.read)(a[index], &mut length) {
                    self.range(start, u32::from_ne_bytes(length) as usize);
                }
            }
            Part::Vectors(count) => self.vectors(start, a[count]),
            Part::ForeignVectors(count) if a[count] <= MOST_VECTORS => {
                self.range(start, a[count] * VECTOR_BYTES);
            }
            Part::ForeignVectors(_) => {}
            Part::Message => self.message(start),
            Part::Messages(count) => {
                let count = (a[count] & 0xFFFF_FFFF).min(MOST_VECTORS);
                self.range(start, count * MESSAGES_STEP);
                (0..count).for_each(|index| self.message(start.wrapping_add(index * MESSAGES_STEP)));
            }
            Part::Mask => {
                self.range(start, 2 * 8);
                if let Some([mask]) = self.words(start) {
                    self.range(mask, 8);
                }
            }
        }
    }

    /// More of them than there may be are refused before they are looked at.
    fn vectors(&mut self, start: usize, count: usize) {
        if count > MOST_VECTORS {
            return;
        }
        self.range(start, count * VECTOR_BYTES);
        // Not in the heap: a signal may have come amid its work.
        let mut bytes = [0; VECTORS_AT_ONCE * VECTOR_BYTES];
        for first in (0..count).step_by(VECTORS_AT_ONCE) {
            let bytes = &mut bytes[..VECTORS_AT_ONCE.min(count - first) * VECTOR_BYTES];
            // Of an array that ends where nothing can be read, the kernel uses nothing.
            if !(self.read)(start.wrapping_add(first * VECTOR_BYTES), bytes) {
                return;
            }
            for word in bytes.as_chunks::<VECTOR_BYTES>().0 {
                let (at, length) = word.split_at(8);
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
                self.range(number(at), number(length));
            }
        }
    }

    fn message(&mut self, start: usize) {
        let Some([name, name_bytes, vectors, count, control, control_bytes]) = self.words(start) else {
            return;
        };
        self.range(start, MESSAGE_BYTES);
        self.range(name, name_bytes & 0xFFFF_FFFF);
        self.vectors(vectors, count);
        self.range(control, control_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of the tests' own lies where it says; nothing lies at the low addresses that they make up.
    fn read(address: usize, into: &mut [u8]) -> bool {
        if address < 0x100_0000 {
            return false;
        }
        // SAFETY: an address of a value of the test's.
        let from =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), into.len()) };
        into.copy_from_slice(from);
        true
    }

    fn ranges(number: i64, arguments: [usize; 6]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        used(number as usize, arguments, &read, &mut |range| found.push((range.start, range.end)));
        found
    }

    #[test]
    fn lengths_are_those_of_the_manual() {
        let at = 0x10_0000;
        assert_eq!(ranges(libc::SYS_read, [0, at, 70_000, at, 0, 0]), [(at, at + 70_000)]);
        assert_eq!(ranges(libc::SYS_poll, [at, 3, 70_000, 0, 0, 0]), [(at, at + 24)]);
        assert_eq!(ranges(libc::SYS_openat, [usize::MAX - 99, at, 0, 0, 0, 0]), [(at, at + 4096)]);
        assert_eq!(ranges(libc::SYS_mincore, [at, 8192, at, 0, 0, 0]), [(at, at + 2)]);
        assert_eq!(ranges(libc::SYS_select, [65, 0, at, 0, 0, 0]), [(at, at + 16)]);
        assert_eq!(ranges(libc::SYS_getpid, [0x10_0000; 6]), []);
        let long_request = 0x8000_0000 | 8192 << 16 | 0x6601;
        assert_eq!(ranges(libc::SYS_ioctl, [0, long_request, at, 0, 0, 0]).last(), Some(&(at, at + 8192)));
        assert_eq!(ranges(libc::SYS_ioctl, [0, 0x5401, at, 0, 0, 0]), [(at, at + 4096)]);
        let length = 9000_u32;
        let found = ranges(libc::SYS_getsockopt, [0, 1, 2, at, (&raw const length).expose_provenance(), 0]);
        assert!(found.contains(&(at, at + 9000)), "{found:x?}");
    }

    #[test]
    fn vectors_and_messages_lead_to_their_parts() {
        let vectors: [usize; 4] = [0x20_0000, 10, 0x30_0000, 20];
        let at = vectors.as_ptr().expose_provenance();
        let found = ranges(libc::SYS_writev, [1, at, 2, 0, 0, 0]);
        assert_eq!(found, [(at, at + 32), (0x20_0000, 0x20_000A), (0x30_0000, 0x30_0014)]);
        let message: [usize; 7] = [0x40_0000, 16, at, 2, 0x50_0000, 8, 0];
        let found = ranges(libc::SYS_recvmsg, [1, message.as_ptr().expose_provenance(), 0, 0, 0, 0]);
        for part in [(0x40_0000, 0x40_0010), (at, at + 32), (0x30_0000, 0x30_0014), (0x50_0000, 0x50_0008)] {
            assert!(found.contains(&part), "{part:x?} in {found:x?}");
        }
    }

    #[test]
    fn what_cannot_be_read_or_cannot_be_is_left_out() {
        let nowhere = 0x20_0000;
        assert_eq!(ranges(libc::SYS_writev, [1, nowhere, 2, 0, 0, 0]), [(nowhere, nowhere + 32)]);
        assert_eq!(ranges(libc::SYS_preadv, [1, nowhere, usize::MAX, 0, 0, 0]), []);
        assert_eq!(ranges(libc::SYS_sendmsg, [1, nowhere, 0, 0, 0, 0]), []);
        let vectors: [usize; 4] = [usize::MAX, 10, 8, 20];
        let at = vectors.as_ptr().expose_provenance();
        let wrong = [(at, at + 32), (usize::MAX, usize::MAX), (8, 28)];
        assert_eq!(ranges(libc::SYS_writev, [1, at, 2, 0, 0, 0]), wrong);
        assert!(!used(1 << 20, [0; 6], &read, &mut |_| panic!("nothing has an address")));
    }
}
