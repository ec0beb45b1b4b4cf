//! The programs that are one command each, with inputs that are the same in every run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::job::{Job, no_room};
use crate::BenchError;
use crate::access::mix;
use crate::whole::workload::Site;

/// Writes a file of an input.
pub(super) fn written(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), BenchError> {
    let file = File::create(path).map_err(no_room)?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    write(&mut file).and_then(|()| file.flush()).map_err(no_room)
}

/// Lines of so many words from a vocabulary in which some are frequent, up to `bytes`.
fn write_text(file: &mut dyn Write, bytes: usize, words_a_line: u64) -> std::io::Result<()> {
    let (mut done, mut draw) = (0, 1_u64);
    while done < bytes {
        let mut line = String::with_capacity(1024);
        for _ in 0..words_a_line {
            draw = draw.wrapping_add(1);
            let random = mix(draw);
            // The minimum of two draws prefers the beginning of the vocabulary.
            let word = (random & 0xFFFF).min(random >> 16 & 0xFFFF);
            line.push_str(&format!("{:x} ", mix(word) >> (word % 24 + 8)));
        }
        line.push('\n');
        file.write_all(line.as_bytes())?;
        done += line.len();
    }
    Ok(())
}

fn strings<const N: usize>(arguments: [&str; N]) -> Vec<String> {
    arguments.map(str::to_owned).to_vec()
}

/// Of a program that has no input.
pub(super) fn no_input(_: &Site<'_>, _: &Path) -> Result<(), BenchError> {
    Ok(())
}

pub(super) fn sort() -> Job {
    Job {
        name: "sort",
        about: "GNU sort of lines of 1 KB, in memory, 2 threads",
        program: "sort",
        remedy: "install it: apt-get install coreutils",
        input: |site, directory| {
            let lines = site.pick(60_000_u64, 1_200_000);
            written(&directory.join("input"), |file| {
                for line in 1..=lines {
                    let key = mix(line);
                    write!(file, "{key:016x} line {line:08}")?;
                    for word in 0..97 {
                        write!(file, " {:09}", mix(key + word % 31) % 1_000_000_000)?;
                    }
                    file.write_all(b"\n")?;
                }
                Ok(())
            })
        },
        arguments: |site, _| {
            let buffer = site.pick("--buffer-size=160M", "--buffer-size=3G");
            strings([buffer, "--parallel=2", "--output=sorted", "input"])
        },
        output: Some("sorted"),
    }
}

pub(super) fn xz() -> Job {
    Job {
        name: "xz",
        about: "xz with a window as long as its input of text, 1 thread",
        program: "xz",
        remedy: "install it: apt-get install xz-utils",
        input: |site, directory| {
            let bytes = site.pick(5 << 20, 128 << 20);
            written(&directory.join("text"), |file| write_text(file, bytes, 12))
        },
        arguments: |site, _| {
            let filter =
                site.pick("--lzma2=preset=0,dict=8MiB,mf=hc4", "--lzma2=preset=1,dict=128MiB,mf=hc4");
            strings(["--threads=1", "--format=xz", "--keep", "--force", filter, "text"])
        },
        output: Some("text.xz"),
    }
}

pub(super) fn zstd() -> Job {
    Job {
        name: "zstd",
        about: "zstd -5 with a long window over text, 1 thread",
        program: "zstd",
        remedy: "install it: apt-get install zstd",
        input: |site, directory| {
            let bytes = site.pick(40 << 20, 1 << 30);
            written(&directory.join("text"), |file| write_text(file, bytes, 12))
        },
        arguments: |site, _| {
            let window = site.pick("--long=25", "--long=29");
            strings(["--single-thread", "-5", window, "--quiet", "--force", "text", "-o", "packed"])
        },
        output: Some("packed"),
    }
}

pub(super) fn sqlite() -> Job {
    Job {
        name: "sqlite",
        about: "SQLite in memory: a table is filled, indexed, joined with itself, grouped and sorted",
        program: "sqlite3",
        remedy: "install it: apt-get install sqlite3",
        input: |site, directory| {
            let rows = site.pick(70_000, 6_000_000);
            written(&directory.join("queries.sql"), |file| {
                write!(
                    file,
                    "create table t(id integer primary key, k integer, g integer, v text);\n\
                     with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})\n\
                     insert into t select i, (i * 2654435761) % {rows}, (i * 40503) % 9973,\n\
                     printf('%016x%0284d', i * 2654435761, i) from n;\n\
                     create index by_k on t(k);\n\
                     select count(*), sum(a.id % 1000 + b.g)\n\
                     from t a join t b on b.k = a.id where a.g < 4000;\n\
                     select g, count(*), max(v) from t group by g order by 3 desc limit 5;\n\
                     select sum(length(v)) from (select v from t order by v desc limit {rows} / 2);\n"
                )
            })
        },
        arguments: |_, _| strings(["-batch", ":memory:", ".read queries.sql"]),
        output: None,
    }
}

pub(super) fn node() -> Job {
    Job {
        name: "node",
        about: "Node: a map of objects of which one in four is replaced, with a heap that is collected",
        program: "node",
        remedy: "install it: apt-get install nodejs",
        input: no_input,
        arguments: |site, _| {
            let objects = site.pick(250_000, 6_000_000);
            let script = format!(
                "const n = {objects}, m = new Map(); let x = 1;\n\
                 const next = () => (x = (x * 1103515245 + 12345) % 2147483648);\n\
                 for (let i = 0; i < n; i++)\n\
                 m.set(i, {{id: i, name: 'item ' + i, list: [i, next(), next()]}});\n\
                 for (let i = 0; i < n; i++) {{ if (i % 4 == 0) {{ const k = next() % n; \
                 m.set(k, {{id: k, name: 'other ' + i, list: [i, k, next()]}}); }} }}\n\
                 let sum = 0;\n\
                 for (const o of m.values())\n\
                 sum = (sum * 31 + o.list[2] + o.name.length) % 1000000007;\n\
                 console.log(m.size, sum);"
            );
            // V8 sizes its young generation by the cgroup's limit, which only swap has: without this it is a
            // smaller program there.
            strings(["--max-old-space-size=6144", "--max-semi-space-size=16", "-e", &script])
        },
        output: None,
    }
}

pub(super) fn gcc() -> Job {
    Job {
        name: "gcc",
        about: "gcc compiles one large generated C file: -O1, or -O0 in a quick run",
        program: "gcc",
        remedy: "install it: apt-get install gcc",
        input: |site, directory| {
            let functions = site.pick(500_u64, 12_000);
            written(&directory.join("large.c"), |file| {
                for function in 0..functions {
                    let factor = mix(function) % 9_973 + 3;
                    write!(
                        file,
                        "int f{function}(int *a, int n) {{ int s = {function}; \
                         for (int i = 0; i < n; i++) {{ \
                         if (a[i] % {factor} == 0) s += a[i] * {factor}; else if (a[i] > s) s ^= a[i] << 3; \
                         else s -= i; switch (s & 7) {{ case 0: a[i] = s; break; case 3: s += 7; break; \
                         case 5: return s; default: a[n - i - 1] ^= s; }} }} return s; }}\n\
                         static const int t{function}[] = {{"
                    )?;
                    for entry in 0..64 {
                        write!(file, "{},", mix(function << 8 | entry) as i32)?;
                    }
                    file.write_all(b"};\n")?;
                    writeln!(file, "int g{function}(int i) {{ return t{function}[i & 63]; }}")?;
                }
                Ok(())
            })
        },
        arguments: |site, _| strings([site.pick("-O0", "-O1"), "-S", "-o", "large.s", "large.c"]),
        output: Some("large.s"),
    }
}

/// A repository with many versions of a few large files, by git fast-import(1).
fn make_repository(site: &Site<'_>, directory: &Path) -> Result<(), BenchError> {
    let (versions, lines) = (site.pick(40_u64, 160), site.pick(20_000_u64, 80_000));
    let failed = |error: std::io::Error| BenchError::setup("make a git repository", error, "install git");
    let repository = directory.join("repository");
    site.output_of(Command::new("git").args(["init", "--quiet", "--bare"]).arg(&repository))?;
    let mut import = Command::new("git")
        .arg("-C")
        .arg(&repository)
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(stdin) = import.stdin.take() {
        let mut file = BufWriter::with_capacity(1 << 20, stdin);
        for version in 0..versions {
            let text: String = (0..lines)
                .map(|line| {
                    // One line in fifty changes with each version.
                    let since = (version + mix(line) % 50) / 50;
                    format!("{:016x} {:08x}\n", mix(line), mix(line << 16 | since) as u32)
                })
                .collect();
            let message = format!("version {version}\n");
            write!(
                file,
                "commit refs/heads/main\ncommitter A <a@example.org> {} +0000\ndata {}\n{message}\
                 M 100644 inline file{}\ndata {}\n{text}\n",
                1_700_000_000 + version,
                message.len(),
                version % 4,
                text.len()
            )
            .map_err(failed)?;
        }
        file.flush().map_err(failed)?;
    }
    let status = import.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(failed(std::io::Error::other(status.to_string()))) }
}

pub(super) fn git_pack() -> Job {
    Job {
        name: "git_pack",
        about: "git finds the deltas of a repository anew (as repack -f), 1 thread",
        program: "git",
        remedy: "install it: apt-get install git",
        input: make_repository,
        arguments: |_, _| {
            let mut arguments = strings(["-C", "repository", "pack-objects", "--all", "--threads=1", "-q"]);
            arguments.extend(strings(["--no-reuse-delta", "--window=40", "--depth=50", "../pack"]));
            arguments
        },
        output: None,
    }
}
