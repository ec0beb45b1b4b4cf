"""Tries what `spillway advise` says: runs real programs with little local memory, asks how much they would
need to lose at most 10%, runs them again with that, and prints a table of what they lost then.

usage: try.py [--spillway COMMAND] [--warm-up SECONDS] [--watch SECONDS] [NAME...]
Needs redis-server, redis-benchmark, sqlite3, perl and python3. Each program takes twice the two times."""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

ZIPF = """
import random
random.seed(1)
pages = 24000
held = [bytearray(4000) for _ in range(pages)]
weights = [1 / (rank + 1) for rank in range(pages)]
order = list(range(pages))
random.shuffle(order)
while True:
    for at in random.choices(order, weights, k=2000):
        held[at][7] = held[at][7] + 1 & 255
"""

HASH = """
my %seen; my $x = 1;
for my $i (1 .. 400000) { $x = ($x * 1103515245 + 12345) % 4294967296; $seen{$i} = "$i:$x" x 4; }
while (1) {
    # A tenth of the keys is asked for nine times in ten.
    $x = ($x * 1103515245 + 12345) % 4294967296;
    my $key = ($x >> 8) % 10 ? 1 + ($x >> 4) % 40000 : 1 + ($x >> 4) % 400000;
    $seen{$key} .= "." if length $seen{$key} < 200;
}
"""

SQL = """
create table t(id integer primary key, k integer, g integer, v text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 250000)
insert into t select i, (i * 2654435761) % 250000, (i * 40503) % 997, printf('%0200d', i) from n;
create index by_k on t(k);
"""
# Look-ups by the index, most of them among few keys.
QUERY = ("select count(*), sum(length(b.v)) from t a join t b on b.k = (a.id * a.g) %% 250000 "
         "where a.g = %d;\n")

PROGRAMS = {
    "zipf": (["python3", "-c", ZIPF], "60M"),
    "hash": (["perl", "-e", HASH], "50M"),
    "sqlite": (["sqlite3", "-batch", ":memory:"], "50M"),
    "redis": (["redis-server", "--port", "0", "--save", "", "--unixsocket"], "60M"),
}


class Program:
    """One of the programs under `spillway run`, at work until it is ended."""

    def __init__(self, arguments, name, local):
        self.spillway = arguments.spillway
        self.place = tempfile.TemporaryDirectory()
        self.helpers = []
        command, _ = PROGRAMS[name]
        if name == "redis":
            self.socket = os.path.join(self.place.name, "redis")
            command = command + [self.socket]
        stdin = subprocess.PIPE if name == "sqlite" else subprocess.DEVNULL
        self.run = subprocess.Popen(
            [self.spillway, "run", "--local", str(local), "--"] + command,
            stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.place.name,
        )
        if name == "sqlite":
            self.helpers.append(subprocess.Popen(
                [sys.executable, "-c", FEEDER], stdin=subprocess.DEVNULL, stdout=self.run.stdin))
            self.run.stdin.close()
        if name == "redis":
            while not os.path.exists(self.socket):
                time.sleep(0.05)
            work = ["redis-benchmark", "-s", self.socket, "-q", "-c", "4", "-d", "800", "-r", "150000"]
            subprocess.run(work + ["-n", "400000", "-t", "set"], stdout=subprocess.DEVNULL, check=True)
            for reach, count in [("30000", "3"), ("150000", "1")]:
                work[-1] = reach
                work[work.index("-c") + 1] = count
                self.helpers.append(subprocess.Popen(
                    work + ["-n", "100000000", "-t", "get,set"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def look(self):
        status = json.loads(subprocess.run(
            [self.spillway, "status", str(self.run.pid), "--json"], stdout=subprocess.PIPE).stdout)
        return status["alive"][0]

    def end(self):
        for helper in self.helpers:
            helper.kill()
            helper.wait()
        self.run.send_signal(signal.SIGTERM)
        self.run.wait()
        self.place.cleanup()


FEEDER = f"""
import random, sys
random.seed(1)
print({SQL!r})
while True:
    few = random.random() < 0.9
    print({QUERY!r} % (random.randrange(40) if few else random.randrange(997)), flush=True)
"""


def looks(program, seconds):
    """What the run tells at the beginning and at the end of some time."""
    first = program.look()
    time.sleep(seconds)
    return first, program.look()


def lost(first, last):
    us = last["run"]["fault_latency"]["total_us"] - first["run"]["fault_latency"]["total_us"]
    return us / 1e6 / (last["uptime_s"] - first["uptime_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spillway", default="spillway")
    parser.add_argument("--warm-up", type=float, default=40)
    parser.add_argument("--watch", type=int, default=30)
    parser.add_argument("--at-most", type=float, default=0.1, choices=[0.05, 0.1, 0.2])
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    share = f"{arguments.at_most:.0%}"
    print(f"| program | local | lost | told for {share}, since its start | lately | lost with the latter |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        base = PROGRAMS[name][1]
        program = Program(arguments, name, base)
        time.sleep(arguments.warm_up)
        before = lost(*looks(program, arguments.watch))
        told = json.loads(subprocess.run(
            [arguments.spillway, "advise", "--pid", str(program.look()["run"]["program_pid"]), "--json",
             "--last", str(arguments.watch)], stdout=subprocess.PIPE, check=True).stdout)
        program.end()
        of = lambda estimate: next(
            need["local_bytes"] for need in estimate["needs"] if need["lost_share"] == arguments.at_most)
        estimates = [("whole", told), ("last", told["last"])]
        need = {time: of(estimate) for time, estimate in estimates if estimate}
        after = None
        if need.get("last"):
            program = Program(arguments, name, f"{need['last']}B")
            time.sleep(arguments.warm_up)
            after = lost(*looks(program, arguments.watch))
            program.end()
        mib = lambda bytes: f"{bytes / 2**20:.0f}M" if bytes else "-"
        print(f"| {name} | {base} | {before:.1%} | {mib(need['whole'])} | {mib(need.get('last'))} | "
              + (f"{after:.1%} |" if after is not None else "- |"), flush=True)


main()
