//! What must hold of pages that are sealed: no nonce serves for two of them, and none leaves as it is.

use std::collections::btree_map::Entry;

use spillway_core::page::Page;
use spillway_core::seals::NONCE_BYTES;

use crate::contents;
use crate::store_config::StoreKind;
use crate::world::World;

/// A page as one number.
#[must_use]
pub fn digest(page: &Page) -> u64 {
    let words = page.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7))
}

impl World {
    /// A page is about to be sealed under a nonce.
    pub(crate) fn note_nonce(&mut self, nonce: [u8; NONCE_BYTES], page: &Page) {
        self.count("pages sealed");
        match self.nonces.entry(nonce) {
            Entry::Vacant(vacant) => {
                vacant.insert(digest(page));
            }
            Entry::Occupied(before) if *before.get() == digest(page) => {}
            Entry::Occupied(_) => {
                self.fail(format!("two pages are sealed under one nonce: {nonce:?}"));
            }
        }
    }

    /// The pages of this store are sealed.
    pub(crate) fn is_sealed(&self, store: usize) -> bool {
        self.config.sealed && self.stores[store].config.kind != StoreKind::Compressed
    }

    /// A page comes to a store, which whoever keeps it may read.
    pub(crate) fn check_left(&mut self, store: usize, slot: u32, page: &Page) {
        if self.is_sealed(store) && contents::is_readable(page) {
            self.fail(format!(
                "what the program wrote can be read in slot {slot} of {}",
                self.stores[store].uri
            ));
        }
    }
}
