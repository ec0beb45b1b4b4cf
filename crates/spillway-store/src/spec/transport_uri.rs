//! What a URI says of how connections are protected, taken apart.

use super::transport::{Tls, Transport};
use super::{SpecError, Uri};

impl Uri<'_> {
    /// From the parameters `plain`, `tls-certificates` and `tls-hostname`.
    pub(super) fn transport(
        &self,
        [plain, certificates, hostname]: [Option<Vec<u8>>; 3],
        form: &'static str,
    ) -> Result<Transport, SpecError> {
        if plain.as_ref().is_some_and(|value| !value.is_empty()) {
            return Err(self.parameter("plain", "takes no value; write ?plain"));
        }
        match (plain, certificates, hostname) {
            (None, None, None) => Ok(Transport::Unsaid),
            (Some(_), None, None) => Ok(Transport::Plain),
            (Some(_), ..) => Err(self.parameter("plain", "is the opposite of TLS; write one of the two")),
            (None, None, Some(_)) => {
                Err(self.parameter("tls-hostname", "is for TLS; write tls-certificates=DIR too"))
            }
            (None, Some(path), hostname) => {
                let certificates = self.path("the directory of tls-certificates", &path, form)?;
                let hostname = hostname.map(|name| self.text_of("tls-hostname", &name, form)).transpose()?;
                if hostname.as_ref().is_some_and(String::is_empty) {
                    return Err(self.parameter("tls-hostname", "is empty; write the name, or leave it out"));
                }
                Ok(Transport::Tls(Tls { certificates, hostname }))
            }
        }
    }
}
