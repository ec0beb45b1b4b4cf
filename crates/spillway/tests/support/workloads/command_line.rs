//! Programs that read, work and write.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};

use super::{Scale, Workload};
use crate::support::launch::Launch;
use crate::support::mix;
use crate::support::tools::{c_program, tool};

/// `sort` with a buffer that holds everything.
pub const SORT: Workload = Workload { name: "sort", run: sort };
/// Pipelines of a shell.
pub const PIPELINE: Workload = Workload { name: "pipeline", run: pipeline };
/// A database in memory.
pub const SQLITE: Workload = Workload { name: "sqlite3", run: sqlite };
/// Memory tests of all kinds.
pub const STRESS: Workload = Workload { name: "stress-ng", run: stress };
/// Threads that change their address space while they work.
pub const THREADS: Workload = Workload { name: "threads", run: threads };
/// Large `.bss` and `.data`.
pub const SEGMENTS: Workload = Workload { name: "segments", run: segments };
/// An allocator that knows only the break.
pub const BRK: Workload = Workload { name: "brk", run: brk };

fn sort(launch: &Launch, scale: Scale) -> String {
    let (input, output) = (launch.work().join("input"), launch.work().join("output"));
    let mut lines: Vec<String> = (0..scale.pick(250_000, 1_000_000))
        .map(|line| format!("{:016x} line {line} of what is to be put in order", mix(line)))
        .collect();
    let mut file = BufWriter::new(File::create(&input).unwrap());
    lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
    file.flush().unwrap();
    lines.sort_unstable();
    let mut command = launch.command(tool("sort", "coreutils"));
    command
        .env("LC_ALL", "C")
        .args(["--buffer-size=1G", "--parallel=2", "--output"])
        .arg(&output)
        .arg(&input);
    launch.run(&mut command).success();
    let sorted = fs::read_to_string(&output).unwrap();
    assert!(sorted.lines().eq(lines.iter()), "the output is not sorted, or not the input");
    let mut hasher = DefaultHasher::new();
    sorted.hash(&mut hasher);
    hasher.finish().to_string()
}

fn pipeline(launch: &Launch, scale: Scale) -> String {
    let script = "
        set -e
        seq 1 $0 | awk '{ count[$1 % 100003] += $1 } END { for (key in count) print key, count[key] }' |
            sort -S 64M -n | tee sorted | md5sum
        for i in 1 2 3 4; do ( head -n 1000 sorted | rev | sort -S 16M | md5sum ) & done; wait
        echo \"$(wc -l < sorted) $(sort -S 64M -k2,2n sorted | tail -n 1)\"";
    let mut command = launch.command(tool("sh", "dash"));
    command.current_dir(launch.work()).env("LC_ALL", "C");
    let lines = scale.pick("300000", "2000000");
    launch.run(command.args(["-c", script, lines])).success()
}

// Without `analyze` the planner joins through the weights: 170 candidates for each row, and minutes.
fn sqlite(launch: &Launch, scale: Scale) -> String {
    let sql = format!(
        "pragma cache_size = -1000000;
         create table item(id integer primary key, name text, weight int, note text);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
             insert into item select i, printf('name-%08d', (i * 7919) % {rows}), (i * 31) % 1009,
                 hex(zeroblob(40)) || i from n;
         create index by_name on item(name);
         create index by_weight on item(weight, note);
         update item set note = note || weight where id % 3 = 0;
         delete from item where id % 7 = 0;
         pragma integrity_check;
         analyze;
         select count(*), sum(weight), sum(length(note)), min(name), max(name) from item;
         select weight, count(*), max(note) from item group by weight order by weight limit 5;
         select count(*) from item a join item b on a.name = b.name and a.weight = b.weight;",
        rows = scale.pick(60_000, 200_000)
    );
    let mut command = launch.command(tool("sqlite3", "sqlite3"));
    launch.run(command.args([":memory:", &sql])).success()
}

fn stress(launch: &Launch, scale: Scale) -> String {
    let mut command = launch.command(tool("stress-ng", "stress-ng"));
    command.current_dir(launch.work());
    command.args(["--vm", "2", "--vm-bytes", scale.pick("32M", "128M"), "--vm-method", "all", "--verify"]);
    command.args([
        "--vm-ops",
        scale.pick("200", "1000"),
        "--timeout",
        scale.pick("60", "300"),
        "--no-rand-seed",
    ]);
    let finished = launch.run(&mut command);
    finished.success();
    let log = finished.complaint() + &finished.text();
    assert!(log.contains("successful run completed") && !log.contains("fail"), "{log}");
    "passed".to_owned()
}

fn threads(launch: &Launch, scale: Scale) -> String {
    let arguments = scale.pick(["8", "3"], ["32", "4"]);
    launch.run_with(c_program("threads"), &arguments).success()
}

fn segments(launch: &Launch, scale: Scale) -> String {
    launch.run_with(c_program("segments"), &[scale.pick("1", "4")]).success()
}

fn brk(launch: &Launch, scale: Scale) -> String {
    launch.run_with(c_program("brk"), &[scale.pick("64", "256")]).success()
}
