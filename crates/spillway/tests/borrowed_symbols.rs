//! What the library in the program borrows of libc. Its threads bring the program's pages, so they may call
//! nothing that needs one, or that waits for a lock which a thread of the program may hold while it waits for
//! a page. strerror_r did both, for its translations.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Plain system calls, and what computes with its arguments alone.
const AT_ANY_TIME: &str = "
    __errno_location __tls_get_addr _exit abort bcmp clock_gettime clock_nanosleep close copy_file_range
    fcntl fstat64 getpid getrandom gettid log lseek64 madvise memcmp memcpy memmove memset mmap mmap64
    mprotect munmap open64 pause poll pread64 pthread_self read readlink sched_getaffinity
    sched_setscheduler sendfile64 sigaltstack splice stat64 statx strlen syscall sysconf write writev";

/// For threads that std makes and ends, which the library does before the program's main, if at all; and what
/// the C runtime puts into each library.
const OF_STD: &str = "
    _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __cxa_finalize __cxa_thread_atexit_impl
    __gmon_start__ pthread_attr_destroy pthread_attr_getguardsize pthread_attr_getstack pthread_attr_init
    pthread_attr_setstacksize pthread_create pthread_detach pthread_getattr_np pthread_key_create
    pthread_key_delete pthread_mutexattr_getrobust pthread_setname_np pthread_setspecific";

/// When a panic is told, after which the process ends.
const OF_PANICS: &str = "
    _Unwind_Backtrace _Unwind_DeleteException _Unwind_GetDataRelBase _Unwind_GetIP _Unwind_GetIPInfo
    _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase _Unwind_RaiseException
    _Unwind_Resume _Unwind_SetGR _Unwind_SetIP dl_iterate_phdr getcwd getenv realpath";

/// Before the program's main: its environment, what is loaded, where hooks go. What std has for names of
/// hosts is linked and never called in a program: stores are known by address there.
const AT_THE_START: &str = "
    __res_init dlopen dlsym exit freeaddrinfo gai_strerror getaddrinfo getauxval gnu_get_libc_version";

/// The library's own allocator stands before these; what the C runtime frees was made by it.
const OF_ALLOCATION: &str = "free malloc posix_memalign realloc";

#[test]
fn the_library_borrows_nothing_of_libc_that_nobody_has_thought_about() {
    let library = Path::new(env!("CARGO_BIN_EXE_spillway")).with_file_name("libspillway_preload.so");
    let output = Command::new("nm").args(["-D", "--undefined-only"]).arg(&library).output();
    let output = output.unwrap_or_else(|error| panic!("nm: {error}; install it: apt-get install binutils"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| line.split_whitespace().last()?.split('@').next().map(str::to_owned);
    let borrowed: BTreeSet<String> = text.lines().filter_map(name).collect();
    assert!(borrowed.contains("memcpy") && borrowed.len() > 50, "{borrowed:?}");
    let lists = [AT_ANY_TIME, OF_STD, OF_PANICS, AT_THE_START, OF_ALLOCATION];
    let known: BTreeSet<String> =
        lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect();
    let unknown: Vec<_> = borrowed.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "{unknown:?}: may a thread call these that brings the program's pages, while any other of its \
         threads waits for one? Put them where they belong, or do without"
    );
}
