//! Requests to etcd by its JSON gateway (etcd 3.4 and later: `POST /v3/...`). Keys and values travel in
//! base64, numbers of 64 bits as text.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use spillway_store::spec::{EtcdPool, EtcdSpeech};
use spillway_tls::{ClientSide, TlsError};
use thiserror::Error;

use crate::answer::{self, Pair, Told};
use crate::{secure, speech};

/// How long one server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to be connected, where another server can be asked in its place.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// No answer is longer: some hundred bytes for each of a pool's donors.
const MOST_BYTES: u64 = 16 << 20;

/// Why etcd does not do what it was asked for.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// It is to be spoken to by TLS, and the certificates for that are of no use.
    #[error("etcd's certificates: {0}")]
    Certificates(#[from] TlsError),
    /// None of the servers answers.
    #[error("etcd does not answer ({0})")]
    Away(String),
    /// The server says no.
    #[error("etcd at {server} refuses ({reason})")]
    Refused {
        /// Which of the servers has said so.
        server: String,
        /// What it says, in its own words.
        reason: String,
    },
    /// The answer is not what etcd answers.
    #[error("what listens at {server} does not answer as etcd 3.4 or later does ({reason})")]
    Odd {
        /// Which of the servers has answered so.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(i64);

/// A way to etcd.
#[derive(Debug)]
pub struct Gateway {
    agent: ureq::Agent,
    /// What a URL begins with: `http` or `https`.
    scheme: &'static str,
    servers: Vec<String>,
    /// The server that has answered last.
    last: usize,
}

/// The first key that comes after all that begin so; a prefix ends in '/'.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

impl Gateway {
    /// A way to the servers of a pool's etcd; none is asked yet.
    ///
    /// # Errors
    /// Certificates for it are missing, or of no use.
    pub fn new(pool: &EtcdPool) -> Result<Self, EtcdError> {
        let connect_patience = if pool.servers.len() > 1 { CONNECT_PATIENCE } else { PATIENCE };
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .timeout_connect(Some(connect_patience))
            .http_status_as_error(false)
            .max_redirects(0)
            // etcd is on the way to nowhere.
            .proxy(None);
        let servers = pool.servers.iter().map(ToString::to_string).collect();
        let (agent, scheme) = match &pool.speech {
            EtcdSpeech::Plain => (config.build().into(), "http"),
            EtcdSpeech::Tls(directory) => {
                // Who has said none has none in the directory that he is in.
                let side = ClientSide::load(directory.as_deref().unwrap_or(Path::new("")))?;
                (secure::agent(config.build(), side), "https")
            }
        };
        Ok(Self { agent, scheme, servers, last: 0 })
    }

    /// Asks for a lease of so many seconds.
    pub fn grant(&mut self, seconds: u64) -> Result<Lease, EtcdError> {
        let text = self.ask("lease/grant", &json!({ "TTL": seconds }))?;
        answer::lease(&text).map(Lease).map_err(|reason| self.odd(reason))
    }

    /// Makes a lease last for its time again; false where there is no such lease any more.
    pub fn keep_alive(&mut self, lease: Lease) -> Result<bool, EtcdError> {
        let text = self.ask("lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        answer::lasts(&text).map_err(|reason| self.odd(reason))
    }

    /// Ends a lease, and what hangs on it is gone.
    pub fn revoke(&mut self, lease: Lease) -> Result<(), EtcdError> {
        let text = self.ask("lease/revoke", &json!({ "ID": lease.0.to_string() }))?;
        answer::done(&text).map_err(|reason| self.odd(reason))
    }

    /// Writes a value, which lasts as long as the lease does.
    pub fn put(&mut self, key: &str, value: &str, lease: Lease) -> Result<(), EtcdError> {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        let asked = json!({ "key": key, "value": value, "lease": lease.0.to_string() });
        let text = self.ask("kv/put", &asked)?;
        answer::done(&text).map_err(|reason| self.odd(reason))
    }

    /// All keys that begin with this, and their values. What is no text is left out.
    pub fn under(&mut self, prefix: &str) -> Result<Vec<Pair>, EtcdError> {
        self.under_at(prefix).map(|(found, _)| found)
    }

    /// The same, and the revision of etcd's data that has them so.
    pub fn under_at(&mut self, prefix: &str) -> Result<(Vec<Pair>, i64), EtcdError> {
        let asked = json!({ "key": STANDARD.encode(prefix), "range_end": end_of(prefix) });
        let text = self.ask("kv/range", &asked)?;
        answer::found(&text).map_err(|reason| self.odd(reason))
    }

    /// Has the server that answered last tell of every change under a prefix that came after a revision,
    /// until `hear` returns false, the time is over, or something breaks. Whoever hears no more looks for
    /// himself.
    pub fn watch(
        &self,
        prefix: &str,
        after_revision: i64,
        time: Duration,
        mut hear: impl FnMut(Told) -> bool,
    ) -> Result<(), EtcdError> {
        let away =
            |error: &dyn std::fmt::Display| EtcdError::Away(format!("{}: {error}", self.servers[self.last]));
        let wish = json!({ "create_request": {
            "key": STANDARD.encode(prefix),
            "range_end": end_of(prefix),
            "start_revision": after_revision.saturating_add(1).to_string(),
        }});
        let url = format!("{}://{}/v3/watch", self.scheme, self.servers[self.last]);
        let request = self.agent.post(url).content_type("application/json");
        let request = request.config().timeout_global(Some(time)).build();
        let response = request.send(wish.to_string().as_bytes()).map_err(|error| away(&error))?;
        if response.status().as_u16() != 200 {
            return Err(self.odd(format!("HTTP status {}", response.status().as_u16())));
        }
        let mut lines = BufReader::new(response.into_body().into_reader());
        let mut line = String::new();
        loop {
            line.clear();
            match lines.by_ref().take(MOST_BYTES).read_line(&mut line) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(away(&error)),
            }
            let Some(told) = answer::told_by(&line) else { return Ok(()) };
            if !told.into_iter().all(&mut hear) {
                return Ok(());
            }
        }
    }

    fn odd(&self, reason: impl ToString) -> EtcdError {
        EtcdError::Odd { server: self.servers[self.last].clone(), reason: reason.to_string() }
    }

    /// Asks the server that answered last, then the others.
    fn ask(&mut self, what: &str, body: &Value) -> Result<String, EtcdError> {
        let mut failures = Vec::new();
        for _ in 0..self.servers.len() {
            match self.ask_one(what, body) {
                Ok((200, text)) => return Ok(text),
                Ok((status, text)) => return Err(self.refusal(status, &text)),
                Err(error) => {
                    let server = &self.servers[self.last];
                    let wrong_speech = (self.scheme == "http")
                        .then(|| speech::after(&error, server, CONNECT_PATIENCE))
                        .flatten();
                    failures.push(match wrong_speech {
                        Some(reason) => format!("{server}: {reason}"),
                        None => format!("{server}: {error}"),
                    });
                }
            }
            self.last = (self.last + 1) % self.servers.len();
        }
        Err(EtcdError::Away(failures.join("; ")))
    }

    fn ask_one(&self, what: &str, body: &Value) -> Result<(u16, String), ureq::Error> {
        let url = format!("{}://{}/v3/{what}", self.scheme, self.servers[self.last]);
        let request = self.agent.post(url).content_type("application/json");
        let mut response = request.send(body.to_string().as_bytes())?;
        let text = response.body_mut().with_config().limit(MOST_BYTES).read_to_string()?;
        Ok((response.status().as_u16(), text))
    }

    fn refusal(&self, status: u16, text: &str) -> EtcdError {
        if let Some(reason) = speech::in_answer(text) {
            return EtcdError::Away(format!("{}: {reason}", self.servers[self.last]));
        }
        match answer::refusal(text) {
            Some(reason) => EtcdError::Refused { server: self.servers[self.last].clone(), reason },
            None => self.odd(format!("HTTP status {status}")),
        }
    }
}
