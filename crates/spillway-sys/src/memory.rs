//! Memory of this process: areas of the pager's own, and operations on [ranges](crate::ranges) of pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use crate::own_memory;
use crate::page::PAGE_SIZE;
use crate::ranges::{FrameRange, TargetRange};

/// Private anonymous memory of the pager's own, mapped by a system call that no hook sees, and never given to
/// the program. Zero until written; taken from the machine page by page, also where the machine gives every
/// program huge pages: a few entries of a sparse table would cost 2 MiB each.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process; shared access is by atomics, or as `page` demands.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// `bytes` of memory for reading and writing.
    pub fn new(bytes: usize) -> Result<Self> {
        Self::map(bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// `bytes` of address space, of which nothing can be used before [`Self::commit`].
    pub fn reserve(bytes: usize) -> Result<Self> {
        Self::map(bytes, ProtFlags::empty())
    }

    fn map(bytes: usize, protection: ProtFlags) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        refuse_huge_pages(base.expose_provenance(), bytes);
        own_memory::note(base.expose_provenance(), bytes);
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?, bytes })
    }

    /// Makes the bytes `from..to` of a reservation usable.
    pub fn commit(&self, from: usize, to: usize) -> Result<()> {
        assert!(from <= to && to <= self.bytes, "commit beyond the area");
        // SAFETY: the range is ours; making it accessible breaks no reference.
        unsafe {
            mprotect(
                self.base.as_ptr().add(from).cast(),
                to - from,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Its length in bytes, whole pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// 64-bit words of a committed range. Panics when out of range or out of line.
    #[must_use]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && offset + count * 8 <= self.bytes, "words beyond the area");
        // SAFETY: in range and aligned; atomics may be shared; zeroed memory is a valid atomic.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) }
    }

    /// The `count` pages from index `first` on. Panics where these are not within the area.
    #[must_use]
    pub fn pages(&self, first: usize, count: usize) -> FrameRange<'_> {
        assert!((first + count) * PAGE_SIZE <= self.bytes, "pages beyond the area");
        FrameRange::within_area(self.address() + first * PAGE_SIZE, count * PAGE_SIZE)
    }

    /// Writes at the byte `offset`. Panics beyond the area.
    ///
    /// # Safety
    /// Nobody reads or writes these bytes at the same time, nor holds a reference to them.
    pub unsafe fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.bytes, "write beyond the area");
        // SAFETY: in range by the assertion, and `from` lies elsewhere: nobody holds a reference to what is
        // written.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(offset), from.len()) }
    }

    /// Gives the memory of whole pages back to the machine: they are zeros then. Panics beyond the area.
    ///
    /// # Errors
    /// The kernel's: it stays.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<()> {
        assert!(offset + bytes <= self.bytes, "discard beyond the area");
        discard_own(FrameRange::within_area(self.address() + offset, bytes))
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        own_memory::forget(&(self.address()..self.address() + self.bytes));
        // SAFETY: the mapping is ours and no borrow of it is left. Failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the kernel advice on memory that is the program's or the pager's own, by a range's type.
fn advise(start: usize, bytes: usize, advice: Advice) -> Result<()> {
    // SAFETY: no reference points there, but for atomics, which may become zero.
    unsafe { madvise(std::ptr::without_provenance_mut(start), bytes, advice) }
}

/// Drops pages of the program's (`MADV_DONTNEED`).
///
/// # Errors
/// EINVAL where some are locked; EAGAIN.
pub fn discard(range: TargetRange) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxDontNeed)
}

/// Gives the memory of pages of the pager's own back to the machine (`MADV_DONTNEED`).
///
/// # Errors
/// As [`discard`].
pub fn discard_own(range: FrameRange<'_>) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxDontNeed)
}

/// Reads the beginning of a page of the pager's own, for the fault.
pub fn touch(page: FrameRange<'_>) {
    // SAFETY: within an area, as a range of ours is, aligned, and read as an atomic.
    let word = unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(page.start()) };
    std::hint::black_box(word.load(std::sync::atomic::Ordering::Relaxed));
}

/// Drops single pages of the program's, with one flush of the CPUs' translations for all where the kernel can
/// do that (`process_madvise` on oneself, Linux 6.13). `process` is this process. False when pages may be
/// left.
pub fn discard_pages(process: impl AsFd, pages: &[TargetRange]) -> bool {
    let process = process.as_fd();
    pages.chunks(MOST_ADVISED).all(|chunk| {
        let bytes = chunk.iter().map(|page| page.bytes()).sum::<usize>();
        advise_pages(process, chunk, Advice::LinuxDontNeed) == bytes
            || chunk.iter().all(|&page| discard(page).is_ok())
    })
}

/// Places that are advised on in one call.
const MOST_ADVISED: usize = 64;

/// Gives advice on at most 64 places in one call (process_madvise(2) on oneself, Linux 6.13). Returns the
/// bytes that were advised on, from the first on. Only advice that a safe function here gives of one place.
pub(crate) fn advise_pages(process: impl AsFd, pages: &[TargetRange], advice: Advice) -> usize {
    const CALL: usize = libc::SYS_process_madvise as usize;
    let mut ranges = [[0_usize; 2]; MOST_ADVISED];
    let count = pages.len().min(MOST_ADVISED);
    pages.iter().zip(&mut ranges).for_each(|(page, range)| *range = [page.start(), page.bytes()]);
    let process = std::os::fd::AsRawFd::as_raw_fd(&process.as_fd()) as usize;
    let at = ranges.as_ptr().expose_provenance();
    // SAFETY: as for the advice on one place; the ranges outlive the call.
    let done = unsafe { crate::raw::syscall(CALL, [process, at, count, advice as usize, 0, 0]) };
    usize::try_from(done).unwrap_or(0)
}

/// Gives the process pages of its own where it shares them since a fork (`MADV_POPULATE_WRITE`). Contents
/// stay.
///
/// # Errors
/// EFAULT or EINVAL where the program may not write; what came before that page is done.
pub fn make_own(range: TargetRange) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxPopulateWrite)
}

/// Whether a read of the page of `address` would succeed: the kernel has it or brings it in
/// (`MADV_POPULATE_READ`). Changes no contents, so any address may be asked for.
#[must_use]
pub fn is_readable(address: usize) -> bool {
    advise(address & !(PAGE_SIZE - 1), PAGE_SIZE, Advice::LinuxPopulateRead).is_ok()
}

/// Whether the page of `address` is mapped without permission to read it: then `MADV_POPULATE_READ` says
/// EINVAL, and EFAULT where it finds a page that is far.
#[must_use]
pub fn is_forbidden(address: usize) -> bool {
    advise(address & !(PAGE_SIZE - 1), PAGE_SIZE, Advice::LinuxPopulateRead) == Err(Errno::INVAL)
}

/// Takes memory of the machine for pages of the pager's own, zeroed by the kernel (`MADV_POPULATE_WRITE`).
///
/// # Errors
/// ENOMEM where the machine has none.
pub fn populate(range: FrameRange<'_>) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxPopulateWrite)
}

/// Has the kernel take single pages for memory of the pager's own, whatever it does elsewhere
/// (`MADV_NOHUGEPAGE`).
pub fn refuse_huge_pages(start: usize, bytes: usize) {
    // A kernel that has no huge pages refuses, and need not know.
    let _ = advise(start, bytes, Advice::LinuxNoHugepage);
}

/// Has the kernel take huge pages for memory of the pager's own after all (`MADV_HUGEPAGE`).
///
/// # Errors
/// EINVAL where the kernel has none.
pub fn ask_for_own_huge_pages(range: FrameRange<'_>) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxHugepage)
}

/// Whether the machine gives this process huge pages that it asks for
/// (`Documentation/admin-guide/mm/transhuge.rst`).
#[must_use]
pub fn may_have_huge_pages() -> bool {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    std::fs::read_to_string(ENABLED).is_ok_and(|modes| !modes.contains("[never]"))
        && !crate::process::is_without_huge_pages()
}

/// Has the kernel take huge pages for a range where it can (`MADV_HUGEPAGE`).
///
/// # Errors
/// EINVAL where the kernel has none.
pub fn ask_for_huge_pages(range: TargetRange) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxHugepage)
}

/// madvise(2)'s advice to make huge pages now, which rustix has not got.
pub(crate) const MADV_COLLAPSE: usize = 25;

/// Makes a range of 2 MiB one huge page, now (`MADV_COLLAPSE`, Linux 6.1). Registered for missing pages it
/// must be whole.
///
/// # Errors
/// EBUSY or EINVAL where it is not whole, EAGAIN and ENOMEM where the machine has no such page to give.
pub fn collapse(range: TargetRange) -> Result<()> {
    const SYS_MADVISE: usize = 28;
    let arguments = [range.start(), range.bytes(), MADV_COLLAPSE, 0, 0, 0];
    // SAFETY: changes no contents.
    let result = unsafe { crate::raw::syscall(SYS_MADVISE, arguments) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

/// Says whether a forked child gets this range of the program's memory (`MADV_DOFORK`, `MADV_DONTFORK`).
///
/// # Errors
/// ENOMEM where parts of it are not mapped.
pub fn inherit(range: TargetRange, inherited: bool) -> Result<()> {
    advise(range.start(), range.bytes(), if inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork })
}

/// Says whether a forked child gets zeros in place of this range's contents (`MADV_WIPEONFORK`,
/// `MADV_KEEPONFORK`).
///
/// # Errors
/// ENOMEM where parts of it are not mapped; EINVAL where some are a file's.
pub fn wipe_on_fork(range: TargetRange, wiped: bool) -> Result<()> {
    advise(
        range.start(),
        range.bytes(),
        if wiped { Advice::LinuxWipeOnFork } else { Advice::LinuxKeepOnFork },
    )
}

/// Replaces the private mapping at `address` by anonymous memory with the same contents.
///
/// # Safety
/// The range must be mapped for reading and writing, page-aligned, and nobody else may use it meanwhile.
pub unsafe fn make_anonymous(address: usize, bytes: usize) -> Result<()> {
    let copy = Area::new(bytes)?;
    let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller vouches for the source; the copy is ours and as long.
    unsafe { std::ptr::copy_nonoverlapping(target, copy.base.as_ptr(), bytes) };
    let flags = rustix::mm::MremapFlags::MAYMOVE;
    // SAFETY: replaces the mapping by one of the same length and contents.
    unsafe { rustix::mm::mremap_fixed(copy.base.as_ptr().cast(), bytes, bytes, flags, target.cast())? };
    std::mem::forget(copy);
    Ok(())
}

/// What a page of the program's holds.
///
/// # Safety
/// It is mapped for reading, and nobody writes to it or unmaps it, while the reference lives.
#[must_use]
pub unsafe fn page_at<'a>(page: TargetRange) -> &'a [u8; PAGE_SIZE] {
    // SAFETY: by the caller's word.
    unsafe { &*std::ptr::with_exposed_provenance(page.start()) }
}

/// Has the CPU fetch the beginning of a page, from which its own prefetcher goes on.
pub fn prefetch(page: &[u8; PAGE_SIZE]) {
    const LINES: usize = 16;
    for line in page.chunks(64).take(LINES) {
        // SAFETY: only a hint.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast())
        };
    }
}

/// Who may use the memory of this process beside its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outsiders {
    /// Bytes that devices hold for long (`VmPin`: registered buffers of io_uring, RDMA), or that are locked
    /// for one (`VmLck`: VFIO).
    pub pinned_bytes: u64,
    /// Devices may hold some that nobody counts ([`note_unseen_pins`]).
    pub has_unseen_pins: bool,
    /// A debugger is attached.
    pub is_traced: bool,
}

impl Outsiders {
    /// No device holds memory of the process for long.
    #[must_use]
    pub fn hold_nothing(&self) -> bool {
        self.pinned_bytes == 0 && !self.has_unseen_pins
    }
}

/// This process may have given memory to a device whose driver does not count it. Never taken back, and
/// inherited by forked children.
static HAS_UNSEEN_PINS: AtomicBool = AtomicBool::new(false);

/// From now on [`Outsiders`] of this process has pins that are not seen.
pub fn note_unseen_pins() {
    HAS_UNSEEN_PINS.store(true, Ordering::SeqCst);
}

/// The kernel's status of this process (proc(5), `/proc/PID/status`). Opened once: it is asked on the way of
/// a fault, and a program may go where there is no /proc.
#[derive(Debug)]
pub struct ProcessStatus(OwnedFd);

impl From<OwnedFd> for ProcessStatus {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for ProcessStatus {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes that the file has at most; what is read stands well before.
const STATUS_BYTES: usize = 4096;

impl ProcessStatus {
    /// That of the calling process.
    pub fn open() -> Result<Self> {
        rustix::fs::open("/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Who uses its memory.
    pub fn outsiders(&self) -> Result<Outsiders> {
        let mut text = [0; STATUS_BYTES];
        let length = rustix::io::pread(&self.0, &mut text, 0)?;
        outsiders_in(&text[..length]).ok_or(Errno::NODATA)
    }
}

fn outsiders_in(status: &[u8]) -> Option<Outsiders> {
    let number = |key: &[u8]| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
        std::str::from_utf8(line).ok()?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let pinned_kib = number(b"VmPin:")? + number(b"VmLck:")?;
    Some(Outsiders {
        pinned_bytes: pinned_kib << 10,
        has_unseen_pins: HAS_UNSEEN_PINS.load(Ordering::SeqCst),
        is_traced: number(b"TracerPid:")? != 0,
    })
}

/// The kernel's page map of this process (`Documentation/admin-guide/mm/pagemap.rst`).
#[derive(Debug)]
pub struct PageMap(OwnedFd);

impl From<OwnedFd> for PageMap {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for PageMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the page map says of one page.
#[derive(Clone, Copy, Debug)]
pub struct PageMapEntry(u64);

impl PageMapEntry {
    /// An entry as the kernel writes it.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The page has a frame or is swapped out by the kernel: it is not missing. Guard pages (bit 58) hold
    /// nothing.
    #[must_use]
    pub fn is_populated(self) -> bool {
        self.0 >> 62 != 0 && self.0 >> 58 & 1 == 0
    }

    /// The page has a frame, and a write to it faults (`PM_UFFD_WP`).
    #[must_use]
    pub fn is_present_and_protected(self) -> bool {
        self.0 >> 63 != 0 && self.0 >> 57 & 1 != 0
    }

    /// The page is mapped from a frame that is not this process's alone: the shared zero page, or one shared
    /// since a fork.
    #[must_use]
    pub fn is_present_and_shared(self) -> bool {
        self.0 >> 63 != 0 && !self.is_exclusive()
    }

    /// No other process maps the frame.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 != 0
    }
}

impl PageMap {
    /// Opens the page map of the calling process.
    pub fn open() -> Result<Self> {
        rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Pages that [`Self::populated`] tells of at once: those of 2 MiB.
    pub const MOST_PAGES: usize = 512;

    /// Which of the `pages` pages from `address` on are not missing, a bit each.
    pub fn populated(&self, address: usize, pages: usize) -> Result<[u64; Self::MOST_PAGES / 64]> {
        let mut bytes = [0; Self::MOST_PAGES * 8];
        let bytes = &mut bytes[..pages * 8];
        let read = rustix::io::pread(&self.0, &mut *bytes, (address / PAGE_SIZE * 8) as u64)?;
        if read != bytes.len() {
            return Err(Errno::NOENT);
        }
        let mut found = [0; Self::MOST_PAGES / 64];
        for (page, entry) in bytes.as_chunks().0.iter().enumerate() {
            found[page / 64] |=
                u64::from(PageMapEntry(u64::from_ne_bytes(*entry)).is_populated()) << (page % 64);
        }
        Ok(found)
    }

    /// The entry of the page at `address`.
    pub fn entry(&self, address: usize) -> Result<PageMapEntry> {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(&self.0, &mut bytes, (address / PAGE_SIZE * 8) as u64)?;
        if read == 8 { Ok(PageMapEntry(u64::from_ne_bytes(bytes))) } else { Err(Errno::NOENT) }
    }
}

/// Has the kernel write eight bytes to `address`, unless it cannot.
#[cfg(test)]
pub(crate) fn try_to_write(address: usize) {
    // SAFETY: the tests own the page; the kernel checks that it is there.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(address), 8) };
    let _ = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
}

/// Clears the accessed bits of a range, and the CPUs' translations of it (`MADV_COLD`, Linux 5.4). Changes no
/// contents; the kernel's own reclaim takes the range for unused. Pages that a forked child has too keep
/// their bits, and so do the last few that another CPU has made.
///
/// # Errors
/// EINVAL where some of it is locked; ENOMEM where some is not mapped. Bits before or beyond may be cleared.
pub fn forget_accesses(range: TargetRange) -> Result<()> {
    advise(range.start(), range.bytes(), Advice::LinuxCold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn pins_that_nobody_counts_are_pins() {
        let outsiders = Outsiders { has_unseen_pins: true, ..Outsiders::default() };
        assert!(!outsiders.hold_nothing() && Outsiders::default().hold_nothing());
        let counted = Outsiders { pinned_bytes: 4096, ..Outsiders::default() };
        assert!(!counted.hold_nothing());
    }

    #[test]
    fn nothing_is_pinned_but_what_is_locked() {
        let status = ProcessStatus::open().unwrap();
        let before = status.outsiders().unwrap().pinned_bytes;
        let area = Area::new(4 * PAGE_SIZE).unwrap();
        // SAFETY: locking does not change memory.
        unsafe { rustix::mm::mlock(std::ptr::with_exposed_provenance_mut(area.address()), 4 * PAGE_SIZE) }
            .unwrap();
        assert!(status.outsiders().unwrap().pinned_bytes >= before + 4 * PAGE_SIZE as u64);
    }

    #[test]
    fn the_status_tells_of_debuggers_and_devices() {
        let text = b"Name:\tcat\nTracerPid:\t17\nVmLck:\t      4 kB\nVmPin:\t       8 kB\n";
        assert_eq!(
            outsiders_in(text),
            Some(Outsiders { pinned_bytes: 12 << 10, has_unseen_pins: false, is_traced: true })
        );
        assert_eq!(outsiders_in(b"Name:\tcat\nVmLck:\t4 kB\nVmPin:\t8 kB\n"), None);
        assert!(!ProcessStatus::open().unwrap().outsiders().unwrap().is_traced);
    }

    #[test]
    fn an_area_never_holds_huge_pages() {
        let area = Area::new(4 * PAGE_SIZE).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        // The kernel may have joined it to a mapping that is alike and lies before it: another test's area.
        let is_own = |line: &&str| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let address = |text| usize::from_str_radix(text, 16).ok();
            range
                .and_then(|(start, end)| Some(address(start)?..address(end)?))
                .is_some_and(|range| range.contains(&area.address()))
        };
        let mut own = smaps.lines().skip_while(|line| !is_own(line));
        let flags = own.find(|line| line.starts_with("VmFlags:")).unwrap();
        let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.split_whitespace().any(|flag| flag == "nh"), has_huge_pages, "{flags}");
    }

    #[test]
    fn an_area_is_zero_and_gives_memory_back() {
        let area = Area::new(4 * PAGE_SIZE).unwrap();
        area.words(PAGE_SIZE, 1)[0].store(7, Relaxed);
        let pagemap = PageMap::open().unwrap();
        assert!(pagemap.entry(area.address() + PAGE_SIZE).unwrap().is_populated());
        assert!(!pagemap.entry(area.address() + 2 * PAGE_SIZE).unwrap().is_populated());
        assert_eq!(pagemap.populated(area.address(), 4).unwrap(), [0b10, 0, 0, 0, 0, 0, 0, 0]);
        area.discard(PAGE_SIZE, PAGE_SIZE).unwrap();
        assert!(!pagemap.entry(area.address() + PAGE_SIZE).unwrap().is_populated());
        assert_eq!(area.words(PAGE_SIZE, 1)[0].load(Relaxed), 0);
    }

    #[test]
    fn single_pages_are_dropped() {
        let area = Area::new(200 * PAGE_SIZE).unwrap();
        let word_of = |page: usize| &area.words(page * PAGE_SIZE, 1)[0];
        (0..200).for_each(|page| word_of(page).store(7, Relaxed));
        let own =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
        // SAFETY: the area is seen through atomics alone.
        let page = |page: usize| unsafe { TargetRange::new(area.pages(page, 1).start(), PAGE_SIZE) };
        let odd: Vec<TargetRange> = (0..100).map(|i| page(2 * i + 1)).collect();
        assert!(discard_pages(own.unwrap(), &odd));
        assert!((0..200).all(|page| word_of(page).load(Relaxed) == if page % 2 == 0 { 7 } else { 0 }));
    }

    #[test]
    fn a_reservation_is_usable_where_committed() {
        let area = Area::reserve(1 << 32).unwrap();
        area.commit(0, 8192).unwrap();
        assert_eq!(area.words(4096, 1)[0].load(Relaxed), 0);
    }
}
