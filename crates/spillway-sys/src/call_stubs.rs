//! System calls of another library that reach ours by a jump in place of their `syscall` instruction.
//!
//! Each patched site has a *stub* in this library's code and a *trap* behind it:
//!
//! - A call whose number is among the [direct](set_direct) ones is made in the stub itself. Nothing but what
//!   a `syscall` changes is changed, and nothing lies on any stack: it may return twice, or never.
//! - Any other is handed to the [handler](set_handler), on the thread's stack for signal handlers, as a
//!   signal would be. The handler may decline.
//! - Where it does, and where the thread has no such stack noted ([`use_stack`]), the trap's own `syscall`
//!   is made, from outside the code that dispatch lets pass, with all registers as they were.
//!
//! A site's flags are dead after its `syscall` (who finds the sites sees to that), and `rcx` and `r11` are
//! the kernel's to change. All three have unwind information: the stack goes on at the site
//! (pthread_cancel(3)).

use std::arch::{asm, global_asm};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use rustix::io::Result;
use rustix::mm::{MprotectFlags, mprotect};

use crate::page::PAGE_SIZE;
use crate::raw_thread::control_block;
use crate::signal::{self, STACK_BYTES};

/// Sites that can be patched.
pub const MOST_SITES: usize = 640;
/// Numbers of system calls from here on are never direct.
pub const NUMBERS: usize = 512;
/// Bytes of the jump that stands in a site's place.
pub const JUMP_BYTES: usize = 5;

const STUB_BYTES: usize = 128;
const TRAP_BYTES: usize = 32;
/// Within a stub, first: what was before the `syscall`, or nothing.
const BEFORE_BYTES: usize = 5;
/// Within a stub, behind its `syscall`: what was moved from the site.
const RESUME: usize = 23;
/// Within a stub, where it hands over.
const SLOW: usize = 91;
/// Within a stub: addresses of its trap, of [`RESUME`], and behind the site's own `syscall`.
const STUB_TRAP: usize = 104;
const STUB_RESUME: usize = 112;
const STUB_SITE: usize = 120;
/// Within a trap: the address where its stub goes on, and behind the site's own `syscall`.
const TRAP_RESUME: usize = 8;
const TRAP_SITE: usize = 16;
/// Bytes of instructions that a stub has room for.
pub const MOST_MOVED_BYTES: usize = SLOW - JUMP_BYTES - RESUME;
const SYSCALL_BYTES: usize = 2;

const _: () = assert!(
    (MOST_SITES * STUB_BYTES).is_multiple_of(PAGE_SIZE)
        && (MOST_SITES * TRAP_BYTES).is_multiple_of(PAGE_SIZE)
);

/// A bit for each system call that stubs make themselves: all of them, while nothing is served.
static DIRECT: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(u64::MAX) }; NUMBERS / 64];
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// A system call that has come by a stub, as it lies on the handler's stack.
#[repr(C)]
#[derive(Debug)]
pub struct StubCall {
    /// Its number; what it returns, once it is made.
    pub number: usize,
    /// Its arguments, in their order.
    pub arguments: [usize; 6],
    frame_pointer: usize,
    stub: usize,
    /// The caller's stack pointer.
    pub stack_pointer: usize,
}

/// Makes a call and stores its result, or returns false to have it made by the trap. Runs with signals let
/// in; it may be unwound.
pub type StubHandler = extern "C-unwind" fn(&mut StubCall) -> bool;

// The unwind information, in DWARF's words: where the return address lies (register 16). A stub's and a
// trap's is found by rounding the program counter down; the entry's by rcx, which has the stub's address,
// and once rbp points to the registers that were pushed, by what lies there. The caller's stack pointer is
// the CFA.
global_asm!(
    ".pushsection .text.spillway_stubs,\"ax\",@progbits",
    ".p2align 12",
    ".globl spillway_stubs",
    ".hidden spillway_stubs",
    ".type spillway_stubs,@function",
    "spillway_stubs:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // expression: rip & -128, + STUB_SITE
    ".cfi_escape 0x10, 0x10, 0x07, 0x80, 0x00, 0x09, 0x80, 0x1a, 0x23, 0x78",
    ".fill {stubs_bytes}, 1, 0xcc",
    ".cfi_endproc",
    ".size spillway_stubs, . - spillway_stubs",
    ".popsection",
    // Behind .text, so that the code which dispatch lets pass can end before it.
    ".pushsection .spillway_traps,\"ax\",@progbits",
    ".p2align 12",
    ".globl spillway_traps",
    ".hidden spillway_traps",
    ".type spillway_traps,@function",
    "spillway_traps:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // expression: rip & -32, + TRAP_SITE
    ".cfi_escape 0x10, 0x10, 0x07, 0x80, 0x00, 0x09, 0xe0, 0x1a, 0x23, 0x10",
    ".fill {traps_bytes}, 1, 0xcc",
    ".cfi_endproc",
    ".size spillway_traps, . - spillway_traps",
    ".popsection",
    // The thread's note of its stack: the note's own address where it is valid, the stack's top, and whether
    // none may be noted.
    ".pushsection .tbss.spillway_stack_note,\"awT\",@nobits",
    ".p2align 4",
    ".globl spillway_stack_note",
    ".hidden spillway_stack_note",
    ".type spillway_stack_note,@object",
    "spillway_stack_note:",
    ".zero 32",
    ".size spillway_stack_note, 32",
    ".popsection",
    ".pushsection .text.spillway_stub_entry,\"ax\",@progbits",
    ".globl spillway_stub_entry",
    ".hidden spillway_stub_entry",
    ".type spillway_stub_entry,@function",
    // rcx: the stub; rax and the others as for a system call.
    "spillway_stub_entry:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    // expression: rcx + STUB_SITE
    ".cfi_escape 0x10, 0x10, 0x03, 0x72, 0xf8, 0x00",
    "mov r11, qword ptr [rip + spillway_stack_note@GOTTPOFF]",
    "add r11, qword ptr fs:[0]",
    "cmp qword ptr [r11], r11",
    "jne 7f",
    // As the kernel chooses: below where the thread is, if that is on this stack, else from its top.
    "mov r11, qword ptr [r11 + 8]",
    "sub r11, rsp",
    "cmp r11, {stack_bytes}",
    "jbe 2f",
    "add r11, rsp",
    "jmp 3f",
    "2:",
    "lea r11, [rsp - 128]",
    "3:",
    "xchg rsp, r11",
    ".cfi_def_cfa r11, 0",
    "and rsp, -64",
    "push r11",
    "push rcx",
    "push rbp",
    "mov rbp, rsp",
    // CFA expression: *(rbp + 16); return address at *(rbp + 8) + STUB_SITE; rbp at rbp
    ".cfi_escape 0x0f, 0x03, 0x76, 0x10, 0x06",
    ".cfi_escape 0x10, 0x10, 0x05, 0x76, 0x08, 0x06, 0x23, 0x78",
    ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    // The handler is compiled for these vector registers and no others.
    "sub rsp, 256",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    "call qword ptr [rip + {handler}]",
    "movaps xmm0, [rsp]",
    "movaps xmm1, [rsp + 16]",
    "movaps xmm2, [rsp + 32]",
    "movaps xmm3, [rsp + 48]",
    "movaps xmm4, [rsp + 64]",
    "movaps xmm5, [rsp + 80]",
    "movaps xmm6, [rsp + 96]",
    "movaps xmm7, [rsp + 112]",
    "movaps xmm8, [rsp + 128]",
    "movaps xmm9, [rsp + 144]",
    "movaps xmm10, [rsp + 160]",
    "movaps xmm11, [rsp + 176]",
    "movaps xmm12, [rsp + 192]",
    "movaps xmm13, [rsp + 208]",
    "movaps xmm14, [rsp + 224]",
    "movaps xmm15, [rsp + 240]",
    "add rsp, 256",
    "test al, al",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "mov rcx, qword ptr [rbp + 8]",
    "mov r11, qword ptr [rbp + 16]",
    "mov rbp, qword ptr [rbp]",
    ".cfi_def_cfa r11, 0",
    ".cfi_escape 0x10, 0x10, 0x03, 0x72, 0xf8, 0x00",
    ".cfi_same_value rbp",
    "mov rsp, r11",
    ".cfi_def_cfa rsp, 0",
    "jz 7f",
    "jmp qword ptr [rcx + {stub_resume}]",
    "7:",
    "jmp qword ptr [rcx + {stub_trap}]",
    ".cfi_endproc",
    ".globl spillway_stub_entry_end",
    ".hidden spillway_stub_entry_end",
    "spillway_stub_entry_end:",
    ".size spillway_stub_entry, . - spillway_stub_entry",
    ".popsection",
    stubs_bytes = const MOST_SITES * STUB_BYTES,
    traps_bytes = const MOST_SITES * TRAP_BYTES,
    stack_bytes = const STACK_BYTES,
    handler = sym HANDLER,
    stub_resume = const STUB_RESUME,
    stub_trap = const STUB_TRAP,
);

unsafe extern "C" {
    fn spillway_stubs();
    fn spillway_traps();
    fn spillway_stub_entry();
    fn spillway_stub_entry_end();
}

fn stubs() -> usize {
    spillway_stubs as *const () as usize
}

/// Where the traps lie.
#[must_use]
pub fn traps() -> Range<usize> {
    let start = spillway_traps as *const () as usize;
    start..start + MOST_SITES * TRAP_BYTES
}

/// Whether `address` lies in a stub, a trap, or on the way from one to the handler: in code that has its
/// unwind information for each instruction.
#[must_use]
pub(crate) fn contains(address: usize) -> bool {
    let entry = spillway_stub_entry as *const () as usize..spillway_stub_entry_end as *const () as usize;
    let stubs = stubs()..stubs() + MOST_SITES * STUB_BYTES;
    entry.contains(&address) || stubs.contains(&address) || traps().contains(&address)
}

/// Stubs make these system calls themselves from now on.
pub fn set_direct(is_direct: impl Fn(usize) -> bool) {
    for (index, word) in DIRECT.iter().enumerate() {
        let bits = (0..64).filter(|bit| is_direct(index * 64 + bit)).fold(0, |bits, bit| bits | 1 << bit);
        word.store(bits, Ordering::Relaxed);
    }
}

/// Hands the others to `handler`.
pub fn set_handler(handler: StubHandler) {
    HANDLER.store(handler as *const () as usize, Ordering::Release);
}

/// A thread's note of its stack. The assembly above knows the order.
struct Note {
    own_address: usize,
    top: usize,
    is_refused: usize,
}

fn note() -> *mut Note {
    let address: usize;
    // SAFETY: reads where the note lies from the thread pointer, and the thread's pointer to itself.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + spillway_stack_note@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(nostack, readonly),
        );
    }
    ptr::with_exposed_provenance_mut(address)
}

/// Has the calling thread's stubs use the stack that its signal handlers run on (one of
/// [`AltStacks`](signal::AltStacks)), unless [`refuse_stack`] is in force. Costs little where that is so
/// already.
///
/// # Safety
/// The thread's storage is laid out by libc.
pub unsafe fn use_stack() {
    let note = note();
    // SAFETY: the thread's own note, which nobody else writes to while it runs.
    unsafe {
        if (*note).is_refused != 0 || (*note).own_address == note.expose_provenance() {
            return;
        }
        let start = signal::current_alt_stack();
        if start != 0 {
            (*note).top = start + STACK_BYTES;
            // A signal may come between the two.
            compiler_fence(Ordering::Release);
            (*note).own_address = note.expose_provenance();
        }
    }
}

/// Where the stack begins that the calling thread's stubs use. Within a call by a stub.
#[must_use]
pub fn noted_stack() -> usize {
    // SAFETY: the thread's own note.
    unsafe { (*note()).top - STACK_BYTES }
}

/// Has the calling thread's stubs use no stack where its storage lies, until they are let again: somebody
/// with a stack of their own is about to share that storage. Returns what was refused before.
///
/// # Safety
/// As for [`use_stack`].
pub unsafe fn refuse_stack(is_refused: bool) -> bool {
    let note = note();
    // SAFETY: the thread's own note.
    unsafe {
        (*note).own_address = 0;
        compiler_fence(Ordering::Release);
        std::mem::replace(&mut (*note).is_refused, usize::from(is_refused)) != 0
    }
}

/// Where the note lies of a thread with its storage at `thread_pointer`. Valid if the word there is its own
/// address.
#[must_use]
pub fn note_of(thread_pointer: usize) -> usize {
    thread_pointer.wrapping_add(note().expose_provenance().wrapping_sub(control_block()))
}

/// A place whose `syscall` can be replaced.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Where the jump is put: at the `syscall` instruction, or at the `mov eax` before it.
    pub address: usize,
    /// Behind the instructions that are moved.
    pub next: usize,
    /// What the `mov eax` before it loads, if that is overwritten.
    pub number: Option<u32>,
}

impl Site {
    /// Behind the `syscall` instruction.
    #[must_use]
    pub fn behind_call(&self) -> usize {
        self.address + SYSCALL_BYTES + self.number.map_or(0, |_| BEFORE_BYTES)
    }
}

/// Has each site jump to a stub. `encode` gives the instructions between a site's `syscall` and its `next`
/// for another address, as far as that can be. Returns how many sites that were.
///
/// # Errors
/// The kernel's, where it does not let code be changed.
///
/// # Safety
/// The sites lie in `code`, which stays mapped and in which no thread runs at this moment. Nothing jumps in
/// between a site's address and its `next`; flags are dead behind its `syscall`.
pub unsafe fn patch(
    code: &Range<usize>,
    sites: &[Site],
    encode: &mut dyn FnMut(&Site, usize) -> Option<Vec<u8>>,
) -> Result<usize> {
    // The handler would use more vector registers than the entry keeps.
    if cfg!(target_feature = "avx") {
        return Ok(0);
    }
    let run = MprotectFlags::READ | MprotectFlags::EXEC;
    // Other code of that library may be needed meanwhile.
    let write = run | MprotectFlags::WRITE;
    let parts = [stubs()..stubs() + MOST_SITES * STUB_BYTES, traps(), code.clone()];
    // SAFETY: no thread runs in any of them at this moment.
    parts.iter().try_for_each(|part| unsafe { protect(part, write) })?;
    let mut count = 0;
    for site in sites {
        let (stub, trap) = (stubs() + count * STUB_BYTES, traps().start + count * TRAP_BYTES);
        let Some(built) = encode(site, stub + RESUME).and_then(|moved| build(site, stub, trap, &moved))
        else {
            continue;
        };
        // SAFETY: writable since the calls above, and each is as long as what it gets.
        unsafe {
            put(stub, &built.stub);
            put(trap, &built.trap);
            put(site.address, &built.jump);
        }
        count += 1;
        if count == MOST_SITES {
            break;
        }
    }
    // SAFETY: as they were before.
    parts.iter().try_for_each(|part| unsafe { protect(part, run) })?;
    Ok(count)
}

struct Built {
    stub: [u8; STUB_BYTES],
    trap: [u8; TRAP_BYTES],
    jump: Vec<u8>,
}

/// A stub, its trap, and what leads there; `None` where something is too far away or too long.
fn build(site: &Site, stub: usize, trap: usize, moved: &[u8]) -> Option<Built> {
    const FILLER: u8 = 0xCC;
    let direct = DIRECT.as_ptr().expose_provenance();
    let mut code = Vec::with_capacity(STUB_BYTES);
    match site.number {
        Some(number) => {
            code.push(0xB8); // mov eax, number
            code.extend(number.to_le_bytes());
        }
        None => code.extend([0x0F, 0x1F, 0x44, 0, 0]), // nop
    }
    code.push(0x3D); // cmp eax, NUMBERS
    code.extend((NUMBERS as u32).to_le_bytes());
    code.extend([0x73, (SLOW - 12) as u8]); // jae SLOW
    code.extend([0x0F, 0xA3, 0x05]); // bt [DIRECT], eax
    code.extend(distance(stub + 19, direct)?);
    code.extend([0x73, (SLOW - 21) as u8]); // jnc SLOW
    code.extend([0x0F, 0x05]); // syscall
    debug_assert_eq!(code.len(), RESUME);
    code.extend(moved);
    code.extend(jump(stub + code.len(), site.next)?);
    if code.len() > SLOW {
        return None;
    }
    code.resize(SLOW, FILLER);
    code.extend([0x48, 0x8D, 0x0D]); // lea rcx, [stub]
    code.extend(distance(stub + SLOW + 7, stub)?);
    code.extend(jump(stub + SLOW + 7, spillway_stub_entry as *const () as usize)?);
    code.resize(STUB_TRAP, FILLER);
    let behind_call = site.behind_call();
    [trap, stub + RESUME, behind_call].iter().for_each(|address| code.extend(address.to_le_bytes()));
    let mut trap_code = vec![0x0F, 0x05, 0xFF, 0x25, 0, 0, 0, 0]; // syscall; jmp [TRAP_RESUME]
    trap_code.extend((stub + RESUME).to_le_bytes());
    trap_code.extend(behind_call.to_le_bytes());
    debug_assert_eq!(trap_code.len(), TRAP_SITE + 8);
    trap_code.resize(TRAP_BYTES, FILLER);
    let mut leads = jump(site.address, stub)?.to_vec();
    let overwritten = if site.number.is_some() { BEFORE_BYTES } else { site.next - site.address };
    leads.resize(overwritten, FILLER);
    Some(Built { stub: code.try_into().ok()?, trap: trap_code.try_into().ok()?, jump: leads })
}

const _: () = assert!(TRAP_RESUME == 8 && STUB_SITE == STUB_RESUME + 8 && STUB_RESUME == STUB_TRAP + 8);

fn distance(from: usize, to: usize) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from).cast_signed()).ok().map(i32::to_le_bytes)
}

/// A `jmp` that stands at `from`.
fn jump(from: usize, to: usize) -> Option<[u8; JUMP_BYTES]> {
    let [a, b, c, d] = distance(from + JUMP_BYTES, to)?;
    Some([0xE9, a, b, c, d])
}

/// # Safety
/// As mprotect(2) of the pages around `range`.
unsafe fn protect(range: &Range<usize>, protection: MprotectFlags) -> Result<()> {
    let start = range.start & !(PAGE_SIZE - 1);
    let bytes = range.end.next_multiple_of(PAGE_SIZE) - start;
    // SAFETY: by the caller's word.
    unsafe { mprotect(ptr::with_exposed_provenance_mut(start), bytes, protection) }
}

/// # Safety
/// So many bytes at `address` are writable, and nobody else uses them.
unsafe fn put(address: usize, bytes: &[u8]) {
    // SAFETY: by the caller's word.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(address), bytes.len());
    }
}
