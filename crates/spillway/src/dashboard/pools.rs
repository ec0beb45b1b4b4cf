//! Pools of donors on the dashboard: a thread for each asks its donors, while somebody looks.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::pool::{Looked, Pool, Reach};

/// Donors are asked this often: each time is a connection, of which they tell.
const PERIOD: Duration = Duration::from_secs(5);
/// Whoever shows the page asks once a second; after so long without nobody does.
const UNWATCHED: Duration = Duration::from_secs(10);
/// How soon it is noticed that somebody looks.
const NOTICE: Duration = Duration::from_millis(100);

/// The pools that are shown.
pub(super) struct Pools(Arc<Mutex<Shown>>);

struct Shown {
    /// In the order in which they were named.
    looked: Vec<Looked>,
    asked: Option<Instant>,
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pools {
    /// Looks at these from now on.
    pub(super) fn watch(
        pools: &[Pool],
        reach: &Reach,
        etcd_certificates: Option<&Path>,
    ) -> std::io::Result<Self> {
        let looked = pools.iter().map(Pool::unlooked).collect();
        let shown = Arc::new(Mutex::new(Shown { looked, asked: None }));
        for (index, pool) in pools.iter().cloned().enumerate() {
            let (shown, reach) = (Arc::clone(&shown), reach.clone());
            let certificates = etcd_certificates.map(Path::to_owned);
            let body = move || look_after(index, || pool.look(&reach, certificates.as_deref()), &shown);
            std::thread::Builder::new().name("pool".to_owned()).spawn(body)?;
        }
        Ok(Self(shown))
    }

    /// What was seen last, as JSON: an array with an object for each pool.
    pub(super) fn json(&self) -> String {
        let mut shown = lock(&self.0);
        shown.asked = Some(Instant::now());
        serde_json::to_string(&shown.looked).unwrap_or_default()
    }
}

fn look_after(index: usize, look: impl Fn() -> Looked, shown: &Mutex<Shown>) {
    loop {
        let is_watched = lock(shown).asked.is_some_and(|asked| asked.elapsed() < UNWATCHED);
        if !is_watched {
            std::thread::sleep(NOTICE);
            continue;
        }
        let looked = look();
        if let Some(before) = lock(shown).looked.get_mut(index) {
            *before = looked;
        }
        std::thread::sleep(PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_shown_before_it_was_asked_and_nobody_is_asked_while_nobody_looks() {
        let pools: Vec<Pool> =
            ["127.0.0.1:1,127.0.0.1:2", "etcd://127.0.0.1:3/lab"].map(|name| name.parse().unwrap()).into();
        let shown = Pools::watch(&pools, &Reach::default(), None).unwrap();
        assert!(lock(&shown.0).asked.is_none());
        let told: serde_json::Value = serde_json::from_str(&shown.json()).unwrap();
        assert_eq!(
            (&told[0]["pool"], &told[1]["pool"]),
            (&"127.0.0.1:1,127.0.0.1:2".into(), &"etcd://127.0.0.1:3/lab".into())
        );
        assert!(told[0]["donors"].as_array().unwrap().is_empty() && told[0]["kind"] == "pool", "{told}");
        assert!(lock(&shown.0).asked.is_some());
    }
}
