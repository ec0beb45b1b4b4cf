//! The supervisor's threads for a pool: one for each donor ([`super::watcher`]), one that makes lost copies
//! anew ([`super::rebuilder`]) or looks after what is coded ([`super::coded`]), one that learns of donors
//! that come ([`super::newcomers`]), and one for the last resort ([`super::spill_watch`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::coded::keeper::Keeper;
use super::newcomers::Newcomers;
use super::rebuilder::Rebuilder;
use super::shared::Shared;
use super::site::Site;
use super::spill_watch::SpillWatch;
use super::watcher::Watcher;
use crate::Tell;
use crate::spec::Members;

/// The threads that look after a pool.
pub(super) struct Care {
    site: Arc<Site>,
}

impl Care {
    pub(super) fn start(shared: Arc<Shared>, held: Vec<OwnedFd>, tell: Tell) -> Self {
        let donors = shared.table().donors();
        let site = Arc::new(Site::new(shared, held, tell));
        for donor in (0..donors).filter(|donor| !site.shared.table().is_spill(*donor)) {
            Watcher::start(&site, donor);
        }
        SpillWatch::start(&site);
        match Keeper::of(&site) {
            Some(keeper) => keeper.start(),
            None => Rebuilder::start(&site),
        }
        if let Members::Etcd(etcd) = &site.shared.spec.members {
            match crate::membership::open(etcd) {
                Some(Ok(directory)) => Newcomers::start(&site, etcd, directory),
                Some(Err(reason)) => {
                    site.tell(&format!("pool: nobody asks {etcd} for donors that come: {reason}"))
                }
                None => site.tell(&format!("pool: nobody here asks {etcd} for donors that come")),
            }
        }
        Self { site }
    }

    /// Has no work begin any more, waits a little for what is under way, and gives back the connections on
    /// which the run was begun.
    pub(super) fn stop(self) -> Vec<OwnedFd> {
        self.site.end();
        self.site.await_rest();
        // Where a thread has it after all, the connections end with the process.
        self.site.let_go()
    }
}

impl Drop for Care {
    fn drop(&mut self) {
        self.site.end();
    }
}
