//! Measures Reed-Solomon codes of 4+2 and ciphers for pages of 4 KiB by several libraries, beside those that
//! the product uses. Every result is compared with what it was computed from, and one that differs ends it.
//!
//! `cargo run --release --manifest-path research/codecs/Cargo.toml -- [--json] [--rounds N]`; with
//! `--features isal` ISA-L too, with `--features aegis-in-rust` AEGIS without C, with
//! `--no-default-features --features reed-solomon-erasure` that crate instead of the one made of it.

mod ciphers;
mod codes;
#[cfg(feature = "isal")]
mod isal;
mod measure;

use std::process::Command;

use serde_json::{Value, json};

use ciphers::{Cipher, Page, Tag};
use codes::{Code, DATA, PARTS, Row};
use measure::{COLD_BYTES, Counting, PAGE_BYTES, allocations, alternate, computed_ns, memory};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Pages that are gone through between two looks at the clock where they come from the caches: 256 KiB.
const WARM_PAGES: usize = 64;
/// What is lost in what is measured: one part of data, and two.
const LOST: [&[usize]; 2] = [&[1], &[0, 2]];
/// A child of this process measures the memory of the code whose number follows.
const MEMORY_OF: &str = "--memory-of";

/// Bytes that look like nothing, from a seed.
fn noise(seed: u64, bytes: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// The row whose parts lie one behind the other in these bytes.
fn row(bytes: &mut [u8]) -> Row<'_> {
    let mut parts = bytes.chunks_mut(bytes.len() / PARTS);
    std::array::from_fn(|_| parts.next().expect("so many parts"))
}

fn forget(row: &mut Row<'_>, lost: &[usize]) {
    lost.iter().for_each(|part| row[*part].fill(0xa5));
}

/// Loses every one and every two parts of data, and compares what comes back.
fn check(name: &str, code: &mut dyn Code, part_bytes: usize) {
    let mut bytes = vec![0; PARTS * part_bytes];
    noise(1, &mut bytes[..DATA * part_bytes]);
    code.encode(&mut row(&mut bytes));
    let whole = bytes.clone();
    for one in 0..DATA {
        for other in one..DATA {
            let lost = if one == other { vec![one] } else { vec![one, other] };
            forget(&mut row(&mut bytes), &lost);
            code.decode(&mut row(&mut bytes), &lost);
            assert!(bytes == whole, "{name}: without {lost:?} other bytes come back");
        }
    }
}

/// Whether ISA-L makes the parity that the product makes: then either can take the other's place.
#[cfg(feature = "isal")]
fn is_as_isal(part_bytes: usize) -> bool {
    let mut bytes = vec![0; PARTS * part_bytes];
    noise(5, &mut bytes);
    let mut other = bytes.clone();
    codes::contenders()[0].1().encode(&mut row(&mut bytes));
    isal::IsaL::new(false).encode(&mut row(&mut other));
    bytes == other
}

/// A code that is measured.
struct Coded {
    name: &'static str,
    code: Box<dyn Code>,
}

/// Nanoseconds for each page of data that is encoded.
fn encoding(coded: &mut Coded, rows: &mut [u8], row_bytes: usize, repeats: usize) -> f64 {
    let begun = computed_ns();
    for _ in 0..repeats {
        for bytes in rows.chunks_exact_mut(row_bytes) {
            coded.code.encode(&mut row(bytes));
        }
    }
    let pages = repeats * (rows.len() / row_bytes) * DATA * (row_bytes / PARTS) / PAGE_BYTES;
    (computed_ns() - begun) as f64 / pages as f64
}

/// Nanoseconds for each page that comes back. The first row is compared with what it was.
fn decoding(
    coded: &mut Coded,
    rows: &mut [u8],
    row_bytes: usize,
    repeats: usize,
    lost: &[usize],
    plain: &[u8],
) -> f64 {
    coded.code.encode(&mut row(&mut rows[..row_bytes]));
    forget(&mut row(&mut rows[..row_bytes]), lost);
    // Every row needs parity of this code's own; that is computed where the clock does not run.
    for bytes in rows.chunks_exact_mut(row_bytes).skip(1) {
        coded.code.encode(&mut row(bytes));
    }
    let begun = computed_ns();
    for _ in 0..repeats {
        for bytes in rows.chunks_exact_mut(row_bytes) {
            coded.code.decode(&mut row(bytes), lost);
        }
    }
    let time = computed_ns() - begun;
    assert!(rows[..plain.len()] == *plain, "{}: other bytes came back", coded.name);
    let pages = repeats * (rows.len() / row_bytes) * lost.len() * (row_bytes / PARTS) / PAGE_BYTES;
    time as f64 / pages as f64
}

fn codes(rounds: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let names: Vec<_> = codes::contenders().into_iter().map(|(name, _)| name).collect();
    let made = || codes::contenders().into_iter().map(|(name, make)| Coded { name, code: make() });
    for part_bytes in [PAGE_BYTES, 4 * PAGE_BYTES] {
        let mut all: Vec<Coded> = made().collect();
        all.iter_mut().for_each(|coded| check(coded.name, &mut *coded.code, part_bytes));
        let row_bytes = PARTS * part_bytes;
        let cold = COLD_BYTES / row_bytes;
        for (from, count, repeats) in [("caches", 1, cold), ("memory", cold, 1)] {
            let mut rows = vec![0; count * row_bytes];
            noise(2, &mut rows);
            let plain = rows[..DATA * part_bytes].to_vec();
            let mut add = |work: &str, lost: usize, times: Vec<measure::Spread>| {
                for (coded, time) in names.iter().zip(times) {
                    found.push(json!({
                        "code": coded, "part_bytes": part_bytes, "from": from, "work": work, "lost": lost,
                        "page": time.json(),
                    }));
                }
            };
            let times = alternate(&mut all, rounds, |coded| encoding(coded, &mut rows, row_bytes, repeats));
            add("encode", 0, times);
            for lost in LOST {
                let times = alternate(&mut all, rounds, |coded| {
                    decoding(coded, &mut rows, row_bytes, repeats, lost, &plain)
                });
                add("decode", lost.len(), times);
            }
        }
    }
    found
}

/// What one code allocates for each row, once it has done this before.
fn allocated() -> Vec<Value> {
    let of = |(name, make): codes::Contender| {
        let mut code = make();
        check(name, &mut *code, PAGE_BYTES);
        let mut bytes = vec![0; PARTS * PAGE_BYTES];
        let encode = allocations(|| code.encode(&mut row(&mut bytes)));
        let [one, two] = LOST.map(|lost| allocations(|| code.decode(&mut row(&mut bytes), lost)));
        json!({"code": name, "encode": encode, "decode_one": one, "decode_two": two})
    };
    codes::contenders().into_iter().map(of).collect()
}

/// What a process holds more once it has encoded a row and decoded it: memory of its own and of files.
fn memory_of(at: usize) -> Value {
    let (name, make) = codes::contenders()[at];
    let mut bytes = vec![1; PARTS * PAGE_BYTES];
    memory();
    let before = memory();
    let mut code = make();
    code.encode(&mut row(&mut bytes));
    LOST.iter().for_each(|lost| code.decode(&mut row(&mut bytes), lost));
    let after = memory();
    json!({"code": name, "own_bytes": after.0.saturating_sub(before.0),
        "file_bytes": after.1.saturating_sub(before.1)})
}

/// As [`memory_of`], each in a process of its own.
fn memories() -> Vec<Value> {
    let program = std::env::current_exe().expect("this program lies somewhere");
    let of = |at: usize| {
        let child = Command::new(&program).args([MEMORY_OF, &at.to_string()]).output().expect("it starts");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        serde_json::from_slice(&child.stdout).expect("it prints JSON")
    };
    (0..codes::contenders().len()).map(of).collect()
}

/// A cipher, the next number that it has not used, and the sealed pages that it opens.
struct Sealing {
    cipher: Box<dyn Cipher>,
    number: u64,
    tags: Vec<Tag>,
}

impl Sealing {
    fn seal(&mut self, pages: &mut [Page]) {
        self.tags.clear();
        for page in pages {
            self.tags.push(self.cipher.seal(self.number, page));
            self.number += 1;
        }
    }

    /// Opens what was sealed last. False where something is refused.
    fn open(&self, pages: &mut [Page]) -> bool {
        let first = self.number - self.tags.len() as u64;
        let open = |((page, tag), number)| self.cipher.open(number, tag, page);
        pages.iter_mut().zip(&self.tags).zip(first..).all(open)
    }
}

/// What was sealed comes back, and nothing that was changed.
fn check_cipher(name: &str, sealing: &mut Sealing) {
    let mut plain = [[0; PAGE_BYTES]];
    noise(3, &mut plain[0]);
    for bit in [None, Some(0), Some(8 * PAGE_BYTES / 2), Some(8 * PAGE_BYTES - 1)] {
        let mut pages = plain;
        sealing.seal(&mut pages);
        assert!(pages != plain, "{name} seals nothing");
        bit.into_iter().for_each(|bit: usize| pages[0][bit / 8] ^= 1 << (bit % 8));
        let opened = sealing.open(&mut pages);
        assert!(opened == bit.is_none() && (!opened || pages == plain), "{name}: bit {bit:?}");
    }
}

/// Nanoseconds for sealing a page, and for opening one.
fn ciphers(rounds: usize) -> Vec<Value> {
    let made = |(name, make): ciphers::Contender| {
        let mut sealing = Sealing { cipher: make(), number: 1, tags: Vec::new() };
        check_cipher(name, &mut sealing);
        sealing
    };
    let mut all: Vec<Sealing> = ciphers::contenders().into_iter().map(made).collect();
    let cold = COLD_BYTES / PAGE_BYTES;
    let mut found = Vec::new();
    for (from, pages, repeats) in [("caches", WARM_PAGES, 64), ("memory", cold, 1)] {
        let mut room = vec![[0; PAGE_BYTES]; pages];
        room.iter_mut().zip(4..).for_each(|(page, seed)| noise(seed, page));
        let plain = room[0];
        // Both of a round's times are of the same pages: sealed, and opened again.
        let mut opens = vec![Vec::new(); all.len()];
        let mut turn = 0;
        let count = all.len();
        let seals = alternate(&mut all, rounds, |sealing| {
            let (mut to_seal, mut to_open) = (0, 0);
            for _ in 0..repeats {
                let begun = computed_ns();
                sealing.seal(&mut room);
                let between = computed_ns();
                let opened = sealing.open(&mut room);
                to_open += computed_ns() - between;
                to_seal += between - begun;
                assert!(opened && room[0] == plain, "what was sealed does not open");
            }
            let (round, at) = (turn / count, (turn % count + turn / count) % count);
            if round > 0 {
                opens[at].push(to_open as f64 / (repeats * pages) as f64);
            }
            turn += 1;
            to_seal as f64 / (repeats * pages) as f64
        });
        let opens = opens.into_iter().map(measure::Spread::of);
        for (((name, _), seal), open) in ciphers::contenders().into_iter().zip(seals).zip(opens) {
            found.push(json!({"cipher": name, "from": from, "seal": seal.json(), "open": open.json()}));
        }
    }
    found
}

/// What the processor has of what matters here.
fn processor() -> Value {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    };
    let flags = of("flags");
    let has = |flag: &&str| flags.split(' ').any(|word| word == *flag);
    let matter = ["ssse3", "avx2", "avx512bw", "gfni", "aes", "vaes", "vpclmulqdq"];
    json!({"name": of("model name"), "family": of("cpu family"),
        "has": matter.into_iter().filter(|flag| has(flag)).collect::<Vec<_>>()})
}

fn print_tables(all: &Value) {
    let list = |name: &str| all[name].as_array().cloned().unwrap_or_default();
    let ns = |time: &Value| format!("{} ({} to {})", time["median_ns"], time["low_ns"], time["high_ns"]);
    for one in list("codes") {
        let (code, from, work) = (one["code"].as_str(), one["from"].as_str(), one["work"].as_str());
        let [code, from, work] = [code, from, work].map(Option::unwrap_or_default);
        let (kib, lost) = (one["part_bytes"].as_u64().unwrap_or_default() >> 10, &one["lost"]);
        println!("{work} {lost} {kib} KiB {from}: {code}: {} ns a page", ns(&one["page"]));
    }
    for one in list("allocations").iter().chain(&list("memory")) {
        println!("{one}");
    }
    for one in list("ciphers") {
        let [cipher, from] = ["cipher", "from"].map(|key| one[key].as_str().unwrap_or_default());
        println!("{cipher}, {from}: seal {} ns a page, open {} ns", ns(&one["seal"]), ns(&one["open"]));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number_behind = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        Some(arguments.get(at + 1).and_then(|text| text.parse().ok()).expect("a number follows"))
    };
    if let Some(at) = number_behind(MEMORY_OF) {
        return println!("{}", memory_of(at));
    }
    #[cfg(feature = "isal")]
    assert!([64, PAGE_BYTES, 4 * PAGE_BYTES].into_iter().all(is_as_isal), "ISA-L makes other parity");
    let rounds = number_behind("--rounds").unwrap_or(21);
    let all = json!({
        "rounds": rounds,
        "processor": processor(),
        "aegis_by": ciphers::AEGIS_BY,
        "allocations": allocated(),
        "memory": memories(),
        "codes": codes(rounds),
        "ciphers": ciphers(rounds),
    });
    if arguments.iter().any(|argument| argument == "--json") {
        println!("{all:#}");
    } else {
        print_tables(&all);
    }
}
