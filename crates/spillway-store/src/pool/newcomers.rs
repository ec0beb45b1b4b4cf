//! Donors that come while a run lasts: who is registered and not known yet is asked for memory, and joins.
//! The run itself is registered too, with how its pages are, for who looks after the pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_pool::EXTENT_BYTES;
use spillway_pool::MAX_DONORS;

use super::begin::{Share, begin_member, expect_again};
use super::site::Site;
use super::watcher::Watcher;
use crate::membership::{Directory, Member, RunState};
use crate::spec::EtcdPool;
use crate::{Notice, NoticeKind};

/// How often the directory is asked at least.
const PERIOD: Duration = Duration::from_secs(1);
/// It is asked no sooner after a change, and the end of the run is heard of within that time.
const GLANCE: Duration = Duration::from_millis(100);
/// A donor that could not join is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Learns of donors that come.
pub(super) struct Newcomers {
    site: Arc<Site>,
    etcd: EtcdPool,
    directory: Box<dyn Directory>,
    /// The user knows that the directory does not answer.
    is_away: bool,
    /// The user knows that no further donor can join.
    has_told_full: bool,
    /// Donors that could not join, by address, and when they were tried.
    refused: HashMap<String, Instant>,
    /// By address of the run's donors: the key that is expected of it.
    keys: HashMap<String, String>,
    /// The host that this is, by its own name.
    host: String,
    /// Bytes that had been copied when the run was registered last, and when that was.
    copied: (u64, Instant),
    /// When the directory was told last how the run is.
    told: Option<Instant>,
}

impl Newcomers {
    /// Begins to ask a directory.
    pub(super) fn start(site: &Arc<Site>, etcd: &EtcdPool, directory: Box<dyn Directory>) {
        let mut newcomers = Self {
            site: Arc::clone(site),
            etcd: etcd.clone(),
            directory,
            is_away: false,
            has_told_full: false,
            refused: HashMap::new(),
            keys: HashMap::new(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            copied: (0, Instant::now()),
            told: None,
        };
        site.spawn("pool members", GLANCE, move || newcomers.tick());
    }

    fn tick(&mut self) {
        let has_changed = self.directory.await_change(GLANCE);
        let is_due = self.told.is_none_or(|told| told.elapsed() >= PERIOD);
        if has_changed || is_due {
            self.look();
        }
        if is_due {
            self.told = Some(Instant::now());
        }
        if is_due && !self.is_away {
            let state = self.state();
            // Where etcd does not answer, the next look says so.
            let _ = self.directory.register(&state);
        }
    }

    fn look(&mut self) {
        match self.directory.look() {
            Ok(members) => {
                if std::mem::take(&mut self.is_away) {
                    let text = format!("pool: {} answers again", self.etcd);
                    self.site.tell(Notice::new(NoticeKind::DirectoryBack, &text));
                }
                members.iter().for_each(|member| self.meet(member));
            }
            Err(reason) if !std::mem::replace(&mut self.is_away, true) => {
                let text = format!(
                    "pool: {reason}: the run goes on with the donors that it knows, and learns of no others \
                     until etcd answers again"
                );
                self.site.tell(Notice::new(NoticeKind::DirectoryAway, &text).because(&reason));
            }
            Err(_) => {}
        }
    }

    /// The run as it is now.
    fn state(&mut self) -> RunState {
        let found = self.site.found();
        let (copied_bytes, now) = (self.site.copied_bytes(), Instant::now());
        let (before_bytes, before) = std::mem::replace(&mut self.copied, (copied_bytes, now));
        let seconds = now.saturating_duration_since(before).as_secs_f64();
        let copied_bytes_per_s = (copied_bytes - before_bytes) as f64 / seconds.max(f64::MIN_POSITIVE);
        RunState {
            host: self.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            copies: self.site.shared.table().wanted_copies(),
            stored_bytes: found.stored_bytes,
            endangered_bytes: found.endangered_bytes,
            unreachable_bytes: found.unreachable_bytes,
            left_bytes: found.left_bytes,
            spilled_bytes: found.spilled_bytes,
            copied_bytes_per_s: copied_bytes_per_s as u64,
        }
    }

    fn meet(&mut self, member: &Member) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let is_known = (0..table.donors()).any(|donor| table.text(donor) == member.address);
        let is_too_soon = self.refused.get(&member.address).is_some_and(|when| when.elapsed() < TRY_AGAIN);
        if is_known {
            self.know_key(member);
        }
        // One that has nothing to lend now may have later.
        let is_of_use = !member.is_draining && member.free_bytes >= EXTENT_BYTES;
        if is_known || is_too_soon || !is_of_use || site.is_over() {
            return;
        }
        if !table.has_place() {
            if !std::mem::replace(&mut self.has_told_full, true) {
                let text = format!(
                    "pool: donor {} is not used: the run has had {MAX_DONORS} donors, the most that one can; \
                     runs that begin now use it",
                    member.address
                );
                site.tell(Notice::new(NoticeKind::DonorUnused, &text).about(&member.address));
            }
            return;
        }
        if let Err(reason) = self.join(member) {
            let is_first = self.refused.insert(member.address.clone(), Instant::now()).is_none();
            if is_first {
                let text = format!("pool: donor {} has come and is not used: {reason}", member.address);
                site.tell(
                    Notice::new(NoticeKind::DonorUnused, &text).about(&member.address).because(&reason),
                );
            }
        }
    }

    /// A donor that is restarted may come back with another key than it had.
    fn know_key(&mut self, member: &Member) {
        let is_new = !member.key.is_empty() && self.keys.get(&member.address) != Some(&member.key);
        let shared = &self.site.shared;
        if is_new && expect_again(member, &shared.spec.transport, &shared.token).is_ok() {
            self.keys.insert(member.address.clone(), member.key.clone());
        }
    }

    fn join(&mut self, member: &Member) -> Result<(), String> {
        let (site, shared) = (&self.site, &self.site.shared);
        let table = shared.table();
        // A run that says nothing has been promised what there was, and takes its share of what comes.
        let donors = shared.well_donors() + 1;
        let share = || Share::of(shared.spec.redundancy, table.most_of_a_donor().into(), donors);
        let share = Share::asked(&shared.spec, donors).unwrap_or_else(share);
        let (donor, begun) = begin_member(member, &shared.spec.transport, Some(share), &shared.token)?;
        if site.is_over() {
            begun.end();
            return Ok(());
        }
        let Some(number) = table.join(&donor) else {
            begun.end();
            return Err("no place is left for it".to_owned());
        };
        site.hold(number, begun.fd);
        Watcher::start(site, number);
        self.refused.remove(&member.address);
        let lent_bytes = u64::from(table.room(number).0) * EXTENT_BYTES;
        let text = format!(
            "pool: donor {} has come: {} MiB of it are used for new pages and for copies",
            member.address,
            lent_bytes >> 20
        );
        site.tell(Notice::new(NoticeKind::DonorJoined, &text).about(&member.address).number(lent_bytes));
        Ok(())
    }
}
