//! What watches a program's memory by standing in libc's place itself. It would find our changes to libc
//! where it expects libc, and wait for itself: such a program runs unmanaged.

use std::ffi::CStr;

/// Functions by which a sanitizer begins, in the program or a library of its.
const BEGINNINGS: [(&CStr, &str); 4] = [
    (c"__asan_init", "it is built with AddressSanitizer"),
    (c"__hwasan_init", "it is built with HWAddressSanitizer"),
    (c"__msan_init", "it is built with MemorySanitizer"),
    (c"__tsan_init", "it is built with ThreadSanitizer"),
];
/// Valgrind preloads its libraries too.
const OF_VALGRIND: &str = "vgpreload";

/// Why a program is left alone that `preload` enters, and in which functions may be defined.
pub fn reason(preload: &str, is_defined: &dyn Fn(&CStr) -> bool) -> Option<&'static str> {
    if preload.contains(OF_VALGRIND) {
        return Some("Valgrind simulates it");
    }
    BEGINNINGS.iter().find(|(name, _)| is_defined(name)).map(|&(_, reason)| reason)
}

/// Whether this process has a function of that name.
pub fn is_defined(name: &CStr) -> bool {
    // SAFETY: a look-up by a name that ends with null.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizers_and_simulators_are_told_apart_from_programs() {
        assert_eq!(reason("/usr/lib/libspillway_preload.so", &|_| false), None);
        assert_eq!(reason("", &|name| name == c"__tsan_init"), Some("it is built with ThreadSanitizer"));
        let valgrinds = "/x/libspillway_preload.so:/usr/libexec/valgrind/vgpreload_core-amd64-linux.so";
        assert_eq!(reason(valgrinds, &|_| false), Some("Valgrind simulates it"));
        assert!(is_defined(c"malloc") && !is_defined(c"__tsan_init"));
    }
}
