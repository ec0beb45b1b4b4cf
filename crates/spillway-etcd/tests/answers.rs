//! Whatever etcd answers, and whatever anybody has written there, no reader panics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "exercise/etcd.rs"]
mod exercise;

use std::time::Duration;

use proptest::prelude::*;
use spillway_etcd::gateway::{EtcdError, Gateway};
use spillway_etcd::{answer, directory, run_registration};
use spillway_store::StoreSpec;
use spillway_store::spec::Members;

proptest! {
    #[test]
    fn garbage_never_panics(data in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise::exercise(&data);
    }

    #[test]
    fn what_almost_registers_never_panics(
        address in "(10\\.0\\.0\\.2|\\[::1\\]|a):[0-9]{1,5}",
        names in prop::array::uniform3("[a-z \u{1b}]{0,9}"),
        numbers in any::<[i64; 2]>(),
    ) {
        let [domain, version, host] = names;
        let [one, other] = numbers;
        exercise::exercise(format!("{address}\n{domain}\n{version}\n{host}\n{one}\n{other}").as_bytes());
    }
}

#[test]
fn sound_answers_are_understood() {
    assert_eq!(answer::lease(r#"{"ID":"7","TTL":"5"}"#), Ok(7));
    assert_eq!(answer::lease("{}"), Err("a lease without a number".to_owned()));
    assert_eq!(answer::lasts(r#"{"result":{"ID":"7","TTL":"5"}}"#), Ok(true));
    assert_eq!(answer::lasts(r#"{"result":{"ID":"7"}}"#), Ok(false));
    assert_eq!(answer::done("{}"), Ok(()));
    assert!(answer::done("<html>").is_err());
    let found =
        answer::found(r#"{"header":{"revision":"9"},"kvs":[{"key":"YQ==","value":"Yg=="},{"key":"/"}]}"#);
    assert_eq!(found, Ok((vec![("a".to_owned(), "b".to_owned())], 9)));
    assert_eq!(answer::refusal(r#"{"error":"no \u001b[2Jroom"}"#), Some("no [2Jroom".to_owned()));
    assert_eq!(answer::refusal(r#"{"error":""}"#), None);
}

#[test]
fn numbers_at_their_ends_are_read() {
    let value = r#"{"address":"10.0.0.2:1","domain":"d","version":"v","free_bytes":18446744073709551615}"#;
    let member = directory::member("/10.0.0.2:1", value).unwrap();
    assert_eq!(member.free_bytes, u64::MAX);
    let value = r#"{"host":"h","pid":4294967295,"version":"v","copies":1,"left_bytes":18446744073709551615}"#;
    let run = run_registration::run("/h:4294967295", value).unwrap();
    assert_eq!(run.left_bytes, u64::MAX);
}

#[test]
fn a_watch_begins_after_the_last_revision_of_all() {
    let (_, revision) = answer::found(r#"{"header":{"revision":"9223372036854775807"}}"#).unwrap();
    // Nobody listens there.
    let spec: StoreSpec = "pool:etcd://127.0.0.1:1/lab".parse().unwrap();
    let StoreSpec::Pool(pool) = spec else { panic!("no pool") };
    let Members::Etcd(pool) = pool.members else { panic!("no etcd") };
    let watched = Gateway::new(&pool).unwrap().watch("/", revision, Duration::from_secs(5), |_| true);
    assert!(matches!(watched, Err(EtcdError::Away(_))), "{watched:?}");
}
