//! What becomes of what a process held that has ended.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{ENDING, ORPHANS_PATIENCE, Supervisor, has_ended};
use crate::run::connections::ServerConnections;
use crate::run::reaper::Means;
use crate::run::state::{Child, MAX_PROCESSES, PID_OF_ANOTHER_NAMESPACE, RunState};

impl Supervisor {
    /// A process has ended, or goes on as another program.
    pub(super) fn end(&mut self, entry: usize, servers: ServerConnections) {
        self.run.let_go_of_local(entry);
        if self.run.process(entry).unanswered_changes().load(Ordering::SeqCst) == 0 {
            self.reap(entry);
        } else {
            self.endings.begin(entry, servers);
        }
    }

    /// Gives back what a process held of which nothing is on its way any more.
    pub(super) fn reap(&mut self, entry: usize) {
        let process = Child { entry, claim: self.run.process(entry).claim() };
        if self.reaper.has(process) {
            return;
        }
        if self.live_entries().all(|other| other == entry) && self.nobody_comes_back() {
            // The stores go as a whole, and none of them can keep the command from ending.
            self.reaper.spare_stores();
            return self.run.reap(entry, |_| {});
        }
        let Self { reaper, stores, run_fd, .. } = self;
        let means = || Ok::<_, Errno>(Means { run: RunState::map(&*run_fd)?, stores: stores.with_slots() });
        // Where the kernel gives no memory or no thread, the slots come back at the end of the run.
        let _ = reaper.give_back(process, means);
    }

    /// Entries of processes that live, as far as is known.
    pub(super) fn live_entries(&self) -> impl Iterator<Item = usize> {
        self.run.processes().filter(|&entry| {
            let claim = self.run.process(entry).claim();
            // The reaper may have freed it this moment.
            claim != 0 && !self.endings.has(entry) && !self.reaper.has(Child { entry, claim })
        })
    }

    /// Whether every process has ended. One whose connection is gone is about to end, or begins its next
    /// program.
    fn nobody_comes_back(&mut self) -> bool {
        self.known.retain(|process| !has_ended(process));
        if let [process] = &self.known[..] {
            let mut polled =
                [PollFd::new(process, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&ENDING));
            self.known.retain(|process| !has_ended(process));
        }
        self.known.is_empty()
    }

    /// Whether a child was announced and has not come yet.
    pub(super) fn is_expected(&self, child: Child) -> bool {
        child.entry < MAX_PROCESSES
            && self.run.process(child.entry).claim() == child.claim
            && !self.reaper.has(child)
            && self.connections.iter().all(|connection| connection.entry != Some(child.entry))
    }

    /// Gives back what forked children held that have ended before they came here, and what was claimed for a
    /// child whose parent was killed before it said whether there is one.
    pub(super) fn reap_unborn(&mut self) {
        let known: Vec<usize> = self.connections.iter().filter_map(|connection| connection.entry).collect();
        let absent: Vec<usize> = self.live_entries().filter(|entry| !known.contains(entry)).collect();
        let before = std::mem::take(&mut self.orphans);
        for entry in absent {
            let process = self.run.process(entry);
            match (process.pid(), process.parent()) {
                (0 | PID_OF_ANOTHER_NAMESPACE, Some(parent)) if !known.contains(&parent) => {
                    // If the child lives, its first step is to come here.
                    let waiting = before.iter().find(|(orphan, _)| *orphan == entry);
                    let since = waiting.map_or_else(Instant::now, |(_, since)| *since);
                    if since.elapsed() > ORPHANS_PATIENCE {
                        self.reap(entry);
                    } else {
                        self.orphans.push((entry, since));
                    }
                }
                (0 | PID_OF_ANOTHER_NAMESPACE, _) => {}
                (pid, _) if std::path::Path::new(&format!("/proc/{pid}")).exists() => {}
                _ => self.reap(entry),
            }
        }
    }
}
