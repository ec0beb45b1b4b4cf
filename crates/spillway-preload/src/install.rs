//! Which functions of libc are redirected.

use std::ffi::CStr;

use iced_x86::{BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, Instruction, InstructionBlock};
use rustix::io::Errno;
use spillway_sys::code_patch::{self, JUMP_BYTES};
use spillway_sys::maps;
use thiserror::Error;

use crate::originals::{
    CURRENT_BREAK, HEAP_START, ORIGINAL_CLONE, ORIGINAL_FORK, ORIGINAL_MUTEX_INIT, ORIGINAL_PTHREAD_CREATE,
};
use crate::{
    exec_hooks, fork_hooks, lock_hooks, memory_hooks, number_hooks, process_hooks, syscall_entry,
    thread_hooks, tier_marker,
};

/// Why the hooks cannot be put in.
#[derive(Debug, Error)]
pub enum InstallError {
    /// libc is not the one that Spillway knows.
    #[error("libc has no function '{0}': Spillway needs glibc 2.34 or later")]
    NoFunction(String),
    /// The kernel forbids changing code.
    #[error("the kernel refused to redirect libc's functions: {0}; a policy forbids writing to code")]
    Kernel(#[from] Errno),
    /// A function begins in a way that cannot be moved elsewhere.
    #[error("the beginning of libc's '{0}' cannot be moved")]
    Unmovable(String),
    /// `/proc` is not as it should be.
    #[error("where the heap starts cannot be read from /proc/self/stat: {0}; mount /proc")]
    NoHeapStart(std::io::Error),
}

/// Redirects libc's `syscall`, before the pager has threads: the locks of Rust's library wait by it, and a
/// thread that was stopped amid its first bytes would go on amid the jump.
pub fn install_syscall() -> Result<(), InstallError> {
    let entry = syscall_entry::before(move_beginning(c"syscall")?);
    // SAFETY: as below, and there is one thread.
    unsafe { code_patch::redirect(find(c"syscall")?, entry)? };
    Ok(())
}

/// Redirects libc's other functions, of which the pager's threads call none. Before the program's main.
pub fn install() -> Result<(), InstallError> {
    CURRENT_BREAK.get_or_init(|| find(c"__curbrk").unwrap_or(0));
    let heap_start = maps::heap_start().map_err(InstallError::NoHeapStart)?;
    HEAP_START.get_or_init(|| heap_start);
    let moved = [
        (c"_Fork", &ORIGINAL_FORK),
        (c"clone", &ORIGINAL_CLONE),
        (c"pthread_create", &ORIGINAL_PTHREAD_CREATE),
        (c"pthread_mutex_init", &ORIGINAL_MUTEX_INIT),
    ];
    for (name, original) in moved {
        let beginning = move_beginning(name)?;
        original.get_or_init(|| beginning);
    }
    let hooks: [(&CStr, usize); 21] = [
        (c"mmap", memory_hooks::mmap as *const () as usize),
        (c"munmap", memory_hooks::munmap as *const () as usize),
        (c"mremap", memory_hooks::mremap as *const () as usize),
        (c"madvise", memory_hooks::madvise as *const () as usize),
        (c"brk", memory_hooks::brk as *const () as usize),
        (c"mlock", lock_hooks::mlock as *const () as usize),
        (c"mlock2", lock_hooks::mlock2 as *const () as usize),
        (c"mlockall", lock_hooks::mlockall as *const () as usize),
        (c"munlockall", lock_hooks::munlockall as *const () as usize),
        (c"unshare", process_hooks::unshare as *const () as usize),
        (c"setns", process_hooks::setns as *const () as usize),
        (c"mincore", number_hooks::mincore as *const () as usize),
        (c"process_vm_readv", number_hooks::process_vm_readv as *const () as usize),
        (c"process_vm_writev", number_hooks::process_vm_writev as *const () as usize),
        (c"_Fork", fork_hooks::fork as *const () as usize),
        (c"clone", fork_hooks::clone as *const () as usize),
        (c"pthread_create", thread_hooks::pthread_create as *const () as usize),
        (c"pthread_mutex_init", thread_hooks::pthread_mutex_init as *const () as usize),
        (c"execve", exec_hooks::execve as *const () as usize),
        (c"execveat", exec_hooks::execveat as *const () as usize),
        (c"fexecve", exec_hooks::fexecve as *const () as usize),
    ];
    for (name, hook) in hooks {
        // SAFETY: libc's functions of these names begin with more than JUMP_BYTES bytes of straight code, the
        // hooks have their signatures, and the program's threads do not run yet.
        unsafe { code_patch::redirect(find(name)?, hook)? };
    }
    Ok(())
}

/// Redirects what a program of `spillway tier` needs: where threads and robust mutexes are made.
pub fn install_for_tier() -> Result<(), InstallError> {
    for (name, original) in
        [(c"pthread_create", &ORIGINAL_PTHREAD_CREATE), (c"pthread_mutex_init", &ORIGINAL_MUTEX_INIT)]
    {
        let beginning = move_beginning(name)?;
        original.get_or_init(|| beginning);
    }
    let hooks: [(&CStr, usize); 2] = [
        (c"pthread_create", tier_marker::pthread_create as *const () as usize),
        (c"pthread_mutex_init", tier_marker::pthread_mutex_init as *const () as usize),
    ];
    for (name, hook) in hooks {
        // SAFETY: as in `install`.
        unsafe { code_patch::redirect(find(name)?, hook)? };
    }
    Ok(())
}

/// Address of a function of libc proper, whatever other libraries define.
pub fn find(name: &CStr) -> Result<usize, InstallError> {
    // SAFETY: plain look-ups in a library that is loaded already.
    let address = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if libc.is_null() { std::ptr::null_mut() } else { libc::dlsym(libc, name.as_ptr()) }
    };
    if address.is_null() {
        return Err(InstallError::NoFunction(name.to_string_lossy().into_owned()));
    }
    Ok(address.expose_provenance())
}

/// Copies the first instructions of a function, as many as a jump overwrites, and appends a jump to the rest.
fn move_beginning(name: &CStr) -> Result<usize, InstallError> {
    const LONGEST_INSTRUCTION: usize = 15;
    const MOVED_BYTES: usize = 256;
    let function = find(name)?;
    // SAFETY: code of libc, which is never unloaded; a function is followed by others.
    let code = unsafe { code_patch::code_at(function, JUMP_BYTES + LONGEST_INSTRUCTION) };
    let mut decoder = Decoder::with_ip(64, code, function as u64, DecoderOptions::NONE);
    let mut instructions: Vec<Instruction> = Vec::new();
    while decoder.position() < JUMP_BYTES {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(InstallError::Unmovable(name.to_string_lossy().into_owned()));
        }
        instructions.push(instruction);
    }
    let rest = function + decoder.position();
    code_patch::place(MOVED_BYTES, |at| {
        let block = InstructionBlock::new(&instructions, at as u64);
        let mut moved = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
            .map_err(|_| InstallError::Unmovable(name.to_string_lossy().into_owned()))?
            .code_buffer;
        moved.extend([0xFF, 0x25, 0, 0, 0, 0]);
        moved.extend(rest.to_le_bytes());
        Ok(moved)
    })
}
