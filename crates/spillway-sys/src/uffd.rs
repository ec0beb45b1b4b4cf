//! userfaultfd(2), whole: the installed kernel headers predate MOVE, POISON and WP_ASYNC, so the ABI stands
//! here. Source: Linux `include/uapi/linux/userfaultfd.h` (6.18) and
//! `Documentation/admin-guide/mm/userfaultfd.rst`.
//!
//! The operations take [ranges](crate::ranges), whose types say whose memory it is: no Rust reference points
//! there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bitflags::bitflags;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;

use crate::memory;
use crate::page::PAGE_SIZE;
use crate::ranges::{BounceRange, FrameRange, TargetRange};

const UFFD_API: u64 = 0xAA;
const GROUP: u8 = 0xAA;

const UFFDIO_API: Opcode = 0xC018_AA3F;
const UFFDIO_REGISTER: Opcode = 0xC020_AA00;
const UFFDIO_UNREGISTER: Opcode = 0x8010_AA01;
const UFFDIO_WAKE: Opcode = 0x8010_AA02;
const UFFDIO_COPY: Opcode = 0xC028_AA03;
const UFFDIO_ZEROPAGE: Opcode = 0xC020_AA04;
const UFFDIO_MOVE: Opcode = 0xC028_AA05;
const UFFDIO_WRITEPROTECT: Opcode = 0xC018_AA06;
const UFFDIO_POISON: Opcode = 0xC020_AA08;
const USERFAULTFD_IOC_NEW: Opcode = 0x0000_AA00;

// The constants are written out so that they can be compared with strace's output, and checked by formula.
const _: () = {
    assert!(UFFDIO_API == opcode::read_write::<Api>(GROUP, 0x3F));
    assert!(UFFDIO_REGISTER == opcode::read_write::<Register>(GROUP, 0x00));
    assert!(UFFDIO_UNREGISTER == opcode::read::<Range>(GROUP, 0x01));
    assert!(UFFDIO_WAKE == opcode::read::<Range>(GROUP, 0x02));
    assert!(UFFDIO_COPY == opcode::read_write::<Copy>(GROUP, 0x03));
    assert!(UFFDIO_ZEROPAGE == opcode::read_write::<OnRange>(GROUP, 0x04));
    assert!(UFFDIO_MOVE == opcode::read_write::<Copy>(GROUP, 0x05));
    assert!(UFFDIO_WRITEPROTECT == opcode::read_write::<WriteProtect>(GROUP, 0x06));
    assert!(UFFDIO_POISON == opcode::read_write::<OnRange>(GROUP, 0x08));
    assert!(USERFAULTFD_IOC_NEW == opcode::none(GROUP, 0x00));
    assert!(size_of::<RawMessage>() == 32);
};

bitflags! {
    /// What a kernel's userfaultfd can do (`UFFD_FEATURE_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u64 {
        /// Write-protect faults on anonymous memory.
        const PAGEFAULT_FLAG_WP = 1 << 0;
        /// Events when the process forks (needs CAP_SYS_PTRACE).
        const EVENT_FORK = 1 << 1;
        /// Events when memory is moved by mremap(2).
        const EVENT_REMAP = 1 << 2;
        /// Events on madvise(2) DONTNEED and REMOVE.
        const EVENT_REMOVE = 1 << 3;
        /// Missing faults on hugetlbfs.
        const MISSING_HUGETLBFS = 1 << 4;
        /// Missing faults on shared memory.
        const MISSING_SHMEM = 1 << 5;
        /// Events when memory is unmapped by munmap(2).
        const EVENT_UNMAP = 1 << 6;
        /// SIGBUS in the faulting thread in place of a message.
        const SIGBUS = 1 << 7;
        /// Messages name the faulting thread.
        const THREAD_ID = 1 << 8;
        /// Minor faults on hugetlbfs.
        const MINOR_HUGETLBFS = 1 << 9;
        /// Minor faults on shared memory.
        const MINOR_SHMEM = 1 << 10;
        /// Messages hold the address itself, not its page.
        const EXACT_ADDRESS = 1 << 11;
        /// Write protection of hugetlbfs and shared memory.
        const WP_HUGETLBFS_SHMEM = 1 << 12;
        /// Write protection of pages that are not there.
        const WP_UNPOPULATED = 1 << 13;
        /// Pages that answer with SIGBUS (6.6).
        const POISON = 1 << 14;
        /// Write protection that the kernel lifts by itself (6.7).
        const WP_ASYNC = 1 << 15;
        /// Moving pages between addresses (6.8).
        const MOVE = 1 << 16;
        /// Protection against reads and writes, which tells who is used (7.2). A range has this or write
        /// protection, not both.
        const READ_WRITE_PROTECT = 1 << 17;
        /// The same, lifted by the kernel itself; PAGEMAP_SCAN tells what was used since (7.2).
        const READ_WRITE_PROTECT_ASYNC = 1 << 18;
    }
}

bitflags! {
    /// Kinds of fault that a range is registered for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RegisterMode: u64 {
        /// Access to a page that is not there.
        const MISSING = 1 << 0;
        /// Write to a write-protected page.
        const WRITE_PROTECT = 1 << 1;
    }
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

impl Range {
    fn of(range: TargetRange) -> Self {
        Self { start: range.start() as u64, bytes: range.bytes() as u64 }
    }
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct OnRange {
    range: Range,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

const MODE_DONT_WAKE: u64 = 1 << 0;
/// Maps the copy write-protected (`UFFDIO_COPY_MODE_WP`).
const MODE_PROTECTED: u64 = 1 << 1;
const WRITEPROTECT_ON: u64 = 1 << 0;

const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1 << 0;
const FLAG_WP: u64 = 1 << 1;

/// One message as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RawMessage {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread_id: u32,
    padding: u32,
}

/// A page fault that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Address of the page.
    pub address: usize,
    /// The access was a write.
    pub write: bool,
    /// The page is there but write-protected.
    pub write_protected: bool,
    /// Thread that waits; 0 without [`Features::THREAD_ID`].
    pub thread_id: u32,
}

impl RawMessage {
    /// The fault that the message tells of; `None` for other events.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        (self.event == EVENT_PAGEFAULT).then_some(Fault {
            address: self.address as usize & !(PAGE_SIZE - 1),
            write: self.flags & FLAG_WRITE != 0,
            write_protected: self.flags & FLAG_WP != 0,
            thread_id: self.thread_id,
        })
    }
}

/// A userfaultfd of this process.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

/// Opens a descriptor and says what the kernel can do. `device` is an open `/dev/userfaultfd`, which needs no
/// privilege of its own; without it the system call is used, which needs CAP_SYS_PTRACE or
/// `vm.unprivileged_userfaultfd=1`.
pub fn supported_features(device: Option<BorrowedFd<'_>>) -> Result<Features> {
    let fd = open_raw(device)?;
    Ok(Features::from_bits_truncate(handshake(&fd, 0)?))
}

fn open_raw(device: Option<BorrowedFd<'_>>) -> Result<OwnedFd> {
    open_with(device, UserfaultfdFlags::CLOEXEC)
}

fn open_with(device: Option<BorrowedFd<'_>>, flags: UserfaultfdFlags) -> Result<OwnedFd> {
    match device {
        // SAFETY: makes a new descriptor and touches no memory.
        None => unsafe { rustix::mm::userfaultfd(flags) },
        // SAFETY: the request takes flags and returns a new descriptor, as `NewFromDevice` says.
        Some(device) => unsafe { ioctl(device, NewFromDevice(flags)) },
    }
}

pub(crate) fn handshake(fd: &OwnedFd, features: u64) -> Result<u64> {
    let mut api = Api { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: the opcode takes exactly this structure.
    unsafe { ioctl(fd, Updater::<UFFDIO_API, _>::new(&mut api))? };
    Ok(api.features)
}

/// `USERFAULTFD_IOC_NEW`: takes flags by value and returns the descriptor as its result.
struct NewFromDevice(UserfaultfdFlags);

// SAFETY: the opcode takes an integer, writes to no memory, and returns a descriptor that nobody owns yet.
unsafe impl rustix::ioctl::Ioctl for NewFromDevice {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        USERFAULTFD_IOC_NEW
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        std::ptr::without_provenance_mut(self.0.bits() as usize)
    }

    unsafe fn output_from_ptr(
        output: rustix::ioctl::IoctlOutput,
        _: *mut core::ffi::c_void,
    ) -> Result<Self::Output> {
        // SAFETY: the kernel just made this descriptor for us.
        Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(output) })
    }
}

impl Uffd {
    /// Opens a descriptor for this process's memory with `features` switched on. It blocks on [`Self::read`]
    /// and is closed on exec.
    pub fn open(device: Option<BorrowedFd<'_>>, features: Features) -> Result<Self> {
        let fd = open_raw(device)?;
        handshake(&fd, features.bits())?;
        Ok(Self { fd })
    }

    /// Waits for messages and returns those read. Empty after an interruption.
    pub fn read<'a>(&self, buffer: &'a mut [RawMessage]) -> Result<&'a [RawMessage]> {
        // SAFETY: RawMessage is plain integers for which every bit pattern is valid.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), size_of_val(buffer)) };
        let read = match rustix::io::read(&self.fd, bytes) {
            Ok(read) => read,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        Ok(&buffer[..read / size_of::<RawMessage>()])
    }

    /// Has pages of a range fault to this descriptor.
    ///
    /// # Errors
    /// The kernel's: EBUSY where another descriptor has it, EINVAL where it is not private anonymous memory,
    /// ENOMEM.
    pub fn register(&self, range: TargetRange, mode: RegisterMode) -> Result<()> {
        self.register_at(range.start(), range.bytes(), mode)
    }

    /// The same for missing pages of the pager's own: frames, which UFFDIO_MOVE wants registered, and
    /// doorbells.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn register_own(&self, range: FrameRange<'_>) -> Result<()> {
        self.register_at(range.start(), range.bytes(), RegisterMode::MISSING)
    }

    fn register_at(&self, start: usize, bytes: usize, mode: RegisterMode) -> Result<()> {
        let range = Range { start: start as u64, bytes: bytes as u64 };
        let mut register = Register { range, mode: mode.bits(), ioctls: 0 };
        // SAFETY: the opcode takes exactly this structure; registering changes no contents.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_REGISTER, _>::new(&mut register)) }
    }

    /// Gives a range back to the kernel's own handling. Pages that are not there will read as zeros.
    ///
    /// # Errors
    /// EINVAL where the range is not of a kind that can be registered; ENOMEM.
    pub fn unregister(&self, range: TargetRange) -> Result<()> {
        let mut range = Range::of(range);
        // SAFETY: the opcode takes exactly this structure.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_UNREGISTER, _>::new(&mut range)) }
    }

    /// Lets every thread that waits for a page of the range try again.
    ///
    /// # Errors
    /// EINVAL where the range is not whole pages.
    pub fn wake(&self, range: TargetRange) -> Result<()> {
        self.wake_at(range.start(), range.bytes())
    }

    /// The same for a page of the pager's own.
    ///
    /// # Errors
    /// As [`Self::wake`].
    pub fn wake_own(&self, range: FrameRange<'_>) -> Result<()> {
        self.wake_at(range.start(), range.bytes())
    }

    /// Lets every thread try again that waits for any page.
    ///
    /// # Errors
    /// As [`Self::wake`].
    pub fn wake_all(&self) -> Result<()> {
        const LOWEST: usize = 1 << 16;
        const HIGHEST: usize = (1 << 47) - PAGE_SIZE;
        self.wake_at(LOWEST, HIGHEST - LOWEST)
    }

    fn wake_at(&self, start: usize, bytes: usize) -> Result<()> {
        let mut range = Range { start: start as u64, bytes: bytes as u64 };
        // SAFETY: the opcode takes exactly this structure.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_WAKE, _>::new(&mut range)) }
    }

    /// Puts copies of pages where no pages are, write-protected if so wished, and wakes who waits for them.
    /// Returns the bytes copied: fewer than asked when a page cannot go.
    ///
    /// # Errors
    /// Where not even the first went: EEXIST when a page is there; ENOENT when the address is not registered
    /// any more; EAGAIN while the address space changes.
    pub fn copy(&self, to: TargetRange, from: BounceRange<'_>, protected: bool) -> Result<usize> {
        assert_eq!(to.bytes(), from.bytes(), "a copy of another length");
        self.copy_at(to.start(), from.start(), to.bytes(), if protected { MODE_PROTECTED } else { 0 })
    }

    /// Puts a copy of what a frame holds where no page is, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn copy_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        assert_eq!(to.bytes(), from.bytes(), "a copy of another length");
        self.copy_at(to.start(), from.start(), to.bytes(), 0).map(|_| ())
    }

    /// Puts a copy of a page of the program's into an empty frame.
    ///
    /// # Errors
    /// As [`Self::copy`], and EFAULT where the page cannot be read.
    pub fn copy_to_frame(&self, to: FrameRange<'_>, from: TargetRange) -> Result<()> {
        assert_eq!(to.bytes(), from.bytes(), "a copy of another length");
        self.copy_at(to.start(), from.start(), to.bytes(), 0).map(|_| ())
    }

    /// Puts copies into empty frames, of which none is full after an error.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn fill_frames(&self, to: FrameRange<'_>, from: BounceRange<'_>) -> Result<()> {
        assert_eq!(to.bytes(), from.bytes(), "a copy of another length");
        let mut done = 0;
        while done < to.bytes() {
            match self.copy_at(to.start() + done, from.start() + done, to.bytes() - done, 0) {
                Ok(bytes) => done += bytes,
                Err(error) => {
                    memory::discard_own(to)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn copy_at(&self, to: usize, from: usize, bytes: usize, mode: u64) -> Result<usize> {
        let mut copy = Copy { to: to as u64, from: from as u64, bytes: bytes as u64, mode, done: 0 };
        // SAFETY: the opcode takes exactly this structure; the ranges are the program's or ours, by their
        // types.
        match unsafe { ioctl(&self.fd, Updater::<UFFDIO_COPY, _>::new(&mut copy)) } {
            Ok(()) => Ok(bytes),
            Err(_) if copy.done > 0 => Ok(copy.done as usize),
            Err(error) => Err(error),
        }
    }

    /// Moves pages into as many *empty* frames that nobody else uses, without copying and without waking
    /// anybody. Returns the bytes moved: fewer than asked when a page cannot go.
    ///
    /// # Errors
    /// Where not even the first went: EBUSY for a page that is pinned or shared since a fork; EINVAL where
    /// protections differ or forbid writing; ENOENT for a hole.
    pub fn move_to_frames(&self, to: FrameRange<'_>, from: TargetRange) -> Result<usize> {
        assert_eq!(to.bytes(), from.bytes(), "a move of another length");
        let (counted, outcome) = self.move_counted(to.start(), from.start(), to.bytes(), MODE_DONT_WAKE);
        let Err(error) = outcome else { return Ok(to.bytes()) };
        let moved = counted + self.full_bytes(to.part(counted, to.bytes() - counted));
        if moved > 0 { Ok(moved) } else { Err(error) }
    }

    /// Moves the page in a frame to where no page is, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Self::move_to_frames`], and EEXIST when a page is there.
    pub fn move_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        assert_eq!((to.bytes(), from.bytes()), (PAGE_SIZE, PAGE_SIZE), "more than a page");
        match self.move_counted(to.start(), from.start(), PAGE_SIZE, 0).1 {
            Err(_) if self.full_bytes(from) == 0 => self.wake(to),
            outcome => outcome,
        }
    }

    /// UFFDIO_MOVE, and what the kernel says it moved. It may have moved more: in Linux 6.18, when the page's
    /// table entry changes under it (an accessed bit suffices), `move_pages` in mm/userfaultfd.c tries again,
    /// does not forget the EAGAIN of its first try when the second succeeds, tries a third time and fails
    /// with EEXIST on its own work, which it then does not count. Whoever believes it gives a full frame away
    /// and loses a page.
    fn move_counted(&self, to: usize, from: usize, bytes: usize, mode: u64) -> (usize, Result<()>) {
        let mut copy = Copy { to: to as u64, from: from as u64, bytes: bytes as u64, mode, done: 0 };
        // SAFETY: the opcode takes exactly this structure; the ranges are the program's or ours, by their
        // types.
        let outcome = unsafe { ioctl(&self.fd, Updater::<UFFDIO_MOVE, _>::new(&mut copy)) };
        (copy.done.max(0) as usize, outcome)
    }

    /// Length of the full frames at the start of a registered range, of which nobody else changes any. Where
    /// it cannot be known a frame counts as full: reading an empty one is refused, filling a full one would
    /// lose a page.
    fn full_bytes(&self, frames: FrameRange<'_>) -> usize {
        let pages = (0..frames.bytes()).step_by(PAGE_SIZE);
        let is_full = |offset: &usize| {
            let frame = frames.part(*offset, PAGE_SIZE);
            match self.map_own_zeros(frame) {
                Ok(()) => crate::memory::discard_own(frame).is_err(),
                Err(_) => true,
            }
        };
        pages.take_while(is_full).count() * PAGE_SIZE
    }

    /// Maps the machine's shared page of zeros where no pages are, and wakes who waits for them. Returns the
    /// bytes mapped: fewer than asked when a page cannot go. The kernel gives a page a frame of its own at
    /// the first write, and tells nobody.
    ///
    /// # Errors
    /// As [`Self::copy`], and EINVAL where this process gets no shared page of zeros.
    pub fn map_zeros(&self, range: TargetRange) -> Result<usize> {
        self.map_zeros_at(Range::of(range))
    }

    /// The same for an empty page of the pager's own.
    ///
    /// # Errors
    /// As [`Self::map_zeros`].
    pub fn map_own_zeros(&self, range: FrameRange<'_>) -> Result<()> {
        let range = Range { start: range.start() as u64, bytes: range.bytes() as u64 };
        self.map_zeros_at(range).map(|_| ())
    }

    fn map_zeros_at(&self, range: Range) -> Result<usize> {
        let bytes = range.bytes as usize;
        let mut zero = OnRange { range, mode: 0, done: 0 };
        // SAFETY: the opcode takes exactly this structure; it changes nothing where a page is.
        match unsafe { ioctl(&self.fd, Updater::<UFFDIO_ZEROPAGE, _>::new(&mut zero)) } {
            Ok(()) => Ok(bytes),
            Err(_) if zero.done > 0 => Ok(zero.done as usize),
            Err(error) => Err(error),
        }
    }

    /// Moves pages of an area of the pager's own, which nobody uses, to where no pages are, and wakes who
    /// waits for them. Returns what the kernel says that it moved, which may be too little: see
    /// [`Self::move_to_frames`]. Nothing where the program may not write, or may execute.
    #[must_use]
    pub fn move_reserved(&self, to: TargetRange, from: FrameRange<'_>) -> usize {
        assert_eq!(to.bytes(), from.bytes(), "a move of another length");
        let (counted, outcome) = self.move_counted(to.start(), from.start(), to.bytes(), 0);
        if outcome.is_ok() { to.bytes() } else { counted }
    }

    /// Write-protects a range (`on`), or lifts that and wakes who waits.
    ///
    /// # Errors
    /// ENOENT where it is not registered for that; EAGAIN while the address space changes.
    pub fn write_protect(&self, range: TargetRange, on: bool) -> Result<()> {
        let mut protect =
            WriteProtect { range: Range::of(range), mode: if on { WRITEPROTECT_ON } else { 0 } };
        // SAFETY: the opcode takes exactly this structure.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_WRITEPROTECT, _>::new(&mut protect)) }
    }

    /// Makes pages that are not there answer every access with SIGBUS, and wakes who waits for them.
    ///
    /// # Errors
    /// EEXIST where a page is there; ENOENT where it is not registered.
    pub fn poison(&self, range: TargetRange) -> Result<()> {
        let mut poison = OnRange { range: Range::of(range), mode: 0, done: 0 };
        // SAFETY: the opcode takes exactly this structure.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_POISON, _>::new(&mut poison)) }
    }
}

impl From<OwnedFd> for Uffd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub mod events;
#[cfg(test)]
mod tests;
