//! PostgreSQL: many processes, made by fork, that check their own books.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{Scale, Workload};
use crate::support::child::{PATIENCE, Running, free_port, until};
use crate::support::launch::Launch;
use crate::support::tools::{postgres_directory, tool};

/// PostgreSQL under the load of pgbench.
pub const POSTGRES: Workload = Workload { name: "postgres", run: postgres };

/// The sums that each of pgbench's transactions keeps equal.
const BOOKS: &str =
    "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)
    and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)
    and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
    (select count(*) from pgbench_history), (select count(*) from pgbench_accounts)";

/// A query that sorts and hashes in the memory of one process.
const LARGE: &str = "set work_mem = '1GB'; set max_parallel_workers_per_gather = 0;
    with word as materialized (select i, md5(i::text) as text from generate_series(1, ROWS) i)
    select count(*), sum(a.i), md5(string_agg(a.text, '' order by a.text))
    from word a join word b on a.text = b.text";

/// PostgreSQL does not run as root: to be put before a program of its.
fn as_postgres() -> Vec<String> {
    if !rustix::process::getuid().is_root() {
        return Vec::new();
    }
    let setpriv = tool("setpriv", "util-linux").to_str().unwrap().to_owned();
    [&setpriv, "--reuid=postgres", "--regid=postgres", "--clear-groups"].map(str::to_owned).to_vec()
}

fn give_to_postgres(directory: &Path) {
    if rustix::process::getuid().is_root() {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.starts_with("postgres:"));
        let mut ids = line.expect("no user 'postgres': apt-get install postgresql").split(':').skip(2);
        let mut id = || ids.next().and_then(|id| id.parse().ok());
        chown(directory, id(), id()).unwrap();
    }
}

fn postgres(launch: &Launch, scale: Scale) -> String {
    let programs = postgres_directory();
    let home = launch.work().join("postgres");
    fs::create_dir(&home).unwrap();
    give_to_postgres(&home);
    let (data, socket) = (home.join("data"), home.to_str().unwrap().to_owned());
    let as_user = as_postgres();

    let make =
        [programs.join("initdb").to_str().unwrap(), "--no-sync", "--auth=trust", "--username=postgres"]
            .map(str::to_owned);
    let words = [&as_user[..], &make].concat();
    let mut initdb = Command::new(&words[0]);
    Running::start(initdb.args(&words[1..]).arg("-D").arg(&data).current_dir("/")).finish(PATIENCE).success();

    let port = free_port().to_string();
    let server = programs.join("postgres").to_str().unwrap().to_owned();
    let words = [&as_user[..], &[server]].concat();
    let mut command = launch.command(&words[0]);
    command.args(&words[1..]).arg("-D").arg(&data).args(["-k", &socket, "-p", &port, "-h", "127.0.0.1"]);
    command.args(["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "autovacuum_naptime=1s"]);
    let mut server = launch.start(command.current_dir("/"));

    let client = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(programs.join(program));
        command.args(["-h", &socket, "-p", &port, "-U", "postgres"]).args(arguments).current_dir("/");
        Running::start(&mut command).finish(launch.patience())
    };
    let ask =
        |sql: &str| client("psql", &["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
    until(PATIENCE, "PostgreSQL to answer", || {
        let running = &mut server.running;
        assert!(!running.has_ended(), "PostgreSQL has ended: {}", running.complaint());
        ask("select 1").status.success().then_some(())
    });
    let transactions = scale.pick("100", "1000");
    client("pgbench", &["-i", "-q", "-s", scale.pick("1", "5"), "postgres"]).success();
    let bench = client("pgbench", &["-c", "4", "-j", "2", "-t", transactions, "postgres"]);
    assert!(bench.success().contains("number of failed transactions: 0"), "{}", bench.text());
    let books = ask(BOOKS).success();
    assert!(books.starts_with("t|"), "pgbench's sums differ: {books}");
    let large = ask(&LARGE.replace("ROWS", scale.pick("150000", "600000"))).success();
    // A fast shutdown.
    server.stop(Signal::INT).success();
    books + &large
}
