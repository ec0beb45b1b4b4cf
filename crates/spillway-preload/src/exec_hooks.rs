//! What stands in place of exec: the next program of the process is managed too, if it can be.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_pager::program::{Program, examine};
use spillway_pager::settings::RUN_VARIABLE;

use crate::inline::system_calls::perform;
use crate::process::{complain, to_libc};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

type Strings = *const *const c_char;

/// execve(2).
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let target = (!path.is_null()).then(|| {
        // SAFETY: the program passes a string, or the kernel call below would fail too.
        unsafe { CStr::from_ptr(path) }.to_owned()
    });
    let environment = Environment::new(environment, target.as_deref());
    let words = [path.expose_provenance(), arguments.expose_provenance(), environment.pointer(), 0, 0, 0];
    // The environment lives until the call returns, which it does only on failure.
    to_libc(perform(libc::SYS_execve as usize, words, None)) as c_int
}

/// execveat(2).
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let environment = Environment::new(environment, None);
    let words = [
        directory as usize,
        path.expose_provenance(),
        arguments.expose_provenance(),
        environment.pointer(),
        flags as usize,
        0,
    ];
    to_libc(perform(libc::SYS_execveat as usize, words, None)) as c_int
}

/// fexecve(3).
pub unsafe extern "C" fn fexecve(file: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own call, as libc makes it.
    unsafe { execveat(file, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH) }
}

/// The environment of the next program: the given one, with what brings Spillway along put in where it is missing.
struct Environment {
    given: Strings,
    /// Pointers, ended by null, where something had to be put in.
    own: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl Environment {
    fn new(given: Strings, target: Option<&CStr>) -> Self {
        let as_given = Self { given, own: Vec::new(), _strings: Vec::new() };
        let (Some((library, run)), false) = (own_variables(), given.is_null()) else { return as_given };
        if let Some(target) = target {
            // SAFETY: getuid takes and touches nothing.
            let uid = rustix::process::getuid().as_raw();
            let path = Path::new(OsStr::from_bytes(target.to_bytes()));
            if let Program::Unmanageable(reason) = examine(path, uid) {
                warn_once(path, reason);
                return as_given;
            }
        }
        let (mut pointers, mut preload, mut has_run) = (Vec::new(), None, false);
        // SAFETY: an environment is an array of strings that ends with null.
        for pointer in (0..).map(|i| unsafe { *given.add(i) }).take_while(|pointer| !pointer.is_null()) {
            // SAFETY: as above.
            let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
            match split(bytes) {
                (name, value) if name == PRELOAD_VARIABLE.as_bytes() => preload = Some(value.to_vec()),
                (name, value) if name == RUN_VARIABLE.as_bytes() && value == run => {
                    has_run = true;
                    pointers.push(pointer);
                }
                (name, _) if name == RUN_VARIABLE.as_bytes() => {}
                _ => pointers.push(pointer),
            }
        }
        let has_library = preload.as_ref().is_some_and(|value| {
            value.split(|&byte| byte == b':' || byte == b' ').any(|name| name == library)
        });
        if has_run && has_library {
            return as_given;
        }
        let mut value = library;
        if let Some(others) = preload.filter(|others| !others.is_empty()) {
            value.push(b':');
            value.extend(others);
        }
        let strings: Vec<CString> = [(PRELOAD_VARIABLE, value), (RUN_VARIABLE, run)]
            .into_iter()
            .filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", &value].concat()).ok())
            .collect();
        pointers.extend(strings.iter().map(|string| string.as_ptr()));
        pointers.push(std::ptr::null());
        Self { given, own: pointers, _strings: strings }
    }

    fn pointer(&self) -> usize {
        if self.own.is_empty() {
            self.given.expose_provenance()
        } else {
            self.own.as_ptr().expose_provenance()
        }
    }
}

fn split(variable: &[u8]) -> (&[u8], &[u8]) {
    let at = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
    (&variable[..at], variable.get(at + 1..).unwrap_or_default())
}

/// This library's path and the run's variable, as this process was started with them.
fn own_variables() -> Option<(Vec<u8>, Vec<u8>)> {
    crate::process::OWN_VARIABLES.get().cloned()
}

/// Names a program that runs unmanaged; each once a process, as far as 64 bits can tell.
fn warn_once(path: &Path, reason: &str) {
    static WARNED: AtomicU64 = AtomicU64::new(0);
    let hash = path
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(5381_u64, |hash, &byte| hash.wrapping_mul(33) ^ u64::from(byte));
    let bit = 1 << (hash % 64);
    if WARNED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        complain(&format!("{} runs unmanaged: {reason}", path.display()));
    }
}
