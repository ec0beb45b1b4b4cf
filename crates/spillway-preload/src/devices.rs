//! Memory that a program gives to a device to keep: registered with a GPU, mapped for DMA, the frames of an
//! AF_XDP socket. The device goes on using its pages, so they must be there when they are given, and may not
//! leave after. Such memory is not managed, like memory that is locked.
//!
//! Two things stand in the way of finding it out from the kernel. Few drivers count what they hold (`VmPin`:
//! NVIDIA's and AF_XDP do not), and a driver that pins pages with mmap_lock held gets an error for a page
//! that is far, whoever serves faults (`pin_user_pages` does not allow the retry that userfaultfd needs). So
//! the calls themselves are looked at. What a device is given in a way that is not known here stays where
//! it is by UFFDIO_MOVE, which refuses pinned pages, once [`note_unseen_pins`] has ruled out the other ways.

use std::ops::Range;

use spillway_core::page::PAGE_SIZE;
use spillway_pager::threads::calls::Operation;
use spillway_sys::memory::note_unseen_pins;

use crate::file_kind::file_kind;
use crate::process::{call, up};
use crate::program_memory::read;

/// Level and name of the option that gives an AF_XDP socket its frames (`linux/if_xdp.h`).
pub const SOL_XDP: usize = 283;
const XDP_UMEM_REG: usize = 4;

/// Requests of io_uring_register(2) that pin memory: buffers, as one, as tagged ones, in place of others, and
/// another ring's (`linux/io_uring.h`).
const REGISTER_BUFFERS: [usize; 4] = [0, 15, 16, 30];
/// The ring is told by its registered number (`IORING_REGISTER_USE_REGISTERED_RING`).
const BY_REGISTERED_NUMBER: usize = 1 << 31;

/// Groups of ioctl(2) whose devices keep no memory, or count what they keep, or hear of what is evicted:
/// terminals and TUN, sockets, userfaultfd, KVM, vhost
/// (`Documentation/userspace-api/ioctl/ioctl-number.rst`).
const KEEP_NOTHING_UNSEEN: [usize; 5] = [0x54, 0x89, 0xAA, 0xAE, 0xAF];

/// Where a request says what memory a device is given. Offsets in bytes.
struct Gift {
    /// Group and number of the ioctl(2).
    request: usize,
    /// A half-word of its argument that must be so.
    when: Option<(usize, u32)>,
    /// A word that leads to the rest, which is in the argument itself without it.
    behind: Option<usize>,
    address: usize,
    bytes: usize,
    /// The bytes are told as the last one's number.
    is_last_byte: bool,
}

/// Class of memory that a program has already (`NV01_MEMORY_SYSTEM_OS_DESCRIPTOR`).
const NV_OS_DESCRIPTOR: u32 = 0x71;
/// The same as a function (`NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR`).
const NV_ALLOC_OS_DESCRIPTOR: u32 = 27;

/// Sources: `linux/vfio.h`, `linux/iommufd.h`; for NVIDIA's (group 'F') `nvos.h` and `nv_escape.h` of its
/// open kernel modules 580.
const GIFTS: [Gift; 5] = [
    // VFIO_IOMMU_MAP_DMA: struct vfio_iommu_type1_dma_map.
    Gift { request: 0x3B71, when: None, behind: None, address: 8, bytes: 24, is_last_byte: false },
    // IOMMU_IOAS_MAP: struct iommu_ioas_map.
    Gift { request: 0x3B85, when: None, behind: None, address: 16, bytes: 24, is_last_byte: false },
    // NV_ESC_RM_ALLOC_MEMORY: NVOS02_PARAMETERS. What CUDA uses.
    Gift {
        request: 0x4627,
        when: Some((12, NV_OS_DESCRIPTOR)),
        behind: None,
        address: 24,
        bytes: 32,
        is_last_byte: true,
    },
    // NV_ESC_RM_VID_HEAP_CONTROL: NVOS32_PARAMETERS.
    Gift {
        request: 0x464A,
        when: Some((8, NV_ALLOC_OS_DESCRIPTOR)),
        behind: None,
        address: 64,
        bytes: 72,
        is_last_byte: true,
    },
    // NV_ESC_RM_ALLOC: NVOS64_PARAMETERS, which lead to NV_OS_DESC_MEMORY_ALLOCATION_PARAMS.
    Gift {
        request: 0x462B,
        when: Some((12, NV_OS_DESCRIPTOR)),
        behind: Some(16),
        address: 16,
        bytes: 24,
        is_last_byte: true,
    },
];

/// Whether a system call is one by which memory may be given to a device.
pub fn may_give(number: usize, a: [usize; 6]) -> bool {
    match number as i64 {
        libc::SYS_ioctl => {
            !KEEP_NOTHING_UNSEEN.contains(&(a[1] >> 8 & 0xFF)) && file_kind(a[0]) == libc::S_IFCHR
        }
        libc::SYS_setsockopt => a[1] == SOL_XDP,
        // Counted as pins of the process that set the ring up, which may be another, and after they are made.
        libc::SYS_io_uring_register => {
            REGISTER_BUFFERS.contains(&(a[1] & 0xFFFF_FFFF & !BY_REGISTERED_NUMBER))
        }
        _ => false,
    }
}

/// Has what a call gives to a device brought in, and left alone from then on. Before the call is made.
pub fn give(number: usize, a: [usize; 6]) {
    if !may_give(number, a) {
        return;
    }
    note_unseen_pins();
    if let Some(range) = given(number, a) {
        call(Operation::Unmanage, [range.start, range.len(), 0, 0]);
    }
}

/// Whole pages that a call gives; `None` where it gives none, or its argument is not there.
fn given(number: usize, a: [usize; 6]) -> Option<Range<usize>> {
    if number as i64 == libc::SYS_setsockopt {
        let is_frames = a[2] == XDP_UMEM_REG && a[4] >= 2 * size_of::<usize>();
        return is_frames.then(|| whole_pages(word(a[3], 0)?, word(a[3], size_of::<usize>())?))?;
    }
    if number as i64 != libc::SYS_ioctl {
        return None;
    }
    let gift = GIFTS.iter().find(|gift| gift.request == a[1] & 0xFFFF)?;
    let mut at = a[2];
    if let Some((offset, expected)) = gift.when
        && word(at, offset)? as u32 != expected
    {
        return None;
    }
    if let Some(offset) = gift.behind {
        at = word(at, offset)?;
    }
    let bytes = word(at, gift.bytes)?.checked_add(usize::from(gift.is_last_byte))?;
    whole_pages(word(at, gift.address)?, bytes)
}

fn word(at: usize, offset: usize) -> Option<usize> {
    let mut word = [0; size_of::<usize>()];
    read(at.checked_add(offset)?, &mut word).ok()?;
    Some(usize::from_ne_bytes(word))
}

fn whole_pages(address: usize, bytes: usize) -> Option<Range<usize>> {
    const END: usize = 1 << 47;
    let end = address.checked_add(bytes).filter(|&end| end <= END)?;
    let range = address & !(PAGE_SIZE - 1)..up(end);
    (bytes != 0).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_by(request: usize, words: &[usize]) -> Option<Range<usize>> {
        let argument = words.as_ptr().expose_provenance();
        given(libc::SYS_ioctl as usize, [0, request, argument, 0, 0, 0])
    }

    const CLASS: usize = (NV_OS_DESCRIPTOR as usize) << 32;

    #[test]
    fn what_devices_are_given_is_found_in_the_requests() {
        // As CUDA 13 asks for it: 8 MiB at 0x7f3b6d000000.
        let cuda = [0x5C00_0002_C1D0_001A, CLASS | 0x5C00_009A, 0x4000_1010, 0x7F3B_6D00_0000, 0x7F_FFFF, 0];
        assert_eq!(given_by(0xC038_4627, &cuda), Some(0x7F3B_6D00_0000..0x7F3B_6D80_0000));
        let heap = [0, NV_ALLOC_OS_DESCRIPTOR as usize, 0, 0, 0, 0, 0, 0, 0x10_0800, 0xFFF, 0];
        assert_eq!(given_by(0xC0B8_464A, &heap), Some(0x10_0000..0x10_2000));
        let parameters = [0_usize, 0, 0x20_0000, 0x1FFF, 0];
        let object = [0, CLASS, parameters.as_ptr().expose_provenance(), 0, 0, 0];
        assert_eq!(given_by(0xC030_462B, &object), Some(0x20_0000..0x20_2000));
        assert_eq!(given_by(0x3B71, &[32, 0x30_0000, 0, 0x4000]), Some(0x30_0000..0x30_4000));
        assert_eq!(given_by(0x3B85, &[40, 1, 0x40_0000, 0x1000, 0]), Some(0x40_0000..0x40_1000));
    }

    #[test]
    fn other_requests_and_senseless_ones_give_nothing() {
        let other_class = [0, 0x3E << 32, 0, 0x1000, 0xFFF, 0];
        assert_eq!(given_by(0xC038_4627, &other_class), None);
        assert_eq!(given_by(0xC038_4627, &[0, CLASS, 0, usize::MAX - 4096, 0xFFF, 0]), None);
        assert_eq!(given_by(0xC038_4627, &[0, CLASS, 0, 0x1000, usize::MAX, 0]), None);
        assert_eq!(given_by(0xC030_462B, &[0, CLASS, 8, 0, 0, 0]), None, "leads nowhere");
        assert_eq!(given_by(0xC020_462A, &[0, CLASS, 0, 0x1000, 0xFFF, 0]), None);
        assert_eq!(given(libc::SYS_ioctl as usize, [0, 0x3B71, 16, 0, 0, 0]), None, "nothing is there");
    }

    #[test]
    fn frames_of_a_socket_are_given_and_its_rings_are_not() {
        let frames = [0x1000_usize, 0x8000, 4096, 0];
        let option = |name, bytes| {
            let value = frames.as_ptr().expose_provenance();
            given(libc::SYS_setsockopt as usize, [0, SOL_XDP, name, value, bytes, 0])
        };
        assert_eq!(option(XDP_UMEM_REG, 24), Some(0x1000..0x9000));
        assert_eq!(option(XDP_UMEM_REG, 8), None);
        assert_eq!(option(XDP_UMEM_REG + 1, 24), None);
    }

    #[test]
    fn devices_may_keep_memory_and_terminals_files_and_guests_do_not() {
        use std::os::fd::AsRawFd;
        let device = std::fs::File::open("/dev/null").unwrap();
        let file = std::fs::File::open("/proc/self/maps").unwrap();
        let asks = |fd: &std::fs::File, request| {
            may_give(libc::SYS_ioctl as usize, [fd.as_raw_fd() as usize, request, 0, 0, 0, 0])
        };
        assert!(asks(&device, 0xC038_4627));
        assert!(!asks(&file, 0xC038_4627));
        for request in [libc::TCGETS as usize, 0xAE01, 0xAF01, 0xAA00] {
            assert!(!asks(&device, request), "{request:#x}");
        }
        let sets = |level| may_give(libc::SYS_setsockopt as usize, [0, level, XDP_UMEM_REG, 0, 0, 0]);
        assert!(sets(SOL_XDP) && !sets(libc::SOL_SOCKET as usize));
        let registers = |request| may_give(libc::SYS_io_uring_register as usize, [3, request, 0, 0, 0, 0]);
        // Buffers, and the ring by its number; files, and a probe.
        assert!([0, 15, 16, 30, 1 << 31].into_iter().all(registers));
        assert!(![2, 8, 1 << 31 | 2].into_iter().any(registers));
    }

    #[test]
    fn after_a_request_that_is_not_known_pins_may_be_unseen() {
        use std::os::fd::AsRawFd;
        let has_unseen_pins = || {
            let status = spillway_sys::memory::ProcessStatus::open().unwrap();
            status.outsiders().unwrap().has_unseen_pins
        };
        let device = std::fs::File::open("/dev/null").unwrap();
        let ask =
            |request| give(libc::SYS_ioctl as usize, [device.as_raw_fd() as usize, request, 0, 0, 0, 0]);
        ask(libc::TCGETS as usize);
        assert!(!has_unseen_pins());
        ask(0xC008_5600);
        assert!(has_unseen_pins());
    }
}
