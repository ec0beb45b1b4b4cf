//! The other threads of this process held still for a moment, by a signal, where the caller may have them.
//!
//! Whoever holds them must take no lock that one of them may have: of libc's above all.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir, open, stat};
use rustix::io::{Errno, Result};
use rustix::thread::futex;

use crate::page::PAGE_SIZE;
use crate::raw;
use crate::signal::{self, Action, Context};

/// The last real-time signal, which libc leaves alone.
const SIGNAL: i32 = 64;
/// Threads that can be held at once.
const MOST_THREADS: usize = 1024;
/// Times that all are held until each stands where it may.
const TRIES: usize = 2000;
/// They come at once, or wait for a processor.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who blocks the signal for so long blocks it always: a thread that waits for others' signals.
const BLOCKED_FOR_GOOD: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(20);

const FREE: u32 = 0;
const HELD: u32 = 1;

static STATE: AtomicU32 = AtomicU32::new(FREE);
/// Instructions that the held threads would run next.
static PLACES: [AtomicUsize; MOST_THREADS] = [const { AtomicUsize::new(0) }; MOST_THREADS];
static COMING: AtomicUsize = AtomicUsize::new(0);
/// How many of [`PLACES`] are told.
static CAME: AtomicUsize = AtomicUsize::new(0);
static WENT: AtomicUsize = AtomicUsize::new(0);

extern "C-unwind" fn hold(_: i32, _: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    let index = COMING.fetch_add(1, Ordering::AcqRel);
    if let Some(place) = PLACES.get(index) {
        place.store(Context(context).register(libc::REG_RIP), Ordering::Relaxed);
    }
    CAME.fetch_add(1, Ordering::AcqRel);
    while STATE.load(Ordering::Acquire) == HELD {
        let word = STATE.as_ptr().expose_provenance();
        let arguments =
            [word, (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize, HELD as usize, 0, 0, 0];
        // SAFETY: waits at a word of ours.
        unsafe { raw::syscall(libc::SYS_futex as usize, arguments) };
    }
    WENT.fetch_add(1, Ordering::AcqRel);
}

/// Does `action` while all other threads stand still, each at an instruction that `may_rest_at` accepts.
/// Threads that block [`SIGNAL`] for good are not held, so the `raw_threads`, which run nothing but code of
/// ours.
///
/// # Errors
/// EBUSY when that cannot be had, and the kernel's.
pub fn with_others_held<T>(
    raw_threads: usize,
    may_rest_at: &dyn Fn(usize) -> bool,
    action: &mut dyn FnMut() -> T,
) -> Result<T> {
    if other_threads()? <= raw_threads {
        return Ok(action());
    }
    let mut sent = Vec::with_capacity(MOST_THREADS);
    // SAFETY: the handler uses nothing but words of its own.
    let before = unsafe { signal::set_handler(SIGNAL, hold, u64::MAX)? };
    let mut own = Action::default();
    // SAFETY: the action that was just set, but for calls that go on where they can.
    unsafe {
        signal::raw_action(SIGNAL, std::ptr::null(), &mut own);
        own.flags |= libc::SA_RESTART as usize;
        signal::raw_action(SIGNAL, &own, std::ptr::null_mut());
    }
    for _ in 0..TRIES {
        // Where it fails those who came are let go all the same.
        let held = hold_all(raw_threads, &mut sent);
        let is_held = held == Ok(true);
        let places = PLACES.iter().take(CAME.load(Ordering::Acquire));
        let is_at_rest =
            is_held && places.into_iter().all(|place| may_rest_at(place.load(Ordering::Relaxed)));
        let result = is_at_rest.then(&mut *action);
        if !release(is_held) {
            // The handler stays: one that comes late finds nothing to wait for.
            held?;
            return result.ok_or(Errno::BUSY);
        }
        if let Some(result) = result {
            // SAFETY: the action that was there before.
            unsafe { signal::raw_action(SIGNAL, &before, std::ptr::null_mut::<Action>()) };
            return Ok(result);
        }
        std::thread::sleep(PAUSE);
    }
    // SAFETY: as above.
    unsafe { signal::raw_action(SIGNAL, &before, std::ptr::null_mut::<Action>()) };
    Err(Errno::BUSY)
}

/// Sends the signal to each until no other is found. False where one does not come.
fn hold_all(raw_threads: usize, sent: &mut Vec<u32>) -> Result<bool> {
    sent.clear();
    for count in [&COMING, &CAME, &WENT] {
        count.store(0, Ordering::Release);
    }
    STATE.store(HELD, Ordering::Release);
    let begun = Instant::now();
    loop {
        let (mut is_news, mut alive, mut left_out) = (false, 0, 0);
        others(&mut |thread| {
            let mut is_sent = sent.contains(&thread);
            if !is_sent && sent.len() < MOST_THREADS && can_be_held(thread) && send(thread) {
                sent.push(thread);
                (is_news, is_sent) = (true, true);
            }
            alive += usize::from(is_sent);
            left_out += usize::from(!is_sent);
        })?;
        // Who blocks the signal just now, as while it makes a thread, may come yet.
        let has_settled = left_out <= raw_threads || begun.elapsed() > BLOCKED_FOR_GOOD;
        if !is_news && has_settled && CAME.load(Ordering::Acquire) >= alive {
            return Ok(sent.len() < MOST_THREADS);
        }
        if begun.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Lets all go. True when all who came have gone.
fn release(is_held: bool) -> bool {
    STATE.store(FREE, Ordering::Release);
    let _ = futex::wake(&STATE, futex::Flags::PRIVATE, i32::MAX as u32);
    let begun = Instant::now();
    while WENT.load(Ordering::Acquire) < CAME.load(Ordering::Acquire) && begun.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    is_held && WENT.load(Ordering::Acquire) == CAME.load(Ordering::Acquire)
}

fn send(thread: u32) -> bool {
    let arguments = [signal::own_process() as usize, thread as usize, SIGNAL as usize, 0, 0, 0];
    // SAFETY: takes no address.
    unsafe { raw::syscall(libc::SYS_tgkill as usize, arguments) == 0 }
}

/// How many threads this process has beside the calling one. Takes no descriptor.
///
/// # Errors
/// The kernel's: there is no /proc.
pub fn other_threads() -> Result<usize> {
    // Each is a directory, and a directory has two links more than it has directories.
    let links = stat("/proc/self/task")?.st_nlink as usize;
    Ok(links.saturating_sub(3))
}

/// Names the other threads of this process that have not ended. Allocates nothing by libc.
fn others(each: &mut dyn FnMut(u32)) -> Result<()> {
    let tasks = open("/proc/self/task", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); PAGE_SIZE];
    let mut entries = RawDir::new(&tasks, &mut buffer);
    let own = signal::own_thread();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok());
        let is_live =
            |&thread: &u32| field(thread, "State:").is_some_and(|state| !state.starts_with(['Z', 'X']));
        if let Some(thread) = name.filter(|&thread| thread != own).filter(is_live) {
            each(thread);
        }
    }
    Ok(())
}

/// Whether a thread lets the signal in.
fn can_be_held(thread: u32) -> bool {
    let blocked = field(thread, "SigBlk:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    blocked.is_some_and(|mask| mask & signal::bit(SIGNAL) == 0)
}

/// Of what the kernel tells of a thread (proc(5), `/proc/PID/status`).
fn field(thread: u32, key: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
}
