//! Threads that libc does not know of.
//!
//! The pager's threads run inside the target program, yet must stay clear of its libc: they are started in a
//! forked child while libc's locks are still held, keep their own table of file descriptors, take no signal,
//! and must not be counted, renamed or signalled as the program's own threads are. So they are made by
//! clone(2) directly, with thread-local storage laid out as the dynamic loader would (x86-64 ELF TLS, variant
//! II): the static block of every module that was there at start, initialised from its image, below the
//! thread control block. Code on such a thread may use anything but libc's allocator and libc's threads.

use std::arch::{asm, global_asm};
use std::ptr;
use std::sync::Arc;

use rustix::io::{Errno, Result};
use rustix::thread::Pid;

use crate::memory::Area;
use crate::page::PAGE_SIZE;

/// Room for glibc's `struct pthread`, 2,304 bytes in glibc 2.36.
const CONTROL_BLOCK_BYTES: usize = 2 * PAGE_SIZE;
const STACK_BYTES: usize = 512 << 10;
const GUARD_BYTES: usize = PAGE_SIZE;
const MAX_MODULES: usize = 64;
const VECTOR_ENTRIES: usize = MAX_MODULES + 2;

/// Offsets in the thread control block (glibc `tcbhead_t`), fixed by the ABI.
const TCB_SELF: usize = 0;
const TCB_VECTOR: usize = 8;
const TCB_THREAD: usize = 16;
const TCB_STACK_GUARD: usize = 0x28;
const TCB_POINTER_GUARD: usize = 0x30;

/// A word of the control block that glibc keeps for its layout's sake and never uses, and what ours hold
/// there.
const TCB_MARK: usize = 0x200;
const MARK: usize = usize::from_le_bytes(*b"SPILLWAY");

/// Whether the calling thread is one that [`start`] made. Looks at the control block only: thread-local
/// variables of the program's threads are found by way of memory from malloc, which may be far.
#[must_use]
pub fn is_raw_thread() -> bool {
    let mark: usize;
    // SAFETY: reads a word within the control block, which every thread of a glibc process has.
    unsafe { asm!("mov {}, fs:[0x200]", out(reg) mark, options(nostack, readonly, preserves_flags)) };
    mark == MARK
}

/// What a module's static TLS block holds at first.
#[derive(Clone, Copy, Default)]
struct Module {
    id: usize,
    below_control_block: usize,
    image: usize,
    image_bytes: usize,
}

/// The layout of thread-local storage in this process.
pub struct TlsLayout {
    modules: [Module; MAX_MODULES],
    count: usize,
    static_bytes: usize,
    stack_guard: usize,
    pointer_guard: usize,
}

/// Address of the calling thread's control block: no other live thread of the process has the same.
#[must_use]
pub fn control_block() -> usize {
    let address;
    // SAFETY: reads the control block's pointer to itself, which every thread of an ELF process has.
    unsafe { asm!("mov {}, fs:[0]", out(reg) address, options(nostack, readonly, preserves_flags)) };
    address
}

impl TlsLayout {
    /// The layout as the calling thread has it: modules loaded by now that lie in the static block. Called
    /// on an ordinary thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let base = control_block();
        // SAFETY: the control block of a live thread is readable at these offsets.
        let word = |offset| unsafe { *ptr::with_exposed_provenance::<usize>(base + offset) };
        let mut layout = Self {
            modules: [Module::default(); MAX_MODULES],
            count: 0,
            static_bytes: 0,
            stack_guard: word(TCB_STACK_GUARD),
            pointer_guard: word(TCB_POINTER_GUARD),
        };
        // SAFETY: the callback gets a pointer to `layout`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add_module), ptr::from_mut(&mut layout).cast()) };
        layout.static_bytes = layout.static_bytes.next_multiple_of(PAGE_SIZE);
        layout
    }
}

unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    layout: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid description, and `layout` is what of_this_thread passed.
    let (info, layout) = unsafe { (&*info, &mut *layout.cast::<TlsLayout>()) };
    // SAFETY: the loader vouches for the header table.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let Some(tls) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else { return 0 };
    let block = info.dlpi_tls_data.expose_provenance();
    let base = control_block();
    let is_static = block != 0 && block < base && base - block < 1 << 24;
    if is_static && layout.count < MAX_MODULES {
        layout.modules[layout.count] = Module {
            id: info.dlpi_tls_modid,
            below_control_block: base - block,
            image: (info.dlpi_addr + tls.p_vaddr) as usize,
            image_bytes: tls.p_filesz as usize,
        };
        layout.count += 1;
        layout.static_bytes = layout.static_bytes.max(base - block);
    }
    0
}

/// Stack and thread-local storage of one thread that is not running yet, or will never end. Takes memory once
/// the thread is started.
pub struct ThreadMemory {
    area: Area,
    control_block: usize,
    layout: Arc<TlsLayout>,
}

impl ThreadMemory {
    /// Memory for one thread.
    pub fn new(layout: &Arc<TlsLayout>) -> Result<Self> {
        let vector_bytes = (VECTOR_ENTRIES * 16).next_multiple_of(PAGE_SIZE);
        let bytes = GUARD_BYTES + STACK_BYTES + layout.static_bytes + CONTROL_BLOCK_BYTES + vector_bytes;
        let area = Area::reserve(bytes)?;
        area.commit(GUARD_BYTES, bytes)?;
        let control_block = area.address() + GUARD_BYTES + STACK_BYTES + layout.static_bytes;
        Ok(Self { area, control_block, layout: layout.clone() })
    }

    /// Lays the storage out afresh: in a forked child its parent's thread had this memory.
    ///
    /// # Safety
    /// No thread of this process runs on this memory.
    unsafe fn lay_out(&self) {
        let layout = &*self.layout;
        let offset = |address: usize| address - self.area.address();
        let word = |address: usize, value: usize| {
            // SAFETY: nobody uses the memory, by the caller's word.
            unsafe { self.area.write(offset(address), &value.to_ne_bytes()) }
        };
        let tls_start = self.control_block - layout.static_bytes;
        let _ = self.area.discard(offset(tls_start), self.area.bytes() - offset(tls_start));
        // The vector: a word of capacity before entry 0, entry 0 the generation, then one entry a module. A
        // generation that no module reaches keeps the loader from growing the vector by malloc.
        let vector = self.control_block + CONTROL_BLOCK_BYTES + 16;
        word(vector - 16, VECTOR_ENTRIES - 2);
        word(vector, isize::MAX as usize);
        (1..VECTOR_ENTRIES - 1).for_each(|id| word(vector + id * 16, usize::MAX));
        for module in &layout.modules[..layout.count] {
            let block = self.control_block - module.below_control_block;
            // SAFETY: the image is mapped for as long as its module, which is never unloaded: it was there at
            // start.
            let image = unsafe {
                std::slice::from_raw_parts(ptr::with_exposed_provenance(module.image), module.image_bytes)
            };
            // SAFETY: nobody uses the memory, by the caller's word.
            unsafe { self.area.write(offset(block), image) };
            if module.id < VECTOR_ENTRIES - 1 {
                word(vector + module.id * 16, block);
            }
        }
        word(self.control_block + TCB_SELF, self.control_block);
        word(self.control_block + TCB_VECTOR, vector);
        word(self.control_block + TCB_THREAD, self.control_block);
        word(self.control_block + TCB_MARK, MARK);
        word(self.control_block + TCB_STACK_GUARD, layout.stack_guard);
        word(self.control_block + TCB_POINTER_GUARD, layout.pointer_guard);
    }

    fn stack_top(&self) -> usize {
        self.area.address() + GUARD_BYTES + STACK_BYTES
    }
}

/// Whether a new thread shares its maker's table of file descriptors or starts with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTable {
    /// The thread shares its maker's file table.
    Shared,
    /// A copy of its own.
    Copied,
}

// rdi: flags, rsi: stack with entry and argument on it, rdx: control block.
global_asm!(
    ".pushsection .text.spillway_clone_thread,\"ax\",@progbits",
    ".type spillway_clone_thread,@function",
    "spillway_clone_thread:",
    "mov r8, rdx",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jnz 2f",
    "xor ebp, ebp",
    "pop rax",
    "pop rdi",
    "call rax",
    "ud2",
    "2:",
    "ret",
    ".size spillway_clone_thread, . - spillway_clone_thread",
    ".popsection",
);

unsafe extern "C" {
    fn spillway_clone_thread(flags: usize, stack: usize, control_block: usize) -> isize;
}

/// Starts `entry(argument)` on a new thread of this process, with all signals blocked. `entry` never returns.
///
/// # Safety
/// No thread may be running on `memory`. `entry` must keep to what the module says about libc.
pub unsafe fn start(
    memory: &'static ThreadMemory,
    files: FileTable,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<Pid> {
    // SAFETY: by the caller's word.
    unsafe { memory.lay_out() };
    let mut flags = libc::CLONE_VM
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_FS
        | libc::CLONE_SETTLS;
    if files == FileTable::Shared {
        flags |= libc::CLONE_FILES;
    }
    // The entry is called with the stack 16-byte aligned before the call pushes its return address.
    let stack = memory.stack_top() - 16;
    let offset = stack - memory.area.address();
    let start = [entry as *const () as usize, argument];
    for (at, word) in start.into_iter().enumerate() {
        // SAFETY: a fresh stack that nobody else uses, by the caller's word.
        unsafe { memory.area.write(offset + at * 8, &word.to_ne_bytes()) };
    }
    let signals = SignalsBlocked::new();
    // SAFETY: a fresh stack and control block that nobody else uses, by the caller's word.
    let result = unsafe { spillway_clone_thread(flags as usize, stack, memory.control_block) };
    drop(signals);
    match i32::try_from(result) {
        Ok(pid) if pid > 0 => Pid::from_raw(pid).ok_or(Errno::AGAIN),
        _ => Err(Errno::from_raw_os_error(-result as i32)),
    }
}

/// Ends the calling raw thread.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: exit(2) ends only the calling thread and takes no address.
        unsafe { crate::raw::syscall(libc::SYS_exit as usize, [0; 6]) };
    }
}

/// All signals of the calling thread are blocked while this lives.
pub struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    /// Blocks all signals on the calling thread.
    #[must_use]
    pub fn new() -> Self {
        let mut before = 0;
        Self::set(&u64::MAX, &mut before);
        Self { before }
    }

    /// Blocks them but for those of a mask.
    #[must_use]
    pub fn but(spared: u64) -> Self {
        let mut before = 0;
        Self::set(&!spared, &mut before);
        Self { before }
    }

    fn set(mask: &u64, before: &mut u64) {
        let arguments = [
            libc::SIG_SETMASK as usize,
            ptr::from_ref(mask).expose_provenance(),
            ptr::from_mut(before).expose_provenance(),
            size_of::<u64>(),
            0,
            0,
        ];
        // SAFETY: rt_sigprocmask reads one mask of eight bytes and writes the other.
        unsafe { crate::raw::syscall(libc::SYS_rt_sigprocmask as usize, arguments) };
    }
}

impl Default for SignalsBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        Self::set(&self.before, &mut 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    thread_local! {
        static LOCAL: Cell<u64> = const { Cell::new(5) };
    }

    static REPORT: AtomicU64 = AtomicU64::new(0);
    static MANY: AtomicU64 = AtomicU64::new(0);

    extern "C" fn uses_thread_locals(argument: usize) -> ! {
        assert!(is_raw_thread());
        LOCAL.set(LOCAL.get() + argument as u64);
        // errno is thread-local too: a failing call must not disturb another thread's.
        let error = std::fs::File::open("/nonexistent").unwrap_err();
        REPORT.store(LOCAL.get() * 100 + u64::from(error.raw_os_error() == Some(2)), SeqCst);
        exit_thread()
    }

    extern "C" fn counts(_: usize) -> ! {
        MANY.fetch_add(1, SeqCst);
        exit_thread()
    }

    fn wait_until(what: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if what() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the thread did not report");
    }

    #[test]
    fn thread_locals_start_afresh_and_are_separate() {
        assert!(!is_raw_thread());
        LOCAL.set(1000);
        let layout = Arc::new(TlsLayout::of_this_thread());
        let memory = Box::leak(Box::new(ThreadMemory::new(&layout).unwrap()));
        // SAFETY: fresh memory; the entry keeps to the rules but for one allocation, made by no other thread
        // with this thread-local arena.
        unsafe { start(memory, FileTable::Shared, uses_thread_locals, 7) }.unwrap();
        wait_until(|| REPORT.load(SeqCst) != 0);
        assert_eq!(REPORT.load(SeqCst), 1201);
        assert_eq!(LOCAL.get(), 1000);
    }

    #[test]
    fn many_threads_start() {
        let layout = Arc::new(TlsLayout::of_this_thread());
        for _ in 0..20 {
            let memory = Box::leak(Box::new(ThreadMemory::new(&layout).unwrap()));
            // SAFETY: fresh memory; the entry keeps to the rules.
            unsafe { start(memory, FileTable::Copied, counts, 0) }.unwrap();
        }
        wait_until(|| MANY.load(SeqCst) == 20);
    }
}
