//! What memory a system call uses, so that it is there when the kernel looks. Source: the manual pages of section 2.
//!
//! A pointer whose length is not known here counts as [`ANY_BYTES`]: more than the structures of the calls that are not
//! named, and as long as a path may be. Memory that is not ours costs nothing to name.

use std::ops::Range;

/// Taken for a pointer of unknown length.
const ANY_BYTES: usize = 4096;
/// No valid address lies below (`mmap_min_addr`) or above.
const ADDRESSES: Range<usize> = 1 << 16..1 << 47;

/// Each range that a call uses.
pub fn used(number: usize, a: [usize; 6], mut uses: impl FnMut(Range<usize>)) {
    let mut named: u8 = 0;
    {
        let mut part = |index: usize, bytes: usize| {
            named |= 1 << index;
            use_range(a[index], bytes, &mut uses);
        };
        match number as i64 {
            libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_getdents64
            | libc::SYS_sendto
            | libc::SYS_recvfrom => part(1, a[2]),
            libc::SYS_getrandom | libc::SYS_getcwd | libc::SYS_readlink => {
                let index = usize::from(number as i64 == libc::SYS_readlink);
                part(index, a[index + 1]);
            }
            libc::SYS_readlinkat => part(2, a[3]),
            libc::SYS_poll | libc::SYS_ppoll => part(0, a[1].saturating_mul(8)),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                part(1, a[2].saturating_mul(12));
            }
            libc::SYS_select | libc::SYS_pselect6 => (1..4).for_each(|set| part(set, a[0].div_ceil(64) * 8)),
            libc::SYS_getxattr
            | libc::SYS_lgetxattr
            | libc::SYS_fgetxattr
            | libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_fsetxattr => part(2, a[3]),
            libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => part(1, a[2]),
            libc::SYS_mincore => part(2, a[1].div_ceil(4096)),
            libc::SYS_getgroups | libc::SYS_setgroups => part(1, a[0].saturating_mul(4)),
            libc::SYS_syslog => part(1, a[2]),
            libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity => part(2, a[1]),
            libc::SYS_setsockopt => part(3, a[4]),
            libc::SYS_ioctl => part(2, control_bytes(a[1]).max(ANY_BYTES)),
            libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_preadv
            | libc::SYS_pwritev
            | libc::SYS_preadv2
            | libc::SYS_pwritev2
            | libc::SYS_vmsplice
            | libc::SYS_process_vm_readv
            | libc::SYS_process_vm_writev => part(1, a[2].saturating_mul(16)),
            _ => {}
        }
    }
    (0..6)
        .filter(|index| named >> index & 1 == 0)
        .for_each(|index| use_range(a[index], ANY_BYTES, &mut uses));
    within(number, a, &mut uses);
}

fn use_range(start: usize, bytes: usize, uses: &mut impl FnMut(Range<usize>)) {
    if ADDRESSES.contains(&start) && bytes != 0 {
        uses(start..start.saturating_add(bytes).min(ADDRESSES.end));
    }
}

fn word(address: usize) -> usize {
    // SAFETY: memory that the program passes to the kernel for reading; a wrong address gives a signal in the thread that
    // passes it, where the kernel would give EFAULT.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

/// What most requests of ioctl(2) say of their argument's length (`_IOC_SIZE`, `asm-generic/ioctl.h`).
fn control_bytes(request: usize) -> usize {
    const SIZE_BITS: u32 = 14;
    request >> 16 & ((1 << SIZE_BITS) - 1)
}

/// What the structures that a call is given point to.
fn within(number: usize, a: [usize; 6], uses: &mut impl FnMut(Range<usize>)) {
    match number as i64 {
        libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_vmsplice
        | libc::SYS_process_vm_readv
        | libc::SYS_process_vm_writev => vectors(a[1], a[2], uses),
        libc::SYS_sendmsg | libc::SYS_recvmsg => message(a[1], uses),
        libc::SYS_getsockopt if ADDRESSES.contains(&a[4]) => {
            // SAFETY: as in `word`; a length of options has four bytes.
            let bytes = unsafe { std::ptr::with_exposed_provenance::<u32>(a[4]).read_unaligned() };
            use_range(a[3], bytes as usize, uses);
        }
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => {
            const MESSAGE_BYTES: usize = 64;
            use_range(a[1], a[2].saturating_mul(MESSAGE_BYTES), uses);
            (0..a[2].min(1024)).for_each(|index| message(a[1] + index * MESSAGE_BYTES, uses));
        }
        _ => {}
    }
}

fn vectors(start: usize, count: usize, uses: &mut impl FnMut(Range<usize>)) {
    if !ADDRESSES.contains(&start) {
        return;
    }
    for vector in (0..count.min(1024)).map(|index| start + index * 16) {
        use_range(word(vector), word(vector + 8), uses);
    }
}

/// A `struct msghdr`.
fn message(start: usize, uses: &mut impl FnMut(Range<usize>)) {
    if !ADDRESSES.contains(&start) {
        return;
    }
    use_range(word(start), word(start + 8) & 0xFFFF_FFFF, uses);
    use_range(word(start + 16), word(start + 24).saturating_mul(16), uses);
    vectors(word(start + 16), word(start + 24), uses);
    use_range(word(start + 32), word(start + 40), uses);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(number: i64, arguments: [usize; 6]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        used(number as usize, arguments, |range| found.push((range.start, range.end)));
        found
    }

    #[test]
    fn lengths_are_those_of_the_manual() {
        let at = 0x10_0000;
        assert_eq!(
            ranges(libc::SYS_read, [0, at, 70_000, 0, 0, 0]),
            [(at, at + 70_000), (70_000, 70_000 + 4096)]
        );
        assert_eq!(ranges(libc::SYS_poll, [at, 3, 5, 0, 0, 0]), [(at, at + 24)]);
        assert_eq!(ranges(libc::SYS_openat, [usize::MAX - 99, at, 0, 0, 0, 0]), [(at, at + 4096)]);
        assert_eq!(ranges(libc::SYS_getpid, [0; 6]), []);
        let long_request = 0x8000_0000 | 8192 << 16 | 0x6601;
        assert_eq!(ranges(libc::SYS_ioctl, [0, long_request, at, 0, 0, 0])[0], (at, at + 8192));
        assert_eq!(ranges(libc::SYS_ioctl, [0, 0x5401, at, 0, 0, 0])[0], (at, at + 4096));
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
}
