//! What stands in place of exec: the next program of the process is managed too, if it can be.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_pager::run::program::{Program, examine};
use spillway_pager::run::settings::RUN_VARIABLE;

use crate::inline::exec_strings::MOST_STRING_BYTES;
use crate::inline::system_calls::perform;
use crate::process::{complain, to_libc};
use crate::reach::{BadAddress, Reader};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// How every path of the library ends.
const OWN_LIBRARY: &[u8] = b"/libspillway_preload.so";

type Strings = *const *const c_char;

/// Stands in for libc's execve(2), so that the next program is managed too, if it can be.
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    to_libc(execute(None, path.expose_provenance(), arguments, environment, 0)) as c_int
}

/// Stands in for libc's execveat(2), as [`execve`] does for its own.
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    to_libc(execute(Some(directory), path.expose_provenance(), arguments, environment, flags)) as c_int
}

/// Either of them by number.
pub fn by_number(number: usize, a: [usize; 6]) -> Option<isize> {
    let strings = |at: usize| std::ptr::with_exposed_provenance(at);
    match number as i64 {
        libc::SYS_execve => Some(execute(None, a[0], strings(a[1]), strings(a[2]), 0)),
        libc::SYS_execveat => {
            Some(execute(Some(a[0] as c_int), a[1], strings(a[2]), strings(a[3]), a[4] as c_int))
        }
        _ => None,
    }
}

/// Returns the raw result, which there is only on failure. What cannot be read is passed on as it is: the
/// kernel knows what to say of it, and of what else is wrong.
fn execute(
    directory: Option<c_int>,
    path: usize,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> isize {
    let target = match directory {
        None => Reader::default().string(path, libc::PATH_MAX as usize).ok(),
        Some(_) => None,
    };
    let environment = Environment::new(environment, target.as_deref());
    let (arguments, given) = (arguments.expose_provenance(), environment.pointer());
    // The environment lives until the call returns.
    match directory {
        None => perform(libc::SYS_execve as usize, [path, arguments, given, 0, 0, 0], None),
        Some(directory) => {
            let words = [directory as usize, path, arguments, given, flags as usize, 0];
            perform(libc::SYS_execveat as usize, words, None)
        }
    }
}

/// Stands in for libc's fexecve(3), by an execveat(2) of the open file.
pub unsafe extern "C" fn fexecve(file: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own call, as libc makes it.
    unsafe { execveat(file, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH) }
}

/// The environment of the next program: the given one, with what brings Spillway along put in where it is
/// missing, or taken out where that ended the program.
struct Environment {
    given: Strings,
    /// Pointers, ended by null, where it had to be another.
    own: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl Environment {
    fn new(given: Strings, target: Option<&[u8]>) -> Self {
        let as_given = Self { given, own: Vec::new(), _strings: Vec::new() };
        let Some((library, run)) = own_variables() else { return as_given };
        let Ok(variables) = Variables::read(given) else { return as_given };
        if let Some(target) = target {
            let uid = rustix::process::getuid().as_raw();
            let path = Path::new(OsStr::from_bytes(target));
            let program = examine(path, uid);
            if let Some(reason) = program.unmanaged_because() {
                warn_once(path, reason);
                let is_foreign = matches!(program, Program::ForeignLoader(_));
                return if is_foreign { Self::without(variables, &library, given) } else { as_given };
            }
        }
        let has_run = variables.run.as_ref().is_some_and(|value| *value == run);
        let names = variables.preloaded();
        if has_run && names.contains(&&*library) {
            return as_given;
        }
        // A run that is started within this one after an upgrade names the library of another build, which
        // would be refused.
        let others = names.into_iter().filter(|name| !name.ends_with(OWN_LIBRARY));
        let value = std::iter::once(&*library).chain(others).collect::<Vec<_>>().join(&b':');
        Self::of(given, variables.others, &[(PRELOAD_VARIABLE, value), (RUN_VARIABLE, run)])
    }

    /// For a program whose loader would end it if Spillway's library were named to it.
    fn without(variables: Variables, library: &[u8], given: Strings) -> Self {
        let others: Vec<&[u8]> = variables.preloaded().into_iter().filter(|name| *name != library).collect();
        let set = if others.is_empty() { vec![] } else { vec![(PRELOAD_VARIABLE, others.join(&b':'))] };
        Self::of(given, variables.others, &set)
    }

    /// These variables, and others that lie elsewhere.
    fn of(given: Strings, others: Vec<*const c_char>, set: &[(&str, Vec<u8>)]) -> Self {
        let strings: Vec<CString> = set
            .iter()
            .filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value].concat()).ok())
            .collect();
        let mut pointers = others;
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

/// The variables of an environment: what matters here, and the addresses of the others.
#[derive(Default)]
struct Variables {
    preload: Option<Vec<u8>>,
    run: Option<Vec<u8>>,
    others: Vec<*const c_char>,
}

impl Variables {
    fn read(given: Strings) -> Result<Self, BadAddress> {
        let (mut variables, mut reader) = (Self::default(), Reader::default());
        // Linux takes no address for an empty environment (execve(2)).
        let pointers =
            if given.is_null() { Vec::new() } else { reader.pointers(given.expose_provenance())? };
        for pointer in pointers {
            let begins = |name: &str, string: &[u8]| {
                string.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
            };
            let beginning = reader.string(pointer, RUN_VARIABLE.len().max(PRELOAD_VARIABLE.len()) + 1)?;
            let place = if begins(PRELOAD_VARIABLE, &beginning) {
                (PRELOAD_VARIABLE, &mut variables.preload)
            } else if begins(RUN_VARIABLE, &beginning) {
                (RUN_VARIABLE, &mut variables.run)
            } else {
                variables.others.push(std::ptr::with_exposed_provenance(pointer));
                continue;
            };
            *place.1 = Some(reader.string(pointer + place.0.len() + 1, MOST_STRING_BYTES)?);
        }
        Ok(variables)
    }

    /// The names in `LD_PRELOAD`, which the loader has by colons or spaces between them.
    fn preloaded(&self) -> Vec<&[u8]> {
        let value = self.preload.as_deref().unwrap_or_default();
        value.split(|&byte| byte == b':' || byte == b' ').filter(|name| !name.is_empty()).collect()
    }
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
