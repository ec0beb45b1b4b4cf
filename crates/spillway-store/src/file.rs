//! `file:PATH?size=SIZE`: a scratch file or a block device. Slot n lies at byte n * 4096.
//!
//! A batch is sorted, neighbouring slots make one vectored transfer, and all transfers are in flight together
//! by io_uring; where there is no io_uring, one after the other. O_DIRECT keeps the pages out of the page
//! cache, which would take the very memory that they were sent away from; where the file system has it not,
//! the cache is used.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, fallocate, fcntl_getfl, fcntl_setfl,
    fstat, fstatvfs, ftruncate, open as open_path, openat, seek, stat, unlinkat,
};
use rustix::io::{Errno, pread, preadv, pwrite, pwritev};
use rustix::process::{Resource, getrlimit};
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::size::Size;
use spillway_sys::ring::{Buffer, Ring, Transfer};

use crate::memory::{for_each_run, no_such_slot};
use crate::posted::are_of;
use crate::{Lane, LatencyClass, ReadRequest, Room, SharedParts, Store, StoreError, StoreSpec, WriteRequest};

/// Transfers that a lane keeps in flight.
const IN_FLIGHT: u32 = 64;

/// Pages in one transfer at most.
const PAGES_PER_TRANSFER: usize = 64;

/// Neighbouring slots that are worth a hole in the file. On ext4 a hole costs some 100 us, however small, and
/// tears the file apart; fewer slots keep their place until they are written again.
const SLOTS_WORTH_A_HOLE: u32 = 64;

/// Times that a busy block device is tried again, and the wait between: two seconds in all.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A page where O_DIRECT wants it.
#[derive(Clone)]
#[repr(align(4096))]
struct AlignedPage(Page);

/// Opens or makes the file. One that it made has no name any more when this returns, so nothing is left
/// behind, however the run ends.
pub(crate) fn prepare(spec: &StoreSpec, path: &Path, size: Size) -> Result<SharedParts, StoreError> {
    let slots = (size.bytes() / PAGE_SIZE as u64) as u32;
    let bytes = u64::from(slots) * PAGE_SIZE as u64;
    let fd = match stat(path).map(|status| FileType::from_raw_mode(status.st_mode)) {
        Ok(FileType::BlockDevice) => open_device(spec, path, bytes)?,
        Ok(FileType::Directory) => {
            let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let fd = open_path(path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|errno| cannot(spec, "make a file in this directory", errno))?;
            extend(spec, fd, bytes)?
        }
        Ok(_) => return Err(exists(spec)),
        Err(Errno::NOENT) => extend(spec, make_file(spec, path)?, bytes)?,
        Err(errno) => return Err(cannot(spec, "look at the path", errno)),
    };
    Ok(SharedParts { capacity_slots: slots, fd: Some(fd), held: Vec::new(), spill: None, notice: None })
}

fn make_file(spec: &StoreSpec, path: &Path) -> Result<OwnedFd, StoreError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| match errno {
        Errno::EXIST => exists(spec),
        errno => cannot(spec, "make the file", errno),
    })?;
    unlinkat(CWD, path, AtFlags::empty())
        .map_err(|errno| cannot(spec, "take away the file's name", errno))?;
    Ok(fd)
}

/// Gives a new file its length, sparse, and settles how it is accessed.
fn extend(spec: &StoreSpec, fd: OwnedFd, bytes: u64) -> Result<OwnedFd, StoreError> {
    // Beyond this limit the kernel would not only refuse but send a signal.
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < bytes) {
        let limit = Size::from_bytes(limit);
        return Err(spec.unusable(
            format_args!("files may not be larger than {limit} here"),
            "raise the limit (ulimit -f), or give the store a smaller size",
        ));
    }
    ftruncate(&fd, bytes).map_err(|errno| cannot(spec, "make a file of this size", errno))?;
    let probe = AlignedPage([0; PAGE_SIZE]);
    settle_direct(spec, &fd, || pwrite(&fd, &probe.0, 0))?;
    // What the probe wrote can stay if it cannot be taken away.
    let _ = punch(&fd, 0, 1);
    Ok(fd)
}

/// Takes a block device for this run alone: it must not be mounted or otherwise in use.
fn open_device(spec: &StoreSpec, path: &Path, bytes: u64) -> Result<OwnedFd, StoreError> {
    let flags = OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let mut tries = 0;
    let fd = loop {
        match open_path(path, flags, Mode::empty()) {
            Ok(fd) => break fd,
            // The kernel may still be taking the rings of a run apart that has just been killed.
            Err(Errno::BUSY) if tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(errno) => return Err(cannot(spec, "have the device alone", errno)),
        }
    };
    let has =
        seek(&fd, SeekFrom::End(0)).map_err(|errno| cannot(spec, "ask for the device's size", errno))?;
    if has < bytes {
        let has = Size::from_bytes(has);
        return Err(spec.unusable(
            format_args!("the device has only {has}"),
            "give the store that size, or name a larger device",
        ));
    }
    let mut probe = AlignedPage([0; PAGE_SIZE]);
    settle_direct(spec, &fd, || pread(&fd, &mut probe.0, 0))?;
    Ok(fd)
}

/// Sets O_DIRECT if the file can do it, as one transfer must prove.
fn settle_direct(
    spec: &StoreSpec,
    fd: &OwnedFd,
    mut transfer: impl FnMut() -> rustix::io::Result<usize>,
) -> Result<(), StoreError> {
    let plain = fcntl_getfl(fd).map_err(|errno| cannot(spec, "access the file", errno))?;
    if fcntl_setfl(fd, plain | OFlags::DIRECT).is_ok() {
        match transfer() {
            Ok(PAGE_SIZE) => return Ok(()),
            _ => fcntl_setfl(fd, plain).map_err(|errno| cannot(spec, "access the file", errno))?,
        }
    }
    match transfer() {
        Ok(PAGE_SIZE) => Ok(()),
        Ok(_) => Err(cannot(spec, "store a single page", Errno::NOSPC)),
        Err(errno) => Err(cannot(spec, "store a single page", errno)),
    }
}

fn exists(spec: &StoreSpec) -> StoreError {
    spec.unusable(
        "it exists already, and a scratch file would overwrite it",
        "name a file that does not exist, a directory to make one in, or a block device",
    )
}

fn cannot(spec: &StoreSpec, what: &str, errno: Errno) -> StoreError {
    let remedy = match errno {
        Errno::NOTDIR | Errno::NOENT => "check the path",
        Errno::ACCESS | Errno::PERM | Errno::ROFS => "name a place where you may write",
        Errno::BUSY => "unmount it, or end what uses it",
        Errno::NOSPC | Errno::DQUOT => "make room there, or name another place",
        Errno::FBIG => "give it a smaller size, or name a place on another file system",
        Errno::OPNOTSUPP | Errno::ISDIR => "name a file in it that does not exist",
        _ => "name another place",
    };
    spec.unusable(format_args!("cannot {what}: {errno}"), remedy)
}

fn punch(fd: &OwnedFd, first_slot: u32, slots: u32) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(fd, flags, offset_of(first_slot), u64::from(slots) * PAGE_SIZE as u64)
}

fn offset_of(slot: u32) -> u64 {
    u64::from(slot) * PAGE_SIZE as u64
}

/// Opens the store in one process.
pub(crate) fn open(spec: &StoreSpec, parts: SharedParts) -> Result<Arc<dyn Store>, StoreError> {
    let fd = parts.fd.ok_or_else(|| spec.unusable("the run's file did not arrive", "start the run anew"))?;
    let flags = fcntl_getfl(&fd).map_err(|errno| cannot(spec, "access the file", errno))?;
    let direct = flags.contains(OFlags::DIRECT);
    let file = ScratchFile {
        uri: spec.to_string(),
        slots: parts.capacity_slots,
        fd,
        direct,
        was_full: AtomicBool::new(false),
    };
    Ok(Arc::new(FileStore { file: Arc::new(file) }))
}

/// The store as one process sees it.
struct FileStore {
    file: Arc<ScratchFile>,
}

struct ScratchFile {
    uri: String,
    slots: u32,
    fd: OwnedFd,
    /// Opened with O_DIRECT: memory must be aligned.
    direct: bool,
    /// Space has run out once, so every slot is worth a hole.
    was_full: AtomicBool,
}

impl Store for FileStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Remote
    }

    fn uri(&self) -> &str {
        &self.file.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.file.slots
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let ring = Ring::open(IN_FLIGHT, &self.file.fd).ok();
        Ok(Box::new(FileLane { file: self.file.clone(), ring, bounce: Vec::new(), posted: Vec::new() }))
    }

    /// The file system may have less than the size that the user gave.
    fn room(&self) -> Option<Room> {
        let system = fstatvfs(&self.file.fd).ok()?;
        let used_bytes = self.stored_bytes();
        let capacity_bytes = used_bytes + system.f_bavail * system.f_frsize;
        (used_bytes > 0).then_some(Room { used_bytes, capacity_bytes })
    }

    fn stored_bytes(&self) -> u64 {
        fstat(&self.file.fd)
            .ok()
            .filter(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile)
            .map_or(0, |status| u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }
}

struct FileLane {
    file: Arc<ScratchFile>,
    /// None where io_uring does not work.
    ring: Option<Ring>,
    /// Stands in for pages that are not aligned.
    bounce: Vec<AlignedPage>,
    /// The slots of the reads that are posted.
    posted: Vec<u32>,
}

impl FileLane {
    /// Room in `bounce` for those of `pages` (addresses) that need it.
    fn make_bounce(&mut self, pages: impl Iterator<Item = usize>) {
        let needed = pages.filter(|address| self.file.needs_bounce(*address)).count();
        if self.bounce.len() < needed {
            self.bounce.resize(needed, AlignedPage([0; PAGE_SIZE]));
        }
    }
}

impl Lane for FileLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let mut requests: Vec<_> = batch.iter_mut().collect();
        requests.sort_unstable_by_key(|request| request.slot);
        let slots: Vec<_> = requests.iter().map(|request| request.slot).collect();
        self.make_bounce(requests.iter().map(|request| request.page.as_ptr() as usize));

        let mut bounce = self.bounce.iter_mut();
        let mut buffers: Vec<_> = requests
            .iter()
            .map(|request| {
                let bounced = self.file.needs_bounce(request.page.as_ptr() as usize);
                match bounced.then(|| bounce.next()).flatten() {
                    Some(aligned) => {
                        aligned.0 = *request.page;
                        IoSlice::new(&aligned.0)
                    }
                    None => IoSlice::new(request.page),
                }
            })
            .collect();
        let outcomes = self.file.transfer(&mut self.ring, &slots, &mut buffers);
        for (request, outcome) in requests.into_iter().zip(outcomes) {
            request.outcome = outcome.map_err(|errno| self.file.error("writing", request.slot, errno));
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        let mut requests: Vec<_> = batch.iter_mut().collect();
        requests.sort_unstable_by_key(|request| request.slot);
        let slots: Vec<_> = requests.iter().map(|request| request.slot).collect();
        self.make_bounce(requests.iter().map(|request| request.page.as_ptr() as usize));

        let mut bounce = self.bounce.iter_mut();
        let mut buffers: Vec<_> = requests
            .iter_mut()
            .map(|request| {
                let bounced = self.file.needs_bounce(request.page.as_ptr() as usize);
                match bounced.then(|| bounce.next()).flatten() {
                    Some(aligned) => IoSliceMut::new(&mut aligned.0),
                    None => IoSliceMut::new(&mut *request.page),
                }
            })
            .collect();
        let outcomes = self.file.transfer(&mut self.ring, &slots, &mut buffers);
        let mut bounce = self.bounce.iter();
        for (request, outcome) in requests.into_iter().zip(outcomes) {
            if self.file.needs_bounce(request.page.as_ptr() as usize)
                && let Some(aligned) = bounce.next()
            {
                *request.page = aligned.0;
            }
            request.outcome = outcome.map_err(|errno| self.file.error("reading", request.slot, errno));
        }
    }

    fn can_post(&self) -> bool {
        self.ring.is_some()
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.posted.clear();
        let Some(ring) = &mut self.ring else { return };
        // Those that are none fail when they are read.
        if slots.iter().any(|&slot| slot >= self.file.slots) {
            return;
        }
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        let runs = sorted.chunk_by(|one, next| one.checked_add(1) == Some(*next));
        let places: Vec<_> = runs.map(|run| (offset_of(run[0]), run.len())).collect();
        if ring.post_reads(&places).is_ok() {
            self.posted.extend_from_slice(slots);
        }
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        let is_posted = are_of(&self.posted, batch);
        self.posted.clear();
        let pages = self.ring.as_mut().filter(|_| is_posted).and_then(|ring| ring.complete_reads().ok());
        let Some(pages) = pages.filter(|pages| pages.iter().all(Result::is_ok)) else {
            // Page by page where need be, which says what is wrong with which.
            return self.read(batch);
        };
        let mut requests: Vec<_> = batch.iter_mut().collect();
        requests.sort_unstable_by_key(|request| request.slot);
        for (request, page) in requests.into_iter().zip(pages.into_iter().flatten()) {
            *request.page = *page;
            request.outcome = Ok(());
        }
    }

    fn discard(&mut self, slots: &[u32]) {
        for_each_run(slots, |first, count| {
            let count = count.min(self.file.slots.saturating_sub(first));
            if count >= SLOTS_WORTH_A_HOLE || self.file.was_full.load(Ordering::Relaxed) {
                // On failure the space stays taken until the slots are used again.
                let _ = punch(&self.file.fd, first, count);
            }
        });
    }
}

/// Memory of a page, to write from or to read into.
trait PageBuffer: Buffer + Sized {
    /// Leaves out the first `bytes` bytes.
    fn skip(&mut self, bytes: usize);
    /// Transfers without a ring.
    fn transfer(fd: &OwnedFd, buffers: &mut [Self], offset: u64) -> rustix::io::Result<usize>;
}

impl PageBuffer for IoSlice<'_> {
    fn skip(&mut self, bytes: usize) {
        self.advance(bytes);
    }

    fn transfer(fd: &OwnedFd, buffers: &mut [Self], offset: u64) -> rustix::io::Result<usize> {
        pwritev(fd, buffers, offset)
    }
}

impl PageBuffer for IoSliceMut<'_> {
    fn skip(&mut self, bytes: usize) {
        self.advance(bytes);
    }

    fn transfer(fd: &OwnedFd, buffers: &mut [Self], offset: u64) -> rustix::io::Result<usize> {
        preadv(fd, buffers, offset)
    }
}

impl ScratchFile {
    fn needs_bounce(&self, address: usize) -> bool {
        self.direct && !address.is_multiple_of(PAGE_SIZE)
    }

    /// Transfers a page for each of `slots`, which are sorted; an outcome for each.
    fn transfer<B: PageBuffer>(
        &self,
        ring: &mut Option<Ring>,
        slots: &[u32],
        buffers: &mut [B],
    ) -> Vec<Result<(), Errno>> {
        let (slots, beyond) = slots.split_at(slots.partition_point(|slot| *slot < self.slots));
        let runs = || {
            slots
                .chunk_by(|one, next| one.checked_add(1) == Some(*next))
                .flat_map(|run| run.chunks(PAGES_PER_TRANSFER))
        };
        let mut transfers = Vec::new();
        let mut rest = &mut *buffers;
        for run in runs() {
            let (pages, others) = rest.split_at_mut(run.len());
            rest = others;
            let offset = run.first().map_or(0, |slot| offset_of(*slot));
            transfers.push(Transfer { offset, buffers: pages, outcome: Ok(0) });
        }
        self.run(ring, &mut transfers);
        let whole: Vec<_> = transfers
            .iter()
            .map(|transfer| transfer.outcome == Ok(transfer.buffers.len() * PAGE_SIZE))
            .collect();

        // A run that failed, or came to an end early, may have pages that can be had: one by one.
        let mut outcomes = Vec::with_capacity(slots.len() + beyond.len());
        let mut buffers = buffers.iter_mut();
        for (run, whole) in runs().zip(whole) {
            for (slot, buffer) in run.iter().zip(&mut buffers) {
                outcomes.push(if whole { Ok(()) } else { self.finish_page(ring, *slot, buffer) });
            }
        }
        outcomes.extend(beyond.iter().map(|_| Err(Errno::NXIO)));
        outcomes
    }

    /// Transfers one page, in as many parts as it takes.
    fn finish_page<B: PageBuffer>(
        &self,
        ring: &mut Option<Ring>,
        slot: u32,
        page: &mut B,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < PAGE_SIZE {
            let offset = offset_of(slot) + done as u64;
            let buffers = std::slice::from_mut(page);
            let mut transfers = [Transfer { offset, buffers, outcome: Ok(0) }];
            self.run(ring, &mut transfers);
            match transfers.map(|transfer| transfer.outcome) {
                [Ok(0)] => return Err(Errno::IO),
                [Ok(bytes)] => {
                    done += bytes;
                    page.skip(bytes);
                }
                [Err(errno)] => return Err(errno),
            }
        }
        Ok(())
    }

    /// Runs the transfers by the ring, or one after the other where there is none (any more).
    fn run<B: PageBuffer>(&self, ring: &mut Option<Ring>, transfers: &mut [Transfer<'_, B>]) {
        if ring.as_mut().is_some_and(|ring| ring.run(transfers).is_ok()) {
            return;
        }
        *ring = None;
        for transfer in transfers {
            transfer.outcome = loop {
                match B::transfer(&self.fd, transfer.buffers, transfer.offset) {
                    Err(Errno::INTR) => {}
                    outcome => break outcome,
                }
            };
        }
    }

    fn error(&self, doing: &str, slot: u32, errno: Errno) -> StoreError {
        let store = self.uri.clone();
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                self.was_full.store(true, Ordering::Relaxed);
                StoreError::Full { store }
            }
            Errno::NXIO if slot >= self.slots => no_such_slot(&self.uri, slot, self.slots),
            errno => StoreError::Io { store, reason: format!("{doing} slot {slot}: {errno}") },
        }
    }
}

#[cfg(test)]
mod tests;
