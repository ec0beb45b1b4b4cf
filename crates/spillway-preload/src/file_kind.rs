//! What kind of file a descriptor is of.

use spillway_sys::raw;

/// The bits of `st_mode` that tell it (inode(7)); 0 where there is no such descriptor.
pub fn file_kind(descriptor: usize) -> libc::mode_t {
    /// `st_mode`, in words of eight bytes.
    const MODE: usize = 3;
    // Not on the stack, which may be memory that is far.
    let mut status = Box::new([0_u64; 18]);
    let at = status.as_mut_ptr().expose_provenance();
    // SAFETY: fstat(2) fills a `struct stat` of 144 bytes.
    let result = unsafe { raw::syscall(libc::SYS_fstat as usize, [descriptor, at, 0, 0, 0, 0]) };
    let mode = std::hint::black_box(status)[MODE] as u32;
    if result == 0 { mode & libc::S_IFMT } else { 0 }
}
