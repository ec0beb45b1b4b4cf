//! What there is of this library in a program that `spillway tier` manages: a thread that marks pages for the
//! daemon ([`spillway_marker`]), and two hooks, for pages to which the kernel writes as a thread ends. Where
//! the marker cannot be had the program runs as without it, and the daemon is told why.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::OnceLock;

use spillway_marker::call::call;
use spillway_marker::excluded::exclude;
use spillway_marker::marker::Marker;
use spillway_marker::wire::SOCKET_VARIABLE;
use spillway_pager::run::rendezvous::BUILD_NUMBER;
use spillway_sys::process::{close, close_all_but};
use spillway_sys::raw_thread::{self, FileTable, ThreadMemory, TlsLayout, control_block, exit_thread};

use crate::install;
use crate::originals::{ORIGINAL_MUTEX_INIT, ORIGINAL_PTHREAD_CREATE};
use crate::thread_hooks::{MutexInit, PthreadCreate, Start, is_robust};

/// glibc's `struct pthread`, 2,304 bytes in 2.36: a thread's number, its list of robust mutexes and what
/// rseq(2) writes are there.
const DESCRIPTOR_BYTES: usize = 4096;

static MEMORY: OnceLock<ThreadMemory> = OnceLock::new();

/// Before the program's main. No more than a try: the program must run either way.
pub fn start() {
    let Some(name) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let layout = Arc::new(TlsLayout::of_this_thread());
    let Ok(memory) = ThreadMemory::new(&layout) else { return };
    let memory = MEMORY.get_or_init(|| memory);
    let Ok(marker) = call(name.as_encoded_bytes(), BUILD_NUMBER) else { return };
    // With one hook alone no page would be safe, so without them there is no marker.
    let hooks = [
        (c"pthread_create", &ORIGINAL_PTHREAD_CREATE, pthread_create as *const () as usize),
        (c"pthread_mutex_init", &ORIGINAL_MUTEX_INIT, pthread_mutex_init as *const () as usize),
    ];
    // SAFETY: the hooks below have these functions' signatures, of which `install` redirects the same in
    // programs of `spillway run`, and the program's main has not begun.
    if unsafe { install::install_these(&hooks) }.is_err() {
        return;
    }
    exclude(control_block(), DESCRIPTOR_BYTES);
    let descriptors = marker.descriptors();
    let marker = Box::into_raw(Box::new(marker));
    // SAFETY: nobody else has the memory. The marker uses neither malloc nor libc's threads.
    let started = unsafe { raw_thread::start(memory, FileTable::Copied, enter, marker.expose_provenance()) };
    if started.is_ok() {
        // The thread has its own.
        descriptors.into_iter().for_each(close);
    } else {
        // SAFETY: no thread was made that would take it.
        drop(unsafe { Box::from_raw(marker) });
    }
}

extern "C" fn enter(marker: usize) -> ! {
    // SAFETY: `start` leaked it for this one thread.
    let marker = unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Marker>(marker)) };
    close_all_but(&marker.descriptors());
    marker.run();
    exit_thread()
}

/// pthread_create(3). Where libc keeps what it knows of a thread is never marked.
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(&original) = ORIGINAL_PTHREAD_CREATE.get() else { return libc::EAGAIN };
    // SAFETY: the moved beginning of `pthread_create`, which has this signature.
    let original: PthreadCreate = unsafe { std::mem::transmute(original) };
    // SAFETY: the program's own call.
    let result = unsafe { original(thread, attributes, start, argument) };
    if result == 0 {
        // SAFETY: libc has just written it. What it names is the address of its description, which may be
        // gone by now: it is not looked at.
        exclude(unsafe { *thread } as usize, DESCRIPTOR_BYTES);
    }
    result
}

/// pthread_mutex_init(3). A robust mutex is never marked.
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    let Some(&original) = ORIGINAL_MUTEX_INIT.get() else { return libc::EAGAIN };
    // SAFETY: the program's attributes, which libc reads in any case.
    if unsafe { is_robust(attributes) } {
        exclude(mutex.expose_provenance(), size_of::<libc::pthread_mutex_t>());
    }
    // SAFETY: the moved beginning of `pthread_mutex_init`, which has this signature.
    let original: MutexInit = unsafe { std::mem::transmute(original) };
    // SAFETY: the program's own call.
    unsafe { original(mutex, attributes) }
}
