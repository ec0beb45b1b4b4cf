//! What one client may take of a donor that serves others too.

use std::time::Duration;

/// Limits against clients that take without giving others a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most connections of one client, of these.
    pub connections_per_client: usize,
    /// Most exports at once, named and private. Each costs some KiB without any page.
    pub exports: usize,
    /// Most exports that one client has made and that still exist.
    pub exports_per_client: usize,
    /// A client must have chosen its export by then.
    pub handshake: Duration,
    /// How long a request, or the reply to it, may take from its first byte to its last, if it has no data.
    pub request: Duration,
    /// For every so many bytes of data it may take a second longer.
    pub request_bytes_per_s: u64,
    /// A connection without a request for so long may be ended for the sake of a newcomer, where there are as
    /// many as there may be.
    pub idle: Duration,
}

impl Limits {
    /// What a donor of so many connections has.
    #[must_use]
    pub fn of(connections: usize) -> Self {
        const EXPORTS: usize = 1024;
        Self {
            connections,
            connections_per_client: connections.div_ceil(2),
            exports: EXPORTS,
            exports_per_client: EXPORTS / 4,
            handshake: Duration::from_secs(10),
            request: Duration::from_secs(30),
            request_bytes_per_s: 256 << 10,
            idle: Duration::from_secs(5),
        }
    }

    /// How long a request with so much data, or the reply to it, may take.
    #[must_use]
    pub fn request_time(&self, bytes: u64) -> Duration {
        self.request + Duration::from_secs(bytes / self.request_bytes_per_s.max(1))
    }
}
