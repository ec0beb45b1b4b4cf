//! Which of the handlers read faults.
//!
//! Every reader that sleeps is woken by every fault, and a fault that is served on another CPU than the one
//! it was raised on costs several times one served there (`docs/research/pager-speed.md`). So while one
//! thread raises all the faults, one handler reads them all: the *leader*, on that thread's CPU, under
//! SCHED_IDLE. A CPU that runs nothing but idle-class threads counts as idle where the kernel looks for a
//! place for the woken thread, so that thread stays, and the leader gives way to it at once. With several
//! faulting threads all handlers read (the *crowd*).
//!
//! A leader in the idle class gives way to strangers too, also to those of nice 19. Where they take its turns
//! it leads on as an ordinary thread for a while, and where it has none as such either, a crowd gathers.

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
/// How long a crowd stays together at least, or the leader is an ordinary thread; twice as long each time
/// that it was starved again within a second.
const FIRST_DWELL_NS: u64 = 50_000_000;
const LONGEST_DWELL_NS: u64 = 2_000_000_000;
const LED_LONG_NS: u64 = 1_000_000_000;
/// Checks in a row at which the leader waited for its turn.
const STARVED_CHECKS: u32 = 2;
/// Between two checks of the leader.
const SOON_NS: u64 = 4_000_000;
/// The same where it has nothing to do.
const LATER_NS: u64 = 40_000_000;

/// Shared by the handlers of a process.
pub struct FaultHandlers {
    mode: AtomicU32,
    allowed: bool,
    last_thread: AtomicU32,
    in_a_row: AtomicU32,
    strangers: AtomicU32,
    leader: AtomicU32,
    crowd_until_ns: AtomicU64,
    crowd_dwell: Dwell,
    /// When the leader goes back to the idle class; 0 while it is there. The evictor alone writes it, but for
    /// the beginning of a lead.
    ordinary_until_ns: AtomicU64,
    ordinary_dwell: Dwell,
    /// What the evictor saw last.
    looked_ns: AtomicU64,
    leader_times: SeenTimes,
    faulting_times: SeenTimes,
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
            crowd_dwell: Dwell::default(),
            ordinary_until_ns: AtomicU64::new(0),
            ordinary_dwell: Dwell::default(),
            looked_ns: AtomicU64::new(0),
            leader_times: SeenTimes::default(),
            faulting_times: SeenTimes::default(),
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
    /// lead or gives it up. True where it has taken it: somebody must [look](Self::watch) after it from now
    /// on. `home` is where it belongs in a crowd.
    pub fn steer(&self, lead: &mut Lead, home: Option<usize>) -> bool {
        lead.faults += 1;
        if !self.allowed || !lead.faults.is_multiple_of(CHECK_EVERY) {
            return false;
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
                self.ordinary_until_ns.store(0, Ordering::Relaxed);
                self.mode.store(SOLO, Ordering::Release);
                self.follow(lead);
                return true;
            }
        }
        false
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
        self.keep_evictor_off(None);
        self.in_a_row.store(0, Ordering::Relaxed);
        self.crowd_until_ns.store(LiveKernel::now_ns() + dwell_ns, Ordering::Relaxed);
        self.mode.store(CROWD, Ordering::SeqCst);
        // After that: see `Self::go_idle`.
        let _ = set_idle_class(self.leader.load(Ordering::Relaxed), false);
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

    /// Somebody else's turn to see to it that the leader gets its own. Returns the time until the next check,
    /// in nanoseconds; `None` while there is no leader.
    pub fn watch(&self) -> Option<u64> {
        if self.mode.load(Ordering::Acquire) != SOLO {
            return None;
        }
        let now_ns = LiveKernel::now_ns();
        let passed_ns = now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed));
        if passed_ns < SOON_NS {
            return Some(SOON_NS - passed_ns);
        }
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        let leader_id = self.leader.load(Ordering::Relaxed);
        let leader = self.leader_times.renew(leader_id);
        let ordinary_until_ns = self.ordinary_until_ns.load(Ordering::Relaxed);
        let has_no_turn = leader.ran_ns == 0 && is_runnable(leader_id);
        let is_starved = has_no_turn || ordinary_until_ns == 0 && self.is_kept_waiting(passed_ns, leader);
        if is_starved {
            if self.starved_checks.fetch_add(1, Ordering::Relaxed) + 1 >= STARVED_CHECKS {
                self.starved_checks.store(0, Ordering::Relaxed);
                self.relieve(now_ns, ordinary_until_ns != 0);
            }
        } else {
            self.starved_checks.store(0, Ordering::Relaxed);
            if (1..=now_ns).contains(&ordinary_until_ns) {
                self.go_idle(now_ns);
            }
            if leader.ran_ns == 0 && leader.waited_ns == 0 && ordinary_until_ns == 0 {
                return Some(LATER_NS);
            }
        }
        Some(SOON_NS)
    }

    /// Whether others than the faulting thread keep the leader waiting: it waited for half of the time that
    /// has passed, and the two of them ran for less than half of it.
    fn is_kept_waiting(&self, passed_ns: u64, leader: Times) -> bool {
        // The other thread is seldom looked at: its first times may be those of long.
        leader.waited_ns >= passed_ns / 2 && {
            let faulting = self.faulting_times.renew(self.last_thread.load(Ordering::Relaxed));
            leader.ran_ns + faulting.ran_ns < passed_ns / 2
        }
    }

    /// Others take the leader's turns: it leads on as an ordinary thread, or, where it `is_ordinary`, a crowd
    /// gathers.
    fn relieve(&self, now_ns: u64, is_ordinary: bool) {
        let led_ns = now_ns.saturating_sub(self.leads_since_ns.load(Ordering::Relaxed));
        if is_ordinary {
            return self.gather(self.crowd_dwell.next_ns(led_ns));
        }
        if set_idle_class(self.leader.load(Ordering::Relaxed), false).is_ok() {
            self.ordinary_until_ns.store(now_ns + self.ordinary_dwell.next_ns(led_ns), Ordering::Relaxed);
        }
    }

    /// Back to the idle class, for strangers may have gone.
    fn go_idle(&self, now_ns: u64) {
        let leader = self.leader.load(Ordering::Relaxed);
        let _ = set_idle_class(leader, true);
        self.leads_since_ns.store(now_ns, Ordering::Relaxed);
        self.ordinary_until_ns.store(0, Ordering::Relaxed);
        // Either this sees that a crowd has gathered meanwhile, or who gathers it comes later.
        if self.mode.load(Ordering::SeqCst) != SOLO {
            let _ = set_idle_class(leader, false);
        }
    }
}

/// How long something is left as it is before it is tried otherwise.
struct Dwell(AtomicU64);

impl Default for Dwell {
    fn default() -> Self {
        Self(AtomicU64::new(FIRST_DWELL_NS))
    }
}

impl Dwell {
    /// For now, after it went well for so long: twice as long each time, unless that was long.
    fn next_ns(&self, went_well_ns: u64) -> u64 {
        let last_ns = self.0.load(Ordering::Relaxed);
        let now_ns = if went_well_ns > LED_LONG_NS { FIRST_DWELL_NS } else { last_ns };
        self.0.store((now_ns * 2).min(LONGEST_DWELL_NS), Ordering::Relaxed);
        now_ns
    }
}

/// What a thread has had of the processors, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    ran_ns: u64,
    /// It could run, and others did.
    waited_ns: u64,
}

/// The times of a thread as they were seen last.
#[derive(Default)]
struct SeenTimes {
    thread: AtomicU32,
    ran_ns: AtomicU64,
    waited_ns: AtomicU64,
}

impl SeenTimes {
    /// What has come to them since; nothing where it was another thread.
    fn renew(&self, thread: u32) -> Times {
        let Some(now) = times_of(thread) else { return Times::default() };
        let is_same = self.thread.swap(thread, Ordering::Relaxed) == thread;
        let ran_ns = self.ran_ns.swap(now.ran_ns, Ordering::Relaxed);
        let waited_ns = self.waited_ns.swap(now.waited_ns, Ordering::Relaxed);
        if !is_same {
            return Times::default();
        }
        Times {
            ran_ns: now.ran_ns.saturating_sub(ran_ns),
            waited_ns: now.waited_ns.saturating_sub(waited_ns),
        }
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

fn is_runnable(thread: u32) -> bool {
    status_of(thread).is_some_and(|status| status.is_runnable)
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

/// All that a thread has had (`Documentation/scheduler/sched-stats.rst`). A wait counts once it is over.
fn times_of(thread: u32) -> Option<Times> {
    let mut buffer = [0; 512];
    let length = read_small(&format!("/proc/self/task/{thread}/schedstat"), &mut buffer)?;
    let mut fields = std::str::from_utf8(&buffer[..length]).ok()?.split_whitespace();
    let mut next_ns = || fields.next()?.parse().ok();
    Some(Times { ran_ns: next_ns()?, waited_ns: next_ns()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHED_OTHER: u32 = 0;
    const SCHED_IDLE: u32 = 5;

    /// Field 41 of `/proc/PID/stat`.
    fn policy_of(thread: u32) -> u32 {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        text.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn a_threads_place_and_time_are_found() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let status = status_of(own).unwrap();
        assert!(status.is_runnable && status.cpu < 4096);
        assert!(times_of(own).is_some());
        assert!(status_of(u32::MAX).is_none() && times_of(u32::MAX).is_none());
    }

    #[test]
    fn a_leader_is_kept_waiting_by_others_and_not_by_the_thread_that_it_serves() {
        let handlers = FaultHandlers::new(false);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        handlers.note(own);
        let times = |ran_ns, waited_ns| Times { ran_ns, waited_ns };
        // This thread, which the leader serves, has computed for as long as anybody waited.
        assert!(!handlers.is_kept_waiting(0, times(0, 0)), "seen for the first time");
        let until_ns = times_of(own).unwrap().ran_ns + 5_000_000;
        while times_of(own).unwrap().ran_ns < until_ns {}
        assert!(!handlers.is_kept_waiting(8_000_000, times(0, 7_000_000)));
        // It has not, and both had what they need, or nothing to do.
        assert!(!handlers.is_kept_waiting(1 << 40, times(1 << 39, 1 << 39)));
        assert!(!handlers.is_kept_waiting(1 << 40, times(0, 0)));
        // Somebody else has; a wait that ends now may have begun long before.
        assert!(handlers.is_kept_waiting(1 << 40, times(1 << 20, 1 << 39)));
        assert!(handlers.is_kept_waiting(1 << 40, times(1 << 20, 1 << 41)));
    }

    #[test]
    fn times_are_those_since_the_last_look_at_the_same_thread() {
        let seen = SeenTimes::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(seen.renew(own), Times::default());
        let until_ns = times_of(own).unwrap().ran_ns + 1_000_000;
        while times_of(own).unwrap().ran_ns < until_ns {}
        assert!(seen.renew(own).ran_ns >= 1_000_000);
        assert_eq!(seen.renew(u32::MAX), Times::default());
    }

    #[test]
    fn what_goes_wrong_soon_again_is_left_longer() {
        let dwell = Dwell::default();
        let turns = [0, 1, LED_LONG_NS, LED_LONG_NS + 1, 5].map(|went_well_ns| dwell.next_ns(went_well_ns));
        assert_eq!(turns, [1, 2, 4, 1, 2].map(|times| times * FIRST_DWELL_NS));
        assert_eq!((0..9).map(|_| dwell.next_ns(0)).last(), Some(LONGEST_DWELL_NS));
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
        let mut begun = 0;
        for _ in 0..ALONE_FAULTS + CHECK_EVERY {
            handlers.note(own);
            begun += u32::from(handlers.steer(&mut lead, None));
        }
        assert_eq!(begun, 1, "somebody must look after it");
        assert_eq!(handlers.mode.load(Ordering::Relaxed), SOLO);
        assert!(lead.cpu.is_some() && handlers.watch().is_some());
        // Strangers take its turns, go, come again, and leave it none at all.
        assert_eq!(policy_of(own), SCHED_IDLE);
        handlers.relieve(LiveKernel::now_ns(), false);
        assert_eq!((policy_of(own), handlers.are_led()), (SCHED_OTHER, true));
        handlers.go_idle(LiveKernel::now_ns());
        assert_eq!((policy_of(own), handlers.are_led()), (SCHED_IDLE, true));
        handlers.relieve(LiveKernel::now_ns(), true);
        assert_eq!((policy_of(own), handlers.are_led()), (SCHED_OTHER, false));
        // Who went back too late notices it.
        handlers.go_idle(LiveKernel::now_ns());
        assert_eq!(policy_of(own), SCHED_OTHER);
        handlers.crowd_until_ns.store(0, Ordering::Relaxed);
        for _ in 0..ALONE_FAULTS + CHECK_EVERY {
            handlers.note(own);
            handlers.steer(&mut lead, None);
        }
        assert_eq!((policy_of(own), handlers.are_led()), (SCHED_IDLE, true));
        for n in 0..CHECK_EVERY {
            handlers.note(n % 2);
            handlers.steer(&mut lead, None);
        }
        assert_eq!(handlers.mode.load(Ordering::Relaxed), CROWD);
        handlers.wait_for_crowd();
    }
}
