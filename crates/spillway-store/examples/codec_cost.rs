//! What compressing a program's own pages costs and yields, codec by codec, beside zram: pages of running
//! processes' private memory, each compressed alone.
//!
//! ```text
//! cargo run --release -p spillway-store --example codec_cost -- PID...
//! ```
//!
//! As root it measures zram too: pages are written to a device of its own and read back, past the page cache.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::time::Instant;

use lz4::block::{CompressionMode, compress_to_buffer, decompress_to_buffer};
use rustix::fs::OFlags;
use spillway_core::page::PAGE_SIZE;
use zstd::bulk;

/// Pages of a process that are taken, from all over its memory.
const MOST_PAGES: usize = 8192;
/// Rounds, of which the fastest counts: others use the machine too.
const ROUNDS: usize = 3;

/// As a device wants it.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; PAGE_SIZE]);

/// A codec's turn: nanoseconds a page in and out, and bytes of all pages.
struct Cost {
    pack_ns: f64,
    unpack_ns: f64,
    bytes: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    for pid in std::env::args().skip(1) {
        of_process(&pid)?;
    }
    Ok(())
}

fn of_process(pid: &str) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    let pages = pages_of(pid)?;
    let zeros = pages.iter().filter(|page| page.0.iter().all(|&byte| byte == 0)).count();
    let filled = pages.iter().filter(|page| is_filled(page)).count() - zeros;
    let used: Vec<Page> = pages.iter().filter(|page| !is_filled(page)).cloned().collect();
    let share = |count: usize| count as f64 * 100.0 / pages.len().max(1) as f64;
    writeln!(
        out,
        "{}: {} pages, {:.1}% zeros, {:.1}% filled with another word; of the rest:",
        name.trim(),
        pages.len(),
        share(zeros),
        share(filled)
    )?;
    let mut show = |codec: &str, cost: Cost| {
        let ratio = (used.len() * PAGE_SIZE) as f64 / cost.bytes.max(1) as f64;
        writeln!(
            out,
            "  {codec:<12} {:>6.0} ns in {:>6.0} ns out, ratio {ratio:.2}",
            cost.pack_ns, cost.unpack_ns
        )
    };
    show("lz4_flex", lz4_flex(&used))?;
    for acceleration in [1, 2, 4, 8] {
        show(&format!("lz4 fast {acceleration}"), lz4_c(&used, acceleration)?)?;
    }
    for level in [-7, -5, -3, -1, 1] {
        show(&format!("zstd {level}"), zstd(&used, level)?)?;
    }
    match zram(&used) {
        Ok(cost) => show("zram", cost)?,
        Err(error) => writeln!(out, "  zram         not measured: {error}")?,
    }
    Ok(())
}

/// A word that is repeated all over: zram stores such pages as that word.
fn is_filled(page: &Page) -> bool {
    let (words, _) = page.0.as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}

/// Pages of the process's writable private mappings that are there, evenly from all of them.
fn pages_of(pid: &str) -> Result<Vec<Page>, Box<dyn Error>> {
    let (memory, pagemap) =
        (File::open(format!("/proc/{pid}/mem"))?, File::open(format!("/proc/{pid}/pagemap"))?);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut present = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ") && !line.contains(".so")) {
        let Some((range, _)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        for at in (from..to).step_by(PAGE_SIZE) {
            let mut entry = [0; 8];
            let is_read = pagemap.read_exact_at(&mut entry, at / PAGE_SIZE as u64 * 8).is_ok();
            // Bit 63 says that the page is present.
            if is_read && u64::from_le_bytes(entry) >> 63 == 1 {
                present.push(at);
            }
        }
    }
    let step = present.len().div_ceil(MOST_PAGES).max(1);
    let mut pages = Vec::new();
    for &at in present.iter().step_by(step) {
        let mut page = Page([0; PAGE_SIZE]);
        if memory.read_exact_at(&mut page.0, at).is_ok() {
            pages.push(page);
        }
    }
    Ok(pages)
}

/// Times a codec on all pages, and holds what comes back against what went in.
fn measure(
    pages: &[Page],
    mut pack: impl FnMut(&Page, &mut [u8]) -> usize,
    mut unpack: impl FnMut(&[u8], &mut Page),
) -> Cost {
    let mut cost = Cost { pack_ns: f64::MAX, unpack_ns: f64::MAX, bytes: 0 };
    let mut back = Page([0; PAGE_SIZE]);
    for _ in 0..ROUNDS {
        let mut packed = vec![[0_u8; PAGE_SIZE * 2]; pages.len()];
        let begun = Instant::now();
        let sizes: Vec<usize> = pages.iter().zip(&mut packed).map(|(page, to)| pack(page, to)).collect();
        let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / pages.len().max(1) as f64;
        cost.pack_ns = cost.pack_ns.min(each(begun));
        // What does not become shorter is kept as it is.
        cost.bytes = sizes.iter().map(|&size| size.min(PAGE_SIZE) as u64).sum();
        let begun = Instant::now();
        for (size, from) in sizes.iter().zip(&packed) {
            unpack(&from[..*size], &mut back);
        }
        cost.unpack_ns = cost.unpack_ns.min(each(begun));
        for ((size, from), page) in sizes.iter().zip(&packed).zip(pages) {
            unpack(&from[..*size], &mut back);
            assert!(back.0 == page.0, "a page does not return");
        }
    }
    cost
}

fn lz4_flex(pages: &[Page]) -> Cost {
    let mut table = lz4_flex::block::CompressTable::small();
    measure(
        pages,
        |page, to| lz4_flex::block::compress_into_with_table(&page.0, to, &mut table).unwrap_or(0),
        |from, page| _ = lz4_flex::block::decompress_into(from, &mut page.0),
    )
}

fn lz4_c(pages: &[Page], acceleration: i32) -> Result<Cost, Box<dyn Error>> {
    let mode = CompressionMode::FAST(acceleration);
    Ok(measure(
        pages,
        |page, to| compress_to_buffer(&page.0, Some(mode), false, to).unwrap_or(0),
        |from, page| _ = decompress_to_buffer(from, Some(PAGE_SIZE as i32), &mut page.0),
    ))
}

fn zstd(pages: &[Page], level: i32) -> Result<Cost, Box<dyn Error>> {
    let (mut pack, mut unpack) = (bulk::Compressor::new(level)?, bulk::Decompressor::new()?);
    Ok(measure(
        pages,
        |page, to| pack.compress_to_buffer(&page.0, to).unwrap_or(0),
        |from, page| _ = unpack.decompress_to_buffer(from, &mut page.0[..]),
    ))
}

/// A device of zram's own default codec.
struct Zram(String);

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

/// Each page by a write and a read of its own, with what the kernel needs for them.
fn zram(pages: &[Page]) -> Result<Cost, Box<dyn Error>> {
    let zram = Zram(fs::read_to_string("/sys/class/zram-control/hot_add")?.trim().to_owned());
    let block = format!("/sys/block/zram{}", zram.0);
    fs::write(format!("{block}/disksize"), (pages.len().max(1) * PAGE_SIZE).to_string())?;
    let node = format!("/dev/zram{}", zram.0);
    if !fs::exists(&node)? {
        let numbers = fs::read_to_string(format!("{block}/dev"))?;
        let (major, minor) = numbers.trim().split_once(':').ok_or("a device without numbers")?;
        Command::new("mknod").args([&node, "b", major, minor]).status()?;
    }
    let direct = OFlags::DIRECT.bits() as i32;
    let device = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&node)?;
    let mut cost = Cost { pack_ns: f64::MAX, unpack_ns: f64::MAX, bytes: 0 };
    let mut back = Page([0; PAGE_SIZE]);
    for _ in 0..ROUNDS {
        let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / pages.len().max(1) as f64;
        let begun = Instant::now();
        for (number, page) in pages.iter().enumerate() {
            device.write_all_at(&page.0, (number * PAGE_SIZE) as u64)?;
        }
        cost.pack_ns = cost.pack_ns.min(each(begun));
        let begun = Instant::now();
        for number in 0..pages.len() {
            device.read_exact_at(&mut back.0, (number * PAGE_SIZE) as u64)?;
        }
        cost.unpack_ns = cost.unpack_ns.min(each(begun));
    }
    // The second number: bytes of compressed data.
    let stat = fs::read_to_string(format!("{block}/mm_stat"))?;
    cost.bytes = stat.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(cost)
}
