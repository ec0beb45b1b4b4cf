//! What `spillway run` needs of processes beyond the standard library.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getpid, getrlimit, kill_process, set_parent_process_death_signal, setrlimit,
};

/// The program is killed when its starter dies: without it, nobody could give back what it held.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died in between.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(std::io::Error::other("orphaned"))
        }
    };
    // SAFETY: the closure makes system calls only, which is allowed between fork and exec.
    unsafe { command.pre_exec(before_exec) };
}

/// The program and what it starts get no huge pages (`PR_SET_THP_DISABLE`).
pub fn without_huge_pages(command: &mut Command) {
    let before_exec = || {
        // SAFETY: changes a property of the calling process, and takes no pointer.
        let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(before_exec) };
}

/// Whether this process gets no huge pages (`PR_GET_THP_DISABLE`).
#[must_use]
pub fn is_without_huge_pages() -> bool {
    rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false)
}

/// Lets this process have as many descriptors as its hard limit allows (getrlimit(2)). Programs that it
/// starts from then on have that limit too, and old ones among them may not cope with it.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Ends this process by `signal`, so that its parent sees what became of the program; without a core dump of
/// its own.
pub fn end_by_signal(signal: i32) -> ! {
    let no_core = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, no_core);
    // SAFETY: sets the default action, which has no code to run.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: all zeros is an empty signal set, which the calls then fill and use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(getpid(), signal);
    }
    std::process::exit(128 + signal)
}

/// Puts a thread of this process into the scheduler's idle class, or back into the ordinary one (sched(7));
/// the latter needs CAP_SYS_NICE. EPERM without.
pub fn set_idle_class(thread: u32, idle: bool) -> rustix::io::Result<()> {
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    // SAFETY: all zeros is a valid parameter, and the only one that these classes allow.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter lives through the call.
    let result = unsafe { libc::sched_setscheduler(thread as libc::pid_t, policy, &parameter) };
    if result == 0 { Ok(()) } else { Err(rustix::io::Errno::PERM) }
}

/// Stops this process by SIGTSTP as if it had no handler, and returns when it is continued. Does nothing in
/// an orphaned process group, which nobody could continue.
pub fn stop_by_terminal_signal() {
    // SAFETY: all zeros is an action to be filled in, and the default one to be set; raise(3) sends to this
    // thread alone, so the signal has done its work before the handler is back.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &default, &mut before) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &before, std::ptr::null_mut());
        }
    }
}

/// Makes a copy of this process in a session of its own, in which it is by the time this process goes on.
/// True in the copy; false in this process, also when there can be no copy.
#[must_use]
pub fn split_off() -> bool {
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    // SAFETY: one other thread waits for signals and holds no lock; those that look after stores were paused
    // before, and what they could hold is not used in the copy.
    let in_copy = unsafe { libc::fork() } == 0;
    if in_copy {
        let _ = rustix::process::setsid();
    } else if let Ok((reader, writer)) = pipe {
        // Who waits for this process may end its group next. The copy has the pipe until it has left that.
        drop(writer);
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(&reader, &mut [0_u8; 1]));
    }
    in_copy
}

/// Signals that end a process and that are sent to all of a group, a session or a service at once.
const GROUP_SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGTSTP, libc::SIGPIPE];

/// Has `body` run in a process of its own, a copy of this one that has nothing open but `kept` and ends with
/// it. It is nobody's child, in a session of its own; it does not hear what is sent to all processes of a
/// service or a terminal, and nobody may trace it but root. Others see it by `name`, of which the first 15
/// bytes count.
///
/// # Errors
/// There can be no further process.
pub fn run_apart(name: &std::ffi::CStr, kept: OwnedFd, body: impl FnOnce(OwnedFd)) -> std::io::Result<()> {
    // SAFETY: the copy uses nothing of this process's other threads: it takes memory, for which fork(3) sees
    // to the allocator's locks, makes threads and system calls, and never returns.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            let _ = rustix::process::setsid();
            // SAFETY: as above; the copy has one thread by now.
            match unsafe { libc::fork() } {
                0 => end_at_once(i32::from(!live_apart(name, kept, body))),
                -1 => end_at_once(1),
                _ => end_at_once(0),
            }
        }
        child => {
            let mut status = 0;
            loop {
                // SAFETY: the status lives through the call.
                let ended = unsafe { libc::waitpid(child, &mut status, 0) };
                match std::io::Error::last_os_error() {
                    error if ended < 0 && error.kind() == std::io::ErrorKind::Interrupted => {}
                    error if ended < 0 => return Err(error),
                    _ if status == 0 => return Ok(()),
                    _ => return Err(std::io::Error::from(std::io::ErrorKind::WouldBlock)),
                }
            }
        }
    }
}

/// The life of such a process; false where it cannot begin.
fn live_apart(name: &std::ffi::CStr, kept: OwnedFd, body: impl FnOnce(OwnedFd)) -> bool {
    // SAFETY: changes this process's signals, name and whether it may be traced; the name lives through the
    // call.
    unsafe {
        for signal in GROUP_SIGNALS {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, 0);
    }
    const KEPT: RawFd = 3;
    let Ok(kept) = move_to(kept, KEPT) else { return false };
    // SAFETY: nothing in this process uses any other descriptor, and it never returns to code that owns one.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, KEPT + 1, u32::MAX, 0) };
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    let Ok(null) =
        null.as_ref().map_err(|_| ()).and_then(|null| if closed == 0 { Ok(null) } else { Err(()) })
    else {
        return false;
    };
    let _ = rustix::stdio::dup2_stdin(null);
    let _ = rustix::stdio::dup2_stdout(null);
    let _ = rustix::stdio::dup2_stderr(null);
    let _ = rustix::process::chdir("/");
    body(kept);
    true
}

/// Ends this process without anything that was to happen at the end of the one that it is a copy of.
fn end_at_once(status: i32) -> ! {
    // SAFETY: does not return, and runs nothing.
    unsafe { libc::_exit(status) }
}

/// Gives a descriptor a number that nothing has, closed on exec.
pub fn move_to(fd: OwnedFd, number: RawFd) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    let arguments = [fd.as_raw_fd() as usize, number as usize, libc::O_CLOEXEC as usize, 0, 0, 0];
    // SAFETY: takes no address.
    let result = unsafe { crate::raw::syscall(libc::SYS_dup3 as usize, arguments) };
    if result < 0 {
        return Err(rustix::io::Errno::from_raw_os_error(-result as i32));
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether the calling thread's file table has something by a number.
#[must_use]
pub fn is_open(fd: RawFd) -> bool {
    let arguments = [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: takes no address.
    unsafe { crate::raw::syscall(libc::SYS_fcntl as usize, arguments) >= 0 }
}

/// Closes all descriptors of the calling thread's file table but these: those of a thread that started with a
/// copy of its program's would keep pipes open that the program closes.
pub fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<usize> = kept.iter().filter_map(|&fd| usize::try_from(fd).ok()).collect();
    kept.sort_unstable();
    let mut from = 0;
    for end in kept.into_iter().chain([u32::MAX as usize + 1]) {
        if from < end {
            // SAFETY: takes no address.
            unsafe { crate::raw::syscall(crate::raw::SYS_CLOSE_RANGE, [from, end - 1, 0, 0, 0, 0]) };
        }
        from = end + 1;
    }
}

/// Closes a descriptor though somebody owns it: a forked child has its parent's.
pub fn close(fd: RawFd) {
    // SAFETY: takes no address.
    unsafe { crate::raw::syscall(libc::SYS_close as usize, [fd as usize, 0, 0, 0, 0, 0]) };
}
