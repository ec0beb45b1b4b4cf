//! What the user is told of stores that keep somebody waiting: within a second which one and for how long
//! still, and when it answers again. One voice for all processes of a run: who tells a line notes it in the
//! run's state.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spillway_store::{Event, Hear, Listener, Notice, NoticeKind, Tell};

use crate::run::connections;
use crate::run::state::{RunState, StoreNotes};

/// A store that stays silent is told of again after so long.
const AGAIN_MS: u64 = 10_000;
/// How long the other processes leave their connections to one that has none.
const STARVING_MS: u64 = 3_000;

impl StoreNotes<'_> {
    /// The server takes no further connection, and a process was without one a moment ago.
    pub(crate) fn are_of_turns(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) != 0 && self.is_starving()
    }

    fn is_starving(&self) -> bool {
        let since_ms = self.starving_ms.load(Ordering::Relaxed);
        since_ms != 0 && now_ms().saturating_sub(since_ms) < STARVING_MS
    }
}

/// Who tells it in one process.
struct Teller<R> {
    run: R,
    store: usize,
    voice: Voice,
}

/// By whom it is told.
#[derive(Clone, Debug)]
pub enum Voice {
    /// A program's pager, which has the supervisor know it too.
    Program {
        /// The process's entry in the run's state.
        entry: usize,
        /// Says a line to the user.
        say: fn(&str),
        /// The process's connection to the supervisor.
        supervisor: Arc<OwnedFd>,
    },
    /// The supervisor of the run.
    Supervisor(Tell),
}

/// Has a process tell what happens to the store of this index.
pub fn listener<R: AsRef<RunState> + Send + Sync + 'static>(run: R, store: usize, voice: Voice) -> Listener {
    Arc::new(Teller { run, store, voice })
}

fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    1 + now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// True for one of those who ask within `every_ms`.
fn is_first(told_ms: &AtomicU64, now_ms: u64, every_ms: u64) -> bool {
    let before = told_ms.load(Ordering::Relaxed);
    (before == 0 || now_ms.saturating_sub(before) >= every_ms)
        && told_ms.compare_exchange(before, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs_f64().ceil() as u64
}

impl<R: AsRef<RunState>> Teller<R> {
    fn tell(&self, notice: &Notice<'_>) {
        match &self.voice {
            Voice::Program { entry, say, .. } => {
                self.run.as_ref().note(*entry, notice);
                say(notice.text);
            }
            Voice::Supervisor(tell) => tell(notice),
        }
    }
}

impl<R: AsRef<RunState> + Send + Sync> Hear for Teller<R> {
    fn hear(&self, store: &str, event: Event<'_>) {
        let run = self.run.as_ref();
        let notes = run.store_notes(self.store);
        match event {
            Event::Answering => {
                if notes.silent.load(Ordering::Relaxed) != 0 && notes.silent.swap(0, Ordering::Relaxed) != 0 {
                    let text = format!("store {store} answers again");
                    self.tell(&Notice::new(NoticeKind::StoreBack, &text).about(store));
                }
            }
            Event::Waiting { reason, left } => {
                if is_first(notes.told_ms, now_ms(), AGAIN_MS) {
                    notes.silent.store(1, Ordering::Relaxed);
                    let left_s = whole_seconds(left);
                    let text = format!(
                        "store {store}: {reason}; who needs its pages waits, and it is given up in {left_s} s"
                    );
                    let away = Notice::new(NoticeKind::StoreAway, &text).about(store).because(reason);
                    self.tell(&away.number(left_s));
                }
            }
            Event::Crowded { reason } => {
                if notes.crowded.swap(1, Ordering::Relaxed) == 0 {
                    let text = format!(
                        "store {store} takes no further connection ({reason}): the run's threads take turns \
                         with those that they have, which is slower; let the server take one for each \
                         process of the run and two more, better four times as many \
                         (spillway donor --max-connections)",
                    );
                    self.tell(&Notice::new(NoticeKind::StoreCrowded, &text).about(store).because(reason));
                }
            }
            Event::Starving => {
                let now_ms = now_ms();
                notes.starving_ms.store(now_ms, Ordering::Relaxed);
            }
        }
    }

    fn keep(&self, number: u64, connection: BorrowedFd<'_>) -> bool {
        match &self.voice {
            Voice::Program { supervisor, .. } => {
                connections::tell_connected(supervisor.as_fd(), number, connection)
            }
            // Who supervises knows when its own requests are answered.
            Voice::Supervisor(_) => true,
        }
    }

    fn let_go(&self, number: u64) {
        if let Voice::Program { supervisor, .. } = &self.voice {
            connections::tell_disconnected(supervisor.as_fd(), number);
        }
    }

    fn is_starving(&self) -> bool {
        self.run.as_ref().store_notes(self.store).is_starving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::noted::Reader;
    use std::sync::Mutex;

    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn tell(line: &str) {
        TOLD.lock().unwrap().push(line.to_owned());
    }

    struct Shared(RunState);

    impl AsRef<RunState> for Shared {
        fn as_ref(&self) -> &RunState {
            &self.0
        }
    }

    #[test]
    fn one_process_tells_for_all_and_tells_the_end() {
        let (fd, first) = RunState::create(64, 64).unwrap();
        let (second, third) = (RunState::map(&fd).unwrap(), RunState::map(&fd).unwrap());
        let entry = first.claim_process(77).unwrap();
        let supervisor = Voice::Supervisor(|notice| tell(notice.text));
        let supervisor_end = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let program = Voice::Program { entry, say: tell, supervisor: supervisor_end };
        let processes = [listener(Shared(first), 0, program), listener(Shared(second), 0, supervisor)];
        let left = Duration::from_millis(58_100);
        for process in &processes {
            process.hear("nbd://a", Event::Answering);
            process.hear("nbd://a", Event::Waiting { reason: "no answer", left });
        }
        assert!(!processes[1].is_starving());
        processes[0].hear("nbd://a", Event::Starving);
        assert!(processes[1].is_starving(), "others hear of it");
        processes[1].hear("nbd://a", Event::Answering);
        processes[0].hear("nbd://a", Event::Answering);
        for process in &processes {
            process.hear("nbd://a", Event::Crowded { reason: "closed" });
        }
        let told = std::mem::take(&mut *TOLD.lock().unwrap());
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("no answer") && told[0].contains("given up in 59 s"), "{told:?}");
        assert_eq!(told[1], "store nbd://a answers again");
        assert!(told[2].contains("takes no further connection (closed)"), "{told:?}");
        // The supervisor knows what the program has told, and what it told itself is not told twice.
        let mut noted = Vec::new();
        Reader::default().look(third.notices(), |one| noted.push(one.clone()));
        let [away, crowded] = &noted[..] else { panic!("{noted:?}") };
        assert_eq!((away.pid, away.notice().text), (77, told[0].as_str()));
        assert_eq!((away.notice().about, away.notice().reason), ("nbd://a", "no answer"));
        assert_eq!((away.notice().number, crowded.notice().kind), (59, NoticeKind::StoreCrowded));
    }
}
