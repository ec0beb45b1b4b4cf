//! bpf(2): maps, programs, running one. Source: Linux `include/uapi/linux/bpf.h`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};

const MAP_CREATE: usize = 0;
const MAP_UPDATE_ELEM: usize = 2;
const MAP_DELETE_ELEM: usize = 3;
const PROG_LOAD: usize = 5;
const PROG_TEST_RUN: usize = 10;

/// What the kernel's helpers ask of a program that calls them.
const LICENCE: &std::ffi::CStr = c"Dual BSD/GPL";

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// Calls bpf(2) with a command and its attributes.
fn bpf<T>(command: usize, attributes: &mut T) -> Result<i32> {
    // SAFETY: the attributes are of the command's form, and what they point to lives through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(last_error()) } else { Ok(result as i32) }
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just opened it for us.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// One instruction, encoded as the kernel reads it.
pub(crate) const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64 | ((to | from << 4) as u64) << 8 | (offset as u16 as u64) << 16 | (value as u32 as u64) << 32
}

/// Makes a map; its descriptor.
pub(crate) fn map(
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> Result<OwnedFd> {
    let mut create = MapCreate { map_type, key_bytes, value_bytes, entries, flags };
    Ok(owned(bpf(MAP_CREATE, &mut create)?))
}

/// Puts a number into a map whose keys and values have 4 bytes.
pub(crate) fn insert(map: &OwnedFd, key: u32, value: u32) -> Result<()> {
    let mut element = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(&key).expose_provenance() as u64,
        value: std::ptr::from_ref(&value).expose_provenance() as u64,
        ..MapElement::default()
    };
    bpf(MAP_UPDATE_ELEM, &mut element).map(|_| ())
}

/// Takes a number out of a map whose keys have 4 bytes.
pub(crate) fn remove(map: &OwnedFd, key: u32) -> Result<()> {
    let mut element = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(&key).expose_provenance() as u64,
        ..MapElement::default()
    };
    bpf(MAP_DELETE_ELEM, &mut element).map(|_| ())
}

/// Has the kernel check and load a program; its descriptor.
pub(crate) fn load(prog_type: u32, flags: u32, instructions: &[u64]) -> Result<OwnedFd> {
    let mut load = ProgLoad {
        prog_type,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        licence: LICENCE.as_ptr().expose_provenance() as u64,
        flags,
        ..ProgLoad::default()
    };
    Ok(owned(bpf(PROG_LOAD, &mut load)?))
}

/// Runs a program once; what it returns.
///
/// # Safety
/// The context is `bytes` long, of the form that the program expects, and may be written.
pub(crate) unsafe fn run(program: &OwnedFd, context: *mut u8, bytes: u32) -> Result<u32> {
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        context_in_bytes: bytes,
        context_in: context.expose_provenance() as u64,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut run)?;
    Ok(run.result)
}
