//! PostgreSQL: many processes, made by fork, that check their own books.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::{Scale, Workload};
use crate::support::child::{Finished, PATIENCE, Running, free_port, until};
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

/// A cluster of PostgreSQL's, with its files in a directory, and how its server is reached.
struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    socket: String,
    port: String,
    patience: Duration,
}

impl Cluster {
    fn make(home: &Path, patience: Duration) -> Self {
        let programs = postgres_directory();
        fs::create_dir(home).unwrap();
        give_to_postgres(home);
        let data = home.join("data");
        let make =
            [programs.join("initdb").to_str().unwrap(), "--no-sync", "--auth=trust", "--username=postgres"]
                .map(str::to_owned);
        let words = [&as_postgres()[..], &make].concat();
        let mut initdb = Command::new(&words[0]);
        let mut running = Running::start(initdb.args(&words[1..]).arg("-D").arg(&data).current_dir("/"));
        running.finish(PATIENCE).success();
        let socket = home.to_str().unwrap().to_owned();
        Self { programs, data, socket, port: free_port().to_string(), patience }
    }

    /// The program that its server is begun with, and its arguments.
    fn server(&self) -> Vec<String> {
        let data = self.data.to_str().unwrap();
        let server = self.programs.join("postgres");
        let words = [
            &[server.to_str().unwrap(), "-D", data, "-k", &self.socket, "-p", &self.port][..],
            &["-h", "127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB"],
            &["-c", "autovacuum_naptime=1s"],
        ];
        [as_postgres(), words.concat().into_iter().map(str::to_owned).collect()].concat()
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new(self.programs.join(program));
        command.args(["-h", &self.socket, "-p", &self.port, "-U", "postgres"]).args(arguments);
        Running::start(command.current_dir("/")).finish(self.patience)
    }

    fn ask(&self, sql: &str) -> Finished {
        self.client("psql", &["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"])
    }

    fn await_server(&self, server: &mut Running) {
        until(PATIENCE, "PostgreSQL to answer", || {
            assert!(!server.has_ended(), "PostgreSQL has ended: {}", server.complaint());
            self.ask("select 1").status.success().then_some(())
        });
    }

    fn fill(&self, scale: &str) {
        self.client("pgbench", &["-i", "-q", "-s", scale, "postgres"]).success();
    }

    /// So many transactions of each of four clients; what the books say then.
    fn transact(&self, transactions: &str) -> String {
        // Without -n it would empty the history first.
        let bench = self.client("pgbench", &["-n", "-c", "4", "-j", "2", "-t", transactions, "postgres"]);
        assert!(bench.success().contains("number of failed transactions: 0"), "{}", bench.text());
        let books = self.ask(BOOKS).success();
        assert!(books.starts_with("t|"), "pgbench's sums differ: {books}");
        books
    }

    fn sort(&self, rows: &str) -> String {
        self.ask(&LARGE.replace("ROWS", rows)).success()
    }
}

fn postgres(launch: &Launch, scale: Scale) -> String {
    let cluster = Cluster::make(&launch.work().join("postgres"), launch.patience());
    let words = cluster.server();
    let mut server = launch.start(launch.command(&words[0]).args(&words[1..]).current_dir("/"));
    cluster.await_server(&mut server.running);
    cluster.fill(scale.pick("1", "5"));
    let books = cluster.transact(scale.pick("100", "1000"));
    let large = cluster.sort(scale.pick("150000", "600000"));
    // A fast shutdown.
    server.stop(Signal::INT).success();
    books + &large
}

/// A server at work, whose books must agree and whose large query must always give the same.
pub struct PostgresAtWork {
    pub server: Running,
    cluster: Cluster,
    sorted: String,
    _home: tempfile::TempDir,
}

/// Rows of its large query.
const ROWS: &str = "60000";

impl PostgresAtWork {
    /// `run` makes the command that runs a program.
    pub fn start(run: impl FnOnce(&str) -> Command) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let cluster = Cluster::make(&home.path().join("postgres"), 5 * PATIENCE);
        let words = cluster.server();
        let mut server = Running::start(run(&words[0]).args(&words[1..]).current_dir("/"));
        cluster.await_server(&mut server);
        cluster.fill("1");
        let sorted = cluster.sort(ROWS);
        Self { server, cluster, sorted, _home: home }
    }

    /// It must get further, and find everything right.
    pub fn goes_on(&mut self) {
        self.cluster.transact("25");
        assert_eq!(self.cluster.sort(ROWS), self.sorted, "{}", self.server.complaint());
    }

    /// The same once more, and then it is told to end.
    pub fn ends_whole(mut self) -> Finished {
        self.goes_on();
        kill_process(self.server.pid(), Signal::INT).unwrap();
        let finished = self.server.finish(PATIENCE);
        finished.success();
        finished
    }
}
