//! Ciphers that could seal a page, behind one face.

use crate::measure::PAGE_BYTES;

pub type Page = [u8; PAGE_BYTES];
pub type Tag = [u8; 16];

/// One library's cipher under a key.
pub trait Cipher {
    /// Seals a page where it lies. No number may be used twice.
    fn seal(&self, number: u64, page: &mut Page) -> Tag;
    /// Opens a page where it lies; false where it is not what was sealed.
    fn open(&self, number: u64, tag: &Tag, page: &mut Page) -> bool;
}

/// How a contender is called and made.
pub type Contender = (&'static str, fn() -> Box<dyn Cipher>);

/// All that this build has. The first is what the product does.
pub fn contenders() -> Vec<Contender> {
    vec![
        ("AES-256-GCM, ring 0.17", || Box::new(Ring::new())),
        ("AES-256-GCM, aws-lc-rs 1.19", || Box::new(AwsLc::new())),
        ("AEGIS-128L", || Box::new(Aegis128L)),
        ("AEGIS-128X2", || Box::new(Aegis128X2)),
        ("AEGIS-128X4", || Box::new(Aegis128X4)),
        ("AEGIS-256", || Box::new(Aegis256)),
        ("AEGIS-256X2", || Box::new(Aegis256X2)),
        ("AEGIS-256X4", || Box::new(Aegis256X4)),
    ]
}

/// Which implementation of AEGIS was built.
pub const AEGIS_BY: &str = if cfg!(feature = "aegis-in-rust") { "Rust" } else { "libaegis (C)" };

const KEY: [u8; 32] = [7; 32];

fn nonce<const BYTES: usize>(number: u64) -> [u8; BYTES] {
    let mut nonce = [3; BYTES];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce
}

struct Ring(ring::aead::LessSafeKey);

impl Ring {
    fn new() -> Self {
        let key = ring::aead::UnboundKey::new(&ring::aead::AES_256_GCM, &KEY).expect("a key of 32 bytes");
        Self(ring::aead::LessSafeKey::new(key))
    }
}

impl Cipher for Ring {
    fn seal(&self, number: u64, page: &mut Page) -> Tag {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce(number));
        let tag = self.0.seal_in_place_separate_tag(nonce, ring::aead::Aad::empty(), page);
        tag.expect("a page can be sealed").as_ref().try_into().expect("16 bytes")
    }

    fn open(&self, number: u64, tag: &Tag, page: &mut Page) -> bool {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce(number));
        let empty = ring::aead::Aad::empty();
        self.0.open_in_place_separate_tag(nonce, empty, (*tag).into(), page, 0..).is_ok()
    }
}

struct AwsLc(aws_lc_rs::aead::LessSafeKey);

impl AwsLc {
    fn new() -> Self {
        let key = aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_256_GCM, &KEY).expect("32 bytes");
        Self(aws_lc_rs::aead::LessSafeKey::new(key))
    }
}

impl Cipher for AwsLc {
    fn seal(&self, number: u64, page: &mut Page) -> Tag {
        let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce(number));
        let tag = self.0.seal_in_place_separate_tag(nonce, aws_lc_rs::aead::Aad::empty(), page);
        tag.expect("a page can be sealed").as_ref().try_into().expect("16 bytes")
    }

    fn open(&self, number: u64, tag: &Tag, page: &mut Page) -> bool {
        let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce(number));
        let empty = aws_lc_rs::aead::Aad::empty();
        self.0.open_in_place_separate_tag(nonce, empty, tag, page).is_ok()
    }
}

macro_rules! aegis {
    ($($name:ident of $module:ident with $key_bytes:literal),* $(,)?) => {
        $(
            struct $name;

            impl Cipher for $name {
                fn seal(&self, number: u64, page: &mut Page) -> Tag {
                    let key = KEY.first_chunk::<$key_bytes>().expect("32 bytes are enough");
                    aegis::$module::$name::<16>::new(key, &nonce(number)).encrypt_in_place(page, &[])
                }

                fn open(&self, number: u64, tag: &Tag, page: &mut Page) -> bool {
                    let key = KEY.first_chunk::<$key_bytes>().expect("32 bytes are enough");
                    let state = aegis::$module::$name::<16>::new(key, &nonce(number));
                    state.decrypt_in_place(page, tag, &[]).is_ok()
                }
            }
        )*
    };
}

aegis!(
    Aegis128L of aegis128l with 16,
    Aegis128X2 of aegis128x2 with 16,
    Aegis128X4 of aegis128x4 with 16,
    Aegis256 of aegis256 with 32,
    Aegis256X2 of aegis256x2 with 32,
    Aegis256X4 of aegis256x4 with 32,
);
