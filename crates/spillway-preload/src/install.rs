//! Which functions of libc are redirected.

use std::ffi::CStr;
use std::sync::OnceLock;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, IcedError, Instruction, InstructionBlock,
};
use rustix::io::Errno;
use spillway_pager::attach::Startup;
use spillway_sys::code_patch::{self, JUMP_BYTES};
use spillway_sys::maps;
use thiserror::Error;

use crate::originals::{
    CURRENT_BREAK, HEAP_START, ORIGINAL_CLONE, ORIGINAL_FORK, ORIGINAL_MUTEX_INIT, ORIGINAL_PTHREAD_CREATE,
};
use crate::process::STARTUP;
use crate::{
    exec_hooks, fork_hooks, lock_hooks, memory_hooks, number_hooks, process_hooks, syscall_entry,
    thread_hooks,
};

/// Why the hooks cannot be put in.
#[derive(Debug, Error)]
pub enum InstallError {
    /// libc is not the one that Spillway knows.
    #[error("libc has no function '{0}': Spillway needs glibc 2.34 or later")]
    NoFunction(String),
    /// The kernel forbids changing code.
    #[error("the kernel refused to redirect libc's functions: {0}; a policy forbids writing to code")]
    Kernel(Errno),
    /// Threads that a library began before are in the functions all the time.
    #[error(
        "threads that a library began before the program do not leave libc's functions alone for a moment; \
         start it again, or without that library's threads (OPENBLAS_NUM_THREADS=1 for OpenBLAS)"
    )]
    Threads,
    /// A function begins in a way that cannot be moved elsewhere.
    #[error("the beginning of libc's '{0}' cannot be moved")]
    Unmovable(String),
    /// `/proc` is not as it should be.
    #[error("where the heap starts cannot be read from /proc/self/stat: {0}; mount /proc")]
    NoHeapStart(std::io::Error),
}

impl From<Errno> for InstallError {
    fn from(errno: Errno) -> Self {
        if errno == Errno::BUSY { Self::Threads } else { Self::Kernel(errno) }
    }
}

/// Redirects libc's `syscall`, before the pager has threads: the locks of Rust's library wait by it, and a
/// thread that was stopped amid its first bytes would go on amid the jump.
pub fn install_syscall() -> Result<(), InstallError> {
    let entry = syscall_entry::before(move_beginning(c"syscall")?);
    // SAFETY: as below.
    unsafe { code_patch::redirect_all(0, &[(find(c"syscall")?, entry)])? };
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
    let hooks: [(&CStr, usize); 24] = [
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
        (c"ioctl", number_hooks::ioctl as *const () as usize),
        (c"setsockopt", number_hooks::setsockopt as *const () as usize),
        (c"prctl", number_hooks::prctl as *const () as usize),
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
    redirect(hooks.into_iter())
}

/// Each name with its hook.
fn redirect<'a>(hooks: impl Iterator<Item = (&'a CStr, usize)>) -> Result<(), InstallError> {
    let own_threads = STARTUP.get().map_or(0, Startup::thread_count);
    let found: Result<Vec<(usize, usize)>, InstallError> =
        hooks.map(|(name, hook)| Ok((find(name)?, hook))).collect();
    // SAFETY: libc's functions of these names begin with more than JUMP_BYTES bytes of straight code, and the
    // hooks have their signatures.
    unsafe { code_patch::redirect_all(own_threads, &found?)? };
    Ok(())
}

/// Redirects some functions of libc alone: each name, where its moved beginning is noted, and its hook.
///
/// # Safety
/// The hooks have the signatures of libc's functions, which begin with more than [`JUMP_BYTES`] bytes of
/// straight code.
pub unsafe fn install_these(hooks: &[(&CStr, &OnceLock<usize>, usize)]) -> Result<(), InstallError> {
    for (name, original, _) in hooks {
        let beginning = move_beginning(name)?;
        original.get_or_init(|| beginning);
    }
    redirect(hooks.iter().map(|&(name, _, hook)| (name, hook)))
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
    let unmovable = || InstallError::Unmovable(name.to_string_lossy().into_owned());
    let function = find(name)?;
    // SAFETY: code of libc, which is never unloaded; a function is followed by others.
    let code = unsafe { code_patch::code_at(function, JUMP_BYTES + LONGEST_INSTRUCTION) };
    let beginning = beginning(code, function as u64).ok_or_else(unmovable)?;
    code_patch::place(MOVED_BYTES, |at| moved(&beginning, at as u64).map_err(|_| unmovable()))
}

/// The instructions that a jump overwrites, and one that leads to those behind them; `None` where `code` is
/// none.
fn beginning(code: &[u8], function: u64) -> Option<Vec<Instruction>> {
    let mut decoder = Decoder::with_ip(64, code, function, DecoderOptions::NONE);
    let mut instructions = Vec::new();
    while decoder.position() < JUMP_BYTES {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        instructions.push(instruction);
    }
    instructions.push(jump_to(decoder.ip()));
    Some(instructions)
}

/// A jump that stands nowhere yet. Decoded, since what makes instructions of other words takes each process
/// 80 KiB.
fn jump_to(target: u64) -> Instruction {
    const ITSELF: [u8; 5] = [0xE9, 0xFB, 0xFF, 0xFF, 0xFF];
    let mut jump = Decoder::with_ip(64, &ITSELF, target, DecoderOptions::NONE).decode();
    jump.set_ip(0);
    jump
}

/// The same for another address. Where that is far away, branches lead by addresses that lie behind the code.
fn moved(instructions: &[Instruction], at: u64) -> Result<Vec<u8>, IcedError> {
    let block = InstructionBlock::new(instructions, at);
    Ok(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)?.code_buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, ConditionCode};

    /// mov rax, -22; test rdi, rdi; je +0x40; and rsi, -16
    const CLONE: [u8; 16] =
        [0x48, 0xC7, 0xC0, 0xEA, 0xFF, 0xFF, 0xFF, 0x48, 0x85, 0xFF, 0x74, 0x40, 0x48, 0x83, 0xE6, 0xF0];

    /// Where instructions lead whose branches are taken, or not.
    fn end(code: &[u8], at: u64, is_taken: bool) -> u64 {
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        loop {
            let instruction = decoder.decode();
            assert!(!instruction.is_invalid(), "{code:02x?}");
            let to = match instruction.code() {
                Code::Jmp_rm64 => {
                    let from = (instruction.ip_rel_memory_address() - at) as usize;
                    return u64::from_le_bytes(code[from..from + 8].try_into().unwrap());
                }
                Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => instruction.near_branch_target(),
                _ if instruction.is_jcc_short_or_near() => {
                    let negated = instruction.condition_code() == ConditionCode::ne;
                    if is_taken == negated { continue } else { instruction.near_branch_target() }
                }
                _ => continue,
            };
            match to.checked_sub(at).filter(|&offset| offset < code.len() as u64) {
                Some(offset) => {
                    decoder.set_position(offset as usize).unwrap();
                    decoder.set_ip(to);
                }
                None => return to,
            }
        }
    }

    #[test]
    fn a_moved_beginning_goes_on_in_its_function_wherever_it_lies() {
        const FUNCTION: u64 = 0x7F00_0000_0000;
        let beginning = beginning(&CLONE, FUNCTION).unwrap();
        for at in [FUNCTION + 0x1000, FUNCTION - (3 << 30), 0x1000, FUNCTION + (1 << 40)] {
            let code = moved(&beginning, at).unwrap();
            assert_eq!(end(&code, at, false), FUNCTION + 16, "{at:#x}: {code:02x?}");
            assert_eq!(end(&code, at, true), FUNCTION + 0x4C, "{at:#x}: {code:02x?}");
        }
        assert!(super::beginning(&[0x06; 16], FUNCTION).is_none());
    }
}
