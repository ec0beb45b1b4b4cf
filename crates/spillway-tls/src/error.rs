//! What is wrong with certificates, or with the other side, in words with a remedy.

use std::path::PathBuf;

use rustls::{AlertDescription, CertRevocationListError, CertificateError, Error};
use thiserror::Error as ThisError;

const NAMES: &str = "write a host's name or an IP address; a client's name has at most 64 bytes";

fn making(needed: &str) -> String {
    format!("a directory of certificates has {needed}: 'spillway donor certificates' makes them")
}

/// Why TLS cannot be had.
#[derive(Clone, Debug, ThisError, PartialEq, Eq)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{}: {reason}; {}", file.display(), making(needed))]
    File {
        /// Which file it is.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The names that this side needs.
        needed: &'static str,
    },
    /// A certificate of our own that nobody would take.
    #[error("{}: {reason}; {remedy}", file.display())]
    Own {
        /// The file with the certificate.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// Files cannot be made.
    #[error("{}: {reason}", file.display())]
    Making {
        /// The file or directory that cannot be written.
        file: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// No certificate can be for this.
    #[error("'{0}' is no name that a certificate can be for; {NAMES}")]
    Name(String),
    /// One side does not take the other's certificate: trying again does not help.
    #[error("{0}")]
    Certificate(String),
    /// The other side does not speak TLS as it should, or somebody meddles.
    #[error("TLS: {0}")]
    Broken(String),
}

/// Which side of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// We have connected, and the other side is the server.
    Client,
    /// We were connected to, and the other side is the client.
    Server,
}

impl Side {
    fn other(self) -> &'static str {
        match self {
            Self::Client => "server",
            Self::Server => "client",
        }
    }

    fn this(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl TlsError {
    /// What is wrong, and what to do.
    #[must_use]
    pub fn reason_and_remedy(&self) -> (String, String) {
        match self {
            Self::File { file, reason, needed } => (format!("{}: {reason}", file.display()), making(needed)),
            Self::Own { file, reason, remedy } => {
                (format!("{}: {reason}", file.display()), (*remedy).to_owned())
            }
            Self::Name(name) => {
                (format!("'{name}' is no name that a certificate can be for"), NAMES.to_owned())
            }
            other => (other.to_string(), "then try again".to_owned()),
        }
    }

    /// What a failure of the library's means to whoever runs this side.
    #[must_use]
    pub fn of(error: &Error, side: Side) -> Self {
        let other = side.other();
        match error {
            Error::InvalidCertificate(error) => Self::Certificate(refusal(error, other)),
            Error::InvalidCertRevocationList(error) => {
                Self::Certificate(format!("ca-crl.pem: {}: put a new one there", list_reason(error)))
            }
            Error::NoCertificatesPresented => {
                Self::Certificate(format!("the {other} shows no certificate: give it one of this CA"))
            }
            Error::AlertReceived(alert) if is_about_certificates(*alert) => Self::Certificate(format!(
                "the {other} does not take this {}'s certificate ({}): {}",
                side.this(),
                alert_text(*alert),
                alert_remedy(*alert, side)
            )),
            Error::InvalidMessage(_) => Self::Broken(format!("what the {other} sends is no TLS: {error}")),
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// Why we do not take a certificate.
fn refusal(error: &CertificateError, other: &str) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the {other}'s certificate has expired: give it a new one")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the {other}'s certificate is not valid yet: set the clocks of both machines")
        }
        // Two CAs may have one name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the {other}'s certificate is of another CA than the one in ca-cert.pem: use certificates of one \
             CA on both sides"
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented = if presented.is_empty() { "nobody".to_owned() } else { presented.join(", ") };
            format!(
                "the {other}'s certificate is not for {} but for {presented}: name it so, or say \
                 tls-hostname=NAME",
                expected.to_str()
            )
        }
        CertificateError::NotValidForName => {
            format!("the {other}'s certificate is for another name: name it so, or say tls-hostname=NAME")
        }
        CertificateError::Revoked => {
            format!("the {other}'s certificate was revoked, says ca-crl.pem: give it a new one")
        }
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            format!(
                "whether the {other}'s certificate was revoked is not known, for the list in ca-crl.pem \
                     has expired: put a new one there"
            )
        }
        CertificateError::UnknownRevocationStatus => {
            format!(
                "whether the {other}'s certificate was revoked is not known, for ca-crl.pem has no list \
                     of who signed it: add that"
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("the {other}'s certificate is not made for a {other}: make one for that")
        }
        other_error => format!("the {other}'s certificate is not taken: {other_error:?}"),
    }
}

/// What is wrong with a list.
pub(crate) fn list_reason(error: &CertRevocationListError) -> String {
    match error {
        CertRevocationListError::UnsupportedCrlVersion => {
            "the list of revoked certificates is of version 1, and version 2 is needed (openssl: say \
             crl_extensions in the section of the CA)"
                .to_owned()
        }
        CertRevocationListError::BadSignature => {
            "the list of revoked certificates was not signed by its authority".to_owned()
        }
        CertRevocationListError::IssuerInvalidForCrl => {
            "its authority may not sign lists of revoked certificates (key usage cRLSign)".to_owned()
        }
        other => format!(
            "the list of revoked certificates cannot be used: {}",
            Error::InvalidCertRevocationList(other.clone())
        ),
    }
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

fn alert_text(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateExpired => "it has expired",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => "it is of another CA",
        AlertDescription::CertificateRevoked => "it was revoked",
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => "there is none",
        AlertDescription::AccessDenied => "it may not come in",
        _ => "it is not as the other side wants it",
    }
}

fn alert_remedy(alert: AlertDescription, side: Side) -> &'static str {
    match (alert, side) {
        (AlertDescription::CertificateExpired, _) => "make a new one",
        (_, Side::Client) => "put one of the server's CA into client-cert.pem and client-key.pem",
        (_, Side::Server) => "use certificates of one CA on both sides",
    }
}
