//! Programs that check every byte, for as long as they are let.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::fault_common::{Hold, Scene};
use crate::support::child::{Finished, PATIENCE, Running, until};
use crate::support::mix;
use crate::support::tools::{java_class, tool};
use crate::support::workloads::{PostgresAtWork, RedisAtWork};

/// Which program is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of ours, which rewrites pages and knows what each must hold.
    Writer,
    /// `sort`, again and again, whose output is compared with what it must be.
    Sort,
    /// Redis, whose values a client reads and writes anew.
    Redis,
    /// PostgreSQL: processes by fork, books that must agree, and a query that sorts and hashes.
    Postgres,
    /// A JVM, whose heap moves, again and again; what it says is compared with what it must be.
    Jvm,
}

impl Kind {
    /// What the run may need of its pool, in MiB.
    pub fn far_mib(self) -> u64 {
        match self {
            Self::Writer | Self::Sort | Self::Redis => 48,
            Self::Postgres | Self::Jvm => 128,
        }
    }
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

/// Runs `$@` until there is a file `$STOP`, and compares what it says with `$EXPECTED`.
const AGAIN: &str = r#"
while [ ! -e "$STOP" ]; do
    "$@" > "$EXPECTED.out" || exit 98
    cmp "$EXPECTED.out" "$EXPECTED" || exit 99
    echo on
done
echo whole
"#;

/// A program under way.
pub enum Work {
    Writer(Hold),
    /// One that says `on` each time that it was right, until there is a file.
    Again {
        running: Running,
        stop: PathBuf,
    },
    Redis(RedisAtWork),
    Postgres(PostgresAtWork),
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
            Kind::Postgres => {
                Self::Postgres(PostgresAtWork::start(|program| scene.run(LOCAL, &[store], program)))
            }
            Kind::Jvm => Self::jvm(scene, store),
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
        Self::again(&mut command, stop)
    }

    fn again(command: &mut Command, stop: PathBuf) -> Self {
        let mut work = Self::Again { running: Running::start(command), stop };
        work.goes_on();
        work
    }

    fn jvm(scene: &Scene, store: &str) -> Self {
        let [stop, expected] = ["stop", "expected"].map(|name| scene.work().join(name));
        let java = java_class("Heap", scene.work());
        let arguments = ["-Xmx48m", "-XX:-UsePerfData", "-cp", scene.work().to_str().unwrap(), "Heap", "20"];
        let right = Command::new(&java).args(arguments).output().unwrap();
        assert!(right.status.success() && !right.stdout.is_empty(), "{right:?}");
        fs::write(&expected, right.stdout).unwrap();
        let mut command = scene.run(LOCAL, &[store], "/bin/sh");
        command.env("STOP", &stop).env("EXPECTED", &expected);
        Self::again(command.args(["-c", AGAIN, "jvm"]).arg(java).args(arguments), stop)
    }

    fn running(&mut self) -> &mut Running {
        match self {
            Self::Writer(hold) => &mut hold.running,
            Self::Again { running, .. } => running,
            Self::Redis(redis) => &mut redis.server,
            Self::Postgres(postgres) => &mut postgres.server,
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
            Self::Postgres(postgres) => postgres.goes_on(),
            Self::Again { running, .. } => {
                let before = running.text().matches("on\n").count();
                // It says something only after all of it, on links that lose packets too.
                until(5 * PATIENCE, "the program to go on", || {
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
            Self::Postgres(postgres) => postgres.ends_whole(),
            Self::Again { mut running, stop } => {
                fs::write(stop, "").unwrap();
                let finished = running.finish(5 * PATIENCE);
                assert!(finished.success().ends_with("whole\n"), "{finished:?}");
                finished
            }
        }
    }
}
