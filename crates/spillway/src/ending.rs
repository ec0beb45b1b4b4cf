//! A program that was told to end, and hangs in Spillway. Its own way of ending takes as long as it likes,
//! as it would without us; but where it waits for memory that does not come, or one of our hooks keeps the
//! signal from it, it cannot go that way.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Signals that tell a program to end.
pub const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// What holds for so many looks in a row, half a second and a little more, has lasted: where a store is known
/// to be silent.
const LOOKS: u32 = 8;
/// Elsewhere it takes five seconds: a page may be slow, on a busy machine or where a donor has just died, and
/// who waits for it may want to end well.
const LOOKS_AT_SLOW: u32 = 64;
const BETWEEN_LOOKS: Duration = Duration::from_millis(80);
/// Who goes on for so long after it was told to end has decided to.
const WATCHED: Duration = Duration::from_secs(60);

/// What a thread of the program was like at one look (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    thread: u32,
    /// Page faults so far, and time in its own code, in ticks: a thread that waits for one page has no more
    /// of either.
    progress: [u64; 3],
    /// It has entered the kernel by a fault.
    is_in_fault: bool,
    /// It runs or sleeps; not stopped, dead, or waiting for a disk.
    is_able: bool,
    pending: u64,
    blocked: u64,
}

/// Signals 32 and 33 are libc's own, which no program can block by libc; the pager's hooks block them with
/// the rest.
const BLOCKED_BY_HOOKS: u64 = 0b11 << 31;

impl Look {
    fn read(process: Pid, thread: u32) -> Option<Self> {
        let file = |name: &str| {
            fs::read_to_string(format!("/proc/{}/task/{thread}/{name}", process.as_raw_nonzero())).ok()
        };
        Self::parse(thread, &file("stat")?, &file("status")?, &file("syscall").unwrap_or_default())
    }

    fn parse(thread: u32, stat: &str, status: &str, syscall: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        // Counted from the state: minflt, majflt and utime.
        let number = |index: usize| fields.get(index).and_then(|text| text.parse().ok());
        let mask = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            u64::from_str_radix(line.trim(), 16).ok()
        };
        Some(Self {
            thread,
            progress: [number(7)?, number(9)?, number(11)?],
            is_in_fault: syscall.starts_with("-1 "),
            is_able: matches!(fields.first(), Some(&("R" | "S"))),
            pending: mask("ShdPnd:")? | mask("SigPnd:")?,
            blocked: mask("SigBlk:")?,
        })
    }

    /// Whether it may hang in Spillway, `is_first` being the program's first thread. `busy` says that the
    /// pager is at work for the process.
    fn may_hang(&self, signal: Signal, is_first: bool, busy: bool) -> bool {
        let bit = 1 << (signal.as_raw() - 1);
        let (is_pending, is_blocked) = (self.pending & bit != 0, self.blocked & bit != 0);
        let is_held_back = is_pending && is_first && self.blocked & BLOCKED_BY_HOOKS == BLOCKED_BY_HOOKS;
        // A system call that copies into far memory, which a signal does not interrupt.
        let is_in_copy = is_pending && !is_blocked && busy;
        self.is_able && (self.is_in_fault || is_held_back || is_in_copy)
    }
}

/// The threads that may hang. In inline mode a hook that waits does so with system calls, so its time goes
/// on.
fn hanging(process: Pid, signal: Signal, busy: bool) -> Vec<Look> {
    let tasks =
        fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    threads
        .filter_map(|thread| Look::read(process, thread))
        .filter(|look| {
            let is_first = i64::from(look.thread) == i64::from(process.as_raw_nonzero().get());
            look.may_hang(signal, is_first, busy)
        })
        .collect()
}

/// At how many looks in a row up to the last one a thread was as it is now.
fn looks_so_far(before: &[(Look, u32)], now: &Look) -> u32 {
    let goes_on = |look: &Look| {
        look.thread == now.thread && (look.progress == now.progress || now.blocked & BLOCKED_BY_HOOKS != 0)
    };
    before.iter().find(|(look, _)| goes_on(look)).map_or(0, |(_, looks)| *looks)
}

/// Ends the process by force within a second of its beginning to hang in Spillway where a store `is_silent`,
/// and within six elsewhere, if that comes after `signal`. `is_busy` says whether its pager is at work.
/// `tell` comes before the end: whoever waits for the process may be gone as soon as it is. Returns when the
/// process has ended, or goes on for a minute. While `takes_turns` a store is slow and answers: who waits for
/// it does not hang.
pub fn see_to(
    process: Pid,
    signal: Signal,
    is_busy: impl Fn() -> bool,
    takes_turns: impl Fn() -> bool,
    is_silent: impl Fn() -> bool,
    tell: impl FnOnce(),
) {
    // Whoever has the number later is not meant.
    let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let told = Instant::now();
    let mut hung: Vec<(Look, u32)> = Vec::new();
    while told.elapsed() < WATCHED && !has_ended(&descriptor) {
        let now = if takes_turns() { Vec::new() } else { hanging(process, signal, is_busy()) };
        hung = now.into_iter().map(|look| (look.clone(), 1 + looks_so_far(&hung, &look))).collect();
        let enough = if is_silent() { LOOKS } else { LOOKS_AT_SLOW };
        if hung.iter().any(|(_, looks)| *looks >= enough) {
            tell();
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
            return;
        }
        sleep(BETWEEN_LOOKS);
    }
}

/// A process's descriptor can be read once it has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use rustix::process::kill_process;

    use super::*;

    fn look(state: &str, progress: u64, syscall: &str, [pending, blocked]: [u64; 2]) -> Look {
        let stat = format!("7 (a) b) {state} 1 1 1 0 -1 0 {progress} 0 3 0 5 9 0 0 20 0");
        let status =
            format!("Name:\ta\nSigPnd:\t{:016x}\nShdPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}\n", 0);
        Look::parse(7, &stat, &status, syscall).unwrap()
    }

    #[test]
    fn who_waits_for_a_page_or_is_kept_from_the_signal_may_hang_and_nobody_else() {
        const TERM: u64 = 1 << 14;
        let all = !0;
        // Faults by its own code.
        assert!(look("S", 1, "-1 0x1 0x2", [0, 0]).may_hang(Signal::TERM, false, false));
        assert!(
            !look("T", 1, "-1 0x1 0x2", [TERM, 0]).may_hang(Signal::TERM, true, true),
            "stopped by somebody"
        );
        assert!(
            !look("S", 1, "0 0x1", [0, 0]).may_hang(Signal::TERM, true, true),
            "reads, having had its signal"
        );
        // Held back by a hook, and by the program itself.
        assert!(look("S", 1, "35 0x1", [TERM, all]).may_hang(Signal::TERM, true, false));
        assert!(
            !look("S", 1, "35 0x1", [TERM, all]).may_hang(Signal::TERM, false, false),
            "a thread of the pager's"
        );
        assert!(!look("S", 1, "35 0x1", [TERM, all & !BLOCKED_BY_HOOKS]).may_hang(Signal::TERM, true, true));
        // A copy by the kernel.
        assert!(look("R", 1, "running", [TERM, 0]).may_hang(Signal::TERM, true, true));
        assert!(
            !look("R", 1, "running", [TERM, 0]).may_hang(Signal::TERM, true, false),
            "a long write to a file"
        );
        assert!(!look("D", 1, "74 0x1", [TERM, 0]).may_hang(Signal::TERM, true, true), "fsync");
    }

    /// How often a program that hangs is looked at until it is killed, where a store becomes silent after so
    /// many looks.
    fn looks_before_its_end(until_silent: u32) -> u32 {
        // All signals are blocked, also libc's own, as a hook of the pager's has them; rt_sigprocmask(2).
        let code = "my $all = pack('Q', ~0); syscall(14, 0, $all, 0, 8); $| = 1; print 'on'; sleep 600";
        let mut child =
            Command::new("perl").args(["-e", code]).stdout(Stdio::piped()).spawn().expect("perl is there");
        child.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::TERM).unwrap();
        let (looks, told) = (Cell::new(0), Cell::new(0));
        let is_silent = || looks.replace(looks.get() + 1) >= until_silent;
        see_to(pid, Signal::TERM, || true, || false, is_silent, || told.set(looks.get()));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        told.get()
    }

    #[test]
    fn where_no_store_is_silent_a_page_may_take_its_time() {
        // For three times as long as it takes where one is.
        assert_eq!(looks_before_its_end(3 * LOOKS), 3 * LOOKS + 1);
    }

    #[test]
    fn where_no_store_is_silent_who_hangs_is_ended_all_the_same() {
        assert_eq!(looks_before_its_end(u32::MAX), LOOKS_AT_SLOW);
        assert!(LOOKS_AT_SLOW * BETWEEN_LOOKS < Duration::from_secs(6));
    }

    #[test]
    fn who_has_had_another_page_meanwhile_does_not_hang() {
        let at = |progress| look("S", progress, "-1 0x1 0x2", [0, 0]);
        assert_eq!(looks_so_far(&[(at(5), 3)], &at(5)), 3);
        assert_eq!(looks_so_far(&[(at(5), 3)], &at(6)), 0);
        assert_eq!(looks_so_far(&[], &at(5)), 0);
    }
}
