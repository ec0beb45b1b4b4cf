//! TLS between runs and donors: X.509 certificates on both sides, as files of the names that libnbd, nbdkit
//! and QEMU use, and sessions that do no I/O. The cryptography is `rustls` with `ring`; only TLS 1.3 is
//! spoken.
//!
//! | file | holds |
//! |---|---|
//! | [`error`] | what is wrong with certificates or the other side, in words with a remedy |
//! | [`identity`] | who a client is, by its certificate |
//! | [`key_print`] | by which key a machine is known |
//! | [`files`] | certificates and keys as they lie in a directory |
//! | [`revocation`] | certificates that an authority has taken back |
//! | [`session`] | one connection: plain bytes to sealed ones and back |
//! | [`records`] | one whose handshake is over, for whoever goes on with it |
//! | [`sides`] | what a server and a client begin sessions with |
//! | [`making`] | making certificates |
//! | [`taking_back`] | taking them back: the authority's list of those that it has revoked |

pub mod error;
pub mod files;
pub mod identity;
pub mod key_print;
pub mod making;
pub mod records;
mod revocation;
pub mod session;
pub mod sides;
pub mod taking_back;

pub use error::TlsError;
pub use identity::ClientName;
pub use key_print::KeyPrint;
pub use session::Session;
pub use sides::{ClientSide, ServerSide};
