//! Which of the handlers read faults.
//!
//! Every reader that sleeps is woken by every fault, and a fault that is served on another CPU than the one
//! it was raised on costs several times one served there (`docs/research/pager-speed.md`). So while one
//! thread raises all the faults, one handler reads them all: the *leader*, on that thread's CPU, under
//! SCHED_IDLE. A CPU that runs nothing but idle-class threads counts as idle where the kernel looks for a
//! place for the woken thread, so that thread stays, and the leader gives way to it at once. With several
//! faulting threads, or where the leader does not get its turn, all handlers read (the *crowd*).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CpuSet, capabilities, futex, sched_getaffinity, sched_setaffinity};
use spillway_sys::process::set_idle_class;

use crate::kernel::Kernel;
use crate::kernel::live::LiveKernel;

const CROWD: u32 = 0;
const SOLO: u32 = 1;

/// Faults of one thread in a row before it is taken for the only one.
const ALONE_FAULTS: u32 = 256;
/// Faults between two checks of what the leader should do.
const CHECK_EVERY: u32 = 32;
/// The same for where a thread runs that has stayed where it was for as many checks: a check takes as long as
/// a fault.
const STAYED_CHECKS: u32 = 8;
const FOLLOW_EVERY: u32 = 4 * CHECK_EVERY;
/// Checks without one after which a stream has ended.
const STREAM_CHECKS: u32 = 8;
/// Faults of other threads between two checks that make a crowd.
const STRANGERS: u32 = 3;
/// How long a crowd stays together at least; twice as long each time that the leader got no turn again within
/// a second.
const FIRST_DWELL_NS: u64 = 50_000_000;
const LONGEST_DWELL_NS: u64 = 2_000_000_000;
const LED_LONG_NS: u64 = 1_000_000_000;
/// Checks in a row at which the leader waited for its turn.
const STARVED_CHECKS: u32 = 2;

/// Shared by the handlers of a process.
pub struct FaultHandlers {
    mode: AtomicU32,
    allowed: bool,
    last_thread: AtomicU32,
    in_a_row: AtomicU32,
    strangers: AtomicU32,
    leader: AtomicU32,
    crowd_until_ns: AtomicU64,
    dwell_ns: AtomicU64,
    run_time: AtomicU64,
    starved_checks: AtomicU32,
    leads_since_ns: AtomicU64,
    /// Where this process may run.
    cpus: CpuSet,
    /// 0 until it is known.
    evictor: AtomicU32,
    /// The CPU that the evictor is kept off, from 1 on; 0 for none.
    evictor_off: AtomicU32,
    /// Something was to be read ahead since the leader checked last.
    has_streams: AtomicBool,
}

/// What the leader knows of its place.
#[derive(Default)]
pub struct Lead {
    faults: u32,
    cpu: Option<usize>,
    /// Checks in a row at which the faulting thread was where it had been.
    stayed: u32,
    /// Checks for which streams are expected to go on.
    stream_checks: u32,
}

impl FaultHandlers {
    /// A crowd, which may get a leader if no handler ever waits for a store, and if a thread may leave the
    /// idle class again.
    #[must_use]
    pub fn new(waits_for_stores: bool) -> Self {
        let may_return =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
        Self {
            mode: AtomicU32::new(CROWD),
            allowed: may_return && !waits_for_stores,
            last_thread: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            strangers: AtomicU32::new(0),
            leader: AtomicU32::new(0),
            crowd_until_ns: AtomicU64::new(0),
            dwell_ns: AtomicU64::new(FIRST_DWELL_NS),
            run_time: AtomicU64::new(0),
            starved_checks: AtomicU32::new(0),
            leads_since_ns: AtomicU64::new(0),
            cpus: sched_getaffinity(None).unwrap_or_default(),
            evictor: AtomicU32::new(0),
            evictor_off: AtomicU32::new(0),
            has_streams: AtomicBool::new(false),
        }
    }

    /// The calling thread is the evictor.
    pub fn note_evictor(&self) {
        self.evictor.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
    }

    /// The evictor has something to read ahead.
    pub fn note_stream(&self) {
        self.has_streams.store(true, Ordering::Relaxed);
    }

    /// A leader serves, and gives way to the thread that it wakes.
    #[must_use]
    pub fn are_led(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == SOLO
    }

    /// Notes whose fault was read.
    pub fn note(&self, thread: u32) {
        if self.last_thread.swap(thread, Ordering::Relaxed) == thread {
            self.in_a_row.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_a_row.store(0, Ordering::Relaxed);
            self.strangers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// For handlers that do not lead: returns when the crowd reads.
    pub fn wait_for_crowd(&self) {
        while self.mode.load(Ordering::Acquire) == SOLO {
            let _ = futex::wait(&self.mode, futex::Flags::PRIVATE, SOLO, None);
        }
    }

    /// For the handler that may lead, after each fault that it read: follows the faulting thread, takes the
    /// lead or gives it up. `home` is where it belongs in a crowd.
    pub fn steer(&self, lead: &mut Lead, home: Option<usize>) {
        lead.faults += 1;
        if !self.allowed || !lead.faults.is_multiple_of(CHECK_EVERY) {
            return;
        }
        let strangers = self.strangers.swap(0, Ordering::Relaxed);
        if self.mode.load(Ordering::Acquire) == SOLO {
            if strangers >= STRANGERS {
                self.gather(FIRST_DWELL_NS);
                go_to(home);
                lead.cpu = None;
            } else {
                self.follow(lead);
                self.place_evictor(lead);
            }
        } else if self.in_a_row.load(Ordering::Relaxed) >= ALONE_FAULTS
            && LiveKernel::now_ns() >= self.crowd_until_ns.load(Ordering::Relaxed)
        {
            let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            if set_idle_class(own, true).is_ok() {
                self.leader.store(own, Ordering::Relaxed);
                self.leads_since_ns.store(LiveKernel::now_ns(), Ordering::Relaxed);
                self.mode.store(SOLO, Ordering::Release);
                self.follow(lead);
            }
        }
    }

    fn follow(&self, lead: &mut Lead) {
        if lead.stayed >= STAYED_CHECKS && !lead.faults.is_multiple_of(FOLLOW_EVERY) {
            return;
        }
        let cpu = cpu_of(self.last_thread.load(Ordering::Relaxed));
        if cpu.is_some() && cpu != lead.cpu {
            go_to(cpu);
            lead.cpu = cpu;
            lead.stayed = 0;
        } else {
            lead.stayed = lead.stayed.saturating_add(1);
        }
    }

    /// All handlers read from now on, for `dwell_ns` at least.
    fn gather(&self, dwell_ns: u64) {
        let _ = set_idle_class(self.leader.load(Ordering::Relaxed), false);
        self.keep_evictor_off(None);
        self.in_a_row.store(0, Ordering::Relaxed);
        self.crowd_until_ns.store(LiveKernel::now_ns() + dwell_ns, Ordering::Relaxed);
        self.mode.store(CROWD, Ordering::Release);
        let _ = futex::wake(&self.mode, futex::Flags::PRIVATE, u32::MAX);
    }

    /// An evictor that reads ahead and is woken by the leader would be put on its CPU, since that counts as
    /// idle, and the leader would wait for it. Without streams it is better there: on another CPU its checks
    /// at the leader cost more, and each eviction has to flush that CPU's TLB too.
    fn place_evictor(&self, lead: &mut Lead) {
        lead.stream_checks = match self.has_streams.swap(false, Ordering::Relaxed) {
            true => STREAM_CHECKS,
            false => lead.stream_checks.saturating_sub(1),
        };
        self.keep_evictor_off(lead.cpu.filter(|_| lead.stream_checks > 0));
    }

    fn keep_evictor_off(&self, cpu: Option<usize>) {
        let off = cpu.map_or(0, |cpu| cpu as u32 + 1);
        if self.evictor_off.swap(off, Ordering::Relaxed) == off {
            return;
        }
        let mut set = self.cpus;
        if let Some(cpu) = cpu {
            set.unset(cpu);
        }
        if let Some(evictor) = Pid::from_raw(self.evictor.load(Ordering::Relaxed) as i32)
            && set.count() > 0
        {
            let _ = sched_setaffinity(Some(evictor), &set);
        }
    }

    /// Somebody else's turn to see to it that the leader gets its own: a thread of the idle class may wait
    /// for long. Returns the time until the next check, in nanoseconds; `None` while there is no leader.
    pub fn watch(&self) -> Option<u32> {
        const SOON_NS: u32 = 4_000_000;
        const LATER_NS: u32 = 40_000_000;
        if self.mode.load(Ordering::Acquire) != SOLO {
            return None;
        }
        let leader = self.leader.load(Ordering::Relaxed);
        let run_time = run_time_of(leader).unwrap_or(0);
        let before = self.run_time.swap(run_time, Ordering::Relaxed);
        if run_time != before {
            self.starved_checks.store(0, Ordering::Relaxed);
            return Some(SOON_NS);
        }
        // It has not run since the last check: either nothing was to be done, or it was not let.
        if status_of(leader).is_none_or(|status| status.is_runnable) {
            if self.starved_checks.fetch_add(1, Ordering::Relaxed) + 1 < STARVED_CHECKS {
                return Some(SOON_NS);
            }
            self.starved_checks.store(0, Ordering::Relaxed);
            let led_ns = LiveKernel::now_ns().saturating_sub(self.leads_since_ns.load(Ordering::Relaxed));
            let last_ns = self.dwell_ns.load(Ordering::Relaxed);
            let dwell_ns = if led_ns > LED_LONG_NS { FIRST_DWELL_NS } else { last_ns };
            self.dwell_ns.store((dwell_ns * 2).min(LONGEST_DWELL_NS), Ordering::Relaxed);
            self.gather(dwell_ns);
            return None;
        }
        Some(LATER_NS)
    }
}

fn go_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// The CPU on which a thread ran last.
pub(crate) fn cpu_of(thread: u32) -> Option<usize> {
    status_of(thread).map(|status| status.cpu)
}

struct Status {
    is_runnable: bool,
    cpu: usize,
}

/// A small file of procfs.
fn read_small(path: &str, buffer: &mut [u8; 512]) -> Option<usize> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    rustix::io::read(&file, buffer).ok()
}

/// A thread's state and the CPU on which it ran last (proc(5), `/proc/PID/stat`, fields 3 and 39).
fn status_of(thread: u32) -> Option<Status> {
    let mut buffer = [0; 512];
    let length = read_small(&format!("/proc/self/task/{thread}/stat"), &mut buffer)?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    // The name may hold spaces and brackets, so fields count from its last bracket.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let is_runnable = fields.next()? == "R";
    Some(Status { is_runnable, cpu: fields.nth(35)?.parse().ok()? })
}

/// Nanoseconds that a thread has run (`Documentation/scheduler/sched-stats.rst`).
fn run_time_of(thread: u32) -> Option<u64> {
    let mut buffer = [0; 512];
    let length = read_small(&format!("/proc/self/task/{thread}/schedstat"), &mut buffer)?;
    std::str::from_utf8(&buffer[..length]).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_place_and_time_are_found() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let status = status_of(own).unwrap();
        assert!(status.is_runnable && status.cpu < 4096);
        assert!(run_time_of(own).is_some());
        assert!(status_of(u32::MAX).is_none());
    }

    #[test]
    fn one_thread_makes_a_leader_and_strangers_a_crowd() {
        let handlers = FaultHandlers::new(false);
        if !handlers.allowed {
            eprintln!("without CAP_SYS_NICE there is no leader");
            assert!(FaultHandlers::new(true).watch().is_none());
            return;
        }
        let mut lead = Lead::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        for _ in 0..ALONE_FAULTS + CHECK_EVERY {
            handlers.note(own);
            handlers.steer(&mut lead, None);
        }
        assert_eq!(handlers.mode.load(Ordering::Relaxed), SOLO);
        assert!(lead.cpu.is_some() && handlers.watch().is_some());
        for n in 0..CHECK_EVERY {
            handlers.note(n % 2);
            handlers.steer(&mut lead, None);
        }
        assert_eq!(handlers.mode.load(Ordering::Relaxed), CROWD);
        handlers.wait_for_crowd();
    }
}
