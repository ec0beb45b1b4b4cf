//! What a process seals its pages with.

use spillway_core::page::Page;
use spillway_core::seals::{Seal, SealTable, nonce};

use crate::kernel::{Kernel, planted};
use crate::run::counter::Counter;
use crate::run::state::RunState;
use crate::seal::cipher::{CipherError, PageCipher};

/// The key of a run, and its seals, as process `entry` has them.
pub struct Sealing {
    cipher: PageCipher,
    seals: SealTable<'static>,
    run: &'static RunState,
    entry: usize,
}

impl Sealing {
    /// What process `entry` of a run seals its pages with.
    ///
    /// # Errors
    /// [`CipherError`] where the run seals none, so has no key: nothing may leave then that is to be sealed.
    pub fn of_run(run: &'static RunState, entry: usize) -> Result<Self, CipherError> {
        let (key, seals) = run.key().zip(run.seals()).ok_or(CipherError)?;
        Ok(Self { cipher: PageCipher::new(&key)?, seals, run, entry })
    }

    /// Versions for `count` pages that are about to be sealed: the first of them. `None` once the run has
    /// used them up.
    pub(crate) fn take_versions<K: Kernel>(&self, count: usize) -> Option<u64> {
        if planted!(K, "versions-of-each-process") {
            return Some(self.run.process(self.entry).counted(Counter::PagesWrittenBack) + 1);
        }
        self.seals.take_versions(count)
    }

    /// Seals a page for a slot of the run, as a version that nobody else has.
    pub(crate) fn seal<K: Kernel>(
        &self,
        slot: u32,
        version: u64,
        page: &mut Page,
    ) -> Result<Seal, CipherError> {
        let nonce = nonce(slot, version);
        K::seals(nonce, page);
        Ok(Seal { version, tag: self.cipher.seal(nonce, page)? })
    }

    /// Notes what a slot's page must be opened with from now on, once its store has it. This process holds
    /// the slot.
    pub(crate) fn note<K: Kernel>(&self, slot: u32, seal: Seal) {
        if planted!(K, "seal-of-the-older-version") && self.seals.of(slot).is_some() {
            return;
        }
        self.seals.set(slot, seal);
    }

    /// Opens the page that a slot's store returned. False where it is not what was stored there.
    pub(crate) fn opens<K: Kernel>(&self, slot: u32, page: &mut Page) -> bool {
        let Some(Seal { version, tag }) = self.seals.of(slot) else { return false };
        self.cipher.open(nonce(slot, version), tag, page).is_ok() || planted!(K, "wrong-seal-overlooked")
    }
}
