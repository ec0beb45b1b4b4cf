//! The print of a public key: by it a machine is known that another of the same authority's cannot pass for.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::TlsError;

/// Bytes of a print.
pub const PRINT_BYTES: usize = SHA256_OUTPUT_LEN;
/// What a print's text begins with.
const PREFIX: &str = "sha256:";

/// The SHA-256 of a certificate's public key, as it stands there with its kind (SubjectPublicKeyInfo, in
/// DER): the same for all certificates of one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPrint([u8; PRINT_BYTES]);

impl KeyPrint {
    /// The print of the key in a certificate, in DER.
    ///
    /// # Errors
    /// It is no certificate.
    pub fn of_certificate(der: &[u8]) -> Result<Self, TlsError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| {
            TlsError::Certificate(format!("the key of a certificate cannot be read: {error}"))
        })?;
        let mut bytes = [0; PRINT_BYTES];
        bytes.copy_from_slice(digest(&SHA256, certificate.public_key().raw).as_ref());
        Ok(Self(bytes))
    }

    /// From what [`Self::to_bytes`] has given.
    #[must_use]
    pub fn from_bytes(bytes: [u8; PRINT_BYTES]) -> Self {
        Self(bytes)
    }

    /// As it is sent.
    #[must_use]
    pub fn to_bytes(self) -> [u8; PRINT_BYTES] {
        self.0
    }
}

/// `sha256:` and hexadecimal digits.
impl fmt::Display for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not sha256: and 64 hexadecimal digits")]
pub struct NoKeyPrint;

impl FromStr for KeyPrint {
    type Err = NoKeyPrint;

    fn from_str(text: &str) -> Result<Self, NoKeyPrint> {
        let digits = text.strip_prefix(PREFIX).ok_or(NoKeyPrint)?.as_bytes();
        let mut bytes = [0; PRINT_BYTES];
        if digits.len() != 2 * PRINT_BYTES {
            return Err(NoKeyPrint);
        }
        for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in digits {
                let value = char::from(*digit).to_digit(16).ok_or(NoKeyPrint)?;
                *byte = *byte << 4 | value as u8;
            }
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_print_is_read_as_it_is_written() {
        let print = KeyPrint::from_bytes(std::array::from_fn(|at| at as u8 * 7));
        let text = print.to_string();
        assert!(text.starts_with("sha256:00070e"), "{text}");
        assert_eq!((text.parse(), KeyPrint::from_bytes(print.to_bytes())), (Ok(print), print));
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse(), Ok(print));
        let long = format!("{text}0");
        for other in ["", "sha256:", &text[7..], &text[..70], &long, &text.replace("00", "0x"), "sha512:00"] {
            assert_eq!(other.parse::<KeyPrint>(), Err(NoKeyPrint), "{other}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_key() {
        for bytes in [&b""[..], b"\x30", &[0x30; 400]] {
            assert!(KeyPrint::of_certificate(bytes).unwrap_err().to_string().contains("cannot be read"));
        }
    }
}
