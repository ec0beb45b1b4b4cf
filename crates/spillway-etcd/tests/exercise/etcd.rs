//! What every answer of etcd's must stand, and every value that anybody has written there: no reader panics,
//! and what is taken for a donor or a run is one that could have registered itself. Shared by the property
//! tests (`answers.rs`) and the fuzz target (`fuzz/fuzz_targets/etcd.rs`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use spillway_etcd::answer::{self, Told};
use spillway_etcd::{Registration, directory, run_registration};
use spillway_store::membership::{Member, RunState};

/// Feeds `data` to every reader, as it is and as the parts of sound answers.
pub fn exercise(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    answers(&text);
    let mut parts = text.split('\n');
    let mut part = || parts.next().unwrap_or_default();
    let pairs = [[part(), part()], [part(), part()]];
    let numbers = [part(), part()];
    let encoded = pairs.map(|pair| pair.map(|text| STANDARD.encode(text)));
    let kvs = encoded.clone().map(|[key, value]| json!({ "key": key, "value": value }));
    let [[key, value], [gone, raw]] = encoded;
    let range = json!({ "header": { "revision": numbers[0] }, "kvs": kvs });
    let found = answer::found(&range.to_string());
    let told = pairs.map(|[key, value]| (key.to_owned(), value.to_owned())).to_vec();
    assert_eq!(found.ok(), numbers[0].parse().ok().map(|revision| (told.clone(), revision)));
    let events = json!([
        { "kv": { "key": key, "value": value } },
        { "type": "DELETE", "kv": { "key": gone } },
        { "kv": { "key": raw, "value": pairs[1][1] } },
    ]);
    let line = json!({ "result": { "created": data.len().is_multiple_of(2), "events": events } });
    let heard = answer::told_by(&line.to_string()).expect("a line of a watch");
    assert!(heard.contains(&Told::Put(told[0].clone())) && heard.contains(&Told::Deleted(told[1].0.clone())));
    for text in [
        json!({ "ID": numbers[0], "TTL": numbers[1] }),
        json!({ "result": { "ID": numbers[0], "TTL": numbers[1] } }),
        json!({ "error": text }),
    ] {
        answers(&text.to_string());
    }
    for [key, value] in pairs {
        registered(key, value);
    }
    registrations(pairs, numbers);
}

fn answers(text: &str) {
    assert_ne!(answer::lease(text), Ok(0));
    let _ = answer::lasts(text);
    let _ = answer::done(text);
    if let Ok((pairs, _)) = answer::found(text) {
        pairs.iter().for_each(|(key, value)| registered(key, value));
    }
    for told in answer::told_by(text).into_iter().flatten() {
        if let Told::Put((key, value)) = told {
            registered(&key, &value);
        }
    }
    let reason = answer::refusal(text);
    assert!(reason.is_none_or(|reason| is_plain(&reason) && reason.chars().count() <= 200));
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// What donors and runs might have written, or somebody in their place.
fn registrations([[address, domain], [version, host]]: [[&str; 2]; 2], numbers: [&str; 2]) {
    let [one, other] = numbers.map(|number| number.parse().unwrap_or(u64::MAX));
    let own = Registration {
        address: address.to_owned(),
        domain: domain.to_owned(),
        version: version.to_owned(),
        offered_bytes: one,
        free_bytes: other,
        is_draining: one % 2 == 0,
        key: if one % 3 == 0 { String::new() } else { host.to_owned() },
    };
    let value = serde_json::to_string(&own).expect("a registration");
    registered(&format!("/spillway/pools/a/donors/{address}"), &value);
    let run = RunState {
        host: host.to_owned(),
        pid: one as u32,
        version: version.to_owned(),
        copies: other as usize,
        stored_bytes: other,
        ..RunState::default()
    };
    let value = serde_json::to_string(&run).expect("a run's state");
    registered(&format!("/spillway/pools/a/runs/{host}:{}", run.pid), &value);
}

fn registered(key: &str, value: &str) {
    if let Some(member) = directory::member(key, value) {
        let Member { address, domain, version, key: print, .. } = &member;
        assert!(key.ends_with(address) && is_plain(domain) && is_plain(version), "{key} {value}");
        assert!(print.is_empty() || is_plain(print), "{key} {value}");
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
        let again = serde_json::to_string(&Registration::from(member.clone())).expect("a registration");
        assert_eq!(directory::member(key, &again), Some(member));
    }
    if let Some(run) = run_registration::run(key, value) {
        assert!(is_plain(&run.host) && is_plain(&run.version) && run.pid > 0 && run.copies > 0);
        let again = serde_json::to_string(&run).expect("a run's state");
        assert_eq!(run_registration::run(key, &again), Some(run));
    }
}
