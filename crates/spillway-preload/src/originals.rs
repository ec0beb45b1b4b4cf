//! What of libc's redirected functions stays callable, and where its break lies. Set when the hooks are put
//! in.

use std::sync::OnceLock;

/// The body of `_Fork` after its beginning was overwritten: callable as before.
pub static ORIGINAL_FORK: OnceLock<usize> = OnceLock::new();
/// The same of `clone`.
pub static ORIGINAL_CLONE: OnceLock<usize> = OnceLock::new();
/// The same of `pthread_create`.
pub static ORIGINAL_PTHREAD_CREATE: OnceLock<usize> = OnceLock::new();
/// The same of `pthread_mutex_init`.
pub static ORIGINAL_MUTEX_INIT: OnceLock<usize> = OnceLock::new();
/// libc's `__curbrk`, which sbrk reads.
pub static CURRENT_BREAK: OnceLock<usize> = OnceLock::new();
/// The lowest break that the kernel grants.
pub static HEAP_START: OnceLock<usize> = OnceLock::new();
