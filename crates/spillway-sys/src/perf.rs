//! perf_event_open(2), and the rings in which the kernel tells what happened on one CPU.
//! Source: Linux `include/uapi/linux/perf_event.h`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::page::PAGE_SIZE;

/// `struct perf_event_attr`, version 5.
#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct Attributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_events: u32,
    pub breakpoint_kind: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clock: i32,
    pub sample_regs_interrupt: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
}
const _: () = assert!(size_of::<Attributes>() == 112);

pub(crate) const TYPE_SOFTWARE: u32 = 1;

pub(crate) const SAMPLE_IP: u64 = 1;
pub(crate) const SAMPLE_TID: u64 = 1 << 1;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
pub(crate) const SAMPLE_ADDR: u64 = 1 << 3;
pub(crate) const SAMPLE_CALLCHAIN: u64 = 1 << 5;
pub(crate) const SAMPLE_DATA_SRC: u64 = 1 << 15;
pub(crate) const SAMPLE_REGS_INTERRUPT: u64 = 1 << 18;

/// Bits of [`Attributes::flags`], in the order of the header's bit field.
pub(crate) mod flag {
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// Two bits: how exact the address of the instruction is; processors give data addresses where it is not
    /// 0.
    pub const PRECISE_SHIFT: u32 = 15;
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub const USE_CLOCK: u64 = 1 << 25;
}

pub(crate) const RECORD_LOST: u32 = 2;
pub(crate) const RECORD_SAMPLE: u32 = 9;

/// A request without an argument, and one with a pointer-sized one: `_IO('$', n)` and `_IOW('$', n, u32)`.
const fn io(number: u64) -> u64 {
    (b'$' as u64) << 8 | number
}
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;
const IOC_SET_BPF: u64 = 0x4004_2408;
const _: () = assert!(IOC_ENABLE == io(0) && IOC_DISABLE == io(1));
const _: () = assert!(IOC_SET_BPF == (1 << 30 | (size_of::<u32>() as u64) << 16 | io(8)));

/// Where the kernel notes in the first page how far it has written, and we how far we have read.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = 1032;

/// Opens an event of all processes (`process` -1) or of one (0: the caller) on a CPU.
pub(crate) fn open(
    attributes: &Attributes,
    process: i32,
    cpu: u32,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd> {
    const CLOSE_ON_EXEC: usize = 8;
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes.clone() };
    let at = std::ptr::from_ref(&attributes).expose_provenance();
    let leader = leader.map_or(-1, |leader| leader.as_raw_fd());
    let arguments = [at, process as usize, cpu as usize, leader as usize, CLOSE_ON_EXEC, 0];
    // SAFETY: the attributes are as long as they say and outlive the call.
    let fd = unsafe { crate::raw::syscall(libc::SYS_perf_event_open as usize, arguments) };
    if fd < 0 {
        return Err(Errno::from_raw_os_error(-fd as i32));
    }
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn control(event: &OwnedFd, request: u64, argument: usize) -> Result<()> {
    // SAFETY: no request that is made here takes an address.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

/// Starts an event that has no ring.
pub(crate) fn enable(event: &OwnedFd) -> Result<()> {
    control(event, IOC_ENABLE, 0)
}

/// Tells `each` of the records from `tail` to `head` of a ring whose words `word` reads; how far that came.
/// What makes no sense ends it at `head`.
pub(crate) fn walk(
    word: &dyn Fn(u64) -> u64,
    ring_bytes: u64,
    tail: u64,
    head: u64,
    record: &mut Vec<u64>,
    each: &mut dyn FnMut(u32, &[u64]),
) -> u64 {
    let mut at = tail;
    while at < head && head - at <= ring_bytes {
        let header = word(at);
        let (kind, bytes) = (header as u32, header >> 48);
        if bytes < 8 || bytes % 8 != 0 || bytes > head - at {
            break;
        }
        record.clear();
        record.extend((1..bytes / 8).map(|index| word(at + 8 * index)));
        each(kind, record);
        at += bytes;
    }
    head
}

/// An event and its ring.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    base: NonNull<u8>,
    data_bytes: usize,
    record: Vec<u64>,
}

// SAFETY: the mapping belongs to the process; one thread at a time reads it, for it takes `&mut`.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of `data_bytes`, a power of two of pages, for an event.
    pub(crate) fn new(fd: OwnedFd, data_bytes: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = PAGE_SIZE + data_bytes;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { fd, base, data_bytes, record: Vec::new() })
    }

    /// Starts or stops the event.
    pub(crate) fn enable(&self, on: bool) -> Result<()> {
        control(&self.fd, if on { IOC_ENABLE } else { IOC_DISABLE }, 0)
    }

    /// From now on a BPF program decides which samples are written.
    pub(crate) fn filter(&self, program: BorrowedFd<'_>) -> Result<()> {
        control(&self.fd, IOC_SET_BPF, program.as_raw_fd() as usize)
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets lie in the first page, are aligned, and are accessed by atomics on both sides.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The word at a place of the stream; it starts again after `data_bytes`.
    fn word(&self, at: u64) -> u64 {
        let offset = at as usize % self.data_bytes;
        // SAFETY: in range; records are aligned to words, and the kernel does not write what is not read yet.
        unsafe { self.base.as_ptr().add(PAGE_SIZE + offset).cast::<u64>().read_volatile() }
    }

    /// Tells `each` of every record since the last time: its kind, and its words after the header.
    pub(crate) fn drain(&mut self, each: &mut dyn FnMut(u32, &[u64])) {
        let head = self.place(HEAD_OFFSET).load(Ordering::Acquire);
        let tail = self.place(TAIL_OFFSET).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        let end = walk(&|at| self.word(at), self.data_bytes as u64, tail, head, &mut record, each);
        self.record = record;
        fence(Ordering::Release);
        self.place(TAIL_OFFSET).store(end, Ordering::Release);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), PAGE_SIZE + self.data_bytes) };
    }
}
