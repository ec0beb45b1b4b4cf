//! Reads the kernel's own memory, through a BPF program of a few instructions that copies what lies at an
//! address. Nothing is written, and an address where nothing lies is an error. Needs CAP_BPF and CAP_PERFMON
//! (or root). Source: Linux `include/uapi/linux/bpf.h`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::io::{Errno, Result};

use crate::bpf::{self, instruction, last_error};

/// Most bytes read at once: a page.
pub const MOST_BYTES: usize = 4096;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SYSCALL: u32 = 31;
const PROG_SLEEPABLE: u32 = 1 << 4;

/// What the program is told. Address 0 asks for the address of the caller's task.
#[repr(C)]
struct Request {
    address: u64,
    bytes: u64,
}

/// A way into the kernel's memory.
#[derive(Debug)]
pub struct KernelMemory {
    program: OwnedFd,
    /// The program's map: one value of a page, which the program fills.
    _map: OwnedFd,
    window: NonNull<[u8; MOST_BYTES]>,
}

// SAFETY: the window belongs to this value alone.
unsafe impl Send for KernelMemory {}

/// The program: the request in r1.
fn instructions(map: i32) -> [u64; 22] {
    [
        instruction(0xBF, 6, 1, 0, 0),                 // r6 = request
        instruction(0x62, 10, 0, -4, 0),               // *(u32 *)(r10 - 4) = 0
        instruction(0xBF, 2, 10, 0, 0),                // r2 = r10
        instruction(0x07, 2, 0, 0, -4),                // r2 += -4
        instruction(0x18, 1, 1, 0, map),               // r1 = map
        instruction(0x00, 0, 0, 0, 0),                 //
        instruction(0x85, 0, 0, 0, 1),                 // r0 = bpf_map_lookup_elem(r1, r2)
        instruction(0x15, 0, 0, 12, 0),                // if r0 == 0 goto fail
        instruction(0xBF, 7, 0, 0, 0),                 // r7 = r0
        instruction(0x79, 3, 6, 0, 0),                 // r3 = request->address
        instruction(0x15, 3, 0, 5, 0),                 // if r3 == 0 goto task
        instruction(0x79, 2, 6, 8, 0),                 // r2 = request->bytes
        instruction(0x25, 2, 0, 7, MOST_BYTES as i32), // if r2 > 4096 goto fail
        instruction(0xBF, 1, 7, 0, 0),                 // r1 = r7
        instruction(0x85, 0, 0, 0, 113),               // r0 = bpf_probe_read_kernel(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),                 // return r0
        instruction(0x85, 0, 0, 0, 35),                // task: r0 = bpf_get_current_task()
        instruction(0x7B, 7, 0, 0, 0),                 // *(u64 *)r7 = r0
        instruction(0xB7, 0, 0, 0, 0),                 // r0 = 0
        instruction(0x95, 0, 0, 0, 0),                 // return r0
        instruction(0xB7, 0, 0, 0, -14),               // fail: r0 = -EFAULT
        instruction(0x95, 0, 0, 0, 0),                 // return r0
    ]
}

impl KernelMemory {
    /// Loads the program.
    ///
    /// # Errors
    /// EPERM without the right to; others where the kernel lacks BPF or is locked down.
    pub fn open() -> Result<Self> {
        let map = bpf::map(MAP_TYPE_ARRAY, 4, MOST_BYTES as u32, 1, MAP_MMAPABLE)?;
        let program = bpf::load(PROG_TYPE_SYSCALL, PROG_SLEEPABLE, &instructions(map.as_raw_fd()))?;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let window = unsafe {
            libc::mmap(null_mut(), MOST_BYTES, libc::PROT_READ, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if window == libc::MAP_FAILED {
            return Err(last_error());
        }
        let window: NonNull<[u8; MOST_BYTES]> = NonNull::new(window.cast()).ok_or(Errno::NOMEM)?;
        // A forked child has no use for it, and would share it.
        // SAFETY: changes no contents.
        unsafe { libc::madvise(window.as_ptr().cast(), MOST_BYTES, libc::MADV_DONTFORK) };
        Ok(Self { program, _map: map, window })
    }

    fn ask(&mut self, mut request: Request) -> Result<()> {
        // The kernel writes the request back.
        let context = std::ptr::from_mut(&mut request);
        // SAFETY: the context is a request, as the program expects, and lives through the call.
        let result = unsafe { bpf::run(&self.program, context.cast(), size_of::<Request>() as u32)? };
        if result == 0 { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// What lies at a kernel address; at most [`MOST_BYTES`], and valid until the next call.
    ///
    /// # Errors
    /// EFAULT where nothing lies.
    pub fn read(&mut self, address: u64, bytes: usize) -> Result<&[u8]> {
        self.ask(Request { address: address.max(1), bytes: bytes as u64 })?;
        // SAFETY: the program filled the window before its call returned, and only `ask` runs it, which needs
        // `&mut self`.
        Ok(&unsafe { self.window.as_ref() }[..bytes])
    }

    /// The word at a kernel address.
    ///
    /// # Errors
    /// EFAULT where nothing lies.
    pub fn word(&mut self, address: u64) -> Result<u64> {
        let mut word = [0; 8];
        word.copy_from_slice(self.read(address, 8)?);
        Ok(u64::from_ne_bytes(word))
    }

    /// The address of the `task_struct` of the calling thread.
    ///
    /// # Errors
    /// The program could not run.
    pub fn current_task(&mut self) -> Result<u64> {
        self.ask(Request { address: 0, bytes: 0 })?;
        // SAFETY: as in `read`.
        let window = unsafe { self.window.as_ref() };
        Ok(u64::from_ne_bytes([
            window[0], window[1], window[2], window[3], window[4], window[5], window[6], window[7],
        ]))
    }
}

impl Drop for KernelMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `open`, and no reference into it outlives this value.
        unsafe { libc::munmap(self.window.as_ptr().cast(), MOST_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::Btf;

    #[test]
    fn the_kernel_knows_this_thread_by_its_number_and_name() {
        let btf = Btf::of_kernel().unwrap();
        let mut memory = KernelMemory::open().unwrap();
        let task = memory.current_task().unwrap();
        let at = task + btf.offset("task_struct", "pid").unwrap() as u64;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(memory.read(at, 4).unwrap(), thread.to_ne_bytes());
        let at = task + btf.offset("task_struct", "comm").unwrap() as u64;
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(memory.read(at, 16).unwrap().starts_with(name.trim_end().as_bytes()));
    }

    #[test]
    fn an_address_where_nothing_lies_is_an_error() {
        let mut memory = KernelMemory::open().unwrap();
        assert_eq!(memory.read(0xFFFF_F000_0000_0000, 8).err(), Some(Errno::FAULT));
        assert_eq!(memory.read(0x10, 8).err(), Some(Errno::FAULT), "no user memory either");
    }
}
