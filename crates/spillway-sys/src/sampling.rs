//! Where a thread and its children spend their time: the kernel looks many times a second what each of their CPUs does
//! (perf_event_open(2) with the software clock, which needs no hardware counters).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `struct perf_event_attr` of Linux `include/uapi/linux/perf_event.h`, version 5.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}
const _: () = assert!(size_of::<Attributes>() == 112);

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const SAMPLE_IP_TID_CALLCHAIN: u64 = 1 | 1 << 1 | 1 << 5;
/// `disabled`, `inherit` and `exclude_callchain_user` among the flags.
const FLAGS: u64 = 1 | 1 << 1 | 1 << 22;
const FRAMES: u16 = 24;
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Above this, an entry of a call chain says what follows and is no address (`PERF_CONTEXT_MAX`).
const CONTEXTS: u64 = -4095_i64 as u64;
const DATA_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// Where the kernel notes in the first page how far it has written, and we how far we have read.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = 1032;

/// What one look has found.
#[derive(Debug)]
pub struct Sample<'a> {
    /// The process.
    pub process: u32,
    /// Addresses in the kernel, innermost first; none where it ran in user space.
    pub kernel: &'a [u64],
}

/// Looks at the calling thread, and at all threads and processes that it starts from now on.
#[derive(Debug)]
pub struct Sampler {
    cpus: Vec<Buffer>,
    lost: u64,
}

impl Sampler {
    /// A sampler that is not started. It looks every `period_ns` of CPU time.
    ///
    /// # Errors
    /// EACCES or EPERM where `kernel.perf_event_paranoid` does not allow looking into the kernel.
    pub fn new(cpus: impl Iterator<Item = u32>, period_ns: u64) -> Result<Self> {
        let cpus = cpus.map(|cpu| Buffer::open(cpu, period_ns)).collect::<Result<_>>()?;
        Ok(Self { cpus, lost: 0 })
    }

    /// Starts or stops looking.
    pub fn enable(&self, on: bool) {
        for cpu in &self.cpus {
            let request = if on { IOC_ENABLE } else { IOC_DISABLE };
            // SAFETY: the request has no argument that is an address.
            unsafe { libc::ioctl(cpu.fd.as_raw_fd(), request, 0) };
        }
    }

    /// Hands out what was found since the last time.
    pub fn drain(&mut self, mut each: impl FnMut(&Sample<'_>)) {
        for cpu in &mut self.cpus {
            self.lost += cpu.drain(&mut each);
        }
    }

    /// Looks that found no room: drain more often.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The ring between the kernel and us for one CPU.
#[derive(Debug)]
struct Buffer {
    fd: OwnedFd,
    base: NonNull<u8>,
    record: Vec<u64>,
}

// SAFETY: the mapping belongs to the process; one thread at a time reads it, for it takes `&mut`.
unsafe impl Send for Buffer {}

impl Buffer {
    fn open(cpu: u32, period_ns: u64) -> Result<Self> {
        const CLOSE_ON_EXEC: usize = 8;
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: period_ns,
            sample_type: SAMPLE_IP_TID_CALLCHAIN,
            flags: FLAGS,
            sample_max_stack: FRAMES,
            ..Attributes::default()
        };
        let at = std::ptr::from_ref(&attributes).expose_provenance();
        let arguments = [at, 0, cpu as usize, usize::MAX, CLOSE_ON_EXEC, 0];
        // SAFETY: the attributes are as long as they say and outlive the call.
        let fd = unsafe { crate::raw::syscall(libc::SYS_perf_event_open as usize, arguments) };
        if fd < 0 {
            return Err(Errno::from_raw_os_error(-fd as i32));
        }
        // SAFETY: the kernel has just given it to us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = PAGE_BYTES + DATA_BYTES;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0)? };
        Ok(Self { fd, base: NonNull::new(base.cast()).ok_or(Errno::FAULT)?, record: Vec::new() })
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets lie in the first page, are aligned, and are accessed by atomics on both sides.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The word at a place of the stream; it starts again after [`DATA_BYTES`].
    fn word(&self, at: u64) -> u64 {
        let offset = at as usize % DATA_BYTES;
        // SAFETY: in range; records are aligned to words, and the kernel does not write what is not read yet.
        unsafe { self.base.as_ptr().add(PAGE_BYTES + offset).cast::<u64>().read_volatile() }
    }

    /// Returns how many samples were lost.
    fn drain(&mut self, each: &mut impl FnMut(&Sample<'_>)) -> u64 {
        let head = self.place(HEAD_OFFSET).load(Ordering::Acquire);
        let mut at = self.place(TAIL_OFFSET).load(Ordering::Relaxed);
        let mut lost = 0;
        while at < head {
            let header = self.word(at);
            let (kind, bytes) = (header as u32, header >> 48);
            let mut record = std::mem::take(&mut self.record);
            record.clear();
            record.extend((1..bytes / 8).map(|word| self.word(at + 8 * word)));
            match (kind, &record[..]) {
                (RECORD_SAMPLE, [_, ids, count, chain @ ..]) => {
                    let chain = &chain[..chain.len().min(*count as usize)];
                    // The first entry says where the next ones are.
                    let kernel = chain.split_first().map_or(&[][..], |(_, addresses)| addresses);
                    let end = kernel.iter().position(|&address| address >= CONTEXTS).unwrap_or(kernel.len());
                    each(&Sample { process: *ids as u32, kernel: &kernel[..end] });
                }
                (RECORD_LOST, [_, count, ..]) => lost += count,
                _ => {}
            }
            self.record = record;
            at += bytes.max(8);
        }
        fence(Ordering::Release);
        self.place(TAIL_OFFSET).store(at, Ordering::Release);
        lost
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), PAGE_BYTES + DATA_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_seen_in_the_kernel_and_out_of_it() {
        let cpus = std::thread::available_parallelism().unwrap().get() as u32;
        let mut sampler = match Sampler::new(0..cpus, 50_000) {
            Ok(sampler) => sampler,
            // Not allowed to this user.
            Err(error) => {
                assert!(matches!(error, Errno::ACCESS | Errno::PERM | Errno::NOSYS), "{error}");
                return;
            }
        };
        let (mut inside, mut outside) = (0, 0);
        let mut zeros = vec![0; 1 << 20];
        sampler.enable(true);
        while inside == 0 || outside == 0 {
            std::io::Read::read_exact(&mut std::fs::File::open("/dev/zero").unwrap(), &mut zeros).unwrap();
            zeros.fill(1);
            sampler.drain(|sample| {
                assert_eq!(sample.process, std::process::id());
                match sample.kernel {
                    [] => outside += 1,
                    // The upper half of the addresses.
                    [address, ..] => {
                        assert!(address >> 63 == 1, "{address:x}");
                        inside += 1;
                    }
                }
            });
        }
        sampler.enable(false);
        assert_eq!(sampler.lost(), 0);
    }
}
