//! Programs that check every byte, for as long as they are let.

use std::fs;
use std::process::Command;

use crate::fault_common::{Hold, Scene};
use crate::support::child::{Finished, PATIENCE, Running, until};
use crate::support::mix;
use crate::support::tools::tool;
use crate::support::workloads::RedisAtWork;

/// Which program is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of ours, which rewrites pages and knows what each must hold.
    Writer,
    /// `sort`, again and again, whose output is compared with what it must be.
    Sort,
    /// Redis, whose values a client reads and writes anew.
    Redis,
}

/// Memory of [`Kind::Writer`], in MiB.
const WRITER_MIB: u64 = 32;
const KEYS: u64 = 20_000;
const LINES: u64 = 120_000;
const LOCAL: &str = "8M";

/// Sorts `$1` until there is a file `$2`, and compares with `$3`.
const SORT: &str = r#"
while [ ! -e "$2" ]; do
    sort --parallel=2 --buffer-size=64M "$1" -o "$1.out" || exit 98
    cmp "$1.out" "$3" || exit 99
    echo on
done
echo whole
"#;

/// A program under way.
pub enum Work {
    Writer(Hold),
    Sort { running: Running, stop: std::path::PathBuf },
    Redis(RedisAtWork),
}

impl Work {
    /// Starts a program on this store, and waits until its memory is full.
    pub fn start(kind: Kind, scene: &Scene, store: &str) -> Self {
        match kind {
            Kind::Writer => Self::Writer(Hold::start(scene, WRITER_MIB, &[store])),
            Kind::Sort => Self::sort(scene, store),
            Kind::Redis => {
                let server = scene.run(LOCAL, &[store], tool("redis-server", "redis-server"));
                Self::Redis(RedisAtWork::start(server, scene.work(), KEYS))
            }
        }
    }

    fn sort(scene: &Scene, store: &str) -> Self {
        let [input, stop, sorted] = ["input", "stop", "sorted"].map(|name| scene.work().join(name));
        let mut lines: Vec<String> = (0..LINES)
            .map(|line| format!("{:016x} line {line} of what is to be put in order\n", mix(line)))
            .collect();
        fs::write(&input, lines.concat()).unwrap();
        lines.sort_unstable();
        fs::write(&sorted, lines.concat()).unwrap();
        let mut command: Command = scene.run(LOCAL, &[store], "/bin/sh");
        command.env("LC_ALL", "C").args(["-c", SORT, "sort"]).args([&input, &stop, &sorted]);
        let mut work = Self::Sort { running: Running::start(&mut command), stop };
        work.goes_on();
        work
    }

    fn running(&mut self) -> &mut Running {
        match self {
            Self::Writer(hold) => &mut hold.running,
            Self::Sort { running, .. } => running,
            Self::Redis(redis) => &mut redis.server,
        }
    }

    /// What its run has said.
    pub fn complaint(&mut self) -> String {
        self.running().complaint()
    }

    /// It must get further, and find everything right.
    pub fn goes_on(&mut self) {
        match self {
            Self::Writer(hold) => hold.goes_on(1),
            Self::Redis(redis) => redis.goes_on(),
            Self::Sort { running, .. } => {
                let before = running.text().matches("on\n").count();
                // It says something only after all of it, on links that lose packets too.
                until(5 * PATIENCE, "sort to go on", || {
                    assert!(!running.has_ended(), "it has ended: {} {}", running.text(), running.complaint());
                    (running.text().matches("on\n").count() > before).then_some(())
                });
            }
        }
    }

    /// Tells it to end: everything must be right.
    pub fn ends_whole(self) -> Finished {
        match self {
            Self::Writer(hold) => hold.ends_whole(),
            Self::Redis(redis) => redis.ends_whole(),
            Self::Sort { mut running, stop } => {
                fs::write(stop, "").unwrap();
                let finished = running.finish(PATIENCE);
                assert!(finished.success().ends_with("whole\n"), "{finished:?}");
                finished
            }
        }
    }
}
