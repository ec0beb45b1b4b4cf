//! The donors of a pool, as a run finds them in etcd.

use spillway_store::membership::{Directory, Member};
use spillway_store::spec::EtcdPool;

use crate::gateway::Gateway;
use crate::{Registration, prefix};

/// Where the donors of one pool are registered.
#[derive(Debug)]
pub struct EtcdDirectory {
    pool: EtcdPool,
    gateway: Gateway,
}

/// Opens the directory of a pool; nobody is asked yet.
#[must_use]
pub fn open(pool: &EtcdPool) -> Box<dyn Directory> {
    Box::new(EtcdDirectory { pool: pool.clone(), gateway: Gateway::new(pool) })
}

impl Directory for EtcdDirectory {
    fn look(&mut self) -> Result<Vec<Member>, String> {
        let found = self.gateway.under(&prefix(&self.pool)).map_err(|error| error.to_string())?;
        Ok(found.iter().filter_map(|(key, value)| member(key, value)).collect())
    }
}

/// What a key and its value say; none where they are no donor's, for anybody can write there.
fn member(key: &str, value: &str) -> Option<Member> {
    let member: Member = serde_json::from_str::<Registration>(value).ok()?.into();
    let is_whole = key.ends_with(&format!("/{}", member.address))
        && member.address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.port() != 0)
        && [&member.domain, &member.version].iter().all(|text| text.len() <= 256 && is_plain(text));
    is_whole.then_some(member)
}

/// No terminal takes any of it for a command.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| !letter.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_donor_is_left_out() {
        let value = r#"{"address":"10.0.0.2:10809","domain":"rack 1","version":"0.1.0","offered_bytes":8,
            "free_bytes":4,"is_draining":true,"key_of_a_later_version":"x"}"#;
        let key = "/spillway/pools/lab/donors/10.0.0.2:10809";
        let found = member(key, value).unwrap_or_default();
        let wanted = Member {
            address: "10.0.0.2:10809".into(),
            domain: "rack 1".into(),
            version: "0.1.0".into(),
            offered_bytes: 8,
            free_bytes: 4,
            is_draining: true,
        };
        assert_eq!(found, wanted);
        for (key, value) in [
            ("/spillway/pools/lab/donors/10.0.0.3:10809", value.to_owned()),
            (key, String::new()),
            (key, "{}".to_owned()),
            (key, value.replace("rack 1", "")),
            (key, value.replace("rack 1", "\\u001b[2J")),
            (key, value.replace("0.1.0", &"x".repeat(300))),
            ("/spillway/pools/lab/donors/a:1", value.replace("10.0.0.2:10809", "a:1")),
        ] {
            assert_eq!(member(key, &value), None, "{key} {value}");
        }
    }
}
