//! `spillway donor certificates` and `spillway donor revoke`: certificates for donors and clients are made,
//! and taken back.

use std::path::Path;

use spillway_tls::making::{self, Wish};
use spillway_tls::taking_back::take_back;

use crate::tier::print;

pub(super) const MAKE: &str = "\
Example:
  spillway donor certificates certificates --host donor.lab --host 10.0.0.2

Copy ca-cert.pem, server-cert.pem and server-key.pem to the donor, and
ca-cert.pem, client-cert.pem and client-key.pem to the client. Keep ca-key.pem
for yourself: whoever has it can make certificates that both take.";

pub(super) const REVOKE: &str = "\
Examples:
  spillway donor revoke certificates ada                 # who it is for
  spillway donor revoke certificates stolen-client-cert.pem
  spillway donor revoke certificates                     # renew the list

Copy ca-crl.pem beside ca-cert.pem on donors, and where runs start: each
connection that begins is held against it, without a restart. What is on the
list stays there. A connection that has begun goes on.";

/// Makes certificates, and says which.
pub(super) fn make(directory: &Path, hosts: &[String], client: &str, days: u16) -> Result<(), String> {
    let wish =
        Wish { hosts: hosts.to_vec(), client: client.to_owned(), from_days: 0, until_days: i64::from(days) };
    let made = making::make(directory, &wish).map_err(|error| error.to_string())?;
    let lines: String = made.iter().map(|file| format!("{}\n", file.display())).collect();
    print(&lines).map(|_| ()).map_err(|(_, reason)| format!("donor certificates: {reason}"))
}

/// Makes the list of those that are revoked, and says what it is.
pub(super) fn revoke(directory: &Path, which: &[String], days: u16) -> Result<(), String> {
    let listed = take_back(directory, which, i64::from(days)).map_err(|error| error.to_string())?;
    let revoked = match listed.count {
        1 => "1 certificate is revoked".to_owned(),
        count => format!("{count} certificates are revoked"),
    };
    let (file, number) = (listed.file.display(), listed.number);
    let text = format!("{file}: {revoked}; list {number} of this CA, good for {days} days\n");
    print(&text).map(|_| ()).map_err(|(_, reason)| format!("donor revoke: {reason}"))
}
