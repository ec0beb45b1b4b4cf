//! Requests to etcd by its JSON gateway (etcd 3.4 and later: `POST /v3/...`). Keys and values travel in
//! base64, numbers of 64 bits as text.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use spillway_store::spec::EtcdPool;
use thiserror::Error;

/// How long one server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to be connected.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// No answer is longer: some hundred bytes for each of a pool's donors.
const MOST_BYTES: u64 = 16 << 20;

/// Why etcd does not do what it was asked for.
#[derive(Debug, Error)]
pub enum EtcdError {
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
    servers: Vec<String>,
    /// The server that has answered last.
    last: usize,
}

/// Numbers of 64 bits as etcd's gateway writes them; left out where they are 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeaseAnswer {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "TTL")]
    ttl_s: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamAnswer {
    result: LeaseAnswer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RangeAnswer {
    kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyValue {
    key: String,
    value: String,
}

impl Gateway {
    /// A way to the servers of a pool's etcd; none is asked yet.
    #[must_use]
    pub fn new(pool: &EtcdPool) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .timeout_connect(Some(CONNECT_PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            // etcd is on the way to nowhere.
            .proxy(None);
        let servers = pool.servers.iter().map(ToString::to_string).collect();
        Self { agent: config.build().into(), servers, last: 0 }
    }

    /// Asks for a lease of so many seconds.
    pub fn grant(&mut self, seconds: u64) -> Result<Lease, EtcdError> {
        let answer: LeaseAnswer = self.ask("lease/grant", &json!({ "TTL": seconds }))?;
        match answer.id.parse() {
            Ok(id) if id != 0 => Ok(Lease(id)),
            _ => Err(self.odd("a lease without a number")),
        }
    }

    /// Makes a lease last for its time again; false where there is no such lease any more.
    pub fn keep_alive(&mut self, lease: Lease) -> Result<bool, EtcdError> {
        let answer: StreamAnswer = self.ask("lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        Ok(answer.result.ttl_s.parse::<i64>().is_ok_and(|ttl_s| ttl_s > 0))
    }

    /// Ends a lease, and what hangs on it is gone.
    pub fn revoke(&mut self, lease: Lease) -> Result<(), EtcdError> {
        self.ask("lease/revoke", &json!({ "ID": lease.0.to_string() })).map(|_: Value| ())
    }

    /// Writes a value, which lasts as long as the lease does.
    pub fn put(&mut self, key: &str, value: &str, lease: Lease) -> Result<(), EtcdError> {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        let asked = json!({ "key": key, "value": value, "lease": lease.0.to_string() });
        self.ask("kv/put", &asked).map(|_: Value| ())
    }

    /// All keys that begin with this, and their values. What is no text is left out.
    pub fn under(&mut self, prefix: &str) -> Result<Vec<(String, String)>, EtcdError> {
        let mut end = prefix.as_bytes().to_vec();
        // The first that comes after all of them: a prefix ends in '/'.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let asked = json!({ "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end) });
        let answer: RangeAnswer = self.ask("kv/range", &asked)?;
        let text = |encoded: &str| String::from_utf8(STANDARD.decode(encoded).ok()?).ok();
        Ok(answer.kvs.iter().filter_map(|kv| Some((text(&kv.key)?, text(&kv.value)?))).collect())
    }

    fn odd(&self, reason: impl ToString) -> EtcdError {
        EtcdError::Odd { server: self.servers[self.last].clone(), reason: reason.to_string() }
    }

    /// Asks the server that answered last, then the others.
    fn ask<T: serde::de::DeserializeOwned>(&mut self, what: &str, body: &Value) -> Result<T, EtcdError> {
        let mut failures = Vec::new();
        for _ in 0..self.servers.len() {
            match self.ask_one(what, body) {
                Ok((200, text)) => return serde_json::from_str(&text).map_err(|error| self.odd(error)),
                Ok((status, text)) => return Err(self.refusal(status, &text)),
                Err(error) => failures.push(format!("{}: {error}", self.servers[self.last])),
            }
            self.last = (self.last + 1) % self.servers.len();
        }
        Err(EtcdError::Away(failures.join("; ")))
    }

    fn ask_one(&self, what: &str, body: &Value) -> Result<(u16, String), ureq::Error> {
        let url = format!("http://{}/v3/{what}", self.servers[self.last]);
        let request = self.agent.post(url).content_type("application/json");
        let mut response = request.send(body.to_string().as_bytes())?;
        let text = response.body_mut().with_config().limit(MOST_BYTES).read_to_string()?;
        Ok((response.status().as_u16(), text))
    }

    fn refusal(&self, status: u16, text: &str) -> EtcdError {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said {
            error: String,
        }
        match serde_json::from_str::<Said>(text) {
            Ok(Said { error }) if !error.is_empty() => {
                let reason = error.chars().filter(|letter| !letter.is_control()).take(200).collect();
                EtcdError::Refused { server: self.servers[self.last].clone(), reason }
            }
            _ => self.odd(format!("HTTP status {status}")),
        }
    }
}
