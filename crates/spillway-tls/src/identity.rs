//! Who a client is, by its certificate.

use std::fmt;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::TlsError;

/// Longest name of a client, in bytes: X.509's own limit for a common name.
pub const MAX_NAME_BYTES: usize = 64;

/// The name of a client: its certificate's common name, or where it has none, the first DNS name in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientName {
    bytes: [u8; MAX_NAME_BYTES],
    length: u8,
}

impl ClientName {
    /// The name in a certificate that was verified, in DER.
    ///
    /// # Errors
    /// The certificate has no name, or one that cannot be shown.
    pub fn of_certificate(der: &[u8]) -> Result<Self, TlsError> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| {
            TlsError::Certificate(format!("the client's certificate cannot be read: {error}"))
        })?;
        let common = certificate.subject().iter_common_name().next();
        let name = match common.and_then(|name| name.as_str().ok()).filter(|name| !name.is_empty()) {
            Some(name) => Some(name.to_owned()),
            None => dns_name(&certificate),
        };
        let name = name.ok_or_else(|| {
            TlsError::Certificate(
                "the client's certificate names nobody: make one with a common name".to_owned(),
            )
        })?;
        Self::new(&name).ok_or_else(|| {
            TlsError::Certificate(format!(
                "the name in the client's certificate has more than {MAX_NAME_BYTES} bytes, or characters \
                 that cannot be shown: make one with another common name"
            ))
        })
    }

    /// A name; `None` where it is empty, too long, or has control characters.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let is_fit = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        if !is_fit {
            return None;
        }
        let mut bytes = [0; MAX_NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { bytes, length: name.len() as u8 })
    }

    fn text(&self) -> &str {
        self.bytes
            .get(..usize::from(self.length))
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

fn dns_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) if !name.is_empty() => Some((*name).to_owned()),
        _ => None,
    })
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_they_are_or_refused() {
        for name in ["ada", "a", "Ada Lovelace", "größe", &"x".repeat(64)] {
            assert_eq!(ClientName::new(name).unwrap().to_string(), name);
        }
        for name in ["", "a\nb", "\u{1b}[2J", &"x".repeat(65)] {
            assert_eq!(ClientName::new(name), None, "{name:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_name() {
        for bytes in [&b""[..], b"\x30", b"\x30\x82\xff\xff", &[0x30; 400]] {
            let error = ClientName::of_certificate(bytes).unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }
}
