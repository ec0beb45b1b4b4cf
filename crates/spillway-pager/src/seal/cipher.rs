//! AES-256-GCM (NIST SP 800-38D) over pages, by the `ring` crate.
//!
//! A refused page costs it no error queue and no thread-local storage, as it does OpenSSL's descendants in C:
//! those take memory from malloc(3) there, which on the pager's threads is not to be touched. What the
//! processor can do is found out once, by CPUID alone, without a lock.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use spillway_core::page::Page;
use spillway_core::seals::{NONCE_BYTES, TAG_BYTES};
use thiserror::Error;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The cipher refused something: a page that was not sealed so, or a key of a wrong length.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the cipher refuses it")]
pub struct CipherError;

/// A key, spread out for use.
pub struct PageCipher(LessSafeKey);

impl PageCipher {
    /// The cipher under a key.
    ///
    /// # Errors
    /// [`CipherError`], which no key of this length meets.
    pub fn new(key: &[u8; KEY_BYTES]) -> Result<Self, CipherError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| CipherError)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a page where it lies, and returns its tag. The nonce must never have served before. The whole of
    /// what the page is bound to is in the nonce, so there is no further text that the tag stands for.
    ///
    /// # Errors
    /// [`CipherError`], which no page meets; the page is of no use then.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], page: &mut Page) -> Result<[u8; TAG_BYTES], CipherError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), page);
        tag.map_err(|_| CipherError)?.as_ref().try_into().map_err(|_| CipherError)
    }

    /// Opens a page where it lies.
    ///
    /// # Errors
    /// [`CipherError`] where it is not what was sealed under this key and nonce with this tag; the page is
    /// of no use then.
    pub fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        tag: [u8; TAG_BYTES],
        page: &mut Page,
    ) -> Result<(), CipherError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::empty(), tag.into(), page, 0..);
        opened.map(|_| ()).map_err(|_| CipherError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page::PAGE_SIZE;

    fn cipher(first: u8) -> PageCipher {
        PageCipher::new(&std::array::from_fn(|at| first.wrapping_add(at as u8))).unwrap()
    }

    fn page(seed: u8) -> Page {
        std::array::from_fn(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8)
    }

    #[test]
    fn it_is_aes_256_gcm() {
        // Test case 14 of McGrew and Viega's "The Galois/Counter Mode of Operation": key, nonce and text of
        // zeros.
        let mut page = [0; PAGE_SIZE];
        PageCipher::new(&[0; KEY_BYTES]).unwrap().seal([0; NONCE_BYTES], &mut page).unwrap();
        assert_eq!(page[..16], 0xcea7_403d_4d60_6b6e_074e_c5d3_baf3_9d18_u128.to_be_bytes());
    }

    #[test]
    fn what_was_sealed_opens_and_shows_nothing_meanwhile() {
        let (cipher, nonce) = (cipher(1), [7; NONCE_BYTES]);
        let mut sealed = page(3);
        let tag = cipher.seal(nonce, &mut sealed).unwrap();
        let same = sealed.iter().zip(&page(3)).filter(|(a, b)| a == b).count();
        assert!(same < 64, "{same} of 4096 bytes are as they were, where chance leaves 16");
        cipher.open(nonce, tag, &mut sealed).unwrap();
        assert!(sealed == page(3));
    }

    #[test]
    fn nothing_opens_that_differs_in_one_bit_of_anything() {
        let (cipher, nonce) = (cipher(1), [7; NONCE_BYTES]);
        let mut sealed = page(3);
        let tag = cipher.seal(nonce, &mut sealed).unwrap();
        let opens = |nonce, tag, mut page: Page| cipher.open(nonce, tag, &mut page).is_ok();
        assert!(opens(nonce, tag, sealed));
        for bit in (0..8 * PAGE_SIZE).step_by(997).chain([8 * PAGE_SIZE - 1]) {
            let mut flipped = sealed;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(nonce, tag, flipped), "bit {bit} of the page");
        }
        for bit in 0..8 * TAG_BYTES {
            let mut flipped = tag;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(nonce, flipped, sealed), "bit {bit} of the tag");
        }
        for bit in 0..8 * NONCE_BYTES {
            let mut flipped = nonce;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!opens(flipped, tag, sealed), "bit {bit} of the nonce");
        }
        assert!(!opens(nonce, tag, [0; PAGE_SIZE]) && !opens(nonce, tag, page(3)));
        let mut other = sealed;
        assert_eq!(super::tests::cipher(2).open(nonce, tag, &mut other), Err(CipherError));
    }
}
