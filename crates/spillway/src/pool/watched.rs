//! Pools of donors on the dashboard and in `top`: a thread for each asks its donors, while somebody looks.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use super::reach::Reach;
use super::status::{Looked, Pool};

/// Donors are asked this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Whoever shows them asks once a second; after so long without nobody does.
const UNWATCHED: Duration = Duration::from_secs(10);
/// How soon it is noticed that somebody looks.
const NOTICE: Duration = Duration::from_millis(100);

/// Which pools are shown, and how they are reached.
#[derive(Args, Clone, Debug, Default)]
pub struct PoolsArgs {
    /// Show this pool of donors too, as 'spillway pool status' does: etcd://HOST:PORT/NAME, or its donors as
    /// HOST:PORT,HOST:PORT; may be repeated
    #[arg(long, value_name = "POOL")]
    pool: Vec<Pool>,
    #[command(flatten)]
    reach: Reach,
    /// What etcd is shown where a pool is etcds://, by TLS [default: what
    /// --tls-certificates says]
    #[arg(long, value_name = "DIR")]
    etcd_certificates: Option<PathBuf>,
}

impl PoolsArgs {
    /// Pools of these names.
    #[cfg(test)]
    pub fn of(names: &[&str]) -> Self {
        Self { pool: names.iter().filter_map(|name| name.parse().ok()).collect(), ..Self::default() }
    }

    /// Asks each of them once, all at the same time.
    pub fn look(&self) -> Vec<Looked> {
        let look = |pool: &Pool| pool.look(&self.reach, self.etcd_certificates.as_deref());
        std::thread::scope(|scope| {
            let asked: Vec<_> = self.pool.iter().map(|pool| scope.spawn(move || look(pool))).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }
}

/// The pools that are shown.
pub struct Pools(Arc<Mutex<Shown>>);

struct Shown {
    /// In the order in which they were named.
    looked: Vec<Looked>,
    asked: Option<Instant>,
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pools {
    /// Looks at these from now on, for who asks every `interval`.
    ///
    /// # Errors
    /// The machine has no thread for it.
    pub fn watch(args: &PoolsArgs, interval: Duration) -> std::io::Result<Self> {
        let looked = args.pool.iter().map(Pool::unlooked).collect();
        let shown = Arc::new(Mutex::new(Shown { looked, asked: None }));
        let patience = interval + UNWATCHED;
        for (index, pool) in args.pool.iter().cloned().enumerate() {
            let (shown, args) = (Arc::clone(&shown), args.clone());
            let look = move || pool.look(&args.reach, args.etcd_certificates.as_deref());
            let body = move || look_after(index, look, &shown, patience);
            std::thread::Builder::new().name("pool".to_owned()).spawn(body)?;
        }
        Ok(Self(shown))
    }

    /// What was seen last, for who shows it.
    pub fn seen<T>(&self, show: impl FnOnce(&[Looked]) -> T) -> T {
        let mut shown = lock(&self.0);
        shown.asked = Some(Instant::now());
        show(&shown.looked)
    }

    /// The same as JSON: an array with an object for each pool.
    pub fn json(&self) -> String {
        self.seen(|looked| serde_json::to_string(looked).unwrap_or_default())
    }
}

fn look_after(index: usize, look: impl Fn() -> Looked, shown: &Mutex<Shown>, patience: Duration) {
    loop {
        let is_watched = lock(shown).asked.is_some_and(|asked| asked.elapsed() < patience);
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
        let args = PoolsArgs::of(&["127.0.0.1:1,127.0.0.1:2", "etcd://127.0.0.1:3/lab"]);
        let shown = Pools::watch(&args, UNWATCHED).unwrap();
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
