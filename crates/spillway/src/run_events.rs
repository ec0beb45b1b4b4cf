//! What happens in a run, as events: what its supervisor has to tell of stores and donors, what its programs'
//! pagers have noted, and what the run's counts show.

use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_events::catalogue::run as told;
use spillway_pager::run::counter::Counter;
use spillway_pager::run::noted::{Noted, Reader};
use spillway_pager::run::settings::{FaultMode, Settings};
use spillway_pager::run::state::RunState;
use spillway_store::{Notice, NoticeKind};
use std::sync::atomic::Ordering;

/// A store's refusals are summed up for so long.
const PERIOD: Duration = Duration::from_secs(10);

/// Tells what the supervisor's own watch over stores has found.
pub fn hear(notice: &Notice<'_>) {
    tell(notice, 0);
}

/// Tells something as an event. `pid` is the process whose pager noted it, where one did.
fn tell(notice: &Notice<'_>, pid: u32) {
    let &Notice { kind, about, reason, number, text } = notice;
    let pid = u64::from(pid);
    match kind {
        NoticeKind::Other => told::pool_notice(text),
        NoticeKind::PageRefused => told::page_refused(text, pid, number, reason),
        NoticeKind::PageReadAgain => told::page_read_again(text, pid, reason),
        NoticeKind::StoreFull => told::store_full(text, pid, about),
        NoticeKind::StoreFailed => told::store_failed(text, pid, reason),
        NoticeKind::StoreNearlyFull => told::store_nearly_full(text, pid, about),
        NoticeKind::ForkRefused => told::fork_refused(text, pid, reason),
        NoticeKind::ProgramStopped => told::program_stopped(text, pid, reason),
        NoticeKind::StoreAway => told::store_away(text, about, reason, number),
        NoticeKind::StoreBack => told::store_back(text, about),
        NoticeKind::StoreCrowded => told::store_crowded(text, about, reason),
        NoticeKind::StoreTaken => told::store_taken(text, about),
        NoticeKind::StoreGone => told::store_gone(text, reason),
        NoticeKind::DonorAway => told::donor_away(text, about, reason),
        NoticeKind::DonorBack => told::donor_back(text, about),
        NoticeKind::DonorLost => told::donor_lost(text, about),
        NoticeKind::DonorJoined => told::donor_joined(text, about, number),
        NoticeKind::DonorUnused => told::donor_unused(text, about, reason),
        NoticeKind::DonorDraining => told::donor_draining(text, about),
        NoticeKind::DonorShort => told::donor_short(text, about),
        NoticeKind::DonorStays => told::donor_stays(text, about),
        NoticeKind::DonorDrained => told::donor_drained(text, about),
        NoticeKind::DonorStuck => told::donor_stuck(text, about, number),
        NoticeKind::PagesInDanger => told::pages_in_danger(text, number),
        NoticeKind::PagesSafe => told::pages_safe(text),
        NoticeKind::PagesStuck => told::pages_stuck(text, number),
        NoticeKind::PagesLost => told::pages_lost(text, about, number),
        NoticeKind::DirectoryAway => told::directory_away(text, reason),
        NoticeKind::DirectoryBack => told::directory_back(text),
    }
}

/// Looks at the run's state for what there is to tell, where that is told in JSON: in text, programs' pagers
/// say it themselves.
#[derive(Debug)]
pub struct RunEvents {
    reader: Reader,
    is_limit_told: bool,
    stores: Vec<StoreRefusals>,
}

/// What one store has not taken or given.
#[derive(Debug, Default)]
struct StoreRefusals {
    told: [u64; 3],
    told_at: Option<Instant>,
}

impl StoreRefusals {
    /// What has come since it was told last, if that is to be told now.
    fn news(&mut self, all: [u64; 3], now: Instant, is_last: bool) -> bool {
        let is_due = is_last || self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= PERIOD);
        let is_news = all != self.told && is_due;
        if is_news {
            (self.told, self.told_at) = (all, Some(now));
        }
        is_news
    }
}

impl RunEvents {
    /// Tells of the beginning of a run with these settings, whose program is process `pid`.
    pub fn begin(settings: &Settings, pid: u32) -> Self {
        let Settings { local_bytes, fault_mode, .. } = settings;
        let mode = match fault_mode {
            FaultMode::Thread => "thread",
            FaultMode::Inline => "inline",
        };
        let text = format!("run: process {pid} begins with at most {local_bytes} local, faults by {mode}");
        told::began(&text, pid.into(), local_bytes.bytes(), mode);
        let stores = settings.stores.iter().map(|_| StoreRefusals::default()).collect();
        Self { reader: Reader::default(), is_limit_told: false, stores }
    }

    /// Tells what is new. The last look leaves nothing for later.
    pub fn look(&mut self, run: &RunState, settings: &Settings, is_last: bool) {
        self.look_at_limit(run, settings);
        let mut missed = self.reader.look(run.notices(), hear_noted);
        if is_last {
            // What was unfinished then stays so.
            missed += self.reader.look(run.notices(), hear_noted);
        }
        if missed > 0 {
            told::notices_missed(&format!("{missed} notices of programs' pagers were missed"), missed);
        }
        let now = Instant::now();
        for (index, (store, seen)) in settings.stores.iter().zip(&mut self.stores).enumerate() {
            let counts = run.store(index);
            let all = [counts.full_refusals(), counts.failed_writes(), counts.failed_reads()];
            if seen.news(all, now, is_last) {
                let [full, writes, reads] = all;
                let text = format!(
                    "store {store}: {full} pages found no room so far, {writes} writes and {reads} reads \
                     failed"
                );
                told::store_refusals(&text, store, full, writes, reads);
            }
        }
    }

    fn look_at_limit(&mut self, run: &RunState, settings: &Settings) {
        let left = [Counter::PagesWrittenBack, Counter::CleanDrops, Counter::ZeroDrops];
        let have_left = || left.iter().any(|counter| run.counter(*counter).load(Ordering::Relaxed) > 0);
        if self.is_limit_told || !have_left() {
            return;
        }
        self.is_limit_told = true;
        let limit = settings.local_bytes.bytes() / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let text =
            format!("the local limit of {} is reached: pages leave local memory", Size::from_bytes(limit));
        told::limit_reached(&text, limit);
    }
}

fn hear_noted(noted: &Noted) {
    tell(&noted.notice(), noted.pid);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_summed_up_and_the_last_are_told_at_the_end() {
        let (mut seen, now) = (StoreRefusals::default(), Instant::now());
        assert!(!seen.news([0; 3], now, false));
        assert!(seen.news([1, 0, 0], now, false), "the first at once");
        assert!(!seen.news([9, 0, 0], now, false) && seen.news([9, 0, 0], now + PERIOD, false));
        assert!(!seen.news([9, 0, 0], now + PERIOD * 9, true));
        assert!(seen.news([9, 0, 1], now + PERIOD, true));
    }
}
