//! What etcd answers by its JSON gateway, and the lines of its watches. Whoever has taken etcd's place may
//! say anything: what is none of its answers is told so.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    header: Header,
    kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyValue {
    key: String,
    value: String,
}

/// A line of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchLine {
    result: WatchResult,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchResult {
    created: bool,
    canceled: bool,
    events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchEvent {
    /// Left out where a value was written.
    r#type: String,
    kv: KeyValue,
}

/// What etcd says where it refuses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    error: String,
}

/// Letters of a reason that are told on.
const MOST_REASON: usize = 200;

/// A key and its value.
pub type Pair = (String, String);

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// From now on it tells of every change.
    Begun,
    /// A value was written.
    Put(Pair),
    /// A key is gone.
    Deleted(String),
}

fn text_of(encoded: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

impl KeyValue {
    /// `None` where it is no text.
    fn pair(&self) -> Option<Pair> {
        Some((text_of(&self.key)?, text_of(&self.value)?))
    }
}

/// What a line of a watch tells; `None` where it is the last: etcd ends the watch, for the revisions that it
/// begins with are compacted, say, or the line is none of a watch.
#[must_use]
pub fn told_by(line: &str) -> Option<Vec<Told>> {
    let WatchLine { result, error } = serde_json::from_str(line).ok()?;
    if error.is_some() || result.canceled {
        return None;
    }
    let begun = result.created.then_some(Told::Begun);
    let each = result.events.iter().filter_map(|event| match event.r#type.as_str() {
        "DELETE" => Some(Told::Deleted(text_of(&event.kv.key)?)),
        _ => Some(Told::Put(event.kv.pair()?)),
    });
    Some(begun.into_iter().chain(each).collect())
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The number of a lease that was granted.
///
/// # Errors
/// What is wrong with the answer, in words.
pub fn lease(text: &str) -> Result<i64, String> {
    let LeaseAnswer { id, .. } = read(text)?;
    id.parse().ok().filter(|id| *id != 0).ok_or_else(|| "a lease without a number".to_owned())
}

/// Whether a lease lasts on, by the answer to who keeps it alive.
///
/// # Errors
/// What is wrong with the answer, in words.
pub fn lasts(text: &str) -> Result<bool, String> {
    let StreamAnswer { result } = read(text)?;
    Ok(result.ttl_s.parse::<i64>().is_ok_and(|ttl_s| ttl_s > 0))
}

/// Etcd has done what it was asked, and has nothing to tell that is needed.
///
/// # Errors
/// What is wrong with the answer, in words.
pub fn done(text: &str) -> Result<(), String> {
    read(text).map(|_: Value| ())
}

/// Keys and their values, as they were found, and the revision of etcd's data that has them so. What is no
/// text is left out.
///
/// # Errors
/// What is wrong with the answer, in words.
pub fn found(text: &str) -> Result<(Vec<Pair>, i64), String> {
    let RangeAnswer { header, kvs } = read(text)?;
    let revision = header.revision.parse().map_err(|_| "an answer without a revision".to_owned())?;
    Ok((kvs.iter().filter_map(KeyValue::pair).collect(), revision))
}

/// Why etcd refuses, in its own words, of which no terminal takes any for a command; `None` where it says
/// nothing of the kind.
#[must_use]
pub fn refusal(text: &str) -> Option<String> {
    let Said { error } = read(text).ok()?;
    let reason: String = error.chars().filter(|letter| !letter.is_control()).take(MOST_REASON).collect();
    (!reason.is_empty()).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_watch_tell_what_has_changed() {
        let key = STANDARD.encode("/a/b");
        let value = STANDARD.encode("{}");
        let line = |result: &str| format!(r#"{{"result":{{"header":{{"revision":"7"}},{result}}}}}"#);
        let put = Told::Put(("/a/b".into(), "{}".into()));
        let deleted = Told::Deleted("/a/b".into());
        assert_eq!(told_by(&line(r#""created":true"#)), Some(vec![Told::Begun]));
        let written = format!(r#"{{"kv":{{"key":"{key}","value":"{value}"}}}}"#);
        let gone = format!(r#"{{"type":"DELETE","kv":{{"key":"{key}"}}}}"#);
        let both = format!(r#""events":[{written},{gone}]"#);
        assert_eq!(told_by(&line(&both)), Some(vec![put, deleted]));
        // What is no text is left out, as in answers to other questions.
        assert_eq!(told_by(&line(r#""events":[{"kv":{"key":"/","value":"x"}}]"#)), Some(vec![]));
        assert_eq!(told_by(&line(r#""canceled":true,"compact_revision":"9""#)), None);
        assert_eq!(told_by(r#"{"error":{"message":"x"}}"#), None);
        assert_eq!(told_by("<html>"), None);
    }
}
